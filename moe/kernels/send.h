/* The sender's part of dispatch: a token's routing to all ranks, and its row to those that have one of its
 * experts. The cast to fp8 is fused: a row is read once, and written as often as there are such ranks. */
namespace moe {

/* One token, as the threads of a block have it while they send it. */
struct outgoing {
  uint16_t experts[most_top_k + 4]; /* padded with `nowhere` to whole words */
  int pe[most_top_k];               /* the ranks that get the row, as PEs of the world */
  uint32_t rank[most_top_k];
  uint32_t ranks;
  unsigned char *to[most_top_k];    /* where the row is to be, mapped; null where the PE is far */
  uint32_t any_far;
};

/* The number of an expert as it travels. */
__device__ inline uint32_t expert_of(const exchange &e, const tokens &in, size_t at) {
  const int64_t id = e.wide ? static_cast<const int64_t *>(in.experts)[at] : static_cast<const int32_t *>(in.experts)[at];
  if (id < 0) return nowhere;
  if (id >= int64_t(e.experts)) return unheard;
  return is_absent(e, static_cast<uint32_t>(id) / e.experts_a_rank) ? nowhere : static_cast<uint32_t>(id);
}

/* By the first warp: where token `token` goes. */
__device__ inline void address(const exchange &e, const rushmem::team &t, const tokens &in, uint32_t set, uint32_t token,
                               outgoing &out) {
  const uint32_t lane = threadIdx.x, me = static_cast<uint32_t>(t.my_pe());
  uint32_t id = nowhere;
  if (lane < e.top_k) id = expert_of(e, in, size_t(token) * e.top_k + lane);
  const uint32_t rank = id < unheard ? id / e.experts_a_rank : ~0u;
  const uint32_t alike = __match_any_sync(0xffffffffu, rank);
  const bool first = rank != ~0u && (alike & ((1u << lane) - 1)) == 0;
  const uint32_t firsts = __ballot_sync(0xffffffffu, first);
  bool far = false;
  if (first) {
    const uint32_t place = __popc(firsts & ((1u << lane) - 1));
    const int pe = t.world_pe(static_cast<int>(rank));
    unsigned char *row = e.rows + row_index(e, static_cast<uint32_t>(t.n_pes()), set, me, token) * e.row_bytes;
    out.pe[place] = pe;
    out.rank[place] = rank;
    out.to[place] = rushmem::ptr(row, pe);
    far = out.to[place] == nullptr;
  }
  out.experts[lane] = static_cast<uint16_t>(id);
  if (lane < 4) out.experts[32 + lane] = nowhere;
  const uint32_t any = __ballot_sync(0xffffffffu, far);
  if (lane == 0) {
    out.ranks = __popc(firsts);
    out.any_far = any;
  }
}

__device__ inline void send_routing(const exchange &e, const rushmem::team &t, const tokens &in, uint64_t round, uint32_t token,
                                    const outgoing &out) {
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), me = static_cast<uint32_t>(t.my_pe()), each = e.routing_words;
  packet *slots = routing_of(e, ranks, round & 1, me) + 1 + size_t(token) * each;
  for (uint32_t i = threadIdx.x; i < ranks * each; i += blockDim.x) {
    const uint32_t rank = i / each, word = i - rank * each;
    if (is_absent(e, rank)) continue;
    uint64_t value = 0;
    if (word < id_words(e)) {
      for (int j = 3; j >= 0; --j) value = value << 16 | out.experts[4 * word + j];
    } else {
      const uint32_t k = 2 * (word - id_words(e));
      const float *weights = in.weights + size_t(token) * e.top_k;
      value = __float_as_uint(weights[k]);
      if (k + 1 < e.top_k) value |= static_cast<uint64_t>(__float_as_uint(weights[k + 1])) << 32;
    }
    rushmem::put_packed(slots + word, value, round, t.world_pe(static_cast<int>(rank)));
  }
}

/* Eight columns of a token of bf16; zeros past its end. */
__device__ inline eight columns_of(const exchange &e, const unsigned char *x, uint32_t octet) {
  return octet * 8 < e.hidden ? eight_of_bf16(load16(x + size_t(octet) * 16)) : eight{};
}

/* The largest of `lanes` lanes side by side, a power of two. All lanes of the warp call it. */
__device__ inline float largest_among(float most, int lanes) {
  for (int apart = lanes / 2; apart > 0; apart /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, apart));
  return most;
}

/* ---- a row as packets ---- */

