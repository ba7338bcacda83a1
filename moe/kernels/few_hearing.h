/* Routing that a warp hears by itself, beside the row that it takes, so that no block meets, and no shared memory
 * is between a packet and what is done because of it:
 *   - all of it, where all tokens' experts are no more words than a warp has lanes (few_by_warps.h);
 *   - a token's, and each rank's count, in the rank-major layout (few_rank_major.h). */
namespace moe {
namespace few {

/* Else blocks do (few_routing.h). */
__device__ inline bool hears_by_warps(const exchange &e, const rushmem::team &t) {
  return MOE_LAYOUT == 1 || static_cast<uint32_t>(t.n_pes()) * e.max_tokens * id_words(e) <= lanes;
}

/* Packets that a warp waits for beside the routing, which a lane may lack: of a part of a row and of its
 * scales, and two weights of a token. All have addresses that can be read. */
struct beside {
  const slim_packet *row[2];
  const packet *weights;
  bool lacks[2], lacks_weights;
  three values[2];
  uint64_t two;
};

/* Of none. */
__device__ inline beside nothing_beside(const exchange &e) {
  beside b{};
  b.row[0] = b.row[1] = reinterpret_cast<const slim_packet *>(e.routing);
  b.weights = e.routing;
  return b;
}
/* And of a token's weights, if it has any. */
__device__ inline void want_weights(const exchange &e, const rushmem::team &t, uint64_t round, uint32_t at, beside &b) {
  const uint32_t source = at / e.max_tokens, token = at - source * e.max_tokens;
  if (!e.weighted || lane_of() >= e.top_k || is_absent(e, source)) return;
  b.weights = routing_of(e, static_cast<uint32_t>(t.n_pes()), round & 1, source) + 1 + token * e.routing_words + id_words(e) + lane_of() / 2;
  b.lacks_weights = true;
}
/* The weight of a lane's expert; `there`: the token exists. */
__device__ inline float weight_beside(const exchange &e, uint64_t round, beside &b, bool there) {
  if (there && b.lacks_weights) b.two = rushmem::wait_packed(b.weights, round);
  return e.weighted ? __uint_as_float(static_cast<uint32_t>(lane_of() % 2 ? b.two >> 32 : b.two)) : 1;
}

/* What a warp hears: a lane a word of experts, and how many tokens a source has. In the rank-major layout they
 * are words of one token, and the counts of sources by lanes; else all words, and of each its source's count. */
struct hearing {
  uint64_t ids, tokens;
  bool failed;
};
__device__ inline uint32_t source_words(const exchange &e) { return e.max_tokens * id_words(e); }
/* By a warp. */
__device__ inline uint32_t tokens_of(const exchange &e, const hearing &h, uint32_t source) {
  const uint32_t n = h.tokens > e.max_tokens ? 0 : static_cast<uint32_t>(h.tokens);
  return __shfl_sync(all_lanes, n, static_cast<int>(MOE_LAYOUT == 1 ? source : source * source_words(e)));
}

/* By a warp: in the rank-major layout of token `at` of all sources, if there is one of this number.
 * `rows_beside`: it asks for its part of a row, too. */
__device__ inline hearing hear(const exchange &e, const rushmem::team &t, uint64_t round, uint32_t at, bool rows_beside, beside &b) {
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), words = id_words(e), lane = lane_of();
#if MOE_LAYOUT == 1
  const bool is_token = at < ranks * e.max_tokens;
  const uint32_t source = is_token ? at / e.max_tokens : 0, token = at - source * e.max_tokens, word = lane, whose = lane;
  bool has = !is_token || lane >= words || is_absent(e, source), known = lane >= ranks || is_absent(e, lane);
#else
  const uint32_t source = lane / source_words(e), in_source = lane - source * source_words(e), whose = source;
  const uint32_t token = in_source / words, word = in_source - token * words;
  bool has = source >= ranks || is_absent(e, source), known = has;
#endif
  const packet *count_at = known ? e.routing : routing_of(e, ranks, round & 1, whose);
  const packet *slot = has ? e.routing : routing_of(e, ranks, round & 1, source) + 1 + token * e.routing_words + word;
  hearing h{~uint64_t(0), 0, false};
  /* Whether the token exists, as far as the lane knows its source. */
  const auto exists = [&] {
    const uint32_t n = h.tokens > e.max_tokens ? 0 : static_cast<uint32_t>(h.tokens);
    return token < (MOE_LAYOUT == 1 ? __shfl_sync(all_lanes, n, static_cast<int>(source)) : n);
  };
#pragma unroll 1
  for (uint32_t i = 0; i < polls; ++i) {
    /* Loads without a question in between: what a lane has, or lacks not, it asks for again. */
    uint64_t ids, tokens, two;
    three values[2];
    const bool ids_come = rushmem::test_packed(slot, round, &ids), count_comes = rushmem::test_packed(count_at, round, &tokens);
    const bool weights_come = rushmem::test_packed(b.weights, round, &two);
    bool row_comes = false, scales_come = false;
    if (rows_beside) {
      row_comes = rushmem::test_packed(b.row[0], static_cast<uint32_t>(round), values[0].w);
      scales_come = rushmem::test_packed(b.row[1], static_cast<uint32_t>(round), values[1].w);
    }
    if (!has && ids_come) h.ids = ids, has = true;
    if (!known && count_comes) h.tokens = tokens, known = true;
    if (b.lacks[0] && row_comes) b.values[0] = values[0], b.lacks[0] = false;
    if (b.lacks[1] && scales_come) b.values[1] = values[1], b.lacks[1] = false;
    if (b.lacks_weights && weights_come) b.two = two, b.lacks_weights = false;
    const bool wanted = exists();
    if (__all_sync(all_lanes, known && (has || !wanted))) break;
  }
  if (!known) h.tokens = rushmem::wait_packed(count_at, round);
  if (exists() && !has) h.ids = rushmem::wait_packed(slot, round);
  bool bad = h.tokens > e.max_tokens;
#pragma unroll
  for (uint32_t j = 0; MOE_LAYOUT != 1 && j < 4; ++j) bad |= id_at(h.ids, j) == unheard;
  h.failed = __any_sync(all_lanes, bad);
  return h;
}

/* By a warp: of token `at`; rows are not known yet. */
__device__ inline chosen chosen_of(const exchange &e, const rushmem::team &t, const hearing &h, uint32_t at) {
  const uint32_t lane = lane_of(), first = static_cast<uint32_t>(t.my_pe()) * e.experts_a_rank;
  const uint32_t begin = MOE_LAYOUT == 1 ? 0 : at * id_words(e);
  const uint64_t four = __shfl_sync(all_lanes, static_cast<unsigned long long>(h.ids), static_cast<int>((begin + lane / 4) % lanes));
  chosen c{nowhere, 0, at};
  if (lane < e.top_k) c.id = id_at(four, lane % 4);
  c.ours = __ballot_sync(all_lanes, c.id < unheard && c.id - first < e.experts_a_rank);
  return c;
}

}  // namespace few
}  // namespace moe
