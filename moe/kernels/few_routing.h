/* The routing of a round of few tokens, as each block of a receiver learns it where that is more than a warp
 * hears by itself (few_hearing.h). */
namespace moe {
namespace few {

/* What a block knows of a round, in shared memory: the experts of all tokens, in words of four, by sources;
 * for each of this rank's experts a bit for each token that names it, 32 tokens a word; and how many tokens
 * each source has. */
struct routes {
  uint64_t *ids;
  uint32_t *bits; /* [words of bits][local experts] */
  uint32_t *counts;
  uint32_t *twice; /* whether a token names an expert twice: then bits do not say how often */
};
__device__ inline uint32_t bit_words(uint32_t rows) { return MOE_LAYOUT == 1 ? 0 : (rows + 31) / 32; }

/* By the block, before it touches any memory but its own. */
__device__ inline routes prepare(const exchange &e, const rushmem::team &t, unsigned char *shared) {
  __shared__ uint32_t counts[most_few_ranks], twice;
  const uint32_t rows = static_cast<uint32_t>(t.n_pes()) * e.max_tokens;
  uint64_t *ids = reinterpret_cast<uint64_t *>(shared);
  const routes all{ids, reinterpret_cast<uint32_t *>(ids + rows * id_words(e)), counts, &twice};
  if (hears_by_warps(e, t)) return all;
#pragma unroll 1
  for (uint32_t i = threadIdx.x; i < bit_words(rows) * e.experts_a_rank; i += blockDim.x) all.bits[i] = 0;
  if (threadIdx.x == 0) twice = 0;
  __syncthreads();
  return all;
}

/* A packet of a token's routing, once it has come or is known not to come: ~0 then. Its load and that of the
 * source's count are under way together; `count`: it is wanted in any case. */
struct heard {
  uint64_t value, tokens; /* of the source; unknown where the packet has come without */
  bool has, known;
};
__device__ inline heard hear(const exchange &e, const rushmem::team &t, uint64_t round, uint32_t source, uint32_t token, uint32_t word,
                              bool count) {
  heard h{~uint64_t(0), 0, false, false};
  if (is_absent(e, source)) return h;
  const packet *count_at = routing_of(e, static_cast<uint32_t>(t.n_pes()), round & 1, source);
  const packet *slot = count_at + 1 + token * e.routing_words + word;
#pragma unroll 1
  for (uint32_t i = 0; i < polls; ++i) {
    h.has = rushmem::test_packed(slot, round, &h.value);
    h.known = rushmem::test_packed(count_at, round, &h.tokens);
    if (h.known ? h.has || token >= h.tokens || h.tokens > e.max_tokens : h.has && !count) return h;
  }
  h.tokens = rushmem::wait_packed(count_at, round);
  h.known = true;
  if (!h.has && h.tokens <= e.max_tokens && token < h.tokens) h.value = rushmem::wait_packed(slot, round);
  return h;
}

/* Whether one of the block's threads has found that the round cannot be. */
__device__ inline bool learn(const exchange &e, const rushmem::team &t, uint64_t round, const routes &all) {
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), me = static_cast<uint32_t>(t.my_pe()), words = id_words(e);
  const uint32_t each = e.max_tokens * words;
  bool bad = false;
#pragma unroll 1
  for (uint32_t i = threadIdx.x; i < ranks * each; i += blockDim.x) {
    const uint32_t source = i / each, at = i - source * each, token = at / words;
    const heard h = hear(e, t, round, source, token, at - token * words, at == 0);
    all.ids[i] = h.value;
    const bool too = h.known && h.tokens > e.max_tokens;
    if (at == 0) all.counts[source] = too ? too_many : static_cast<uint32_t>(h.tokens);
    bad |= too;
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) {
      const uint32_t id = id_at(h.value, j), local = id - me * e.experts_a_rank;
      bad |= id == unheard;
      if (MOE_LAYOUT == 1 || id >= unheard || local >= e.experts_a_rank) continue;
      const uint32_t row = source * e.max_tokens + token, bit = 1u << (row % 32);
      if (atomicOr(all.bits + row / 32 * e.experts_a_rank + local, bit) & bit) atomicOr(all.twice, 1u);
    }
  }
  return __syncthreads_or(bad) != 0;
}

/* By one thread: what is wrong, as all ranks find it. */
__device__ __noinline__ void refuse(const exchange &e, uint64_t round, uint32_t ranks, const routes &all) {
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    if (all.counts[rank] == too_many) {
      return note_failure(e, round, too_many_tokens, rank, 0, routing_of(e, ranks, round & 1, rank)->value);
    }
  }
  const uint32_t words = id_words(e);
  for (uint32_t i = 0; i < ranks * e.max_tokens * words; ++i) {
    for (uint32_t j = 0; j < 4; ++j) {
      if (id_at(all.ids[i], j) != unheard) continue;
      const uint32_t at = i / words;
      return note_failure(e, round, no_such_expert, at / e.max_tokens, at % e.max_tokens, 0);
    }
  }
}

/* How often the first `words` words name an expert, seen by a lane. */
__device__ __noinline__ uint32_t named(const uint64_t *ids, uint32_t words, uint32_t id) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < words; ++i) {
    for (uint32_t j = 0; j < 4; ++j) n += id_at(ids[i], j) == id ? 1 : 0;
  }
  return n;
}

/* How many tokens before number `at` name a local expert. */
__device__ inline uint32_t before_token(const exchange &e, const routes &all, uint32_t local, uint32_t at) {
  const uint32_t *bits = all.bits + local;
  uint32_t n = 0;
#pragma unroll 1
  for (uint32_t i = 0; i < at / 32; ++i) n += __popc(bits[i * e.experts_a_rank]);
  return at % 32 == 0 ? n : n + __popc(bits[at / 32 * e.experts_a_rank] & ((1u << (at % 32)) - 1));
}

/* Of token `at`. */
__device__ inline chosen chosen_of(const exchange &e, const rushmem::team &t, const routes &all, uint32_t at) {
  const uint32_t lane = lane_of(), words = id_words(e), first = static_cast<uint32_t>(t.my_pe()) * e.experts_a_rank;
  chosen c{nowhere, 0, at};
  if (lane < e.top_k) c.id = id_at(all.ids[at * words + lane / 4], lane % 4);
  const uint32_t local = c.id - first;
  const bool here = c.id < unheard && local < e.experts_a_rank;
  c.ours = __ballot_sync(all_lanes, here);
#if MOE_LAYOUT != 1
  if (here) c.row = local * e.capacity + before_token(e, all, local, at);
  if (*all.twice) {
    /* An expert that a token names twice has it twice. */
    c.row = local * e.capacity + __popc(__match_any_sync(all_lanes, c.id) & ((1u << lane) - 1));
    if (here) c.row = within(e, local, c.row + named(all.ids, at * words, c.id));
    __syncwarp();
  }
#endif
  return c;
}

}  // namespace few
}  // namespace moe
