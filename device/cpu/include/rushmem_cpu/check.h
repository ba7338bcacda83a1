/* The hooks of checked runs (device/cpu/src/check): a kernel is compiled with -fsanitize=thread, and calls
 * these for each of its accesses, atomics and fences. They hand what they are called with to the checker. The
 * sanitizer's own library is not linked. (Names and arguments: LLVM's tsan_interface.h and
 * tsan_interface_atomic.h) */
#ifndef RUSHMEM_CPU_CHECK_H
#define RUSHMEM_CPU_CHECK_H

#include "rushmem_cpu/hooks.h"

struct rushmem_cpu_atomic_call {
  volatile void *at;
  uint64_t value, compare;
  const void *counter;
  uint32_t bytes, what;
  int32_t order;
};

enum : uint32_t { RUSHMEM_CPU_CHECK_WRITE = 1, RUSHMEM_CPU_CHECK_VOLATILE = 2, RUSHMEM_CPU_CHECK_NBI = 4 };

/* What the library does to PE `pe`'s memory. */
enum : uint32_t {
  RUSHMEM_CPU_REMOTE_READ = 0,
  RUSHMEM_CPU_REMOTE_WRITE = 1,  /* in order behind a fence or quiet */
  RUSHMEM_CPU_REMOTE_ANNOUNCED = 2, /* in order behind the signal of the same call */
  RUSHMEM_CPU_REMOTE_P = 3,
  RUSHMEM_CPU_REMOTE_SET = 4,
  RUSHMEM_CPU_REMOTE_SIGNAL = 5, /* releases */
  RUSHMEM_CPU_REMOTE_ATOMIC = 6,
  RUSHMEM_CPU_REMOTE_FETCH = 7
};

struct rushmem_cpu_remote_call {
  uint64_t at, bytes;
  int64_t stride;
  uint64_t count;
  const void *counter;
  int32_t pe;
  uint32_t what;
};

/* A collective call of a team, as its tag says it; and where the team's slot set is, the call's phase there,
 * and the first member. */
struct rushmem_cpu_collective_call {
  uint64_t size, more, slots, phase;
  const void *counter;
  uint32_t collective, tag;
  int32_t first;
};

struct rushmem_cpu_checker {
  uint32_t bytes;
  void (*access)(rushmem_cpu_thread *self, const volatile void *at, size_t bytes, uint32_t flags,
                 const void *counter);
  uint64_t (*atomic)(rushmem_cpu_thread *self, const rushmem_cpu_atomic_call *call);
  void (*fence)(rushmem_cpu_thread *self, int32_t order);
  void (*order)(rushmem_cpu_thread *self, uint32_t what);
  void (*remote)(rushmem_cpu_thread *self, const rushmem_cpu_remote_call *call);
  void (*collective)(rushmem_cpu_thread *self, const rushmem_cpu_collective_call *call);
  void (*shuffle)(rushmem_cpu_thread *self, uint32_t mask, uint32_t source, const void *counter);
  void (*enter)(rushmem_cpu_thread *self, const void *counter);
  void (*leave)(rushmem_cpu_thread *self);
  void *(*memmove)(void *to, const void *from, size_t bytes);
  void *(*memset)(void *to, int value, size_t bytes);
};

static const rushmem_cpu_checker *rushmem_cpu_check_table;

RUSHMEM_CPU_EXPORT uint32_t rushmem_cpu_check_attach(const rushmem_cpu_checker *checker) {
  if (checker->bytes != sizeof(rushmem_cpu_checker)) return 0;
  rushmem_cpu_check_table = checker;
  return 1;
}

#define RUSHMEM_CPU_UNCHECKED __attribute__((no_sanitize("thread"), noinline, used))
#define RUSHMEM_CPU_CALLER __builtin_return_address(0)

/* ---- for the device headers ---- */

/* 1: what this PE has put is in order; 2: it is complete. 3, 4, 5: what follows, up to 0, are the accesses of
 * a put_nbi, a get_nbi or a put_signal_nbi; 8, up to 0: of a packet. Fences between 6 and 7
 * are the library's own. 9: all before the kernel on its stream is complete. From 16 on: the scope of atomics
 * and fences that follow, and 16 at their end. */
