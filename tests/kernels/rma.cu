/* put, get and their nbi forms: every size from 0 to a few hundred bytes, every alignment of source against
 * destination, at each scope and for elements of each alignment; single large transfers; no byte outside the
 * destination touched. One block to a PE. */
#if !defined(RUSHMEM_TEST_CHECK_H)
#include "check.h"
#endif

enum { OP_PUT = 0, OP_PUT_NBI = 1, OP_GET = 2, OP_GET_NBI = 3 };

namespace {

constexpr unsigned char canary = 0xee;
constexpr size_t margin = 16;

struct alignas(16) sixteen {
  uint32_t at[4];
};

template <typename Scope, typename T>
__device__ void transfer(int op, unsigned char *to_, const unsigned char *from_, size_t bytes, int pe) {
  T *to = reinterpret_cast<T *>(to_);
  const T *from = reinterpret_cast<const T *>(from_);
  size_t n = bytes / sizeof(T);
  if (op == OP_PUT) rushmem::put<Scope>(to, from, n, pe);
  else if (op == OP_PUT_NBI) rushmem::put_nbi<Scope>(to, from, n, pe);
  else if (op == OP_GET) rushmem::get<Scope>(to, from, n, pe);
  else rushmem::get_nbi<Scope>(to, from, n, pe);
}

/* Where transfer `combination` of a round reads: anywhere in the first 512 bytes that its alignment allows.
 */
__device__ size_t source_at(uint64_t seed, size_t bytes, size_t combination, size_t align) {
  return mix(seed ^ bytes, combination) % 32 * 16 + align;
}

/* Checks the slot of one transfer, and puts the canaries back. Shared by the whole block. */
__device__ void check_slot(uint64_t *report, unsigned char *slot, size_t align, size_t bytes, uint64_t seed,
                           int from_pe, size_t from) {
  for (size_t i = threadIdx.x; i < 2 * margin + 16 + bytes; i += blockDim.x) {
    bool inside = i >= margin + align && i < margin + align + bytes;
    CHECK_EQ(report, slot[i], inside ? pattern(seed, from_pe, from + i - margin - align) : canary,
             bytes << 32 | i);
    slot[i] = canary;
  }
}

template <typename Scope, typename T>
__device__ void sweep(uint64_t *report, unsigned char *dst, unsigned char *src, int op, size_t max_bytes,
                      uint64_t seed) {
  const size_t unit = alignof(T), aligns = 16 / unit;
  const int me = rushmem::my_pe();
  const bool is_put = op == OP_PUT || op == OP_PUT_NBI;
  const int from_pe = is_put ? left_of(me) : right_of(me);
  for (size_t bytes = 0; bytes <= max_bytes; bytes += sizeof(T)) {
    const size_t slot = 2 * margin + 16 + bytes + (16 - bytes % 16);
    for (size_t c = share<Scope>::mine(); c < aligns * aligns; c += share<Scope>::count()) {
      size_t from_align = c / aligns * unit, to_align = c % aligns * unit;
      transfer<Scope, T>(op, dst + c * slot + margin + to_align, src + source_at(seed, bytes, c, from_align),
                         bytes, right_of(me));
    }
    if (op == OP_PUT_NBI || op == OP_GET_NBI) rushmem::quiet();
    if (is_put) rushmem::barrier_all<rushmem::block>();
    else __syncthreads();
    for (size_t c = 0; c < aligns * aligns; ++c) {
      check_slot(report, dst + c * slot, c % aligns * unit, bytes, seed, from_pe,
                 source_at(seed, bytes, c, c / aligns * unit));
    }
    if (is_put) rushmem::barrier_all<rushmem::block>();
    else __syncthreads();
  }
}

template <typename Scope>
__device__ void sweep_type(uint64_t *report, unsigned char *dst, unsigned char *src, int op, int unit,
                           size_t max_bytes, uint64_t seed) {
  switch (unit) {
    case 1: sweep<Scope, unsigned char>(report, dst, src, op, max_bytes, seed); break;
    case 2: sweep<Scope, short>(report, dst, src, op, max_bytes, seed); break;
    case 4: sweep<Scope, float>(report, dst, src, op, max_bytes, seed); break;
    case 8: sweep<Scope, uint64_t>(report, dst, src, op, max_bytes, seed); break;
    case 16: sweep<Scope, sixteen>(report, dst, src, op, max_bytes, seed); break;
  }
}

__device__ void fill(unsigned char *dst, size_t dst_bytes, unsigned char *src, size_t src_bytes,
                     uint64_t seed) {
  for (size_t i = threadIdx.x; i < dst_bytes; i += blockDim.x) dst[i] = canary;
  for (size_t i = threadIdx.x; i < src_bytes; i += blockDim.x) src[i] = pattern(seed, rushmem::my_pe(), i);
}

}  // namespace

