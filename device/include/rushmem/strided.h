/* Strided puts and gets: element i goes from src[i * src_stride] to dst[i * dst_stride]. Strides are in
 * elements and at least 1. Elements between the strided ones are left alone. Otherwise as put and get:
 * blocking, no delivery before quiet(), no order among themselves; see rma.h. */
#ifndef RUSHMEM_STRIDED_H
#define RUSHMEM_STRIDED_H

#include <rushmem/signal.h>

namespace rushmem {

/* Copies n elements of this PE's `src` into `pe`'s `dst`. On return every thread of the scope may change
 * `src`. (OpenSHMEM 1.5, 9.6 shmem_iput)
 * Order: none. Cost: copy, element by element. */
template <typename Scope = thread, typename T>
RUSHMEM_DEVICE void iput(T *dst, const T *src, ptrdiff_t dst_stride, ptrdiff_t src_stride, size_t n, int pe) {
  RUSHMEM_TRACED(RMA, "iput", Scope::rank() == 0, pe, n * sizeof(T), nullptr);
  RUSHMEM_ASSERT_ELEMENT(T);
  const impl::route to = impl::route_to(pe);
  if (to.is_far()) {
    impl::far_iput<Scope>(dst, src, dst_stride, src_stride, n, pe);
  } else {
    impl::copy_strided<Scope, T, false>(to.at(dst), src, dst_stride, src_stride, n);
  }
  Scope::sync();
}

/* The same, and then updates `pe`'s `*sig` by `value` as `sig_op` says (signal::set or signal::add): a PE
 * that waits for the signal then sees all n elements. (rushmem's own: OpenSHMEM 1.5 has put_signal for
 * contiguous data alone) Order: the elements before their signal. Cost: copy, element by element, and
 * release. */
template <typename Scope = thread, typename T>
RUSHMEM_DEVICE void iput_signal(T *dst, const T *src, ptrdiff_t dst_stride, ptrdiff_t src_stride, size_t n,
                                uint64_t *sig, uint64_t value, int sig_op, int pe) {
  RUSHMEM_TRACED(RMA, "iput_signal", Scope::rank() == 0, pe, n * sizeof(T), sig);
  RUSHMEM_ASSERT_ELEMENT(T);
  const impl::route to = impl::route_to(pe);
  if (to.is_far()) {
    /* The scope meets first, as in put_signal: the signal covers the puts of all its threads. */
    Scope::sync();
    impl::far_iput<Scope>(dst, src, dst_stride, src_stride, n, pe);
    if (Scope::rank() == 0) {
      if (n != 0) impl::noted_far_fence();
      impl::far_signal(sig, value, sig_op, pe);
    }
    Scope::sync();
  } else {
    impl::copy_strided<Scope, T, false>(to.at(dst), src, dst_stride, src_stride, n);
    Scope::sync();
    if (Scope::rank() == 0) impl::signal_release(to.at(sig), value, sig_op);
  }
}

/* Copies n elements of `pe`'s `src` into this PE's `dst`. On return every thread of the scope may read `dst`.
 * (OpenSHMEM 1.5, 9.6 shmem_iget)
 * Order: the data is here on return. Cost: round trip and copy, element by element. */
template <typename Scope = thread, typename T>
RUSHMEM_DEVICE void iget(T *dst, const T *src, ptrdiff_t dst_stride, ptrdiff_t src_stride, size_t n, int pe) {
  RUSHMEM_TRACED(RMA, "iget", Scope::rank() == 0, pe, n * sizeof(T), nullptr);
  RUSHMEM_ASSERT_ELEMENT(T);
  const impl::route from = impl::route_to(pe);
  if (from.is_far()) {
    impl::far_iget<Scope>(dst, src, dst_stride, src_stride, n, pe);
  } else {
    impl::copy_strided<Scope, T, true>(dst, from.at(src), dst_stride, src_stride, n);
    impl::loads_before_later();
  }
  Scope::sync();
}

}  // namespace rushmem

#endif
