/* Atomics on words that all PEs' threads update at once: tickets that must form a permutation, sums, bits
 * owned by one thread each, a token handed round by swaps, values that would show a torn or narrow access;
 * and words beside them that nobody may touch. Any grid. Each kernel completes its operations itself. */
#if !defined(RUSHMEM_TEST_CHECK_H)
#include "check.h"
#endif

namespace {

__device__ uint64_t global_thread() {
  uint64_t per_pe = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  return static_cast<uint64_t>(rushmem::my_pe()) * per_pe + static_cast<uint64_t>(blockIdx.x) * blockDim.x +
         threadIdx.x;
}

/* A bit pattern that fills T's width, so that an update of half of it shows. */
template <typename T> __device__ T big(uint64_t seed) { return static_cast<T>(mix(seed)); }

/* Each on its own 3 words at each PE: [0] and [2] are guards. */
template <typename T> __device__ void counting(T *words, unsigned char *marks, int rounds) {
  T *tickets = words + 1, *sum = words + 4, *adds = words + 7, *cas = words + 10;
  for (int i = 0; i < rounds; ++i) {
    for (int pe = 0; pe < rushmem::n_pes(); ++pe) {
      T ticket = i % 2 ? rushmem::atomic_fetch_inc(tickets, pe) : rushmem::atomic_fetch_add(tickets, 1, pe);
      /* One writer a ticket, unless two threads drew the same: then some other is drawn by nobody. */
      rushmem::p(marks + static_cast<size_t>(ticket), static_cast<unsigned char>(1), pe);
      if (i % 2) rushmem::atomic_inc(sum, pe);
      else rushmem::atomic_add(sum, 2, pe);
      rushmem::atomic_add(adds, big<T>(global_thread() * 1000 + static_cast<uint64_t>(i)), pe);
      T seen = rushmem::atomic_fetch(cas, pe);
      for (;;) {
        T found =
            rushmem::atomic_compare_swap(cas, seen, static_cast<T>(static_cast<uint64_t>(seen) + mix(7)), pe);
        if (found == seen) break;
        seen = found;
      }
    }
  }
  rushmem::quiet();
}

template <typename T>
__device__ void check_counting(uint64_t *report, T *words, unsigned char *marks, int rounds) {
  const uint64_t threads = static_cast<uint64_t>(rushmem::n_pes()) * gridDim.x * blockDim.x;
  const uint64_t calls = threads * static_cast<uint64_t>(rounds);
  const uint64_t odd = threads * static_cast<uint64_t>(rounds / 2);
  CHECK_EQ(report, words[1], static_cast<T>(calls), sizeof(T));
  CHECK_EQ(report, words[4], static_cast<T>(odd + 2 * (calls - odd)), sizeof(T));
  /* In unsigned arithmetic, as atomics wrap. */
  uint64_t added = 0;
  for (uint64_t t = 0; t < threads; ++t) {
    for (int i = 0; i < rounds; ++i) added += mix(t * 1000 + static_cast<uint64_t>(i));
  }
  CHECK_EQ(report, words[7], static_cast<T>(added), sizeof(T));
  CHECK_EQ(report, words[10], static_cast<T>(mix(7) * calls), sizeof(T));
  for (uint64_t i = 0; i < calls; ++i) CHECK_EQ(report, marks[i], 1, i);
}

/* Bit (thread % bits) of word (thread / bits) at each PE is this thread's alone. */
template <typename T> __device__ void bits(uint64_t *report, T *words, int rounds) {
  const uint64_t width = 8 * sizeof(T), me = global_thread();
  const T mine = static_cast<T>(T(1) << (me % width)), others = static_cast<T>(~mine);
  T *word = words + me / width;
  for (int pe = 0; pe < rushmem::n_pes(); ++pe) {
    T expected = 0;
    for (int i = 0; i < rounds; ++i) {
      CHECK_EQ(report, rushmem::atomic_fetch_xor(word, mine, pe) & mine, expected, i);
      expected ^= mine;
      CHECK_EQ(report, rushmem::atomic_fetch_or(word, mine, pe) & mine, expected, i);
      CHECK_EQ(report, rushmem::atomic_fetch_and(word, others, pe) & mine, mine, i);
      CHECK_EQ(report, rushmem::atomic_fetch(word, pe) & mine, 0, i);
      rushmem::atomic_or(word, mine, pe);
      rushmem::atomic_xor(word, mine, pe);
      CHECK_EQ(report, rushmem::atomic_fetch(word, pe) & mine, 0, i);
      rushmem::atomic_xor(word, mine, pe);
      rushmem::atomic_and(word, others, pe);
      CHECK_EQ(report, rushmem::atomic_fetch(word, pe) & mine, 0, i);
      expected = 0;
    }
    rushmem::atomic_or(word, mine, pe);
  }
  rushmem::quiet();
}

/* Both halves of a valid value agree: a torn one shows. */
template <typename T> __device__ T whole(uint64_t seed) {
  const uint64_t half = mix(seed) & (sizeof(T) == 8 ? 0xffffffffull : 0xffffull);
  return static_cast<T>(half | half << (4 * sizeof(T)));
}
template <typename T> __device__ bool is_whole(T value) {
  const uint64_t word = static_cast<uint64_t>(value) & (sizeof(T) == 8 ? ~0ull : 0xffffffffull);
  const uint64_t mask = sizeof(T) == 8 ? 0xffffffffull : 0xffffull;
  return (word & mask) == word >> (4 * sizeof(T));
}

/* What goes in by swaps comes out by swaps, or is there in the end: `sums` gets the exclusive or of both. */
template <typename T> __device__ void swapping(uint64_t *report, T *words, uint64_t *sums, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    for (int pe = 0; pe < rushmem::n_pes(); ++pe) {
      T in = whole<T>(global_thread() << 20 | static_cast<uint64_t>(i));
      T out = rushmem::atomic_swap(words + 1, in, pe);
      CHECK(report, is_whole(out), out);
      rushmem::atomic_xor(sums, static_cast<uint64_t>(in) ^ static_cast<uint64_t>(out), pe);
      rushmem::atomic_set(words + 4, in, pe);
      CHECK(report, is_whole(rushmem::atomic_fetch(words + 4, pe)), i);
    }
  }
  rushmem::quiet();
}

}  // namespace

