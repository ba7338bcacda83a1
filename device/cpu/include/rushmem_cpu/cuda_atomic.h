/* <cuda/atomic>: `cuda::atomic`, `cuda::atomic_ref` and fences, in every scope (libcu++, "Synchronization
 * primitives"). Loads and read-modify-writes count as ticks, as CUDA's
 * atomic functions do, so that a loop that polls one lets the rest of the block run. */
#ifndef RUSHMEM_CPU_CUDA_ATOMIC_H
#define RUSHMEM_CPU_CUDA_ATOMIC_H

#include <atomic>
#include <string.h>
#include <type_traits>

#include "rushmem_cpu/atomic.h"
#include "rushmem_cpu/cuda_std.h"

namespace cuda {

enum thread_scope { thread_scope_system, thread_scope_device, thread_scope_block, thread_scope_thread };

using ::std::memory_order;
using ::std::memory_order_acq_rel;
using ::std::memory_order_acquire;
using ::std::memory_order_consume;
using ::std::memory_order_relaxed;
using ::std::memory_order_release;
using ::std::memory_order_seq_cst;

namespace rushmem_cpu_atomics {

/* What a compare-exchange may assume when it fails. */
constexpr memory_order of_failure(memory_order order) {
  return order == memory_order_acq_rel   ? memory_order_acquire
         : order == memory_order_release ? memory_order_relaxed
                                         : order;
}

/* The operations on the `T` at `Self::at()`. Arithmetic that the processor lacks is a loop. */
template <class T, thread_scope Scope, class Self> class operations {
  static_assert(::std::is_trivially_copyable<T>::value, "an atomic's type can be copied as bytes");
  static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8,
                "on the CPU device atomics have 1, 2, 4 or 8 bytes");

  T *at() const { return static_cast<const Self *>(this)->rushmem_cpu_at(); }
  template <class F> T update(F next, memory_order order) const {
    RUSHMEM_CPU_SCOPED(Scope);
    T seen, wanted;
    __atomic_load(at(), &seen, __ATOMIC_RELAXED);
    do {
      wanted = next(seen);
    } while (!__atomic_compare_exchange(at(), &seen, &wanted, false, (int)order, (int)of_failure(order)));
    return rushmem_cpu_noted(at(), seen);
  }
  /* What a pointer is moved by. */
  using step = ::std::conditional_t<::std::is_pointer<T>::value, ::std::ptrdiff_t, T>;
  /* Integers wrap. */
  static T sum(T a, step b) {
    if constexpr (::std::is_integral<T>::value) return (T)((unsigned long long)a + (unsigned long long)b);
    else return (T)(a + b);
  }
  static T difference(T a, step b) {
    if constexpr (::std::is_integral<T>::value) return (T)((unsigned long long)a - (unsigned long long)b);
    else return (T)(a - b);
  }

 public:
  using value_type = T;
  static constexpr bool is_always_lock_free = true;
  bool is_lock_free() const noexcept { return true; }

  T load(memory_order order = memory_order_seq_cst) const noexcept {
    RUSHMEM_CPU_SCOPED(Scope);
    T seen;
    __atomic_load(at(), &seen, (int)order);
    return rushmem_cpu_noted(at(), seen);
  }
  void store(T value, memory_order order = memory_order_seq_cst) const noexcept {
    RUSHMEM_CPU_SCOPED(Scope);
    __atomic_store(at(), &value, (int)order);
    rushmem_cpu_tick();
  }
  T exchange(T value, memory_order order = memory_order_seq_cst) const noexcept {
    RUSHMEM_CPU_SCOPED(Scope);
    T seen;
    __atomic_exchange(at(), &value, &seen, (int)order);
    return rushmem_cpu_noted(at(), seen);
  }
  bool compare_exchange_strong(T &expected, T value, memory_order success,
                               memory_order failure) const noexcept {
    RUSHMEM_CPU_SCOPED(Scope);
    const bool done = __atomic_compare_exchange(at(), &expected, &value, false, (int)success, (int)failure);
    rushmem_cpu_noted(at(), expected);
    return done;
  }
  bool compare_exchange_strong(T &expected, T value,
                               memory_order order = memory_order_seq_cst) const noexcept {
    return compare_exchange_strong(expected, value, order, of_failure(order));
  }
  bool compare_exchange_weak(T &expected, T value, memory_order success,
                             memory_order failure) const noexcept {
    return compare_exchange_strong(expected, value, success, failure);
  }
  bool compare_exchange_weak(T &expected, T value, memory_order order = memory_order_seq_cst) const noexcept {
    return compare_exchange_strong(expected, value, order);
  }

#define RUSHMEM_CPU_FETCH(name, Operand, expression)                                                      \
  T name(Operand value, memory_order order = memory_order_seq_cst) const noexcept {                       \
    return update([value](T old) -> T { return (T)(expression); }, order);                                \
  }
  RUSHMEM_CPU_FETCH(fetch_add, step, sum(old, value))
  RUSHMEM_CPU_FETCH(fetch_sub, step, difference(old, value))
  RUSHMEM_CPU_FETCH(fetch_and, T, old &value)
  RUSHMEM_CPU_FETCH(fetch_or, T, old | value)
  RUSHMEM_CPU_FETCH(fetch_xor, T, old ^ value)
  RUSHMEM_CPU_FETCH(fetch_min, T, value < old ? value : old)
  RUSHMEM_CPU_FETCH(fetch_max, T, old < value ? value : old)
#undef RUSHMEM_CPU_FETCH

