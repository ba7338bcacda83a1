/* Words that network cards update (card_word.h): exact counts from near, far and own PEs at once, a lock,
 * order with everything else, and what ends a launch. */
#if !defined(RUSHMEM_TEST_CHECK_H)
#include "check.h"
#endif

using rushmem::card_word;

/* Whether cards update words in this job is what the test says. */
extern "C" __global__ void card_ways(uint64_t *report, int expected) {
  CHECK_EQ(report, rushmem::impl::by_card(), expected != 0, rushmem::my_pe());
}

/* `words` has two for each PE, `sums` one: every thread adds to the words of all PEs, beginning with another
 * one. What the first forms return is summed up. */
extern "C" __global__ void card_count(card_word *words, uint64_t *sums, uint32_t rounds) {
  const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x, n = static_cast<uint32_t>(rushmem::n_pes());
  uint64_t sum = 0;
  for (uint32_t round = 0; round < rounds; ++round) {
    const int pe = static_cast<int>((round + thread + static_cast<uint32_t>(rushmem::my_pe())) % n);
    if (round % 4 == 3) sum += rushmem::atomic_fetch_inc(words + 2 * pe, pe);
    else sum += rushmem::atomic_fetch_add(words + 2 * pe, 1, pe);
    if (round % 4 == 3) rushmem::atomic_inc(words + 2 * pe + 1, pe);
    else rushmem::atomic_add(words + 2 * pe + 1, 1, pe);
  }
  atomicAdd(reinterpret_cast<unsigned long long *>(sums), static_cast<unsigned long long>(sum));
  rushmem::quiet();
}

/* Every thread adds to its own word of the next PE, and waits for nothing. `words` has one for each. */
extern "C" __global__ void card_flood(uint64_t *report, card_word *words, uint32_t rounds) {
  const int right = right_of(rushmem::my_pe());
  const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  const rushmem_queues *all = rushmem::state().queues;
  const uint64_t before = all ? rushmem::impl::load_relaxed_word(&rushmem::impl::own_queue(right)->tail) : 0;
  for (uint32_t round = 0; round < rounds; ++round) rushmem::atomic_add(words + thread, 3, right);
  rushmem::quiet();
  if (all) {
    const uint64_t posted = rushmem::impl::load_relaxed_word(&rushmem::impl::own_queue(right)->tail) - before;
    CHECK(report, posted >= rounds, posted);
  }
  CHECK_EQ(report, rushmem::atomic_fetch(words + thread, right), 3ull * rounds, thread);
}

/* Every thread adds to the word of every PE, and leaves. */
extern "C" __global__ void card_leave(card_word *word_, uint32_t rounds) {
  for (uint32_t round = 0; round < rounds; ++round) {
    for (int pe = 0; pe < rushmem::n_pes(); ++pe) rushmem::atomic_inc(word_, pe);
  }
}

/* A lock at each PE guards a counter there, which is no card's. One thread of each block of each PE takes
 * every lock `rounds` times. Let go by a fence, or by a quiet. */
extern "C" __global__ void card_lock(uint64_t *report, card_word *lock, uint64_t *counter, uint32_t rounds, int quiet) {
  if (threadIdx.x != 0) return;
  const int me = rushmem::my_pe(), n = rushmem::n_pes();
  const uint64_t name = 1 + static_cast<uint64_t>(me) * gridDim.x + blockIdx.x;
  for (uint32_t round = 0; round < rounds; ++round) {
    for (int i = 0; i < n; ++i) {
      const int pe = (me + i) % n;
      while (rushmem::atomic_compare_swap(lock, 0, name, pe) != 0) {}
      const uint64_t seen = rushmem::g(counter, pe);
      CHECK_EQ(report, rushmem::atomic_fetch(lock, pe), name, round);
      rushmem::p(counter, seen + 1, pe);
      if (quiet) rushmem::quiet();
      else rushmem::fence();
      CHECK_EQ(report, rushmem::atomic_compare_swap(lock, name, 0, pe), name, round);
    }
  }
}

/* Each form, by one thread of PE 0 on the word of each PE, and of 0 itself; `word_` is 0 before. */
extern "C" __global__ void card_forms(uint64_t *report, card_word *word_, uint64_t seed) {
  if (rushmem::my_pe() != 0 || threadIdx.x != 0) return;
  for (int pe = 0; pe < rushmem::n_pes(); ++pe) {
    const uint64_t a = mix(seed, 1), b = mix(seed, 2), c = mix(seed, 3);
    CHECK_EQ(report, rushmem::atomic_fetch(word_, pe), 0, pe);
    rushmem::atomic_set(word_, a, pe);
    CHECK_EQ(report, rushmem::atomic_fetch(word_, pe), a, pe);
    CHECK_EQ(report, rushmem::atomic_swap(word_, b, pe), a, pe);
    CHECK_EQ(report, rushmem::atomic_fetch_add(word_, c, pe), b, pe);
    CHECK_EQ(report, rushmem::atomic_fetch_inc(word_, pe), b + c, pe);
    CHECK_EQ(report, rushmem::atomic_compare_swap(word_, b, a, pe), b + c + 1, pe);
    CHECK_EQ(report, rushmem::atomic_compare_swap(word_, b + c + 1, a, pe), b + c + 1, pe);
    CHECK_EQ(report, rushmem::atomic_fetch_and(word_, b, pe), a, pe);
    CHECK_EQ(report, rushmem::atomic_fetch_or(word_, c, pe), a & b, pe);
    CHECK_EQ(report, rushmem::atomic_fetch_xor(word_, a, pe), (a & b) | c, pe);
    uint64_t wanted = ((a & b) | c) ^ a;
    rushmem::atomic_xor(word_, b, pe);
    wanted ^= b;
    rushmem::atomic_or(word_, a, pe);
    wanted |= a;
    rushmem::atomic_and(word_, c, pe);
    wanted &= c;
    rushmem::atomic_inc(word_, pe);
    rushmem::atomic_add(word_, b, pe);
    rushmem::fence();
    CHECK_EQ(report, rushmem::atomic_fetch(word_, pe), wanted + 1 + b, pe);
    rushmem::atomic_set(word_, mix(seed, 4), pe);
  }
}

