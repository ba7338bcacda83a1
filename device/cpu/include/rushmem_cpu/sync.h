/* Block-wide barriers, spins and clocks. File and line are those of the call, for the text about a
 * deadlock. */
#ifndef RUSHMEM_CPU_SYNC_H
#define RUSHMEM_CPU_SYNC_H

#include <time.h>

#include "rushmem_cpu/hooks.h"

#define RUSHMEM_CPU_HERE const char *file = __builtin_FILE(), uint32_t line = __builtin_LINE()

#define threadIdx (const_cast<const uint3 &>(rushmem_cpu_self->thread_idx))
#define blockIdx (const_cast<const uint3 &>(rushmem_cpu_self->block->block_idx))
#define blockDim (const_cast<const dim3 &>(rushmem_cpu_self->block->block_dim))
#define gridDim (const_cast<const dim3 &>(rushmem_cpu_self->block->grid_dim))
static constexpr int warpSize = 32;

static inline uint32_t rushmem_cpu_barrier(const char *what, bool value, uint32_t vote, const char *file,
                                           uint32_t line) {
  rushmem_cpu_thread *self = rushmem_cpu_self;
  self->request = RUSHMEM_CPU_BARRIER;
  self->value = value;
  self->vote = vote;
  self->what = what;
  self->file = file;
  self->line = line;
  rushmem_cpu_table->suspend(self);
  return self->result;
}

static inline void __syncthreads(RUSHMEM_CPU_HERE) {
  rushmem_cpu_barrier("__syncthreads()", false, 0, file, line);
}
static inline int __syncthreads_count(int predicate, RUSHMEM_CPU_HERE) {
  return (int)rushmem_cpu_barrier("__syncthreads_count()", predicate != 0, 0, file, line);
}
static inline int __syncthreads_and(int predicate, RUSHMEM_CPU_HERE) {
  return (int)rushmem_cpu_barrier("__syncthreads_and()", predicate != 0, 1, file, line);
}
static inline int __syncthreads_or(int predicate, RUSHMEM_CPU_HERE) {
  return (int)rushmem_cpu_barrier("__syncthreads_or()", predicate != 0, 2, file, line);
}

static inline void __threadfence_system() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  rushmem_cpu_tick();
}
static inline void __threadfence() {
  RUSHMEM_CPU_SCOPED(RUSHMEM_CPU_OF_DEVICE);
  __threadfence_system();
}
static inline void __threadfence_block() {
  RUSHMEM_CPU_SCOPED(RUSHMEM_CPU_OF_BLOCK);
  __threadfence_system();
}

static inline void __nanosleep(unsigned int) { rushmem_cpu_spin(); }
[[noreturn]] static inline void __trap() { rushmem_cpu_die("__trap()"); }

static inline long long clock64() {
  rushmem_cpu_tick();
  return (long long)rushmem_cpu_now_ns();
}
/* libc's clock() counts processor time and never lets another CUDA thread run. */
static inline clock_t rushmem_cpu_clock() { return (clock_t)clock64(); }
#define clock() rushmem_cpu_clock()

/* Dynamic shared memory, as rushmem/shared.h says it for both compilers. */
#define RUSHMEM_DYNAMIC_SHARED(T, name) T *const name = reinterpret_cast<T *>(rushmem_cpu_dynamic_shared())

#endif
