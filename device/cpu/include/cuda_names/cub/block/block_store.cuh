/* cub::BlockStore: the counterpart of cub::BlockLoad. */
#ifndef RUSHMEM_CPU_CUB_BLOCK_STORE_CUH
#define RUSHMEM_CPU_CUB_BLOCK_STORE_CUH

#include <cub/util_type.cuh>

namespace cub {

template <class T, int N, class It> inline void StoreDirectBlocked(int thread, It to, T (&items)[N]) {
  for (int i = 0; i < N; ++i) to[thread * N + i] = items[i];
}
template <class T, int N, class It>
inline void StoreDirectBlocked(int thread, It to, T (&items)[N], int valid) {
  for (int i = 0; i < N; ++i)
    if (thread * N + i < valid) to[thread * N + i] = items[i];
}
template <int Threads, class T, int N, class It>
inline void StoreDirectStriped(int thread, It to, T (&items)[N]) {
  for (int i = 0; i < N; ++i) to[thread + i * Threads] = items[i];
}
template <int Threads, class T, int N, class It>
inline void StoreDirectStriped(int thread, It to, T (&items)[N], int valid) {
  for (int i = 0; i < N; ++i)
    if (thread + i * Threads < valid) to[thread + i * Threads] = items[i];
}

enum BlockStoreAlgorithm {
  BLOCK_STORE_DIRECT,
  BLOCK_STORE_STRIPED,
  BLOCK_STORE_VECTORIZE,
  BLOCK_STORE_TRANSPOSE,
  BLOCK_STORE_WARP_TRANSPOSE,
  BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED
};

template <class T, int X, int N, BlockStoreAlgorithm Algorithm = BLOCK_STORE_DIRECT, int Y = 1, int Z = 1,
          int LegacyArch = 0>
class BlockStore {
  static_assert((Algorithm != BLOCK_STORE_WARP_TRANSPOSE &&
                 Algorithm != BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED) ||
                    X * Y * Z % 32 == 0,
                "this way takes whole warps");

 public:
  using TempStorage = rushmem_cpu_room<T, X * Y * Z * N>;

  BlockStore() {}
  explicit BlockStore(TempStorage &) {}

  template <class It> void Store(It to, T (&items)[N]) { Store(to, items, X * Y * Z * N); }
  template <class It> void Store(It to, T (&items)[N], int valid) {
    const int thread = (int)rushmem_cpu_rank();
    if constexpr (Algorithm == BLOCK_STORE_STRIPED) StoreDirectStriped<X * Y * Z>(thread, to, items, valid);
    else StoreDirectBlocked(thread, to, items, valid);
  }
};

}  // namespace cub

#endif
