/* Combine: each rank adds up what its experts made of a token, and pushes the sum to the token's home, which
 * adds the ranks' sums. A warp has a token, or a part of it: in both halves of four columns a lane. */
namespace moe {

/* What the home knows of a rank's sum. */
struct share {
  uint32_t unit;                 /* its place among the units of the token's results */
  uint32_t narrow;               /* of 16-bit numbers; else f32 */
  float weight;                  /* what a row is multiplied by that is as the expert left it */
};

/* A token, as the lanes of a warp have it while they push a sum, or collect sums. */
struct summing {
  uint32_t terms;
  /* Of a push: results of its experts, in the order of the token's; of the home, by lanes: ranks' sums. */
  const unsigned char *rows[most_top_k];
  float weights[most_top_k];
  share shares[most_top_k];      /* of the home: in the order of ranks; of a push: shares[0] is its own */
  unsigned char *to;             /* of a push: where the home has the sum; null where that is far */
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
__device__ inline choice choice_among(const exchange &e, uint32_t id, float weight) {
  choice c{};
  c.id = id;
  c.weight = weight;
  c.rank = c.id < unheard ? rank_of(e, c.id) : ~0u;
  c.alike = __match_any_sync(all_lanes, c.rank);
  c.first = c.rank != ~0u && (c.alike & ((1u << lane_of()) - 1)) == 0;
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
__device__ inline choice choice_of(const exchange &e, const packet *slots, uint64_t round) {
  const uint32_t lane = lane_of();
  uint32_t id = nowhere;
  float weight = 1;
  if (lane < e.top_k) {
    const uint64_t four_ids = slots[lane / 4].value;
    if (e.weighted) {
      /* Of a token of which this rank got nothing but routing, weights may still be on their way. */
      const uint64_t two = rushmem::wait_packed(slots + id_words(e) + lane / 2, round);
      weight = __uint_as_float(static_cast<uint32_t>(lane % 2 ? two >> 32 : two));
    }
    id = static_cast<uint32_t>(four_ids >> (16 * (lane % 4))) & 0xffff;
  }
  return choice_among(e, id, weight);
}

/* How many units, and how many ranks, lie before those of rank `rank`: ranks in their order. */
struct before {
  uint32_t units, ranks;
};
__device__ inline before before_rank(const exchange &e, const choice &c, uint32_t rank) {
  before b{0, 0};
#pragma unroll 4
  for (uint32_t lane = 0; lane < e.top_k; ++lane) {
    const uint32_t theirs = __shfl_sync(all_lanes, c.units, static_cast<int>(lane));
    const uint32_t of = __shfl_sync(all_lanes, c.rank, static_cast<int>(lane));
    if (of >= rank || theirs == 0) continue;
    b.units += theirs;
    b.ranks += 1;
  }
  return b;
}

/* ---- to the homes ---- */

/* Sums that a lane makes at once: their loads are in flight together, as a warp alone waits for each. */
constexpr uint32_t sums = y_bytes == 4 ? 2 : 4;

/* The sums of a token's results on this rank, of four columns at `at` and at every 32nd four behind it. */
template <uint32_t n> __device__ inline void sum_of(const exchange &e, const summing &s, uint32_t at, uint32_t end, four (&total)[n]) {
  for (uint32_t base = 0; base < s.terms; base += held) {
    raw_four loaded[held][n];
#pragma unroll
    for (uint32_t i = 0; i < held; ++i) {
#pragma unroll
      for (uint32_t j = 0; j < n; ++j) {
        if (base + i < s.terms && at + j * lanes < end) loaded[i][j] = load_four(s.rows[base + i], at + j * lanes);
      }
    }
#pragma unroll
    for (uint32_t i = 0; i < held; ++i) {
      if (base + i >= s.terms) break;
#pragma unroll
      for (uint32_t j = 0; j < n; ++j) {
        if (at + j * lanes >= end) break;
        four v = four_of(loaded[i][j]);
        if (e.weighted && MOE_LAYOUT != 1) scale_four(v, s.weights[base + i]);
        if (base + i == 0) total[j] = v;
        else add_four(total[j], v);
      }
    }
  }
}

/* Whether it is a row that goes as the expert left it. */
__device__ inline bool is_row(const exchange &e, const summing &s) {
  return s.shares[0].narrow && (MOE_LAYOUT == 1 || !e.rounded);
}

__device__ inline uint64_t word_of(float low, float high) {
  return static_cast<uint64_t>(__float_as_uint(high)) << 32 | __float_as_uint(low);
}

/* A part of a sum as packets. Lanes side by side send packets side by side, in twos: a lane alone would send
 * half of what memory moves at a time. */
__device__ inline void push_packets(const exchange &e, const summing &s, packet *slots, range fours, uint64_t round, int pe) {
  for (uint32_t base = fours.begin; base < fours.end; base += lanes) {
    const uint32_t at = base + lane_of();
    const bool has = at < fours.end;
    if (is_row(e, s)) {
      if (has) rushmem::put_packed(slots + at, load8(s.rows[0] + size_t(at) * 8), round, pe);
      continue;
    }
    four v[1] = {};
    sum_of(e, s, at, fours.end, v);
    if (s.shares[0].narrow) {
      if (has) rushmem::put_packed(slots + at, narrow_of(v[0]), round, pe);
      continue;
    }
    const uint64_t low = word_of(v[0].v[0], v[0].v[1]), high = word_of(v[0].v[2], v[0].v[3]);
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const int from = static_cast<int>(half * (lanes / 2) + lane_of() / 2);
      const uint64_t a = __shfl_sync(all_lanes, static_cast<unsigned long long>(low), from);
      const uint64_t b = __shfl_sync(all_lanes, static_cast<unsigned long long>(high), from);
      const uint32_t word = 2 * base + half * lanes + lane_of();
      if (word < 2 * fours.end) rushmem::put_packed(slots + word, lane_of() % 2 ? b : a, round, pe);
    }
  }
}

/* ---- rows that come by pieces ---- */

/* The part of a sum that has flag `part` of `parts`, in fours: whole multiples of 16 bytes of any type. */
__device__ inline range flagged(const exchange &e, uint32_t part, uint32_t parts) {
  const range r = part_of(e.hidden / 16, part, parts);
  return {4 * r.begin, 4 * r.end};
}

/* A part of a sum, as the home will read it. */
template <bool narrow>
__device__ inline void add_results(const exchange &e, const summing &s, pieces &through, unsigned char *to, range fours) {
  constexpr bool twos = narrow && y_bytes == 2;
  constexpr uint32_t n = piece_bytes / (4 * y_bytes) / lanes;
  add_rows<twos, n>(
      through, s.terms, fours, [&](uint32_t i) { return term{s.rows[i], 4 * y_bytes, MOE_LAYOUT != 1, s.weights[i]}; },
      [&](uint32_t at, uint32_t j, const four(&total)[n]) {
        if constexpr (!twos) store16(to + size_t(at) * 16, floats_of(total[j]));
        else if (j % 2 == 0) store16(to + size_t(at) * 8, narrow_pair_of(total[j], total[j + 1]));
      });
}

__device__ inline void store_sum(const exchange &e, const summing &s, pieces &through, unsigned char *to, range fours) {
#if MOE_BY_LANES
  store_by_lanes(through.room, s.rows, s.weights, s.terms, to, fours);
#else
  if (is_row(e, s)) copy_row(through, s.rows[0], to, fours);
  else if (y_bytes == 2 && s.shares[0].narrow) add_results<true>(e, s, through, to, fours);
  else add_results<false>(e, s, through, to, fours);
#endif
}

/* To a home that is far, whole, from a composed copy. Out of line: the near path need not have its
 * registers. */
__device__ __noinline__ void push_far(const exchange &e, const summing &s, unsigned char *home, unsigned char *composed, uint64_t *flag,
                                      uint64_t round, int pe) {
  const uint32_t quads = e.hidden / (s.shares[0].narrow ? 8 : 4);
  rushmem::put_signal<rushmem::warp>(as_quads(home), as_quads(composed), quads, flag, round, rushmem::signal::set, pe);
}

/* The terms of token `p` on this rank, and where their sum goes. */
__device__ inline void find_terms(const exchange &e, const rushmem::team &t, const products &y, uint64_t round, place_of_token p,
                                  summing &s) {
  const uint32_t lane = lane_of(), ranks = static_cast<uint32_t>(t.n_pes()), me = static_cast<uint32_t>(t.my_pe());
  const packet *slots = routing_of(e, ranks, round & 1, p.source) + 1 + size_t(p.token) * e.routing_words;
  const size_t at = size_t(p.source) * e.max_tokens + p.token;
  /* Read before it is known whether there is one. */
  const int32_t position = lane < e.top_k ? e.positions[at * e.top_k + lane] : 0;
  const choice c = choice_of(e, slots, round);
  const uint32_t ours = __ballot_sync(all_lanes, c.rank == me), units = before_rank(e, c, me).units;
  if (c.rank == me) {
    const uint32_t place = __popc(ours & ((1u << lane) - 1));
    s.weights[place] = c.weight;
    if (MOE_LAYOUT != 1) s.rows[place] = y.y + size_t(position) * e.unit_bytes;
    else if (place == 0) s.rows[0] = y.y + at * e.unit_bytes;
    if (c.first) {
      s.shares[0] = share{units, c.narrow ? 1u : 0u, c.weight};
      unsigned char *home = e.results + (size_t(p.token) * e.units + units) * e.unit_bytes;
      s.to = rushmem::ptr(home, t.world_pe(static_cast<int>(p.source)));
    }
  }
  if (lane == 0) s.terms = MOE_LAYOUT == 1 && ours != 0 ? 1 : __popc(ours);
  __syncwarp();
}

/* The tokens of all sources, one behind the other. */
__device__ inline void learn_known(const exchange &e, const rushmem::team &t, uint64_t round, uint32_t *start) {
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes());
  for (uint32_t rank = threadIdx.x; rank < ranks; rank += blockDim.x) start[rank + 1] = count_known(e, t, round, rank);
  __syncthreads();
  if (threadIdx.x == 0) {
    start[0] = 0;
    for (uint32_t rank = 0; rank < ranks; ++rank) start[rank + 1] += start[rank];
  }
  __syncthreads();
}

/* A sum's packets, at most so many a part. */
__device__ inline uint32_t parts_back(const exchange &e, uint32_t rows) { return parts_of(rows, (e.hidden + 4 * lanes - 1) / (4 * lanes)); }

__device__ inline void push(const exchange &e, const rushmem::team &t, const products &y, uint64_t round, const uint32_t *start,
                            summing &s, pieces &through) {
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), total = start[ranks], fours = e.hidden / 4;
  uint32_t parts = 1;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const uint32_t n = start[rank + 1] - start[rank], wanted = n <= e.few_back ? parts_back(e, total) : flags_of(e, n);
    if (n != 0 && wanted > parts) parts = wanted;
  }
  /* Of many, tokens of all sources take turns, so that every link is busy all the time: row `row` of each of
   * as many stretches of all tokens, one after the other. */
  const bool turns = total * parts > gridDim.x * warps;
  const uint32_t each = (total + ranks - 1) / ranks, items = turns ? each * ranks * parts : total * parts;
  const dealt d = deal(items, all_hands());
  for (uint32_t item = d.first + warp_of(); item < items && warp_of() < d.each; item += d.step) {
    uint32_t at = item / parts;
    const uint32_t part = item - at * parts;
    if (turns) {
      const uint32_t row = at / ranks;
      at = (at - row * ranks + row * ranks * parts / d.step) % ranks * each + row;
      if (at >= total) continue;
    }
    uint32_t source = 0;
    while (source + 1 < ranks && start[source + 1] <= at) ++source;
    const uint32_t n = start[source + 1] - start[source], flags = flags_of(e, n);
    const place_of_token p{source, at - start[source]};
    const bool packed = n <= e.few_back;
    if (!packed && part >= flags) continue;
    find_terms(e, t, y, round, p, s);
    if (s.terms != 0) {
      const int pe = t.world_pe(static_cast<int>(source));
      const size_t unit = size_t(p.token) * e.units + s.shares[0].unit;
      uint64_t *flag = e.result_flags + unit * e.parts + part;
      if (packed) {
        push_packets(e, s, e.result_packets + unit * (e.unit_bytes / 8), part_of(fours, part, parts), round, pe);
      } else {
        unsigned char *home = e.results + unit * e.unit_bytes, *composed = s.to ? s.to : scratch_of(e);
        store_sum(e, s, through, composed, flagged(e, part, flags));
        __syncwarp();
        if (s.to) {
          if (lane_of() == 0) announce(home, flag, round, pe);
        } else {
          push_far(e, s, home, composed, flag, round, pe);
        }
      }
    }
    __syncwarp();
  }
}

