/* Where a PE's copy of a symmetric object is. The PEs whose heaps are mapped here are a range of numbers,
 * their heaps a constant stride apart: one comparison and one multiply-add, no table.
 * Each operation asks is_far once; where it is so, impl/net/net.h is the way.
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

/* Seldom: the compiler keeps what follows out of the near path's way. */
RUSHMEM_DEVICE bool is_far(int pe) { return RUSHMEM_UNLIKELY(!is_near(pe)); }

/* The mapped address of near PE `pe`'s copy. Unsigned arithmetic: a PE below this one wraps to its
 * difference. */
template <typename T> RUSHMEM_DEVICE T *near_address(T *local, int pe) {
  const rushmem_device_state &s = state();
  uint64_t slots = static_cast<uint64_t>(static_cast<int64_t>(pe - s.my_pe));
  return reinterpret_cast<T *>(reinterpret_cast<uint64_t>(local) + slots * s.stride);
}

/* What ends a launch that addresses `pe`, to which there is no way. */
RUSHMEM_DEVICE uint32_t why_not_near(int pe) {
  return static_cast<uint32_t>(pe) < static_cast<uint32_t>(state().n_pes) ? RUSHMEM_DEVICE_FAIL_UNMAPPED
                                                                          : RUSHMEM_DEVICE_FAIL_BAD_PE;
}

}  // namespace impl
}  // namespace rushmem

#endif