RUSHMEM_CPU_UNCHECKED static void rushmem_cpu_check_order(uint32_t what) {
  if (rushmem_cpu_self) rushmem_cpu_check_table->order(rushmem_cpu_self, what);
}
struct rushmem_cpu_scoped {
  __attribute__((no_sanitize("thread"))) explicit rushmem_cpu_scoped(uint32_t scope) {
    rushmem_cpu_check_order(16 + scope);
  }
  __attribute__((no_sanitize("thread"))) ~rushmem_cpu_scoped() { rushmem_cpu_check_order(16); }
};
RUSHMEM_CPU_UNCHECKED static void rushmem_cpu_check_range(const void *at, size_t bytes, uint32_t flags) {
  if (rushmem_cpu_self && bytes)
    rushmem_cpu_check_table->access(rushmem_cpu_self, at, bytes, flags, RUSHMEM_CPU_CALLER);
}
RUSHMEM_CPU_UNCHECKED static void rushmem_cpu_check_remote(uint32_t what, uint64_t at, uint64_t bytes, int pe,
                                                           int64_t stride, uint64_t count) {
  if (!rushmem_cpu_self || !bytes) return;
  const rushmem_cpu_remote_call call = {at, bytes, stride, count, RUSHMEM_CPU_CALLER, pe, what};
  rushmem_cpu_check_table->remote(rushmem_cpu_self, &call);
}
/* What a collective call is asked for; and, by one thread of its scope, in which phase it is made. */
RUSHMEM_CPU_UNCHECKED static void rushmem_cpu_check_arguments(uint32_t collective, uint64_t size,
                                                              uint64_t more, uint32_t tag) {
  if (!rushmem_cpu_self) return;
  const rushmem_cpu_collective_call call = {size, more, 0, 0, RUSHMEM_CPU_CALLER, collective, tag, -1};
  rushmem_cpu_check_table->collective(rushmem_cpu_self, &call);
}
RUSHMEM_CPU_UNCHECKED static void rushmem_cpu_check_call(uint64_t slots, uint64_t phase, uint32_t tag,
                                                         int first) {
  if (!rushmem_cpu_self) return;
  const rushmem_cpu_collective_call call = {0, 0, slots, phase, RUSHMEM_CPU_CALLER, 0, tag, first};
  rushmem_cpu_check_table->collective(rushmem_cpu_self, &call);
}

/* The value of lane `source` is asked for, which has handed none in. */
RUSHMEM_CPU_UNCHECKED static void rushmem_cpu_check_shuffle(unsigned mask, unsigned source) {
  rushmem_cpu_check_table->shuffle(rushmem_cpu_self, mask, source, RUSHMEM_CPU_CALLER);
}

/* ---- for the compiler ---- */

