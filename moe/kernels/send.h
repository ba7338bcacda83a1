/* The sender's part of dispatch: a token's routing to all ranks, and its row to those that have one of its
 * experts. A warp has a token, or a part of it. The cast to fp8 is fused: a row is read once, and written as
 * often as there are such ranks. */
namespace moe {

/* One token, as the lanes of a warp have it while they send it. */
struct outgoing {
  alignas(8) uint16_t experts[most_top_k + 4]; /* padded with `nowhere` to whole words */
  int pe[most_top_k];               /* the ranks that get the row, as PEs of the world */
  unsigned char *to[most_top_k];    /* where the row is to be, mapped; null where the PE is far */
  uint32_t ranks, any_far;
};

/* The number of an expert as it travels. */
__device__ inline uint32_t expert_of(const exchange &e, const tokens &in, size_t at) {
  const int64_t id = e.wide ? static_cast<const int64_t *>(in.experts)[at] : static_cast<const int32_t *>(in.experts)[at];
  if (id < 0) return nowhere;
  if (id >= int64_t(e.experts)) return unheard;
  return is_absent(e, rank_of(e, static_cast<uint32_t>(id))) ? nowhere : static_cast<uint32_t>(id);
}

/* Where token `token` goes; but for `left_out`, a rank that finds its rows otherwise. */
__device__ inline void address(const exchange &e, const rushmem::team &t, const tokens &in, uint32_t set, uint32_t token,
                               uint32_t left_out, outgoing &out) {
  const uint32_t lane = lane_of(), me = static_cast<uint32_t>(t.my_pe());
  uint32_t id = nowhere;
  if (lane < e.top_k) id = expert_of(e, in, size_t(token) * e.top_k + lane);
  const uint32_t rank = id < unheard ? rank_of(e, id) : ~0u;
  const uint32_t alike = __match_any_sync(all_lanes, rank), below = (1u << lane) - 1;
  const bool first = rank != ~0u && rank != left_out && (alike & below) == 0;
  const uint32_t firsts = __ballot_sync(all_lanes, first);
  bool far = false;
  if (first) {
    const uint32_t place = __popc(firsts & below);
    const int pe = t.world_pe(static_cast<int>(rank));
    unsigned char *row = e.rows + row_index(e, static_cast<uint32_t>(t.n_pes()), set, me, token) * e.row_bytes;
    out.pe[place] = pe;
    out.to[place] = rushmem::ptr(row, pe);
    far = out.to[place] == nullptr;
  }
  out.experts[lane] = static_cast<uint16_t>(id);
  if (lane < 4) out.experts[lanes + lane] = nowhere;
  const uint32_t any = __ballot_sync(all_lanes, far);
  if (lane == 0) {
    out.ranks = __popc(firsts);
    out.any_far = any;
  }
  __syncwarp();
}

/* Two weights, as packet `word` of a token's routing has them. */
__device__ inline uint64_t weights_of(const exchange &e, const tokens &in, uint32_t token, uint32_t word) {
  const uint32_t k = 2 * (word - id_words(e));
  const float *weights = in.weights + size_t(token) * e.top_k;
  const uint64_t first = __float_as_uint(weights[k]);
  return k + 1 < e.top_k ? first | static_cast<uint64_t>(__float_as_uint(weights[k + 1])) << 32 : first;
}

/* The weights that this lane sends first, read before it is known where to. */
__device__ inline uint64_t weights_ahead(const exchange &e, const rushmem::team &t, const tokens &in, uint32_t token) {
  const uint32_t each = e.routing_words, word = lane_of() % each;
  return lane_of() < each * static_cast<uint32_t>(t.n_pes()) && word >= id_words(e) ? weights_of(e, in, token, word) : 0;
}

__device__ inline void send_routing(const exchange &e, const rushmem::team &t, const tokens &in, uint64_t round, uint32_t token,
                                    const outgoing &out, uint64_t ahead) {
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), me = static_cast<uint32_t>(t.my_pe()), each = e.routing_words;
  packet *slots = routing_of(e, ranks, round & 1, me) + 1 + size_t(token) * each;
  for (uint32_t i = lane_of(); i < ranks * each; i += lanes) {
    const uint32_t rank = i / each, word = i - rank * each;
    if (is_absent(e, rank)) continue;
    uint64_t value = ahead;
    if (word < id_words(e)) value = *reinterpret_cast<const uint64_t *>(out.experts + 4 * word);
    else if (i >= lanes) value = weights_of(e, in, token, word);
    rushmem::put_packed(slots + word, value, round, t.world_pe(static_cast<int>(rank)));
  }
}

