/* The receiver's part of dispatch, of few tokens. */
namespace moe {
namespace few {

/* Number `at` of the tokens of other ranks, among those of all; past them where there is none. */
__device__ inline uint32_t others_token(const exchange &e, const rushmem::team &t, uint32_t at) {
  return at < static_cast<uint32_t>(t.my_pe()) * e.max_tokens ? at : at + e.max_tokens;
}

/* A part of a row that a warp takes, and where it comes. Where this rank keeps its own (`keeps`), only
 * others' come. */
struct taking {
  uint32_t item, at, part; /* of all items; the row's token, of all sources' */
  const slim_packet *packets;
};
__device__ inline taking aim(const exchange &e, const rushmem::team &t, uint64_t round, uint32_t item,
                             bool keeps) {
  const uint32_t parts = parts_of_row(e), number = item / parts, part = item - number * parts;
  const uint32_t at = keeps ? others_token(e, t, number) : number, source = at / e.max_tokens;
  const slim_packet *row = packets_of_row(e, static_cast<uint32_t>(t.n_pes()), round & 1, source, at - source * e.max_tokens);
  return {item, at, part, row + part * part_packets};
}

/* Where a word of a lane's goes: this far into each of the rows that want it, or, where null, nowhere. */
struct target {
  unsigned char *begin;
  uint32_t row_bytes;
  __device__ unsigned char *in_row(uint32_t row) const { return begin + uint64_t(row) * row_bytes; }
};
__device__ inline target target_of(const exchange &e, const received &r, uint32_t word) {
  const uint32_t data_words = e.data_bytes / 4;
  if (word < data_words) return {r.x + size_t(word) * 4, e.data_bytes};
  const bool beside = !MOE_CAST && r.side && word < data_words + e.side_bytes / 4;
  return {beside ? r.side + size_t(word - data_words) * 4 : nullptr, e.side_bytes};
}

/* Where a lane's words of a part go, and its scale. */
struct targets {
  target words[3];
  target scale;
};
__device__ inline targets targets_of(const exchange &e, const received &r, uint32_t part) {
  const uint32_t lane = lane_of();
  targets to;
#pragma unroll
  for (uint32_t i = 0; i < 3; ++i) to.words[i] = target_of(e, r, part * part_words + i * lanes + lane);
  const uint32_t group = 3 * part + lane;
  const bool scaled = MOE_CAST && r.side && lane < 3 && group < groups_of(e);
  to.scale = {scaled ? r.side + group * scale_bytes : nullptr, e.side_bytes};
  return to;
}

/* By a warp: a part of a row that it has, with its scales, to every place that wants it. */
__device__ inline void store_part(passage &through, const chosen &c, const targets &to, const three &v,
                                  uint32_t scale) {
  const three words = across(through, v);
  uint32_t left = c.ours;
#pragma unroll 1
  do {
    const uint32_t row = __shfl_sync(all_lanes, c.row, static_cast<int>(lowest_bit(left)));
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) {
      if (to.words[i].begin) store4(to.words[i].in_row(row), words.w[i]);
    }
    if (to.scale.begin && scale_bytes == 1) *to.scale.in_row(row) = static_cast<unsigned char>(scale);
    else if (to.scale.begin) store4(to.scale.in_row(row), scale);
    left &= left - 1;
  } while (MOE_LAYOUT != 1 && left != 0);
}

/* The same of a part that the warp has sent, and kept. */
__device__ inline void store_kept(const exchange &e, const rushmem::team &t, const received &r,
                                  const routes &all, passage &through, const kept_part &kept) {
  if (kept.at == not_kept) return;
  const chosen c = chosen_of(e, t, all, kept.at);
  if (c.ours != 0) store_part(through, c, targets_of(e, r, kept.part), kept.v, kept.scale);
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
  store_part(through, c, to, values[0], scale);
}

/* By a warp: the weight of a lane's expert of a token; of none that does not come. */
__device__ inline float weight_of(const exchange &e, const rushmem::team &t, uint64_t round, uint32_t at) {
  const uint32_t lane = lane_of(), source = at / e.max_tokens;
  uint64_t two = 0;
  if (lane < e.top_k) two = hear(e, t, round, source, at - source * e.max_tokens, id_words(e) + lane / 2, false).value;
  __syncwarp();
  return __uint_as_float(static_cast<uint32_t>(lane % 2 ? two >> 32 : two));
}

/* By a warp: what else is said of a token, and what combine will know of it. */
__device__ inline void tell(const exchange &e, const rushmem::team &t, const received &r, const routes &all, uint32_t at, float weight,
                            bool failed) {
  const uint32_t lane = lane_of(), ranks = static_cast<uint32_t>(t.n_pes()), me = static_cast<uint32_t>(t.my_pe());
  const uint32_t source = at / e.max_tokens, token = at - source * e.max_tokens;
  if (failed) {
    if (MOE_LAYOUT == 1 && r.experts && lane < e.top_k) r.experts[size_t(at) * e.top_k + lane] = -1;
    return;
  }
  const chosen mine = chosen_of(e, t, all, at);
  const bool here = mine.ours >> lane & 1;
#if MOE_LAYOUT == 1
  const int32_t local = here ? static_cast<int32_t>(mine.id - me * e.experts_a_rank) : -1;
  if (lane < e.top_k && r.experts) r.experts[size_t(at) * e.top_k + lane] = local;
  if (lane < e.top_k && token < all.counts[source] && r.weights && e.weighted) r.weights[size_t(at) * e.top_k + lane] = weight;
#endif
  const choice c = choice_among(e, mine.id, weight);
  const uint32_t below = (1u << lane) - 1, place = __popc(mine.ours & below);
  const uint32_t terms = MOE_LAYOUT == 1 ? (mine.ours != 0 ? 1 : 0) : __popc(mine.ours);
  uint64_t *record = record_of(e, at);
  if (here && place < terms) {
    if (r.sources) r.sources[mine.row] = static_cast<int32_t>(at);
    record[1 + place] = static_cast<uint64_t>(__float_as_uint(weight)) << 32 | mine.row;
  }
  const uint32_t units = before_rank(e, c, me).units;
  if (c.rank == me && c.first) record[0] = static_cast<uint64_t>(units) << 32 | (c.narrow ? is_narrow : 0) | terms;
  if (lane == 0 && terms == 0) record[0] = 0;
  if (source != me) return;
  uint64_t *home = home_record_of(e, ranks, token);
  const before b = before_rank(e, c, c.rank);
  if (c.first) home[1 + b.ranks] = static_cast<uint64_t>(__float_as_uint(weight)) << 32 | (c.narrow ? is_narrow : 0) | b.units;
  const uint32_t firsts = __ballot_sync(all_lanes, c.first);
  if (lane == 0) home[0] = __popc(firsts) | (token < all.counts[me] ? exists : 0);
}

/* `whole`: the launch has sent, too, and the warp has `kept` parts. */
template <bool whole>
__device__ inline void receive_all(const exchange &e, const rushmem::team &t, const received &r,
                                   uint64_t round, const routes &all, const kept_parts &kept) {
  __shared__ passage of_warps[warps];
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), rows = ranks * e.max_tokens;
  const bool keeps = whole && keeps_parts(e, parts_of_row(e));
  /* What it will take first it knows when it has to. */
  taking next = aim(e, t, round, from_front(), keeps);
  /* A warp's first token to tell of, whose weights it hears meanwhile. */
  uint32_t told = from_middle();
  float weight = 1;
  if (e.weighted && told < rows) weight = weight_of(e, t, round, told);
  const bool failed = learn(e, t, round, all);
  /* Behind the block's meeting: all its threads have read their word. By the last threads, as the first have
   * rows. */
  for (uint32_t i = blockIdx.x + (blockDim.x - 1 - threadIdx.x) * gridDim.x; i < e.words; i += blockDim.x * gridDim.x) {
    if (whole) e.sent[i] = round;
    e.received[i] = round;
  }
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
    tell(e, t, r, all, told, weight, failed);
    told += slots();
    if (e.weighted && told < rows) weight = weight_of(e, t, round, told);
  }
  if (!is_clerk()) return;
  if (failed && threadIdx.x == 0) refuse(e, round, ranks, all);
#if MOE_LAYOUT == 1
  if (!r.counts) return;
  for (uint32_t i = threadIdx.x; i < ranks; i += blockDim.x) r.counts[i] = failed ? 0 : static_cast<int32_t>(all.counts[i]);
#else
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
#endif
}

}  // namespace few
}  // namespace moe
