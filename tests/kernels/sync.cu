/* sync_all and barrier_all, many rounds, at each scope, PEs late at random, also PEs of one job at different
 * scopes. No PE may leave before all have entered, and after a barrier everybody's puts are there. One block
 * to a PE, and then several that take turns. */
#if !defined(RUSHMEM_TEST_CHECK_H)
#include "check.h"
#endif

namespace {

template <typename Scope> __device__ void enter(bool barrier) {
  if (share<Scope>::mine() == 0) {
    if (barrier) rushmem::barrier_all<Scope>();
    else rushmem::sync_all<Scope>();
  }
  __syncthreads();
}

__device__ void enter_at(int scope, bool barrier) {
  __syncthreads();
  if (scope == SCOPE_THREAD) enter<rushmem::thread>(barrier);
  else if (scope == SCOPE_WARP) enter<rushmem::warp>(barrier);
  else enter<rushmem::block>(barrier);
}

/* Some polls' worth of being late. */
__device__ void dawdle(uint64_t polls, const uint64_t *word) {
  for (uint64_t i = 0; i < polls; ++i) {
    if (rushmem::signal_fetch(word) == ~0ull) return;
  }
}

}  // namespace

/* `Syncs` of arguments.rs. `scope` 3: each PE its own, a new one each round. */
struct sync_args {
  int scope, barrier, rounds;
  uint64_t seed;
};

/* `entered` has n_pes entries, and `data` blockDim times n_pes for even rounds and as many for odd ones: one
 * that is a round ahead puts where nobody reads. */
extern "C" __global__ void sync_rounds(uint64_t *report, uint64_t *entered, uint64_t *data, sync_args a) {
  const int scope = a.scope, barrier = a.barrier, rounds = a.rounds;
  const uint64_t seed = a.seed;
  const int me = rushmem::my_pe(), n = rushmem::n_pes();
  for (int round = 1; round <= rounds; ++round) {
    const uint64_t number = static_cast<uint64_t>(round);
    uint64_t *row = data + static_cast<size_t>(round % 2 * n) * blockDim.x + threadIdx.x;
    const int at = scope == 3 ? static_cast<int>(mix(seed ^ number, static_cast<uint64_t>(me)) % 3) : scope;
    if (threadIdx.x == 0) {
      dawdle(mix(seed + number, static_cast<uint64_t>(me)) % 64, entered);
      for (int pe = 0; pe < n; ++pe) rushmem::p(entered + me, number, pe);
      /* A sync alone promises nothing about puts. */
      if (!barrier) rushmem::quiet();
    }
    if (barrier) {
      for (int pe = 0; pe < n; ++pe) {
        rushmem::put_nbi(row + static_cast<size_t>(me) * blockDim.x, &number, 1, pe);
      }
    }
    enter_at(at, barrier != 0);
    if (threadIdx.x == 0) {
      for (int pe = 0; pe < n; ++pe) {
        /* One may be a round ahead, never two: it would have to pass a sync that we have not entered. */
        uint64_t seen = rushmem::g(entered + pe, me);
        CHECK(report, seen == number || seen == number + 1, seen << 32 | number);
      }
    }
    if (barrier) {
      for (int pe = 0; pe < n; ++pe) {
        uint64_t seen = *const_cast<volatile uint64_t *>(row + static_cast<size_t>(pe) * blockDim.x);
        CHECK_EQ(report, seen, number, number);
      }
    }
  }
}

/* The blocks of each PE take turns, call by call, each call at a scope of its own. `turn` is one word, how
 * many calls this PE has made; `entered` has n_pes entries. */
extern "C" __global__ void sync_relay(uint64_t *report, uint64_t *entered, uint64_t *turn, int barrier, int rounds,
                                      uint64_t seed) {
  const int me = rushmem::my_pe(), n = rushmem::n_pes();
  for (uint64_t round = blockIdx.x; round < static_cast<uint64_t>(rounds); round += gridDim.x) {
    const uint64_t number = round + 1;
    if (threadIdx.x == 0) {
      rushmem::wait_until(turn, rushmem::cmp::eq, round);
      for (int pe = 0; pe < n; ++pe) rushmem::p(entered + me, number, pe);
      if (!barrier) rushmem::quiet();
    }
    enter_at(static_cast<int>(mix(seed ^ number, static_cast<uint64_t>(me)) % 3), barrier != 0);
    if (threadIdx.x == 0) {
      for (int pe = 0; pe < n; ++pe) {
        uint64_t seen = rushmem::g(entered + pe, me);
        CHECK(report, seen == number || seen == number + 1, seen << 32 | number);
      }
      rushmem::fence();
      rushmem::p(turn, number, me);
    }
  }
}
