/* cub::BlockLoad: each thread gets some items in a row, whatever the way; BLOCK_LOAD_STRIPED: every
 * threads-th. */
#ifndef RUSHMEM_CPU_CUB_BLOCK_LOAD_CUH
#define RUSHMEM_CPU_CUB_BLOCK_LOAD_CUH

#include <cub/util_type.cuh>

namespace cub {

template <class T, int N, class It> inline void LoadDirectBlocked(int thread, It from, T (&items)[N]) {
  for (int i = 0; i < N; ++i) items[i] = from[thread * N + i];
}
/* Items past the `valid`-th are left as they are. */
template <class T, int N, class It>
inline void LoadDirectBlocked(int thread, It from, T (&items)[N], int valid) {
  for (int i = 0; i < N; ++i)
    if (thread * N + i < valid) items[i] = from[thread * N + i];
}
template <int Threads, class T, int N, class It>
inline void LoadDirectStriped(int thread, It from, T (&items)[N]) {
  for (int i = 0; i < N; ++i) items[i] = from[thread + i * Threads];
}
template <int Threads, class T, int N, class It>
inline void LoadDirectStriped(int thread, It from, T (&items)[N], int valid) {
  for (int i = 0; i < N; ++i)
    if (thread + i * Threads < valid) items[i] = from[thread + i * Threads];
}

enum BlockLoadAlgorithm {
  BLOCK_LOAD_DIRECT,
  BLOCK_LOAD_STRIPED,
  BLOCK_LOAD_VECTORIZE,
  BLOCK_LOAD_TRANSPOSE,
  BLOCK_LOAD_WARP_TRANSPOSE,
  BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED
};

template <class T, int X, int N, BlockLoadAlgorithm Algorithm = BLOCK_LOAD_DIRECT, int Y = 1, int Z = 1,
          int LegacyArch = 0>
class BlockLoad {
  static_assert((Algorithm != BLOCK_LOAD_WARP_TRANSPOSE &&
                 Algorithm != BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED) ||
                    X * Y * Z % 32 == 0,
                "this way takes whole warps");

 public:
  using TempStorage = rushmem_cpu_room<T, X * Y * Z * N>;

  BlockLoad() {}
  explicit BlockLoad(TempStorage &) {}

  template <class It> void Load(It from, T (&items)[N]) { Load(from, items, X * Y * Z * N); }
  template <class It> void Load(It from, T (&items)[N], int valid) {
    const int thread = (int)rushmem_cpu_rank();
    if constexpr (Algorithm == BLOCK_LOAD_STRIPED) LoadDirectStriped<X * Y * Z>(thread, from, items, valid);
    else LoadDirectBlocked(thread, from, items, valid);
  }
  /* Items past the `valid`-th are `other`. */
  template <class It, class Other> void Load(It from, T (&items)[N], int valid, Other other) {
    for (int i = 0; i < N; ++i) items[i] = (T)other;
    Load(from, items, valid);
  }
};

}  // namespace cub

#endif