__device__ inline void to_all(const outgoing &out, packet *slot, uint64_t value, uint64_t round) {
  for (uint32_t i = 0; i < out.ranks; ++i) rushmem::put_packed(slot, value, round, out.pe[i]);
}

/* What this thread sends first of a chunk, read before it is known where to. */
struct ahead {
#if MOE_CAST
  eight columns;
#else
  uint64_t word;
#endif
};
__device__ inline ahead read_ahead(const exchange &e, const tokens &in, uint32_t token, uint32_t chunk, uint32_t chunks) {
  ahead a{};
#if MOE_CAST
  const range groups = part_of((e.hidden + group_columns - 1) / group_columns, chunk, chunks);
  const uint32_t octet = groups.begin * 16 + threadIdx.x;
  if (octet < groups.end * 16) a.columns = columns_of(e, in.x + size_t(token) * e.hidden * 2, octet);
#else
  const range data = part_of(e.data_bytes / 8, chunk, chunks);
  const uint32_t w = data.begin + threadIdx.x;
  if (w < data.end) a.word = load8(in.x + size_t(token) * e.data_bytes + size_t(w) * 8);
#endif
  return a;
}

/* Chunk `chunk` of a row. Its parts are groups of columns in a cast, words of 8 bytes otherwise. */
__device__ inline void send_packets(const exchange &e, const rushmem::team &t, const tokens &in, uint64_t round, uint32_t token,
                                    uint32_t chunk, uint32_t chunks, const outgoing &out, const ahead &first) {
  packet *slots = packets_of(e, static_cast<uint32_t>(t.n_pes()), round & 1, static_cast<uint32_t>(t.my_pe()), token);
  const uint32_t data_words = e.data_bytes / 8;
#if MOE_CAST
  const unsigned char *x = in.x + size_t(token) * e.hidden * 2;
  const range groups = part_of((e.hidden + group_columns - 1) / group_columns, chunk, chunks);
  const uint32_t end = groups.end * 16;
  for (uint32_t base = groups.begin * 16; base < end; base += blockDim.x) {
    const uint32_t octet = base + threadIdx.x;
    eight v = first.columns;
    if (base != groups.begin * 16) v = octet < end ? columns_of(e, x, octet) : eight{};
    const scaling s = scaling_of(largest_among(largest_of(v), 16));
    if (octet < end && octet < data_words) to_all(out, slots + octet, fp8_of(v, s.by), round);
    if (octet < end && octet % 16 == 0) to_all(out, slots + data_words + octet / 16, s.scale, round);
  }
#else
  const range data = part_of(data_words, chunk, chunks), side = part_of(e.side_bytes / 8, chunk, chunks);
  const unsigned char *x = in.x + size_t(token) * e.data_bytes, *beside = in.side + size_t(token) * e.side_bytes;
  for (uint32_t w = data.begin + threadIdx.x; w < data.end; w += blockDim.x) {
    to_all(out, slots + w, w - data.begin < blockDim.x ? first.word : load8(x + size_t(w) * 8), round);
  }
  for (uint32_t w = side.begin + threadIdx.x; w < side.end; w += blockDim.x) {
    to_all(out, slots + data_words + w, load8(beside + size_t(w) * 8), round);
  }
#endif
}

/* ---- a row as it will be read ---- */

/* Stores it at `to`, or, where that is null, at all ranks that map it. */
template <typename Store> __device__ inline void each_copy(const outgoing &out, unsigned char *to, const Store &store) {
  if (to) return store(to);
  for (uint32_t i = 0; i < out.ranks; ++i) {
    if (out.to[i]) store(out.to[i]);
  }
}

