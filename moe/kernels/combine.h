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
  const unsigned char *rows[most_top_k]; /* of a push: results of its experts, in the order of the token's */
  float weights[most_top_k];
  share shares[most_top_k];      /* of the home: in the order of ranks; of a push: shares[0] is its own */
  unsigned char *to;             /* of a push: where the home has the sum; null where that is far */
};

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
      const uint64_t two = packet_of(slots + id_words(e) + lane / 2, round);
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

/* How many units, and how many ranks, lie before those of rank `rank`: ranks in their order. */
struct before {
  uint32_t units, ranks;
};
__device__ inline before before_rank(const choice &c, uint32_t rank) {
  before b{0, 0};
  /* One lane of each rank. */
#pragma unroll 1
  for (uint32_t left = __ballot_sync(all_lanes, c.first); left != 0; left &= left - 1) {
    const int lane = __ffs(static_cast<int>(left)) - 1;
    const uint32_t theirs = __shfl_sync(all_lanes, c.units, lane), of = __shfl_sync(all_lanes, c.rank, lane);
    if (of >= rank) continue;
    b.units += theirs;
    b.ranks += 1;
  }
  return b;
}

/* ---- to the homes ---- */

/* Sums that a lane makes at once: their loads are in flight together, as a warp alone waits for each. */
constexpr uint32_t sums = y_bytes == 4 ? 2 : 4;

/* The sums of a token's results on this rank, of four columns at `at` and at every 32nd four behind it. Past
 * `end` the last four is read again, for sums that nobody wants: a branch around each load and product would
 * cost more. A sum begins with -0, to which any number adds up to itself. */
