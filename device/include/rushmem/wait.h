/* Waiting for words of this PE's own symmetric memory that other PEs, or other threads of this one, update.
 * (OpenSHMEM 1.5, 9.10)
 *
 * T is a 4- or 8-byte integer; comparisons are those of T's signedness, the word on the left. `status` may be
 * null; else it has n entries, and a non-zero one leaves that word out. Updates must be whole words: p,
 * atomics, signals.
 *
 * Ordering: when a wait returns, whatever the updates that satisfied it were ordered after (put_signal's
 * data; puts before a fence() and then p or an atomic) is visible to the calling thread, and after
 * __syncthreads to its block.
 *
 * How: polls are relaxed loads, and only the satisfied wait pays for ordering, once: a relaxed round trip
 * between two GPUs takes 1.24 us, and a full fence after the poll would add 0.6 us to each side.
 *
 * A wait that lasts is reported by the host, ends the launch when a PE has died, or at the limit
 * RUSHMEM_WAIT_TIMEOUT.
 */
#ifndef RUSHMEM_WAIT_H
#define RUSHMEM_WAIT_H

#include <rushmem/impl/stall.h>
#include <rushmem/types.h>

#define RUSHMEM_ASSERT_WAITABLE(T)                                                              \
  static_assert(rushmem::impl::is_word_integer<T>::value && (sizeof(T) == 4 || sizeof(T) == 8), \
                "rushmem waits on and tests 4- and 8-byte integers")