/* The largest of `n` lanes side by side, a power of two. All lanes of the warp call it. */
__device__ inline float largest_among(float most, int n) {
  for (int apart = n / 2; apart > 0; apart /= 2) most = fmaxf(most, __shfl_xor_sync(all_lanes, most, apart));
  return most;
}

constexpr uint32_t group_octets = group_columns / 8;
__device__ inline uint32_t groups_of(const exchange &e) { return (e.hidden + group_columns - 1) / group_columns; }

/* 16 bytes of a token; zeros past its end. */
__device__ inline uint4 quad_of(const unsigned char *x, uint32_t at, uint32_t end) {
  return at < end ? load16(x + size_t(at) * 16) : make_uint4(0, 0, 0, 0);
}

/* ---- a row as packets ---- */

__device__ inline void to_all(const outgoing &out, packet *slot, uint64_t value, uint64_t round) {
  for (uint32_t i = 0; i < out.ranks; ++i) rushmem::put_packed(slot, value, round, out.pe[i]);
}

/* What this lane sends first of a part, read before it is known where to. */
__device__ inline uint4 read_ahead(const exchange &e, const tokens &in, uint32_t token, uint32_t part, uint32_t parts) {
#if MOE_CAST
  const uint32_t octet = part_of(groups_of(e), part, parts).begin * group_octets + lane_of();
  return quad_of(in.x + size_t(token) * e.hidden * 2, octet, e.hidden / 8);
#else
  const uint32_t quad = part_of(e.data_bytes / 16, part, parts).begin + lane_of();
  return quad_of(in.x + size_t(token) * e.data_bytes, quad, e.data_bytes / 16);
#endif
}

/* Part `part` of a row: of groups of columns in a cast, of 16 bytes otherwise. */
__device__ inline void send_packets(const exchange &e, const rushmem::team &t, const tokens &in, uint64_t round, uint32_t token,
                                    uint32_t part, uint32_t parts, const outgoing &out, uint4 ahead) {
  packet *slots = packets_of(e, static_cast<uint32_t>(t.n_pes()), round & 1, static_cast<uint32_t>(t.my_pe()), token);
  const uint32_t data_words = e.data_bytes / 8;
#if MOE_CAST
  const unsigned char *x = in.x + size_t(token) * e.hidden * 2;
  const range groups = part_of(groups_of(e), part, parts);
  const uint32_t end = groups.end * group_octets;
  for (uint32_t base = groups.begin * group_octets; base < end; base += lanes) {
    const uint32_t octet = base + lane_of();
    const bool has = octet < end;
    const eight v = eight_of_bf16(has ? ahead : make_uint4(0, 0, 0, 0));
    ahead = quad_of(x, octet + lanes, e.hidden / 8);
    const scaling s = scaling_of(largest_among(largest_of(v), group_octets));
    if (has && octet < data_words) to_all(out, slots + octet, fp8_of(v, s.by), round);
    if (has && octet % group_octets == 0) to_all(out, slots + data_words + octet / group_octets, s.scale, round);
  }
#else
  const range data = part_of(e.data_bytes / 16, part, parts), side = part_of(e.side_bytes / 8, part, parts);
  const unsigned char *x = in.x + size_t(token) * e.data_bytes, *beside = in.side + size_t(token) * e.side_bytes;
  for (uint32_t i = data.begin + lane_of(); i < data.end; i += lanes) {
    to_all(out, slots + 2 * i, static_cast<uint64_t>(ahead.y) << 32 | ahead.x, round);
    to_all(out, slots + 2 * i + 1, static_cast<uint64_t>(ahead.w) << 32 | ahead.z, round);
    ahead = quad_of(x, i + lanes, e.data_bytes / 16);
  }
  for (uint32_t w = side.begin + lane_of(); w < side.end; w += lanes) {
    to_all(out, slots + data_words + w, load8(beside + size_t(w) * 8), round);
  }
#endif
}

/* ---- a row as it will be read ---- */

/* Stores at `to`, or, where that is null, at all ranks that map the row. */
template <typename Store> __device__ inline void each_copy(const outgoing &out, unsigned char *to, const Store &store) {
  if (to) return store(to);
  for (uint32_t i = 0; i < out.ranks; ++i) {
    if (out.to[i]) store(out.to[i]);
  }
}

/* Loads of a lane that are in flight together. */
constexpr uint32_t held = 4;