template <uint32_t n> __device__ inline void sum_of(const summing &s, uint32_t at, uint32_t end, four (&total)[n]) {
  const uint32_t terms = s.terms;
  uint32_t places[n];
#pragma unroll
  for (uint32_t j = 0; j < n; ++j) {
    places[j] = at + j * lanes < end ? at + j * lanes : end - 1;
    total[j] = {{-0.0f, -0.0f, -0.0f, -0.0f}};
  }
#pragma unroll 1
  for (uint32_t base = 0; base < terms; base += held) {
    raw_four loaded[held][n];
#pragma unroll
    for (uint32_t i = 0; i < held; ++i) {
      const unsigned char *row = s.rows[base + i < terms ? base + i : base];
#pragma unroll
      for (uint32_t j = 0; j < n; ++j) loaded[i][j] = load_four(row, places[j]);
    }
    /* No branch, behind which the compiler would put the loads of later terms: a term that there is not is
     * -0 times 1. */
#pragma unroll
    for (uint32_t i = 0; i < held; ++i) {
      const bool has = base + i < terms;
      const float by = has ? s.weights[base + i] : 1.0f;
#pragma unroll
      for (uint32_t j = 0; j < n; ++j) {
        four v = four_of(has ? loaded[i][j] : minus_zeros());
        if (MOE_LAYOUT != 1) scale_four(v, by);
        add_four(total[j], v);
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
#pragma unroll 1
  for (uint32_t base = fours.begin; base < fours.end; base += lanes) {
    const uint32_t at = base + lane_of();
    const bool has = at < fours.end;
    if (is_row(e, s)) {
      if (has) rushmem::put_packed(slots + at, load8(s.rows[0] + size_t(at) * 8), round, pe);
      continue;
    }
    four v[1];
    sum_of(s, at, fours.end, v);
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

/* A part of a sum, as the home will read it. */
__device__ inline void store_sum(const exchange &e, const summing &s, unsigned char *to, range fours) {
#pragma unroll 1
  for (uint32_t at = fours.begin + lane_of(); at < fours.end; at += sums * lanes) {
    if (is_row(e, s)) {
      uint64_t v[sums];
#pragma unroll
      for (uint32_t j = 0; j < sums; ++j) v[j] = at + j * lanes < fours.end ? load8(s.rows[0] + size_t(at + j * lanes) * 8) : 0;
#pragma unroll
      for (uint32_t j = 0; j < sums; ++j) {
        if (at + j * lanes < fours.end) store8(to + size_t(at + j * lanes) * 8, v[j]);
      }
    } else {
      four v[sums];
      sum_of(s, at, fours.end, v);
#pragma unroll
      for (uint32_t j = 0; j < sums; ++j) {
        if (at + j * lanes >= fours.end) break;
        if (s.shares[0].narrow) store8(to + size_t(at + j * lanes) * 8, narrow_of(v[j]));
        else store16(to + size_t(at + j * lanes) * 16, floats_of(v[j]));
      }
    }
  }
}

/* To a home that is far, whole, from a composed copy. Out of line: the near path need not have its
 * registers. */
__device__ __noinline__ void push_far(const exchange &e, const summing &s, unsigned char *home, uint64_t *flag, uint64_t round,
                                      int pe) {
  unsigned char *composed = scratch_of(e);
  store_sum(e, s, composed, {0, e.hidden / 4});
  __syncwarp();
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
  const uint32_t ours = __ballot_sync(all_lanes, c.rank == me), units = before_rank(c, me).units;
  if (c.rank == me) {
    const uint32_t place = __popc(ours & ((1u << lane) - 1));
    s.weights[place] = c.weight;
    if (MOE_LAYOUT == 1) s.rows[0] = y.y + at * e.unit_bytes;
    else s.rows[place] = y.y + size_t(position) * e.unit_bytes;
    if (c.first) {
      s.shares[0] = share{units, c.narrow ? 1u : 0u, c.weight};
      unsigned char *home = e.results + (size_t(p.token) * e.units + units) * e.unit_bytes;
      s.to = rushmem::ptr(home, t.world_pe(static_cast<int>(p.source)));
    }
  }
  if (lane == 0) s.terms = MOE_LAYOUT == 1 && ours != 0 ? 1 : __popc(ours);
  __syncwarp();
}

/* How many tokens each source has, as dispatch left it; and the most. By all threads of the block. */
__device__ inline uint32_t learn_known(const exchange &e, uint32_t ranks, uint32_t *counts) {
  for (uint32_t rank = threadIdx.x; rank < ranks; rank += blockDim.x) counts[rank] = e.known[rank];
  __syncthreads();
  uint32_t most = 0;
#pragma unroll 4
  for (uint32_t rank = 0; rank < ranks; ++rank) most = counts[rank] > most ? counts[rank] : most;
  return most;
}

/* A sum's packets, at most so many a part. */
__device__ inline uint32_t parts_back(const exchange &e, uint32_t rows) { return parts_of(rows, (e.hidden + 4 * lanes - 1) / (4 * lanes)); }

/* The sums of this rank's experts' results, to the tokens' homes. */
__device__ inline void push(const exchange &e, const rushmem::team &t, const products &y, uint64_t round, const uint32_t *counts,
                            uint32_t most, uint32_t *tickets, summing &s) {
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), me = static_cast<uint32_t>(t.my_pe());
  const uint32_t rows = most * ranks, fours = e.hidden / 4;
  uint32_t parts = 1;
#pragma unroll 1
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const uint32_t n = counts[rank], wanted = n <= e.few_back ? parts_back(e, rows) : flags_of(e, n);
    if (n != 0 && wanted > parts) parts = wanted;
  }
  const uint32_t items = rows * parts;
  const dealt d = deal(items);
  const bool once = is_one_turn(items);
  const uint32_t each = once ? d.each : warps;
  for (turns turn(tickets, once ? nullptr : counter_of(e, push_tickets), d); turn.at < items; turn.next()) {
    const uint32_t item = turn.at + warp_of();
    if (warp_of() >= each || item >= items) continue;
    const uint32_t at = item / parts, part = item - at * parts;
    const place_of_token p = row_in_turn(at, ranks, me);
    const uint32_t n = counts[p.source], flags = flags_of(e, n);
    if (p.token >= n) continue;
    const bool packed = n <= e.few_back;
    if (!packed && part >= flags) continue;
    find_terms(e, t, y, round, p, s);
    if (s.terms != 0) {
      const int pe = t.world_pe(static_cast<int>(p.source));
      const size_t unit = size_t(p.token) * e.units + s.shares[0].unit;
      uint64_t *flag = e.result_flags + unit * e.parts + part;
      if (packed) {
        push_packets(e, s, e.result_packets + unit * (e.unit_bytes / 8), part_of(fours, part, parts), round, pe);
      } else if (s.to) {
        store_sum(e, s, s.to, part_of(fours, part, flags));
        __syncwarp();
        if (lane_of() == 0) announce(e.results + unit * e.unit_bytes, flag, round, pe);
      } else {
        push_far(e, s, e.results + unit * e.unit_bytes, flag, round, pe);
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
  const before b = before_rank(c, c.rank);
  if (c.first) s.shares[b.ranks] = share{b.units, c.narrow ? 1u : 0u, c.weight};
  const uint32_t firsts = __ballot_sync(all_lanes, c.first);
  if (lane_of() == 0) s.terms = __popc(firsts);
  __syncwarp();
}

/* A word, or two, of what a rank sent, and which have been seen. */
struct heard {
  uint64_t first, second;
  bool has_first, has_second;
};
__device__ inline heard hear(const packet *slots, bool narrow, uint32_t at, uint64_t round) {
  heard h{0, 0, false, true};
  const packet *slot = slots + (narrow ? at : 2 * at);
  h.has_first = rushmem::test_packed(slot, round, &h.first);
  if (!narrow) h.has_second = rushmem::test_packed(slot + 1, round, &h.second);
  return h;
}
__device__ inline four of_packets(heard h, const packet *slots, bool narrow, uint32_t at, uint64_t round) {
  const packet *slot = slots + (narrow ? at : 2 * at);
  if (!h.has_first) h.first = await(slot, round);
  if (!h.has_second) h.second = await(slot + 1, round);
  if (narrow) return four_of_narrow(h.first);
  return {{__uint_as_float(static_cast<uint32_t>(h.first)), __uint_as_float(static_cast<uint32_t>(h.first >> 32)),
           __uint_as_float(static_cast<uint32_t>(h.second)), __uint_as_float(static_cast<uint32_t>(h.second >> 32))}};
}
__device__ inline four of_row(const unsigned char *row, bool narrow, uint32_t at) {
  if (narrow) return four_of_narrow(load8(row + size_t(at) * 8));
  return four_of_floats(load16(row + size_t(at) * 16));
}

/* Adds a share to a sum of four columns. */
__device__ inline void add_share(const exchange &e, const share &one, bool is_first, four v, four &total) {
  if (one.narrow != 0 && MOE_LAYOUT != 1 && !e.rounded) scale_four(v, one.weight);
  if (is_first) total = v;
  else add_four(total, v);
}

/* A part of a token's sum, of shares that come as packets: several are looked at together, as which comes
 * last is not known. */
__device__ inline void collect_packets(const exchange &e, const summing &s, uint32_t token, range mine, uint64_t round,
                                       unsigned char *out) {
  constexpr uint32_t together = 2;
#pragma unroll 1
  for (uint32_t at = mine.begin + lane_of(); at < mine.end; at += lanes) {
    four total{};
#pragma unroll 1
    for (uint32_t base = 0; base < s.terms; base += together) {
      const packet *slots[together];
      heard h[together];
#pragma unroll
      for (uint32_t i = 0; i < together; ++i) {
        const share &one = s.shares[base + i < s.terms ? base + i : base];
        slots[i] = e.result_packets + (size_t(token) * e.units + one.unit) * (e.unit_bytes / 8);
        h[i] = hear(slots[i], one.narrow != 0, at, round);
      }
#pragma unroll
      for (uint32_t i = 0; i < together; ++i) {
        if (base + i >= s.terms) break;
        const share &one = s.shares[base + i];
        add_share(e, one, base + i == 0, of_packets(h[i], slots[i], one.narrow != 0, at, round), total);
      }
    }
    store_four(out, at, total);
  }
}

/* The same of shares that lie as they are read. */
__device__ inline void collect_rows(const exchange &e, const summing &s, uint32_t token, range mine, unsigned char *out) {
#pragma unroll 1
  for (uint32_t at = mine.begin + lane_of(); at < mine.end; at += sums * lanes) {
    four total[sums] = {};
    for (uint32_t i = 0; i < s.terms; ++i) {
      const share &one = s.shares[i];
      const unsigned char *row = e.results + (size_t(token) * e.units + one.unit) * e.unit_bytes;
      four v[sums] = {};
#pragma unroll
      for (uint32_t j = 0; j < sums; ++j) {
        if (at + j * lanes < mine.end) v[j] = of_row(row, one.narrow != 0, at + j * lanes);
      }
#pragma unroll
      for (uint32_t j = 0; j < sums; ++j) add_share(e, one, i == 0, v[j], total[j]);
    }
#pragma unroll
    for (uint32_t j = 0; j < sums; ++j) {
      if (at + j * lanes < mine.end) store_four(out, at + j * lanes, total[j]);
    }
  }
}

/* At the tokens' home: the ranks' sums, added. */
__device__ inline void collect(const exchange &e, const rushmem::team &t, const products &y, uint64_t round, uint32_t n,
                               uint32_t *tickets, summing &s) {
  const uint32_t fours = e.hidden / 4;
  const bool packed = n <= e.few_back;
  const uint32_t parts = packed ? parts_back(e, n) : flags_of(e, n), items = n * parts;
  const dealt d = deal(items);
  const bool once = is_one_turn(items);
  const uint32_t each = once ? d.each : warps;
  for (turns turn(tickets, once ? nullptr : counter_of(e, collect_tickets), d); turn.at < items; turn.next()) {
    const uint32_t item = turn.at + warp_of();
    if (warp_of() >= each || item >= items) continue;
    const uint32_t token = item / parts, part = item - token * parts;
    find_shares(e, t, round, token, s);
    unsigned char *out = y.out + size_t(token) * e.hidden * out_bytes;
    const range mine = part_of(fours, part, parts);
    if (packed) {
      collect_packets(e, s, token, mine, round, out);
    } else {
      /* A lane for each share acquires it for the warp, which meets behind them. */
      if (lane_of() < s.terms) {
        const size_t unit = size_t(token) * e.units + s.shares[lane_of()].unit;
        rushmem::signal_wait_until(e.result_flags + unit * e.parts + part, rushmem::cmp::ge, round);
      }
      __syncwarp();
      collect_rows(e, s, token, mine, out);
    }
    __syncwarp();
  }
}

/* Both, or the half that a launch is for. Of many tokens some blocks collect from the start: what comes over
 * the links is added up while the other blocks still push. */
template <bool pushes, bool collects>
__device__ inline void combine(const exchange &e, const rushmem::team &t, const products &y, uint64_t round) {
  __shared__ uint32_t counts[most_ranks];
  __shared__ summing of_warps[warps];
  __shared__ uint32_t tickets[2];
  const uint32_t most = learn_known(e, static_cast<uint32_t>(t.n_pes()), counts), mine = counts[t.my_pe()];
  summing &s = of_warps[warp_of()];
  if constexpr (pushes) {
    if (!collects || is_one_turn(mine) || blockIdx.x >= blocks_of(e.collectors)) push(e, t, y, round, counts, most, tickets, s);
    __syncthreads();
  }
  if constexpr (collects) collect(e, t, y, round, mine, tickets, s);
}

}  // namespace moe
