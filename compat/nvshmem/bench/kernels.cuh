/* The kernels of bench.cu: the loops of `rushmem-perf device` (host/bin/src/perf/device/kernels), with
 * nvshmem.h's functions in them. Bounds of the launches are the same, too, so that a figure differs from
 * rushmem-perf's by what the function costs and by nothing else.
 *
 * A kernel runs a batch that is not counted and then `batches` of `iterations` rounds each, and stamps the
 * device's clock before and after each. Blocks and PEs meet before a batch, never within one. */
#ifndef NVSHMEM_BENCH_KERNELS_H
#define NVSHMEM_BENCH_KERNELS_H

#include <nvshmem.h>
#include <nvshmemx.h>

struct job {
  char *to;         /* symmetric; what is moved arrives here, or in the peer's copy */
  char *from;       /* symmetric */
  uint64_t *words;  /* symmetric; lines of 128 bytes, see below */
  uint64_t *stamps; /* this PE's: begin and end of each block of each batch */
  unsigned *bad;    /* this PE's: what the kernel itself found wrong */
  uint64_t bytes, salt;
  /* Words between the places from which rounds get, or to which they put; of each kind there are so many and
   * one more, a power of two. */
  uint64_t step;
  uint32_t sources, targets;
  uint32_t iterations, batches, warm_up;
  int32_t parties; /* PEs that run the kernel, the first ones */
  int32_t me, peer, pes;
};

/* Words of a line, and the first words of lines. */
#define LINE 16
#define MEET (0 * LINE)
#define PING (1 * LINE)
#define CHECK (2 * LINE) /* a line for each PE */

#define DEV static __device__ __forceinline__

DEV uint64_t clock_ns() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

/* The same value, of which the compiler knows nothing: so nothing of an operation moves out of the loop. */
template <typename T> DEV T fresh(T value) {
  asm volatile("" : "+l"(value));
  return value;
}

/* What a PE's `from` holds; in 8-byte words, or in floats whose sums are exact. */
DEV uint64_t pattern(uint64_t salt, int pe, uint64_t i) {
  uint64_t x = salt + (uint64_t(pe) << 48) + i * 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9ull;
  return x ^ (x >> 29);
}
DEV float number(uint64_t salt, int pe, uint64_t i) { return float(pattern(salt, pe, i) >> 48); }

/* All blocks of all PEs that take part are here for the `round`-th time. Gives thread 0 the time at which its
 * block may go on. */
static __device__ __noinline__ uint64_t meet(const job &j, uint64_t round) {
  uint64_t begin = 0;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int pe = 0; pe < j.parties; ++pe) nvshmem_uint64_atomic_inc(j.words + MEET, pe);
    nvshmem_uint64_wait_until(j.words + MEET, NVSHMEM_CMP_GE, round * gridDim.x * j.parties);
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

/* The timed loop. With `completed` a batch ends when its last operation is complete at the target. */
template <bool completed, typename Op> DEV void timed(const job &j, Op op) {
  uint64_t round = 0;
  for (uint32_t batch = 0; batch <= j.batches; ++batch) {
    const uint64_t last = round + (batch == 0 ? j.warm_up : j.iterations);
    const uint64_t begin = meet(j, batch + 1);
    for (; round < last; ++round) op(round);
    if (completed) {
      __syncthreads();
      if (threadIdx.x == 0) nvshmem_quiet();
    }
    if (threadIdx.x == 0) stamp(j, batch, begin, clock_ns());
  }
}

