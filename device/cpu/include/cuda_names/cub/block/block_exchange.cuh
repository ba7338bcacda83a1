/* cub::BlockExchange: rearranges the items of a block's threads. Blocked: each thread has items in a row;
 * striped: every threads-th; warp-striped: every 32nd of its warp's. */
#ifndef RUSHMEM_CPU_CUB_BLOCK_EXCHANGE_CUH
#define RUSHMEM_CPU_CUB_BLOCK_EXCHANGE_CUH

#include <cub/util_type.cuh>

namespace cub {

template <class T, int X, int N, bool WarpTimeSlicing = false, int Y = 1, int Z = 1, int LegacyArch = 0>
class BlockExchange {
  static constexpr int threads = X * Y * Z;

 public:
  using TempStorage = rushmem_cpu_room<T, threads * N>;

  BlockExchange() : room_(rushmem_cpu_private_storage<TempStorage>()) {}
  explicit BlockExchange(TempStorage &storage) : room_(storage) {}

#define RUSHMEM_CPU_EXCHANGE(Name, from, to)                                         \
  template <class Out> void Name(const T (&in)[N], Out (&out)[N], RUSHMEM_CPU_HERE) { \
    move(in, out, from, to, file, line);                                             \
  }                                                                                  \
  void Name(T (&items)[N], RUSHMEM_CPU_HERE) { move(items, items, from, to, file, line); }
  RUSHMEM_CPU_EXCHANGE(StripedToBlocked, striped, blocked)
  RUSHMEM_CPU_EXCHANGE(BlockedToStriped, blocked, striped)
  RUSHMEM_CPU_EXCHANGE(WarpStripedToBlocked, warp_striped, blocked)
  RUSHMEM_CPU_EXCHANGE(BlockedToWarpStriped, blocked, warp_striped)
#undef RUSHMEM_CPU_EXCHANGE
  /* To places of their own. */
  template <class Out, class Rank>
  void ScatterToBlocked(const T (&in)[N], Out (&out)[N], Rank (&ranks)[N], RUSHMEM_CPU_HERE) {
    move(in, out, [&ranks](int i) { return (int)ranks[i]; }, blocked, file, line);
  }
  template <class Rank> void ScatterToBlocked(T (&items)[N], Rank (&ranks)[N], RUSHMEM_CPU_HERE) {
    ScatterToBlocked(items, items, ranks, file, line);
  }
  template <class Out, class Rank>
  void ScatterToStriped(const T (&in)[N], Out (&out)[N], Rank (&ranks)[N], RUSHMEM_CPU_HERE) {
    move(in, out, [&ranks](int i) { return (int)ranks[i]; }, striped, file, line);
  }
  template <class Rank> void ScatterToStriped(T (&items)[N], Rank (&ranks)[N], RUSHMEM_CPU_HERE) {
    ScatterToStriped(items, items, ranks, file, line);
  }

 private:
  /* Where the calling thread's i-th item is. */
  static int blocked(int i) { return (int)rushmem_cpu_rank() * N + i; }
  static int striped(int i) { return (int)rushmem_cpu_rank() + i * threads; }
  static int warp_striped(int i) {
    /* The last warp may have fewer lanes. */
    const int warp = (int)rushmem_cpu_rank() / 32,
              lanes = threads - warp * 32 < 32 ? threads - warp * 32 : 32;
    return warp * 32 * N + (int)rushmem_cpu_rank() % 32 + i * lanes;
  }
  template <class Out, class From, class To>
  void move(const T (&in)[N], Out (&out)[N], From from, To to, const char *file, uint32_t line) {
    for (int i = 0; i < N; ++i) room_[from(i)] = in[i];
    __syncthreads(file, line);
    for (int i = 0; i < N; ++i) out[i] = room_[to(i)];
  }

  TempStorage &room_;
};

}  // namespace cub

#endif