/* `Sweep` of tests/device/rma.rs. */
struct sweep_args {
  int op, scope, unit;
  size_t max_bytes;
  uint64_t seed;
};
/* `Large` of arguments.rs. */
struct large_args {
  int op, scope;
  size_t bytes, from_align, to_align;
  uint64_t seed;
};

/* `dst` has room for 256 slots of max_bytes + 64, `src` for max_bytes + 512 + 16.
 *
 * Sixty transfers are inlined here. None needs more than 64 registers (registers.cu), but without a bound the
 * compiler takes what a GPU has for all of them together, and large blocks no longer launch. */
extern "C" __global__ void __launch_bounds__(288)
rma_sweep(uint64_t *report, unsigned char *dst, unsigned char *src, sweep_args a) {
  const int op = a.op, scope = a.scope, unit = a.unit;
  const size_t max_bytes = a.max_bytes;
  const uint64_t seed = a.seed;
  fill(dst, 256 * (max_bytes + 64), src, max_bytes + 512 + 16, seed);
  rushmem::barrier_all<rushmem::block>();
  if (scope == SCOPE_THREAD) sweep_type<rushmem::thread>(report, dst, src, op, unit, max_bytes, seed);
  else if (scope == SCOPE_WARP) sweep_type<rushmem::warp>(report, dst, src, op, unit, max_bytes, seed);
  else sweep_type<rushmem::block>(report, dst, src, op, unit, max_bytes, seed);
}

/* One transfer of `bytes`, `from_align` and `to_align` past 16-byte boundaries. `dst` and `src` have room for
 * bytes + 64. At thread and warp scope the block's first one makes it. */
extern "C" __global__ void __launch_bounds__(512)
rma_large(uint64_t *report, unsigned char *dst, unsigned char *src, large_args a) {
  const int op = a.op, scope = a.scope;
  const size_t bytes = a.bytes, from_align = a.from_align, to_align = a.to_align;
  const uint64_t seed = a.seed;
  const int me = rushmem::my_pe();
  fill(dst, bytes + 64, src, bytes + 16, seed);
  rushmem::barrier_all<rushmem::block>();
  unsigned char *to = dst + margin + to_align;
  if (scope == SCOPE_BLOCK) {
    transfer<rushmem::block, unsigned char>(op, to, src + from_align, bytes, right_of(me));
  } else if (scope == SCOPE_WARP && threadIdx.x < 32) {
    transfer<rushmem::warp, unsigned char>(op, to, src + from_align, bytes, right_of(me));
  } else if (scope == SCOPE_THREAD && threadIdx.x == 0) {
    transfer<rushmem::thread, unsigned char>(op, to, src + from_align, bytes, right_of(me));
  }
  rushmem::quiet();
  rushmem::barrier_all<rushmem::block>();
  check_slot(report, dst, to_align, bytes, seed,
             op == OP_PUT || op == OP_PUT_NBI ? left_of(me) : right_of(me), from_align);
}

/* Puts its words to the right and ends, completing nothing: one by each thread into `words`, and `bulk` of
 * `src` behind them. */
extern "C" __global__ void rma_leave(uint64_t *words, const uint64_t *src, size_t bulk, uint64_t seed) {
  const int me = rushmem::my_pe(), right = right_of(me);
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  rushmem::p(words + i, mix(seed + static_cast<uint64_t>(me), i), right);
  if (i == 0) rushmem::put_nbi(words + static_cast<size_t>(gridDim.x) * blockDim.x, src, bulk, right);
}
