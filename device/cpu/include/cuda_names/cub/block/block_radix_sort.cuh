/* cub::BlockRadixSort: sorts the block's keys, and values with them, by the bits from `begin` up to `end`.
 * Equal keys stay in their order. -0.0 and 0.0 are equal. */
#ifndef RUSHMEM_CPU_CUB_BLOCK_RADIX_SORT_CUH
#define RUSHMEM_CPU_CUB_BLOCK_RADIX_SORT_CUH

#include <algorithm>
#include <string.h>
#include <type_traits>

#include <cub/util_type.cuh>

namespace cub {

template <class Key, int X, int N, class Value = NullType, int RadixBits = 4, bool Memoize = true>
class BlockRadixSort {
  static_assert(sizeof(Key) <= 8, "keys have 1 to 8 bytes");
  static constexpr int threads = X, all = X * N;

 public:
  struct TempStorage {
    rushmem_cpu_room<Key, all> keys;
    rushmem_cpu_room<Value, all> values;
    unsigned short order[all];
  };

  BlockRadixSort() : room_(rushmem_cpu_private_storage<TempStorage>()) {}
  explicit BlockRadixSort(TempStorage &storage) : room_(storage) {}

#define RUSHMEM_CPU_SORT(Name, descending, striped)                                                          \
  void Name(Key(&keys)[N], int begin = 0, int end = (int)sizeof(Key) * 8, RUSHMEM_CPU_HERE) {                \
    NullType values[N];                                                                                      \
    sort(keys, values, begin, end, descending, striped, file, line);                                         \
  }                                                                                                          \
  template <class V>                                                                                         \
  void Name(Key(&keys)[N], V(&values)[N], int begin = 0, int end = (int)sizeof(Key) * 8, RUSHMEM_CPU_HERE) { \
    sort(keys, values, begin, end, descending, striped, file, line);                                         \
  }
  RUSHMEM_CPU_SORT(Sort, false, false)
  RUSHMEM_CPU_SORT(SortDescending, true, false)
  RUSHMEM_CPU_SORT(SortBlockedToStriped, false, true)
  RUSHMEM_CPU_SORT(SortDescendingBlockedToStriped, true, true)
#undef RUSHMEM_CPU_SORT

 private:
  /* A number that is ordered as keys are. */
  static uint64_t digits(Key key, int begin, int end) {
    constexpr int bits = (int)sizeof(Key) * 8;
    constexpr uint64_t sign = 1ull << (bits - 1), most = bits == 64 ? ~0ull : (1ull << (bits % 64)) - 1;
    uint64_t x = 0;
    memcpy(&x, &key, sizeof key);
    constexpr bool is_integer = std::is_integral<Key>::value;
    if constexpr (is_integer) {
      if (std::is_signed<Key>::value) x ^= sign;
    } else {
      if (x == sign) x = 0;
      x = x & sign ? ~x & most : x | sign;
    }
    const int count = end - begin;
    return x >> begin & (count >= 64 ? ~0ull : (1ull << count) - 1);
  }
  template <class V>
  void sort(Key (&keys)[N], V (&values)[N], int begin, int end, bool descending, bool striped,
            const char *file, uint32_t line) {
    const int rank = (int)rushmem_cpu_rank();
    for (int i = 0; i < N; ++i) {
      room_.keys[rank * N + i] = keys[i];
      if constexpr (!std::is_same<V, NullType>::value) room_.values[rank * N + i] = values[i];
    }
    __syncthreads(file, line);
    if (rank == 0) {
      for (int i = 0; i < all; ++i) room_.order[i] = (unsigned short)i;
      std::stable_sort(room_.order, room_.order + all, [&](unsigned a, unsigned b) {
        const uint64_t x = digits(room_.keys[a], begin, end), y = digits(room_.keys[b], begin, end);
        return descending ? y < x : x < y;
      });
    }
    __syncthreads(file, line);
    for (int i = 0; i < N; ++i) {
      const int from = room_.order[striped ? rank + i * threads : rank * N + i];
      keys[i] = room_.keys[from];
      if constexpr (!std::is_same<V, NullType>::value) values[i] = room_.values[from];
    }
  }

  TempStorage &room_;
};

}  // namespace cub

#endif
