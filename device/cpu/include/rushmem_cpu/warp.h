/* Warp collectives. Each is one exchange: the lane hands in up to 64 bits, waits for the other live lanes of
 * the mask and then sees what all of them handed in. Lanes that have exited are not waited for.
 * `__activemask` answers with the calling lane alone: every lane runs by itself here, so that is the one
 * answer that is always true, and code that aggregates over it stays right. */
#ifndef RUSHMEM_CPU_WARP_H
#define RUSHMEM_CPU_WARP_H

#include <string.h>
#include <type_traits>

#include "rushmem_cpu/sync.h"

static inline uint32_t rushmem_cpu_lane() { return rushmem_cpu_self->linear & 31u; }

/* `what` tells the operations apart: lanes that meet under one mask must agree on it. */
static inline const rushmem_cpu_thread *rushmem_cpu_exchange(const char *what, unsigned mask, uint64_t value,
                                                             const char *file, uint32_t line) {
  rushmem_cpu_thread *self = rushmem_cpu_self;
  self->request = RUSHMEM_CPU_WARP;
  self->mask = mask;
  self->value = value;
  self->what = what;
  self->file = file;
  self->line = line;
  rushmem_cpu_table->suspend(self);
  return self;
}

static inline void __syncwarp(unsigned mask = 0xffffffffu, RUSHMEM_CPU_HERE) {
  rushmem_cpu_exchange("__syncwarp()", mask, 0, file, line);
}
static inline unsigned __activemask() { return 1u << rushmem_cpu_lane(); }

static inline unsigned __ballot_sync(unsigned mask, int predicate, RUSHMEM_CPU_HERE) {
  const rushmem_cpu_thread *all = rushmem_cpu_exchange("__ballot_sync()", mask, predicate != 0, file, line);
  unsigned votes = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    if (all->result >> lane & 1u) votes |= (unsigned)all->values[lane] << lane;
  return votes;
}
static inline int __any_sync(unsigned mask, int predicate, RUSHMEM_CPU_HERE) {
  const rushmem_cpu_thread *all = rushmem_cpu_exchange("__any_sync()", mask, predicate != 0, file, line);
  for (unsigned lane = 0; lane < 32; ++lane)
    if ((all->result >> lane & 1u) && all->values[lane]) return 1;
  return 0;
}
static inline int __all_sync(unsigned mask, int predicate, RUSHMEM_CPU_HERE) {
  const rushmem_cpu_thread *all = rushmem_cpu_exchange("__all_sync()", mask, predicate != 0, file, line);
  for (unsigned lane = 0; lane < 32; ++lane)
    if ((all->result >> lane & 1u) && !all->values[lane]) return 0;
  return 1;
}

/* What lanes pass on: numbers. cuda_fp16.h and cuda_bf16.h add theirs. */
template <class T> struct rushmem_cpu_is_passed : std::is_arithmetic<T> {};

