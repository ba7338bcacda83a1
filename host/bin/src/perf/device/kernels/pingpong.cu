/* Ping-pongs: the PE with the lower number sends, the other answers once it has seen what was sent. A round
 * is there and back; a latency in one direction is half of it. Words count rounds and never go back, so
 * nothing is reset. */

template <typename Scope, typename Send> DEV void pingpong(const job &j, Send send) {
  const bool serves = rushmem::my_pe() < j.peer;
  timed<false>(j, [&](uint64_t round) {
    if (serves) send(round + 1);
    if (Scope::rank() == 0) rushmem::signal_wait_until(j.words + PING, rushmem::cmp::ge, round + 1);
    Scope::sync();
    if (!serves) send(round + 1);
  });
}

SMALL_KERNEL(signal_pingpong_thread) {
  pingpong<rushmem::thread>(
      j, [&](uint64_t n) { rushmem::signal_op(j.words + PING, n, rushmem::signal::set, j.peer); });
}

SMALL_KERNEL(atomic_pingpong_thread) {
  pingpong<rushmem::thread>(j, [&](uint64_t) { rushmem::atomic_inc(j.words + PING, j.peer); });
}

template <typename Scope, typename T> DEV void put_signal_pingpong(const job &j) {
  T *to = reinterpret_cast<T *>(j.to);
  const T *from = reinterpret_cast<const T *>(j.from);
  const uint64_t count = j.bytes / sizeof(T);
  pingpong<Scope>(j, [&](uint64_t n) {
    rushmem::put_signal<Scope>(fresh(to), fresh(from), fresh(count), j.words + PING, n, rushmem::signal::set, j.peer);
  });
}

/* put, quiet, and a p that tells. */
template <typename Scope, typename T> DEV void put_pingpong(const job &j) {
  T *to = reinterpret_cast<T *>(j.to);
  const T *from = reinterpret_cast<const T *>(j.from);
  const uint64_t count = j.bytes / sizeof(T);
  pingpong<Scope>(j, [&](uint64_t n) {
    rushmem::put<Scope>(fresh(to), fresh(from), fresh(count), j.peer);
    if (Scope::rank() != 0) return;
    rushmem::quiet();
    rushmem::p(j.words + PING, n, j.peer);
  });
}

template <typename Scope> DEV void p_pingpong(const job &j) {
  uint64_t *to = reinterpret_cast<uint64_t *>(j.to);
  const uint64_t count = j.bytes / 8;
  pingpong<Scope>(j, [&](uint64_t n) {
    for (uint64_t i = Scope::rank(); i < count; i += Scope::size()) rushmem::p(to + i, j.salt + i, j.peer);
    Scope::sync();
    if (Scope::rank() != 0) return;
    rushmem::quiet();
    rushmem::p(j.words + PING, n, j.peer);
  });
}

SMALL_KERNEL(put_signal_pingpong_thread) { put_signal_pingpong<rushmem::thread, uint64_t>(j); }
SMALL_KERNEL(put_signal_pingpong_warp) { put_signal_pingpong<rushmem::warp, uint64_t>(j); }
KERNEL(put_signal_pingpong_block) { put_signal_pingpong<rushmem::block, uint64_t>(j); }
SMALL_KERNEL(put_signal_pingpong_thread_bytes) { put_signal_pingpong<rushmem::thread, char>(j); }
SMALL_KERNEL(put_signal_pingpong_warp_bytes) { put_signal_pingpong<rushmem::warp, char>(j); }
KERNEL(put_signal_pingpong_block_bytes) { put_signal_pingpong<rushmem::block, char>(j); }
SMALL_KERNEL(put_pingpong_thread) { put_pingpong<rushmem::thread, uint64_t>(j); }
SMALL_KERNEL(put_pingpong_warp) { put_pingpong<rushmem::warp, uint64_t>(j); }
KERNEL(put_pingpong_block) { put_pingpong<rushmem::block, uint64_t>(j); }
SMALL_KERNEL(put_pingpong_thread_bytes) { put_pingpong<rushmem::thread, char>(j); }
SMALL_KERNEL(put_pingpong_warp_bytes) { put_pingpong<rushmem::warp, char>(j); }
KERNEL(put_pingpong_block_bytes) { put_pingpong<rushmem::block, char>(j); }
SMALL_KERNEL(p_pingpong_thread) { p_pingpong<rushmem::thread>(j); }
SMALL_KERNEL(p_pingpong_warp) { p_pingpong<rushmem::warp>(j); }
KERNEL(p_pingpong_block) { p_pingpong<rushmem::block>(j); }

/* Data and its flag in one store. What arrives is left where a put would leave it; packets lie behind
 * that. */
DEV rushmem::packet *packets_of(const job &j) {
  return reinterpret_cast<rushmem::packet *>(j.to + (j.bytes + 64 + 15) / 16 * 16);
}

template <typename Scope, typename T> DEV void packed_pingpong(const job &j) {
  const bool serves = rushmem::my_pe() < j.peer;
  rushmem::packet *slots = packets_of(j);
  T *to = reinterpret_cast<T *>(j.to);
  const T *from = reinterpret_cast<const T *>(j.from);
  const uint64_t n = j.bytes / sizeof(T);
  timed<false>(j, [&](uint64_t round) {
    if (serves) rushmem::put_packed<Scope>(slots, from, n, round + 1, j.peer);
    rushmem::wait_packed<Scope>(to, slots, n, round + 1);
    if (!serves) rushmem::put_packed<Scope>(slots, from, n, round + 1, j.peer);
  });
  j.words[PING] = j.warmup + uint64_t(j.iterations) * j.batches;
}

