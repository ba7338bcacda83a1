/* The routing of a round, as each block of a receiver learns it: how many tokens each source has, and their
 * experts; and what is wrong with it. All ranks learn the same.
 *
 * MOE_LAYOUT: 0 expert-major, 1 rank-major, 2 flat.
 *
 * MOE_IN_PLACE: where a block finds the experts of all tokens while it counts.
 *   0: in its shared memory, into which it has copied them as they came.
 *   1: in the packets in which they came, for exchanges whose experts shared memory has no room for. It waits
 *      until it has seen every packet of the round, as it does to copy them; from then on each load of a
 *      packet finds what it has seen. Loads are those of packets, which are relaxed and see memory as it is,
 *      never the L1 cache. Behind a barrier of the block they may not find anything older than the loads
 *      before it, and nothing newer comes: only round n + 2 replaces the packets of round n (exchange.h). */
#ifndef MOE_LAYOUT
#define MOE_LAYOUT 0
#endif
#ifndef MOE_IN_PLACE
#define MOE_IN_PLACE 0
#endif

namespace moe {

/* What a block knows of a round, in shared memory. Tokens of all sources stand one behind the other. */
struct known {
  uint32_t counts[most_ranks];    /* tokens of each source */
  uint32_t start[most_ranks + 1]; /* the first token of each source; at the end how many there are */
  uint32_t wrong;                 /* the first token with an expert that does not exist */
  int failure;                    /* kind, with the words of note_failure */
  uint64_t rank, about, count;
};

/* Dynamic shared memory, behind the rooms for rows: the experts of all tokens, in words of four, unless they
 * are read in place; then for each warp that takes rows (rank-major: one) and each expert of this rank the
 * row of its next token, until then how many come before; then how many tokens each of all experts has.
 * memory.rs has its size. */
struct table {
  uint64_t *ids;
  uint32_t *before, *totals;
  uint64_t round;
};
__device__ inline table table_of(const exchange &e, const rushmem::team &t, uint64_t round, unsigned char *shared) {
  const size_t kept = MOE_IN_PLACE ? 0 : size_t(t.n_pes()) * e.max_tokens;
  uint64_t *words = reinterpret_cast<uint64_t *>(shared);
  uint32_t *before = reinterpret_cast<uint32_t *>(words + kept * id_words(e));
  return {words, before, before + (MOE_LAYOUT == 1 ? 1 : takers) * e.experts_a_rank, round};
}

struct place_of_token {
  uint32_t source, token;
};
__device__ inline place_of_token locate(const known &k, uint32_t ranks, uint32_t at) {
  uint32_t source = 0;
  while (source + 1 < ranks && k.start[source + 1] <= at) ++source;
  return {source, at - k.start[source]};
}

/* By one thread: the first failure counts; each thread that finds one finds the same, or one of the same kind
 * with a lower rank, as all go through tokens in one order. */
__device__ inline void fail_round(known &k, int kind, uint64_t rank, uint64_t about, uint64_t count) {
  k.failure = kind;
  k.rank = rank;
  k.about = about;
  k.count = count;
}

/* Counts that are none. */
constexpr uint32_t unknown = ~0u, too_many = ~0u - 1;

/* Whether a source is known not to have a token of this number. */
__device__ inline bool is_past(uint32_t count, uint32_t token) {
  return count != unknown && (count == too_many || token >= count);
}

__device__ inline uint32_t id_at(uint64_t four, uint32_t i) { return static_cast<uint32_t>(four >> (16 * i)) & 0xffff; }

#if MOE_IN_PLACE
/* Packets whose loads a thread has in flight together. */
constexpr uint32_t at_once = 4;

__device__ inline const packet *ids_of(const exchange &e, const rushmem::team &t, const table &all, place_of_token p) {
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes());
  return routing_of(e, ranks, all.round & 1, p.source) + 1 + size_t(p.token) * e.routing_words;
}

/* Of a packet that the block has seen. */
__device__ inline uint64_t word_at(const table &all, const packet *slot) {
  uint64_t four = ~uint64_t(0);
  rushmem::test_packed(slot, all.round, &four);
  return four;
}
#else
constexpr uint32_t at_once = 1;

__device__ inline const uint64_t *ids_of(const exchange &e, const rushmem::team &, const table &all, place_of_token p) {
  return all.ids + (p.source * e.max_tokens + p.token) * id_words(e);
}

__device__ inline uint64_t word_at(const table &, const uint64_t *word) { return *word; }
#endif

