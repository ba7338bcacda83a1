/* The wait and test families: every test against a plain loop over random words, and every wait satisfied by
 * another PE, or by another thread of the same block. One block to a PE. */
#if !defined(RUSHMEM_TEST_CHECK_H)
#include "check.h"
#endif

namespace {

template <typename T> __device__ bool holds(T a, int how, T b) {
  if (how == RUSHMEM_CMP_EQ) return a == b;
  if (how == RUSHMEM_CMP_NE) return a != b;
  if (how == RUSHMEM_CMP_GT) return a > b;
  if (how == RUSHMEM_CMP_GE) return a >= b;
  if (how == RUSHMEM_CMP_LT) return a < b;
  return a <= b;
}

/* Few distinct values, so that each comparison is often true and often false; negative ones in T's eyes too.
 */
template <typename T> __device__ T few(uint64_t random) {
  const T values[] = {0, 1, 2, static_cast<T>(-1), static_cast<T>(T(1) << (8 * sizeof(T) - 1))};
  return values[random % 5];
}

constexpr int most = 32;

/* One thread's words: `words` is local symmetric memory, `most` of them, and nobody writes them meanwhile. A
 * wait is only entered where it is satisfied already. */
template <typename T> __device__ void families(uint64_t *report, T *words, int cases, uint64_t seed) {
  T values[most];
  int status[most];
  size_t indices[most], expected[most];
  for (int c = 0; c < cases; ++c) {
    const uint64_t s = mix(seed, static_cast<uint64_t>(c)), info = static_cast<uint64_t>(c) << 8 | sizeof(T);
    const size_t n = mix(s, 1) % (most + 1);
    const int how = static_cast<int>(mix(s, 2) % 6);
    const bool each = mix(s, 3) % 2 != 0, all_out = mix(s, 4) % 16 == 0;
    /* Half of the time nearly all words satisfy an easy comparison, so that "all" happens. */
    const bool easy = mix(s, 5) % 2 != 0;
    const T one = few<T>(mix(s, 6));
    for (size_t i = 0; i < n; ++i) {
      status[i] = all_out || mix(s, 100 + i) % 3 == 0;
      values[i] = each ? few<T>(mix(s, 200 + i)) : one;
      rushmem::atomic_set(words + i, easy ? values[i] : few<T>(mix(s, 300 + i)), rushmem::my_pe());
    }
    const int *left_out = mix(s, 7) % 4 == 0 ? nullptr : status;
    size_t members = 0, count = 0;
    for (size_t i = 0; i < n; ++i) {
      if (left_out && left_out[i]) continue;
      ++members;
      if (holds(words[i], how, values[i])) expected[count++] = i;
    }

    bool all = each ? rushmem::test_all_vector(words, n, left_out, how, values)
                    : rushmem::test_all(words, n, left_out, how, one);
    CHECK_EQ(report, all, count == members, info);
    size_t any = each ? rushmem::test_any_vector(words, n, left_out, how, values)
                      : rushmem::test_any(words, n, left_out, how, one);
    CHECK(report, count == 0 ? any == ~size_t(0) : any < n && !(left_out && left_out[any]), info);
    CHECK(report, count == 0 || holds(words[any], how, values[any]), info);
    size_t some = each ? rushmem::test_some_vector(words, n, indices, left_out, how, values)
                       : rushmem::test_some(words, n, indices, left_out, how, one);
    CHECK_EQ(report, some, count, info);
    for (size_t i = 0; i < some && i < count; ++i) CHECK_EQ(report, indices[i], expected[i], info);
    if (n > 0) CHECK_EQ(report, rushmem::test(words, how, values[0]), holds(words[0], how, values[0]), info);

    if (count == members) {
      if (each) rushmem::wait_until_all_vector(words, n, left_out, how, values);
      else rushmem::wait_until_all(words, n, left_out, how, one);
    }
    if (count > 0 || members == 0) {
      any = each ? rushmem::wait_until_any_vector(words, n, left_out, how, values)
                 : rushmem::wait_until_any(words, n, left_out, how, one);
      CHECK(report, members == 0 ? any == ~size_t(0) : any < n && holds(words[any], how, values[any]), info);
      some = each ? rushmem::wait_until_some_vector(words, n, indices, left_out, how, values)
                  : rushmem::wait_until_some(words, n, indices, left_out, how, one);
      CHECK_EQ(report, some, count, info);
    }
    if (n > 0 && holds(words[0], how, values[0])) rushmem::wait_until(words, how, values[0]);
  }
}

/* n words, one for each PE, every PE sets its own at every PE, in an order of its own; each form waits for
 * it. */
template <typename T> __device__ void from_peers(uint64_t *report, T *words, int form, uint64_t seed) {
  const int me = rushmem::my_pe(), n = rushmem::n_pes();
  const size_t count = static_cast<size_t>(n);
  T values[most];
  size_t indices[most];
  int done[most];
  for (int pe = 0; pe < n; ++pe) {
    values[pe] = static_cast<T>(1 + pe);
    done[pe] = 0;
  }
  const int first = static_cast<int>(mix(seed, static_cast<uint64_t>(me)) % count);
  for (int i = 0; i < n; ++i) rushmem::p(words + me, static_cast<T>(1 + me), (first + i) % n);
  if (form == 0) {
    for (int pe = 0; pe < n; ++pe) rushmem::wait_until(words + pe, rushmem::cmp::eq, values[pe]);
  } else if (form == 1) {
    rushmem::wait_until_all(words, count, nullptr, rushmem::cmp::ne, 0);
  } else if (form == 2) {
    rushmem::wait_until_all_vector(words, count, nullptr, rushmem::cmp::eq, values);
  } else if (form == 3 || form == 4) {
    for (int i = 0; i < n; ++i) {
      size_t at = form == 3 ? rushmem::wait_until_any(words, count, done, rushmem::cmp::gt, 0)
                            : rushmem::wait_until_any_vector(words, count, done, rushmem::cmp::ge, values);
      CHECK(report, at < count && !done[at], at);
      done[at] = 1;
    }
    CHECK_EQ(report, rushmem::wait_until_any(words, count, done, rushmem::cmp::gt, 0), ~size_t(0), form);
  } else {
    for (int left = n; left > 0;) {
      size_t some =
          form == 5 ? rushmem::wait_until_some(words, count, indices, done, rushmem::cmp::ne, 0)
                    : rushmem::wait_until_some_vector(words, count, indices, done, rushmem::cmp::eq, values);
      CHECK(report, some > 0 && some <= static_cast<size_t>(left), some);
      for (size_t i = 0; i < some; ++i) {
        CHECK_EQ(report, done[indices[i]], 0, indices[i]);
        done[indices[i]] = 1;
      }
      left -= static_cast<int>(some);
    }
  }
  for (int pe = 0; pe < n; ++pe) CHECK_EQ(report, words[pe], values[pe], form);
}

}  // namespace