__device__ inline void store_row(const exchange &e, const tokens &in, uint32_t token, const outgoing &out, unsigned char *to) {
#if MOE_CAST
  const unsigned char *x = in.x + size_t(token) * e.hidden * 2;
  const uint32_t end = (e.hidden + group_columns - 1) / group_columns * 8;
  for (uint32_t base = 0; base < end; base += blockDim.x) {
    const uint32_t part = base + threadIdx.x;
    const eight low = part < end ? columns_of(e, x, 2 * part) : eight{};
    const eight high = part < end ? columns_of(e, x, 2 * part + 1) : eight{};
    const scaling s = scaling_of(largest_among(fmaxf(largest_of(low), largest_of(high)), 8));
    if (part >= end) continue;
    const uint64_t a = fp8_of(low, s.by), b = fp8_of(high, s.by);
    const uint4 both = make_uint4(static_cast<uint32_t>(a), static_cast<uint32_t>(a >> 32), static_cast<uint32_t>(b),
                                  static_cast<uint32_t>(b >> 32));
    each_copy(out, to, [&](unsigned char *row) {
      if (part * 16 < e.hidden) store16(row + size_t(part) * 16, both);
      unsigned char *scales = row + e.data_bytes;
      if (part % 8 != 0) return;
      if (MOE_SCALES == 1) scales[part / 8] = static_cast<unsigned char>(s.scale);
      else store4(scales + size_t(part / 8) * 4, s.scale);
    });
  }
#else
  const unsigned char *x = in.x + size_t(token) * e.data_bytes, *beside = in.side + size_t(token) * e.side_bytes;
  for (uint32_t i = threadIdx.x; i < e.data_bytes / 16; i += blockDim.x) {
    const uint4 v = load16(x + size_t(i) * 16);
    each_copy(out, to, [&](unsigned char *row) { store16(row + size_t(i) * 16, v); });
  }
  for (uint32_t i = threadIdx.x; i < e.side_bytes / 16; i += blockDim.x) {
    const uint4 v = load16(beside + size_t(i) * 16);
    each_copy(out, to, [&](unsigned char *row) { store16(row + e.data_bytes + size_t(i) * 16, v); });
  }
#endif
}

/* To ranks that are far, from a composed copy. Out of line: the near path need not have its registers. */
__device__ __noinline__ void send_far(const exchange &e, const tokens &in, uint64_t round, uint32_t token, size_t at,
                                      const outgoing &out) {
  unsigned char *row = e.rows + at * e.row_bytes, *composed = scratch_of(e);
  store_row(e, in, token, out, composed);
  __syncthreads();
  for (uint32_t i = 0; i < out.ranks; ++i) {
    if (out.to[i]) continue;
    rushmem::put_signal<rushmem::block>(as_quads(row), as_quads(composed), e.row_bytes / 16, e.row_flags + at, round,
                                        rushmem::signal::set, out.pe[i]);
  }
}

/* The row and its flag. The block meets before the flags, which one thread for each rank stores with release:
 * that is cumulative, so it covers what the other threads stored. */
__device__ inline void send_row(const exchange &e, const rushmem::team &t, const tokens &in, uint64_t round, uint32_t token,
                                const outgoing &out) {
  const size_t at = row_index(e, static_cast<uint32_t>(t.n_pes()), round & 1, static_cast<uint32_t>(t.my_pe()), token);
  unsigned char *row = e.rows + at * e.row_bytes;
  store_row(e, in, token, out, nullptr);
  __syncthreads();
  if (threadIdx.x < out.ranks && out.to[threadIdx.x]) {
    announce(row, e.row_flags + at, round, out.pe[threadIdx.x]);
  }
  if (out.any_far) send_far(e, in, round, token, at, out);
}

/* All of this block's part of sending. */
__device__ inline void send(const exchange &e, const rushmem::team &t, const tokens &in, uint64_t round) {
  __shared__ outgoing out;
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), me = static_cast<uint32_t>(t.my_pe());
  const uint64_t said = in.count_at ? *in.count_at : in.count;
  if (blockIdx.x == 0) {
    for (uint32_t rank = threadIdx.x; rank < ranks; rank += blockDim.x) {
      if (is_absent(e, rank)) continue;
      rushmem::put_packed(routing_of(e, ranks, round & 1, me), said, round, t.world_pe(static_cast<int>(rank)));
    }
  }
  if (said > e.max_tokens) return;
  const uint32_t n = static_cast<uint32_t>(said);
  const bool packed = n <= e.few;
  const uint32_t chunks = packed ? chunks_of(n, (e.hidden + 4 * group_columns - 1) / (4 * group_columns)) : 1;
  for (uint32_t item = blockIdx.x; item < n * chunks; item += gridDim.x) {
    const uint32_t token = item % n, chunk = item / n;
    ahead first{};
    if (packed) first = read_ahead(e, in, token, chunk, chunks);
    if (threadIdx.x < 32) address(e, t, in, round & 1, token, out);
    __syncthreads();
    if (chunk == 0) send_routing(e, t, in, round, token, out);
    if (packed) send_packets(e, t, in, round, token, chunk, chunks, out, first);
    else if (out.ranks != 0) send_row(e, t, in, round, token, out);
    __syncthreads();
  }
}

}  // namespace moe
