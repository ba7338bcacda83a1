/* Parts of rows, of few tokens: which of them a warp takes, and where they go. */
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
  return {item, at, part, row + part * (sends_packed_rows(t) ? lanes : part_packets)};
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

/* Places whose stores a warp has under way without a question in between. */
constexpr uint32_t places_at_once = MOE_LAYOUT == 1 ? 1 : 4;

/* By a warp: a part of a row, as words of lanes side by side, with its scales, to every place that wants it:
 * `row_of` says the row of each of the token's experts of `left`. */
template <typename RowOf>
__device__ inline void store_part(uint32_t left, const RowOf &row_of, const targets &to, const three &words, uint32_t scale) {
#pragma unroll 1
  do {
    uint32_t rows[places_at_once], n = 0;
#pragma unroll
    for (uint32_t j = 0; j < places_at_once; ++j) {
      n += left != 0 ? 1 : 0;
      rows[j] = row_of(lowest_bit(left) % lanes);
      left &= left - 1;
    }
#pragma unroll
    for (uint32_t j = 0; j < places_at_once; ++j) {
      if (j >= n) break;
#pragma unroll
      for (uint32_t i = 0; i < 3; ++i) {
        if (to.words[i].begin) store4(to.words[i].in_row(rows[j]), words.w[i]);
      }
      if (to.scale.begin && scale_bytes == 1) *to.scale.in_row(rows[j]) = static_cast<unsigned char>(scale);
      else if (to.scale.begin) store4(to.scale.in_row(rows[j]), scale);
    }
  } while (MOE_LAYOUT != 1 && left != 0);
}
/* To places that lanes know. */
__device__ inline void store_part(const chosen &c, const targets &to, const three &words, uint32_t scale) {
  store_part(c.ours, [&](uint32_t k) { return __shfl_sync(all_lanes, c.row, static_cast<int>(k)); }, to, words, scale);
}

}  // namespace few
}  // namespace moe
