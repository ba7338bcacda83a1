/* cub::WarpScan: prefixes over the values of a logical warp's lanes. */
#ifndef RUSHMEM_CPU_CUB_WARP_SCAN_CUH
#define RUSHMEM_CPU_CUB_WARP_SCAN_CUH

#include <cub/warp/warp_reduce.cuh>

namespace cub {

template <class T, int Threads = 32, int LegacyArch = 0> class WarpScan {
  using Warp = rushmem_cpu_logical_warp<Threads>;

 public:
  using TempStorage = rushmem_cpu_room<T, Threads>;

  explicit WarpScan(TempStorage &storage) : values_(storage) {}

  void InclusiveSum(T in, T &out) { InclusiveScan(in, out, ::cub::Sum()); }
  void InclusiveSum(T in, T &out, T &sum) { InclusiveScan(in, out, ::cub::Sum(), sum); }
  void ExclusiveSum(T in, T &out) { ExclusiveScan(in, out, T(), ::cub::Sum()); }
  void ExclusiveSum(T in, T &out, T &sum) { ExclusiveScan(in, out, T(), ::cub::Sum(), sum); }

  template <class Op> void InclusiveScan(T in, T &out, Op op) {
    T before, sum;
    scan(in, before, out, nullptr, op, sum);
  }
  template <class Op> void InclusiveScan(T in, T &out, Op op, T &sum) {
    T before;
    scan(in, before, out, nullptr, op, sum);
  }
  /* The first lane's result says nothing. */
  template <class Op> void ExclusiveScan(T in, T &out, Op op) {
    T with, sum;
    scan(in, out, with, nullptr, op, sum);
  }
  template <class Op> void ExclusiveScan(T in, T &out, T start, Op op) {
    T with, sum;
    scan(in, out, with, &start, op, sum);
  }
  template <class Op> void ExclusiveScan(T in, T &out, T start, Op op, T &sum) {
    T with;
    scan(in, out, with, &start, op, sum);
  }
  /* Both at once. */
  template <class Op> void Scan(T in, T &inclusive, T &exclusive, Op op) {
    T sum;
    scan(in, exclusive, inclusive, nullptr, op, sum);
  }
  template <class Op> void Scan(T in, T &inclusive, T &exclusive, T start, Op op) {
    T sum;
    scan(in, exclusive, inclusive, &start, op, sum);
  }
  /* The value of one lane, to all. */
  T Broadcast(T value, unsigned from) {
    values_[Warp::lane()] = value;
    __syncwarp(Warp::mask());
    const T out = values_[from];
    __syncwarp(Warp::mask());
    return out;
  }

 private:
  template <class Op> void scan(T in, T &before, T &with, const T *start, Op op, T &sum) {
    const unsigned lane = Warp::lane();
    values_[lane] = in;
    __syncwarp(Warp::mask());
    sum = values_[0];
    before = start ? *start : in;
    with = start ? op(*start, values_[0]) : values_[0];
    for (unsigned i = 1; i < Threads; ++i) {
      if (i <= lane) {
        before = with;
        with = op(with, values_[i]);
      }
      sum = op(sum, values_[i]);
    }
    __syncwarp(Warp::mask()); /* on GPUs no memory is used, nor waited for */
  }

  TempStorage &values_;
};

}  // namespace cub

#endif
