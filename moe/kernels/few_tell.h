/* What a receiver of few tokens leaves besides rows: of each token, and that it has received. */
namespace moe {
namespace few {

/* By a warp: what else is said of a token, and what combine will know of it. `there`: its source has it. */
__device__ inline void tell(const exchange &e, const rushmem::team &t, const received &r, const chosen &mine, bool there, uint32_t at,
                            float weight, bool failed) {
  const uint32_t lane = lane_of(), ranks = static_cast<uint32_t>(t.n_pes()), me = static_cast<uint32_t>(t.my_pe());
  const uint32_t source = at / e.max_tokens, token = at - source * e.max_tokens;
  if (failed) {
    if (MOE_LAYOUT == 1 && r.experts && lane < e.top_k) r.experts[size_t(at) * e.top_k + lane] = -1;
    return;
  }
  const bool here = mine.ours >> lane & 1;
#if MOE_LAYOUT == 1
  const int32_t local = here ? static_cast<int32_t>(mine.id - me * e.experts_a_rank) : -1;
  if (lane < e.top_k && r.experts) r.experts[size_t(at) * e.top_k + lane] = local;
  if (lane < e.top_k && there && r.weights && e.weighted) r.weights[size_t(at) * e.top_k + lane] = weight;
#endif
  const choice c = choice_among(e, mine.id, weight);
  const uint32_t below = (1u << lane) - 1, place = __popc(mine.ours & below);
  const uint32_t terms = MOE_LAYOUT == 1 ? (mine.ours != 0 ? 1 : 0) : __popc(mine.ours);
  uint64_t *record = record_of(e, at);
  if (here && place < terms) {
    if (r.sources) r.sources[mine.row] = static_cast<int32_t>(at);
    record[1 + place] = static_cast<uint64_t>(__float_as_uint(weight)) << 32 | mine.row;
  }
  /* Units and ranks before those of a lane's rank: of two ranks with experts of the token, or a few. */
  const uint32_t firsts = __ballot_sync(all_lanes, c.first);
  before b{0, 0};
#pragma unroll 1
  for (uint32_t left = firsts; left != 0; left &= left - 1) {
    const uint32_t theirs = __shfl_sync(all_lanes, c.units, static_cast<int>(lowest_bit(left)));
    const uint32_t of = __shfl_sync(all_lanes, c.rank, static_cast<int>(lowest_bit(left)));
    b.units += of < c.rank ? theirs : 0;
    b.ranks += of < c.rank ? 1 : 0;
  }
  if (c.rank == me && c.first) record[0] = static_cast<uint64_t>(b.units) << 32 | (c.narrow ? is_narrow : 0) | terms;
  if (lane == 0 && terms == 0) record[0] = 0;
  if (source != me) return;
  uint64_t *home = home_record_of(e, ranks, token);
  if (c.first) home[1 + b.ranks] = static_cast<uint64_t>(__float_as_uint(weight)) << 32 | (c.narrow ? is_narrow : 0) | b.units;
  if (lane == 0) home[0] = __popc(firsts) | (there ? exists : 0);
}

/* By each block, behind a meeting: all its threads have read their word. By the last threads, as the first
 * have rows. */
template <bool whole> __device__ inline void count_received(const exchange &e, uint64_t round) {
  for (uint32_t i = blockIdx.x + (blockDim.x - 1 - threadIdx.x) * gridDim.x; i < e.words; i += blockDim.x * gridDim.x) {
    if (whole) e.sent[i] = round;
    e.received[i] = round;
  }
}

}  // namespace few
}  // namespace moe
