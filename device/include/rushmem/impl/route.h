/* Where a PE's copy of a symmetric object is. The PEs whose heaps are mapped here are a range of numbers,
 * their heaps a constant stride apart: one comparison and one multiply-add, no table (DESIGN.md, decision 3).
 */
#ifndef RUSHMEM_IMPL_ROUTE_H
#define RUSHMEM_IMPL_ROUTE_H

#include <rushmem/state.h>

namespace rushmem {
namespace impl {

/* A PE whose heap is mapped here. A negative `pe` wraps round to a large number and fails the one comparison.
 */
RUSHMEM_DEVICE bool is_near(int pe) {
  const rushmem_device_state &s = state();
  return static_cast<uint32_t>(pe) - static_cast<uint32_t>(s.near_first) <
         static_cast<uint32_t>(s.near_count);
}

/* The mapped address of near PE `pe`'s copy. Unsigned arithmetic: a PE below this one wraps to its
 * difference. */
template <typename T> RUSHMEM_DEVICE T *near_address(T *local, int pe) {
  const rushmem_device_state &s = state();
  uint64_t slots = static_cast<uint64_t>(static_cast<int64_t>(pe - s.my_pe));
  return reinterpret_cast<T *>(reinterpret_cast<uint64_t>(local) + slots * s.stride);
}

/* What ends a launch that addresses `pe`, which is not near. */
RUSHMEM_DEVICE uint32_t why_not_near(int pe) {
  return static_cast<uint32_t>(pe) < static_cast<uint32_t>(state().n_pes) ? RUSHMEM_DEVICE_FAIL_UNMAPPED
                                                                         : RUSHMEM_DEVICE_FAIL_BAD_PE;
}

/* The address by which an operation reaches PE `pe`'s copy of `local`. Every operation comes through here:
 * the one place from which PEs that are not mapped go another way. There is none yet, so they end the launch. */
template <typename T> RUSHMEM_DEVICE T *route(T *local, int pe) {
  if (RUSHMEM_UNLIKELY(!is_near(pe))) fail(why_not_near(pe));
  return near_address(local, pe);
}

}  // namespace impl
}  // namespace rushmem

#endif