/* Who takes part in one operation, and the functions' names there. */
#define SCOPE(name, rank_, size_, sync_, f, x)                                                              \
  struct name {                                                                                             \
    DEV uint32_t rank() { return rank_; }                                                                   \
    DEV uint32_t size() { return size_; }                                                                   \
    DEV void sync() { sync_; }                                                                              \
    DEV void put(uint64_t *to, uint64_t *from, uint64_t n, int pe) { f(uint64_put)(to, from, n, pe); }      \
    DEV void get(uint64_t *to, uint64_t *from, uint64_t n, int pe) { f(uint64_get)(to, from, n, pe); }      \
    DEV void put_nbi(uint64_t *to, uint64_t *from, uint64_t n, int pe) {                                    \
      f(uint64_put_nbi)(to, from, n, pe);                                                                   \
    }                                                                                                       \
    DEV void get_nbi(uint64_t *to, uint64_t *from, uint64_t n, int pe) {                                    \
      f(uint64_get_nbi)(to, from, n, pe);                                                                   \
    }                                                                                                       \
    DEV void put_signal(uint64_t *to, uint64_t *from, uint64_t n, uint64_t *word, uint64_t value, int pe) { \
      f(uint64_put_signal)(to, from, n, word, value, NVSHMEM_SIGNAL_SET, pe);                               \
    }                                                                                                       \
    DEV void sync_all() { f(sync_all)(); }                                                                  \
    DEV void barrier_all() { f(barrier_all)(); }                                                            \
    DEV void team_sync() { x(team_sync)(NVSHMEM_TEAM_WORLD); }                                              \
    DEV void team_barrier() { f(barrier)(NVSHMEM_TEAM_WORLD); }                                             \
    DEV void reduce(float *to, float *from, uint64_t n) {                                                   \
      f(float_sum_reduce)(NVSHMEM_TEAM_WORLD, to, from, n);                                                 \
    }                                                                                                       \
  };
#define OF_THREAD(name) nvshmem_##name
#define OF_WARP(name) nvshmemx_##name##_warp
#define OF_BLOCK(name) nvshmemx_##name##_block
SCOPE(thread, 0, 1, (void) 0, OF_THREAD, OF_THREAD)
SCOPE(warp, threadIdx.x % 32, 32, __syncwarp(), OF_WARP, OF_WARP)
SCOPE(block, threadIdx.x, blockDim.x, __syncthreads(), OF_BLOCK, OF_BLOCK)

#define TO reinterpret_cast<uint64_t *>(j.to)
#define FROM reinterpret_cast<uint64_t *>(j.from)
/* What a round gets lies elsewhere than the last round's, else it may come out of this PE's own L1 cache, as
 * NVIDIA's plain loads do. What a round puts for bandwidth goes elsewhere than the last round's, else stores
 * of several rounds become one before they cross the link: 1,700 GB/s were seen. */
DEV uint64_t source(const job &j, uint64_t round) { return (round & j.sources) * j.step; }
DEV uint64_t target(const job &j, uint64_t round) { return (round & j.targets) * j.step; }

/* ---- one after the other ---- */

template <typename S> DEV void put_latency(const job &j) {
  timed<false>(j, [&](uint64_t) {
    S::put(fresh(TO), fresh(FROM), fresh(j.bytes / 8), j.peer);
    if (S::rank() == 0) nvshmem_quiet();
    S::sync();
  });
}

template <typename S> DEV void get_latency(const job &j) {
  timed<false>(j, [&](uint64_t round) {
    S::get(fresh(TO), fresh(FROM + source(j, round)), fresh(j.bytes / 8), j.peer);
  });
}

template <typename S> DEV void p_latency(const job &j) {
  uint64_t *to = TO;
  const uint64_t n = j.bytes / 8;
  timed<false>(j, [&](uint64_t) {
    for (uint64_t i = S::rank(); i < n; i += S::size()) nvshmem_uint64_p(to + i, j.salt + i, j.peer);
    S::sync();
    if (S::rank() == 0) nvshmem_quiet();
    S::sync();
  });
}

template <typename S> DEV void g_latency(const job &j) {
  uint64_t *to = TO;
  const uint64_t n = j.bytes / 8;
  timed<false>(j, [&](uint64_t round) {
    uint64_t *from = FROM + source(j, round);
    for (uint64_t i = S::rank(); i < n; i += S::size()) to[i] = nvshmem_uint64_g(from + i, j.peer);
    S::sync();
  });
}

template <typename S> DEV void signal_latency(const job &j) {
  timed<false>(j, [&](uint64_t round) {
    nvshmemx_signal_op(fresh(TO), round + 1, NVSHMEM_SIGNAL_SET, j.peer);
    nvshmem_quiet();
  });
}

template <typename S> DEV void fetch_inc_latency(const job &j) {
  timed<false>(j, [&](uint64_t round) {
    if (nvshmem_uint64_atomic_fetch_inc(fresh(TO), j.peer) != ~uint64_t(0) + round) *j.bad += 1;
  });
}