  operator T() const noexcept { return load(); }
  T operator++() const noexcept { return sum(fetch_add(1), 1); }
  T operator--() const noexcept { return difference(fetch_sub(1), 1); }
  T operator++(int) const noexcept { return fetch_add(1); }
  T operator--(int) const noexcept { return fetch_sub(1); }
  T operator+=(step value) const noexcept { return sum(fetch_add(value), value); }
  T operator-=(step value) const noexcept { return difference(fetch_sub(value), value); }
  T operator&=(T value) const noexcept { return (T)(fetch_and(value) & value); }
  T operator|=(T value) const noexcept { return (T)(fetch_or(value) | value); }
  T operator^=(T value) const noexcept { return (T)(fetch_xor(value) ^ value); }

  /* Until the value is another one. A notification is not needed: waits poll. */
  void wait(T old, memory_order order = memory_order_seq_cst) const noexcept {
    RUSHMEM_CPU_SCOPED(Scope);
    for (;;) {
      T seen;
      __atomic_load(at(), &seen, (int)order);
      if (memcmp(&seen, &old, sizeof seen) != 0) break;
      rushmem_cpu_spin();
    }
    rushmem_cpu_woke();
  }
  void notify_one() const noexcept { rushmem_cpu_tick(); }
  void notify_all() const noexcept { rushmem_cpu_tick(); }
};

}  // namespace rushmem_cpu_atomics

template <class T, thread_scope Scope = thread_scope_system>
class atomic : public rushmem_cpu_atomics::operations<T, Scope, atomic<T, Scope>> {
 public:
  atomic() noexcept = default; /* nothing is written: a __shared__ one keeps what a thread stored */
  constexpr atomic(T value) noexcept : value_(value) {}
  atomic(const atomic &) = delete;
  atomic &operator=(const atomic &) = delete;
  T operator=(T value) noexcept {
    this->store(value);
    return value;
  }
  T *rushmem_cpu_at() const noexcept { return const_cast<T *>(&value_); }

 private:
  alignas(sizeof(T)) T value_;
};

template <class T, thread_scope Scope = thread_scope_system>
class atomic_ref : public rushmem_cpu_atomics::operations<T, Scope, atomic_ref<T, Scope>> {
 public:
  static constexpr ::std::size_t required_alignment = sizeof(T);
  explicit atomic_ref(T &value) noexcept : at_(&value) {}
  atomic_ref(const atomic_ref &) noexcept = default;
  atomic_ref &operator=(const atomic_ref &) = delete;
  T operator=(T value) const noexcept {
    this->store(value);
    return value;
  }
  T *rushmem_cpu_at() const noexcept { return at_; }

 private:
  T *at_;
};

static inline void atomic_thread_fence(memory_order order, thread_scope scope = thread_scope_system) {
  (void)scope;
  if (order == memory_order_relaxed) return;
  RUSHMEM_CPU_SCOPED(scope);
  __atomic_thread_fence((int)order);
  rushmem_cpu_tick();
}
static inline void atomic_signal_fence(memory_order order) { __atomic_signal_fence((int)order); }

namespace std {

template <class T> using atomic = ::cuda::atomic<T, thread_scope_system>;
template <class T> using atomic_ref = ::cuda::atomic_ref<T, thread_scope_system>;
using ::cuda::atomic_signal_fence;
using ::cuda::atomic_thread_fence;
#define RUSHMEM_CPU_NAMED(name, T) using atomic_##name = ::cuda::atomic<T>;
RUSHMEM_CPU_NAMED(bool, bool)
RUSHMEM_CPU_NAMED(int, int)
RUSHMEM_CPU_NAMED(uint, unsigned)
RUSHMEM_CPU_NAMED(llong, long long)
RUSHMEM_CPU_NAMED(ullong, unsigned long long)
RUSHMEM_CPU_NAMED(int32_t, int32_t)
RUSHMEM_CPU_NAMED(uint32_t, uint32_t)
RUSHMEM_CPU_NAMED(int64_t, int64_t)
RUSHMEM_CPU_NAMED(uint64_t, uint64_t)
RUSHMEM_CPU_NAMED(size_t, ::std::size_t)
#undef RUSHMEM_CPU_NAMED

class atomic_flag {
 public:
  atomic_flag() noexcept = default;
  constexpr atomic_flag(bool set) noexcept : set_(set) {}
  bool test_and_set(memory_order order = memory_order_seq_cst) noexcept { return set_.exchange(1, order); }
  void clear(memory_order order = memory_order_seq_cst) noexcept { set_.store(0, order); }
  bool test(memory_order order = memory_order_seq_cst) const noexcept { return set_.load(order); }
  void wait(bool old, memory_order order = memory_order_seq_cst) const noexcept { set_.wait(old, order); }
  void notify_one() noexcept {}
  void notify_all() noexcept {}

 private:
  ::cuda::atomic<int> set_;
};

}  // namespace std
}  // namespace cuda

#endif
