/* Asking whether a wait would be satisfied now. Arguments, the types of words, and the ordering that a
 * satisfied test gives are those of the waits (wait.h). (OpenSHMEM 1.5, 9.10)
 *
 * May be called in a loop: on the CPU device an unsatisfied test lets the block's other threads run now and
 * then. */
#ifndef RUSHMEM_TEST_H
#define RUSHMEM_TEST_H

#include <rushmem/wait.h>

namespace rushmem {
namespace impl {

template <typename T, typename Values>
RUSHMEM_DEVICE bool satisfied_all(const volatile T *ivars, size_t n, const int *status, int how,
                                  Values values) {
  breathe();
  for (size_t i = 0; i < n; ++i) {
    if (!left_out(status, i) && !compare(load_relaxed(ivars + i), how, values[i])) return false;
  }
  fence_acquire();
  return true;
}

template <typename T, typename Values>
RUSHMEM_DEVICE size_t satisfied_any(const volatile T *ivars, size_t n, const int *status, int how,
                                    Values values) {
  breathe();
  for (size_t i = 0; i < n; ++i) {
    if (left_out(status, i)) continue;
    T seen = load_relaxed(ivars + i);
    if (compare(seen, how, values[i])) {
      acquire_seen(ivars + i, seen);
      return i;
    }
  }
  return none;
}

}  // namespace impl

/* Whether `*ivar how value`. (shmem_test)
 * Order: acquires, where the answer is yes. Cost: local. */
template <typename T> RUSHMEM_DEVICE bool test(const volatile T *ivar, int how, impl::same<T> value) {
  RUSHMEM_ASSERT_WAITABLE(T);
  impl::breathe();
  T seen = impl::load_relaxed(ivar);
  if (!impl::compare(seen, how, value)) return false;
  impl::acquire_seen(ivar, seen);
  return true;
}

/* Whether all the words satisfy the comparison; true for an empty set. (shmem_test_all)
 * Order: acquires, where the answer is yes. Cost: local. */
template <typename T>
RUSHMEM_DEVICE bool test_all(const volatile T *ivars, size_t n, const int *status, int how,
                             impl::same<T> value) {
  RUSHMEM_ASSERT_WAITABLE(T);
  return impl::satisfied_all(ivars, n, status, how, impl::one_value<T>{value});
}

/* The same with a value for each word. (shmem_test_all_vector)
 * Order: acquires, where the answer is yes. Cost: local. */
template <typename T>
RUSHMEM_DEVICE bool test_all_vector(const volatile T *ivars, size_t n, const int *status, int how,
                                    const impl::same<T> *values) {
  RUSHMEM_ASSERT_WAITABLE(T);
  return impl::satisfied_all(ivars, n, status, how, impl::value_each<T>{values});
}

/* The index of a word that satisfies the comparison, else `none` (SIZE_MAX), which is also an empty set's.
 * (shmem_test_any)
 * Order: acquires, where the answer is yes. Cost: local. */
template <typename T>
RUSHMEM_DEVICE size_t test_any(const volatile T *ivars, size_t n, const int *status, int how,
                               impl::same<T> value) {
  RUSHMEM_ASSERT_WAITABLE(T);
  return impl::satisfied_any(ivars, n, status, how, impl::one_value<T>{value});
}

/* The same with a value for each word. (shmem_test_any_vector)
 * Order: acquires, where the answer is yes. Cost: local. */
template <typename T>
RUSHMEM_DEVICE size_t test_any_vector(const volatile T *ivars, size_t n, const int *status, int how,
                                      const impl::same<T> *values) {
  RUSHMEM_ASSERT_WAITABLE(T);
  return impl::satisfied_any(ivars, n, status, how, impl::value_each<T>{values});
}

/* Writes the indices of all words that satisfy the comparison, in order, to `indices` (room for n), and
 * returns how many: 0 where none does. (shmem_test_some)
 * Order: acquires, where the answer is yes. Cost: local. */
template <typename T>
RUSHMEM_DEVICE size_t test_some(const volatile T *ivars, size_t n, size_t *indices, const int *status,
                                int how, impl::same<T> value) {
  RUSHMEM_ASSERT_WAITABLE(T);
  impl::breathe();
  return impl::collect(ivars, n, indices, status, how, impl::one_value<T>{value});
}

/* The same with a value for each word. (shmem_test_some_vector)
 * Order: acquires, where the answer is yes. Cost: local. */
template <typename T>
RUSHMEM_DEVICE size_t test_some_vector(const volatile T *ivars, size_t n, size_t *indices, const int *status,
                                       int how, const impl::same<T> *values) {
  RUSHMEM_ASSERT_WAITABLE(T);
  impl::breathe();
  return impl::collect(ivars, n, indices, status, how, impl::value_each<T>{values});
}

}  // namespace rushmem

#endif
