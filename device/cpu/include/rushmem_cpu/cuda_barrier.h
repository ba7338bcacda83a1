/* <cuda/barrier>, <cuda/latch>, <cuda/semaphore> and <cuda/pipeline> in their simple forms (libcu++,
 * "Synchronization primitives", "Asynchronous operations"). Waits poll. A memcpy_async is done when it
 * returns, which every way of waiting for it allows. */
#ifndef RUSHMEM_CPU_CUDA_BARRIER_H
#define RUSHMEM_CPU_CUDA_BARRIER_H

#include <chrono>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "rushmem_cpu/cuda_atomic.h"

namespace cuda {

/* What a barrier without a completion function calls. */
struct rushmem_cpu_nothing {
  void operator()() const noexcept {}
};

/* One word: phases done in the upper half, arrivals that this phase waits for in the lower one. */
template <thread_scope Scope, class Completion = rushmem_cpu_nothing> class barrier {
 public:
  using arrival_token = uint64_t; /* the phase that was arrived at */

  barrier() = default; /* a __shared__ one: init() */
  barrier(ptrdiff_t expected, Completion completion = Completion())
      : word_((uint32_t)expected), expected_((uint32_t)expected), completion_(completion) {}
  barrier(const barrier &) = delete;
  barrier &operator=(const barrier &) = delete;

  static constexpr ptrdiff_t max() noexcept { return (1 << 20) - 1; }

  [[nodiscard]] arrival_token arrive(ptrdiff_t count = 1) {
    const uint64_t before = count_down(count);
    if ((before & 0xffffffffu) < (uint64_t)count)
      rushmem_cpu_die(
          "cuda::barrier: more arrivals than it was initialised for (init(), or its constructor)");
    if ((before & 0xffffffffu) == (uint64_t)count) {
      completion_();
      RUSHMEM_CPU_SCOPED(Scope);
      const uint32_t expected = __atomic_load_n(&expected_, __ATOMIC_RELAXED);
      __atomic_store_n(&word_, ((before >> 32) + 1) << 32 | expected, __ATOMIC_RELEASE);
    }
    rushmem_cpu_woke();
    return before >> 32;
  }
  void wait(arrival_token phase) const {
    while (!is_past(phase)) rushmem_cpu_spin();
    rushmem_cpu_woke();
  }
  void arrive_and_wait() { wait(arrive()); }
  /* One arrival fewer from the next phase on. */
  void arrive_and_drop() {
    {
      RUSHMEM_CPU_SCOPED(Scope);
      __atomic_fetch_sub(&expected_, 1u, __ATOMIC_RELAXED);
    }
    (void)arrive();
  }
  void wait_parity(bool parity) const {
    while ((phase() & 1u) == (uint32_t)parity) rushmem_cpu_spin();
    rushmem_cpu_woke();
  }
  bool try_wait(arrival_token phase) const {
    if (!is_past(phase)) rushmem_cpu_spin();
    return is_past(phase);
  }
  bool try_wait_parity(bool parity) const {
    if ((phase() & 1u) == (uint32_t)parity) rushmem_cpu_spin();
    return (phase() & 1u) != (uint32_t)parity;
  }
  template <class Rep, class Period>
  bool try_wait_for(arrival_token phase, const ::std::chrono::duration<Rep, Period> &limit) const {
    const uint64_t ns = (uint64_t)::std::chrono::duration_cast<::std::chrono::nanoseconds>(limit).count();
    const uint64_t began = rushmem_cpu_now_ns();
    while (!is_past(phase)) {
      if (rushmem_cpu_now_ns() - began >= ns) return false;
      rushmem_cpu_spin();
    }
    rushmem_cpu_woke();
    return true;
  }

  friend void init(barrier *at, ptrdiff_t expected, Completion completion = Completion()) {
    at->completion_ = completion;
    RUSHMEM_CPU_SCOPED(Scope);
    __atomic_store_n(&at->expected_, (uint32_t)expected, __ATOMIC_RELAXED);
    __atomic_store_n(&at->word_, (uint64_t)(uint32_t)expected, __ATOMIC_RELEASE);
  }

 private:
  uint64_t count_down(ptrdiff_t count) {
    RUSHMEM_CPU_SCOPED(Scope);
    return __atomic_fetch_sub(&word_, (uint64_t)count, __ATOMIC_ACQ_REL);
  }
  uint32_t phase() const {
    RUSHMEM_CPU_SCOPED(Scope);
    return (uint32_t)(__atomic_load_n(&word_, __ATOMIC_ACQUIRE) >> 32);
  }
  bool is_past(arrival_token then) const { return phase() != (uint32_t)then; }

  uint64_t word_;
  uint32_t expected_;
  Completion completion_;
};

template <thread_scope Scope> class latch {
 public:
  explicit latch(ptrdiff_t expected) : left_(expected) {}
  void count_down(ptrdiff_t by = 1) { left_.fetch_sub(by, memory_order_release); }
  bool try_wait() const { return left_.load(memory_order_acquire) <= 0; }
  void wait() const {
    for (ptrdiff_t left; (left = left_.load(memory_order_acquire)) > 0;)
      left_.wait(left, memory_order_acquire);
  }
  void arrive_and_wait(ptrdiff_t by = 1) {
    count_down(by);
    wait();
  }

 private:
  mutable atomic<ptrdiff_t, Scope> left_;
};

template <thread_scope Scope, ptrdiff_t Most = INT32_MAX> class counting_semaphore {
 public:
  counting_semaphore() = default;
  explicit counting_semaphore(ptrdiff_t count) : count_(count) {}
  static constexpr ptrdiff_t max() noexcept { return Most; }
  void release(ptrdiff_t by = 1) { count_.fetch_add(by, memory_order_release); }
  bool try_acquire() {
    ptrdiff_t seen = count_.load(memory_order_relaxed);
    while (seen > 0)
      if (count_.compare_exchange_weak(seen, seen - 1, memory_order_acquire, memory_order_relaxed))
        return true;
    return false;
  }
  void acquire() {
    while (!try_acquire()) count_.wait(0, memory_order_relaxed);
  }

 private:
  atomic<ptrdiff_t, Scope> count_;
};
template <thread_scope Scope> using binary_semaphore = counting_semaphore<Scope, 1>;

/* ---- copies ---- */

/* A number of bytes, and what the addresses are aligned to. */
template <size_t Alignment> struct aligned_size_t {
  static constexpr size_t align = Alignment;
  size_t value;
  explicit constexpr aligned_size_t(size_t bytes) : value(bytes) {}
  constexpr operator size_t() const { return value; }
};

/* Copies of one thread's own, ordered by commits and waits, which have nothing left to wait for. */
template <thread_scope Scope> class pipeline {
 public:
  void producer_acquire() {}
  void producer_commit() {}
  void consumer_wait() {}
  template <class Rep, class Period> bool consumer_wait_for(const ::std::chrono::duration<Rep, Period> &) {
    return true;
  }
  void consumer_release() {}
  void quit() {}
};
static inline pipeline<thread_scope_thread> make_pipeline() { return {}; }
template <uint8_t Prior> inline void pipeline_consumer_wait_prior(pipeline<thread_scope_thread> &) {}

/* By the calling thread. `to` and `from` do not overlap. */
template <class Size, class Sync> inline void memcpy_async(void *to, const void *from, Size bytes, Sync &) {
  memcpy(to, from, (size_t)bytes);
}
/* By a group, of which each thread copies a share. */
template <class Group, class Size, class Sync>
inline auto memcpy_async(const Group &group, void *to, const void *from, Size bytes, Sync &)
    -> decltype((void)group.thread_rank()) {
  const size_t threads = (size_t)group.size(), rank = (size_t)group.thread_rank(), all = (size_t)bytes;
  /* Whole 16 bytes, but for the last. */
  const size_t share = ((all + threads - 1) / threads + 15) / 16 * 16;
  const size_t begin = share * rank < all ? share * rank : all,
               end = begin + share < all ? begin + share : all;
  memcpy((char *)to + begin, (const char *)from + begin, end - begin);
}

namespace std {
template <class Completion = ::cuda::rushmem_cpu_nothing>
using barrier = ::cuda::barrier<thread_scope_system, Completion>;
using latch = ::cuda::latch<thread_scope_system>;
template <ptrdiff_t Most = INT32_MAX>
using counting_semaphore = ::cuda::counting_semaphore<thread_scope_system, Most>;
using binary_semaphore = ::cuda::binary_semaphore<thread_scope_system>;
}  // namespace std
}  // namespace cuda

#endif
