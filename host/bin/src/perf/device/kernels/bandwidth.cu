/* Bandwidth and message rate: every thread, warp or block of the grid moves its own part of the bytes, again
 * and again, with no meeting in between and one completion at the end of the batch. What a round puts goes
 * elsewhere than the last round's: stores of several rounds to one place become one before they cross the
 * link (1,700 GB/s were seen over one of 450). What a round gets comes from elsewhere, too, so that no
 * library has it in a cache; the probes do as what stands beside them. */

template <typename Scope, typename T> DEV void put_bw(const job &j) {
  const part my = part_of<Scope>(j.bytes);
  char *to = j.to + my.begin;
  const T *from = reinterpret_cast<const T *>(j.from + my.begin);
  const uint64_t n = my.size / sizeof(T);
  timed<true>(j, [&](uint64_t round) {
    rushmem::put_nbi<Scope>(reinterpret_cast<T *>(fresh(to + place(j, round))), fresh(from), fresh(n), j.peer);
  });
}

template <typename Scope, typename T> DEV void get_bw(const job &j) {
  const part my = part_of<Scope>(j.bytes);
  T *to = reinterpret_cast<T *>(j.to + my.begin);
  const char *from = j.from + my.begin;
  const uint64_t n = my.size / sizeof(T);
  timed<true>(j, [&](uint64_t round) {
    const T *there = reinterpret_cast<const T *>(fresh(from + place(j, round)));
    rushmem::get_nbi<Scope>(fresh(to), there, fresh(n), j.peer);
  });
}

/* The same through shared memory of the block's: each call waits for its own delivery. */
template <typename Scope> DEV void put_bw_staged(const job &j) {
  const part my = part_of<Scope>(j.bytes);
  char *to = j.to + my.begin;
  const uint64_t *from = reinterpret_cast<const uint64_t *>(j.from + my.begin);
  const rushmem::stage stage = stage_of<Scope>(j);
  timed<true>(j, [&](uint64_t round) {
    uint64_t *there = reinterpret_cast<uint64_t *>(fresh(to + place(j, round)));
    rushmem::put<Scope>(there, fresh(from), fresh(my.size / 8), j.peer, stage);
  });
}

template <typename Scope> DEV void get_bw_staged(const job &j) {
  const part my = part_of<Scope>(j.bytes);
  uint64_t *to = reinterpret_cast<uint64_t *>(j.to + my.begin);
  const char *from = j.from + my.begin;
  const rushmem::stage stage = stage_of<Scope>(j);
  timed<true>(j, [&](uint64_t round) {
    const uint64_t *there = reinterpret_cast<const uint64_t *>(fresh(from + place(j, round)));
    rushmem::get<Scope>(fresh(to), there, fresh(my.size / 8), j.peer, stage);
  });
}

/* A block, warp or thread has a part, its threads take word after word of it. The value comes out of a
 * register: what is measured is p. A round's place is fresh, as a put's is: without that the compiler makes
 * two addresses of it, one for PEs of the run and one for the call for others. */
template <typename Scope> DEV void p_bw(const job &j) {
  const part my = part_of<Scope>(j.bytes);
  const uint64_t end = (my.begin + my.size) / 8;
  timed<true>(j, [&](uint64_t round) {
    uint64_t *to = reinterpret_cast<uint64_t *>(fresh(j.to + place(j, round)));
    for (uint64_t i = my.begin / 8 + Scope::rank(); i < end; i += Scope::size()) rushmem::p(to + i, j.salt + i, j.peer);
  });
}

template <typename Scope> DEV void g_bw(const job &j) {
  const part my = part_of<Scope>(j.bytes);
  uint64_t *to = reinterpret_cast<uint64_t *>(j.to);
  const uint64_t end = (my.begin + my.size) / 8;
  const uint64_t begin = my.begin / 8, rank = fresh(uint64_t(Scope::rank())), size = fresh(uint64_t(Scope::size()));
  timed<true>(j, [&](uint64_t round) {
    const uint64_t *from = reinterpret_cast<const uint64_t *>(fresh(j.from + place(j, round)));
    in_step(begin, end, rank, size, [&](uint64_t i) { to[i] = rushmem::g(from + i, j.peer); });
  });
}

KERNEL(p_bw_thread) { p_bw<rushmem::thread>(j); }
KERNEL(p_bw_warp) { p_bw<rushmem::warp>(j); }
KERNEL(p_bw_block) { p_bw<rushmem::block>(j); }
KERNEL(g_bw_thread) { g_bw<rushmem::thread>(j); }
KERNEL(g_bw_warp) { g_bw<rushmem::warp>(j); }
KERNEL(g_bw_block) { g_bw<rushmem::block>(j); }

