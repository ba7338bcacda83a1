/* CUB's operators. From CUDA 13 on CUB itself lacks Sum, Max and Min: cuda::std::plus, cuda::maximum and
 * cuda::minimum are for every version. */
#ifndef RUSHMEM_CPU_CUB_THREAD_OPERATORS_CUH
#define RUSHMEM_CPU_CUB_THREAD_OPERATORS_CUH

#include <cub/util_type.cuh>
#include <cuda/functional>
#include <cuda/std/functional>

namespace cub {

struct Sum {
  template <class A, class B> auto operator()(const A &a, const B &b) const { return a + b; }
};
using Max = ::cuda::maximum<>;
using Min = ::cuda::minimum<>;

/* The pair with the larger or the smaller value; of equal ones that with the smaller key. */
struct ArgMax {
  template <class K, class V>
  KeyValuePair<K, V> operator()(const KeyValuePair<K, V> &a, const KeyValuePair<K, V> &b) const {
    return b.value > a.value || (!(a.value > b.value) && b.key < a.key) ? b : a;
  }
};
struct ArgMin {
  template <class K, class V>
  KeyValuePair<K, V> operator()(const KeyValuePair<K, V> &a, const KeyValuePair<K, V> &b) const {
    return b.value < a.value || (!(a.value < b.value) && b.key < a.key) ? b : a;
  }
};

}  // namespace cub

#endif