template <typename S> DEV void inc_latency(const job &j) {
  timed<false>(j, [&](uint64_t) {
    nvshmem_uint64_atomic_inc(fresh(TO), j.peer);
    nvshmem_quiet();
  });
}

/* ---- there and back ---- */

template <typename S, typename Send> DEV void pingpong(const job &j, Send send) {
  const bool serves = j.me < j.peer;
  timed<false>(j, [&](uint64_t round) {
    if (serves) send(round + 1);
    if (S::rank() == 0) nvshmem_signal_wait_until(j.words + PING, NVSHMEM_CMP_GE, round + 1);
    S::sync();
    if (!serves) send(round + 1);
  });
}

template <typename S> DEV void signal_pingpong(const job &j) {
  pingpong<S>(j, [&](uint64_t n) { nvshmemx_signal_op(j.words + PING, n, NVSHMEM_SIGNAL_SET, j.peer); });
}

template <typename S> DEV void atomic_pingpong(const job &j) {
  pingpong<S>(j, [&](uint64_t) { nvshmem_uint64_atomic_inc(j.words + PING, j.peer); });
}

template <typename S> DEV void put_signal_pingpong(const job &j) {
  pingpong<S>(j, [&](uint64_t n) {
    S::put_signal(fresh(TO), fresh(FROM), fresh(j.bytes / 8), j.words + PING, n, j.peer);
  });
}

template <typename S> DEV void put_pingpong(const job &j) {
  pingpong<S>(j, [&](uint64_t n) {
    S::put(fresh(TO), fresh(FROM), fresh(j.bytes / 8), j.peer);
    if (S::rank() != 0) return;
    nvshmem_quiet();
    nvshmem_uint64_p(j.words + PING, n, j.peer);
  });
}

template <typename S> DEV void p_pingpong(const job &j) {
  uint64_t *to = TO;
  const uint64_t count = j.bytes / 8;
  pingpong<S>(j, [&](uint64_t n) {
    for (uint64_t i = S::rank(); i < count; i += S::size()) nvshmem_uint64_p(to + i, j.salt + i, j.peer);
    S::sync();
    if (S::rank() != 0) return;
    nvshmem_quiet();
    nvshmem_uint64_p(j.words + PING, n, j.peer);
  });
}

/* ---- bandwidth: each thread, warp or block of the grid moves its part, with one completion at the
 * end ---- */

struct part {
  uint64_t begin, size;
};

template <typename S> DEV part part_of(uint64_t bytes) {
  const uint64_t groups = uint64_t(gridDim.x) * blockDim.x / S::size();
  const uint64_t mine = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) / S::size();
  const uint64_t unit = bytes / groups >= 16 ? 16 : 8;
  const uint64_t each = bytes / groups / unit * unit;
  return {mine * each, mine + 1 == groups ? bytes - mine * each : each};
}

template <typename S> DEV void put_bw(const job &j) {
  const part my = part_of<S>(j.bytes);
  uint64_t *to = TO + my.begin / 8, *from = FROM + my.begin / 8;
  timed<true>(j, [&](uint64_t round) {
    S::put_nbi(fresh(to + target(j, round)), fresh(from), fresh(my.size / 8), j.peer);
  });
}

template <typename S> DEV void get_bw(const job &j) {
  const part my = part_of<S>(j.bytes);
  uint64_t *to = TO + my.begin / 8, *from = FROM + my.begin / 8;
  timed<true>(j, [&](uint64_t round) {
    S::get_nbi(fresh(to), fresh(from + source(j, round)), fresh(my.size / 8), j.peer);
  });
}

template <typename S> DEV void p_bw(const job &j) {
  const part my = part_of<S>(j.bytes);
  const uint64_t end = (my.begin + my.size) / 8;
  timed<true>(j, [&](uint64_t round) {
    uint64_t *to = TO + target(j, round);
    for (uint64_t i = my.begin / 8 + S::rank(); i < end; i += S::size()) nvshmem_uint64_p(to + i, j.salt + i, j.peer);
  });
}

