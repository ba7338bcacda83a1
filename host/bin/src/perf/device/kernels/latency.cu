/* One-sided latency: the operation and its completion, one after another, by one thread, warp or block. A put
 * is complete when quiet() has returned, a get when its data is there. */

template <typename Scope, typename T> DEV void put_latency(const job &j) {
  T *to = reinterpret_cast<T *>(j.to);
  const T *from = reinterpret_cast<const T *>(j.from);
  const uint64_t n = j.bytes / sizeof(T);
  timed<false>(j, [&](uint64_t) {
    rushmem::put<Scope>(fresh(to), fresh(from), fresh(n), j.peer);
    if (Scope::rank() == 0) rushmem::quiet();
    Scope::sync();
  });
}

template <typename Scope, typename T> DEV void get_latency(const job &j) {
  T *to = reinterpret_cast<T *>(j.to);
  const uint64_t n = j.bytes / sizeof(T);
  timed<false>(j, [&](uint64_t round) {
    const T *there = reinterpret_cast<const T *>(fresh(j.from + place(j, round)));
    rushmem::get<Scope>(fresh(to), there, fresh(n), j.peer);
  });
}

/* The same through shared memory of the block's. */
template <typename Scope> DEV void put_latency_staged(const job &j) {
  uint64_t *to = reinterpret_cast<uint64_t *>(j.to);
  const uint64_t *from = reinterpret_cast<const uint64_t *>(j.from);
  const rushmem::stage stage = stage_of<Scope>(j);
  timed<false>(j, [&](uint64_t) {
    rushmem::put<Scope>(fresh(to), fresh(from), fresh(j.bytes / 8), j.peer, stage);
    if (Scope::rank() == 0) rushmem::quiet();
    Scope::sync();
  });
}

template <typename Scope> DEV void get_latency_staged(const job &j) {
  uint64_t *to = reinterpret_cast<uint64_t *>(j.to);
  const rushmem::stage stage = stage_of<Scope>(j);
  timed<false>(j, [&](uint64_t round) {
    const uint64_t *there = reinterpret_cast<const uint64_t *>(fresh(j.from + place(j, round)));
    rushmem::get<Scope>(fresh(to), there, fresh(j.bytes / 8), j.peer, stage);
  });
}

/* Words of 8 bytes, one to a thread and round after round where there are more words than threads. */
template <typename Scope> DEV void p_latency(const job &j) {
  uint64_t *to = reinterpret_cast<uint64_t *>(j.to);
  /* Worked out once: the compiler would ask for all three of a thread's indices in each round. */
  const uint64_t n = j.bytes / 8, rank = fresh(uint64_t(Scope::rank())), size = fresh(uint64_t(Scope::size()));
  timed<false>(j, [&](uint64_t) {
    for (uint64_t i = rank; i < n; i += size) rushmem::p(to + i, j.salt + i, j.peer);
    Scope::sync();
    if (rank == 0) rushmem::quiet();
    Scope::sync();
  });
}

template <typename Scope> DEV void g_latency(const job &j) {
  uint64_t *to = reinterpret_cast<uint64_t *>(j.to);
  const uint64_t n = j.bytes / 8, rank = fresh(uint64_t(Scope::rank())), size = fresh(uint64_t(Scope::size()));
  timed<false>(j, [&](uint64_t round) {
    const uint64_t *from = reinterpret_cast<const uint64_t *>(fresh(j.from + place(j, round)));
    in_step(0, n, rank, size, [&](uint64_t i) { to[i] = rushmem::g(from + i, j.peer); });
    Scope::sync();
  });
}

/* What the instructions themselves take: 16-byte loads and stores, 8 in flight, and the fence that
 * completes. */
template <typename Scope> DEV void probe_put_latency(const job &j) {
  char *to = rushmem::ptr(j.to, j.peer);
  timed<false>(j, [&](uint64_t) {
    bare_copy<Scope, false>(fresh(to), fresh(j.from), fresh(j.bytes));
    Scope::sync();
    if (Scope::rank() == 0) rushmem::impl::fence_sc();
    Scope::sync();
  });
}

/* The same for what is read: loads that go to the peer each time, as a get's. */
template <typename Scope> DEV void probe_get_latency(const job &j) {
  const char *from = rushmem::ptr(j.from, j.peer);
  timed<false>(j, [&](uint64_t round) {
    bare_copy<Scope, true>(fresh(j.to), fresh(from + place(j, round)), fresh(j.bytes));
    Scope::sync();
  });
}

template <typename Scope> DEV void probe_p_latency(const job &j) {
  uint64_t *base = reinterpret_cast<uint64_t *>(rushmem::ptr(j.to, j.peer));
  const uint64_t n = j.bytes / 8, rank = fresh(uint64_t(Scope::rank())), size = fresh(uint64_t(Scope::size()));
  timed<false>(j, [&](uint64_t) {
    volatile uint64_t *to = fresh(base);
#pragma unroll 4
    for (uint64_t i = rank; i < n; i += size) to[i] = j.salt + i;
    rushmem::impl::breathe();
    Scope::sync();
    if (rank == 0) rushmem::impl::fence_sc();
    Scope::sync();
  });
}

