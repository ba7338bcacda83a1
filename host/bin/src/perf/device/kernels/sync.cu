/* Collective synchronisation by one thread, warp or block of each PE. What a round costs is what all PEs take for it, as none can
 * be more than one ahead. After the timed batches: does it synchronise? */

template <typename Scope, typename Sync> DEV void collective(const job &j, Sync sync) {
  timed<false>(j, [&](uint64_t) { sync(); });
  const int me = rushmem::my_pe(), n = rushmem::n_pes();
  for (uint64_t round = 1; round <= 8; ++round) {
    if (Scope::rank() == 0) {
      for (int pe = 0; pe < n; ++pe) rushmem::p(j.words + CHECK + me, j.salt * round + uint64_t(me), pe);
    }
    sync();
    if (Scope::rank() == 0) {
      for (int pe = 0; pe < n; ++pe) {
        if (rushmem::g(j.words + CHECK + pe, me) != j.salt * round + uint64_t(pe)) j.stamps[0] += 1;
      }
    }
    /* Nobody writes the next round's before all have read this one's. */
    sync();
  }
}

SMALL_KERNEL(sync_thread) { collective<rushmem::thread>(j, [] { rushmem::sync_all<rushmem::thread>(); }); }
SMALL_KERNEL(sync_warp) { collective<rushmem::warp>(j, [] { rushmem::sync_all<rushmem::warp>(); }); }
KERNEL(sync_block) { collective<rushmem::block>(j, [] { rushmem::sync_all<rushmem::block>(); }); }
SMALL_KERNEL(barrier_thread) { collective<rushmem::thread>(j, [] { rushmem::barrier_all<rushmem::thread>(); }); }
SMALL_KERNEL(barrier_warp) { collective<rushmem::warp>(j, [] { rushmem::barrier_all<rushmem::warp>(); }); }
KERNEL(barrier_block) { collective<rushmem::block>(j, [] { rushmem::barrier_all<rushmem::block>(); }); }