/* Every thread of every PE changes bits of its own of the words of all PEs, 64 threads to a word. `words` has
 * one for each 64. */
extern "C" __global__ void card_bits(uint64_t *report, card_word *words, uint32_t rounds) {
  const uint32_t all = gridDim.x * blockDim.x;
  const uint32_t thread = static_cast<uint32_t>(rushmem::my_pe()) * all + blockIdx.x * blockDim.x + threadIdx.x;
  card_word *at = words + thread / 64;
  const uint64_t bit = uint64_t(1) << thread % 64;
  for (int pe = 0; pe < rushmem::n_pes(); ++pe) {
    for (uint32_t round = 0; round < rounds; ++round) {
      CHECK_EQ(report, rushmem::atomic_fetch_or(at, bit, pe) & bit, 0, round);
      CHECK_EQ(report, rushmem::atomic_fetch_and(at, ~bit, pe) & bit, bit, round);
      CHECK_EQ(report, rushmem::atomic_fetch_xor(at, bit, pe) & bit, 0, round);
      if (round + 1 != rounds) rushmem::atomic_xor(at, bit, pe);
    }
  }
}

/* PE 0 tells the others of rounds; `way` says what is before the fence and what behind it. `card` has 2
 * words, `words` 4, `large` 2 * `n`. */
extern "C" __global__ void card_order(uint64_t *report, card_word *card, uint64_t *words, uint64_t *large, uint64_t n,
                                      int way, uint64_t rounds) {
  card_word *flag = card, *data = card + 1;
  uint64_t *plain = words, *said = words + 1, *ack = words + 2;
  const int me = rushmem::my_pe(), others = rushmem::n_pes() - 1;
  if (threadIdx.x != 0) return;
  for (uint64_t round = 1; round <= rounds; ++round) {
    for (uint64_t i = 0; me == 0 && i < n; ++i) large[n + i] = mix(round, i);
    for (int pe = 1; me == 0 && pe <= others; ++pe) {
      switch (way) {
        case 0: /* a word, then a card's */
          rushmem::p(plain, round, pe);
          rushmem::fence();
          rushmem::atomic_add(flag, 1, pe);
          break;
        case 1: /* a large copy, then a card's word, compared */
          rushmem::put_nbi(large, large + n, n, pe);
          rushmem::fence();
          CHECK_EQ(report, rushmem::atomic_compare_swap(flag, round - 1, round, pe), round - 1, round);
          break;
        case 2: /* a target's atomic, then a card's */
          rushmem::atomic_add(plain, 1, pe);
          rushmem::fence();
          rushmem::atomic_add(flag, 1, pe);
          break;
        case 3: /* a card's, then a word */
          rushmem::atomic_add(data, 1, pe);
          rushmem::fence();
          rushmem::p(said, round, pe);
          break;
        case 4: /* a card's, then a target's atomic */
          rushmem::atomic_add(data, 1, pe);
          rushmem::fence();
          rushmem::atomic_add(said, 1, pe);
          break;
        case 5: /* a card's, complete, is in memory */
          rushmem::atomic_add(data, 1, pe);
          rushmem::quiet();
          rushmem::p(said, round, pe);
          break;
      }
    }
    if (me != 0) {
      if (way <= 2) {
        while (rushmem::atomic_fetch(flag, me) < round) {}
      } else {
        rushmem::wait_until(said, rushmem::cmp::ge, round);
      }
      if (way == 1) {
        for (uint64_t i = 0; i < n; ++i) CHECK_EQ(report, large[i], mix(round, i), round << 32 | i);
      } else if (way <= 2) {
        CHECK_EQ(report, rushmem::impl::load_relaxed(plain), round, round);
      } else if (way == 5) {
        CHECK_EQ(report, rushmem::impl::load_relaxed(&data->value), round, round);
      } else {
        CHECK_EQ(report, rushmem::atomic_fetch(data, me), round, round);
      }
      rushmem::atomic_add(ack, 1, 0);
    } else {
      rushmem::wait_until(ack, rushmem::cmp::ge, round * static_cast<uint64_t>(others));
      if (way == 1) rushmem::quiet();
    }
  }
}

/* At an address that is no multiple of 8. */
extern "C" __global__ void card_misaligned(uint64_t *word_, int pe) {
  rushmem::atomic_fetch(reinterpret_cast<const card_word *>(reinterpret_cast<const char *>(word_) + 4), pe);
}

/* Behind symmetric memory. */
extern "C" __global__ void card_nowhere(uint64_t *, int pe) {
  card_word here{0};
  rushmem::atomic_fetch_add(&here, 1, pe);
}

/* For ever, until something ends it; the word shows that it goes on. */
extern "C" __global__ void card_go_on(uint64_t *word_, int pe) {
  for (;;) rushmem::atomic_fetch_inc(reinterpret_cast<card_word *>(word_), pe);
}
