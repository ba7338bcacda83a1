/* Combine: each rank adds up what its experts made of a token, and pushes the sum to the token's home, which
 * adds the ranks' sums (sums.h). A warp has a token, or a part of it. */
namespace moe {

/* ---- to the homes ---- */

/* Whether it is a row that goes as the expert left it. */
__device__ inline bool is_row(const exchange &e, const summing &s) { return s.narrow && (MOE_LAYOUT == 1 || !e.rounded); }

__device__ inline uint64_t word_of(float low, float high) {
  return static_cast<uint64_t>(__float_as_uint(high)) << 32 | __float_as_uint(low);
}

/* A part of a sum as packets. Lanes side by side send packets side by side, in twos: a lane alone would send
 * half of what memory moves at a time. */
__device__ inline void push_packets(const exchange &e, const summing &s, packet *slots, range fours, uint64_t round, int pe) {
  if (is_row(e, s)) {
    for (uint32_t at = fours.begin + lane_of(); at < fours.end; at += lanes) {
      rushmem::put_packed(slots + at, load8(s.terms[0].at + size_t(at) * 8), round, pe);
    }
    return;
  }
  add_terms<1>(s, fours, [&](uint32_t at, const four (&v)[1]) {
    if (s.narrow) {
      if (at < fours.end) rushmem::put_packed(slots + at, narrow_of(v[0]), round, pe);
      return;
    }
    const uint64_t low = word_of(v[0].v[0], v[0].v[1]), high = word_of(v[0].v[2], v[0].v[3]);
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const int from = static_cast<int>(half * (lanes / 2) + lane_of() / 2);
      const uint64_t a = __shfl_sync(all_lanes, static_cast<unsigned long long>(low), from);
      const uint64_t b = __shfl_sync(all_lanes, static_cast<unsigned long long>(high), from);
      const uint32_t word = 2 * (at - lane_of()) + half * lanes + lane_of();
      if (word < 2 * fours.end) rushmem::put_packed(slots + word, lane_of() % 2 ? b : a, round, pe);
    }
  });
}

/* Parts of a sum that is stored, each with a flag: 512 columns where tokens are few, which a warp loads at
 * once. Sender and receiver know it from the number of the home's tokens. */
__device__ inline uint32_t flags_back(const exchange &e, uint32_t tokens) {
  const uint32_t whole = (e.hidden + 511) / 512;
  const uint32_t wanted = tokens <= 128 ? whole : tokens <= 256 ? (whole + 1) / 2 : tokens <= 512 ? 2 : 1;
  return wanted < e.parts ? wanted : e.parts;
}

/* Part `part` of a sum that is stored: whole 16 bytes of 16-bit numbers. */
__device__ inline range stored_part(const exchange &e, uint32_t part, uint32_t parts) {
  const range octets = part_of(e.hidden / 8, part, parts);
  return {2 * octets.begin, 2 * octets.end};
}

/* A row's part as it is. */
constexpr uint32_t copied = 8;
__device__ inline void copy_row(const unsigned char *from, unsigned char *to, range fours) {
  const uint32_t end = fours.end / 2;
  for (uint32_t at = fours.begin / 2 + lane_of(); at < end; at += copied * lanes) {
    uint4 v[copied];
#pragma unroll
    for (uint32_t j = 0; j < copied; ++j) v[j] = quad_of(from, at + j * lanes, end);
#pragma unroll
    for (uint32_t j = 0; j < copied; ++j) {
      if (at + j * lanes < end) store16(to + size_t(at + j * lanes) * 16, v[j]);
    }
  }
}

/* A part of a sum, as the home will read it. */
__device__ inline void store_sum(const exchange &e, const summing &s, unsigned char *to, range fours) {
  if (is_row(e, s)) return copy_row(s.terms[0].at, to, fours);
  const auto store = [&](uint32_t at, const four &v) {
    if (s.narrow) store8(to + size_t(at) * 8, narrow_of(v));
    else store16(to + size_t(at) * 16, floats_of(v));
  };
  fours.begin = add_rows(s.terms, s.count, fours, nobody{false}, store);
  add_terms<1>(s, fours, [&](uint32_t at, const four (&v)[1]) {
    if (at < fours.end) store(at, v[0]);
  });
}

/* To a home that is far, whole, from a composed copy. Out of line: the near path need not have its
 * registers. */
