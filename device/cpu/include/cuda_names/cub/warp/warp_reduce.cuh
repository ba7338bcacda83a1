/* cub::WarpReduce: the first lane of each logical warp gets the reduction of its lanes' values. */
#ifndef RUSHMEM_CPU_CUB_WARP_REDUCE_CUH
#define RUSHMEM_CPU_CUB_WARP_REDUCE_CUH

#include <cub/thread/thread_operators.cuh>
#include <cub/util_type.cuh>

namespace cub {

/* The lanes of a warp of `Threads`, which is a part of a warp where that is a power of two, else its first
 * ones. */
template <int Threads> struct rushmem_cpu_logical_warp {
  static_assert(Threads >= 1 && Threads <= 32, "a logical warp has 1 to 32 threads");
  static constexpr bool divides = (Threads & (Threads - 1)) == 0;
  static constexpr unsigned full = Threads == 32 ? 0xffffffffu : (1u << Threads) - 1u;
  static unsigned lane() { return divides ? rushmem_cpu_lane() & (Threads - 1) : rushmem_cpu_lane(); }
  static unsigned mask() { return full << (rushmem_cpu_lane() - lane()); }
};

template <class T, int Threads = 32, int LegacyArch = 0> class WarpReduce {
  using Warp = rushmem_cpu_logical_warp<Threads>;

 public:
  using TempStorage = rushmem_cpu_room<T, Threads>;

  explicit WarpReduce(TempStorage &storage) : values_(storage) {}

  template <class Op> T Reduce(T value, Op op, int valid, RUSHMEM_CPU_HERE) {
    values_[Warp::lane()] = value;
    __syncwarp(Warp::mask(), file, line);
    if (Warp::lane() == 0)
      for (int i = 1; i < valid; ++i) value = op(value, values_[i]);
    __syncwarp(Warp::mask(), file, line); /* on GPUs no memory is used, nor waited for */
    return value;
  }
  template <class Op> T Reduce(T value, Op op, RUSHMEM_CPU_HERE) {
    return Reduce(value, op, Threads, file, line);
  }
  T Sum(T value, RUSHMEM_CPU_HERE) { return Reduce(value, ::cub::Sum(), Threads, file, line); }
  T Sum(T value, int valid, RUSHMEM_CPU_HERE) { return Reduce(value, ::cub::Sum(), valid, file, line); }

  /* Segments that begin with the lanes of a head flag: the first lane of each gets its reduction. */
  template <class Flag, class Op> T HeadSegmentedReduce(T value, Flag head, Op op, RUSHMEM_CPU_HERE) {
    return segmented(value, head != 0, op, true, file, line);
  }
  template <class Flag> T HeadSegmentedSum(T value, Flag head, RUSHMEM_CPU_HERE) {
    return segmented(value, head != 0, ::cub::Sum(), true, file, line);
  }
  /* Segments that end with the lanes of a tail flag. */
  template <class Flag, class Op> T TailSegmentedReduce(T value, Flag tail, Op op, RUSHMEM_CPU_HERE) {
    return segmented(value, tail != 0, op, false, file, line);
  }
  template <class Flag> T TailSegmentedSum(T value, Flag tail, RUSHMEM_CPU_HERE) {
    return segmented(value, tail != 0, ::cub::Sum(), false, file, line);
  }

 private:
  template <class Op> T segmented(T value, bool flag, Op op, bool heads, const char *file, uint32_t line) {
    values_[Warp::lane()] = value;
    const unsigned flags =
        __ballot_sync(Warp::mask(), flag, file, line) >> (rushmem_cpu_lane() - Warp::lane());
    const unsigned lane = Warp::lane();
    const bool first = lane == 0 || (flags >> (heads ? lane : lane - 1) & 1u);
    for (unsigned i = lane + 1; first && i < Threads; ++i) {
      if (flags >> (heads ? i : i - 1) & 1u) break;
      value = op(value, values_[i]);
    }
    __syncwarp(Warp::mask(), file, line);
    return value;
  }

  TempStorage &values_;
};

}  // namespace cub

#endif
