/* Sums of complex<double>, which are those of its parts: reductions take words of 8 bytes apart. */
#ifndef RUSHMEM_IMPL_COLL_COMPLEX_H
#define RUSHMEM_IMPL_COLL_COMPLEX_H

#include <rushmem/reduce.h>

namespace rushmem {

#define RUSHMEM_COMPLEX_SUM(name)                                                                                \
  template <typename Scope = thread>                                                                             \
  RUSHMEM_DEVICE void name(const team &t, complex<double> *dst, const complex<double> *src, size_t n, sum op) {  \
    name<Scope>(t, reinterpret_cast<double *>(dst), reinterpret_cast<const double *>(src), 2 * n, op);           \
  }
RUSHMEM_COMPLEX_SUM(reduce)
RUSHMEM_COMPLEX_SUM(reducescatter)
RUSHMEM_COMPLEX_SUM(inscan)
RUSHMEM_COMPLEX_SUM(exscan)
#undef RUSHMEM_COMPLEX_SUM

}  // namespace rushmem

#endif
