/* Who takes part in one call: a thread alone, the threads of a warp together, those of a block, or, in
 * collectives, those of all blocks. A scope is the first template argument of an operation,
 * `put<block>(...)`; without one it is `thread`.
 *
 * In a scope of several threads each of them must make the call, with the same arguments (as for __syncwarp
 * and __syncthreads), and the work is shared out among them. */
#ifndef RUSHMEM_SCOPE_H
#define RUSHMEM_SCOPE_H

#include <rushmem/impl/platform.h>

namespace rushmem {
namespace impl {

RUSHMEM_DEVICE uint32_t thread_in_block() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
RUSHMEM_DEVICE uint32_t threads_in_block() { return blockDim.x * blockDim.y * blockDim.z; }
RUSHMEM_DEVICE uint32_t block_in_grid() { return blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z); }
RUSHMEM_DEVICE uint32_t blocks_in_grid() { return gridDim.x * gridDim.y * gridDim.z; }

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

/* All threads of all blocks of a launch: a scope of collectives alone. The blocks must run at the same time:
 * no more of them than `max_blocks` says, or a cooperative launch. Where one never comes, the others' wait is
 * reported, and ends at RUSHMEM_WAIT_TIMEOUT. All members have as many blocks. */
struct grid {
  RUSHMEM_DEVICE static uint32_t rank() { return impl::block_in_grid() * impl::threads_in_block() + impl::thread_in_block(); }
  RUSHMEM_DEVICE static uint32_t size() { return impl::blocks_in_grid() * impl::threads_in_block(); }
};

/* As `grid`, but blocks do not wait for one another, neither before a call nor after it: each does its part
 * and goes on. What a call reads was there before the launch, or before the last sync<grid> of the team; what
 * it leaves is there for all after the launch, or after the next one. Between two calls without a sync
 * neither uses an array of the other's, unless they are the same call with the same arrays. For kernels that
 * do little else: they save two barriers of all blocks. */
struct grid_parts : grid {};

namespace impl {

/* Those who share their work out in each block. */
template <typename Scope> struct group_of {
  using type = Scope;
};
template <> struct group_of<grid> {
  using type = block;
};
template <> struct group_of<grid_parts> {
  using type = block;
};

/* Whether a scope has several blocks, and whether all of them meet before and after a call. */
template <typename Scope> struct has_blocks {
  static constexpr bool value = false, meet = false;
};
template <> struct has_blocks<grid> {
  static constexpr bool value = true, meet = true;
};
template <> struct has_blocks<grid_parts> {
  static constexpr bool value = true, meet = false;
};

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