__device__ __noinline__ void push_far(const exchange &e, const summing &s, unsigned char *home, uint64_t *flag, uint64_t round,
                                      int pe) {
  unsigned char *composed = scratch_of(e);
  store_sum(e, s, composed, {0, e.hidden / 4});
  __syncwarp();
  const uint32_t quads = e.hidden / (s.narrow ? 8 : 4);
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
  const uint32_t ours = __ballot_sync(all_lanes, c.rank == me);
  const uint32_t units = before_this(e, c, 0).units;
  keep_rows(e, y, c, at, position, me, 0, terms_a_row * (MOE_LAYOUT == 1 ? 0 : __popc(ours & ((1u << lane) - 1))), s);
  if (c.rank == me && c.first) {
    s.narrow = c.narrow ? 1 : 0;
    s.unit = units;
    unsigned char *home = e.results + (size_t(p.token) * e.units + units) * e.unit_bytes;
    s.to = rushmem::ptr(home, t.world_pe(static_cast<int>(p.source)));
  }
  if (lane == 0) s.count = terms_a_row * (MOE_LAYOUT == 1 && ours != 0 ? 1 : __popc(ours));
  __syncwarp();
}

/* How the tokens of a round are shared out to the warps of a block. */
struct sharing {
  uint32_t start[most_ranks + 1]; /* tokens whose sums are pushed, one source's behind the other's */
  uint32_t mine;                  /* tokens whose sums are collected */
  uint32_t pushed, collected;     /* items that warps of this block have taken */
};

/* `direct`: sums of this rank's own tokens are not pushed. */
__device__ inline void learn_known(const exchange &e, const rushmem::team &t, uint64_t round, bool direct, sharing &all) {
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), me = static_cast<uint32_t>(t.my_pe());
  for (uint32_t rank = threadIdx.x; rank < ranks; rank += blockDim.x) {
    const uint32_t n = count_known(e, t, round, rank);
    all.start[rank + 1] = direct && rank == me ? 0 : n;
    if (rank == me) all.mine = n;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    all.start[0] = all.pushed = all.collected = 0;
    for (uint32_t rank = 0; rank < ranks; ++rank) all.start[rank + 1] += all.start[rank];
  }
  __syncthreads();
}

/* Items of a block that its warps take one after the other, as they come to them; the first of each is known
 * without asking. */
struct taking {
  dealt d;
  uint32_t items, warps_at_first, turn;
};
__device__ inline taking take_of(uint32_t items, uint32_t warps_at_first) { return {deal(items), items, warps_at_first, 0}; }

/* The next item of this warp, the `place`th of those that begin with one; ~0: there is none. */
__device__ inline uint32_t next_item(taking &from, uint32_t place, uint32_t *taken) {
  uint32_t number = place;
  if (from.turn++ != 0 || place >= from.warps_at_first) {
    /* All have had theirs. */
    if (from.items <= from.d.step && from.warps_at_first >= from.d.each) return ~0u;
    if (lane_of() == 0) number = from.warps_at_first + atomicAdd(taken, 1u);
    number = __shfl_sync(all_lanes, number, 0);
  }
  const uint32_t turn = number / from.d.each, item = from.d.first + turn * from.d.step + (number - turn * from.d.each);
  return item < from.items ? item : ~0u;
}

/* A sum's packets, at most so many a part. */
__device__ inline uint32_t parts_back(const exchange &e, uint32_t rows) { return parts_of(rows, (e.hidden + 4 * lanes - 1) / (4 * lanes)); }

/* Parts that each token has whose sum is pushed, as many as any source's need. */
__device__ inline uint32_t parts_pushed(const exchange &e, uint32_t ranks, const sharing &all) {
  uint32_t parts = 1;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const uint32_t n = all.start[rank + 1] - all.start[rank];
    const uint32_t wanted = n <= e.few_back ? parts_back(e, all.start[ranks]) : flags_back(e, n);
    if (n != 0 && wanted > parts) parts = wanted;
  }
  return parts;
}

