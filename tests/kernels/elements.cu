/* Single values and strided arrays: p and g for values of every size, also larger than a register; iput and
 * iget with strides on both sides; ptr. One block to a PE. */
#if !defined(RUSHMEM_TEST_CHECK_H)
#include "check.h"
#endif

namespace {

struct three_bytes {
  unsigned char at[3];
};
struct padded {
  double a;
  int b;
};
struct alignas(16) wide {
  unsigned char at[48];
};

template <typename T> __device__ T element(uint64_t seed, int pe, size_t i) {
  T value;
  unsigned char *bytes = reinterpret_cast<unsigned char *>(&value);
  for (size_t b = 0; b < sizeof(T); ++b) bytes[b] = pattern(seed, pe, i * sizeof(T) + b);
  return value;
}

/* Bytes of a type without those at its end, which an assignment need not copy. */
template <typename T> constexpr size_t bytes_of = sizeof(T);
template <> constexpr size_t bytes_of<padded> = sizeof(double) + sizeof(int);

template <typename T> __device__ bool same_bytes(const T &x, const T &y) {
  const unsigned char *a = reinterpret_cast<const unsigned char *>(&x),
                      *b = reinterpret_cast<const unsigned char *>(&y);
  bool same = true;
  for (size_t i = 0; i < bytes_of<T>; ++i) same = same && a[i] == b[i];
  return same;
}

/* Each thread stores its own element and its neighbours in the array are other threads'. */
template <typename T> __device__ void values(uint64_t *report, void *dst_, void *src_, uint64_t seed) {
  T *dst = static_cast<T *>(dst_), *src = static_cast<T *>(src_);
  const int me = rushmem::my_pe(), i = static_cast<int>(threadIdx.x);
  src[i] = element<T>(seed, me, threadIdx.x);
  rushmem::p(dst + i, element<T>(seed + 1, me, threadIdx.x), right_of(me));
  rushmem::barrier_all<rushmem::block>();
  CHECK(report, same_bytes(dst[i], element<T>(seed + 1, left_of(me), threadIdx.x)), sizeof(T));
  CHECK(report, same_bytes(rushmem::g(src + i, right_of(me)), element<T>(seed, right_of(me), threadIdx.x)),
        sizeof(T));
  /* To itself, and seen by plain loads at once. */
  rushmem::p(dst + i, element<T>(seed + 2, me, threadIdx.x), me);
  CHECK(report, same_bytes(dst[i], element<T>(seed + 2, me, threadIdx.x)), sizeof(T));
  rushmem::barrier_all<rushmem::block>();
}

constexpr size_t strided_room = 4096;

template <typename Scope, typename T>
__device__ void strided(uint64_t *report, unsigned char *dst_, unsigned char *src_, uint64_t seed,
                        int round) {
  T *dst = reinterpret_cast<T *>(dst_), *src = reinterpret_cast<T *>(src_);
  const size_t room = strided_room / sizeof(T);
  const int me = rushmem::my_pe();
  const ptrdiff_t to_stride = static_cast<ptrdiff_t>(1 + mix(seed, 1) % 5);
  const ptrdiff_t from_stride = static_cast<ptrdiff_t>(1 + mix(seed, 2) % 5);
  const size_t n = round == 0 ? 0 : static_cast<size_t>(mix(seed, 3) % (room / 5 + 1));
  for (int put = 0; put < 2; ++put) {
    for (size_t i = threadIdx.x; i < room; i += blockDim.x) {
      src[i] = element<T>(seed, me, i);
      dst[i] = element<T>(~seed, me, i);
    }
    rushmem::barrier_all<rushmem::block>();
    if (share<Scope>::mine() == 0) {
      if (put) rushmem::iput<Scope>(dst, src, to_stride, from_stride, n, right_of(me));
      else rushmem::iget<Scope>(dst, src, to_stride, from_stride, n, right_of(me));
    }
    rushmem::barrier_all<rushmem::block>();
    const int from_pe = put ? left_of(me) : right_of(me);
    for (size_t i = threadIdx.x; i < room; i += blockDim.x) {
      size_t at = i / static_cast<size_t>(to_stride);
      bool hit = i % static_cast<size_t>(to_stride) == 0 && at < n;
      T wanted =
          hit ? element<T>(seed, from_pe, at * static_cast<size_t>(from_stride)) : element<T>(~seed, me, i);
      CHECK(report, same_bytes(dst[i], wanted), n << 32 | i);
    }
    rushmem::barrier_all<rushmem::block>();
  }
}

template <typename Scope>
__device__ void strided_types(uint64_t *report, unsigned char *dst, unsigned char *src, uint64_t seed,
                              int rounds) {
  for (int round = 0; round < rounds; ++round) {
    const uint64_t s = mix(seed, static_cast<uint64_t>(round));
    strided<Scope, unsigned char>(report, dst, src, s, round);
    strided<Scope, unsigned short>(report, dst, src, s + 1, round);
    strided<Scope, uint32_t>(report, dst, src, s + 2, round);
    strided<Scope, double>(report, dst, src, s + 3, round);
    strided<Scope, padded>(report, dst, src, s + 4, round);
    strided<Scope, three_bytes>(report, dst, src, s + 5, round);
    strided<Scope, wide>(report, dst, src, s + 6, round);
  }
}

}  // namespace

/* `dst` and `src` have room for 48 bytes a thread. */
extern "C" __global__ void elements_values(uint64_t *report, unsigned char *dst, unsigned char *src,
                                           uint64_t seed) {
  values<char>(report, dst, src, seed);
  values<unsigned short>(report, dst, src, seed + 10);
  values<int>(report, dst, src, seed + 20);
  values<float>(report, dst, src, seed + 30);
  values<long long>(report, dst, src, seed + 40);
  values<double>(report, dst, src, seed + 50);
  values<three_bytes>(report, dst, src, seed + 60);
  values<padded>(report, dst, src, seed + 70);
  values<wide>(report, dst, src, seed + 80);
}

/* `dst` and `src` have room for 4096 bytes. */
extern "C" __global__ void elements_strided(uint64_t *report, unsigned char *dst, unsigned char *src,
                                            int scope, int rounds, uint64_t seed) {
  if (scope == SCOPE_THREAD) strided_types<rushmem::thread>(report, dst, src, seed, rounds);
  else if (scope == SCOPE_WARP) strided_types<rushmem::warp>(report, dst, src, seed, rounds);
  else strided_types<rushmem::block>(report, dst, src, seed, rounds);
}

/* Every PE's word through a plain pointer. `words` has n_pes entries. */
extern "C" __global__ void elements_ptr(uint64_t *report, uint64_t *words, uint64_t seed) {
  const int me = rushmem::my_pe();
  for (int pe = 0; pe < rushmem::n_pes(); ++pe) {
    uint64_t *there = rushmem::ptr(words, pe);
    CHECK(report, there != nullptr, pe);
    if (there) there[me] = mix(seed, static_cast<uint64_t>(me * 1000 + pe));
  }
  rushmem::barrier_all();
  for (int pe = 0; pe < rushmem::n_pes(); ++pe) {
    CHECK_EQ(report, words[pe], mix(seed, static_cast<uint64_t>(pe * 1000 + me)), pe);
  }
  CHECK(report, rushmem::ptr(words, me) == words, 0);
}
