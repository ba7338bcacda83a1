/* What waits and tests cost where there is nothing to wait for, and how fine the clock is. By one thread. */

enum { WAIT = 0, TEST_TRUE = 1, TEST_FALSE = 2, SIGNAL_FETCH = 3, SIGNAL_WAIT = 4 };

template <int what> DEV void local(const job &j) {
  uint64_t *word = j.words + PONG;
  uint64_t hits = 0;
  timed<false>(j, [&](uint64_t) {
    if (what == WAIT) {
      rushmem::wait_until(word, rushmem::cmp::eq, j.salt);
      hits += 1;
    }
    if (what == TEST_TRUE) hits += rushmem::test(word, rushmem::cmp::eq, j.salt);
    if (what == TEST_FALSE) hits += !rushmem::test(word, rushmem::cmp::ne, j.salt);
    if (what == SIGNAL_FETCH) hits += rushmem::signal_fetch(word) == j.salt;
    if (what == SIGNAL_WAIT) hits += rushmem::signal_wait_until(word, rushmem::cmp::ge, j.salt) == j.salt;
  });
  j.stamps[1] = hits;
}

SMALL_KERNEL(local_wait) { local<WAIT>(j); }
SMALL_KERNEL(local_test_true) { local<TEST_TRUE>(j); }
SMALL_KERNEL(local_test_false) { local<TEST_FALSE>(j); }
SMALL_KERNEL(local_signal_fetch) { local<SIGNAL_FETCH>(j); }
SMALL_KERNEL(local_signal_wait) { local<SIGNAL_WAIT>(j); }

/* The smallest step of the clock. */
SMALL_KERNEL(clock_step) {
  uint64_t least = ~uint64_t(0);
  for (int i = 0; i < 200; ++i) {
    const uint64_t begin = clock_ns();
    uint64_t end = begin;
    while (end == begin) end = clock_ns();
    if (end - begin < least) least = end - begin;
  }
  j.stamps[1] = least;
}

/* The device's time, in the stream's turn. */
SMALL_KERNEL(stamp_now) { j.stamps[j.op] = clock_ns(); }
