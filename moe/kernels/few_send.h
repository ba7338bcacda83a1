/* The sender's part of dispatch, of few tokens. */
namespace moe {
namespace few {

/* A row's parts: 12 bytes of it for each lane, and, where it is cast, a packet of its scales. */
constexpr uint32_t part_words = 3 * lanes, part_packets = MOE_CAST ? lanes + 1 : lanes;
constexpr uint32_t cast_columns = 4 * part_words;
__device__ inline uint32_t parts_of_row(const exchange &e) {
  if (MOE_CAST) return (e.hidden + cast_columns - 1) / cast_columns;
  return ((e.data_bytes + e.side_bytes) / 4 + part_words - 1) / part_words;
}
__device__ inline slim_packet *packets_of_row(const exchange &e, uint32_t ranks, uint32_t set, uint32_t source, uint32_t token) {
  return reinterpret_cast<slim_packet *>(e.row_packets) + (size_t(set * ranks + source) * e.few + token) * e.row_words;
}

/* The same of a part that goes as a packed row. */
__device__ inline rushmem::packed_row *packed_part(const exchange &e, uint32_t ranks, uint32_t set, uint32_t source, uint32_t token, uint32_t part) {
  return reinterpret_cast<rushmem::packed_row *>(packets_of_row(e, ranks, set, source, token)) + part;
}

/* One of a token's experts, a lane each. */
__device__ inline uint32_t id_of(const exchange &e, const tokens &in, uint32_t token) {
  return lane_of() < e.top_k ? expert_of(e, in, size_t(token) * e.top_k + lane_of()) : nowhere;
}

/* By a warp: a token's routing, to all ranks. Lanes put their numbers together. */
__device__ inline void send_ids(const exchange &e, const rushmem::team &t, const tokens &in, uint32_t token) {
  const uint32_t lane = lane_of(), ranks = static_cast<uint32_t>(t.n_pes());
  float weight = 0;
  if (e.weighted && lane < e.top_k) weight = in.weights[size_t(token) * e.top_k + lane];
  const uint64_t round = next_round(e.sent);
  const uint32_t id = id_of(e, in, token);
  const uint32_t two = id | __shfl_down_sync(all_lanes, id, 1) << 16;
  const uint64_t four = two | static_cast<uint64_t>(__shfl_down_sync(all_lanes, two, 2)) << 32;
  const uint32_t bits = __float_as_uint(weight);
  const uint64_t weights = bits | static_cast<uint64_t>(__shfl_down_sync(all_lanes, bits, 1)) << 32;
  const bool has = lane < e.top_k, has_ids = has && lane % 4 == 0, has_weights = has && lane % 2 == 0 && e.weighted;
  packet *slots = routing_of(e, ranks, round & 1, static_cast<uint32_t>(t.my_pe())) + 1 + size_t(token) * e.routing_words;
#pragma unroll 1
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    if (is_absent(e, rank)) continue;
    packet *to = there(t, slots, rank);
    if (has_ids) rushmem::store_packed(to + lane / 4, four, round);
    if (has_weights) rushmem::store_packed(to + id_words(e) + lane / 2, weights, round);
  }
}

#if MOE_CAST

/* What a lane has of a part: 12 columns of 384. */
struct twelve {
  uint64_t w[3];
};
__device__ inline twelve load_part(const exchange &e, const tokens &in, uint32_t token, uint32_t part) {
  const uint32_t first = part * cast_columns + 12 * lane_of();
  const unsigned char *x = in.x + (size_t(token) * e.hidden + first) * 2;
  twelve raw;
#pragma unroll
  for (uint32_t i = 0; i < 3; ++i) raw.w[i] = first + 4 * i < e.hidden ? load8(x + 8 * i) : 0;
  return raw;
}

/* What it sends of that. Fours of columns lie in one of the three groups each. `scales` are those of the
 * part. */
__device__ inline three cast_part(const twelve &raw, three &scales) {
  float v[3][4];
  uint32_t most[3] = {0, 0, 0};
#pragma unroll
  for (uint32_t i = 0; i < 3; ++i) {
    float of_four = 0;
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) {
      v[i][j] = from_bf16(static_cast<uint32_t>(raw.w[i] >> (16 * j)) & 0xffff);
      of_four = fmaxf(of_four, fabsf(v[i][j]));
    }
    const uint32_t group = (3 * lane_of() + i) / lanes, bits = __float_as_uint(of_four);
#pragma unroll
    for (uint32_t g = 0; g < 3; ++g) {
      if (g == group && bits > most[g]) most[g] = bits;
    }
  }
  /* Bits of floats that are not negative have their order. */
#pragma unroll
  for (uint32_t g = 0; g < 3; ++g) most[g] = largest(most[g]);
  /* A lane for each group. */
  const scaling own = scaling_of(__uint_as_float(lane_of() == 0 ? most[0] : lane_of() == 1 ? most[1] : most[2]));
  three out;
#pragma unroll
  for (uint32_t i = 0; i < 3; ++i) {
    const float by = __shfl_sync(all_lanes, own.by, static_cast<int>((3 * lane_of() + i) / lanes));
    scales.w[i] = __shfl_sync(all_lanes, own.scale, static_cast<int>(i));
    out.w[i] = to_fp8_pair(__fmul_rn(v[i][0], by), __fmul_rn(v[i][1], by)) | to_fp8_pair(__fmul_rn(v[i][2], by), __fmul_rn(v[i][3], by)) << 16;
  }
  return out;
}

