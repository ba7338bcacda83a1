/* Collective synchronisation by one thread, warp or block of each PE. What a round costs is what all PEs take
 * for it, as none can be more than one ahead. After the timed batches: does it synchronise? */

#define CHECKED 8

/* How many there are in a kernel. */
DEV uint64_t syncs(const job &j) { return j.warmup + uint64_t(j.batches) * j.iterations + 2 * CHECKED; }

/* A function of its own: its registers are not the timed loop's. `number` counts syncs on. */
template <typename Scope, typename Sync>
static __device__ __noinline__ void check(const job &j, uint64_t number, Sync sync) {
  const int me = rushmem::my_pe(), n = rushmem::n_pes();
  for (uint64_t round = 1; round <= CHECKED; ++round) {
    if (Scope::rank() == 0) {
      /* One is late in each round, and the others must wait for it. */
      const uint64_t begin = clock_ns();
      if (int(round % uint64_t(n)) == me) spin_until([&] { return clock_ns() - begin > 20000; });
      for (int pe = 0; pe < n; ++pe) rushmem::p(j.words + CHECK + me, j.salt * round + uint64_t(me), pe);
    }
    sync(++number);
    if (Scope::rank() == 0) {
      for (int pe = 0; pe < n; ++pe) {
        if (rushmem::g(j.words + CHECK + pe, me) != j.salt * round + uint64_t(pe)) j.stamps[0] += 1;
      }
    }
    /* Nobody writes the next round's before all have read this one's. */
    sync(++number);
  }
}

/* `sync(number)`, numbers count from 1. */
template <typename Scope, typename Sync> DEV void collective(const job &j, Sync sync) {
  timed<false>(j, [&](uint64_t round) { sync(round + 1); });
  check<Scope>(j, syncs(j) - 2 * CHECKED, sync);
}

/* What the instructions themselves take: a barrier of the scope, a release fence, a count to each other PE's
 * line here, relaxed polls of one's own lines, an acquire fence, a barrier. Counts are kept in registers and
 * addresses made beforehand; no checks, no watch over the wait. A thread alone polls up to seven lines at
 * once, the threads of a wider scope one each. sync_all and barrier_all are the same to mapped PEs.
 *
 * The words lie in the library's own lines, behind its counts: how far a line is from the SM that polls it,
 * in the one half of the L2 cache or the other, is a tenth of a microsecond in each round, and is decided by
 * its address (performance-log.md, 2). Counts go on from one kernel to the next, in the line of this PE's
 * own, which no PE writes to. */
template <typename Scope> DEV void bare(const job &j) {
  const int me = rushmem::my_pe(), n = rushmem::n_pes();
  const int rank = int(Scope::rank()), size = int(Scope::size());
  rushmem_sync_line *const lines = rushmem::state().sync_lines;
  auto right = [=](int steps) { return me + steps < n ? me + steps : me + steps - n; };
  auto mine = [=](int pe) { return rushmem::impl::load_relaxed_word(&lines[pe].pad[0]); };
  auto there = [=](int pe) { return rushmem::impl::run_address(&lines[me].pad[0], pe); };
  const int first = right(rank + 1);
  /* Not all threads of a scope have a PE to tell. */
  uint64_t *const first_there = rank < n - 1 ? there(first) : nullptr;
  const uint64_t before = mine(me);
  collective<Scope>(j, [=](uint64_t number) {
    const uint64_t count = before + number;
    Scope::sync();
    if (rank < n - 1) {
      rushmem::impl::fence_release();
      rushmem::impl::store_relaxed_word(first_there, count);
      for (int i = rank + size; i < n - 1; i += size) rushmem::impl::store_relaxed_word(there(right(i + 1)), count);
      if (size == 1 && n > 2) {
        for (int i = 0; i < n - 1; i += 7) {
          spin_until([&] {
            bool all = true;
            uint64_t seen[7];
            RUSHMEM_UNROLL
            for (int k = 0; k < 7; ++k) seen[k] = i + k < n - 1 ? mine(right(i + k + 1)) : count;
            RUSHMEM_UNROLL
            for (int k = 0; k < 7; ++k) all = all && seen[k] >= count;
            return all;
          });
        }
      } else {
        spin_until([&] { return mine(first) >= count; });
        for (int i = rank + size; i < n - 1; i += size) spin_until([&] { return mine(right(i + 1)) >= count; });
      }
      rushmem::impl::fence_acquire();
    }
    Scope::sync();
  });
  if (rank == 0) rushmem::impl::store_relaxed_word(&lines[me].pad[0], before + syncs(j));
}

SMALL_KERNEL(sync_thread) { collective<rushmem::thread>(j, [](uint64_t) { rushmem::sync_all<rushmem::thread>(); }); }
SMALL_KERNEL(sync_warp) { collective<rushmem::warp>(j, [](uint64_t) { rushmem::sync_all<rushmem::warp>(); }); }
KERNEL(sync_block) { collective<rushmem::block>(j, [](uint64_t) { rushmem::sync_all<rushmem::block>(); }); }
SMALL_KERNEL(barrier_thread) { collective<rushmem::thread>(j, [](uint64_t) { rushmem::barrier_all<rushmem::thread>(); }); }
SMALL_KERNEL(barrier_warp) { collective<rushmem::warp>(j, [](uint64_t) { rushmem::barrier_all<rushmem::warp>(); }); }
KERNEL(barrier_block) { collective<rushmem::block>(j, [](uint64_t) { rushmem::barrier_all<rushmem::block>(); }); }
SMALL_KERNEL(team_sync_thread) { collective<rushmem::thread>(j, [](uint64_t) { rushmem::sync<rushmem::thread>(rushmem::world()); }); }
SMALL_KERNEL(team_sync_warp) { collective<rushmem::warp>(j, [](uint64_t) { rushmem::sync<rushmem::warp>(rushmem::world()); }); }
KERNEL(team_sync_block) { collective<rushmem::block>(j, [](uint64_t) { rushmem::sync<rushmem::block>(rushmem::world()); }); }
SMALL_KERNEL(team_barrier_thread) { collective<rushmem::thread>(j, [](uint64_t) { rushmem::barrier<rushmem::thread>(rushmem::world()); }); }
SMALL_KERNEL(team_barrier_warp) { collective<rushmem::warp>(j, [](uint64_t) { rushmem::barrier<rushmem::warp>(rushmem::world()); }); }
KERNEL(team_barrier_block) { collective<rushmem::block>(j, [](uint64_t) { rushmem::barrier<rushmem::block>(rushmem::world()); }); }
SMALL_KERNEL(probe_team_sync_thread) { bare<rushmem::thread>(j); }
SMALL_KERNEL(probe_team_sync_warp) { bare<rushmem::warp>(j); }
KERNEL(probe_team_sync_block) { bare<rushmem::block>(j); }
SMALL_KERNEL(probe_team_barrier_thread) { bare<rushmem::thread>(j); }
SMALL_KERNEL(probe_team_barrier_warp) { bare<rushmem::warp>(j); }
KERNEL(probe_team_barrier_block) { bare<rushmem::block>(j); }
SMALL_KERNEL(probe_sync_thread) { bare<rushmem::thread>(j); }
SMALL_KERNEL(probe_sync_warp) { bare<rushmem::warp>(j); }
KERNEL(probe_sync_block) { bare<rushmem::block>(j); }
SMALL_KERNEL(probe_barrier_thread) { bare<rushmem::thread>(j); }
SMALL_KERNEL(probe_barrier_warp) { bare<rushmem::warp>(j); }
KERNEL(probe_barrier_block) { bare<rushmem::block>(j); }
