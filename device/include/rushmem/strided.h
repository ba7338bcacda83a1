/* Strided puts and gets: element i goes from src[i * src_stride] to dst[i * dst_stride]. Strides are in
 * elements and at least 1. Elements between the strided ones are left alone. Otherwise as put and get:
 * blocking, no delivery before quiet(), no order among themselves; see rma.h. */
#ifndef RUSHMEM_STRIDED_H
#define RUSHMEM_STRIDED_H

#include <rushmem/rma.h>

namespace rushmem {

/* Copies n elements of this PE's `src` into `pe`'s `dst`. On return every thread of the scope may change
 * `src`. (OpenSHMEM 1.5, 9.6 shmem_iput)
 * Order: none. Cost: copy, element by element. */
template <typename Scope = thread, typename T>
RUSHMEM_DEVICE void iput(T *dst, const T *src, ptrdiff_t dst_stride, ptrdiff_t src_stride, size_t n, int pe) {
  RUSHMEM_ASSERT_ELEMENT(T);
  const impl::route to = impl::route_to(pe);
  if (to.is_far()) {
    if (Scope::rank() == 0) {
      impl::rushmem_far_iput(impl::far_address(dst), impl::far_address(src),
                             static_cast<uint64_t>(dst_stride), static_cast<uint64_t>(src_stride), n,
                             sizeof(T), pe);
    }
  } else {
    impl::copy_strided<Scope, T, false>(to.at(dst), src, dst_stride, src_stride, n);
  }
  Scope::sync();
}

/* Copies n elements of `pe`'s `src` into this PE's `dst`. On return every thread of the scope may read `dst`.
 * (OpenSHMEM 1.5, 9.6 shmem_iget)
 * Order: the data is here on return. Cost: round trip and copy, element by element. */
template <typename Scope = thread, typename T>
RUSHMEM_DEVICE void iget(T *dst, const T *src, ptrdiff_t dst_stride, ptrdiff_t src_stride, size_t n, int pe) {
  RUSHMEM_ASSERT_ELEMENT(T);
  const impl::route from = impl::route_to(pe);
  if (from.is_far()) {
    if (Scope::rank() == 0) {
      impl::rushmem_far_iget(impl::far_address(dst), impl::far_address(src),
                             static_cast<uint64_t>(dst_stride), static_cast<uint64_t>(src_stride), n,
                             sizeof(T), pe);
    }
  } else {
    impl::copy_strided<Scope, T, true>(dst, from.at(src), dst_stride, src_stride, n);
    impl::loads_before_later();
  }
  Scope::sync();
}

}  // namespace rushmem

#endif
