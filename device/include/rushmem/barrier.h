/* Synchronisation of a team. (OpenSHMEM 1.5, 9.9) */
#ifndef RUSHMEM_BARRIER_H
#define RUSHMEM_BARRIER_H

#include <rushmem/impl/coll/call.h>
#include <rushmem/order.h>

namespace rushmem {

/* Returns when all members have called it. What a member's scope did to memory before is visible to all
 * after; operations that are not complete without quiet() (nbi, anything to a PE that is not mapped) are not
 * waited for. (OpenSHMEM 1.5, 9.9 shmem_team_sync) Order: the scope's memory accesses before it, before those
 * of all members after it. Cost: collective. */
template <typename Scope = thread> RUSHMEM_DEVICE void sync(const team &t) {
  RUSHMEM_TRACED(COLLECTIVE, "sync", Scope::rank() == 0, -1, 0, nullptr);
  impl::call<Scope>::meet_only(t, impl::tag_of(RUSHMEM_COLLECTIVE_SYNC, 0), [] {});
}

/* quiet() by all threads of the scope, and sync: on return all members have called it, and all their
 * operations before it are complete everywhere. (NVSHMEM 3, nvshmem_barrier) Order: the scope's operations
 * before it are complete everywhere. Cost: collective and completion. */
template <typename Scope = thread> RUSHMEM_DEVICE void barrier(const team &t) {
  RUSHMEM_TRACED(COLLECTIVE, "barrier", Scope::rank() == 0, -1, 0, nullptr);
  impl::note(impl::noted_quiet);
  /* One thread's quiet serves for all that have met by then (order.h), and comes before they meet others. */
  impl::call<Scope>::meet_only(t, impl::tag_of(RUSHMEM_COLLECTIVE_SYNC, 1), [] {
    if (RUSHMEM_UNLIKELY(state().ring != nullptr)) quiet();
  });
}

}  // namespace rushmem

#endif
