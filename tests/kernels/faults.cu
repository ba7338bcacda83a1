/* Kernels that must not end well: each leads to one error of the launch. */
#if !defined(RUSHMEM_TEST_CHECK_H)
#include "check.h"
#endif

/* Thread 0 of block 0 addresses a PE that is none. */
extern "C" __global__ void faults_bad_pe(uint64_t *word, int pe) {
  if (threadIdx.x == 0 && blockIdx.x == 0) rushmem::p(word, 1, pe);
}

/* PE `missing` never comes to the sync. */
extern "C" __global__ void faults_missing_in_sync(int missing) {
  if (rushmem::my_pe() != missing) rushmem::sync_all<rushmem::block>();
}

/* Nobody ever sets this word. */
extern "C" __global__ void faults_wait_for_ever(uint64_t *word) {
  if (threadIdx.x == 0) rushmem::signal_wait_until(word, rushmem::cmp::eq, 42);
}

/* Posts words for ever. */
extern "C" __global__ void faults_words_for_ever(uint64_t *word, int pe) {
  for (uint64_t i = 0;; ++i) rushmem::p(word, i, pe);
}

/* `alltoallv` of one word from each member to each, in order. */
__device__ static void one_word_to_each(const rushmem::team &t, uint64_t *dst, const uint64_t *src) {
  __shared__ size_t at[16], n[16];
  for (int i = static_cast<int>(threadIdx.x); i < t.n_pes() && i < 16; i += static_cast<int>(blockDim.x)) {
    at[i] = static_cast<size_t>(i);
    n[i] = 1;
  }
  __syncthreads();
  rushmem::alltoallv<rushmem::block>(t, dst, at, nullptr, src, at, n);
  __syncthreads();
}

/* All PEs but `missing` make the collective of that code (RUSHMEM_COLLECTIVE_*). */
extern "C" __global__ void faults_missing_in_collective(uint64_t *dst, uint64_t *src, int collective, int missing) {
  const rushmem::team t = rushmem::world();
  if (t.my_pe() == missing) return;
  switch (collective) {
    case RUSHMEM_COLLECTIVE_SYNC: return rushmem::sync<rushmem::block>(t);
    case RUSHMEM_COLLECTIVE_BROADCAST: return rushmem::broadcast<rushmem::block>(t, dst, src, 1, missing);
    case RUSHMEM_COLLECTIVE_FCOLLECT: return rushmem::fcollect<rushmem::block>(t, dst, src, 1);
    case RUSHMEM_COLLECTIVE_ALLTOALL: return rushmem::alltoall<rushmem::block>(t, dst, src, 1);
    case RUSHMEM_COLLECTIVE_REDUCE: return rushmem::reduce<rushmem::block>(t, dst, src, 1, rushmem::sum{});
    case RUSHMEM_COLLECTIVE_REDUCESCATTER: return rushmem::reducescatter<rushmem::block>(t, dst, src, 1, rushmem::sum{});
    case RUSHMEM_COLLECTIVE_COLLECT: return rushmem::collect<rushmem::block>(t, dst, src, 1);
    case RUSHMEM_COLLECTIVE_ALLTOALLV: return one_word_to_each(t, dst, src);
    case RUSHMEM_COLLECTIVE_ALLTOALLS: return rushmem::alltoalls<rushmem::block>(t, dst, src, 1, 1, 1);
    default: rushmem::inscan<rushmem::block>(t, dst, src, 1, rushmem::sum{});
  }
}

/* The same collective over and over, until the launch is ended. */
extern "C" __global__ void faults_collective_for_ever(uint64_t *dst, uint64_t *src, int collective) {
  for (;;) {
    __syncthreads();
    const rushmem::team t = rushmem::world();
    switch (collective) {
      case RUSHMEM_COLLECTIVE_SYNC: rushmem::barrier<rushmem::block>(t); break;
      case RUSHMEM_COLLECTIVE_BROADCAST: rushmem::broadcast<rushmem::block>(t, dst, src, 4, 0); break;
      case RUSHMEM_COLLECTIVE_FCOLLECT: rushmem::fcollect<rushmem::block>(t, dst, src, 4); break;
      case RUSHMEM_COLLECTIVE_ALLTOALL: rushmem::alltoall<rushmem::block>(t, dst, src, 4); break;
      case RUSHMEM_COLLECTIVE_REDUCE: rushmem::reduce<rushmem::block>(t, dst, src, 4, rushmem::sum{}); break;
      case RUSHMEM_COLLECTIVE_REDUCESCATTER:
        rushmem::reducescatter<rushmem::block>(t, dst, src, 4, rushmem::sum{});
        break;
      case RUSHMEM_COLLECTIVE_COLLECT: rushmem::collect<rushmem::block>(t, dst, src, 4); break;
      case RUSHMEM_COLLECTIVE_ALLTOALLV: one_word_to_each(t, dst, src); break;
      case RUSHMEM_COLLECTIVE_ALLTOALLS: rushmem::alltoalls<rushmem::block>(t, dst, src, 2, 1, 2); break;
      default: rushmem::exscan<rushmem::block>(t, dst, src, 4, rushmem::sum{});
    }
  }
}