template <typename S> DEV void g_bw(const job &j) {
  const part my = part_of<S>(j.bytes);
  uint64_t *to = TO;
  const uint64_t end = (my.begin + my.size) / 8;
  timed<true>(j, [&](uint64_t round) {
    uint64_t *from = FROM + source(j, round);
    for (uint64_t i = my.begin / 8 + S::rank(); i < end; i += S::size()) to[i] = nvshmem_uint64_g(from + i, j.peer);
  });
}

/* ---- all PEs ---- */

/* After the timed batches: does it synchronise? One PE is late in each round. */
template <typename S, typename Sync> static __device__ __noinline__ void check_sync(const job &j, Sync sync) {
  for (uint64_t round = 1; round <= 8; ++round) {
    if (S::rank() == 0) {
      const uint64_t begin = clock_ns();
      while (int(round % uint64_t(j.pes)) == j.me && clock_ns() - begin < 20000) {}
      for (int pe = 0; pe < j.pes; ++pe) nvshmem_uint64_p(j.words + CHECK + j.me * LINE, j.salt * round + j.me, pe);
      nvshmem_quiet();
    }
    sync();
    if (S::rank() == 0) {
      for (int pe = 0; pe < j.pes; ++pe) {
        if (nvshmem_uint64_g(j.words + CHECK + pe * LINE, j.me) != j.salt * round + pe) *j.bad += 1;
      }
    }
    sync();
  }
}

template <typename S, typename Sync> DEV void synchronise(const job &j, Sync sync) {
  timed<false>(j, [&](uint64_t) { sync(); });
  check_sync<S>(j, sync);
}

template <typename S> DEV void sync_all(const job &j) { synchronise<S>(j, [] { S::sync_all(); }); }
template <typename S> DEV void barrier_all(const job &j) { synchronise<S>(j, [] { S::barrier_all(); }); }
template <typename S> DEV void team_sync(const job &j) { synchronise<S>(j, [] { S::team_sync(); }); }
template <typename S> DEV void team_barrier(const job &j) { synchronise<S>(j, [] { S::team_barrier(); }); }

template <typename S> DEV void reduce(const job &j) {
  float *to = reinterpret_cast<float *>(j.to), *from = reinterpret_cast<float *>(j.from);
  timed<false>(j, [&](uint64_t) { S::reduce(fresh(to), fresh(from), j.bytes / 4); });
}

/* ---- what is moved, and what has arrived ---- */

enum arrives { NOTHING, PATTERN, WORDS, ROUNDS, SUM };

/* `from` is this PE's pattern; `to`, and 64 bytes behind each of its places, are ones. */
static __global__ void fill(const job j, int arrives) {
  const uint64_t step = uint64_t(gridDim.x) * blockDim.x;
  const uint64_t n = j.bytes / 8 + 8;
  const uint64_t all = n + j.step * (j.sources | j.targets);
  for (uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < all; i += step) {
    if (i < n + j.step * j.targets) TO[i] = ~uint64_t(0);
    FROM[i] = pattern(j.salt, j.me, i);
    if (arrives != SUM) continue;
    float *two = reinterpret_cast<float *>(FROM + i);
    for (int k = 0; k < 2; ++k) two[k] = number(j.salt, j.me, 2 * i + k);
  }
}

/* Counts wrong words of `to`, where PE `from`'s data of the last round is to be. */
static __global__ void verify(const job j, int arrives, int from, uint64_t rounds) {
  const uint64_t *last = TO + target(j, rounds - 1);
  const uint64_t step = uint64_t(gridDim.x) * blockDim.x;
  for (uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < j.bytes / 8 + 8; i += step) {
    uint64_t wanted = ~uint64_t(0);
    if (i >= j.bytes / 8) {
    } else if (arrives == PATTERN) {
      wanted = pattern(j.salt, from, i + source(j, rounds - 1));
    } else if (arrives == WORDS) {
      wanted = j.salt + i;
    } else if (arrives == ROUNDS) {
      wanted = rounds;
    } else if (arrives == SUM) {
      float two[2] = {0, 0};
      for (int pe = 0; pe < j.pes; ++pe) {
        for (int k = 0; k < 2; ++k) two[k] += number(j.salt, pe, 2 * i + k);
      }
      wanted = uint64_t(__float_as_uint(two[0])) | uint64_t(__float_as_uint(two[1])) << 32;
    }
    if (last[i] != wanted) atomicAdd(j.bad, 1u);
  }
}

#endif
