/* Offsets past 4 GiB and counts past 2^31: transfers of single bytes by the billion, and what fills and
 * checks them with the whole grid. */
#if !defined(RUSHMEM_TEST_CHECK_H)
#include "check.h"
#endif

enum { BIG_PUT = 0, BIG_GET = 1, BIG_IPUT = 2, BIG_IGET = 3, BIG_PUT_SIGNAL = 4 };

namespace {

/* Eight bytes of PE `pe`'s pattern. */
__device__ uint64_t big_word(uint64_t seed, int pe, size_t at) {
  return mix(seed + static_cast<uint64_t>(pe), at);
}
__device__ unsigned char big_byte(uint64_t seed, int pe, size_t at) {
  return static_cast<unsigned char>(big_word(seed, pe, at / 8) >> (at % 8 * 8));
}

/* Whether a thread is of the block's first scope. */
template <typename Scope> __device__ bool is_first() { return true; }
template <> __device__ bool is_first<rushmem::thread>() { return threadIdx.x == 0; }
template <> __device__ bool is_first<rushmem::warp>() { return threadIdx.x < 32; }

template <typename Scope>
__device__ void big_move(int op, unsigned char *dst, const unsigned char *src, size_t n, uint64_t *sig,
                         int pe) {
  if (!is_first<Scope>()) return;
  if (op == BIG_PUT) rushmem::put<Scope>(dst, src, n, pe);
  else if (op == BIG_GET) rushmem::get<Scope>(dst, src, n, pe);
  else if (op == BIG_IPUT) rushmem::iput<Scope>(dst, src, 1, 1, n, pe);
  else if (op == BIG_IGET) rushmem::iget<Scope>(dst, src, 1, 1, n, pe);
  else rushmem::put_signal<Scope>(dst, src, n, sig, 1, rushmem::signal::add, pe);
  rushmem::quiet();
}

}  // namespace

/* Fills n bytes (a multiple of 8, 8-byte aligned) with this PE's pattern. */
extern "C" __global__ void big_fill(unsigned char *bytes, size_t n, uint64_t seed) {
  uint64_t *words = reinterpret_cast<uint64_t *>(bytes);
  const size_t threads = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n / 8; i += threads) {
    words[i] = big_word(seed, rushmem::my_pe(), i);
  }
}

/* Zeroes them. */
extern "C" __global__ void big_zero(unsigned char *bytes, size_t n) {
  uint64_t *words = reinterpret_cast<uint64_t *>(bytes);
  const size_t threads = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n / 8; i += threads)
    words[i] = 0;
}

/* `BigCheck`, `BigTransfer` and `BigWords` of arguments.rs. */
struct big_check_args {
  size_t before, n, room, from;
  uint64_t seed;
  int pe;
};
struct big_transfer_args {
  size_t n;
  int op, scope, pe;
};
struct big_words_args {
  size_t at, far;
  uint64_t seed;
  int pe;
};

/* `dst` has `before` bytes of zero, then n bytes of PE `pe`'s pattern from `from` on, then zeros up to
 * `room`. */
extern "C" __global__ void big_check(uint64_t *report, const unsigned char *dst, big_check_args a) {
  const size_t threads = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < a.room; i += threads) {
    const bool inside = i >= a.before && i - a.before < a.n;
    CHECK_EQ(report, dst[i], inside ? big_byte(a.seed, a.pe, a.from + (i - a.before)) : 0, i);
  }
}

/* One transfer of n single bytes between this PE and `pe`. One block. */
extern "C" __global__ void big_transfer(unsigned char *dst, const unsigned char *src, uint64_t *sig,
                                        big_transfer_args a) {
  if (a.scope == SCOPE_THREAD) big_move<rushmem::thread>(a.op, dst, src, a.n, sig, a.pe);
  else if (a.scope == SCOPE_WARP) big_move<rushmem::warp>(a.op, dst, src, a.n, sig, a.pe);
  else big_move<rushmem::block>(a.op, dst, src, a.n, sig, a.pe);
}

/* Single elements, atomics and far strides around element `at` of `words`, at `pe` and back. One thread. What
 * lies there is zero at first, and `far` elements further on, too. `mine` has 8 words. */
extern "C" __global__ void big_words(uint64_t *report, uint64_t *words, uint64_t *mine, big_words_args a) {
  const size_t at = a.at, far = a.far;
  const int pe = a.pe;
  const uint64_t value = mix(a.seed, static_cast<uint64_t>(rushmem::my_pe()));
  rushmem::p(words + at, value, pe);
  rushmem::quiet();
  CHECK_EQ(report, rushmem::g(words + at, pe), value, 1);
  CHECK_EQ(report, rushmem::atomic_fetch_add(words + at, 5, pe), value, 2);
  CHECK_EQ(report, rushmem::atomic_compare_swap(words + at, value + 5, value + 6, pe), value + 5, 3);
  CHECK_EQ(report, rushmem::atomic_swap(words + at + 1, value, pe), 0, 4);
  /* Two elements, `far` apart. */
  mine[0] = value + 10;
  mine[1] = value + 11;
  rushmem::iput(words + at + 2, mine, static_cast<ptrdiff_t>(far), 1, 2, pe);
  rushmem::quiet();
  mine[2] = mine[3] = 0;
  rushmem::iget(mine + 2, words + at + 2, 1, static_cast<ptrdiff_t>(far), 2, pe);
  CHECK_EQ(report, mine[2], value + 10, 5);
  CHECK_EQ(report, mine[3], value + 11, 6);
  CHECK_EQ(report, rushmem::g(words + at + 2 + far, pe), value + 11, 7);
  uint64_t three[3];
  rushmem::get(three, words + at, 3, pe);
  CHECK_EQ(report, three[0], value + 6, 8);
  CHECK_EQ(report, three[1], value, 9);
  CHECK_EQ(report, three[2], value + 10, 10);
}
