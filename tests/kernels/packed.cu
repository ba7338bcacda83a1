/* Packed messages: words, arrays of every small size and alignment at each scope, and a litmus test of many
 * rounds: a packet's value is never another one's than its sequence number says, nor are two of an array from
 * different messages. One block to a PE. */
#if !defined(RUSHMEM_TEST_CHECK_H)
#include "check.h"
#endif

namespace {

constexpr unsigned char canary = 0xee;

struct alignas(16) sixteen {
  uint32_t at[4];
};
struct three {
  unsigned char at[3];
};

/* Everybody sends `bytes` to the right and takes what comes from the left, then says so. */
template <typename Scope, typename T>
__device__ void exchange(uint64_t *report, rushmem::packet *slots, rushmem::packet *ack, unsigned char *dst,
                         unsigned char *src, size_t bytes, size_t from_align, size_t to_align, uint64_t number,
                         uint64_t seed) {
  const int me = rushmem::my_pe(), left = left_of(me), right = right_of(me);
  const size_t n = bytes / sizeof(T);
  const uint64_t data = mix(seed, number);
  for (size_t i = threadIdx.x; i < bytes; i += blockDim.x) src[from_align + i] = pattern(data, me, i);
  for (size_t i = threadIdx.x; i < bytes + 48; i += blockDim.x) dst[i] = canary;
  __syncthreads();
  if (share<Scope>::mine() == 0) {
    rushmem::put_packed<Scope>(slots, reinterpret_cast<const T *>(src + from_align), n, number, right);
    /* The source is free. */
    for (size_t i = Scope::rank(); i < bytes; i += Scope::size()) src[from_align + i] = canary;
    rushmem::wait_packed<Scope>(reinterpret_cast<T *>(dst + 16 + to_align), slots, n, number);
  }
  __syncthreads();
  for (size_t i = threadIdx.x; i < bytes + 48; i += blockDim.x) {
    const size_t at = i - 16 - to_align;
    CHECK_EQ(report, dst[i], i >= 16 + to_align && at < bytes ? pattern(data, left, at) : canary,
             bytes << 32 | i);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    rushmem::put_packed(ack, number ^ seed, number, left);
    CHECK_EQ(report, rushmem::wait_packed(ack, number), number ^ seed, number);
  }
  __syncthreads();
}

template <typename Scope, typename T>
__device__ void sweep(uint64_t *report, rushmem::packet *slots, rushmem::packet *ack, unsigned char *dst,
                      unsigned char *src, size_t max_bytes, uint64_t seed) {
  uint64_t number = 0;
  for (size_t bytes = 0; bytes <= max_bytes; bytes += sizeof(T)) {
    const uint64_t random = mix(seed, bytes);
    const size_t from_align = random % 16 / alignof(T) * alignof(T);
    const size_t to_align = random / 16 % 16 / alignof(T) * alignof(T);
    exchange<Scope, T>(report, slots, ack, dst, src, bytes, from_align, to_align, ++number, seed);
  }
}

template <typename Scope>
__device__ void sweep_type(uint64_t *report, rushmem::packet *slots, rushmem::packet *ack, unsigned char *dst,
                           unsigned char *src, int unit, size_t max_bytes, uint64_t seed) {
  switch (unit) {
    case 1: sweep<Scope, unsigned char>(report, slots, ack, dst, src, max_bytes, seed); break;
    case 2: sweep<Scope, short>(report, slots, ack, dst, src, max_bytes, seed); break;
    case 3: sweep<Scope, three>(report, slots, ack, dst, src, max_bytes, seed); break;
    case 4: sweep<Scope, float>(report, slots, ack, dst, src, max_bytes, seed); break;
    case 8: sweep<Scope, uint64_t>(report, slots, ack, dst, src, max_bytes, seed); break;
    case 16: sweep<Scope, sixteen>(report, slots, ack, dst, src, max_bytes, seed); break;
  }
}

}  // namespace

/* `Sweep` of tests/device/packed.rs. */
struct packed_args {
  int scope, unit;
  size_t max_bytes;
  uint64_t seed;
};

/* `slots` has packets for max_bytes, `dst` and `src` room for max_bytes + 64; `slots` and `ack` are zero. */
extern "C" __global__ void packed_sweep(uint64_t *report, rushmem::packet *slots, rushmem::packet *ack,
                                        unsigned char *dst, unsigned char *src, packed_args a) {
  const int scope = a.scope, unit = a.unit;
  const size_t max_bytes = a.max_bytes;
  const uint64_t seed = a.seed;
  if (scope == SCOPE_THREAD) sweep_type<rushmem::thread>(report, slots, ack, dst, src, unit, max_bytes, seed);
  else if (scope == SCOPE_WARP) sweep_type<rushmem::warp>(report, slots, ack, dst, src, unit, max_bytes, seed);
  else sweep_type<rushmem::block>(report, slots, ack, dst, src, unit, max_bytes, seed);
}

