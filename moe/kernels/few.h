/* Exchanges for few tokens, all of whose rows and sums are packets and whose ranks are all near (memory.rs
 * says which): kernels of their own, as what takes the time of such a round is a chain of loads, and beside
 * it the machine code that has to be fetched. They have half of the others', and
 *   - an item of work, a part of a row or sum or a token's routing, has a warp for itself, and kinds of items
 *     begin with other warps each, so that few warps have two of them;
 *   - what a warp can load without knowing the round or the routing it loads at once, and packets are polled
 *     side by side;
 *   - tokens have items by their number, whether they exist or not: nothing is dealt out when counts are
 *     known;
 *   - dispatch leaves a record of each token for combine, which so needs one load to know all of it.
 * The order of exchange.h holds. Packets of rows and sums carry the lower half of the round's number:
 * few_send.h (`renew`) says why that is enough. */
namespace moe {
namespace few {

using rushmem::slim_packet;

/* Ranks are bits of a word. */
constexpr uint32_t most_few_ranks = 32;
/* Polls of several packets side by side, before each is waited for by itself, as a wait that lasts is
 * reported. */
constexpr uint32_t polls = 4096;

__device__ inline uint32_t slots() { return gridDim.x * warps; }
/* A warp's first item of what all blocks share, block by block; and of what is dealt from the other end. */
__device__ inline uint32_t from_front() { return blockIdx.x + gridDim.x * warp_of(); }
__device__ inline uint32_t from_back() { return slots() - 1 - from_front(); }
/* The same that begins with other warps than either. */
__device__ inline uint32_t from_middle() { return (from_front() + slots() / 2) % slots(); }

/* All near. */
template <typename Packet> __device__ inline Packet *there(const rushmem::team &t, Packet *slot, uint32_t rank) {
  return rushmem::ptr(slot, t.world_pe(static_cast<int>(rank)));
}

/* The bits of all lanes' words. */
__device__ inline uint32_t united(uint32_t bits) {
#if defined(RUSHMEM_CPU) || __CUDA_ARCH__ >= 800
  return __reduce_or_sync(all_lanes, bits);
#else
  for (int apart = 16; apart > 0; apart /= 2) bits |= __shfl_xor_sync(all_lanes, bits, apart);
  return bits;
#endif
}
__device__ inline uint32_t lowest_bit(uint32_t bits) { return static_cast<uint32_t>(__ffs(static_cast<int>(bits))) - 1; }

/* The largest of all lanes' words. */
__device__ inline uint32_t largest(uint32_t n) {
#if defined(RUSHMEM_CPU) || __CUDA_ARCH__ >= 800
  return __reduce_max_sync(all_lanes, n);
#else
  for (int apart = 16; apart > 0; apart /= 2) {
    const uint32_t other = __shfl_xor_sync(all_lanes, n, apart);
    n = other > n ? other : n;
  }
  return n;
#endif
}

/* Their sum. */
__device__ inline uint32_t added(uint32_t n) {
#if defined(RUSHMEM_CPU) || __CUDA_ARCH__ >= 800
  return __reduce_add_sync(all_lanes, n);
#else
  for (int apart = 16; apart > 0; apart /= 2) n += __shfl_xor_sync(all_lanes, n, apart);
  return n;
#endif
}

/* ---- 12 bytes and a flag ---- */

/* Three words, which are a packet with the lower half of the round's number. */
struct three {
  uint32_t w[3];
};

/* Waits for those of a lane's packets that are `wanted`. */
template <uint32_t n>
__device__ inline void await(const slim_packet *const (&slots)[n], const bool (&wanted)[n], three (&values)[n], uint32_t tag) {
  bool has[n];
#pragma unroll
  for (uint32_t j = 0; j < n; ++j) has[j] = !wanted[j];
#pragma unroll 1
  for (uint32_t i = 0; i < polls; ++i) {
    bool all = true;
#pragma unroll
    for (uint32_t j = 0; j < n; ++j) {
      if (!has[j]) has[j] = rushmem::test_packed(slots[j], tag, values[j].w);
    }
#pragma unroll
    for (uint32_t j = 0; j < n; ++j) all &= has[j];
    if (all) return;
  }
#pragma unroll
  for (uint32_t j = 0; j < n; ++j) {
    if (!has[j]) rushmem::wait_packed(slots[j], tag, values[j].w);
  }
}

/* A warp's words on their way from one lane to another: so many columns that a lane has six of them. */
constexpr uint32_t six = 6, part_columns = six * lanes;
struct passage {
  uint32_t w[part_columns];
};

/* Three words of a lane side by side become words of lanes side by side, 32 apart; and back. */
__device__ inline three across(passage &p, const three &v) {
#pragma unroll
  for (uint32_t i = 0; i < 3; ++i) p.w[3 * lane_of() + i] = v.w[i];
  __syncwarp();
  three out;
#pragma unroll
  for (uint32_t i = 0; i < 3; ++i) out.w[i] = p.w[lane_of() + i * lanes];
  __syncwarp();
  return out;
}
/* Six numbers of a lane side by side become two packets: this lane's and that of 32 behind; and back. */
__device__ inline void to_packets(passage &p, const float (&v)[six], three (&out)[2]) {
#pragma unroll
  for (uint32_t i = 0; i < six; ++i) p.w[six * lane_of() + i] = __float_as_uint(v[i]);
  __syncwarp();
#pragma unroll
  for (uint32_t i = 0; i < six; ++i) out[i / 3].w[i % 3] = p.w[3 * (lane_of() + i / 3 * lanes) + i % 3];
  __syncwarp();
}
__device__ inline void of_packets(passage &p, const three &a, const three &b, float (&out)[six]) {
#pragma unroll
  for (uint32_t i = 0; i < 3; ++i) {
    p.w[3 * lane_of() + i] = a.w[i];
    p.w[3 * (lane_of() + lanes) + i] = b.w[i];
  }
  __syncwarp();
#pragma unroll
  for (uint32_t i = 0; i < six; ++i) out[i] = __uint_as_float(p.w[six * lane_of() + i]);
  __syncwarp();
}

/* ---- packed rows ---- */

/* Whether parts of rows go as packed rows, with their scales: rank-major, where they are cast. */
constexpr bool parts_are_packed = MOE_LAYOUT == 1 && MOE_CAST;
__device__ inline bool sends_packed_rows(const rushmem::team &t) { return parts_are_packed && rushmem::has_packed_rows(t); }

/* A lane's three words of a part, and, in the first three lanes, a scale. The word for which a lane that owns
 * a number has no room goes with the lane four before it. */
__device__ inline rushmem::row_words to_row(const three &v, uint32_t scale) {
  const uint32_t third = __shfl_down_sync(all_lanes, v.w[2], 4);
  const uint32_t fourth = lane_of() < 3 ? scale : third;
  return {v.w[0] | static_cast<uint64_t>(v.w[1]) << 32, v.w[2] | static_cast<uint64_t>(fourth) << 32};
}
__device__ inline three of_row(const rushmem::row_words &words, uint32_t &scale) {
  const uint32_t fourth = static_cast<uint32_t>(words.high >> 32), third = __shfl_up_sync(all_lanes, fourth, 4);
  scale = fourth;
  return {{static_cast<uint32_t>(words.low), static_cast<uint32_t>(words.low >> 32),
           rushmem::owns_number() ? third : static_cast<uint32_t>(words.high)}};
}

/* ---- what a rank does with a token ---- */

/* One of a token's experts, a lane each, as the receiver knows it. */
struct chosen {
  uint32_t id, ours; /* which lanes' experts are this rank's */
  uint32_t row;      /* where this one's is */
};

/* ---- parts that a rank keeps ---- */

/* A part of a row that has an expert on the sender's own rank. A launch that sends and receives does not send
 * it there: the warp keeps it in registers, and stores it once its places are known. */
constexpr uint32_t not_kept = ~0u;
struct kept_part {
  three v{};
  uint32_t scale = 0;               /* of a cast part: a group's for each of the first three lanes */
  uint32_t at = not_kept, part = 0; /* the row's token, of all sources' */
};
/* A warp keeps at most two parts. Names, not an index, so that both stay in registers. */
struct kept_parts {
  kept_part first, second;
};

/* Whether no warp has more than two items to send. If one does, the launch keeps nothing. `parts`: of a
 * row. */
__device__ inline bool keeps_parts(const exchange &e, uint32_t parts) {
  return e.max_tokens * (1 + parts) < 2 * slots();
}

/* Of three words, one for each of the first three lanes. */
__device__ inline uint32_t word_of_lane(const three &v) {
  return lane_of() == 0 ? v.w[0] : lane_of() == 1 ? v.w[1] : v.w[2];
}

/* ---- sums ---- */

/* A part of a sum is 192 columns: two packets of a lane in f32, of three columns each, or one of six 16-bit
 * numbers. */
constexpr uint32_t wide_packets = 2 * lanes, narrow_packets = lanes;
__device__ inline uint32_t parts_of_sum(const exchange &e) { return (e.hidden + part_columns - 1) / part_columns; }
/* Of a unit: a sum of f32 has two units, where experts produce 16-bit numbers. */
__device__ inline uint32_t unit_packets(const exchange &e) {
  return parts_of_sum(e) * (y_bytes == 4 ? wide_packets : narrow_packets);
}

/* ---- records ---- */

/* What combine has to know of a token, in 64-bit words: the first says how many entries there are, and where
 * a rank's sum goes; then the entries. For a token of any source, of its experts here: the row, and its
 * weight's bits above. For a token of this rank's, of the ranks that have experts of it: the unit in which
 * its sum comes, whether that is narrow, whether the rank is this one, and the weight. */
constexpr uint64_t is_narrow = 1u << 16, is_own = 1u << 17, exists = 1u << 16;
constexpr uint32_t unit_bits = 0xffff;
__device__ inline uint32_t record_words(const exchange &e) { return 1 + e.top_k; }
__device__ inline uint64_t *record_of(const exchange &e, uint32_t at) { return e.records + size_t(at) * record_words(e); }
__device__ inline uint64_t *home_record_of(const exchange &e, uint32_t ranks, uint32_t token) {
  return record_of(e, ranks * e.max_tokens + token);
}
/* A record, as the lanes of a warp have it: an entry each. */
struct record {
  uint64_t head, entry;
};
__device__ inline record read_record(const exchange &e, uint32_t at, bool wanted) {
  const uint64_t *from = record_of(e, at);
  const bool has = wanted && lane_of() < e.top_k;
  record r{0, 0};
  if (wanted) r.head = from[0];
  if (has) r.entry = from[1 + lane_of()];
  return r;
}

/* The number of the round after the one that this block has counted. Volatile: it is loaded where it is used,
 * behind loads that do not need it, and not waited for in front of a loop. */
__device__ inline uint64_t next_round(const uint64_t *words) {
  return *static_cast<const volatile uint64_t *>(words + blockIdx.x) + 1;
}

}  // namespace few
}  // namespace moe