#define ATOMICS(name, type)                                                                                  \
  /* words: 12 zeros but for guards at 0, 2, 3, 5, 6, 8, 9, 11; marks: one byte for each call at this PE. */ \
  extern "C" __global__ void atomics_count_##name(type *words, unsigned char *marks, int rounds) {           \
    counting(words, marks, rounds);                                                                          \
  }                                                                                                          \
  /* A launch of its own, of the same shape, after all PEs' counting. */                                     \
  extern "C" __global__ void atomics_count_check_##name(uint64_t *report, type *words, unsigned char *marks, \
                                                        int rounds) {                                        \
    if (threadIdx.x == 0 && blockIdx.x == 0) check_counting(report, words, marks, rounds);                   \
  }                                                                                                          \
  /* words: zeros, a bit for every thread of the job. */                                                     \
  extern "C" __global__ void atomics_bits_##name(uint64_t *report, type *words, int rounds) {                \
    bits(report, words, rounds);                                                                             \
  }                                                                                                          \
  /* words: 6, of which 1 and 4 are zero and the rest guards. */                                             \
  extern "C" __global__ void atomics_swap_##name(uint64_t *report, type *words, uint64_t *sums,              \
                                                 int rounds) {                                               \
    swapping(report, words, sums, rounds);                                                                   \
  }

ATOMICS(i32, int)
ATOMICS(u32, unsigned int)
ATOMICS(i64, long long)
ATOMICS(u64, unsigned long long)
ATOMICS(size, size_t)

/* Floats: exact sums of small integers, and values carried whole. `singles` and `doubles`: 3 zeros. */
extern "C" __global__ void atomics_floats(uint64_t *report, float *singles, double *doubles, int rounds) {
  const int me = rushmem::my_pe(), n = rushmem::n_pes();
  for (int i = 0; i < rounds; ++i) {
    for (int pe = 0; pe < n; ++pe) {
      rushmem::atomic_add(singles, 1.0f, pe);
      rushmem::atomic_add(doubles, 0.5, pe);
      CHECK(report, rushmem::atomic_fetch_add(doubles, 0.5, pe) >= 0.5, i);
      const float single = static_cast<float>(me) + 0.25f;
      const double both = static_cast<double>(me) + 1.0 / 3.0;
      rushmem::atomic_set(singles + 1, single, pe);
      rushmem::atomic_set(doubles + 1, both, pe);
      const float fraction = rushmem::atomic_fetch(singles + 1, pe);
      CHECK(report, fraction - static_cast<float>(static_cast<int>(fraction)) == 0.25f, i);
      const double third = rushmem::atomic_fetch(doubles + 1, pe);
      CHECK(report, third == static_cast<double>(static_cast<int>(third)) + 1.0 / 3.0, i);
      const double swapped = rushmem::atomic_swap(doubles + 2, both, pe);
      CHECK(report, swapped == 0 || swapped == static_cast<double>(static_cast<int>(swapped)) + 1.0 / 3.0, i);
      CHECK(report, rushmem::atomic_swap(singles + 2, single, pe) >= 0, i);
    }
  }
  rushmem::quiet();
}