template <typename Scope> DEV void probe_g_latency(const job &j) {
  uint64_t *to = reinterpret_cast<uint64_t *>(j.to);
  const char *base = rushmem::ptr(j.from, j.peer);
  const uint64_t n = j.bytes / 8, rank = fresh(uint64_t(Scope::rank())), size = fresh(uint64_t(Scope::size()));
  timed<false>(j, [&](uint64_t round) {
    const volatile uint64_t *from = reinterpret_cast<const volatile uint64_t *>(fresh(base + place(j, round)));
    in_step(0, n, rank, size, [&](uint64_t i) { to[i] = load_word(from + i); });
    Scope::sync();
  });
}

SMALL_KERNEL(put_latency_thread) { put_latency<rushmem::thread, uint64_t>(j); }
SMALL_KERNEL(put_latency_warp) { put_latency<rushmem::warp, uint64_t>(j); }
KERNEL(put_latency_block) { put_latency<rushmem::block, uint64_t>(j); }
SMALL_KERNEL(put_latency_thread_bytes) { put_latency<rushmem::thread, char>(j); }
SMALL_KERNEL(put_latency_warp_bytes) { put_latency<rushmem::warp, char>(j); }
KERNEL(put_latency_block_bytes) { put_latency<rushmem::block, char>(j); }
SMALL_KERNEL(get_latency_thread) { get_latency<rushmem::thread, uint64_t>(j); }
SMALL_KERNEL(get_latency_warp) { get_latency<rushmem::warp, uint64_t>(j); }
KERNEL(get_latency_block) { get_latency<rushmem::block, uint64_t>(j); }
SMALL_KERNEL(get_latency_thread_bytes) { get_latency<rushmem::thread, char>(j); }
SMALL_KERNEL(get_latency_warp_bytes) { get_latency<rushmem::warp, char>(j); }
KERNEL(get_latency_block_bytes) { get_latency<rushmem::block, char>(j); }
SMALL_KERNEL(put_latency_thread_staged) { put_latency_staged<rushmem::thread>(j); }
SMALL_KERNEL(put_latency_warp_staged) { put_latency_staged<rushmem::warp>(j); }
KERNEL(put_latency_block_staged) { put_latency_staged<rushmem::block>(j); }
SMALL_KERNEL(get_latency_thread_staged) { get_latency_staged<rushmem::thread>(j); }
SMALL_KERNEL(get_latency_warp_staged) { get_latency_staged<rushmem::warp>(j); }
KERNEL(get_latency_block_staged) { get_latency_staged<rushmem::block>(j); }
SMALL_KERNEL(signal_latency_thread) {
  uint64_t *to = reinterpret_cast<uint64_t *>(j.to);
  timed<false>(j, [&](uint64_t round) {
    rushmem::signal_op(fresh(to), round + 1, rushmem::signal::set, j.peer);
    rushmem::quiet();
  });
}
SMALL_KERNEL(probe_signal_latency_thread) {
  uint64_t *to = rushmem::ptr(reinterpret_cast<uint64_t *>(j.to), j.peer);
  timed<false>(j, [&](uint64_t round) {
    rushmem::impl::store_relaxed_word(fresh(to), round + 1);
    rushmem::impl::fence_sc();
  });
}
SMALL_KERNEL(p_latency_thread) { p_latency<rushmem::thread>(j); }
SMALL_KERNEL(p_latency_warp) { p_latency<rushmem::warp>(j); }
KERNEL(p_latency_block) { p_latency<rushmem::block>(j); }
SMALL_KERNEL(g_latency_thread) { g_latency<rushmem::thread>(j); }
SMALL_KERNEL(g_latency_warp) { g_latency<rushmem::warp>(j); }
KERNEL(g_latency_block) { g_latency<rushmem::block>(j); }
SMALL_KERNEL(probe_put_latency_thread) { probe_put_latency<rushmem::thread>(j); }
SMALL_KERNEL(probe_put_latency_warp) { probe_put_latency<rushmem::warp>(j); }
KERNEL(probe_put_latency_block) { probe_put_latency<rushmem::block>(j); }
SMALL_KERNEL(probe_get_latency_thread) { probe_get_latency<rushmem::thread>(j); }
SMALL_KERNEL(probe_get_latency_warp) { probe_get_latency<rushmem::warp>(j); }
KERNEL(probe_get_latency_block) { probe_get_latency<rushmem::block>(j); }
SMALL_KERNEL(probe_p_latency_thread) { probe_p_latency<rushmem::thread>(j); }
SMALL_KERNEL(probe_p_latency_warp) { probe_p_latency<rushmem::warp>(j); }
KERNEL(probe_p_latency_block) { probe_p_latency<rushmem::block>(j); }
SMALL_KERNEL(probe_g_latency_thread) { probe_g_latency<rushmem::thread>(j); }
SMALL_KERNEL(probe_g_latency_warp) { probe_g_latency<rushmem::warp>(j); }
KERNEL(probe_g_latency_block) { probe_g_latency<rushmem::block>(j); }