template <class T> static inline uint64_t rushmem_cpu_bits(T value) {
  static_assert(rushmem_cpu_is_passed<T>::value && sizeof(T) <= 8,
                "warp operations take arithmetic types of 1 to 8 bytes");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T> static inline T rushmem_cpu_from_bits(uint64_t bits) {
  T value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* The value of lane `source`, or the caller's own where that lane is out of `range` or did not take part. */
template <class T>
static inline T rushmem_cpu_pick(const rushmem_cpu_thread *all, unsigned source, bool in_range, T own) {
  if (!in_range || source > 31u || !(all->result >> source & 1u)) return own;
  return rushmem_cpu_from_bits<T>(all->values[source]);
}

/* The arithmetic is that of PTX `shfl.sync`: segments of `width` lanes, offsets taken modulo 32. */
template <class T>
static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, RUSHMEM_CPU_HERE) {
  const rushmem_cpu_thread *all =
      rushmem_cpu_exchange("__shfl_sync()", mask, rushmem_cpu_bits(value), file, line);
  unsigned first = rushmem_cpu_lane() & ~(unsigned)(width - 1),
           from = first | ((unsigned)source & (unsigned)(width - 1));
#if defined(RUSHMEM_CPU_CHECK)
  if (from < 32u && !(all->result >> from & 1u)) rushmem_cpu_check_shuffle(mask, from);
#endif
  return rushmem_cpu_pick(all, from, true, value);
}
template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, RUSHMEM_CPU_HERE) {
  const rushmem_cpu_thread *all =
      rushmem_cpu_exchange("__shfl_up_sync()", mask, rushmem_cpu_bits(value), file, line);
  unsigned lane = rushmem_cpu_lane(), first = lane & ~(unsigned)(width - 1);
  return rushmem_cpu_pick(all, lane - (delta & 31u), lane >= first + (delta & 31u), value);
}
template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, RUSHMEM_CPU_HERE) {
  const rushmem_cpu_thread *all =
      rushmem_cpu_exchange("__shfl_down_sync()", mask, rushmem_cpu_bits(value), file, line);
  unsigned lane = rushmem_cpu_lane(), last = lane | (unsigned)(width - 1);
  return rushmem_cpu_pick(all, lane + (delta & 31u), lane + (delta & 31u) <= last, value);
}
template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, RUSHMEM_CPU_HERE) {
  const rushmem_cpu_thread *all =
      rushmem_cpu_exchange("__shfl_xor_sync()", mask, rushmem_cpu_bits(value), file, line);
  unsigned lane = rushmem_cpu_lane(), last = lane | (unsigned)(width - 1),
           source = lane ^ ((unsigned)lanes & 31u);
  return rushmem_cpu_pick(all, source, source <= last, value);
}

template <class T> static inline unsigned __match_any_sync(unsigned mask, T value, RUSHMEM_CPU_HERE) {
  uint64_t own = rushmem_cpu_bits(value);
  const rushmem_cpu_thread *all = rushmem_cpu_exchange("__match_any_sync()", mask, own, file, line);
  unsigned same = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    if ((all->result >> lane & 1u) && all->values[lane] == own) same |= 1u << lane;
  return same;
}
template <class T>
static inline unsigned __match_all_sync(unsigned mask, T value, int *predicate, RUSHMEM_CPU_HERE) {
  uint64_t own = rushmem_cpu_bits(value);
  const rushmem_cpu_thread *all = rushmem_cpu_exchange("__match_all_sync()", mask, own, file, line);
  *predicate = 1;
  for (unsigned lane = 0; lane < 32; ++lane)
    if ((all->result >> lane & 1u) && all->values[lane] != own) *predicate = 0;
  return *predicate ? all->result : 0u;
}

/* `combine` is written over `sum` and `next`, both of the type of the values. */
#define RUSHMEM_CPU_REDUCE(name, T, combine)                                         \
  static inline T name(unsigned mask, T value, RUSHMEM_CPU_HERE) {                   \
    const rushmem_cpu_thread *all =                                                  \
        rushmem_cpu_exchange(#name "()", mask, rushmem_cpu_bits(value), file, line); \
    bool any = false;                                                                \
    T sum = value;                                                                   \
    for (unsigned lane = 0; lane < 32; ++lane) {                                     \
      if (!(all->result >> lane & 1u)) continue;                                     \
      T next = rushmem_cpu_from_bits<T>(all->values[lane]);                          \
      sum = any ? (T)(combine) : next;                                               \
      any = true;                                                                    \
    }                                                                                \
    return sum;                                                                      \
  }
RUSHMEM_CPU_REDUCE(__reduce_add_sync, unsigned, sum + next)
RUSHMEM_CPU_REDUCE(__reduce_add_sync, int, (unsigned)sum + (unsigned)next)
RUSHMEM_CPU_REDUCE(__reduce_min_sync, unsigned, next < sum ? next : sum)
RUSHMEM_CPU_REDUCE(__reduce_min_sync, int, next < sum ? next : sum)
RUSHMEM_CPU_REDUCE(__reduce_max_sync, unsigned, next > sum ? next : sum)
RUSHMEM_CPU_REDUCE(__reduce_max_sync, int, next > sum ? next : sum)
RUSHMEM_CPU_REDUCE(__reduce_and_sync, unsigned, sum &next)
RUSHMEM_CPU_REDUCE(__reduce_or_sync, unsigned, sum | next)
RUSHMEM_CPU_REDUCE(__reduce_xor_sync, unsigned, sum ^ next)
#undef RUSHMEM_CPU_REDUCE

#endif