namespace rushmem {
namespace impl {

/* Makes this thread's relaxed load of `seen` from `word_` an acquire.
 *
 * A release pattern by the writer synchronises with an acquire pattern here if the latter's read takes the
 * released value or a later one in its release sequence (PTX manual, "Release and Acquire Patterns",
 * "Synchronizes-With"). A relaxed load followed by fence.acquire is one, and on sm_90 that fence waits for
 * nothing (impl/cuda.h).
 *
 * Where there is no such fence, one `ld.acquire` of the same word costs less than the full one. By coherence
 * it reads the same write or a newer one. The same value: done; it does not matter whether another PE wrote
 * the same value meanwhile, as nobody can tell the two apart. Another value may come from a write that never
 * saw the first and brings no knowledge of its data, and there the full fence makes the relaxed load itself
 * the acquire. */
template <typename T> RUSHMEM_DEVICE void acquire_seen(const volatile T *word_, T seen) {
#if defined(RUSHMEM_FENCE_ACQUIRE)
  static_cast<void>(word_);
  static_cast<void>(seen);
  fence_acquire();
#else
  if (RUSHMEM_UNLIKELY(load_acquire(word_) != seen)) fence_acq_rel();
#endif
}

/* `report_as`: what a stall report says of it, if not `how`. */
template <typename T>
RUSHMEM_DEVICE T wait_for(const volatile T *word_, int how, T value, int from_pe = -1, int report_as = 0) {
  return poll([=] { return load_relaxed(word_); }, [=](T seen) { return compare(seen, how, value); },
              [=](stall_watch &watch, T seen) { watch.stop(word_, report_as ? report_as : how, value, seen, from_pe); });
}

/* What each word of a set is compared with: the same value for all, or one each (the `_vector` forms). */
template <typename T> struct one_value {
  T value;
  RUSHMEM_DEVICE T operator[](size_t) const { return value; }
};
template <typename T> struct value_each {
  const T *values;
  RUSHMEM_DEVICE T operator[](size_t i) const { return values[i]; }
};

RUSHMEM_DEVICE bool left_out(const int *status, size_t i) { return status && status[i] != 0; }

template <typename T, typename Values>
RUSHMEM_DEVICE void wait_all(const volatile T *ivars, size_t n, const int *status, int how, Values values) {
  bool any = false;
  for (size_t i = 0; i < n; ++i) {
    if (left_out(status, i)) continue;
    wait_for(ivars + i, how, values[i]);
    any = true;
  }
  /* One fence after all the relaxed loads: an acquire pattern for each of them. */
  if (any) fence_acquire();
}

template <typename T, typename Values>
RUSHMEM_DEVICE size_t wait_any(const volatile T *ivars, size_t n, const int *status, int how, Values values) {
  stall_watch watch;
  for (;;) {
    size_t last = none;
    T seen{};
    for (size_t i = 0; i < n; ++i) {
      if (left_out(status, i)) continue;
      last = i;
      seen = load_relaxed(ivars + i);
      if (compare(seen, how, values[i])) {
        acquire_seen(ivars + i, seen);
        return i;
      }
    }
    if (last == none) return none;
    watch.unsatisfied(ivars + last, how, values[last], seen);
  }
}

/* One pass over the set: the satisfied words' indices, and how many. */
template <typename T, typename Values>
RUSHMEM_DEVICE size_t collect(const volatile T *ivars, size_t n, size_t *indices, const int *status, int how,
                              Values values) {
  size_t count = 0;
  for (size_t i = 0; i < n; ++i) {
    if (!left_out(status, i) && compare(load_relaxed(ivars + i), how, values[i])) indices[count++] = i;
  }
  if (count != 0) fence_acquire();
  return count;
}

template <typename T, typename Values>
RUSHMEM_DEVICE size_t wait_some(const volatile T *ivars, size_t n, size_t *indices, const int *status,
                                int how, Values values) {
  size_t first = 0;
  while (first < n && left_out(status, first)) ++first;
  if (first == n) return 0;
  stall_watch watch;
  for (;;) {
    size_t count = collect(ivars, n, indices, status, how, values);
    if (count != 0) return count;
    watch.unsatisfied(ivars + first, how, values[first], load_relaxed(ivars + first));
  }
}

}  // namespace impl

/* Waits until `*ivar how value`. (shmem_wait_until)
 * Order: acquires. Cost: wait. */
template <typename T> RUSHMEM_DEVICE void wait_until(const volatile T *ivar, int how, impl::same<T> value) {
  RUSHMEM_TRACED(WAIT, "wait_until", true, -1, 0, ivar);
  RUSHMEM_ASSERT_WAITABLE(T);
  impl::acquire_seen(ivar, impl::wait_for(ivar, how, value));
}

/* Waits until each of the n words has satisfied the comparison. An empty set: returns at once.
 * (shmem_wait_until_all)
 * Order: acquires. Cost: wait. */
template <typename T>
RUSHMEM_DEVICE void wait_until_all(const volatile T *ivars, size_t n, const int *status, int how,
                                   impl::same<T> value) {
  RUSHMEM_TRACED(WAIT, "wait_until_all", true, -1, 0, ivars);
  RUSHMEM_ASSERT_WAITABLE(T);
  impl::wait_all(ivars, n, status, how, impl::one_value<T>{value});
}

/* The same with a value for each word. (shmem_wait_until_all_vector)
 * Order: acquires. Cost: wait. */
template <typename T>
RUSHMEM_DEVICE void wait_until_all_vector(const volatile T *ivars, size_t n, const int *status, int how,
                                          const impl::same<T> *values) {
  RUSHMEM_TRACED(WAIT, "wait_until_all_vector", true, -1, 0, ivars);
  RUSHMEM_ASSERT_WAITABLE(T);
  impl::wait_all(ivars, n, status, how, impl::value_each<T>{values});
}

/* Waits until one of the words satisfies the comparison and returns its index. An empty set: returns `none`
 * (SIZE_MAX) at once. (shmem_wait_until_any)
 * Order: acquires. Cost: wait. */
template <typename T>
RUSHMEM_DEVICE size_t wait_until_any(const volatile T *ivars, size_t n, const int *status, int how,
                                     impl::same<T> value) {
  RUSHMEM_TRACED(WAIT, "wait_until_any", true, -1, 0, ivars);
  RUSHMEM_ASSERT_WAITABLE(T);
  return impl::wait_any(ivars, n, status, how, impl::one_value<T>{value});
}

/* The same with a value for each word. (shmem_wait_until_any_vector)
 * Order: acquires. Cost: wait. */
template <typename T>
RUSHMEM_DEVICE size_t wait_until_any_vector(const volatile T *ivars, size_t n, const int *status, int how,
                                            const impl::same<T> *values) {
  RUSHMEM_TRACED(WAIT, "wait_until_any_vector", true, -1, 0, ivars);
  RUSHMEM_ASSERT_WAITABLE(T);
  return impl::wait_any(ivars, n, status, how, impl::value_each<T>{values});
}

/* Waits until at least one word satisfies the comparison, writes the indices of all that do, in order, to
 * `indices` (room for n), and returns how many. An empty set: returns 0 at once. (shmem_wait_until_some)
 * Order: acquires. Cost: wait. */
template <typename T>
RUSHMEM_DEVICE size_t wait_until_some(const volatile T *ivars, size_t n, size_t *indices, const int *status,
                                      int how, impl::same<T> value) {
  RUSHMEM_TRACED(WAIT, "wait_until_some", true, -1, 0, ivars);
  RUSHMEM_ASSERT_WAITABLE(T);
  return impl::wait_some(ivars, n, indices, status, how, impl::one_value<T>{value});
}

/* The same with a value for each word. (shmem_wait_until_some_vector)
 * Order: acquires. Cost: wait. */
template <typename T>
RUSHMEM_DEVICE size_t wait_until_some_vector(const volatile T *ivars, size_t n, size_t *indices,
                                             const int *status, int how, const impl::same<T> *values) {
  RUSHMEM_TRACED(WAIT, "wait_until_some_vector", true, -1, 0, ivars);
  RUSHMEM_ASSERT_WAITABLE(T);
  return impl::wait_some(ivars, n, indices, status, how, impl::value_each<T>{values});
}

}  // namespace rushmem

#endif
