/* What the kernels of bench.cu share: their job, the timed loop, and who takes part in one operation.
 *
 * A kernel runs a batch that is not counted and then `batches` of `iterations` rounds each, and stamps the
 * device's clock before and after each. Blocks and PEs meet before a batch, never within one. */
#ifndef NVSHMEM_BENCH_COMMON_H
#define NVSHMEM_BENCH_COMMON_H

#include <nvshmem.h>
#include <nvshmemx.h>

struct job {
  char *to;         /* symmetric; what is moved arrives here, or in the peer's copy */
  char *from;       /* symmetric */
  uint64_t *words;  /* symmetric; lines of 128 bytes, see below */
  uint64_t *stamps; /* this PE's: begin and end of each block of each batch */
  uint64_t bytes, salt;
  /* Bytes between the places from which rounds get, or to which they put; of each kind there are so many and
   * one more, a power of two. */
  uint64_t step;
  uint32_t iterations, batches, warm_up;
  int32_t peer;
  uint32_t both; /* the peer's kernel runs, too, and batches begin together */
  uint32_t sources, targets;
  int32_t me, pes;
  uint64_t *bad; /* this PE's: what the kernel itself found wrong */
};

/* Words of a line, and the first words of lines. */
#define LINE 16
#define MEET (0 * LINE)
#define PING (1 * LINE)
#define CHECK (3 * LINE) /* a line for each PE */

#define DEV static __device__ __forceinline__

DEV uint64_t clock_ns() {
#if defined(RUSHMEM_CPU)
  return rushmem::impl::now_ns();
#else
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
#endif
}

/* The same value, of which the compiler knows nothing: so nothing of an operation moves out of the loop. */
template <typename T> DEV T fresh(T value) {
#if defined(RUSHMEM_CPU)
  asm volatile("" : "+r"(value));
#else
  asm volatile("" : "+l"(value));
#endif
  return value;
}

/* All blocks of this PE, and of the peer where both take part, are here for the `round`-th time. Gives thread
 * 0 the time at which its block may go on. */
static __device__ __noinline__ uint64_t meet(const job &j, uint64_t round) {
  uint64_t begin = 0;
  __syncthreads();
  if (threadIdx.x == 0) {
    const uint64_t all = uint64_t(gridDim.x) * (j.both ? 2 : 1);
    nvshmem_uint64_atomic_add(j.words + MEET, 1, j.me);
    if (j.both) nvshmem_uint64_atomic_add(j.words + MEET, 1, j.peer);
    nvshmem_uint64_wait_until(j.words + MEET, NVSHMEM_CMP_GE, round * all);
    begin = clock_ns();
  }
  __syncthreads();
  return begin;
}

/* Not inlined, as in rushmem-perf: with its stores in the loop nvcc takes no test out of a loop of p. */
static __device__ __noinline__ void stamp(const job &j, uint32_t batch, uint64_t begin, uint64_t end) {
  uint64_t *at = j.stamps + 2 * (uint64_t(batch) * gridDim.x + blockIdx.x);
  at[0] = begin;
  at[1] = end;
}

/* For loops whose operations overlap: a round is counted in front of its operation. Behind it the compiler
 * counts in some loops and not in others, which is 5 ns a round (performance-log.md, 42). */
DEV uint32_t counted(uint32_t left) {
  asm volatile("" : "+r"(left));
  return left;
}

/* The timed loop. With `completed` a batch ends when its last operation is complete at the target. */
template <bool completed, typename Op> DEV void timed(const job &j, Op op) {
  uint64_t round = 0;
  for (uint32_t batch = 0; batch <= j.batches; ++batch) {
    const uint32_t rounds = batch == 0 ? j.warm_up : j.iterations;
    const uint64_t last = round + rounds, begin = meet(j, batch + 1);
    if constexpr (completed) {
      for (uint32_t left = rounds; left != 0; ++round) {
        left = counted(left - 1);
        op(round);
      }
    } else {
      for (; round < last; ++round) op(round);
    }
    if (completed) {
      __syncthreads();
      if (threadIdx.x == 0) nvshmem_quiet();
    }
    if (threadIdx.x == 0) stamp(j, batch, begin, clock_ns());
  }
}

/* Who takes part in one operation: rushmem's scopes, or the same where there are none (rushmem/scope.h). */
#if defined(RUSHMEM_NVSHMEM_NVSHMEM_H)
using thread_scope = rushmem::thread;
using warp_scope = rushmem::warp;
using block_scope = rushmem::block;
#else
DEV uint32_t thread_in_block() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
DEV uint32_t threads_in_block() { return blockDim.x * blockDim.y * blockDim.z; }
struct thread_scope {
  DEV uint32_t rank() { return 0; }
  DEV uint32_t size() { return 1; }
  DEV void sync() { asm volatile("" ::: "memory"); }
};
struct warp_scope {
  DEV uint32_t rank() { return thread_in_block() % 32; }
  DEV uint32_t size() {
    const uint32_t left = threads_in_block() - thread_in_block() / 32 * 32;
    return left < 32 ? left : 32;
  }
  DEV void sync() {
    const uint32_t lanes = size();
    if (__builtin_expect(lanes == 32, 1)) __syncwarp();
    else __syncwarp((1u << lanes) - 1u);
  }
};
struct block_scope {
  DEV uint32_t rank() { return thread_in_block(); }
  DEV uint32_t size() { return threads_in_block(); }
  DEV void sync() { __syncthreads(); }
};
#endif

/* The functions' names there. */
#define SCOPE(name, f, x)                                                                                    \
  struct name : name##_scope {                                                                               \
    DEV void put(uint64_t *to, const uint64_t *from, uint64_t n, int pe) { f(uint64_put)(to, from, n, pe); } \
    DEV void get(uint64_t *to, const uint64_t *from, uint64_t n, int pe) { f(uint64_get)(to, from, n, pe); } \
    DEV void put_nbi(uint64_t *to, const uint64_t *from, uint64_t n, int pe) {                               \
      f(uint64_put_nbi)(to, from, n, pe);                                                                    \
    }                                                                                                        \
    DEV void get_nbi(uint64_t *to, const uint64_t *from, uint64_t n, int pe) {                               \
      f(uint64_get_nbi)(to, from, n, pe);                                                                    \
    }                                                                                                        \
    DEV void put_signal(uint64_t *to, const uint64_t *from, uint64_t n, uint64_t *word, uint64_t value,      \
                        int pe) {                                                                            \
      f(uint64_put_signal)(to, from, n, word, value, NVSHMEM_SIGNAL_SET, pe);                                \
    }                                                                                                        \
    DEV void sync_all() { f(sync_all)(); }                                                                   \
    DEV void barrier_all() { f(barrier_all)(); }                                                             \
    DEV void team_sync() { x(team_sync)(NVSHMEM_TEAM_WORLD); }                                               \
    DEV void team_barrier() { f(barrier)(NVSHMEM_TEAM_WORLD); }                                              \
    DEV void reduce(float *to, const float *from, uint64_t n) {                                              \
      f(float_sum_reduce)(NVSHMEM_TEAM_WORLD, to, from, n);                                                  \
    }                                                                                                        \
  };
#define OF_THREAD(name) nvshmem_##name
#define OF_WARP(name) nvshmemx_##name##_warp
#define OF_BLOCK(name) nvshmemx_##name##_block
SCOPE(thread, OF_THREAD, OF_THREAD)
SCOPE(warp, OF_WARP, OF_WARP)
SCOPE(block, OF_BLOCK, OF_BLOCK)

#endif