/* ---- at home ---- */

/* The shares of token `token`, in the order of ranks. */
__device__ inline void find_shares(const exchange &e, const rushmem::team &t, uint64_t round, uint32_t token, summing &s) {
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), me = static_cast<uint32_t>(t.my_pe());
  const packet *slots = routing_of(e, ranks, round & 1, me) + 1 + size_t(token) * e.routing_words;
  const choice c = choice_of(e, slots, round);
  const before b = before_rank(e, c, c.rank);
  if (c.first) s.shares[b.ranks] = share{b.units, c.narrow ? 1u : 0u, c.weight};
#if MOE_BY_LANES
  if (c.first) s.rows[b.ranks] = e.results + (size_t(token) * e.units + b.units) * e.unit_bytes;
#endif
  const uint32_t firsts = __ballot_sync(all_lanes, c.first);
  if (lane_of() == 0) s.terms = __popc(firsts);
  __syncwarp();
}

__device__ inline four of_packets(const packet *slots, bool narrow, uint32_t at, uint64_t round) {
  if (narrow) return four_of_narrow(rushmem::wait_packed(slots + at, round));
  uint64_t w[2];
  rushmem::wait_packed<rushmem::thread>(w, slots + 2 * size_t(at), 2, round);
  return {{__uint_as_float(static_cast<uint32_t>(w[0])), __uint_as_float(static_cast<uint32_t>(w[0] >> 32)),
           __uint_as_float(static_cast<uint32_t>(w[1])), __uint_as_float(static_cast<uint32_t>(w[1] >> 32))}};
}