template <typename Scope> DEV void probe_put_bw(const job &j) {
  const part my = part_of<Scope>(j.bytes);
  char *to = rushmem::ptr(j.to, j.peer) + my.begin;
  timed<true>(j, [&](uint64_t round) {
    bare_copy<Scope, false>(fresh(to + place(j, round)), fresh(j.from + my.begin), fresh(my.size));
  });
}

template <typename Scope> DEV void probe_get_bw(const job &j) {
  const part my = part_of<Scope>(j.bytes);
  const char *from = rushmem::ptr(j.from, j.peer) + my.begin;
  timed<true>(j, [&](uint64_t round) {
    bare_copy<Scope, true>(fresh(j.to + my.begin), fresh(from + place(j, round)), fresh(my.size));
  });
}

/* Plain stores of 8 bytes, 4 in flight: the compiler knows that nobody is in between. A round's place is
 * fresh as p's is: without that the compiler works it out behind the branch of warps that have a word, and a
 * round is another one. */
KERNEL(probe_p_bw_block) {
  const part my = part_of<rushmem::block>(j.bytes);
  char *base = rushmem::ptr(j.to, j.peer);
  const uint64_t end = (my.begin + my.size) / 8;
  timed<true>(j, [&](uint64_t round) {
    volatile uint64_t *to = reinterpret_cast<volatile uint64_t *>(fresh(base + place(j, round)));
#pragma unroll 4
    for (uint64_t i = my.begin / 8 + threadIdx.x; i < end; i += blockDim.x) to[i] = j.salt + i;
    rushmem::impl::breathe();
  });
}

KERNEL(probe_g_bw_block) {
  const part my = part_of<rushmem::block>(j.bytes);
  uint64_t *to = reinterpret_cast<uint64_t *>(j.to);
  const char *base = rushmem::ptr(j.from, j.peer);
  const uint64_t end = (my.begin + my.size) / 8;
  const uint64_t begin = my.begin / 8, rank = fresh(uint64_t(threadIdx.x)), size = fresh(uint64_t(blockDim.x));
  timed<true>(j, [&](uint64_t round) {
    const volatile uint64_t *from = reinterpret_cast<const volatile uint64_t *>(fresh(base + place(j, round)));
    in_step(begin, end, rank, size, [&](uint64_t i) { to[i] = load_word(from + i); });
    rushmem::impl::breathe();
  });
}

FREE_KERNEL(put_bw_thread) { put_bw<rushmem::thread, uint64_t>(j); }
FREE_KERNEL(put_bw_warp) { put_bw<rushmem::warp, uint64_t>(j); }
KERNEL(put_bw_block) { put_bw<rushmem::block, uint64_t>(j); }
FREE_KERNEL(put_bw_thread_bytes) { put_bw<rushmem::thread, char>(j); }
FREE_KERNEL(put_bw_warp_bytes) { put_bw<rushmem::warp, char>(j); }
KERNEL(put_bw_block_bytes) { put_bw<rushmem::block, char>(j); }
FREE_KERNEL(get_bw_thread) { get_bw<rushmem::thread, uint64_t>(j); }
FREE_KERNEL(get_bw_warp) { get_bw<rushmem::warp, uint64_t>(j); }
KERNEL(get_bw_block) { get_bw<rushmem::block, uint64_t>(j); }
FREE_KERNEL(get_bw_thread_bytes) { get_bw<rushmem::thread, char>(j); }
FREE_KERNEL(get_bw_warp_bytes) { get_bw<rushmem::warp, char>(j); }
KERNEL(get_bw_block_bytes) { get_bw<rushmem::block, char>(j); }
FREE_KERNEL(put_bw_thread_staged) { put_bw_staged<rushmem::thread>(j); }
FREE_KERNEL(put_bw_warp_staged) { put_bw_staged<rushmem::warp>(j); }
KERNEL(put_bw_block_staged) { put_bw_staged<rushmem::block>(j); }
FREE_KERNEL(get_bw_thread_staged) { get_bw_staged<rushmem::thread>(j); }
FREE_KERNEL(get_bw_warp_staged) { get_bw_staged<rushmem::warp>(j); }
KERNEL(get_bw_block_staged) { get_bw_staged<rushmem::block>(j); }
FREE_KERNEL(probe_put_bw_thread) { probe_put_bw<rushmem::thread>(j); }
FREE_KERNEL(probe_put_bw_warp) { probe_put_bw<rushmem::warp>(j); }
KERNEL(probe_put_bw_block) { probe_put_bw<rushmem::block>(j); }
FREE_KERNEL(probe_get_bw_thread) { probe_get_bw<rushmem::thread>(j); }
FREE_KERNEL(probe_get_bw_warp) { probe_get_bw<rushmem::warp>(j); }
KERNEL(probe_get_bw_block) { probe_get_bw<rushmem::block>(j); }
