/* Receiving few tokens in the rank-major layout, where a row's place does not depend on others' routing: a warp
 * hears the experts of the token that it works for, and each rank's count, which also says whether that rank's
 * tokens name an expert that there is not. */
namespace moe {
namespace few {

#if MOE_LAYOUT == 1

/* By a warp that has heard of all ranks: what is wrong, as all ranks find it. */
__device__ __noinline__ void refuse(const exchange &e, hearing h, uint64_t round) {
  const bool bad = (h.tokens & has_unheard) != 0, many = h.tokens > e.max_tokens && !bad;
  const uint32_t any_many = __ballot_sync(all_lanes, many), any_bad = __ballot_sync(all_lanes, bad);
  if (lane_of() != lowest_bit(any_many ? any_many : any_bad)) return;
  if (any_many) note_failure(e, round, too_many_tokens, lane_of(), 0, h.tokens);
  else note_failure(e, round, no_such_expert, lane_of(), h.tokens & ~has_unheard, 0);
}

/* Tokens of all ranks up to which a warp asks for its first part of a row beside the routing. With more of them
 * rows come long after it, and asking holds up others. */
constexpr uint32_t most_rows_beside = 32;

/* Tokens are told of before rows are waited for, as their packets come before. */
template <bool whole>
__device__ inline void receive_rank_major(const exchange &e, const rushmem::team &t, const received &r, uint64_t round, kept_parts kept,
                                          taking next, passage &through) {
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), rows = ranks * e.max_tokens, lane = lane_of();
  at_hand now{};
  now.b = nothing_beside(e);
  advance<whole>(e, t, round, now, kept, next);
#pragma unroll 1
  for (uint32_t told = from_middle(); told < rows; told += slots()) {
    beside b = nothing_beside(e);
    want_weights(e, t, round, told, b);
    const hearing h = hear(e, t, round, told, false, b);
    const uint32_t source = told / e.max_tokens;
    const bool there = told - source * e.max_tokens < tokens_of(e, h, source);
    const float weight = weight_beside(e, round, b, there && !h.failed);
    tell(e, t, r, chosen_of(e, t, h, told), there, told, weight, h.failed);
  }
  targets to = targets_of(e, r, now.part);
  bool rows_beside = rows <= most_rows_beside;
#pragma unroll 1
  while (now.at < rows) {
    const hearing h = hear(e, t, round, now.kept ? rows : now.at, rows_beside, now.b);
    if (h.failed) break;
    rows_beside = true;
    if (now.kept || chosen_of(e, t, h, now.at).ours != 0) {
      const three words = words_of(now, round, through);
      store_part(1, [&](uint32_t) { return now.at; }, to, words, scale_of(now));
    }
    advance<whole>(e, t, round, now, kept, next);
    to = targets_of(e, r, now.part);
  }
  if (is_clerk() && warp_of() == 0) {
    beside none = nothing_beside(e);
    const hearing h = hear(e, t, round, rows, false, none);
    if (h.failed) refuse(e, h, round);
    if (r.counts && lane < ranks) r.counts[lane] = h.failed ? 0 : static_cast<int32_t>(h.tokens);
  }
  /* Only here: a warp would wait for those of its block that send more than it does. */
  __syncthreads();
  count_received<whole>(e, round);
}

#endif

}  // namespace few
}  // namespace moe
