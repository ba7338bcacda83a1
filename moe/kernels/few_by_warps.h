/* Receiving the fewest tokens, all of whose routing each warp hears by itself: it works out places by
 * registers. */
namespace moe {
namespace few {

#if MOE_LAYOUT != 1

/* By a warp: the row of number `k` of a token's experts, which is this rank's: an expert's rows come in the
 * order in which it is named. */
__device__ inline uint32_t row_of(const exchange &e, const rushmem::team &t, const hearing &h, uint32_t at, const chosen &c, uint32_t k) {
  const uint32_t id = __shfl_sync(all_lanes, c.id, static_cast<int>(k)), local = id - static_cast<uint32_t>(t.my_pe()) * e.experts_a_rank;
  uint32_t before = 0;
#pragma unroll
  for (uint32_t j = 0; j < 4; ++j) before += 4 * lane_of() + j < 4 * id_words(e) * at + k && id_at(h.ids, j) == id ? 1 : 0;
  return within(e, local, local * e.capacity + added(before));
}

/* By a warp: how often an expert, a lane's, is named at all. */
__device__ inline uint32_t named(const exchange &e, const rushmem::team &t, const hearing &h, uint32_t id) {
  uint32_t n = 0;
#pragma unroll 4
  for (uint32_t word = 0; word < static_cast<uint32_t>(t.n_pes()) * source_words(e); ++word) {
    const uint64_t four = __shfl_sync(all_lanes, static_cast<unsigned long long>(h.ids), static_cast<int>(word));
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) n += id_at(four, j) == id ? 1 : 0;
  }
  return n;
}

/* By a warp that has found experts beyond their capacity, those of lanes `over`, from local expert `base` on:
 * tells of the first, if it is this rank's first. */
__device__ __noinline__ void tell_over(const exchange &e, const rushmem::team &t, hearing h, uint64_t round, uint32_t base,
                                       uint32_t over, uint32_t n) {
  const uint32_t me = static_cast<uint32_t>(t.my_pe()), first = me * e.experts_a_rank;
  for (uint32_t i = 0; i < base; i += lanes) {
    if (__any_sync(all_lanes, named(e, t, h, first + i + lane_of()) > e.capacity)) return;
  }
  if (lane_of() == lowest_bit(over)) tell_failure(e, round, over_capacity, me, first + base + lane_of(), n);
}

/* By a warp: what is wrong, as all ranks find it. */
__device__ __noinline__ void refuse(const exchange &e, hearing h, uint64_t round) {
  const bool many = h.tokens > e.max_tokens;
  bool bad = false;
  for (uint32_t j = 0; j < 4; ++j) bad |= id_at(h.ids, j) == unheard;
  const uint32_t any_many = __ballot_sync(all_lanes, many), any_bad = __ballot_sync(all_lanes, bad);
  if (lane_of() != lowest_bit(any_many ? any_many : any_bad)) return;
  const uint32_t source = lane_of() / source_words(e), token = (lane_of() - source * source_words(e)) / id_words(e);
  if (any_many) note_failure(e, round, too_many_tokens, source, 0, h.tokens);
  else note_failure(e, round, no_such_expert, source, token, 0);
}

/* By the clerk's warps: how many tokens each expert has, or what is wrong. */
__device__ inline void keep_books(const exchange &e, const rushmem::team &t, const received &r, const hearing &h, uint64_t round) {
  if (h.failed && warp_of() == 0) refuse(e, h, round);
  const uint32_t first = static_cast<uint32_t>(t.my_pe()) * e.experts_a_rank;
#pragma unroll 1
  for (uint32_t base = warp_of() * lanes; base < e.experts_a_rank; base += MOE_THREADS) {
    const uint32_t i = base + lane_of();
    uint32_t n = h.failed ? 0 : named(e, t, h, first + i);
    if (i >= e.experts_a_rank) n = 0;
    if (i < e.experts_a_rank && r.counts) r.counts[i] = static_cast<int32_t>(n < e.capacity ? n : e.capacity);
    const uint32_t over = __ballot_sync(all_lanes, n > e.capacity);
    if (over != 0) tell_over(e, t, h, round, base, over, n);
  }
}

/* What can be known before the routing is worked out before. */
template <bool whole>
__device__ inline void receive_by_warps(const exchange &e, const rushmem::team &t, const received &r, uint64_t round, kept_parts kept,
                                        taking next, passage &through) {
  const uint32_t rows = static_cast<uint32_t>(t.n_pes()) * e.max_tokens, lane = lane_of();
  at_hand now{};
  now.b = nothing_beside(e);
  advance<whole>(e, t, round, now, kept, next);
  uint32_t told = from_middle();
  __syncthreads();
  count_received<whole>(e, round);
  if (now.at >= rows && told >= rows && !is_clerk()) return;
  if (told < rows) want_weights(e, t, round, told, now.b);
  targets to = targets_of(e, r, now.part);
  hearing h = hear(e, t, round, rows, true, now.b);
#pragma unroll 1
  while (now.at < rows && !h.failed) {
    const chosen c = chosen_of(e, t, h, now.at);
    if (c.ours != 0) {
      const three words = words_of(now, round, through);
      store_part(c.ours, [&](uint32_t k) { return row_of(e, t, h, now.at, c, k); }, to, words, scale_of(now));
    }
    advance<whole>(e, t, round, now, kept, next);
    to = targets_of(e, r, now.part);
  }
#pragma unroll 1
  while (told < rows) {
    const uint32_t source = told / e.max_tokens;
    const bool there = told - source * e.max_tokens < tokens_of(e, h, source);
    const float weight = weight_beside(e, round, now.b, there && !h.failed);
    chosen c = chosen_of(e, t, h, told);
#pragma unroll 1
    for (uint32_t left = c.ours; left != 0; left &= left - 1) {
      const uint32_t row = row_of(e, t, h, told, c, lowest_bit(left));
      if (lane == lowest_bit(left)) c.row = row;
    }
    tell(e, t, r, c, there, told, weight, h.failed);
    told += slots();
    if (told < rows) want_weights(e, t, round, told, now.b);
  }
  if (is_clerk()) keep_books(e, t, r, h, round);
}

#endif

}  // namespace few
}  // namespace moe
