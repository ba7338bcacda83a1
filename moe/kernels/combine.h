/* Combine: each rank adds up what its experts made of a token, and pushes the sum to the token's home, which
 * adds the ranks' sums. */
namespace moe {

/* Of a token, what the first warp finds out for the block. */
struct share {
  uint32_t unit;                 /* its place among the units of the token's results */
  uint32_t narrow;               /* a row as the expert left it, of 16-bit numbers; else f32 */
  float weight;                  /* what a narrow one is multiplied by */
};
struct summing {
  uint32_t terms;
  const unsigned char *rows[most_top_k]; /* of the sender: results of its experts, in the order of the token's */
  float weights[most_top_k];
  share shares[most_top_k];      /* of the home: in the order of ranks; of the sender: shares[0] is its own */
  unsigned char *to;             /* of the sender: the home's copy of the token's results; null where it is far */
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
  const uint32_t lane = threadIdx.x % 32;
  choice c{};
  c.id = nowhere;
  c.weight = 1;
  if (lane < e.top_k) {
    const uint64_t four = slots[lane / 4].value;
    if (e.weighted) {
      /* Of a token of which this rank got nothing but routing, weights may still be on their way. */
      const uint64_t two = rushmem::wait_packed(slots + id_words(e) + lane / 2, round);
      c.weight = __uint_as_float(static_cast<uint32_t>(lane % 2 ? two >> 32 : two));
    }
    c.id = static_cast<uint32_t>(four >> (16 * (lane % 4))) & 0xffff;
  }
  c.rank = c.id < unheard ? c.id / e.experts_a_rank : ~0u;
  c.alike = __match_any_sync(0xffffffffu, c.rank);
  c.first = c.rank != ~0u && (c.alike & ((1u << lane) - 1)) == 0;
#if MOE_LAYOUT == 1
  c.narrow = y_bytes == 2;
  c.units = 1;
#else
  c.narrow = y_bytes == 2 && __popc(c.alike) == 1;
  c.units = y_bytes == 4 || c.narrow ? 1 : 2;
#endif
  if (!c.first) c.units = 0;
  return c;
}
/* How many units lie before those of rank `rank`: ranks in their order. */
__device__ inline uint32_t units_before(const exchange &e, const choice &c, uint32_t rank) {
  uint32_t units = 0;
#pragma unroll 4
  for (uint32_t lane = 0; lane < e.top_k; ++lane) {
    const uint32_t theirs = __shfl_sync(0xffffffffu, c.units, static_cast<int>(lane)), of = __shfl_sync(0xffffffffu, c.rank, static_cast<int>(lane));
    if (of < rank) units += theirs;
  }
  return units;
}

/* ---- to the homes ---- */

/* The sum of a token's results on this rank, eight columns of it. */
__device__ inline eight sum_of(const exchange &e, const summing &s, uint32_t octet) {
  constexpr uint32_t held = 4;
  eight total{};
  for (uint32_t base = 0; base < s.terms; base += held) {
    raw_eight loaded[held];
#pragma unroll
    for (uint32_t i = 0; i < held; ++i) {
      if (base + i < s.terms) loaded[i] = load_eight(s.rows[base + i], octet);
    }
#pragma unroll
    for (uint32_t i = 0; i < held; ++i) {
      if (base + i >= s.terms) break;
      eight v = eight_of(loaded[i]);
      if (e.weighted && MOE_LAYOUT != 1) scale_eight(v, s.weights[base + i]);
      if (base + i == 0) total = v;
      else add_eight(total, v);
    }
  }
  return total;
}

__device__ inline uint64_t pair_of(uint32_t low, uint32_t high) { return static_cast<uint64_t>(high) << 32 | low; }

/* A chunk of a sum as packets. */
__device__ inline void push_packets(const exchange &e, const summing &s, packet *slots, range octets, uint64_t round, int pe) {
  for (uint32_t o = octets.begin + threadIdx.x; o < octets.end; o += blockDim.x) {
    if (s.shares[0].narrow) {
      const uint4 v = load16(s.rows[0] + size_t(o) * 16);
      rushmem::put_packed(slots + 2 * size_t(o), pair_of(v.x, v.y), round, pe);
      rushmem::put_packed(slots + 2 * size_t(o) + 1, pair_of(v.z, v.w), round, pe);
    } else {
      const eight v = sum_of(e, s, o);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint64_t two = pair_of(__float_as_uint(v.v[2 * i]), __float_as_uint(v.v[2 * i + 1]));
        rushmem::put_packed(slots + 4 * size_t(o) + i, two, round, pe);
      }
    }
  }
}

/* A whole sum, as the home will read it. */
__device__ inline void store_sum(const exchange &e, const summing &s, unsigned char *to) {
  for (uint32_t o = threadIdx.x; o < e.hidden / 8; o += blockDim.x) {
    if (s.shares[0].narrow) {
      store16(to + size_t(o) * 16, load16(s.rows[0] + size_t(o) * 16));
    } else {
      const eight v = sum_of(e, s, o);
      store16(to + size_t(o) * 32, low_floats(v));
      store16(to + size_t(o) * 32 + 16, high_floats(v));
    }
  }
}

