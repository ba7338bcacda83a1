/* Who takes part in one call: a thread alone, the threads of a warp together, or those of a block. A scope is
 * the first template argument of an operation, `put<block>(...)`; without one it is `thread`.
 *
 * In a warp or block scope every thread of the warp or block must make the call, with the same arguments (as
 * for
 * __syncwarp and __syncthreads), and the work is shared out among them. */
#ifndef RUSHMEM_SCOPE_H
#define RUSHMEM_SCOPE_H

#include <rushmem/impl/platform.h>

namespace rushmem {
namespace impl {

RUSHMEM_DEVICE uint32_t thread_in_block() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
RUSHMEM_DEVICE uint32_t threads_in_block() { return blockDim.x * blockDim.y * blockDim.z; }

}  // namespace impl

/* One thread by itself. */
struct thread {
  RUSHMEM_DEVICE static uint32_t rank() { return 0; }
  RUSHMEM_DEVICE static uint32_t size() { return 1; }
  RUSHMEM_DEVICE static void sync() { impl::compiler_fence(); }
};

/* The (up to) 32 threads of a warp: a block's last warp has fewer when its thread count is no multiple of 32.
 */
struct warp {
  RUSHMEM_DEVICE static uint32_t rank() { return impl::thread_in_block() % 32; }
  RUSHMEM_DEVICE static uint32_t size() {
    uint32_t left = impl::threads_in_block() - impl::thread_in_block() / 32 * 32;
    return left < 32 ? left : 32;
  }
  RUSHMEM_DEVICE static void sync() {
    uint32_t lanes = size();
    /* A mask that the compiler knows is one instruction, another a vote on who is there. */
    if (RUSHMEM_LIKELY(lanes == 32)) __syncwarp();
    else __syncwarp((1u << lanes) - 1u);
  }
};

/* All threads of a block. */
struct block {
  RUSHMEM_DEVICE static uint32_t rank() { return impl::thread_in_block(); }
  RUSHMEM_DEVICE static uint32_t size() { return impl::threads_in_block(); }
  RUSHMEM_DEVICE static void sync() { __syncthreads(); }
};

namespace impl {

/* Whether a scope is one thread, which has to do for itself what others share out. */
template <typename Scope> struct is_alone {
  static constexpr bool value = false;
};
template <> struct is_alone<thread> {
  static constexpr bool value = true;
};

/* Whether it is one warp at most. */
template <typename Scope> struct is_one_warp {
  static constexpr bool value = false;
};
template <> struct is_one_warp<warp> {
  static constexpr bool value = true;
};

}  // namespace impl

}  // namespace rushmem

#endif
