/* All blocks of one launch of this PE. */
#ifndef RUSHMEM_GRID_H
#define RUSHMEM_GRID_H

#include <rushmem/impl/coll/grid.h>

namespace rushmem {

/* Returns when all threads of all blocks of the launch have called it: each of them does. It meets by a word
 * of the launch's own: launches on several streams do not disturb each other, and no team is needed. The
 * blocks run at the same time, as in every launch but one in turns (CUDA: in a cooperative one); elsewhere
 * the CPU device ends the launch with an error; on GPUs the driver gives such launches a word, too (seen with
 * 580), so that nothing tells them apart. A wait for a block that never comes is reported, and ends at
 * RUSHMEM_WAIT_TIMEOUT. Not between `barrier_arrive()` and `barrier_wait()` of a `grid_group`, whose word it
 * is, too. Order: all threads' memory accesses before it, before those of all threads of the launch after it.
 * Cost: wait. */
RUSHMEM_DEVICE void sync_grid() {
  auto *const arrived = impl::grid_word();
  if (RUSHMEM_UNLIKELY(!arrived) && impl::blocks_in_grid() > 1) impl::fail(RUSHMEM_DEVICE_FAIL_TURNS);
  impl::meet_blocks(arrived, RUSHMEM_COLLECTIVE_SYNC_GRID);
}

/* First of all in a kernel that is launched early (`Launch::early`, RUSHMEM_LAUNCH_EARLY): returns when what
 * its stream has before it has ended. In other launches it returns at once. Each thread calls it that reads
 * or writes what is of others. Order: what was before it on the stream, before what this thread does after
 * it. Cost: wait. */
RUSHMEM_DEVICE void await_stream() { impl::await_kernel_before(); }

}  // namespace rushmem

#endif
