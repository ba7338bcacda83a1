/* Ordering and completion of this thread's puts, atomics, signals and nbi operations. (OpenSHMEM 1.5, 9.11)
 *
 * They cover what the calling thread issued, and what other threads issued if a barrier (__syncthreads,
 * __syncwarp) lies between: system-scope fences are cumulative, so that after a block's put_nbi and
 * __syncthreads, one thread's call serves for all.
 */
#ifndef RUSHMEM_ORDER_H
#define RUSHMEM_ORDER_H

#include <rushmem/impl/net/net.h>

namespace rushmem {

/* Everything before is seen before anything after: a PE that sees an effect of an operation after the fence
 * (by a wait or a satisfied test) also sees those before. To mapped PEs, whichever they are: release and
 * acquire suffice for that, together with the later store the fence forms a release pattern. For operations
 * on a PE that is not mapped this holds with later ones on the same PE; what another PE is to see after them
 * takes a quiet(). (OpenSHMEM 1.5, 9.11 shmem_fence, which orders for each PE alone) Order: everything before
 * it, before everything after it. Cost: fence. */
RUSHMEM_DEVICE void fence() {
  impl::breathe();
  impl::note(impl::noted_fence);
  impl::fence_acq_rel();
  if (RUSHMEM_UNLIKELY(state().ring != nullptr)) impl::far_fence();
}

/* Everything before is complete: delivered, visible to every PE, sources and destinations of nbi operations
 * free.
 *
 * More than an ordering of this thread's stores: after quiet() a get or g must not miss another PE's put that
 * was complete before *its* get missed ours (store buffering: x = 1; quiet; read y against y = 1; quiet; read
 * x, where both reading 0 would mean that neither put was complete). Release and acquire allow that outcome;
 * a sequentially consistent fence forbids it. (OpenSHMEM 1.5, 9.11 shmem_quiet)
 * Order: everything before it is complete. Cost: completion. */
RUSHMEM_DEVICE void quiet() {
  RUSHMEM_TRACED(ORDER, "quiet", true, -1, 0, nullptr);
  impl::breathe();
  impl::note(impl::noted_quiet);
  impl::fence_sc();
  if (RUSHMEM_UNLIKELY(state().ring != nullptr)) impl::far_quiet();
}

}  // namespace rushmem

#endif
