/* The routing of a round, as each block of a receiver learns it: how many tokens each source has, and their
 * experts; and what is wrong with it. All ranks learn the same.
 *
 * MOE_LAYOUT: 0 expert-major, 1 rank-major, 2 flat. */
#ifndef MOE_LAYOUT
#define MOE_LAYOUT 0
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

/* Dynamic shared memory: the experts of all tokens, in words of four; then for each expert of this rank
 * the row of its next token, counted up to the row at hand; then how many tokens each of all experts has. */
struct table {
  uint64_t *ids;
  uint32_t *before, *totals;
};
__device__ inline table table_of(const exchange &e, const rushmem::team &t, unsigned char *shared) {
  const size_t ids = size_t(t.n_pes()) * e.max_tokens * id_words(e);
  uint64_t *words = reinterpret_cast<uint64_t *>(shared);
  uint32_t *before = reinterpret_cast<uint32_t *>(words + ids);
  return {words, before, before + e.experts_a_rank};
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

/* How many tokens each source has, and their experts. Both are waited for at once, as the loads of a wait
 * take as long as the link: a thread polls a word that may never come, until its source's count says so. */
__device__ inline void learn_routing(const exchange &e, const rushmem::team &t, uint64_t round, known &k, const table &all) {
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), words = id_words(e), set = round & 1;
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
  for (uint32_t i = threadIdx.x; i < ranks * each; i += blockDim.x) {
    const uint32_t source = ranks == 1 ? 0 : i / each, at = i - source * each, token = words == 1 ? at : at / words;
    const packet *slot = routing_of(e, ranks, set, source) + 1 + size_t(token) * e.routing_words + (at - token * words);
    uint64_t four = 0;
    bool has = rushmem::test_packed(slot, round, &four);
    while (!has) {
      const uint32_t n = counts[source];
      if (n == unknown) {
        has = rushmem::test_packed(slot, round, &four);
        continue;
      }
      if (n == too_many || token >= n) break;
      four = rushmem::wait_packed(slot, round);
      has = true;
    }
    if (has) keep_word(k, all.ids + i, four, i / words);
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

/* Counts the tokens of every expert, on all ranks alike, and looks for errors. Where no expert can have too
 * many, one block alone counts. */
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
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), words = id_words(e);
  const bool can_fail = MOE_LAYOUT == 2 || e.capacity < ranks * e.max_tokens;
  if (!can_fail && !is_clerk()) return;
  for (uint32_t i = threadIdx.x; i < e.experts; i += blockDim.x) all.totals[i] = 0;
  __syncthreads();
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const uint64_t *ids = ids_of(e, all, {rank, 0});
    for (uint32_t i = threadIdx.x; i < (k.start[rank + 1] - k.start[rank]) * words; i += blockDim.x) {
      const uint64_t four = ids[i];
      for (uint32_t j = 0; j < 4; ++j) {
        if (id_at(four, j) < unheard) atomicAdd(all.totals + id_at(four, j), 1u);
      }
    }
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