/* One word, as a value. */
SMALL_KERNEL(packed_pingpong_thread) {
  if (j.bytes != 8) return packed_pingpong<rushmem::thread, uint64_t>(j);
  const bool serves = rushmem::my_pe() < j.peer;
  rushmem::packet *slot = packets_of(j);
  const uint64_t mine = *reinterpret_cast<const uint64_t *>(j.from);
  uint64_t theirs = 0;
  timed<false>(j, [&](uint64_t round) {
    if (serves) rushmem::put_packed(slot, mine, round + 1, j.peer);
    theirs = rushmem::wait_packed(slot, round + 1);
    if (!serves) rushmem::put_packed(slot, mine, round + 1, j.peer);
  });
  *reinterpret_cast<uint64_t *>(j.to) = theirs;
  j.words[PING] = slot->sequence;
}
SMALL_KERNEL(packed_pingpong_warp) { packed_pingpong<rushmem::warp, uint64_t>(j); }
KERNEL(packed_pingpong_block) { packed_pingpong<rushmem::block, uint64_t>(j); }
SMALL_KERNEL(packed_pingpong_thread_bytes) { packed_pingpong<rushmem::thread, char>(j); }
SMALL_KERNEL(packed_pingpong_warp_bytes) { packed_pingpong<rushmem::warp, char>(j); }
KERNEL(packed_pingpong_block_bytes) { packed_pingpong<rushmem::block, char>(j); }

/* ---- What the instructions themselves take, without a library: no checks, no watch over the wait. ---- */

/* What is seen is acquired, as a wait's promise is: by a second load where `loads`, else by a fence. */
template <typename Scope, bool loads, typename Send> DEV void bare_pingpong(const job &j, Send send) {
  const bool serves = rushmem::my_pe() < j.peer;
  uint64_t *mine = j.words + PING, *theirs = rushmem::ptr(mine, j.peer);
  timed<false>(j, [&](uint64_t round) {
    if (serves) send(theirs, round + 1);
    if (Scope::rank() == 0) {
      spin_until([&] { return rushmem::impl::load_relaxed_word(mine) >= round + 1; });
      if (!loads) rushmem::impl::fence_acquire();
      else if (rushmem::impl::load_acquire_word(mine) < round + 1) rushmem::atomic_inc(j.stamps, rushmem::my_pe());
    }
    Scope::sync();
    if (!serves) send(theirs, round + 1);
  });
}

/* A relaxed store; a relaxed poll and an acquire fence. */
SMALL_KERNEL(probe_signal_pingpong_thread) {
  bare_pingpong<rushmem::thread, false>(j, [](uint64_t *to, uint64_t n) { rushmem::impl::store_relaxed_word(to, n); });
}

/* A relaxed reduction; a relaxed poll and an acquire fence. */
SMALL_KERNEL(probe_atomic_pingpong_thread) {
  bare_pingpong<rushmem::thread, false>(j, [](uint64_t *to, uint64_t) { rushmem::impl::add_word(to, uint64_t(1)); });
}

/* A bare copy, a release store by one thread; a relaxed poll and one acquire. */
template <typename Scope> DEV void probe_put_signal_pingpong(const job &j) {
  char *data = rushmem::ptr(j.to, j.peer);
  bare_pingpong<Scope, true>(j, [&](uint64_t *to, uint64_t n) {
    bare_copy<Scope, false>(fresh(data), fresh(j.from), fresh(j.bytes));
    Scope::sync();
    if (Scope::rank() == 0) rushmem::impl::store_release_word(to, n);
  });
}
SMALL_KERNEL(probe_put_signal_pingpong_thread) { probe_put_signal_pingpong<rushmem::thread>(j); }
SMALL_KERNEL(probe_put_signal_pingpong_warp) { probe_put_signal_pingpong<rushmem::warp>(j); }
KERNEL(probe_put_signal_pingpong_block) { probe_put_signal_pingpong<rushmem::block>(j); }

/* 16 bytes by one store and one load, again and again. */
SMALL_KERNEL(probe_packed_pingpong_thread) {
  const bool serves = rushmem::my_pe() < j.peer;
  rushmem::packet *mine = packets_of(j), *theirs = rushmem::ptr(mine, j.peer);
  const uint64_t value = *reinterpret_cast<const uint64_t *>(j.from);
  rushmem::packet seen{0, 0};
  timed<false>(j, [&](uint64_t round) {
    if (serves) rushmem::impl::store_packet(theirs, value, round + 1);
    spin_until([&] {
      seen = rushmem::impl::load_packet(mine);
      return seen.sequence == round + 1;
    });
    if (!serves) rushmem::impl::store_packet(theirs, value, round + 1);
  });
  *reinterpret_cast<uint64_t *>(j.to) = seen.value;
  j.words[PING] = seen.sequence;
}

/* One word of data, a sequentially consistent fence, a relaxed store; a relaxed poll and one acquire. */
SMALL_KERNEL(probe_p_pingpong_thread) {
  uint64_t *data = rushmem::ptr(reinterpret_cast<uint64_t *>(j.to), j.peer);
  bare_pingpong<rushmem::thread, true>(j, [&](uint64_t *to, uint64_t n) {
    *reinterpret_cast<volatile uint64_t *>(data) = j.salt;
    rushmem::impl::fence_sc();
    rushmem::impl::store_relaxed_word(to, n);
  });
}