#else

__device__ inline three load_part(const exchange &e, const tokens &in, uint32_t token, uint32_t part) {
  const uint32_t data_words = e.data_bytes / 4, all_words = data_words + e.side_bytes / 4;
  three v;
#pragma unroll
  for (uint32_t i = 0; i < 3; ++i) {
    const uint32_t word = part * part_words + 3 * lane_of() + i;
    v.w[i] = 0;
    if (word < data_words) v.w[i] = load4(in.x + size_t(token) * e.data_bytes + size_t(word) * 4);
    else if (word < all_words) v.w[i] = load4(in.side + size_t(token) * e.side_bytes + size_t(word - data_words) * 4);
  }
  return v;
}

#endif

/* By a warp: a part of a row, to the ranks of its experts, but not to this one where the warp keeps it
 * (`keeps`). Its loads go out before those of the experts, as what follows these branches, and waits for
 * them. */
__device__ inline kept_part send_part(const exchange &e, const rushmem::team &t, const tokens &in,
                                      uint32_t token, uint32_t part, bool keeps) {
  const auto raw = load_part(e, in, token, part);
  const uint64_t round = next_round(e.sent);
  const uint32_t id = id_of(e, in, token);
#if MOE_CAST
  three scales;
  const three v = cast_part(raw, scales);
  const uint32_t scale = word_of_lane(scales);
#else
  const three v = raw;
  constexpr uint32_t scale = 0;
#endif
  const uint32_t me = static_cast<uint32_t>(t.my_pe());
  uint32_t to = united(id < unheard ? 1u << rank_of(e, id) : 0);
  keeps = keeps && (to >> me & 1);
  if (keeps) to &= ~(1u << me);
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes());
  slim_packet *slots = packets_of_row(e, ranks, round & 1, me, token) + part * part_packets;
#pragma unroll 1
  for (; to != 0; to &= to - 1) {
    if (sends_packed_rows(t)) {
      rushmem::store_packed_row(there(t, packed_part(e, ranks, round & 1, me, token, part), lowest_bit(to)), to_row(v, scale), round);
      continue;
    }
    slim_packet *mapped = there(t, slots, lowest_bit(to));
    rushmem::store_packed(mapped + lane_of(), v.w, static_cast<uint32_t>(round));
#if MOE_CAST
    if (lane_of() == 0) rushmem::store_packed(mapped + lanes, scales.w, static_cast<uint32_t>(round));
#endif
  }
  return {v, scale, keeps ? me * e.max_tokens + token : not_kept, part};
}

/* By a warp, before its rank's count goes out, in two rounds of 2^31: makes what is in packets a recent
 * round's. Else, what has lain in one for 2^32 rounds would be taken for this round's. They are the packets
 * that nobody writes before he has that count: rows of the next round, and sums. */
__device__ __noinline__ void renew(const exchange &e, uint32_t ranks, uint64_t round) {
  const uint32_t rows = ranks * e.few * e.row_words, set = static_cast<uint32_t>(round + 1) & 1;
  const uint32_t sums = e.few_back * e.units * unit_packets(e), nothing[3] = {0, 0, 0};
  slim_packet *row = reinterpret_cast<slim_packet *>(e.row_packets) + size_t(set) * rows;
  slim_packet *sum = reinterpret_cast<slim_packet *>(e.result_packets);
  for (uint32_t i = lane_of(); i < rows; i += lanes) rushmem::store_packed(row + i, nothing, static_cast<uint32_t>(round) - 2);
  for (uint32_t i = lane_of(); i < sums; i += lanes) rushmem::store_packed(sum + i, nothing, static_cast<uint32_t>(round) - 2);
  __syncwarp();
  __threadfence_system();
}

/* By a warp: how many tokens this rank has, to all ranks. */
__device__ inline void send_count(const exchange &e, const rushmem::team &t, uint64_t said) {
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes());
  const uint64_t round = next_round(e.sent);
  if ((static_cast<uint32_t>(round) & 0x7fffffffu) < 2) renew(e, ranks, round);
  packet *slot = routing_of(e, ranks, round & 1, static_cast<uint32_t>(t.my_pe()));
#pragma unroll 1
  for (uint32_t rank = lane_of(); rank < ranks; rank += lanes) {
    if (!is_absent(e, rank)) rushmem::store_packed(there(t, slot, rank), said, round);
  }
}

/* `whole`: the launch receives, too. Returns what the warp keeps. */
template <bool whole>
__device__ inline kept_parts send_all(const exchange &e, const rushmem::team &t, const tokens &in) {
  const uint64_t said = in.count_at ? *in.count_at : in.count;
  const uint32_t n = said > e.max_tokens ? 0 : static_cast<uint32_t>(said), parts = parts_of_row(e);
  const bool keeps = whole && keeps_parts(e, parts);
  kept_parts kept{};
#pragma unroll 1
  for (uint32_t item = from_back(); item <= e.max_tokens * (1 + parts); item += slots()) {
    if (item == 0) {
      send_count(e, t, said);
    } else if (item <= e.max_tokens) {
      if (item <= n) send_ids(e, t, in, item - 1);
    } else {
      const uint32_t rest = item - e.max_tokens - 1, token = rest / parts;
      if (token >= n) continue;
      const kept_part one = send_part(e, t, in, token, rest - token * parts, keeps);
      if (item < slots()) kept.first = one;
      else kept.second = one;
    }
  }
  return kept;
}

}  // namespace few
}  // namespace moe