/* Each thread has a lane of `words` packets to the right and one back, and sends as fast as answers come.
 * Every word of a message is a function of lane, round and place. In turn the message is waited for and
 * tested for; in every fourth round it also announces a plain put, by fences, and its answer that this was
 * read. All memory is zero; `beside` has a word for each lane. */
extern "C" __global__ void packed_litmus(uint64_t *report, rushmem::packet *slots, rushmem::packet *acks,
                                         uint64_t *beside, size_t words, int rounds, uint64_t seed) {
  const int me = rushmem::my_pe(), left = left_of(me), right = right_of(me);
  const size_t lane = blockIdx.x * blockDim.x + threadIdx.x;
  rushmem::packet *mine = slots + lane * words, *ack = acks + lane;
  for (int round = 1; round <= rounds; ++round) {
    const uint64_t number = static_cast<uint64_t>(round);
    const uint64_t said = mix(seed ^ lane, number);
    if (round % 4 == 0) {
      rushmem::p(beside + lane, said, right);
      rushmem::fence();
    }
    for (size_t i = 0; i < words; ++i) rushmem::put_packed(mine + i, said + i, number, right);
    /* Last first. */
    for (size_t i = words; i-- > 0;) {
      uint64_t got = 0;
      if (round % 2) got = rushmem::wait_packed(mine + i, number);
      else
        while (!rushmem::test_packed(mine + i, number, &got)) {
        }
      CHECK_EQ(report, got, said + i, number << 8 | i);
    }
    if (round % 4 == 0) {
      rushmem::fence();
      CHECK_EQ(report, beside[lane], said, number);
      rushmem::fence();
    }
    rushmem::put_packed(ack, ~said, number, left);
    CHECK_EQ(report, rushmem::wait_packed(ack, number), ~said, number);
    if (round % 4 == 0) rushmem::fence();
  }
}

/* Each warp has `n` rows from the left, and an answer back. In turn rows are waited for one by one, last
 * first, and tested for side by side, two at a time, the first of them not asked for again once it is here.
 * Every word is a function of lane, round and row. `asked`: whether the team has packed rows on its last slot
 * set; nothing else is done where it has not. All memory is zero; blocks have whole warps. */
extern "C" __global__ void packed_rows(rushmem::team t, uint64_t *report, rushmem::packed_row *slots,
                                       rushmem::packet *acks, uint64_t *asked, uint64_t n, int rounds, uint64_t seed) {
  const int left = t.world_pe((t.my_pe() + t.n_pes() - 1) % t.n_pes()), right = t.world_pe((t.my_pe() + 1) % t.n_pes());
  const size_t thread = blockIdx.x * blockDim.x + threadIdx.x, warp = thread / 32;
  const bool may = rushmem::has_packed_rows(t.on(t.slot_sets() - 1));
  if (thread == 0) *asked = may ? 1 : 2;
  if (!may) return;
  rushmem::packed_row *const mine = slots + warp * n, *const there = rushmem::ptr(mine, right);
  for (int round = 1; round <= rounds; ++round) {
    const uint64_t number = static_cast<uint64_t>(round);
    const auto words = [&](uint64_t row) {
      return rushmem::row_words{mix(seed ^ thread, number << 8 | row), mix(~seed ^ thread, number << 8 | row)};
    };
    const auto check = [&](const rushmem::row_words &got, uint64_t row) {
      CHECK_EQ(report, got.low, words(row).low, number << 8 | row);
      CHECK_EQ(report, got.high, rushmem::owns_number() ? 0 : words(row).high, number << 8 | row);
    };
    for (uint64_t row = 0; row < n; ++row) rushmem::store_packed_row(there + row, words(row), number);
    uint64_t left_over = n;
    if (round % 2 == 0) {
      for (; left_over >= 2; left_over -= 2) {
        const rushmem::packed_row *const rows[2] = {mine + left_over - 1, mine + left_over - 2};
        bool has[2] = {false, false};
        rushmem::row_words got[2];
        while (!has[0] || !has[1]) rushmem::test_packed_rows<2>(rows, number, has, got);
        check(got[0], left_over - 1);
        check(got[1], left_over - 2);
      }
    }
    while (left_over-- > 0) check(rushmem::wait_packed_row(mine + left_over, number), left_over);
    if (thread % 32 == 0) {
      rushmem::put_packed(acks + warp, ~number, number, left);
      CHECK_EQ(report, rushmem::wait_packed(acks + warp, number), ~number, number);
    }
    __syncwarp();
  }
}