/* To a home that is far, from a composed copy. Out of line: the near path need not have its registers. */
__device__ __noinline__ void push_far(const exchange &e, const summing &s, unsigned char *home, uint64_t *flag, uint64_t round,
                                      int pe) {
  unsigned char *composed = scratch_of(e);
  store_sum(e, s, composed);
  __syncthreads();
  const uint32_t bytes = e.hidden * (s.shares[0].narrow ? 2 : 4);
  rushmem::put_signal<rushmem::block>(as_quads(home), as_quads(composed), bytes / 16, flag, round, rushmem::signal::set, pe);
}

/* By a warp: the terms of token `p` on this rank, and where their sum goes. */
__device__ inline void find_terms(const exchange &e, const rushmem::team &t, const products &y, uint64_t round, place_of_token p,
                                  summing &s) {
  const uint32_t lane = threadIdx.x % 32, ranks = static_cast<uint32_t>(t.n_pes()), me = static_cast<uint32_t>(t.my_pe());
  const packet *slots = routing_of(e, ranks, round & 1, p.source) + 1 + size_t(p.token) * e.routing_words;
  const size_t at = size_t(p.source) * e.max_tokens + p.token;
  /* Read before it is known whether there is one. */
  const int32_t position = lane < e.top_k ? e.positions[at * e.top_k + lane] : 0;
  const choice c = choice_of(e, slots, round);
  const uint32_t ours = __ballot_sync(0xffffffffu, c.rank == me), before = units_before(e, c, me);
  if (c.rank == me) {
    const uint32_t place = __popc(ours & ((1u << lane) - 1));
    s.weights[place] = c.weight;
    if (MOE_LAYOUT == 1) s.rows[0] = y.y + at * e.unit_bytes;
    else s.rows[place] = y.y + size_t(position) * e.unit_bytes;
    if (c.first) {
      s.shares[0] = share{before, c.narrow ? 1u : 0u, c.weight};
      unsigned char *home = e.results + (size_t(p.token) * e.units + before) * e.unit_bytes;
      s.to = rushmem::ptr(home, t.world_pe(static_cast<int>(p.source)));
    }
  }
  if (lane == 0) s.terms = MOE_LAYOUT == 1 && ours != 0 ? 1 : __popc(ours);
}

/* The tokens of all sources, one behind the other, and whose the first item is that this block collects. */
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

/* `meanwhile`: what the second warp does while the first finds out about the block's first item. */
template <typename Meanwhile>
__device__ inline void push(const exchange &e, const rushmem::team &t, const products &y, uint64_t round, const uint32_t *start,
                            const Meanwhile &meanwhile) {
  __shared__ summing s;
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes());
  const uint32_t total = start[ranks], octets = e.hidden / 8;
  const uint32_t chunks = chunks_of(total, (octets + 63) / 64);
  for (uint32_t item = blockIdx.x; item < total * chunks; item += gridDim.x) {
    const uint32_t at = item % total, chunk = item / total;
    uint32_t source = 0;
    while (source + 1 < ranks && start[source + 1] <= at) ++source;
    const place_of_token p{source, at - start[source]};
    const bool packed = start[source + 1] - start[source] <= e.few;
    /* A row with a flag is one block's. */
    if (!packed && chunk != 0) continue;
    if (threadIdx.x < 32) find_terms(e, t, y, round, p, s);
    else if (item == blockIdx.x) meanwhile();
    __syncthreads();
    if (s.terms != 0) {
      const int pe = t.world_pe(static_cast<int>(source));
      const size_t unit = size_t(p.token) * e.units + s.shares[0].unit;
      if (packed) {
        push_packets(e, s, e.result_packets + unit * (e.unit_bytes / 8), part_of(octets, chunk, chunks), round, pe);
      } else {
        unsigned char *home = e.results + unit * e.unit_bytes;
        if (s.to) {
          store_sum(e, s, s.to);
          __syncthreads();
          if (threadIdx.x == 0) announce(home, e.result_flags + unit, round, pe);
        } else {
          push_far(e, s, home, e.result_flags + unit, round, pe);
        }
      }
    }
    __syncthreads();
  }
}

/* ---- at home ---- */

/* By a warp: the shares of token `token`, in the order of ranks. */
__device__ inline void find_shares(const exchange &e, const rushmem::team &t, uint64_t round, uint32_t token, summing &s) {
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), me = static_cast<uint32_t>(t.my_pe());
  const packet *slots = routing_of(e, ranks, round & 1, me) + 1 + size_t(token) * e.routing_words;
  const choice c = choice_of(e, slots, round);
  uint32_t before = 0, place = 0;
