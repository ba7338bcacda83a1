/* cub::BlockReduce: thread 0 gets the reduction of all threads' values, in the order of their ranks. */
#ifndef RUSHMEM_CPU_CUB_BLOCK_REDUCE_CUH
#define RUSHMEM_CPU_CUB_BLOCK_REDUCE_CUH

#include <cub/thread/thread_operators.cuh>
#include <cub/util_type.cuh>

namespace cub {

enum BlockReduceAlgorithm {
  BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY,
  BLOCK_REDUCE_RAKING,
  BLOCK_REDUCE_WARP_REDUCTIONS,
  BLOCK_REDUCE_WARP_REDUCTIONS_NONDETERMINISTIC
};

template <class T, int X, BlockReduceAlgorithm Algorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int Y = 1, int Z = 1,
          int LegacyArch = 0>
class BlockReduce {
 public:
  using TempStorage = rushmem_cpu_room<T, X * Y * Z>;

  BlockReduce() : values_(rushmem_cpu_private_storage<TempStorage>()) {}
  explicit BlockReduce(TempStorage &storage) : values_(storage) {}

  template <class Op> T Reduce(T value, Op op, int valid, RUSHMEM_CPU_HERE) {
    const unsigned rank = rushmem_cpu_rank();
    if ((int)rank < valid) values_[rank] = value;
    __syncthreads(file, line);
    if (rank == 0)
      for (int i = 1; i < valid; ++i) value = op(value, values_[i]);
    return value;
  }
  template <class Op> T Reduce(T value, Op op, RUSHMEM_CPU_HERE) {
    return Reduce(value, op, X * Y * Z, file, line);
  }
  template <int Items, class Op> T Reduce(T (&values)[Items], Op op, RUSHMEM_CPU_HERE) {
    T value = values[0];
    for (int i = 1; i < Items; ++i) value = op(value, values[i]);
    return Reduce(value, op, X * Y * Z, file, line);
  }
  T Sum(T value, RUSHMEM_CPU_HERE) { return Reduce(value, ::cub::Sum(), X * Y * Z, file, line); }
  T Sum(T value, int valid, RUSHMEM_CPU_HERE) { return Reduce(value, ::cub::Sum(), valid, file, line); }
  template <int Items> T Sum(T (&values)[Items], RUSHMEM_CPU_HERE) {
    return Reduce(values, ::cub::Sum(), file, line);
  }

 private:
  TempStorage &values_;
};

}  // namespace cub

#endif
