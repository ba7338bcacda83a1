/* What all kernels of `rushmem-perf device` share: the job that the host describes, the timed loop, and the
 * meeting of blocks and PEs before it. The host puts this text before each of the others, so that a measure
 * is one source that runs on a GPU and on the CPU device alike.
 *
 * A kernel runs one batch that is not counted (batch 0, of `warmup` rounds) and then `batches` of
 * `iterations` rounds each, and stamps the device's clock before and after each. Nothing but the operation is
 * between the two stamps: blocks meet before a batch, never within one, and the end of a batch is the end of
 * its slowest block. */
#include <rushmem/rushmem.cuh>

struct job {
  char *to;        /* symmetric; what is moved arrives here, or in the peer's copy */
  char *from;      /* symmetric */
  uint64_t *words; /* symmetric; lines of 128 bytes, see below */
  uint64_t *stamps; /* this PE's: a head of HEAD words, then begin and end of each block of each batch */
  uint64_t bytes;
  uint64_t salt;   /* the data of operations that take a value */
  uint64_t step;   /* between the places to which rounds put, or from which they get */
  uint32_t iterations;
  uint32_t batches;
  uint32_t warmup;
  int32_t peer;
  uint32_t both;   /* the peer's kernel runs too, and batches begin together */
  uint32_t op;     /* for kernels that have several */
  uint32_t places; /* so many of them and one more, a power of two */
  uint64_t *room;  /* symmetric; of bare collectives, see bare.cuh */
};

/* Lines of `words`. */
#define LINE 16
#define MEET (0 * LINE)
#define PING (1 * LINE)
#define PONG (2 * LINE)
#define CHECK (3 * LINE) /* a word for each PE */
/* Words of `stamps` before the first: 0: what the kernel itself found wrong; 1: something that the host
 * compares. */
#define HEAD 2

#define DEV static __device__ __forceinline__

/* The same value, of which the compiler knows nothing: an operation whose arguments are fresh in each round
 * is compiled as a program's own would be, not with half of its work moved out of the loop and into registers
 * that it has to do without. */
template <typename T> DEV T fresh(T value) {
#if defined(RUSHMEM_CPU)
  asm volatile("" : "+r"(value));
#else
  asm volatile("" : "+l"(value));
#endif
  return value;
}

DEV uint64_t clock_ns() { return rushmem::impl::now_ns(); }

/* A bare spin, for probes; on the CPU device the block's other threads get their turn. */
template <typename Done> DEV void spin_until(Done done) {
  while (!done()) {
#if defined(RUSHMEM_CPU)
    rushmem::impl::pause(false);
#endif
  }
}

/* All blocks of this PE, and of the peer where both take part, are here for the `round`-th time. Gives thread
 * 0 the time at which its block may go on: read before the others are let go, so that none of them can be
 * ahead of it. */
static __device__ __noinline__ uint64_t meet(const job &j, uint64_t round) {
  uint64_t begin = 0;
  __syncthreads();
  if (threadIdx.x == 0) {
    uint64_t all = uint64_t(gridDim.x) * (j.both ? 2 : 1);
    rushmem::atomic_add(j.words + MEET, 1, rushmem::my_pe());
    if (j.both) rushmem::atomic_add(j.words + MEET, 1, j.peer);
    rushmem::wait_until(j.words + MEET, rushmem::cmp::ge, round * all);
    begin = clock_ns();
  }
  __syncthreads();
  return begin;
}

static __device__ __noinline__ void stamp(const job &j, uint32_t batch, uint64_t begin, uint64_t end) {
  uint64_t *at = j.stamps + HEAD + 2 * (uint64_t(batch) * gridDim.x + blockIdx.x);
  at[0] = begin;
  at[1] = end;
}

/* For loops whose operations overlap: a round is counted in front of its operation. Behind it the compiler
 * counts in some loops and not in others, which is 5 ns a round (performance-log.md, 42). */
