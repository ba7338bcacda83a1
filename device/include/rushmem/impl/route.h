/* Where a PE's copy of a symmetric object is. A PE is near where its heap is mapped here. The near PEs are
 * any set of numbers, this PE's own among them, and an operation asks once for its route_to one of them:
 *
 *   - The run of consecutive near PEs around this one takes two comparisons and one multiply-add of 32 bits,
 *     with no load: copies are multiples of 4 GiB apart, so the lower halves of their addresses are the same.
 *   - Every k-th PE (hosts dealt out in turn) takes one multiplication more. `step_inverse` is the inverse of
 *     k's odd part modulo 2^32, and `step_shift` the power of 2 in k: (pe - first) * inverse, rotated right
 *     by shift, is the index among the near PEs where k divides pe - first, and otherwise a number larger
 *     than any index (Granlund and Montgomery, "Division by invariant integers", 9). `near_apart` is the
 *     distance of two windows divided by k in the same arithmetic, modulo 2^64, so that the address has the
 *     same form as in a run. (Its lower half stays 0 where the power of 2 in k divides the windows' distance
 *     in units of 4 GiB, 32 by default.)
 *   - Any other set takes one load from a table of distances.
 *
 * Only the run is in the path that the compiler lays straight. Where a PE is far, impl/net/net.h is the way.
 */
#ifndef RUSHMEM_IMPL_ROUTE_H
#define RUSHMEM_IMPL_ROUTE_H

#include <rushmem/state.h>

namespace rushmem {
namespace impl {

/* The way to one PE. */
struct route {
  uint64_t distance; /* from this PE's copy to that one's, modulo 2^64; means nothing where the PE is far */
  bool near;

  /* Seldom: the compiler keeps what follows out of the near path's way. */
  RUSHMEM_DEVICE bool is_far() const { return RUSHMEM_UNLIKELY(!near); }

  /* The mapped address of that PE's copy. */
  template <typename T> RUSHMEM_DEVICE T *at(T *local) const {
    return reinterpret_cast<T *>(reinterpret_cast<uint64_t>(local) + distance);
  }
};

/* Whether `pe` is in the run around this PE. Two comparisons, not one of a difference: the compiler takes two
 * joined ones out of loops over rounds of an operation, and one it makes again in front of each branch, with
 * a load of constants for which the branch waits (performance-log.md, 16). */
RUSHMEM_DEVICE bool is_in_run(int pe) {
  const rushmem_device_state &s = state();
  return (pe >= s.near_first) & (pe < s.near_first + s.near_count);
}

/* The distance of `pe`'s copy, for a PE of the run, in units of 4 GiB. Unsigned arithmetic: a PE below this
 * one wraps to its difference. */
RUSHMEM_DEVICE uint32_t affine_upper(int pe) {
  const rushmem_device_state &s = state();
  const uint32_t apart = static_cast<uint32_t>(s.near_apart >> 32);
  return static_cast<uint32_t>(pe - s.my_pe) * apart;
}
RUSHMEM_DEVICE uint64_t affine_distance(int pe) { return static_cast<uint64_t>(affine_upper(pe)) << 32; }

/* The mapped address of `pe`'s copy, for a PE of the run. Where all PEs are near they are a run. */
template <typename T> RUSHMEM_DEVICE T *run_address(T *local, int pe) {
  return address_in_run(local, affine_upper(pe));
}

/* The same for a PE outside the run. */
RUSHMEM_DEVICE route route_apart(int pe, uint64_t affine) {
  const rushmem_device_state &s = state();
  const uint32_t times = (static_cast<uint32_t>(pe) - static_cast<uint32_t>(s.step_first)) * s.step_inverse;
  if ((times >> s.step_shift | times << (-s.step_shift & 31)) < s.step_count) return {affine, true};
  if (!s.near_table || static_cast<uint32_t>(pe) >= static_cast<uint32_t>(s.n_pes)) return {affine, false};
  const uint64_t distance = load_constant(s.near_table + pe);
  return {distance, distance != RUSHMEM_NOT_NEAR};
}

RUSHMEM_DEVICE route route_to(int pe) {
  const rushmem_device_state &s = state();
  route to{affine_distance(pe), true};
  /* As is_in_run, which is three instructions more here. A negative `pe` wraps round to a large number. */
  const uint32_t at = static_cast<uint32_t>(pe) - static_cast<uint32_t>(s.near_first);
  if (RUSHMEM_UNLIKELY(at >= static_cast<uint32_t>(s.near_count))) to = route_apart(pe, to.distance);
  return to;
}

/* Single values of mapped PEs. */
template <typename T> RUSHMEM_DEVICE T load_at(const T *local, uint64_t distance) {
  return from_bits<T>(load_mapped_word(reinterpret_cast<const volatile word<T> *>(local), distance));
}
template <typename T> RUSHMEM_DEVICE void store_at(T *local, uint64_t distance, const T &value) {
  store_mapped_word(reinterpret_cast<word<T> *>(local), distance, to_bits(value));
}

/* What ends a launch that addresses `pe`, to which there is no way. */
RUSHMEM_DEVICE uint32_t why_not_near(int pe) {
  return static_cast<uint32_t>(pe) < static_cast<uint32_t>(state().n_pes) ? RUSHMEM_DEVICE_FAIL_UNMAPPED
                                                                          : RUSHMEM_DEVICE_FAIL_BAD_PE;
}

}  // namespace impl
}  // namespace rushmem

#endif
