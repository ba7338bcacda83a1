/* Where a kernel compiled for the CPU meets the scheduler that runs it. A kernel's shared object gets the
 * hooks once after it is loaded (`rushmem_cpu_attach`); from then on the scheduler points this OS thread's
 * `rushmem_cpu_self` at the CUDA thread that it is about to resume. Everything a CUDA thread may ask for is a
 * few fields of its own `rushmem_cpu_thread` and a suspend: the scheduler, on its own stack, does the rest.
 * Mirrored by device/cpu/src/context.rs and hooks.rs, which a test compares with the sizes here. */
#ifndef RUSHMEM_CPU_HOOKS_H
#define RUSHMEM_CPU_HOOKS_H

#include <stddef.h>
#include <stdint.h>

#include "rushmem_cpu/vector_types.h"

#define RUSHMEM_CPU_HOOKS_VERSION 2u

struct rushmem_device_state;
struct rushmem_cpu_thread;

/* What a suspended CUDA thread waits for. */
enum rushmem_cpu_request : uint32_t {
  RUSHMEM_CPU_SPIN = 0,    /* the next round */
  RUSHMEM_CPU_BARRIER = 1, /* every live thread of the block */
  RUSHMEM_CPU_WARP = 2,    /* every live lane of `mask` */
  RUSHMEM_CPU_EXIT = 3,    /* nothing: the launch is abandoned */
  RUSHMEM_CPU_TICK = 4,    /* the next round; may be a spin made of atomics, may be honest work */
  RUSHMEM_CPU_PREEMPT = 5  /* the next round: it was interrupted where it stood (device/cpu/src/watch.rs) */
};

/* One running block. Read-only for the kernel. */
struct rushmem_cpu_block {
  dim3 grid_dim;
  dim3 block_dim;
  uint3 block_idx;
  uint32_t shared_bytes;
  void *shared; /* dynamic shared memory */
  const struct rushmem_device_state *state;
  uint64_t *grid_barrier; /* of the launch, 0 at its start; null: blocks take turns, and cannot meet */
};

/* One CUDA thread. The kernel writes the request, the scheduler the answer. */
struct rushmem_cpu_thread {
  const rushmem_cpu_block *block;
  uint3 thread_idx;
  uint32_t linear; /* thread_idx as one number, x fastest */
  uint32_t ticks;  /* atomics and fences since the last suspend */
  uint32_t request;
  uint32_t mask;        /* WARP: the lanes that take part */
  uint32_t woke;        /* since the last suspend: 1 something has happened, 2 a wait lasts */
  uint32_t result;      /* BARRIER: the sum, and, or (see vote); WARP: the lanes of `mask` that arrived */
  uint64_t value;       /* BARRIER: this thread's predicate; WARP: this lane's contribution */
  const uint64_t *values; /* WARP: what all 32 lanes handed in, valid until this thread's next request */
  const char *what;     /* the CUDA name of what is waited for; literals, so that it may be kept */
  const char *file;
  uint32_t line;
  uint32_t vote; /* BARRIER: 0 count, 1 and, 2 or */
  const volatile void *seen_at; /* where the last atomic was, and what it saw there */
  uint64_t seen;
  void *scheduler; /* the scheduler's own */
  void *check;     /* the checker's own (rushmem_cpu/check.h) */
};

struct rushmem_cpu_hooks {
  uint32_t version; /* RUSHMEM_CPU_HOOKS_VERSION */
  uint32_t bytes;   /* sizeof(rushmem_cpu_hooks) */
  void (*suspend)(rushmem_cpu_thread *self);
  /* Neither returns: the whole launch is abandoned, with a RUSHMEM_DEVICE_FAIL_* or a text (copied). */
  void (*exit)(rushmem_cpu_thread *self, uint32_t failure);
  void (*die)(rushmem_cpu_thread *self, const char *text);
  uint64_t (*now_ns)(void);
};

static const rushmem_cpu_hooks *rushmem_cpu_table;
static __thread rushmem_cpu_thread *rushmem_cpu_self;

#define RUSHMEM_CPU_EXPORT extern "C" __attribute__((visibility("default"), used))