DEV uint32_t counted(uint32_t left) {
  asm volatile("" : "+r"(left));
  return left;
}

/* The timed loop. `op(round)` is one operation, rounds count from 0 through all batches. With `completed` a
 * batch ends when its last operation is complete at the target, with one quiet for all. */
template <bool completed, typename Op> DEV void timed(const job &j, Op op) {
  uint64_t round = 0;
  for (uint32_t batch = 0; batch <= j.batches; ++batch) {
    const uint32_t rounds = batch == 0 ? j.warmup : j.iterations;
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
      if (threadIdx.x == 0) rushmem::quiet();
    }
    if (threadIdx.x == 0) stamp(j, batch, begin, clock_ns());
  }
}

/* Where a round's bytes lie, behind the first round's: those that are got lie elsewhere than the last
 * round's, so that no library has them in a cache, and so do those that are put for bandwidth. */
DEV uint64_t place(const job &j, uint64_t round) { return (round & j.places) * j.step; }

/* `op(i)` for each i of begin .. end, one for each thread in each round. All threads are in all rounds: in
 * these kernels a load from another GPU took 0.1 us longer where some lanes of a warp had left the loop
 * (performance-log.md, 37). */
template <typename Op> DEV void in_step(uint64_t begin, uint64_t end, uint64_t rank, uint64_t size, Op op) {
  for (uint64_t at = begin; at < end; at += size) {
    if (at + rank < end) op(at + rank);
  }
}

/* The part of `bytes` that is this thread's, warp's or block's, of all that there are in the grid: whole
 * lines of 128 bytes, or where there are too few whole units of 16 or 8, dealt out evenly; what is less than
 * a unit is the last one's. */
struct part {
  uint64_t begin, size;
};

template <typename Scope> struct width;
template <> struct width<rushmem::thread> {
  DEV uint32_t of() { return 1; }
};
template <> struct width<rushmem::warp> {
  DEV uint32_t of() { return blockDim.x < 32 ? blockDim.x : 32; }
};
template <> struct width<rushmem::block> {
  DEV uint32_t of() { return blockDim.x; }
};

template <typename Scope> DEV part part_of(uint64_t bytes) {
  const uint64_t groups = uint64_t(gridDim.x) * blockDim.x / width<Scope>::of();
  const uint64_t mine = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) / width<Scope>::of();
  const uint64_t unit = bytes / groups >= 128 ? 128 : bytes / groups >= 16 ? 16 : 8;
  const uint64_t units = bytes / unit, each = units / groups, more = units % groups;
  const uint64_t begin = mine * each + (mine < more ? mine : more), size = each + (mine < more);
  return {begin * unit, mine + 1 == groups ? bytes - begin * unit : size * unit};
}

/* This group's part of the block's shared memory, of which there are `j.op` bytes: whole lines of 128. */
template <typename Scope> DEV rushmem::stage stage_of(const job &j) {
  RUSHMEM_DYNAMIC_SHARED(char, memory);
  const uint32_t groups = blockDim.x / width<Scope>::of(), each = j.op / groups / 128 * 128;
  return rushmem::stage(memory + threadIdx.x / width<Scope>::of() * each, each);
}

/* compat/nvshmem/bench says something else, for those that it takes. */
#if !defined(ENTRY)
#define ENTRY extern "C" __global__ void
#endif
#define KERNEL(name) ENTRY __launch_bounds__(1024, 1) name(const __grid_constant__ job j)
/* Of 512 threads at most: with more, each has fewer registers. */
#define HALF_KERNEL(name) ENTRY __launch_bounds__(512, 1) name(const __grid_constant__ job j)
/* Of one warp at most: it may use more registers. */
#define SMALL_KERNEL(name) ENTRY __launch_bounds__(32) name(const __grid_constant__ job j)
/* As a program's own would be compiled, which says nothing of its size. */
#define FREE_KERNEL(name) ENTRY name(const __grid_constant__ job j)
