/* The routing of a round, as each block of a receiver learns it: how many tokens each source has, and their
 * experts; and what is wrong with it. All ranks learn the same.
 *
 * MOE_LAYOUT: 0 expert-major, 1 rank-major, 2 flat. */
#ifndef MOE_LAYOUT
#define MOE_LAYOUT 0
#endif

namespace moe {

/* What a block knows of a round, in shared memory. */
struct known {
  uint32_t counts[most_ranks];    /* tokens of each source */
  uint32_t most;                  /* of a source */
  uint32_t wrong;                 /* the first token with an expert that does not exist */
  int failure;                    /* kind, with the words of note_failure */
  uint64_t rank, about, count;
};

/* Dynamic shared memory: the experts of all tokens, in words of four; then for each source and expert of this
 * rank how many of its tokens are for that, later the row of its next one; then words as many as experts. */
struct table {
  uint64_t *ids;
  uint32_t *before, *totals;
};
__device__ inline table table_of(const exchange &e, const rushmem::team &t, unsigned char *shared) {
  const size_t ids = size_t(t.n_pes()) * e.max_tokens * id_words(e);
  uint64_t *words = reinterpret_cast<uint64_t *>(shared);
  uint32_t *before = reinterpret_cast<uint32_t *>(words + ids);
  return {words, before, before + static_cast<uint32_t>(t.n_pes()) * e.experts_a_rank};
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

__device__ inline uint32_t id_at(uint64_t four, uint32_t i) { return static_cast<uint32_t>(four >> (16 * i)) & 0xffff; }

__device__ inline uint64_t *ids_of(const exchange &e, const table &all, place_of_token p) {
  return all.ids + (p.source * e.max_tokens + p.token) * id_words(e);
}

/* A word of a token's experts, once it has come. */
__device__ inline void keep_word(known &k, uint64_t *to, uint64_t four, uint32_t number) {
  *to = four;
  for (uint32_t j = 0; j < 4; ++j) {
    if (id_at(four, j) == unheard) atomicMin(&k.wrong, number);
  }
}

/* Words of which a thread has loads in flight together. */
constexpr uint32_t polled = 4;

/* Waits for word `i` of all, if its source has so many tokens. */
__device__ __noinline__ bool await_routing(const exchange &e, const volatile uint32_t *counts, uint32_t i, uint32_t words,
                                           const packet *slot, uint64_t round, uint64_t *four) {
  const uint32_t each = e.max_tokens * words, source = i / each;
  for (;;) {
    const uint32_t n = counts[source];
    if (n == too_many || (n != unknown && (i - source * each) / words >= n)) return false;
    if (n != unknown) {
      *four = await(slot, round);
      return true;
    }
    if (rushmem::test_packed(slot, round, four)) return true;
  }
}

/* How many tokens each source has, and their experts. Both are waited for at once, as the loads of a wait
 * take as long as the link: a thread polls a word that may never come, until its source's count says so. */
__device__ inline void learn_routing(const exchange &e, const rushmem::team &t, uint64_t round, known &k, const table &all) {
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), words = id_words(e), set = round & 1;
  volatile uint32_t *const counts = k.counts;
  for (uint32_t rank = threadIdx.x; rank < ranks; rank += blockDim.x) counts[rank] = unknown;
  if (threadIdx.x == 0) {
    k.failure = 0;
    k.wrong = ~0u;
  }
  __syncthreads();
  /* From the block's end: the words that are sure to come are other threads'. */
#pragma unroll 1
  for (uint32_t i = blockDim.x - 1 - threadIdx.x; i < ranks; i += blockDim.x) {
    const uint64_t said = is_absent(e, i) ? 0 : packet_of(routing_of(e, ranks, set, i), round);
    counts[i] = said > e.max_tokens ? too_many : static_cast<uint32_t>(said);
  }
  const uint32_t each = e.max_tokens * words;
#pragma unroll 1
  for (uint32_t base = threadIdx.x; base < ranks * each; base += polled * blockDim.x) {
    const packet *slots[polled];
    uint64_t four[polled];
    bool has[polled];
#pragma unroll
    for (uint32_t j = 0; j < polled; ++j) {
      const uint32_t i = base + j * blockDim.x, source = ranks == 1 ? 0 : i / each, at = i - source * each;
      const uint32_t token = words == 1 ? at : at / words;
      slots[j] = routing_of(e, ranks, set, source) + 1 + size_t(token) * e.routing_words + (at - token * words);
      four[j] = 0;
      has[j] = i < ranks * each && rushmem::test_packed(slots[j], round, &four[j]);
    }
#pragma unroll
    for (uint32_t j = 0; j < polled; ++j) {
      const uint32_t i = base + j * blockDim.x;
      if (i >= ranks * each) break;
      if (!has[j]) has[j] = await_routing(e, counts, i, words, slots[j], round, &four[j]);
      if (has[j]) keep_word(k, all.ids + i, four[j], i / words);
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    uint32_t most = 0;
#pragma unroll 1
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      uint32_t n = counts[rank];
      if (n == too_many) {
        if (!k.failure) fail_round(k, too_many_tokens, rank, 0, routing_of(e, ranks, set, rank)->value);
        n = counts[rank] = 0;
      }
      if (n > most) most = n;
    }
    k.most = most;
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

/* Does something for each expert of the tokens of `rank` from number `from` up to `to`, as far as it has so
 * many. */
template <typename Do>
__device__ inline void each_expert(const exchange &e, const known &k, const table &all, uint32_t rank, uint32_t from, uint32_t to,
                                   const Do &does) {
  const uint32_t end = k.counts[rank] < to ? k.counts[rank] : to;
  if (from >= end) return;
  const uint64_t *ids = ids_of(e, all, {rank, from});
#pragma unroll 1
  for (uint32_t i = threadIdx.x; i < (end - from) * id_words(e); i += blockDim.x) {
    const uint64_t four = ids[i];
    for (uint32_t j = 0; j < 4; ++j) {
      if (id_at(four, j) < unheard) does(id_at(four, j));
    }
  }
}

/* Whether there can be more tokens than room for them: not where there is room for all that can come. */
__device__ inline bool may_overflow(const exchange &e, uint32_t ranks) {
  if (MOE_LAYOUT == 1) return false;
  if (MOE_LAYOUT == 0) return e.capacity < ranks * e.max_tokens;
  const uint32_t most = e.top_k < e.experts_a_rank ? e.top_k : e.experts_a_rank;
  return e.capacity < uint64_t(ranks) * e.max_tokens * most + e.experts_a_rank * uint64_t(e.align - 1);
}

/* Counts tokens by source for the experts of this rank, and where rows may be too few those of every expert,
 * on all ranks alike; and looks for errors. */
__device__ inline void judge(const exchange &e, const rushmem::team &t, known &k, const table &all) {
  if (k.wrong != ~0u) {
    if (threadIdx.x == 0 && !k.failure) {
      fail_round(k, no_such_expert, k.wrong / e.max_tokens, k.wrong % e.max_tokens, 0);
    }
    __syncthreads();
  }
#if MOE_LAYOUT == 1
  static_cast<void>(t);
  static_cast<void>(all);
#else
  __shared__ uint32_t first;
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), ours = static_cast<uint32_t>(t.my_pe()) * e.experts_a_rank;
  const bool can_fail = may_overflow(e, ranks);
  for (uint32_t i = threadIdx.x; i < ranks * e.experts_a_rank; i += blockDim.x) all.before[i] = 0;
  for (uint32_t i = threadIdx.x; can_fail && i < e.experts; i += blockDim.x) all.totals[i] = 0;
  __syncthreads();
#pragma unroll 1
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    uint32_t *of_rank = all.before + rank * e.experts_a_rank;
    each_expert(e, k, all, rank, 0, e.max_tokens, [&](uint32_t id) {
      if (id - ours < e.experts_a_rank) atomicAdd(of_rank + (id - ours), 1u);
      if (can_fail) atomicAdd(all.totals + id, 1u);
    });
  }
  __syncthreads();
  if (!can_fail) return;
  uint32_t over = ~0u;
#if MOE_LAYOUT == 0
  for (uint32_t i = threadIdx.x; i < e.experts; i += blockDim.x) {
    if (all.totals[i] > e.capacity && i < over) over = i;
  }
  over = lowest(over, &first);
  if (over != ~0u && threadIdx.x == 0 && !k.failure) {
    fail_round(k, over_capacity, over / e.experts_a_rank, over, all.totals[over]);
  }
#else
  for (uint32_t rank = threadIdx.x; rank < ranks; rank += blockDim.x) {
    uint32_t rows = 0;
    for (uint32_t i = rank * e.experts_a_rank; i < (rank + 1) * e.experts_a_rank && i < e.experts; ++i) rows += padded(e, all.totals[i]);
    if (rows > e.capacity && rank < over) over = rank;
  }
  over = lowest(over, &first);
  if (over != ~0u && threadIdx.x == 0 && !k.failure) {
    uint32_t rows = 0;
    for (uint32_t i = over * e.experts_a_rank; i < (over + 1) * e.experts_a_rank && i < e.experts; ++i) rows += padded(e, all.totals[i]);
    fail_round(k, over_capacity, over, e.experts, rows);
  }
#endif
  __syncthreads();
#endif
}

}  // namespace moe