/* By the block: passes each word of the experts of `n` tokens of a source, from `p` on, to `take`. */
template <typename Take>
__device__ inline void each_word(const exchange &e, const rushmem::team &t, const table &all, place_of_token p, uint32_t n,
                                 const Take &take) {
  const auto *ids = ids_of(e, t, all, p);
#if MOE_IN_PLACE
  const uint32_t words = id_words(e);
  for (uint32_t from = threadIdx.x; from < n * words; from += at_once * blockDim.x) {
    uint64_t four[at_once];
#pragma unroll
    for (uint32_t j = 0; j < at_once; ++j) {
      const uint32_t i = from + j * blockDim.x, token = i / words;
      four[j] = i < n * words ? word_at(all, ids + size_t(token) * e.routing_words + (i - token * words)) : ~uint64_t(0);
    }
    /* A word past the end names no expert. */
#pragma unroll
    for (uint32_t j = 0; j < at_once; ++j) take(four[j]);
  }
#else
  for (uint32_t i = threadIdx.x; i < n * id_words(e); i += blockDim.x) take(ids[i]);
#endif
}

/* A word of a token's experts, once it has come. */
__device__ inline void keep_word(known &k, const table &all, uint32_t at, uint64_t four, uint32_t number) {
  if (!MOE_IN_PLACE) all.ids[at] = four;
  for (uint32_t j = 0; j < 4; ++j) {
    if (id_at(four, j) == unheard) atomicMin(&k.wrong, number);
  }
}

/* How many tokens each source has, and their experts. Both are waited for at once, as the loads of a wait
 * take as long as the link: a thread polls a word that may never come, until its source's count says so. */
__device__ inline void learn_routing(const exchange &e, const rushmem::team &t, known &k, const table &all) {
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), words = id_words(e), set = all.round & 1;
  const uint64_t round = all.round;
  volatile uint32_t *const counts = k.counts;
  for (uint32_t rank = threadIdx.x; rank < ranks; rank += blockDim.x) counts[rank] = unknown;
  if (threadIdx.x == 0) {
    k.failure = 0;
    k.wrong = ~0u;
    k.start[0] = 0;
  }
  __syncthreads();
  /* From the block's end: the words that are sure to come are other threads'. */
  for (uint32_t i = blockDim.x - 1 - threadIdx.x; i < ranks; i += blockDim.x) {
    const uint64_t said = is_absent(e, i) ? 0 : rushmem::wait_packed(routing_of(e, ranks, set, i), round);
    counts[i] = said > e.max_tokens ? too_many : static_cast<uint32_t>(said);
  }
  const uint32_t each = e.max_tokens * words;
  for (uint32_t from = threadIdx.x; from < ranks * each; from += at_once * blockDim.x) {
    const packet *slots[at_once];
    uint32_t sources[at_once], tokens[at_once];
    uint64_t four[at_once];
    bool has[at_once];
#pragma unroll
    for (uint32_t j = 0; j < at_once; ++j) {
      const uint32_t i = from + j * blockDim.x;
      const uint32_t source = ranks == 1 ? 0 : i / each, at = i - source * each, token = words == 1 ? at : at / words;
      sources[j] = source;
      tokens[j] = token;
      four[j] = 0;
      has[j] = false;
      if (at_once > 1 && (i >= ranks * each || is_past(counts[source], token))) continue;
      slots[j] = routing_of(e, ranks, set, source) + 1 + size_t(token) * e.routing_words + (at - token * words);
      has[j] = rushmem::test_packed(slots[j], round, &four[j]);
    }
#pragma unroll
    for (uint32_t j = 0; j < at_once; ++j) {
      const uint32_t i = from + j * blockDim.x;
      if (at_once > 1 && i >= ranks * each) break;
      while (!has[j]) {
        const uint32_t n = counts[sources[j]];
        if (n == unknown) {
          has[j] = rushmem::test_packed(slots[j], round, &four[j]);
          continue;
        }
        if (n == too_many || tokens[j] >= n) break;
        four[j] = rushmem::wait_packed(slots[j], round);
        has[j] = true;
      }
      if (has[j]) keep_word(k, all, i, four[j], i / words);
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      uint32_t n = counts[rank];
      if (n == too_many) {
        if (!k.failure) fail_round(k, too_many_tokens, rank, 0, routing_of(e, ranks, set, rank)->value);
        n = counts[rank] = 0;
      }
      k.start[rank + 1] = k.start[rank] + n;
    }
  }
  __syncthreads();
}

/* The lowest of all threads' values, on all. */
__device__ inline uint32_t lowest(uint32_t value, uint32_t *shared) {
  __syncthreads();
  if (threadIdx.x == 0) *shared = ~0u;
  __syncthreads();
  if (value != ~0u) atomicMin(shared, value);
  __syncthreads();
  return *shared;
}

__device__ inline uint32_t padded(const exchange &e, uint32_t rows) { return (rows + e.align - 1) / e.align * e.align; }

/* The block that counts for the result: the last, which has the fewest rows. */
__device__ inline bool is_clerk() { return blockIdx.x == gridDim.x - 1; }

/* The tokens that a block's warps take: `each` items (a row, or a part of one) in their order for each warp
 * of all blocks that receive, first those of all blocks' first warps. So a warp counts the tokens that it
 * takes by itself, and waits for none. */
