/* Collective synchronisation of all PEs' devices. (OpenSHMEM 1.5, 9.9)
 *
 * One round: every PE writes its count of syncs to a line of its own at every other PE, and waits until all
 * lines here have reached that count. n - 1 stores in parallel and one latency, where a dissemination barrier
 * takes log2(n) of them one after the other. A line has one writer and shares its sectors with no other, and
 * counts only grow: nothing is reset, so a PE that is already in the next sync cannot disturb one that is
 * still leaving this.
 *
 * One caller to a PE at a time: all threads of the scope make the call, and nobody else of this PE (another
 * block, say) is in a sync meanwhile. PEs may call it with different scopes.
 */
#ifndef RUSHMEM_SYNC_H
#define RUSHMEM_SYNC_H

#include <rushmem/impl/route.h>
#include <rushmem/order.h>
#include <rushmem/scope.h>
#include <rushmem/wait.h>

namespace rushmem {
namespace impl {

/* The PE `steps` to the right of this one, 0 < steps < n. */
RUSHMEM_DEVICE int to_the_right(int steps, int me, int n) { return me + steps < n ? me + steps : me + steps - n; }

/* Waits until the PEs `steps`, `steps` + stride ... to the right have entered the sync with number `epoch`: U
 * of them at a time, all their lines in flight together. */
template <int U>
RUSHMEM_DEVICE void wait_arrivals(const rushmem_sync_line *lines, uint64_t epoch, int steps, int stride, int me,
                                  int n) {
  for (; steps < n; steps += U * stride) {
    stall_watch watch;
    for (;;) {
      uint64_t seen[U];
      RUSHMEM_UNROLL
      for (int u = 0; u < U; ++u) {
        const int at = steps + u * stride;
        seen[u] = u == 0 || at < n ? load_relaxed(&lines[to_the_right(at, me, n)].epoch) : epoch;
      }
      int late = -1;
      RUSHMEM_UNROLL
      for (int u = U; u-- > 0;) {
        if (seen[u] < epoch) late = u;
      }
      if (late < 0) break;
      const int pe = to_the_right(steps + late * stride, me, n);
      watch.unsatisfied(&lines[pe].epoch, RUSHMEM_STALL_SYNC, epoch, seen[0], pe);
    }
  }
}

/* The number of this sync, for the thread of that rank, the `fence` made meanwhile.
 *
 * `sync_epoch` has the count of syncs a word for each of n - 1 ranks. Rank i of whatever scope reads word i,
 * after the barrier that a sync begins with and before the one that it ends with, between which words i, i +
 * size ... are written by rank i alone: so none reads what another writes, and the next call, at another
 * scope or in another block, finds the new count in all of them. Read there, and used behind the fence, the
 * load costs no time of its own: the fence takes longer (performance-log.md, 2). */
template <typename Fence> RUSHMEM_DEVICE uint64_t next_epoch(const rushmem_device_state &s, int rank, Fence fence) {
  const uint64_t entered = load_relaxed_word(s.sync_epoch + rank);
  fence();
  return opaque(entered) + 1;
}

/* The general form: where some PEs are not mapped, whose lines are written by posts, or a warp or block has
 * fewer threads than there are PEs to tell. Posted counts of two syncs in a row must not overtake one another
 * on their way, hence the leader's fence before it lets the others go. Out of line: what the near path has to
 * keep in memory for want of registers costs it a trip there behind its fence. */
template <typename Scope> RUSHMEM_OUTLINED void sync_any() {
  const rushmem_device_state &s = state();
  if (Scope::rank() == 0 && s.ring != nullptr) far_fence();
  Scope::sync();
  const int n = s.n_pes, me = s.my_pe, rank = static_cast<int>(Scope::rank());
  const int size = static_cast<int>(Scope::size());
  if (rank < n - 1) {
    const uint64_t epoch = next_epoch(s, rank, [] { fence_acq_rel(); });
    for (int i = rank; i < n - 1; i += size) {
      const int pe = to_the_right(i + 1, me, n);
      const route to = route_to(pe);
      if (to.near) store_relaxed_word(&to.at(s.sync_lines + me)->epoch, epoch);
      else far_p(&s.sync_lines[me].epoch, epoch, pe);
      store_relaxed_word(s.sync_epoch + i, epoch);
    }
    wait_arrivals<1>(s.sync_lines, epoch, rank + 1, size, me, n);
    fence_acquire();
  }
  Scope::sync();
}

template <typename Scope> RUSHMEM_DEVICE void sync_near() {
  const rushmem_device_state &s = state();
  const int n = s.n_pes, me = s.my_pe;
  const int rank = static_cast<int>(Scope::rank()), size = static_cast<int>(Scope::size());
  if (RUSHMEM_UNLIKELY(s.near_count != n || (!is_alone<Scope>::value && size < n - 1))) return sync_any<Scope>();
  /* The first PE that this thread tells, and where: known before the fence, behind which every instruction
   * counts. */
  const int right = to_the_right(rank + 1, me, n);
  rushmem_sync_line *there = opaque(run_address(s.sync_lines + me, right));
  /* Puts what the scope's threads did before the fences below (see signal.h). */
  Scope::sync();
  /* Those that have a PE to tell. */
  if (rank < n - 1) {
    /* One fence, then relaxed stores: a release pattern for each of them. A release store each would have
     * every store wait for the one before. The counts behind the fence, which would wait for them. */
    const uint64_t epoch = next_epoch(s, rank, [] { fence_release(); });
    store_relaxed_word(&there->epoch, epoch);
    store_relaxed_word(s.sync_epoch + rank, epoch);
    if (is_alone<Scope>::value && n > 2) {
      RUSHMEM_ROLLED
      for (int i = 1; i < n - 1; ++i) {
        store_relaxed_word(&run_address(s.sync_lines + me, to_the_right(i + 1, me, n))->epoch, epoch);
        store_relaxed_word(s.sync_epoch + i, epoch);
      }
      wait_arrivals<7>(s.sync_lines, epoch, 1, 1, me, n);
    } else {
      wait_for(&s.sync_lines[right].epoch, RUSHMEM_CMP_GE, epoch, right, RUSHMEM_STALL_SYNC);
    }
    fence_acquire();
  }
  /* All have arrived for all threads, and the new count is there for the next sync. */
  Scope::sync();
}

}  // namespace impl

/* Returns when all PEs have called it. What a PE's scope did to memory before is visible to all after;
 * operations that are not complete without quiet() (nbi, anything to a PE that is not mapped) are not waited
 * for. (OpenSHMEM 1.5, 9.9 shmem_sync_all)
 * Order: the scope's memory accesses before it, before those of all PEs after it. Cost: collective. */
template <typename Scope = thread> RUSHMEM_DEVICE void sync_all() {
  RUSHMEM_TRACED(COLLECTIVE, "sync_all", Scope::rank() == 0, -1, 0, nullptr);
  RUSHMEM_TRACED_ROUND(Scope::rank() == 0, 0, impl::load_relaxed_word(state().sync_epoch) + 1);
  impl::sync_near<Scope>();
}

/* quiet() by all threads of the scope, and sync_all: on return all PEs have called it and all their
 * operations before it are complete everywhere. (OpenSHMEM 1.5, 9.9 shmem_barrier_all)
 *
 * To mapped PEs sync_all alone does it, and no fence.sc is needed: each operation here happens before the
 * release of this PE's epoch, which happens before every PE's return; and two PEs cannot miss one another's
 * puts afterwards (quiet's case in order.h), as each has acquired the other's epoch. Where there are PEs that
 * are not mapped, the scope meets and one thread's quiet serves for all.
 * Order: the scope's operations before it are complete everywhere. Cost: collective and completion. */
template <typename Scope = thread> RUSHMEM_DEVICE void barrier_all() {
  RUSHMEM_TRACED(COLLECTIVE, "barrier_all", Scope::rank() == 0, -1, 0, nullptr);
  RUSHMEM_TRACED_ROUND(Scope::rank() == 0, 0, impl::load_relaxed_word(state().sync_epoch) + 1);
  impl::note(impl::noted_quiet);
  if (RUSHMEM_UNLIKELY(state().ring != nullptr)) {
    Scope::sync();
    if (Scope::rank() == 0) quiet();
  }
  impl::sync_near<Scope>();
}

}  // namespace rushmem

#endif