__device__ inline void store_row(const exchange &e, const tokens &in, uint32_t token, uint32_t part, uint32_t parts,
                                 const outgoing &out, unsigned char *to) {
#if MOE_CAST
  const unsigned char *x = in.x + size_t(token) * e.hidden * 2;
  const range groups = part_of(groups_of(e), part, parts);
  /* A lane has 16 columns, eight lanes a group. */
  const uint32_t end = groups.end * 8;
  for (uint32_t base = groups.begin * 8; base < end; base += held * lanes) {
    uint4 low[held], high[held];
#pragma unroll
    for (uint32_t i = 0; i < held; ++i) {
      const uint32_t at = base + i * lanes + lane_of();
      low[i] = quad_of(x, 2 * at, at < end ? e.hidden / 8 : 0);
      high[i] = quad_of(x, 2 * at + 1, at < end ? e.hidden / 8 : 0);
    }
#pragma unroll
    for (uint32_t i = 0; i < held; ++i) {
      const uint32_t at = base + i * lanes + lane_of();
      if (base + i * lanes >= end) break;
      const eight first = eight_of_bf16(low[i]), second = eight_of_bf16(high[i]);
      const scaling s = scaling_of(largest_among(fmaxf(largest_of(first), largest_of(second)), 8));
      if (at >= end) continue;
      const uint64_t a = fp8_of(first, s.by), b = fp8_of(second, s.by);
      const uint4 both = make_uint4(static_cast<uint32_t>(a), static_cast<uint32_t>(a >> 32), static_cast<uint32_t>(b),
                                    static_cast<uint32_t>(b >> 32));
      each_copy(out, to, [&](unsigned char *row) {
        if (at * 16 < e.hidden) store16(row + size_t(at) * 16, both);
        unsigned char *scales = row + e.data_bytes;
        if (at % 8 != 0) return;
        if (MOE_SCALES == 1) scales[at / 8] = static_cast<unsigned char>(s.scale);
        else store4(scales + size_t(at / 8) * 4, s.scale);
      });
    }
  }
#else
  const unsigned char *x = in.x + size_t(token) * e.data_bytes, *beside = in.side + size_t(token) * e.side_bytes;
  const range data = part_of(e.data_bytes / 16, part, parts), side = part_of(e.side_bytes / 16, part, parts);
  for (uint32_t base = data.begin + lane_of(); base < data.end; base += held * lanes) {
    uint4 v[held];
#pragma unroll
    for (uint32_t i = 0; i < held; ++i) v[i] = quad_of(x, base + i * lanes, data.end);
#pragma unroll
    for (uint32_t i = 0; i < held; ++i) {
      const uint32_t at = base + i * lanes;
      if (at < data.end) each_copy(out, to, [&](unsigned char *row) { store16(row + size_t(at) * 16, v[i]); });
    }
  }
  for (uint32_t i = side.begin + lane_of(); i < side.end; i += lanes) {
    const uint4 v = load16(beside + size_t(i) * 16);
    each_copy(out, to, [&](unsigned char *row) { store16(row + e.data_bytes + size_t(i) * 16, v); });
  }
#endif
}

/* To ranks that are far, whole, from a composed copy. Out of line: the near path need not have its
 * registers. */
__device__ __noinline__ void send_far(const exchange &e, const tokens &in, uint64_t round, uint32_t token, size_t at,
                                      const outgoing &out) {
  unsigned char *row = e.rows + at * e.row_bytes, *composed = scratch_of(e);
  store_row(e, in, token, 0, 1, out, composed);
  __syncwarp();
  for (uint32_t i = 0; i < out.ranks; ++i) {
    if (out.to[i]) continue;
    rushmem::put_signal<rushmem::warp>(as_quads(row), as_quads(composed), e.row_bytes / 16, e.row_flags + at * e.parts, round,
                                       rushmem::signal::set, out.pe[i]);
  }
}

/* A part of the row and its flag. The lanes meet before the flags, which one lane for each rank stores with
 * release: that is cumulative, so it covers what the other lanes stored. */
__device__ inline void send_row(const exchange &e, const rushmem::team &t, const tokens &in, uint64_t round, uint32_t token,
                                uint32_t part, uint32_t parts, const outgoing &out) {
  const size_t at = row_index(e, static_cast<uint32_t>(t.n_pes()), round & 1, static_cast<uint32_t>(t.my_pe()), token);
  store_row(e, in, token, part, parts, out, nullptr);
  __syncwarp();
  const uint32_t lane = lane_of();
  if (lane < out.ranks && out.to[lane]) announce(e.rows + at * e.row_bytes, e.row_flags + at * e.parts + part, round, out.pe[lane]);
  if (out.any_far) send_far(e, in, round, token, at, out);
}

}  // namespace moe