/* A token's sum, of shares that come as packets. */
__device__ inline void add_packets(const exchange &e, const summing &s, uint32_t token, unsigned char *out, range fours, uint64_t round) {
  for (uint32_t at = fours.begin + lane_of(); at < fours.end; at += sums * lanes) {
    four total[sums] = {};
    for (uint32_t i = 0; i < s.terms; ++i) {
      const share &one = s.shares[i];
      const bool narrow = one.narrow != 0;
      const packet *slots = e.result_packets + (size_t(token) * e.units + one.unit) * (e.unit_bytes / 8);
      four v[sums] = {};
#pragma unroll
      for (uint32_t j = 0; j < sums; ++j) {
        if (at + j * lanes < fours.end) v[j] = of_packets(slots, narrow, at + j * lanes, round);
      }
#pragma unroll
      for (uint32_t j = 0; j < sums; ++j) {
        if (narrow && e.weighted && MOE_LAYOUT != 1 && !e.rounded) scale_four(v[j], one.weight);
        if (i == 0) total[j] = v[j];
        else add_four(total[j], v[j]);
      }
    }
#pragma unroll
    for (uint32_t j = 0; j < sums; ++j) {
      if (at + j * lanes < fours.end) store_four(out, at + j * lanes, total[j]);
    }
  }
}