/* `words` has room for 32 of each thread's, 8 bytes each. */
extern "C" __global__ void waits_families(uint64_t *report, uint64_t *words, int type, int cases,
                                          uint64_t seed) {
  uint64_t *mine = words + static_cast<size_t>(threadIdx.x) * most;
  const uint64_t s = mix(seed, threadIdx.x + 1000 * static_cast<uint64_t>(rushmem::my_pe()));
  if (type == 0) families(report, reinterpret_cast<int *>(mine), cases, s);
  else if (type == 1) families(report, reinterpret_cast<unsigned int *>(mine), cases, s);
  else if (type == 2) families(report, reinterpret_cast<long long *>(mine), cases, s);
  else if (type == 3) families(report, reinterpret_cast<unsigned long long *>(mine), cases, s);
  else families(report, reinterpret_cast<long *>(mine), cases, s);
}

/* `words`: zeros, one 8-byte word for each PE (at most 32). Thread 0 alone works. */
extern "C" __global__ void waits_peers(uint64_t *report, uint64_t *words, int type, int form, uint64_t seed) {
  if (threadIdx.x == 0) {
    if (type == 0) from_peers(report, reinterpret_cast<int *>(words), form, seed);
    else if (type == 1) from_peers(report, reinterpret_cast<unsigned int *>(words), form, seed);
    else if (type == 2) from_peers(report, reinterpret_cast<long long *>(words), form, seed);
    else from_peers(report, reinterpret_cast<unsigned long long *>(words), form, seed);
  }
  rushmem::sync_all<rushmem::block>();
}

/* A chain through the threads of one block, backwards, so that each wait begins before its update: thread t
 * waits for word t, which thread t + 1 sets. `words`: blockDim.x + 1 zeros. */
extern "C" __global__ void waits_same_block(uint64_t *report, uint64_t *words, int rounds) {
  const int me = rushmem::my_pe();
  const uint64_t t = threadIdx.x;
  for (int round = 1; round <= rounds; ++round) {
    const uint64_t number = static_cast<uint64_t>(round);
    if (t + 1 != blockDim.x) rushmem::wait_until(words + t, rushmem::cmp::ge, number);
    if (t > 0) rushmem::p(words + t - 1, number, me);
    /* And by a loop of the program's own around a test. */
    while (blockDim.x > 1 && !rushmem::test(words, rushmem::cmp::ge, number)) {
    }
    CHECK(report, rushmem::signal_fetch(words) >= number || blockDim.x == 1, round);
    __syncthreads();
  }
}
