/* The barrier of all blocks of a launch, by one word of a slot set. No cooperative launch is needed, only
 * that the blocks run at the same time.
 *
 * Its upper half counts barriers. In each of them block 0 adds 2^32 - (blocks - 1) and every other block 1,
 * in any order: together exactly 2^32, so that the lower half is zero again, and the upper half changes with
 * the last of them and not before (as cooperative groups do it with 32 bits). Nothing is reset, and the next
 * launch may have another number of blocks. A block that leaves the barrier cannot disturb one that is still
 * in it: that one waits for another upper half than it has found, and the next barrier cannot end without it.
 *
 * Memory: __syncthreads, the leader's releasing addition; the additions of all blocks are one release
 * sequence, which each leader's last load reads from; its fence acquires, and __syncthreads hands that on. So
 * what any thread of the grid did or saw before is seen by all of them after. At GPU scope: what came from
 * other PEs was acquired at system scope, and causality is transitive. */
#ifndef RUSHMEM_IMPL_COLL_GRID_H
#define RUSHMEM_IMPL_COLL_GRID_H

#include <rushmem/impl/stall.h>
#include <rushmem/scope.h>

namespace rushmem {
namespace impl {

/* How many blocks have come, from the word's lower half. */
RUSHMEM_DEVICE uint64_t blocks_arrived(uint64_t word_, uint32_t blocks) {
  const uint32_t low = static_cast<uint32_t>(word_);
  return low < 0x80000000u ? low : low + blocks;
}

/* `about`: collective and team, for reports. Out of line, as its registers are not the collective's. */
template <typename W> RUSHMEM_OUTLINED void meet_blocks(W *arrived, uint32_t about) {
  const uint32_t blocks = blocks_in_grid();
  __syncthreads();
  if (thread_in_block() == 0 && blocks > 1) {
    const uint64_t share = block_in_grid() == 0 ? (uint64_t(1) << 32) - (blocks - 1) : 1;
    const uint64_t before = arrive_word(arrived, share);
    if ((before + share) >> 32 == before >> 32) {
      stall_watch watch;
      for (;;) {
        const uint64_t seen = load_relaxed_word(arrived);
        if (seen >> 32 != before >> 32) break;
        pause(watch.polls == 0);
        if (RUSHMEM_UNLIKELY(watch.counts())) {
          watch.mark = rushmem_stall_stop(watch.polls, watch.mark.since, reinterpret_cast<uint64_t>(arrived), about,
                                          RUSHMEM_STALL_GRID, -1, blocks, blocks_arrived(seen, blocks));
        }
      }
    }
    fence_acquire_gpu();
  }
  __syncthreads();
}

}  // namespace impl
}  // namespace rushmem

#endif