/* The same of shares that have come as rows: all of 16-bit numbers, or not. */
template <bool narrow>
__device__ inline void add_shares(const exchange &e, const summing &s, pieces &through, uint32_t token, unsigned char *out, range fours) {
  constexpr bool twos = narrow && out_bytes == 2;
  constexpr uint32_t n = piece_bytes / (narrow ? 8 : 16) / lanes;
  add_rows<twos, n>(
      through, s.terms, fours,
      [&](uint32_t i) {
        const share &one = s.shares[i];
        const bool short_one = narrow || one.narrow != 0;
        return term{e.results + (size_t(token) * e.units + one.unit) * e.unit_bytes, short_one ? 8u : 16u,
                    MOE_LAYOUT != 1 && !e.rounded && short_one, one.weight};
      },
      [&](uint32_t at, uint32_t j, const four(&total)[n]) {
        if constexpr (!twos) store_four(out, at, total[j]);
        else if (j % 2 == 0) store_pair(out, at, total[j], total[j + 1]);
      });
}

__device__ inline void collect(const exchange &e, const rushmem::team &t, const products &y, uint64_t round, const uint32_t *start,
                               summing &s, pieces &through) {
  const uint32_t n = start[t.my_pe() + 1] - start[t.my_pe()], fours = e.hidden / 4;
  const bool packed = n <= e.few_back;
  const uint32_t parts = packed ? parts_back(e, n) : flags_of(e, n), items = n * parts;
  const dealt d = deal(items, all_hands());
  for (uint32_t item = d.first + warp_of(); item < items && warp_of() < d.each; item += d.step) {
    const uint32_t token = item / parts, part = item - token * parts;
    find_shares(e, t, round, token, s);
    unsigned char *out = y.out + size_t(token) * e.hidden * out_bytes;
    if (packed) {
      add_packets(e, s, token, out, part_of(fours, part, parts), round);
    } else {
      /* A lane for each share acquires it for the warp, which meets behind them. */
      const bool has = lane_of() < s.terms;
      if (has) {
        const size_t unit = size_t(token) * e.units + s.shares[lane_of()].unit;
        rushmem::signal_wait_until(e.result_flags + unit * e.parts + part, rushmem::cmp::ge, round);
      }
#if MOE_BY_LANES
      __syncwarp();
      collect_by_lanes(through.room, s.rows, s.terms, out, flagged(e, part, parts));
#else
      pieces::behind_flags();
      if (y_bytes == 2 && __ballot_sync(all_lanes, has && !s.shares[lane_of()].narrow) == 0) {
        add_shares<true>(e, s, through, token, out, flagged(e, part, parts));
      } else {
        add_shares<false>(e, s, through, token, out, flagged(e, part, parts));
      }
#endif
    }
    __syncwarp();
  }
}

/* Both, or the half that a launch is for. */
template <bool pushes, bool collects>
__device__ inline void combine(const exchange &e, const rushmem::team &t, const products &y, uint64_t round, unsigned char *shared) {
  __shared__ uint32_t start[most_ranks + 1];
  __shared__ summing of_warps[warps];
  learn_known(e, t, round, start);
  /* Only a round that is not all of packets has room for pieces. */
  pieces through{};
  bool has_rows = false;
  for (uint32_t rank = 0; rank < static_cast<uint32_t>(t.n_pes()); ++rank) has_rows |= start[rank + 1] - start[rank] > e.few_back;
  if (has_rows) through.begin(shared + warp_of() * room_of_pieces);
  summing &s = of_warps[warp_of()];
  if constexpr (pushes) push(e, t, y, round, start, s, through);
  if constexpr (collects) collect(e, t, y, round, start, s, through);
}

}  // namespace moe
