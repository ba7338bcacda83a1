/* The kernels of bench.cu: the loops of `rushmem-perf device` (host/bin/src/perf/device/kernels), with
 * nvshmem.h's functions in them. Bounds of the launches are the same, too; so a loop becomes the machine code
 * that rushmem-perf's own becomes (a test compares them), and a figure is what the function costs. */
#ifndef NVSHMEM_BENCH_KERNELS_H
#define NVSHMEM_BENCH_KERNELS_H

#include "common.cuh"

DEV uint64_t *to_of(const job &j) { return reinterpret_cast<uint64_t *>(j.to); }
DEV const uint64_t *from_of(const job &j) { return reinterpret_cast<const uint64_t *>(j.from); }
/* What a round gets lies elsewhere than the last round's, else it may come out of this PE's own L1 cache, as
 * NVIDIA's plain loads do. */
DEV uint64_t source(const job &j, uint64_t round) { return (round & j.sources) * j.step; }
/* What a round puts for bandwidth goes elsewhere than the last round's, else stores of several rounds become
 * one before they cross the link: 1,700 GB/s were seen. */
DEV uint64_t target(const job &j, uint64_t round) { return (round & j.targets) * j.step; }

/* As rushmem-perf's: all threads are in each round. */
template <typename Op> DEV void all_in_step(uint64_t begin, uint64_t end, uint64_t rank, uint64_t size, Op op) {
  for (uint64_t at = begin; at < end; at += size) {
    if (at + rank < end) op(at + rank);
  }
}

/* ---- one after the other ---- */

template <typename S> DEV void put_latency(const job &j) {
  uint64_t *to = to_of(j);
  const uint64_t *from = from_of(j);
  const uint64_t n = j.bytes / 8;
  timed<false>(j, [&](uint64_t) {
    S::put(fresh(to), fresh(from), fresh(n), j.peer);
    if (S::rank() == 0) nvshmem_quiet();
    S::sync();
  });
}

template <typename S> DEV void get_latency(const job &j) {
  uint64_t *to = to_of(j);
  const uint64_t n = j.bytes / 8;
  timed<false>(j, [&](uint64_t round) {
    const uint64_t *there = reinterpret_cast<const uint64_t *>(fresh(j.from + source(j, round)));
    S::get(fresh(to), there, fresh(n), j.peer);
  });
}

template <typename S> DEV void p_latency(const job &j) {
  uint64_t *to = to_of(j);
  const uint64_t n = j.bytes / 8, rank = fresh(uint64_t(S::rank())), size = fresh(uint64_t(S::size()));
  timed<false>(j, [&](uint64_t) {
    for (uint64_t i = rank; i < n; i += size) nvshmem_uint64_p(to + i, j.salt + i, j.peer);
    S::sync();
    if (rank == 0) nvshmem_quiet();
    S::sync();
  });
}

template <typename S> DEV void g_latency(const job &j) {
  uint64_t *to = to_of(j);
  const uint64_t n = j.bytes / 8, rank = fresh(uint64_t(S::rank())), size = fresh(uint64_t(S::size()));
  timed<false>(j, [&](uint64_t round) {
    const uint64_t *from = reinterpret_cast<const uint64_t *>(fresh(j.from + source(j, round)));
    all_in_step(0, n, rank, size, [&](uint64_t i) { to[i] = nvshmem_uint64_g(from + i, j.peer); });
    S::sync();
  });
}

template <typename S> DEV void signal_latency(const job &j) {
  uint64_t *to = to_of(j);
  timed<false>(j, [&](uint64_t round) {
    nvshmemx_signal_op(fresh(to), round + 1, NVSHMEM_SIGNAL_SET, j.peer);
    nvshmem_quiet();
  });
}

/* ---- there and back ---- */

template <typename S, typename Send> DEV void pingpong(const job &j, Send send) {
  const bool serves = nvshmem_my_pe() < j.peer;
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
  uint64_t *to = to_of(j);
  const uint64_t *from = from_of(j);
  const uint64_t count = j.bytes / 8;
  pingpong<S>(j, [&](uint64_t n) {
    S::put_signal(fresh(to), fresh(from), fresh(count), j.words + PING, n, j.peer);
  });
}

template <typename S> DEV void put_pingpong(const job &j) {
  uint64_t *to = to_of(j);
  const uint64_t *from = from_of(j);
  const uint64_t count = j.bytes / 8;
  pingpong<S>(j, [&](uint64_t n) {
    S::put(fresh(to), fresh(from), fresh(count), j.peer);
    if (S::rank() != 0) return;
    nvshmem_quiet();
    nvshmem_uint64_p(j.words + PING, n, j.peer);
  });
}

