/* The platform on the CPU device: the compiler's atomic builtins, and the hooks of device/cpu, where each
 * CUDA thread is a coroutine. A loop that waits must let the other coroutines run: waits do so on every poll,
 * and operations on which a program may spin by itself (test, g, atomics, fences) at some calls. */
#ifndef RUSHMEM_IMPL_CPU_H
#define RUSHMEM_IMPL_CPU_H

#include <rushmem/impl/traits.h>

#include <rushmem/abi.h>
#include <rushmem_cpu/float16_bits.h>
#include <rushmem_cpu/hooks.h>

#define RUSHMEM_DEVICE __device__ inline
#define RUSHMEM_COLD __device__ inline __attribute__((noinline, cold))
#define RUSHMEM_OUTLINED RUSHMEM_COLD
#define RUSHMEM_OUTLINED_LARGE RUSHMEM_OUTLINED
#define RUSHMEM_UNROLL
#define RUSHMEM_ROLLED

namespace rushmem {
namespace impl {

/* Code of its own for what is short and frequent gains nothing here, and compilers take twice as long. */
constexpr bool short_path = false;

/* Several PEs may live in one process, so the state comes with the launch. */
RUSHMEM_DEVICE const rushmem_device_state &device_state() {
  return *reinterpret_cast<const rushmem_device_state *>(rushmem_cpu_state());
}

/* A word that nobody writes as long as kernels run. */
RUSHMEM_DEVICE uint64_t load_constant(const uint64_t *from) { return *from; }

/* Words are read and written in memory that the program may use as any type. */
template <typename W> struct aliasing {
  typedef W type __attribute__((may_alias));
};
template <typename W> using alias = typename aliasing<W>::type;

template <typename W> RUSHMEM_DEVICE W load_relaxed_word(const volatile W *from) {
  return __atomic_load_n(reinterpret_cast<const volatile alias<W> *>(from), __ATOMIC_RELAXED);
}
template <typename W> RUSHMEM_DEVICE W load_acquire_word(const volatile W *from) {
  return __atomic_load_n(reinterpret_cast<const volatile alias<W> *>(from), __ATOMIC_ACQUIRE);
}
template <typename W> RUSHMEM_DEVICE void store_relaxed_word(W *to, W value) {
  __atomic_store_n(reinterpret_cast<alias<W> *>(to), value, __ATOMIC_RELAXED);
}
/* The same of a mapped PE, `distance` from this PE's copy at `local`. What follows a load stays behind it. */
template <typename W> RUSHMEM_DEVICE W load_mapped_word(const volatile W *local, uint64_t distance) {
  const W value = load_relaxed_word(reinterpret_cast<const volatile W *>(reinterpret_cast<uint64_t>(local) + distance));
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  return value;
}
template <typename W> RUSHMEM_DEVICE void store_mapped_word(W *local, uint64_t distance, W value) {
  store_relaxed_word(reinterpret_cast<W *>(reinterpret_cast<uint64_t>(local) + distance), value);
}
template <typename W> RUSHMEM_DEVICE W *address_in_run(W *local, uint32_t upper) {
  return reinterpret_cast<W *>(reinterpret_cast<uint64_t>(local) + (static_cast<uint64_t>(upper) << 32));
}
template <typename W> RUSHMEM_DEVICE void store_release_word(W *to, W value) {
  __atomic_store_n(reinterpret_cast<alias<W> *>(to), value, __ATOMIC_RELEASE);
}
template <typename W> RUSHMEM_DEVICE void add_release_word(W *to, W value) {
  __atomic_fetch_add(reinterpret_cast<alias<W> *>(to), value, __ATOMIC_RELEASE);
}

/* A packet (packed.h): its sequence number after its value, read the other way round. Neither is sent again
 * before the message has been taken, so the two belong together. To a checked run, in which each is carried
 * out in order, they are as on a GPU: a packet says nothing of other memory. */
#if defined(RUSHMEM_CPU_CHECK)
constexpr int store_of_packet = __ATOMIC_RELAXED, load_of_packet = __ATOMIC_RELAXED;
#else
constexpr int store_of_packet = __ATOMIC_RELEASE, load_of_packet = __ATOMIC_ACQUIRE;
#endif
template <typename P> RUSHMEM_DEVICE void store_packet(P *to, uint64_t value, uint64_t sequence) {
  store_relaxed_word(&to->value, value);
  __atomic_store_n(reinterpret_cast<alias<uint64_t> *>(&to->sequence), sequence, store_of_packet);
}
template <typename P> RUSHMEM_DEVICE P load_packet(const P *from) {
  P seen;
  seen.sequence = __atomic_load_n(reinterpret_cast<const alias<uint64_t> *>(&from->sequence), load_of_packet);
  seen.value = load_relaxed_word(&from->value);
  return seen;
}

/* A word that is never read while it is written. */
RUSHMEM_DEVICE uint64_t load_plain_word(const uint64_t *from) { return load_relaxed_word(from); }
RUSHMEM_DEVICE void store_plain_word(uint64_t *to, uint64_t value) { store_relaxed_word(to, value); }

/* What checked runs note (rushmem_cpu/check.h), and nothing otherwise. A fence or quiet orders or completes
 * what this PE has issued and the thread knows of; the accesses of an nbi operation are made at any time
 * until then. A packet's words are polled together. */
enum noted : uint32_t {
  noted_fence = 1,
  noted_quiet = 2,
  noted_put_nbi = 3,
  noted_get_nbi = 4,
  noted_put_signal_nbi = 5,
  noted_packet = 8,
  noted_await_stream = 9
};
#if defined(RUSHMEM_CPU_CHECK)
RUSHMEM_DEVICE void note(noted what) { rushmem_cpu_check_order(what); }
struct noted_nbi {
  explicit RUSHMEM_DEVICE noted_nbi(noted what) { rushmem_cpu_check_order(what); }
  RUSHMEM_DEVICE ~noted_nbi() { rushmem_cpu_check_order(0); }
};
/* What a collective call is asked for, and in which phase of its slot set it is made. */
RUSHMEM_DEVICE void note_arguments(uint32_t collective, uint64_t size, uint64_t more, uint32_t tag) {
  rushmem_cpu_check_arguments(collective, size, more, tag);
}
RUSHMEM_DEVICE void check_call(uint64_t slots, uint64_t phase, uint32_t tag, int first) {
  rushmem_cpu_check_call(slots, phase, tag, first);
}
/* The library's own synchronisation with the host, which orders nothing for the program. */
struct noted_inner {
  RUSHMEM_DEVICE noted_inner() { rushmem_cpu_check_order(6); }
  RUSHMEM_DEVICE ~noted_inner() { rushmem_cpu_check_order(7); }
};
#else
RUSHMEM_DEVICE void note(noted) {}
RUSHMEM_DEVICE void note_arguments(uint32_t, uint64_t, uint64_t, uint32_t) {}
RUSHMEM_DEVICE void check_call(uint64_t, uint64_t, uint32_t, int) {}
struct noted_nbi {
  explicit RUSHMEM_DEVICE noted_nbi(noted) {}
};
#endif

/* What traced runs note (rushmem_cpu/trace.h), and nothing otherwise: a call of the thread that is first in
 * its scope, from here to the end of the function; and in which phase of its slot set a collective call is
 * made (0: of all PEs). */
#if defined(RUSHMEM_CPU_TRACE)
struct traced_call {
  bool noted;
  RUSHMEM_DEVICE traced_call(uint32_t kind, const char *name, bool is_first, int pe, size_t bytes,
                             const volatile void *word_)
      : noted(is_first) {
    if (noted) rushmem_cpu_trace_begin(kind, name, pe, bytes, reinterpret_cast<uint64_t>(word_));
  }
  RUSHMEM_DEVICE ~traced_call() {
    if (noted) rushmem_cpu_trace_end();
  }
};
#define RUSHMEM_TRACED(kind, name, is_first, pe, bytes, word_)                                             \
  const ::rushmem::impl::traced_call traced_here(RUSHMEM_CPU_TRACED_##kind, name, is_first, pe, bytes, word_)
#define RUSHMEM_TRACED_ROUND(is_first, slots, phase) \
  if (is_first) rushmem_cpu_trace_round(slots, phase)
#else
#define RUSHMEM_TRACED(kind, name, is_first, pe, bytes, word_)
#define RUSHMEM_TRACED_ROUND(is_first, slots, phase)
#endif

RUSHMEM_DEVICE void note_call(uint64_t slots, uint64_t phase, uint32_t tag, int first) {
  check_call(slots, phase, tag, first);
  RUSHMEM_TRACED_ROUND(true, slots, phase);
}

/* Adds to a word that blocks of one launch share, after what this thread has done or seen. */
RUSHMEM_DEVICE uint64_t arrive_word(uint64_t *at, uint64_t value) {
  RUSHMEM_CPU_SCOPED(RUSHMEM_CPU_OF_DEVICE);
  return __atomic_fetch_add(reinterpret_cast<alias<uint64_t> *>(at), value, __ATOMIC_RELEASE);
}
/* The launch's own; null where blocks take turns. */
RUSHMEM_DEVICE uint64_t *grid_word() { return rushmem_cpu_self->block->grid_barrier; }
RUSHMEM_DEVICE bool blocks_can_meet() { return grid_word() != nullptr; }
RUSHMEM_DEVICE void fence_acq_rel_gpu() {
  RUSHMEM_CPU_SCOPED(RUSHMEM_CPU_OF_DEVICE);
  __atomic_thread_fence(__ATOMIC_ACQ_REL);
}
/* Stores to a word that threads of this device alone read, after what this thread has done or seen. */
RUSHMEM_DEVICE void store_release_word_gpu(uint64_t *to, uint64_t value) {
  RUSHMEM_CPU_SCOPED(RUSHMEM_CPU_OF_DEVICE);
  store_release_word(to, value);
}

/* 16 bytes of a peer's array, or of this PE's, as two words. */
struct pair {
  uint64_t a, b;
};
RUSHMEM_DEVICE pair load_pair(const void *from) {
  pair v;
  __builtin_memcpy(&v, from, sizeof(v));
  return v;
}
RUSHMEM_DEVICE pair load_own_pair(const void *from) { return load_pair(from); }
RUSHMEM_DEVICE void store_pair(void *to, pair v) { __builtin_memcpy(to, &v, sizeof(v)); }

RUSHMEM_DEVICE void fence_acq_rel() { __atomic_thread_fence(__ATOMIC_ACQ_REL); }
RUSHMEM_DEVICE void fence_sc() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
RUSHMEM_DEVICE void fence_acquire() { __atomic_thread_fence(__ATOMIC_ACQUIRE); }
RUSHMEM_DEVICE void fence_release() { __atomic_thread_fence(__ATOMIC_RELEASE); }
#define RUSHMEM_FENCE_ACQUIRE 1
RUSHMEM_DEVICE void compiler_fence() { __atomic_signal_fence(__ATOMIC_SEQ_CST); }

template <typename T> RUSHMEM_DEVICE T opaque(T value) { return value; }
RUSHMEM_DEVICE char *fixed_address(char *at) { return at; }
RUSHMEM_DEVICE uint32_t thread_in_block_again() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
template <typename T> RUSHMEM_DEVICE T *in_register(T *at, uint32_t) { return at; }
RUSHMEM_DEVICE void meet_lanes() { __syncwarp(); }
RUSHMEM_DEVICE uint32_t lane_again() { return thread_in_block_again() % 32; }

RUSHMEM_DEVICE void prefetch(const void *) {}

/* Kernels of a stream run one after the other, also those that may start early. Checked runs look at what
 * those do before this. */
RUSHMEM_DEVICE void await_kernel_before() { note(noted_await_stream); }
RUSHMEM_DEVICE void let_next_kernel_come() {}

/* After the loads of a get: no later access is performed before them. Costs nothing on x86-64. */
RUSHMEM_DEVICE void loads_before_later() { __atomic_thread_fence(__ATOMIC_ACQUIRE); }

template <typename W> RUSHMEM_DEVICE W fetch_word(const W *from) { return load_relaxed_word(from); }
template <typename W> RUSHMEM_DEVICE void write_word(W *to, W v) { store_relaxed_word(to, v); }
template <typename W> RUSHMEM_DEVICE W fetch_add_word(W *to, W v) {
  return __atomic_fetch_add(reinterpret_cast<alias<W> *>(to), v, __ATOMIC_RELAXED);
}
template <typename W> RUSHMEM_DEVICE W fetch_and_word(W *to, W v) {
  return __atomic_fetch_and(reinterpret_cast<alias<W> *>(to), v, __ATOMIC_RELAXED);
}
template <typename W> RUSHMEM_DEVICE W fetch_or_word(W *to, W v) {
  return __atomic_fetch_or(reinterpret_cast<alias<W> *>(to), v, __ATOMIC_RELAXED);
}
template <typename W> RUSHMEM_DEVICE W fetch_xor_word(W *to, W v) {
  return __atomic_fetch_xor(reinterpret_cast<alias<W> *>(to), v, __ATOMIC_RELAXED);
}
template <typename W> RUSHMEM_DEVICE W swap_word(W *to, W v) {
  return __atomic_exchange_n(reinterpret_cast<alias<W> *>(to), v, __ATOMIC_RELAXED);
}
template <typename W> RUSHMEM_DEVICE W compare_swap_word(W *to, W expected, W v) {
  __atomic_compare_exchange_n(reinterpret_cast<alias<W> *>(to), &expected, v, false, __ATOMIC_RELAXED,
                              __ATOMIC_RELAXED);
  return expected;
}
/* No processor of ours adds floats in memory: read, add, and try to put it back. */
template <typename W, typename Next> RUSHMEM_DEVICE W fetch_update_word(W *to, Next next) {
  W seen = load_relaxed_word(to);
  for (;;) {
    const W found = compare_swap_word(to, seen, next(seen));
    if (found == seen) return seen;
    seen = found;
  }
}
template <typename F> RUSHMEM_DEVICE F fetch_add_float(F *to, F v) {
  const word<F> before = fetch_update_word(reinterpret_cast<word<F> *>(to), [v](word<F> bits) {
    return __builtin_bit_cast(word<F>, static_cast<F>(__builtin_bit_cast(F, bits) + v));
  });
  return __builtin_bit_cast(F, before);
}

/* 16-bit floats, by their bits. */
RUSHMEM_DEVICE float float_of_half(unsigned short bits) { return rushmem_cpu_half_format::widen(bits); }
RUSHMEM_DEVICE unsigned short half_of_float(float value) { return rushmem_cpu_half_format::narrow(value); }
RUSHMEM_DEVICE float float_of_bfloat16(unsigned short bits) { return rushmem_cpu_bfloat16_format::widen(bits); }
RUSHMEM_DEVICE unsigned short bfloat16_of_float(float value) {
  return rushmem_cpu_bfloat16_format::narrow(value);
}
RUSHMEM_DEVICE unsigned short sum_of_halves(unsigned short a, unsigned short b) {
  return rushmem_cpu_half_format::sum(a, b);
}
RUSHMEM_DEVICE unsigned short sum_of_bfloat16s(unsigned short a, unsigned short b) {
  return rushmem_cpu_bfloat16_format::sum(a, b);
}
RUSHMEM_DEVICE unsigned short fetch_add_half(unsigned short *to, unsigned short v) {
  return fetch_update_word(to, [v](unsigned short bits) { return sum_of_halves(bits, v); });
}
RUSHMEM_DEVICE unsigned short fetch_add_bfloat16(unsigned short *to, unsigned short v) {
  return fetch_update_word(to, [v](unsigned short bits) { return sum_of_bfloat16s(bits, v); });
}
/* Without the old value: it costs nothing here. */
template <typename W> RUSHMEM_DEVICE void add_word(W *to, W v) { fetch_add_word(to, v); }
template <typename W> RUSHMEM_DEVICE void and_word(W *to, W v) { fetch_and_word(to, v); }
template <typename W> RUSHMEM_DEVICE void or_word(W *to, W v) { fetch_or_word(to, v); }
template <typename W> RUSHMEM_DEVICE void xor_word(W *to, W v) { fetch_xor_word(to, v); }
template <typename F> RUSHMEM_DEVICE void add_float(F *to, F v) { fetch_add_float(to, v); }
#define RUSHMEM_WORD_IF(name)                                                            \
  template <typename W> RUSHMEM_DEVICE void name##_word_if(uint32_t when, W *to, W v) { \
    if (when) name##_word(to, v);                                                        \
  }
RUSHMEM_WORD_IF(write)
RUSHMEM_WORD_IF(add)
RUSHMEM_WORD_IF(and)
RUSHMEM_WORD_IF(or)
RUSHMEM_WORD_IF(xor)
#undef RUSHMEM_WORD_IF

/* Polls between two looks at the clock. One poll is a round of all the block's threads, so few. */
constexpr uint32_t polls_per_tick = 4;
/* Between two polls of a wait that has lasted so long there is a nap, which takes tens of milliseconds on a
 * busy machine: each is followed by a look. 0: there are no naps. */
constexpr uint64_t naps_after_ns = 1000000;

/* Polls before the first look at the mailbox, and between two. A host has none for this device: only
 * tests. */
constexpr uint32_t polls_before_help = 4;
constexpr uint32_t polls_per_help = 4;
RUSHMEM_DEVICE bool is_first_lane() { return true; }

/* After an unsatisfied poll; the first of a wait tells the scheduler that the one before has ended, without
 * which it would take many short waits for one long one, and nap between its polls. */
RUSHMEM_DEVICE void pause(bool first) {
  if (first) rushmem_cpu_woke();
  rushmem_cpu_spin();
}
/* A wait lasts: the scheduler says where the threads of its block are. */
RUSHMEM_DEVICE void note_stall() { rushmem_cpu_stalled(); }
RUSHMEM_DEVICE void breathe() { rushmem_cpu_tick(); }
RUSHMEM_DEVICE uint64_t now_ns() { return rushmem_cpu_now_ns(); }
[[noreturn]] RUSHMEM_COLD void fail(uint32_t why) { rushmem_cpu_exit(why); }

}  // namespace impl
}  // namespace rushmem

#endif