struct shares {
  uint32_t items, parts, each;
  crew c;
  __device__ uint32_t begin(uint32_t taker) const {
    const uint32_t at = (taker * c.blocks + c.block) * each;
    return at < items ? at : items;
  }
};

#if MOE_LAYOUT != 1
/* Whether some expert, or in the flat layout some rank, can have more tokens than there is room for. */
__device__ inline bool can_fail(const exchange &e, uint32_t ranks) {
  return MOE_LAYOUT == 2 || e.capacity < ranks * e.max_tokens;
}

/* Counts tokens: in `before` for each warp that takes some those of this rank's experts that are between the
 * first of the warp before it and its own; in `totals` those of every expert, where that is asked for. */
__device__ inline void count(const exchange &e, const rushmem::team &t, const known &k, const table &all, const shares &s,
                             bool totals) {
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), own = e.experts_a_rank;
  const uint32_t first = static_cast<uint32_t>(t.my_pe()) * own;
  for (uint32_t i = threadIdx.x; i < takers * own; i += blockDim.x) all.before[i] = 0;
  for (uint32_t i = threadIdx.x; i < e.experts; i += blockDim.x) all.totals[i] = 0;
  __syncthreads();
  uint32_t from = 0;
  for (uint32_t taker = 0; taker <= takers; ++taker) {
    /* Behind the last warp's first token there are totals only. */
    const bool last = taker == takers || s.begin(taker) == s.items;
    const uint32_t to = last ? k.start[ranks] : s.begin(taker) / s.parts;
    uint32_t *const counts = last ? all.totals + first : all.before + taker * own;
    if (last && !totals) break;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      const uint32_t begin = k.start[rank], end = k.start[rank + 1];
      if (end <= from || begin >= to) continue;
      const uint32_t low = from > begin ? from - begin : 0, high = (to < end ? to : end) - begin;
      each_word(e, t, all, {rank, low}, high - low, [&](uint64_t four) {
        for (uint32_t j = 0; j < 4; ++j) {
          const uint32_t id = id_at(four, j), local = id - first;
          if (id >= unheard) continue;
          if (local < own) atomicAdd(counts + local, 1u);
          else if (totals) atomicAdd(all.totals + id, 1u);
        }
      });
    }
    if (last) break;
    from = to;
  }
  __syncthreads();
  if (!totals) return;
  for (uint32_t i = threadIdx.x; i < own && first + i < e.experts; i += blockDim.x) {
    uint32_t n = 0;
    for (uint32_t taker = 0; taker < takers; ++taker) n += all.before[taker * own + i];
    all.totals[first + i] += n;
  }
  __syncthreads();
}
#endif

/* Counts the tokens of every expert, on all ranks alike, and looks for errors. Where no expert can have too
 * many, one block alone counts those of other ranks. */
__device__ inline void judge(const exchange &e, const rushmem::team &t, known &k, const table &all, const shares &s) {
  if (k.wrong != ~0u) {
    if (threadIdx.x == 0 && !k.failure) {
      fail_round(k, no_such_expert, k.wrong / e.max_tokens, k.wrong % e.max_tokens, 0);
    }
    __syncthreads();
  }
#if MOE_LAYOUT == 1
  static_cast<void>(t);
  static_cast<void>(all);
  static_cast<void>(s);
#else
  __shared__ uint32_t first;
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes());
  const bool fails = can_fail(e, ranks);
  count(e, t, k, all, s, fails || is_clerk());
  if (!fails && !is_clerk()) return;
  uint32_t over = ~0u;
#if MOE_LAYOUT == 0
  for (uint32_t i = threadIdx.x; i < e.experts; i += blockDim.x) {
    if (all.totals[i] > e.capacity && i < over) over = i;
  }
  over = lowest(over, &first);
  if (over != ~0u && threadIdx.x == 0 && !k.failure) {
    const uint32_t rank = over / e.experts_a_rank;
    if (fails) fail_round(k, over_capacity, rank, over, all.totals[over]);
    else tell_failure(e, all.round, over_capacity, rank, over, all.totals[over]);
  }
#else
  /* Rows of each rank: a warp adds them up. */
  __shared__ uint32_t rows_of[most_ranks];
  for (uint32_t rank = warp_of(); rank < ranks; rank += warps) {
    uint32_t rows = 0;
    for (uint32_t i = lane_of(); i < e.experts_a_rank; i += lanes) {
      const uint32_t id = rank * e.experts_a_rank + i;
      if (id < e.experts) rows += padded(e, all.totals[id]);
    }
    for (int apart = lanes / 2; apart > 0; apart /= 2) rows += __shfl_xor_sync(all_lanes, rows, apart);
    if (lane_of() == 0) rows_of[rank] = rows;
    if (rows > e.capacity && rank < over) over = rank;
  }
  over = lowest(over, &first);
  if (over != ~0u && threadIdx.x == 0 && !k.failure) fail_round(k, over_capacity, over, e.experts, rows_of[over]);
#endif
  __syncthreads();
#endif
}

}  // namespace moe