template <typename S> DEV void p_pingpong(const job &j) {
  uint64_t *to = to_of(j);
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

template <typename S> struct width;
template <> struct width<thread> {
  DEV uint32_t of() { return 1; }
};
template <> struct width<warp> {
  DEV uint32_t of() { return blockDim.x < 32 ? blockDim.x : 32; }
};
template <> struct width<block> {
  DEV uint32_t of() { return blockDim.x; }
};

template <typename S> DEV part part_of(uint64_t bytes) {
  const uint64_t groups = uint64_t(gridDim.x) * blockDim.x / width<S>::of();
  const uint64_t mine = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) / width<S>::of();
  const uint64_t unit = bytes / groups >= 128 ? 128 : bytes / groups >= 16 ? 16 : 8;
  const uint64_t units = bytes / unit, each = units / groups, more = units % groups;
  const uint64_t begin = mine * each + (mine < more ? mine : more), size = each + (mine < more);
  return {begin * unit, mine + 1 == groups ? bytes - begin * unit : size * unit};
}

template <typename S> DEV void put_bw(const job &j) {
  const part my = part_of<S>(j.bytes);
  char *to = j.to + my.begin;
  const uint64_t *from = reinterpret_cast<const uint64_t *>(j.from + my.begin);
  const uint64_t n = my.size / 8;
  timed<true>(j, [&](uint64_t round) {
    S::put_nbi(reinterpret_cast<uint64_t *>(fresh(to + target(j, round))), fresh(from), fresh(n), j.peer);
  });
}

template <typename S> DEV void get_bw(const job &j) {
  const part my = part_of<S>(j.bytes);
  uint64_t *to = reinterpret_cast<uint64_t *>(j.to + my.begin);
  const char *from = j.from + my.begin;
  const uint64_t n = my.size / 8;
  timed<true>(j, [&](uint64_t round) {
    const uint64_t *there = reinterpret_cast<const uint64_t *>(fresh(from + source(j, round)));
    S::get_nbi(fresh(to), there, fresh(n), j.peer);
  });
}

/* A round's place is fresh, as in rushmem-perf: else the compiler makes two addresses of it. */
template <typename S> DEV void p_bw(const job &j) {
  const part my = part_of<S>(j.bytes);
  const uint64_t end = (my.begin + my.size) / 8;
  timed<true>(j, [&](uint64_t round) {
    uint64_t *to = reinterpret_cast<uint64_t *>(fresh(j.to + target(j, round)));
    for (uint64_t i = my.begin / 8 + S::rank(); i < end; i += S::size())
      nvshmem_uint64_p(to + i, j.salt + i, j.peer);
  });
}

template <typename S> DEV void g_bw(const job &j) {
  const part my = part_of<S>(j.bytes);
  uint64_t *to = to_of(j);
  const uint64_t end = (my.begin + my.size) / 8;
  const uint64_t begin = my.begin / 8, rank = fresh(uint64_t(S::rank())), size = fresh(uint64_t(S::size()));
  timed<true>(j, [&](uint64_t round) {
    const uint64_t *from = reinterpret_cast<const uint64_t *>(fresh(j.from + source(j, round)));
    all_in_step(begin, end, rank, size, [&](uint64_t i) { to[i] = nvshmem_uint64_g(from + i, j.peer); });
  });
}

/* ---- all PEs ---- */

/* After the timed batches: does it synchronise? One PE is late in each round. */
template <typename S, typename Sync> static __device__ __noinline__ void check_sync(const job &j, Sync sync) {
  for (uint64_t round = 1; round <= 8; ++round) {
    if (S::rank() == 0) {
      const uint64_t begin = clock_ns();
      while (int(round % uint64_t(j.pes)) == j.me && clock_ns() - begin < 20000) {}
      for (int pe = 0; pe < j.pes; ++pe)
        nvshmem_uint64_p(j.words + CHECK + j.me * LINE, j.salt * round + j.me, pe);
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

/* After the timed batches, as in rushmem-perf: are the sums there when a call returns? */
template <typename S, typename Call, typename Expected>
static __device__ __noinline__ void check_sums(const job &j, size_t n, Call call, Expected expected) {
  float *const to = reinterpret_cast<float *>(j.to);
  for (uint64_t round = 0; round < 2; ++round) {
    for (size_t i = S::rank(); i < n; i += S::size()) to[i] = -1.0f;
    S::team_sync();
    call(round);
    const size_t step = n < 1024 ? 1 : n / 1024;
    for (size_t i = S::rank() * step; i < n; i += S::size() * step) {
      if (to[i] != expected(i)) atomicAdd(reinterpret_cast<unsigned long long *>(j.bad), 1ull);
    }
    S::team_sync();
  }
}

/* Element i of all PEs' `from`, added in their order. */
DEV float total(const float *from, size_t i) {
  float sum = nvshmem_float_g(from + i, 0);
  for (int pe = 1; pe < nvshmem_n_pes(); ++pe) sum += nvshmem_float_g(from + i, pe);
  return sum;
}

template <typename S> DEV void reduce(const job &j) {
  float *const to = reinterpret_cast<float *>(j.to), *const from = reinterpret_cast<float *>(j.from);
  const size_t n = j.bytes / sizeof(float);
  const auto call = [=](uint64_t) { S::reduce(fresh(to), fresh(from), n); };
  timed<false>(j, call);
  check_sums<S>(j, n, call, [=](size_t i) { return total(from, i); });
}

#endif
