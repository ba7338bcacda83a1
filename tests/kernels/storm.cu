/* Many threads that post more to the device ring than it holds, of every kind, to near PEs and far ones
 * alike. What each does follows from `mix`, so that the host can tell what must come of it
 * (tests/device/storm.rs). */
#if !defined(RUSHMEM_TEST_CHECK_H)
#include "check.h"
#endif

/* Words that a thread writes at each PE, and words of its own from which it puts. */
enum { STORM_SLOTS = 8, STORM_SOURCES = 64, STORM_PES = 16 };

/* `rows` has STORM_SLOTS words for each PE and thread, `sources` STORM_SOURCES for each thread, all zero.
 * `sums` has three words: what is added, how often it is fetched and added, and signals. */
extern "C" __global__ void storm(uint64_t *report, uint64_t *rows, uint64_t *sources, uint64_t *sums,
                                 int rounds, uint64_t seed) {
  const int me = rushmem::my_pe(), n = rushmem::n_pes();
  const uint64_t threads = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  const uint64_t mine = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const uint64_t of_me = static_cast<uint64_t>(me) * threads + mine;
  uint64_t *const there = rows + of_me * STORM_SLOTS, *const source = sources + mine * STORM_SOURCES;
  uint64_t next[STORM_PES] = {};
  for (int round = 0; round < rounds; ++round) {
    const uint64_t value = mix(mix(seed, of_me), static_cast<uint64_t>(round));
    const int pe = static_cast<int>(value % static_cast<uint64_t>(n));
    const int slot = round % STORM_SLOTS;
    uint64_t *const from = source + round % STORM_SOURCES;
    /* A slot is written anew behind a fence, a source behind a quiet. */
    if (round % STORM_SOURCES == 0) rushmem::quiet();
    else if (slot == 0) rushmem::fence();
    *from = value;
    switch (value >> 32 & 7) {
      case 0:
      case 1: rushmem::p(there + slot, value, pe); break;
      case 2: rushmem::put_nbi(there + slot, from, 1, pe); break;
      case 3: rushmem::put_signal_nbi(there + slot, from, 1, sums + 2, 1, rushmem::signal::add, pe); break;
      case 4: rushmem::atomic_add(sums, value >> 40, pe); break;
      case 5: {
        const uint64_t old = rushmem::atomic_fetch_add(sums + 1, 1, pe);
        CHECK(report, old >= next[pe], old);
        next[pe] = old + 1;
        break;
      }
      case 6:
        rushmem::p(there + slot, value, pe);
        rushmem::quiet();
        CHECK_EQ(report, rushmem::g(there + slot, pe), value, round);
        break;
      default:
        rushmem::put(there + slot, from, 1, pe);
        rushmem::quiet();
        *from = 0;
        rushmem::get_nbi(from, there + slot, 1, pe);
        rushmem::quiet();
        CHECK_EQ(report, *from, value, round);
    }
  }
  rushmem::quiet();
}

/* `Warps` of arguments.rs. */
struct warps_args {
  uint64_t words;
  int rounds;
  uint64_t seed;
};

/* Whole warps and blocks put `words` words each, round after round, with a signal behind the last: `rows` has
 * that many for each PE and warp, `source` for each warp. */
extern "C" __global__ void storm_of_warps(uint64_t *report, uint64_t *rows, uint64_t *source, uint64_t *signals,
                                          warps_args a) {
  const int me = rushmem::my_pe(), pes = rushmem::n_pes();
  const uint64_t warps = static_cast<uint64_t>(gridDim.x) * (blockDim.x / 32);
  const uint64_t mine = static_cast<uint64_t>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  const uint64_t words = a.words, seed = a.seed;
  uint64_t *const there = rows + (static_cast<uint64_t>(me) * warps + mine) * words;
  uint64_t *const from = source + mine * words;
  for (int round = 0; round < a.rounds; ++round) {
    for (uint64_t i = rushmem::warp::rank(); i < words; i += rushmem::warp::size()) {
      from[i] = mix(seed + static_cast<uint64_t>(round), (static_cast<uint64_t>(me) * warps + mine) * words + i);
    }
    rushmem::warp::sync();
    for (int i = 0; i < pes; ++i) {
      const int pe = (me + i + static_cast<int>(mine)) % pes;
      rushmem::put_signal_nbi<rushmem::warp>(there, from, words, signals + me, 1, rushmem::signal::add, pe);
    }
    if (rushmem::warp::rank() == 0) rushmem::quiet();
    rushmem::warp::sync();
  }
  (void)report;
}
