/* cub::BlockScan: prefixes over all threads' values, in the order of their ranks. */
#ifndef RUSHMEM_CPU_CUB_BLOCK_SCAN_CUH
#define RUSHMEM_CPU_CUB_BLOCK_SCAN_CUH

#include <cub/thread/thread_operators.cuh>
#include <cub/util_type.cuh>

namespace cub {

enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };

template <class T, int X, BlockScanAlgorithm Algorithm = BLOCK_SCAN_RAKING, int Y = 1, int Z = 1,
          int LegacyArch = 0>
class BlockScan {
  static constexpr int threads = X * Y * Z;

 public:
  /* What all threads have, by rank, then what is before each; the sum of all, and what comes before all. */
  struct TempStorage {
    rushmem_cpu_room<T, threads> before;
    rushmem_cpu_room<T, 2> all;
  };

  BlockScan() : room_(rushmem_cpu_private_storage<TempStorage>()) {}
  explicit BlockScan(TempStorage &storage) : room_(storage) {}

  /* ---- sums ---- */
  void InclusiveSum(T in, T &out) { InclusiveScan(in, out, ::cub::Sum()); }
  void InclusiveSum(T in, T &out, T &sum) { InclusiveScan(in, out, ::cub::Sum(), sum); }
  template <int N> void InclusiveSum(T (&in)[N], T (&out)[N]) { InclusiveScan(in, out, ::cub::Sum()); }
  template <int N> void InclusiveSum(T (&in)[N], T (&out)[N], T &sum) {
    InclusiveScan(in, out, ::cub::Sum(), sum);
  }
  void ExclusiveSum(T in, T &out) { ExclusiveScan(in, out, T(), ::cub::Sum()); }
  void ExclusiveSum(T in, T &out, T &sum) { ExclusiveScan(in, out, T(), ::cub::Sum(), sum); }
  template <int N> void ExclusiveSum(T (&in)[N], T (&out)[N]) { ExclusiveScan(in, out, T(), ::cub::Sum()); }
  template <int N> void ExclusiveSum(T (&in)[N], T (&out)[N], T &sum) {
    ExclusiveScan(in, out, T(), ::cub::Sum(), sum);
  }
  /* `prefix(sum)` is called by the first warp; what its first lane returns comes before all. */
  template <class Prefix> void InclusiveSum(T in, T &out, Prefix &prefix) {
    InclusiveScan(in, out, ::cub::Sum(), prefix);
  }
  template <int N, class Prefix> void InclusiveSum(T (&in)[N], T (&out)[N], Prefix &prefix) {
    InclusiveScan(in, out, ::cub::Sum(), prefix);
  }
  template <class Prefix> void ExclusiveSum(T in, T &out, Prefix &prefix) {
    ExclusiveScan(in, out, ::cub::Sum(), prefix);
  }
  template <int N, class Prefix> void ExclusiveSum(T (&in)[N], T (&out)[N], Prefix &prefix) {
    ExclusiveScan(in, out, ::cub::Sum(), prefix);
  }

  /* ---- of any operator ---- */
  template <class Op> void InclusiveScan(T in, T &out, Op op) {
    T ignored;
    InclusiveScan(in, out, op, ignored);
  }
  template <class Op> void InclusiveScan(T in, T &out, Op op, T &sum) {
    scan<true>(&in, &out, 1, nullptr, op, sum);
  }
  template <int N, class Op> void InclusiveScan(T (&in)[N], T (&out)[N], Op op) {
    T ignored;
    InclusiveScan(in, out, op, ignored);
  }
  template <int N, class Op> void InclusiveScan(T (&in)[N], T (&out)[N], Op op, T &sum) {
    scan<true>(in, out, N, nullptr, op, sum);
  }
  template <class Op, class Prefix> void InclusiveScan(T in, T &out, Op op, Prefix &prefix) {
    after<true>(&in, &out, 1, op, prefix);
  }
  template <int N, class Op, class Prefix>
  void InclusiveScan(T (&in)[N], T (&out)[N], Op op, Prefix &prefix) {
    after<true>(in, out, N, op, prefix);
  }
  template <class Op> void ExclusiveScan(T in, T &out, T start, Op op) {
    T ignored;
    ExclusiveScan(in, out, start, op, ignored);
  }
  template <class Op> void ExclusiveScan(T in, T &out, T start, Op op, T &sum) {
    scan<false>(&in, &out, 1, &start, op, sum);
  }
  template <int N, class Op> void ExclusiveScan(T (&in)[N], T (&out)[N], T start, Op op) {
    T ignored;
    ExclusiveScan(in, out, start, op, ignored);
  }
  template <int N, class Op> void ExclusiveScan(T (&in)[N], T (&out)[N], T start, Op op, T &sum) {
    scan<false>(in, out, N, &start, op, sum);
  }
  /* Without a start: thread 0's first result says nothing. */
  template <class Op> void ExclusiveScan(T in, T &out, Op op) {
    T ignored;
    scan<false>(&in, &out, 1, nullptr, op, ignored);
  }
  template <class Op, class Prefix> void ExclusiveScan(T in, T &out, Op op, Prefix &prefix) {
    after<false>(&in, &out, 1, op, prefix);
  }
  template <int N, class Op, class Prefix>
  void ExclusiveScan(T (&in)[N], T (&out)[N], Op op, Prefix &prefix) {
    after<false>(in, out, N, op, prefix);
  }

 private:
  /* Leaves in `before` what is before each thread's items, of which thread 0 has nothing before it; gives the
   * sum of all. */
  template <class Op> T gather(const T *in, int items, Op op) {
    const unsigned rank = rushmem_cpu_rank();
    T own = in[0];
    for (int i = 1; i < items; ++i) own = op(own, in[i]);
    room_.before[rank] = own;
    __syncthreads();
    if (rank == 0) {
      T sum = room_.before[0];
      for (int i = 1; i < threads; ++i) {
        const T next = room_.before[i];
        room_.before[i] = sum;
        sum = op(sum, next);
      }
      room_.all[0] = sum;
    }
    __syncthreads();
    return room_.all[0];
  }
  /* `start` is before everything, or there is nothing. */
  template <bool Inclusive, class Op> void finish(const T *in, T *out, int items, const T *start, Op op) {
    const unsigned rank = rushmem_cpu_rank();
    bool any = start != nullptr || rank > 0;
    T sum = start ? *start : in[0];
    if (rank > 0) sum = start ? op(*start, room_.before[rank]) : room_.before[rank];
    for (int i = 0; i < items; ++i) {
      const T item = in[i], next = any ? op(sum, item) : item;
      out[i] = Inclusive ? next : sum;
      sum = next;
      any = true;
    }
  }
  template <bool Inclusive, class Op>
  void scan(const T *in, T *out, int items, const T *start, Op op, T &sum) {
    sum = gather(in, items, op);
    finish<Inclusive>(in, out, items, start, op);
  }
  template <bool Inclusive, class Op, class Prefix>
  void after(const T *in, T *out, int items, Op op, Prefix &prefix) {
    const T sum = gather(in, items, op);
    if (rushmem_cpu_rank() < 32) {
      const T start = prefix(sum);
      if (rushmem_cpu_rank() == 0) room_.all[1] = start;
    }
    __syncthreads();
    const T start = room_.all[1];
    finish<Inclusive>(in, out, items, &start, op);
  }

  TempStorage &room_;
};

}  // namespace cub

#endif
