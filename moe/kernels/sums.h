/* Sums of combine: what a token's is made of, as the lanes of a warp have it, and how they add it up, of four
 * columns a lane: ranks in their order, and a rank's experts in the order of the token's. */
namespace moe {

/* What a sum is made of. A row of 16-bit numbers is one term. One of f32 is two, that have the first and the
 * second two of every four columns: so a lane loads 8 bytes of each. */
struct term {
  const unsigned char *at;
  float weight;
  uint32_t kind;
};
enum : uint32_t {
  term_f32 = 1,
  term_second = 2, /* the second of the two of a row of f32 */
  term_ends = 4,   /* the last of a rank's: its sum is added to those of the ranks before */
  term_rounds = 8, /* with `term_ends`: once it is rounded as one that travels */
};
constexpr uint32_t terms_a_row = y_bytes == 4 ? 2 : 1;

/* What the home knows of a rank's sum that comes as packets. */
struct share {
  uint32_t unit;                 /* its place among the units of the token's results; `own`: none, as this rank adds
                                    its own experts' results itself */
  uint32_t narrow;               /* of 16-bit numbers; else f32 */
  float weight;                  /* what a row is multiplied by that is as the expert left it */
};
constexpr uint32_t own = ~0u;

/* A token, as the lanes of a warp have it while they push a sum, or collect sums. */
struct summing {
  term terms[terms_a_row * most_top_k];
  uint32_t count;                /* of terms */
  uint32_t narrow;               /* of a push: whether the sum travels as 16-bit numbers */
  uint32_t unit;                 /* of a push: its place at the home */
  uint32_t ranks;
  uint32_t own_at, own_count;    /* of the home: this rank's terms */
  uint32_t others, other_at;     /* other ranks, and where the terms of the last of them begin */
  unsigned char *to;             /* of a push: where the home has the sum; null where that is far */
  share shares[most_top_k];      /* of packets: in the order of ranks */
};

__device__ inline uint32_t count_known(const exchange &e, const rushmem::team &t, uint64_t round, uint32_t source) {
  if (is_absent(e, source)) return 0;
  const uint64_t said = routing_of(e, static_cast<uint32_t>(t.n_pes()), round & 1, source)->value;
  return said > e.max_tokens ? 0 : static_cast<uint32_t>(said);
}

/* One of a token's experts, a lane each, as routing has it. */
struct choice {
  uint32_t id, rank;             /* ~0: none */
  float weight;
  uint32_t alike;                /* lanes whose experts are of the same rank */
  bool first;                    /* of those the first */
  uint32_t units;                /* that rank's units */
  bool narrow;
};
__device__ inline choice choice_of(const exchange &e, const packet *slots, uint64_t round) {
  const uint32_t lane = lane_of();
  choice c{};
  c.id = nowhere;
  c.weight = 1;
  if (lane < e.top_k) {
    const uint64_t four_ids = slots[lane / 4].value;
    if (e.weighted) {
      /* Of a token of which this rank got nothing but routing, weights may still be on their way. */
      const uint64_t two = rushmem::wait_packed(slots + id_words(e) + lane / 2, round);
      c.weight = __uint_as_float(static_cast<uint32_t>(lane % 2 ? two >> 32 : two));
    }
    c.id = static_cast<uint32_t>(four_ids >> (16 * (lane % 4))) & 0xffff;
  }
  c.rank = c.id < unheard ? rank_of(e, c.id) : ~0u;
  c.alike = __match_any_sync(all_lanes, c.rank);
  c.first = c.rank != ~0u && (c.alike & ((1u << lane) - 1)) == 0;
#if MOE_LAYOUT == 1
  c.narrow = y_bytes == 2;
  c.units = 1;
#else
  c.narrow = y_bytes == 2 && (e.rounded || __popc(c.alike) == 1);
  c.units = y_bytes == 4 || c.narrow ? 1 : 2;
#endif
  if (!c.first) c.units = 0;
  return c;
}

/* What of a token's lies before this lane's expert, ranks in their order and a rank's experts in the token's:
 * units, ranks, and terms, of which each lane says how many its expert has. */
struct before {
  uint32_t units, ranks, terms;
};
__device__ inline before before_this(const exchange &e, const choice &c, uint32_t terms) {
  before b{0, 0, 0};
  const uint32_t said = c.rank == ~0u ? ~0u : c.rank << 8 | c.units << 4 | terms;
#pragma unroll 4
  for (uint32_t lane = 0; lane < e.top_k; ++lane) {
    const uint32_t theirs = __shfl_sync(all_lanes, said, static_cast<int>(lane)), rank = theirs >> 8;
    if (theirs == ~0u || rank > c.rank || (rank == c.rank && lane >= lane_of())) continue;
    b.terms += theirs & 15;
    if (rank == c.rank) continue;
    b.units += theirs >> 4 & 15;
    b.ranks += (theirs >> 4 & 15) != 0 ? 1 : 0;
  }
  return b;
}

/* ---- sums ---- */

/* Terms whose loads are in flight together, and as many again while these are added. */
constexpr uint32_t ahead = 4;

/* What is nothing to add to: -0 + x is x, also where x is 0. */
__device__ inline four nothing() { return {{-0.0f, -0.0f, -0.0f, -0.0f}}; }

/* Terms from number `first` on, of four columns at `at` and at every 32nd four behind it. */
template <uint32_t n>
__device__ inline void load_terms(const summing &s, uint32_t first, uint32_t at, uint32_t end, uint2 (&raw)[ahead][n]) {
#pragma unroll
  for (uint32_t i = 0; i < ahead; ++i) {
    if (first + i >= s.count) break;
    const term one = s.terms[first + i];
    const uint32_t each = one.kind & term_f32 ? 16 : 8;
    const unsigned char *from = one.at + size_t(at) * each;
#pragma unroll
    for (uint32_t j = 0; j < n; ++j) {
      if (at + j * lanes < end) raw[i][j] = *reinterpret_cast<const uint2 *>(from + j * lanes * each);
    }
  }
}

__device__ inline void add_two(float &first, float &second, uint2 raw, float weight) {
  first = __fadd_rn(first, __fmul_rn(__uint_as_float(raw.x), weight));
  second = __fadd_rn(second, __fmul_rn(__uint_as_float(raw.y), weight));
}
__device__ inline void add_term(const term &one, uint2 raw, four &sum) {
  if (one.kind & term_second) return add_two(sum.v[2], sum.v[3], raw, one.weight);
  if (one.kind & term_f32) return add_two(sum.v[0], sum.v[1], raw, one.weight);
  four v = four_of_narrow(static_cast<uint64_t>(raw.y) << 32 | raw.x);
  scale_four(v, one.weight);
  add_four(sum, v);
}

/* Adds up the terms, ranks in their order, of four columns at a time: calls done(at, sums) with those at `at`
 * and at every 32nd four behind it. All lanes of the warp call it, and meet in `done`. */
template <uint32_t n, typename Done>
__device__ inline void add_terms(const summing &s, range fours, Done done) {
  const uint32_t step = n * lanes, last = s.count == 0 ? 0 : (s.count - 1) / ahead * ahead;
  uint2 next[ahead][n];
  load_terms(s, 0, fours.begin + lane_of(), fours.end, next);
  for (uint32_t base = fours.begin; base < fours.end; base += step) {
    const uint32_t at = base + lane_of();
    four sum[n], total[n];
#pragma unroll
    for (uint32_t j = 0; j < n; ++j) sum[j] = total[j] = nothing();
    for (uint32_t first = 0; first <= last; first += ahead) {
      uint2 raw[ahead][n];
#pragma unroll
      for (uint32_t i = 0; i < ahead; ++i) {
#pragma unroll
        for (uint32_t j = 0; j < n; ++j) raw[i][j] = next[i][j];
      }
      load_terms(s, first == last ? 0 : first + ahead, first == last ? at + step : at, fours.end, next);
#pragma unroll
      for (uint32_t i = 0; i < ahead; ++i) {
        if (first + i >= s.count) break;
        const term one = s.terms[first + i];
#pragma unroll
        for (uint32_t j = 0; j < n; ++j) add_term(one, raw[i][j], sum[j]);
        if (!(one.kind & term_ends)) continue;
#pragma unroll
        for (uint32_t j = 0; j < n; ++j) {
          if (one.kind & term_rounds) sum[j] = four_of_narrow(narrow_of(sum[j]));
          add_four(total[j], sum[j]);
          sum[j] = nothing();
        }
      }
    }
    done(at, total);
  }
}

/* ---- the same, of few rows of 16-bit numbers: most of the work of many tokens ---- */

/* Another rank's sum, which is added to this rank's; of 16-bit numbers, or of f32. */
template <bool is_narrow> struct other {
  static constexpr bool there = true, narrow = is_narrow;
  const unsigned char *at;
  float weight;
  bool rounds; /* this rank's sum is rounded as one that travels */
};
/* None. */
struct nobody {
  static constexpr bool there = false, narrow = true;
  bool rounds;
};

__device__ inline four weighted(uint2 raw, float weight) {
  four v = four_of_narrow(static_cast<uint64_t>(raw.y) << 32 | raw.x);
  scale_four(v, weight);
  return v;
}

/* Steps of `n` fours a lane, of which all loads are in flight at once: much of a row at a time, as its
 * rows lie far from each other in memory. Returns where the whole steps end. */
template <uint32_t rows, uint32_t n, typename Other, typename Done>
__device__ inline uint32_t add_few(const term *terms, range fours, const Other &theirs, const Done &done) {
  constexpr uint32_t step = n * lanes;
  const uint32_t end = fours.begin + (fours.end - fours.begin) / step * step;
  for (uint32_t at = fours.begin + lane_of(); at < end; at += step) {
    uint2 raw[rows][n];
    uint4 wide[Other::narrow ? 1 : n];
    uint2 narrow[Other::there && Other::narrow ? n : 1];
#pragma unroll
    for (uint32_t i = 0; i < rows; ++i) {
      const unsigned char *from = terms[i].at + size_t(at) * 8;
#pragma unroll
      for (uint32_t j = 0; j < n; ++j) raw[i][j] = *reinterpret_cast<const uint2 *>(from + j * lanes * 8);
    }
    if constexpr (Other::there) {
#pragma unroll
      for (uint32_t j = 0; j < n; ++j) {
        if constexpr (Other::narrow) narrow[j] = *reinterpret_cast<const uint2 *>(theirs.at + size_t(at) * 8 + j * lanes * 8);
        else wide[j] = load16(theirs.at + size_t(at) * 16 + j * lanes * 16);
      }
    }
    float weight[rows];
#pragma unroll
    for (uint32_t i = 0; i < rows; ++i) {
      weight[i] = terms[i].weight;
    }
#pragma unroll
    for (uint32_t j = 0; j < n; ++j) {
      four sum = weighted(raw[0][j], weight[0]);
#pragma unroll
      for (uint32_t i = 1; i < rows; ++i) {
        add_four(sum, weighted(raw[i][j], weight[i]));
      }
      if (theirs.rounds) sum = four_of_narrow(narrow_of(sum));
      /* A sum of two is the same either way round. */
      if constexpr (Other::there) add_four(sum, Other::narrow ? weighted(narrow[j], theirs.weight) : four_of_floats(wide[j]));
      done(at + j * lanes, sum);
    }
  }
  return end;
}

/* Steps of `n` fours, then smaller ones. */
template <uint32_t rows, uint32_t n, typename Other, typename Done>
__device__ inline uint32_t add_steps(const term *terms, range fours, const Other &theirs, const Done &done) {
  fours.begin = add_few<rows, n>(terms, fours, theirs, done);
  if (n > 4) fours.begin = add_few<rows, 4>(terms, fours, theirs, done);
  return add_few<rows, 1>(terms, fours, theirs, done);
}

/* As many columns as it can; returns where it stopped: the rest is for `add_terms`. */
template <typename Other, typename Done>
__device__ inline uint32_t add_rows(const term *terms, uint32_t rows, range fours, const Other &theirs, const Done &done) {
  if (y_bytes == 4) return fours.begin;
  constexpr uint32_t large = Other::narrow ? 7 : 4;
  switch (rows) {
  case 1: return add_steps<1, large>(terms, fours, theirs, done);
  case 2: return add_steps<2, large>(terms, fours, theirs, done);
  case 3: return add_steps<3, large>(terms, fours, theirs, done);
  case 4: return add_steps<4, large>(terms, fours, theirs, done);
  case 5: return add_steps<5, 4>(terms, fours, theirs, done);
  case 6: return add_steps<6, 4>(terms, fours, theirs, done);
  case 7: return add_steps<7, 2>(terms, fours, theirs, done);
  case 8: return add_steps<8, 2>(terms, fours, theirs, done);
  default: return fours.begin;
  }
}

/* By each lane with an expert of this rank: its row's terms, from number `to` on. */
__device__ inline void keep_row(const exchange &e, const unsigned char *row, float weight, uint32_t ends, uint32_t to, summing &s) {
  if (terms_a_row == 1) {
    s.terms[to] = term{row, weight, ends};
  } else {
    s.terms[to] = term{row, weight, term_f32};
    s.terms[to + 1] = term{row + 8, weight, term_f32 | term_second | ends};
  }
}

/* The rows that this rank's experts have left of a token. `at`: its number among all that the rank may get;
 * `position`: of each lane's expert; `to`: where the lane's terms begin. */
__device__ inline void keep_rows(const exchange &e, const products &y, const choice &c, size_t at, int32_t position, uint32_t me,
                                 uint32_t rounds, uint32_t to, summing &s) {
  if (c.rank != me) return;
  if (MOE_LAYOUT == 1) {
    if (c.first) keep_row(e, y.y + at * e.unit_bytes, 1, term_ends, to, s);
    return;
  }
  const bool last = c.alike >> lane_of() == 1;
  keep_row(e, y.y + size_t(position) * e.unit_bytes, c.weight, last ? term_ends | rounds : 0, to, s);
}
/* How many terms they are, of this lane's expert. */
__device__ inline uint32_t terms_of_rows(const choice &c) { return MOE_LAYOUT == 1 && !c.first ? 0 : terms_a_row; }

}  // namespace moe