#pragma GCC visibility push(hidden)
extern "C" {
RUSHMEM_CPU_UNCHECKED void __tsan_init() {}
RUSHMEM_CPU_UNCHECKED void __tsan_func_entry(void *caller) {
  if (rushmem_cpu_self) rushmem_cpu_check_table->enter(rushmem_cpu_self, caller);
}
RUSHMEM_CPU_UNCHECKED void __tsan_func_exit() {
  if (rushmem_cpu_self) rushmem_cpu_check_table->leave(rushmem_cpu_self);
}
#define RUSHMEM_CPU_HOOK(name, size, flags)                                                              \
  RUSHMEM_CPU_UNCHECKED void name(void *at) {                                                            \
    if (rushmem_cpu_self)                                                                                \
      rushmem_cpu_check_table->access(rushmem_cpu_self, at, size, flags, RUSHMEM_CPU_CALLER);            \
  }
#define RUSHMEM_CPU_HOOKS_OF(size)                                                                       \
  RUSHMEM_CPU_HOOK(__tsan_read##size, size, 0)                                                           \
  RUSHMEM_CPU_HOOK(__tsan_write##size, size, 1)                                                          \
  RUSHMEM_CPU_HOOK(__tsan_unaligned_read##size, size, 0)                                                 \
  RUSHMEM_CPU_HOOK(__tsan_unaligned_write##size, size, 1)                                                \
  RUSHMEM_CPU_HOOK(__tsan_volatile_read##size, size, 2)                                                  \
  RUSHMEM_CPU_HOOK(__tsan_volatile_write##size, size, 3)                                                 \
  RUSHMEM_CPU_HOOK(__tsan_unaligned_volatile_read##size, size, 2)                                        \
  RUSHMEM_CPU_HOOK(__tsan_unaligned_volatile_write##size, size, 3)                                       \
  RUSHMEM_CPU_HOOK(__tsan_read_write##size, size, 1)                                                     \
  RUSHMEM_CPU_HOOK(__tsan_unaligned_read_write##size, size, 1)
RUSHMEM_CPU_HOOKS_OF(1)
RUSHMEM_CPU_HOOKS_OF(2)
RUSHMEM_CPU_HOOKS_OF(4)
RUSHMEM_CPU_HOOKS_OF(8)
RUSHMEM_CPU_HOOKS_OF(16)
#undef RUSHMEM_CPU_HOOKS_OF
#undef RUSHMEM_CPU_HOOK
RUSHMEM_CPU_UNCHECKED void __tsan_vptr_update(void **, void *) {}
RUSHMEM_CPU_UNCHECKED void __tsan_vptr_read(void **) {}
RUSHMEM_CPU_UNCHECKED void __tsan_read_range(void *at, size_t bytes) {
  if (rushmem_cpu_self) rushmem_cpu_check_table->access(rushmem_cpu_self, at, bytes, 0, RUSHMEM_CPU_CALLER);
}
RUSHMEM_CPU_UNCHECKED void __tsan_write_range(void *at, size_t bytes) {
  if (rushmem_cpu_self) rushmem_cpu_check_table->access(rushmem_cpu_self, at, bytes, 1, RUSHMEM_CPU_CALLER);
}

/* libc's, for the calls of this shared object alone. */
#define RUSHMEM_CPU_COPY(name)                                                                           \
  RUSHMEM_CPU_UNCHECKED void *name(void *to, const void *from, size_t bytes) {                           \
    if (rushmem_cpu_self) {                                                                              \
      rushmem_cpu_check_table->access(rushmem_cpu_self, from, bytes, 0, RUSHMEM_CPU_CALLER);             \
      rushmem_cpu_check_table->access(rushmem_cpu_self, to, bytes, 1, RUSHMEM_CPU_CALLER);               \
    }                                                                                                    \
    return rushmem_cpu_check_table->memmove(to, from, bytes);                                            \
  }
#define RUSHMEM_CPU_FILL(name)                                                                           \
  RUSHMEM_CPU_UNCHECKED void *name(void *to, int value, size_t bytes) {                                  \
    if (rushmem_cpu_self)                                                                                \
      rushmem_cpu_check_table->access(rushmem_cpu_self, to, bytes, 1, RUSHMEM_CPU_CALLER);               \
    return rushmem_cpu_check_table->memset(to, value, bytes);                                            \
  }
RUSHMEM_CPU_COPY(__tsan_memcpy)
RUSHMEM_CPU_COPY(__tsan_memmove)
RUSHMEM_CPU_FILL(__tsan_memset)
#if !defined(__clang__)
}
/* By other names in this source, which has libc's declarations with attributes of their own. */
extern "C" {
RUSHMEM_CPU_COPY(rushmem_cpu_checked_memcpy)
RUSHMEM_CPU_FILL(rushmem_cpu_checked_memset)
__asm__(".hidden memcpy\n.globl memcpy\n.set memcpy, rushmem_cpu_checked_memcpy\n"
        ".hidden memmove\n.globl memmove\n.set memmove, rushmem_cpu_checked_memcpy\n"
        ".hidden memset\n.globl memset\n.set memset, rushmem_cpu_checked_memset\n");
#endif
#undef RUSHMEM_CPU_COPY
#undef RUSHMEM_CPU_FILL

RUSHMEM_CPU_UNCHECKED static uint64_t rushmem_cpu_checked_atomic(volatile void *at, uint32_t bytes,
                                                                 uint32_t what, uint64_t value,
                                                                 uint64_t compare, int order,
                                                                 const void *counter) {
  const rushmem_cpu_atomic_call call = {at, value, compare, counter, bytes, what, order};
  return rushmem_cpu_check_table->atomic(rushmem_cpu_self, &call);
}
#define RUSHMEM_CPU_UPDATE(bits, T, name, what)                                                          \
  RUSHMEM_CPU_UNCHECKED T __tsan_atomic##bits##_##name(volatile T *at, T value, int order) {             \
    return (T)rushmem_cpu_checked_atomic(at, bits / 8, what, value, 0, order, RUSHMEM_CPU_CALLER);       \
  }
#define RUSHMEM_CPU_COMPARE(bits, T, name)                                                                \
  RUSHMEM_CPU_UNCHECKED int __tsan_atomic##bits##_##name(volatile T *at, T *expected, T value, int order, \
                                                         int) {                                           \
    T seen = (T)rushmem_cpu_checked_atomic(at, bits / 8, 9, value, *expected, order, RUSHMEM_CPU_CALLER); \
    int same = seen == *expected;                                                                         \
    *expected = seen;                                                                                     \
    return same;                                                                                          \
  }
#define RUSHMEM_CPU_ATOMICS(bits, T)                                                                     \
  RUSHMEM_CPU_UNCHECKED T __tsan_atomic##bits##_load(const volatile T *at, int order) {                  \
    return (T)rushmem_cpu_checked_atomic((volatile void *)at, bits / 8, 0, 0, 0, order, RUSHMEM_CPU_CALLER); \
  }                                                                                                      \
  RUSHMEM_CPU_UNCHECKED void __tsan_atomic##bits##_store(volatile T *at, T value, int order) {           \
    rushmem_cpu_checked_atomic(at, bits / 8, 1, value, 0, order, RUSHMEM_CPU_CALLER);                    \
  }                                                                                                      \
  RUSHMEM_CPU_UPDATE(bits, T, exchange, 2)                                                               \
  RUSHMEM_CPU_UPDATE(bits, T, fetch_add, 3)                                                              \
  RUSHMEM_CPU_UPDATE(bits, T, fetch_sub, 4)                                                              \
  RUSHMEM_CPU_UPDATE(bits, T, fetch_and, 5)                                                              \
  RUSHMEM_CPU_UPDATE(bits, T, fetch_or, 6)                                                               \
  RUSHMEM_CPU_UPDATE(bits, T, fetch_xor, 7)                                                              \
  RUSHMEM_CPU_UPDATE(bits, T, fetch_nand, 8)                                                             \
  RUSHMEM_CPU_COMPARE(bits, T, compare_exchange_strong)                                                  \
  RUSHMEM_CPU_COMPARE(bits, T, compare_exchange_weak)                                                    \
  RUSHMEM_CPU_UNCHECKED T __tsan_atomic##bits##_compare_exchange_val(volatile T *at, T expected, T value, \
                                                                     int order, int) {                   \
    return (T)rushmem_cpu_checked_atomic(at, bits / 8, 9, value, expected, order, RUSHMEM_CPU_CALLER);   \
  }
RUSHMEM_CPU_ATOMICS(8, unsigned char)
RUSHMEM_CPU_ATOMICS(16, unsigned short)
RUSHMEM_CPU_ATOMICS(32, unsigned int)
RUSHMEM_CPU_ATOMICS(64, unsigned long)
#undef RUSHMEM_CPU_ATOMICS
#undef RUSHMEM_CPU_COMPARE
#undef RUSHMEM_CPU_UPDATE
RUSHMEM_CPU_UNCHECKED void __tsan_atomic_thread_fence(int order) {
  if (rushmem_cpu_self) rushmem_cpu_check_table->fence(rushmem_cpu_self, order);
}
RUSHMEM_CPU_UNCHECKED void __tsan_atomic_signal_fence(int) { __asm__ volatile("" ::: "memory"); }
}
#pragma GCC visibility pop

#endif
