/* The receiver's part of dispatch, of few tokens: by blocks, each of which learns all routing, where warps do not
 * hear it by themselves. */
namespace moe {
namespace few {

#if MOE_LAYOUT != 1

/* The same of a part that the warp has sent, and kept. */
__device__ inline void store_kept(const exchange &e, const rushmem::team &t, const received &r,
                                  const routes &all, passage &through, const kept_part &kept) {
  if (kept.at == not_kept) return;
  const chosen c = chosen_of(e, t, all, kept.at);
  if (c.ours != 0) store_part(c, targets_of(e, r, kept.part), across(through, kept.v), kept.scale);
}

/* By a warp: a part of a row that comes, to every place that wants it. */
__device__ inline void take_part(const exchange &e, const rushmem::team &t, const received &r, uint32_t tag, const routes &all,
                                 passage &through, const taking &now) {
  const uint32_t lane = lane_of();
  const slim_packet *const slots[2] = {now.packets + lane, now.packets + lanes};
  three values[2];
  bool wanted[2] = {true, MOE_CAST && lane < 3};
  /* Asked for before it is known whether they come. */
#pragma unroll
  for (uint32_t j = 0; j < 2; ++j) wanted[j] = wanted[j] && !rushmem::test_packed(slots[j], tag, values[j].w);
  const chosen c = chosen_of(e, t, all, now.at);
  if (c.ours == 0) return;
  const targets to = targets_of(e, r, now.part);
  await(slots, wanted, values, tag);
#if MOE_CAST
  const uint32_t scale = word_of_lane(values[1]);
#else
  constexpr uint32_t scale = 0;
#endif
  store_part(c, to, across(through, values[0]), scale);
}

/* By a warp: the weight of a lane's expert of a token; of none that does not come. */
__device__ inline float weight_of(const exchange &e, const rushmem::team &t, uint64_t round, uint32_t at) {
  const uint32_t lane = lane_of(), source = at / e.max_tokens;
  uint64_t two = 0;
  if (lane < e.top_k) two = hear(e, t, round, source, at - source * e.max_tokens, id_words(e) + lane / 2, false).value;
  __syncwarp();
  return __uint_as_float(static_cast<uint32_t>(lane % 2 ? two >> 32 : two));
}

template <bool whole>
__device__ inline void receive_by_blocks(const exchange &e, const rushmem::team &t, const received &r, uint64_t round, const routes &all,
                                         const kept_parts &kept, taking next, passage *of_warps) {
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), rows = ranks * e.max_tokens;
  const bool keeps = whole && keeps_parts(e, parts_of_row(e));
  /* A warp's first token to tell of, whose weights it hears meanwhile. */
  uint32_t told = from_middle();
  float weight = 1;
  if (e.weighted && told < rows) weight = weight_of(e, t, round, told);
  const bool failed = learn(e, t, round, all);
  count_received<whole>(e, round);
  if (keeps && !failed) {
    store_kept(e, t, r, all, of_warps[warp_of()], kept.first);
    store_kept(e, t, r, all, of_warps[warp_of()], kept.second);
  }
#pragma unroll 1
  while (next.at < rows && !failed) {
    take_part(e, t, r, static_cast<uint32_t>(round), all, of_warps[warp_of()], next);
    next = aim(e, t, round, next.item + slots(), keeps);
  }
#pragma unroll 1
  while (told < rows) {
    const uint32_t source = told / e.max_tokens;
    tell(e, t, r, chosen_of(e, t, all, told), told - source * e.max_tokens < all.counts[source], told, weight, failed);
    told += slots();
    if (e.weighted && told < rows) weight = weight_of(e, t, round, told);
  }
  if (!is_clerk()) return;
  if (failed && threadIdx.x == 0) refuse(e, round, ranks, all);
  const uint32_t me = static_cast<uint32_t>(t.my_pe()), first = me * e.experts_a_rank;
  for (uint32_t i = threadIdx.x; i < e.experts_a_rank; i += blockDim.x) {
    uint32_t n = 0;
    if (!failed) n = *all.twice ? named(all.ids, rows * id_words(e), first + i) : before_token(e, all, i, rows);
    if (r.counts) r.counts[i] = static_cast<int32_t>(n < e.capacity ? n : e.capacity);
  }
  /* By one thread: words of two failures must not mix. */
  for (uint32_t i = 0; *all.twice && !failed && threadIdx.x == 0 && i < e.experts_a_rank; ++i) {
    const uint32_t n = named(all.ids, rows * id_words(e), first + i);
    if (n > e.capacity) return tell_failure(e, round, over_capacity, me, first + i, n);
  }
}

#endif

/* `whole`: the launch has sent, too, and the warp has `kept` parts. */
template <bool whole>
__device__ inline void receive_all(const exchange &e, const rushmem::team &t, const received &r,
                                   uint64_t round, const routes &all, const kept_parts &kept) {
  __shared__ passage of_warps[warps];
  /* What a warp will take first it knows when it has to. */
  const taking next = aim(e, t, round, from_front(), whole && keeps_parts(e, parts_of_row(e)));
#if MOE_LAYOUT == 1
  receive_rank_major<whole>(e, t, r, round, kept, next, of_warps[warp_of()]);
#else
  if (hears_by_warps(e, t)) receive_by_warps<whole>(e, t, r, round, kept, next, of_warps[warp_of()]);
  else receive_by_blocks<whole>(e, t, r, round, all, kept, next, of_warps);
#endif
}

}  // namespace few
}  // namespace moe