/* So many sums of all blocks, and one to which the last block does not come. */
extern "C" __global__ void faults_block_stays_away(uint64_t *dst, uint64_t *src, int rounds) {
  const rushmem::team t = rushmem::world();
  for (int i = 0; i < rounds; ++i) rushmem::reduce<rushmem::grid>(t, dst, src, 1, rushmem::sum{});
  if (blockIdx.x + 1 == gridDim.x) return;
  rushmem::reduce<rushmem::grid>(t, dst, src, 1, rushmem::sum{});
}

/* Sums of all blocks over and over, until the launch is ended; one PE may stay away. */
extern "C" __global__ void faults_grid_for_ever(uint64_t *dst, uint64_t *src, int missing, int parts) {
  const rushmem::team t = rushmem::world();
  if (t.my_pe() == missing) return;
  for (;;) {
    if (parts) rushmem::reduce<rushmem::grid_parts>(t, dst, src, 100, rushmem::sum{});
    else rushmem::reduce<rushmem::grid>(t, dst, src, 100, rushmem::sum{});
  }
}

/* PE 0 makes another call than the rest: 0, of another size; 1, another operator; 2, another collective; 3,
 * another root. */
extern "C" __global__ void faults_different_collectives(uint64_t *dst, uint64_t *src, int how) {
  const rushmem::team t = rushmem::world();
  const bool odd = t.my_pe() == 0;
  if (how == 0) rushmem::reduce<rushmem::block>(t, dst, src, odd ? 2 : 3, rushmem::sum{});
  else if (how == 1 && odd) rushmem::reduce<rushmem::block>(t, dst, src, 2, rushmem::max{});
  else if (how == 1) rushmem::reduce<rushmem::block>(t, dst, src, 2, rushmem::sum{});
  else if (how == 2 && odd) rushmem::fcollect<rushmem::block>(t, dst, src, 2);
  else if (how == 2) rushmem::alltoall<rushmem::block>(t, dst, src, 2);
  else rushmem::barrier<rushmem::block>(t), rushmem::broadcast<rushmem::block>(t, dst, src, 2, odd ? 1 : 0);
}

/* Two blocks in one slot set. */
extern "C" __global__ void faults_slot_set_in_use(uint64_t *dst, uint64_t *src) {
  const rushmem::team t = rushmem::world();
  for (int i = 0; i < 100000; ++i) rushmem::reduce<rushmem::block>(t, dst + blockIdx.x, src, 1, rushmem::sum{});
}

/* Blocks make sums of one slot set in turn. One that has seen whose turn it is acquires what the others have
 * done, or does not. */
extern "C" __global__ void faults_turns(uint64_t *dst, uint64_t *src, uint64_t *turn, uint64_t rounds, int acquires) {
  const rushmem::team t = rushmem::world();
  for (uint64_t r = blockIdx.x; r < rounds; r += gridDim.x) {
    if (threadIdx.x == 0) {
      while (rushmem::impl::load_relaxed_word(turn) != r) rushmem::impl::pause(false);
      if (acquires) rushmem::impl::fence_acq_rel();
    }
    __syncthreads();
    rushmem::reduce<rushmem::block>(t, dst + r, src + r, 1, rushmem::sum{});
    if (threadIdx.x == 0) {
      rushmem::impl::fence_acq_rel();
      rushmem::impl::store_relaxed_word(turn, r + 1);
    }
  }
}

/* A slot set that is none, and a team that is none. */
extern "C" __global__ void faults_no_team(uint64_t *dst, uint64_t *src, int how) {
  rushmem::team t = rushmem::world();
  if (how == 0) t = t.on(t.slot_sets());
  else if (how == 1) t.raw.heap_base += 4096;
  else t = rushmem::team{};
  rushmem::fcollect<rushmem::block>(t, dst, src, 1);
}