#pragma unroll 4
  for (uint32_t lane = 0; lane < e.top_k; ++lane) {
    const uint32_t theirs = __shfl_sync(0xffffffffu, c.units, static_cast<int>(lane)), of = __shfl_sync(0xffffffffu, c.rank, static_cast<int>(lane));
    if (of >= c.rank || theirs == 0) continue;
    before += theirs;
    ++place;
  }
  if (c.first) s.shares[place] = share{before, c.narrow ? 1u : 0u, c.weight};
  const uint32_t firsts = __ballot_sync(0xffffffffu, c.first);
  if (threadIdx.x % 32 == 0) s.terms = __popc(firsts);
}

__device__ inline eight of_packets(const packet *slots, bool narrow, uint32_t octet, uint64_t round) {
  uint64_t w[4];
  if (narrow) {
    rushmem::wait_packed<rushmem::thread>(w, slots + 2 * size_t(octet), 2, round);
    return eight_of_narrow(make_uint4(static_cast<uint32_t>(w[0]), static_cast<uint32_t>(w[0] >> 32), static_cast<uint32_t>(w[1]),
                                      static_cast<uint32_t>(w[1] >> 32)));
  }
  rushmem::wait_packed<rushmem::thread>(w, slots + 4 * size_t(octet), 4, round);
  eight v;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    v.v[2 * i] = __uint_as_float(static_cast<uint32_t>(w[i]));
    v.v[2 * i + 1] = __uint_as_float(static_cast<uint32_t>(w[i] >> 32));
  }
  return v;
}
__device__ inline eight of_row(const unsigned char *row, bool narrow, uint32_t octet) {
  if (narrow) return eight_of_narrow(load16(row + size_t(octet) * 16));
  return eight_of_floats(load16(row + size_t(octet) * 32), load16(row + size_t(octet) * 32 + 16));
}

/* Tokens, and parts of them, that the blocks collect. */
struct homes {
  uint32_t n, chunks;
};
__device__ inline homes homes_of(const exchange &e, const rushmem::team &t, const uint32_t *start) {
  const uint32_t n = start[t.my_pe() + 1] - start[t.my_pe()];
  return {n, chunks_of(n, (e.hidden / 8 + 63) / 64)};
}

/* `known`: `s` has the shares of this block's first token. */
__device__ inline void collect(const exchange &e, const rushmem::team &t, const products &y, uint64_t round, const uint32_t *start,
                               summing &s, bool known) {
  const homes h = homes_of(e, t, start);
  const uint32_t n = h.n, chunks = h.chunks, octets = e.hidden / 8;
  const bool packed = n <= e.few;
  for (uint32_t item = blockIdx.x; item < n * chunks; item += gridDim.x) {
    const uint32_t token = item % n, chunk = item / n;
    if (!known) {
      __syncthreads();
      if (threadIdx.x < 32) find_shares(e, t, round, token, s);
      __syncthreads();
    }
    known = false;
    if (!packed) {
      /* A thread for each share acquires it for the block, which meets behind them. */
      if (threadIdx.x < s.terms) {
        const uint64_t *flag = e.result_flags + size_t(token) * e.units + s.shares[threadIdx.x].unit;
        rushmem::signal_wait_until(flag, rushmem::cmp::ge, round);
      }
      __syncthreads();
    }
    const range part = part_of(octets, chunk, chunks);
    for (uint32_t o = part.begin + threadIdx.x; o < part.end; o += blockDim.x) {
      eight total{};
      for (uint32_t i = 0; i < s.terms; ++i) {
        const share &one = s.shares[i];
        const size_t unit = size_t(token) * e.units + one.unit;
        eight v = packed ? of_packets(e.result_packets + unit * (e.unit_bytes / 8), one.narrow != 0, o, round)
                         : of_row(e.results + unit * e.unit_bytes, one.narrow != 0, o);
        if (one.narrow && e.weighted && MOE_LAYOUT != 1) scale_eight(v, one.weight);
        if (i == 0) total = v;
        else add_eight(total, v);
      }
      store_eight(y.out + size_t(token) * e.hidden * out_bytes, o, total);
    }
  }
}

/* Both, each at once where the other half is not left to another launch. */
template <bool pushes, bool collects>
__device__ inline void combine(const exchange &e, const rushmem::team &t, const products &y, uint64_t round) {
  __shared__ uint32_t start[most_ranks + 1];
  __shared__ summing shares;
  __shared__ uint32_t known;
  if (threadIdx.x == 0) known = 0;
  learn_known(e, t, round, start);
  if constexpr (pushes) {
    push(e, t, y, round, start, [&] {
      const homes h = homes_of(e, t, start);
      if (!collects || threadIdx.x >= 64 || blockIdx.x >= h.n * h.chunks) return;
      find_shares(e, t, round, blockIdx.x % h.n, shares);
      known = 1;
    });
  }
  if constexpr (collects) collect(e, t, y, round, start, shares, known != 0);
}

}  // namespace moe