RUSHMEM_CPU_EXPORT uint32_t rushmem_cpu_attach(const rushmem_cpu_hooks *hooks) {
  if (hooks->version != RUSHMEM_CPU_HOOKS_VERSION || hooks->bytes != sizeof(rushmem_cpu_hooks)) return 0;
  if (rushmem_cpu_table) return 1; /* attached before: these are another module's globals */
  rushmem_cpu_table = hooks;
  return (uint32_t)sizeof(rushmem_cpu_thread);
}

/* The calling OS thread's slot: constant for the thread's life, so the scheduler asks once for each block. */
RUSHMEM_CPU_EXPORT rushmem_cpu_thread **rushmem_cpu_slot(void) { return &rushmem_cpu_self; }

/* The device state of the launch that this thread belongs to. */
static inline const rushmem_device_state *rushmem_cpu_state() { return rushmem_cpu_self->block->state; }

/* Atomic operations and fences until the end of the C++ scope are of that thread scope, as cuda::thread_scope
 * numbers it: what checked runs note. All are the system's as this processor does them. */
#if defined(RUSHMEM_CPU_CHECK)
#define RUSHMEM_CPU_SCOPED(thread_scope) const rushmem_cpu_scoped rushmem_cpu_scoped_here(thread_scope)
#else
#define RUSHMEM_CPU_SCOPED(thread_scope)
#endif
#define RUSHMEM_CPU_OF_DEVICE 1u
#define RUSHMEM_CPU_OF_BLOCK 2u

/* Lets every other CUDA thread of the block run before this one goes on. Every poll of a wait calls it: a
 * loop that neither calls this nor an atomic, a fence, a clock or __nanosleep keeps its OS thread until it is
 * interrupted, and sees late what another thread of its own block would write. */
static inline void rushmem_cpu_spin() {
  rushmem_cpu_thread *self = rushmem_cpu_self;
  self->request = RUSHMEM_CPU_SPIN;
  self->ticks = 0;
  rushmem_cpu_table->suspend(self);
}

/* Says that one wait made of spins has ended or another begins. Without it the scheduler takes a block that
 * waits again and again for one that waits on and on, and naps between its polls. */
static inline void rushmem_cpu_woke() { rushmem_cpu_self->woke |= 1; }

/* Says that this thread's wait has lasted so long that people should know where it is. */
static inline void rushmem_cpu_stalled() { rushmem_cpu_self->woke |= 2; }

/* Called by whatever a spin loop may be made of; every 32nd call suspends. */
static inline void rushmem_cpu_tick() {
  rushmem_cpu_thread *self = rushmem_cpu_self;
  if (__builtin_expect(++self->ticks < 32u, 1)) return;
  self->request = RUSHMEM_CPU_TICK;
  self->ticks = 0;
  rushmem_cpu_table->suspend(self);
}

/* An atomic saw `bits` at `address`. The same as the last one saw: it may be a spin. Else something is going
 * on. */
static inline void rushmem_cpu_saw(const volatile void *address, uint64_t bits) {
  rushmem_cpu_thread *self = rushmem_cpu_self;
  if (self->seen_at != address || self->seen != bits) {
    self->seen_at = address;
    self->seen = bits;
    self->woke |= 1;
  }
  rushmem_cpu_tick();
}

/* Gives the kernel up: no CUDA thread of any block is resumed again, no destructor runs, and the
 * launch fails with `failure` (a RUSHMEM_DEVICE_FAIL_*). */
[[noreturn]] static inline void rushmem_cpu_exit(uint32_t failure) {
  rushmem_cpu_table->exit(rushmem_cpu_self, failure);
  __builtin_unreachable();
}

/* The same with a text instead of a code. */
[[noreturn]] static inline void rushmem_cpu_die(const char *text) {
  rushmem_cpu_table->die(rushmem_cpu_self, text);
  __builtin_unreachable();
}

/* Monotonic nanoseconds. */
static inline uint64_t rushmem_cpu_now_ns() { return rushmem_cpu_table->now_ns(); }

/* This block's dynamic shared memory, aligned to 128 bytes. */
static inline void *rushmem_cpu_dynamic_shared() { return rushmem_cpu_self->block->shared; }

#endif
