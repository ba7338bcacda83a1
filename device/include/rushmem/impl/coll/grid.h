/* The barrier of all blocks of a launch, by one word of a slot set. No cooperative launch is needed, only
 * that the blocks run at the same time.
 *
 * Its upper part counts barriers: 32 bits of a word of 64, one of a word of 32. In each of them block 0 adds
 * 2^32 (2^31) - (blocks - 1) and every other block 1, in any order: together exactly one of the upper part,
 * so that the lower one is zero again, and the upper one changes with the last of them and not before (as
 * cooperative groups do it). Nothing is reset, and the next launch may have another number of blocks. A block
 * that leaves the barrier cannot disturb one that is still in it: that one waits for another upper part than
 * it has found, and the next barrier cannot end without it.
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

/* What a barrier adds in all. */
template <typename W> constexpr W barriers_one = W(1) << (sizeof(W) == 8 ? 32 : 31);

/* How many blocks have come, from the word's lower part. */
template <typename W> RUSHMEM_DEVICE uint64_t blocks_arrived(W word_, uint32_t blocks) {
  const W low = word_ & (barriers_one<W> - 1);
  return low < barriers_one<W> / 2 ? low : low + blocks - barriers_one<W>;
}

/* `about`: collective and team, for reports. Out of line, as its registers are not the collective's. */
template <typename W> RUSHMEM_OUTLINED void meet_blocks(W *arrived, uint32_t about) {
  const uint32_t blocks = blocks_in_grid();
  constexpr W one = barriers_one<W>;
  if (blocks > 1 && !blocks_can_meet()) fail(RUSHMEM_DEVICE_FAIL_TURNS);
  __syncthreads();
  if (thread_in_block() == 0 && blocks > 1) {
    const W share = block_in_grid() == 0 ? one - (blocks - 1) : 1;
    const W before = arrive_word(arrived, share);
    if (static_cast<W>(before + share) / one == before / one) {
      stall_watch watch;
      for (;;) {
        const W seen = load_relaxed_word(arrived);
        if (seen / one != before / one) break;
        pause(watch.polls == 0);
        if (RUSHMEM_UNLIKELY(watch.counts())) {
          watch.mark = rushmem_stall_stop(watch.polls, watch.mark.since, reinterpret_cast<uint64_t>(arrived), about,
                                          RUSHMEM_STALL_GRID, -1, blocks, blocks_arrived<W>(seen, blocks));
        }
      }
    }
    fence_acq_rel_gpu();
  }
  __syncthreads();
}

}  // namespace impl
}  // namespace rushmem

#endif