__device__ inline void push(const exchange &e, const rushmem::team &t, const products &y, uint64_t round, sharing &all, uint32_t parts,
                            taking from, summing &s) {
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), fours = e.hidden / 4;
  for (;;) {
    const uint32_t item = next_item(from, warp_of(), &all.pushed);
    if (item == ~0u) break;
    const uint32_t at = item / parts, part = item - at * parts;
    uint32_t source = 0;
    while (source + 1 < ranks && all.start[source + 1] <= at) ++source;
    const uint32_t n = all.start[source + 1] - all.start[source], flags = flags_back(e, n);
    const place_of_token p{source, at - all.start[source]};
    const bool packed = n <= e.few_back;
    if (!packed && part >= flags) continue;
    find_terms(e, t, y, round, p, s);
    if (s.count != 0) {
      const int pe = t.world_pe(static_cast<int>(source));
      const size_t unit = size_t(p.token) * e.units + s.unit;
      uint64_t *flag = e.result_flags + unit * e.parts + part;
      if (packed) {
        push_packets(e, s, e.result_packets + unit * (e.unit_bytes / 8), part_of(fours, part, parts), round, pe);
      } else if (s.to) {
        store_sum(e, s, s.to, stored_part(e, part, flags));
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

/* By the lane of a rank's first expert of a token: which of the token's units is that rank's; ~0 by
 * others, and for this rank where it adds its own. Finds the terms: all, or, where sums come as packets,
 * this rank's and the others' shares. */
template <bool direct, bool packed>
__device__ inline uint32_t find_shares(const exchange &e, const rushmem::team &t, const products &y, uint64_t round, uint32_t token,
                                       summing &s) {
  const uint32_t lane = lane_of(), ranks = static_cast<uint32_t>(t.n_pes()), me = static_cast<uint32_t>(t.my_pe());
  const packet *slots = routing_of(e, ranks, round & 1, me) + 1 + size_t(token) * e.routing_words;
  const size_t at = size_t(me) * e.max_tokens + token;
  const int32_t position = direct && lane < e.top_k ? e.positions[at * e.top_k + lane] : 0;
  const choice c = choice_of(e, slots, round);
  const bool here = direct && c.rank == me, comes = c.first && !here;
  uint32_t terms = here ? terms_of_rows(c) : 0;
  if (comes && !packed) terms = c.narrow ? 1 : 2;
  const before b = before_this(e, c, terms);
  const uint32_t rounds = c.narrow && e.rounded && MOE_LAYOUT != 1 ? uint32_t(term_rounds) : 0;
  if (direct) keep_rows(e, y, c, at, position, me, rounds, b.terms, s);
  if (packed && c.first) s.shares[b.ranks] = share{here ? own : b.units, c.narrow ? 1u : 0u, c.weight};
  if (!packed && comes) {
    const unsigned char *sum = e.results + (size_t(token) * e.units + b.units) * e.unit_bytes;
    if (c.narrow) {
      s.terms[b.terms] = term{sum, MOE_LAYOUT == 1 || e.rounded ? 1 : c.weight, term_ends};
    } else {
      s.terms[b.terms] = term{sum, 1, term_f32};
      s.terms[b.terms + 1] = term{sum + 8, 1, term_f32 | term_second | term_ends};
    }
  }
  const uint32_t firsts = __ballot_sync(all_lanes, c.first);
  uint32_t count = terms;
  for (int apart = lanes / 2; apart > 0; apart /= 2) count += __shfl_xor_sync(all_lanes, count, apart);
  const uint32_t ours = __ballot_sync(all_lanes, here && terms != 0), others = __ballot_sync(all_lanes, comes);
  if (lane == 0) {
    s.ranks = __popc(firsts);
    s.count = count;
    s.own_count = __popc(ours);
    s.others = __popc(others);
    if (others == 0) s.other_at = 0;
  }
  if (ours != 0 && lane + 1 == __ffs(ours)) s.own_at = b.terms;
  if (comes && others >> lane == 1) s.other_at = b.terms;
  __syncwarp();
  return comes ? b.units : own;
}

__device__ inline four of_packets(const packet *slots, bool narrow, uint32_t at, uint64_t round) {
  if (narrow) return four_of_narrow(rushmem::wait_packed(slots + at, round));
  uint64_t w[2];
  rushmem::wait_packed<rushmem::thread>(w, slots + 2 * size_t(at), 2, round);
  return {{__uint_as_float(static_cast<uint32_t>(w[0])), __uint_as_float(static_cast<uint32_t>(w[0] >> 32)),
           __uint_as_float(static_cast<uint32_t>(w[1])), __uint_as_float(static_cast<uint32_t>(w[1] >> 32))}};
}

/* A part of a token whose other ranks' sums come as packets: this rank's own terms are read while they
 * travel. */
__device__ inline void collect_packets(const exchange &e, const products &y, uint64_t round, uint32_t token, range mine, const summing &s) {
  add_terms<1>(s, mine, [&](uint32_t at, const four (&ours)[1]) {
    if (at >= mine.end) return;
    four total = nothing();
    for (uint32_t i = 0; i < s.ranks; ++i) {
      const share &one = s.shares[i];
      four v = ours[0];
      if (one.unit != own) {
        const size_t unit = size_t(token) * e.units + one.unit;
        v = of_packets(e.result_packets + unit * (e.unit_bytes / 8), one.narrow != 0, at, round);
        if (one.narrow && MOE_LAYOUT != 1 && !e.rounded) scale_four(v, one.weight);
      }
      add_four(total, v);
    }
    if (s.ranks == 0) total = {};
    store_four(y.out + size_t(token) * e.hidden * out_bytes, at, total);
  });
}

/* A part of a token whose other ranks' sums have come. */
__device__ inline void collect_stored(const exchange &e, const products &y, uint32_t token, range mine, const summing &s) {
  unsigned char *out = y.out + size_t(token) * e.hidden * out_bytes;
  const auto store = [&](uint32_t at, const four &v) { store_four(out, at, v); };
  if (s.ranks == 0) {
    for (uint32_t at = mine.begin + lane_of(); at < mine.end; at += lanes) store(at, four{});
    return;
  }
  /* Most tokens where ranks are few. */
  const term &sum = s.terms[s.other_at], *rows = s.terms + s.own_at;
  const bool narrow = s.others != 0 && !(sum.kind & term_f32), rounds = e.rounded && MOE_LAYOUT != 1;
  if (s.own_count == 0 && s.others == 1 && narrow) {
    mine.begin = add_rows(&sum, 1, mine, nobody{false}, store);
  } else if (s.own_count != 0 && s.others == 1 && narrow) {
    mine.begin = add_rows(rows, s.own_count, mine, other<true>{sum.at, sum.weight, rounds}, store);
  } else if (s.own_count != 0 && s.others == 1) {
    mine.begin = add_rows(rows, s.own_count, mine, other<false>{sum.at, 1, rounds}, store);
  } else if (s.own_count != 0 && s.others == 0) {
    mine.begin = add_rows(rows, s.own_count, mine, nobody{rounds}, store);
  }
  add_terms<1>(s, mine, [&](uint32_t at, const four (&total)[1]) {
    if (at < mine.end) store(at, total[0]);
  });
}

template <bool direct, bool packed>
__device__ inline void collect(const exchange &e, const rushmem::team &t, const products &y, uint64_t round, uint32_t parts, sharing &all,
                               taking from, uint32_t place, summing &s) {
  for (;;) {
    const uint32_t item = next_item(from, place, &all.collected);
    if (item == ~0u) break;
    const uint32_t token = item / parts, part = item - token * parts;
    const uint32_t unit = find_shares<direct, packed>(e, t, y, round, token, s);
    if (packed) {
      collect_packets(e, y, round, token, part_of(e.hidden / 4, part, parts), s);
    } else {
      /* A lane for each share acquires it for the warp, which meets behind them. */
      if (unit != own) {
        const uint64_t *flags = e.result_flags + (size_t(token) * e.units + unit) * e.parts;
        rushmem::signal_wait_until(flags + part, rushmem::cmp::ge, round);
      }
      __syncwarp();
      collect_stored(e, y, token, stored_part(e, part, parts), s);
    }
    __syncwarp();
  }
}

/* Both, or the half that a launch is for. In both together this rank adds its own experts' results where
 * it collects, and of rounds of several turns some warps push while the others collect: the link takes as
 * long as memory. Those that push wait for nobody, and collect when they have done. */
template <bool pushes, bool collects>
__device__ inline void combine(const exchange &e, const rushmem::team &t, const products &y, uint64_t round) {
  constexpr bool direct = pushes && collects;
  __shared__ sharing all;
  __shared__ summing of_warps[warps];
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes());
  learn_known(e, t, round, direct, all);
  summing &s = of_warps[warp_of()];
  uint32_t pushing = warps, idle = 0;
  if constexpr (pushes) {
    const uint32_t parts = parts_pushed(e, ranks, all), items = all.start[ranks] * parts;
    if (collects && goes_apart(items)) pushing = (warps + 1) / 2;
    /* Warps that push nothing are the first to collect. */
    if (pushing == warps && items <= gridDim.x * warps) idle = deal(items).each % warps;
    if (warp_of() < pushing) push(e, t, y, round, all, parts, take_of(items, pushing), s);
  }
  if constexpr (collects) {
    const uint32_t n = all.mine, parts = n <= e.few_back ? parts_back(e, n) : flags_back(e, n);
    /* Where some push, the others begin. */
    const uint32_t first = pushing < warps ? pushing : 0;
    const taking from = take_of(n * parts, warps - first);
    const uint32_t place = warp_of() < first ? warps : (warp_of() - first + warps - idle) % warps;
    if (n <= e.few_back) collect<direct, true>(e, t, y, round, parts, all, from, place, s);
    else collect<direct, false>(e, t, y, round, parts, all, from, place, s);
  }
}

}  // namespace moe
