/* Several queues of a card to each PE (impl/net/queue.h, contexts): each block posts to its own, and fence,
 * quiet, syncs and collectives hold across all of them. Blocks hand over to one another by words of this PE's
 * memory, as any program on one GPU does; what a fence of theirs orders, no other fence helps with. */
#if !defined(RUSHMEM_TEST_CHECK_H)
#include "check.h"
#endif

namespace {

/* The number of this block in the grid, and of its context: by the definition, a remainder. */
__device__ uint32_t number_of_block() {
  return blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
}
__device__ rushmem_queue *queue_by_definition(int pe) {
  const rushmem_queues *all = rushmem::state().queues;
  return all->queues + static_cast<size_t>(number_of_block() % all->contexts) * static_cast<size_t>(rushmem::n_pes()) + pe;
}

/* To other blocks of this PE: what came before is theirs. */
__device__ void hand_over(uint64_t *word_) {
  __threadfence();
  atomicAdd(reinterpret_cast<unsigned long long *>(word_), 1ull);
}

}  // namespace

/* Every thread of every block writes 1, 2, ... `rounds` to its word at the next PE. Then the blocks meet, and
 * one thread's quiet serves for all. `met` is one word, zero. */
extern "C" __global__ void contexts_flood(uint64_t *report, uint32_t *words, uint64_t *met, uint32_t rounds) {
  const int right = right_of(rushmem::my_pe());
  const uint32_t blocks = gridDim.x * gridDim.y * gridDim.z, thread = number_of_block() * blockDim.x + threadIdx.x;
  rushmem_queue *q = queue_by_definition(right);
  CHECK_EQ(report, rushmem::impl::own_queue(right) - rushmem::state().queues->queues,
           q - rushmem::state().queues->queues, thread);
  const uint64_t before = rushmem::impl::load_relaxed_word(&q->tail);
  for (uint32_t round = 1; round <= rounds; ++round) rushmem::p(words + thread, round, right);
  CHECK(report, rushmem::impl::load_relaxed_word(&q->tail) - before >= rounds, thread);
  __syncthreads();
  if (threadIdx.x != 0) return;
  hand_over(met);
  if (number_of_block() != 0) return;
  rushmem::wait_until(met, rushmem::cmp::ge, uint64_t(blocks));
  rushmem::quiet();
  for (uint32_t i = 0; i < blocks * blockDim.x; ++i) CHECK_EQ(report, rushmem::g(words + i, right), rounds, i);
}

/* In each round every block puts its `n` words to the next PE, and gets as many, and waits for none of it.
 * One block waits for all blocks, makes a quiet, and tells the target, which looks at once. `words`, `source`
 * and `got` have `n` words for each block, and `met` 5, zero, and what is to be got. */
extern "C" __global__ void contexts_quiet(uint64_t *report, uint64_t *words, uint64_t *source, uint64_t *got,
                                          uint64_t *met, uint64_t n, uint64_t rounds) {
  if (threadIdx.x != 0) return;
  uint64_t *flag = met + 1, *ack = met + 2, *go = met + 3, *looked = met + 4;
  const int me = rushmem::my_pe(), right = right_of(me), left = left_of(me);
  const uint64_t block = number_of_block(), blocks = gridDim.x, first = block * n;
  for (uint64_t round = 1; round <= rounds; ++round) {
    if (block == round % blocks) {
      /* Those who look at what has come, there and here, are done. */
      rushmem::wait_until(ack, rushmem::cmp::ge, round - 1);
      rushmem::wait_until(looked, rushmem::cmp::ge, round - 1);
      hand_over(go);
    }
    rushmem::wait_until(go, rushmem::cmp::ge, round);
    for (uint64_t i = 0; i < n; ++i) source[first + i] = mix(round, first + i);
    for (uint64_t i = 0; i < n; ++i) got[first + i] = 0;
    if (block % 2) rushmem::put_nbi(words + first, source + first, n, right);
    else for (uint64_t i = 0; i < n; i += 3) rushmem::put_nbi(words + first + i, source + first + i, n - i < 3 ? n - i : 3, right);
    rushmem::get_nbi(got + first, met + 5 + first, n, right);
    hand_over(met);
    if (block != round % blocks) continue;
    rushmem::wait_until(met, rushmem::cmp::ge, blocks * round);
    rushmem::quiet();
    rushmem::p(flag, round, right);
    for (uint64_t i = 0; i < blocks * n; ++i) CHECK_EQ(report, rushmem::impl::load_relaxed(got + i), mix(7, i), round << 32 | i);
    rushmem::wait_until(flag, rushmem::cmp::ge, round);
    for (uint64_t i = 0; i < blocks * n; ++i) {
      CHECK_EQ(report, rushmem::impl::load_relaxed(words + i), mix(round, i), round << 32 | i);
    }
    rushmem::p(ack, round, left);
    rushmem::p(looked, round, me);
  }
}

/* Every thread writes to its 8 words of the next PE, and leaves. */
extern "C" __global__ void contexts_leave(uint64_t *words, uint64_t value) {
  const uint32_t thread = number_of_block() * blockDim.x + threadIdx.x;
  const int right = right_of(rushmem::my_pe());
  for (uint32_t i = 0; i < 8; ++i) rushmem::p(words + thread * 8 + i, value, right);
}

/* How the data goes out. */
enum { DATA_P = 0, DATA_LARGE = 1, DATA_SEVERAL = 2, DATA_KINDS = 3 };
/* How the target hears of it: by the queue, or by the proxy. */
enum { FLAG_P = 0, FLAG_SET = 1, FLAG_PUT_SIGNAL = 2, FLAG_ADD = 3, FLAG_ATOMIC = 4, FLAG_KINDS = 5 };

namespace {

__device__ void send_data(int kind, uint64_t *data, uint64_t *source, uint64_t n, uint64_t round, int pe) {
  if (kind == DATA_P) {
    for (uint64_t i = 0; i < n && i < 16; ++i) rushmem::p(data + i, mix(round, i), pe);
    return;
  }
  for (uint64_t i = 0; i < n; ++i) source[i] = mix(round, i);
  if (kind == DATA_LARGE) return rushmem::put_nbi(data, source, n, pe);
  for (uint64_t i = 0; i < n; i += 5) rushmem::put_nbi(data + i, source + i, n - i < 5 ? n - i : 5, pe);
}

__device__ void send_flag(int kind, uint64_t *flag, uint64_t *word_, uint64_t round, int pe) {
  switch (kind) {
    case FLAG_P: return rushmem::p(flag, round, pe);
    case FLAG_SET: return rushmem::signal_op(flag, round, rushmem::signal::set, pe);
    case FLAG_PUT_SIGNAL: return rushmem::put_signal(word_, &round, 1, flag, round, rushmem::signal::set, pe);
    case FLAG_ADD: return rushmem::signal_op(flag, 1, rushmem::signal::add, pe);
    case FLAG_ATOMIC: return rushmem::atomic_add(flag, 1, pe);
  }
}

}  // namespace

struct contexts_args {
  uint64_t *data, *source; /* `n` words each */
  uint64_t *words;         /* 6, zero */
  uint64_t n, rounds;
  int data_kind, flag_kind;
};

/* Message passing through several blocks: in each round one block puts data to the next PE, another one
 * fences (or the first, in every third round), and a third one tells the target, by a queue or by the proxy,
 * without a fence of its own. The last block receives, and checks all data. Which block has which part goes
 * round. */
extern "C" __global__ void contexts_relay(uint64_t *report, contexts_args a) {
  if (threadIdx.x != 0) return;
  uint64_t *flag = a.words, *ack = a.words + 1, *put = a.words + 2, *fenced = a.words + 3, *word_ = a.words + 4;
  const int me = rushmem::my_pe(), right = right_of(me), left = left_of(me);
  const uint32_t block = number_of_block(), senders = gridDim.x - 1;
  const uint64_t n = a.data_kind == DATA_P && a.n > 16 ? 16 : a.n;
  if (block == senders) {
    for (uint64_t round = 1; round <= a.rounds; ++round) {
      rushmem::wait_until(flag, rushmem::cmp::ge, round);
      for (uint64_t i = n; i-- > 0;) CHECK_EQ(report, rushmem::impl::load_relaxed(a.data + i), mix(round, i), round << 32 | i);
      rushmem::p(ack, round, left);
    }
    return;
  }
  for (uint64_t round = 1; round <= a.rounds; ++round) {
    const uint32_t puts = static_cast<uint32_t>(round % senders), tells = (puts + 2) % senders;
    const uint32_t fences = round % 3 == 0 ? puts : (puts + 1) % senders;
    if (block == puts) {
      rushmem::wait_until(ack, rushmem::cmp::ge, round - 1);
      rushmem::quiet(); /* of the round before: `source` is free */
      send_data(a.data_kind, a.data, a.source, a.n, round, right);
      hand_over(put);
    }
    if (block == fences) {
      rushmem::wait_until(put, rushmem::cmp::ge, round);
      rushmem::fence();
      hand_over(fenced);
    }
    if (block == tells) {
      rushmem::wait_until(fenced, rushmem::cmp::ge, round);
      send_flag(a.flag_kind, flag, word_, round, right);
    }
  }
}

/* The same where the block that fences tells the target, while all other blocks post at once, each to its
 * own words at the next PE: what follows each of `noise` is theirs. */
extern "C" __global__ void contexts_noise(uint64_t *report, contexts_args a, uint64_t *noise) {
  uint64_t *flag = a.words, *ack = a.words + 1, *put = a.words + 2, *word_ = a.words + 4;
  const int me = rushmem::my_pe(), right = right_of(me), left = left_of(me);
  const uint32_t block = number_of_block();
  if (block > 2) {
    const uint32_t thread = (block - 3) * blockDim.x + threadIdx.x;
    for (uint64_t round = 1; round <= 16 * a.rounds; ++round) rushmem::p(noise + thread, round, right);
    rushmem::quiet();
    CHECK_EQ(report, rushmem::g(noise + thread, right), 16 * a.rounds, thread);
    return;
  }
  if (threadIdx.x != 0) return;
  const uint64_t n = a.data_kind == DATA_P && a.n > 16 ? 16 : a.n;
  for (uint64_t round = 1; round <= a.rounds; ++round) {
    if (block == 0) {
      rushmem::wait_until(ack, rushmem::cmp::ge, round - 1);
      rushmem::quiet(); /* of the round before: `source` is free */
      send_data(a.data_kind, a.data, a.source, a.n, round, right);
      hand_over(put);
    } else if (block == 1) {
      rushmem::wait_until(put, rushmem::cmp::ge, round);
      rushmem::fence();
      send_flag(a.flag_kind, flag, word_, round, right);
    } else {
      rushmem::wait_until(flag, rushmem::cmp::ge, round);
      for (uint64_t i = n; i-- > 0;) CHECK_EQ(report, rushmem::impl::load_relaxed(a.data + i), mix(round, i), round << 32 | i);
      rushmem::p(ack, round, left);
    }
  }
}

/* One block after the other puts a word to every PE; the next one makes the barrier, or a sync behind a
 * quiet, and finds what all PEs have put. `words` has one for each PE, and `turn` is one word. */
extern "C" __global__ void contexts_meet(uint64_t *report, uint64_t *words, uint64_t *turn, uint64_t rounds) {
  if (threadIdx.x != 0) return;
  const int me = rushmem::my_pe(), n = rushmem::n_pes();
  const uint32_t block = number_of_block(), blocks = gridDim.x;
  for (uint64_t round = 1; round <= rounds; ++round) {
    if (block == 2 * round % blocks) {
      rushmem::wait_until(turn, rushmem::cmp::ge, 2 * (round - 1));
      for (int pe = 0; pe < n; ++pe) rushmem::p(words + me, round, pe);
      hand_over(turn);
    }
    if (block == (2 * round + 1) % blocks) {
      rushmem::wait_until(turn, rushmem::cmp::ge, 2 * round - 1);
      if (round % 2) {
        rushmem::barrier_all();
      } else {
        rushmem::quiet();
        rushmem::sync_all();
      }
      for (int pe = 0; pe < n; ++pe) CHECK_EQ(report, rushmem::impl::load_relaxed(words + pe), round, pe);
      rushmem::sync_all();
      hand_over(turn);
    }
  }
}

/* One block after the other makes a sync; then they make broadcasts of one slot set, whose roots run ahead.
 * Nothing else waits for the network in between. `words` has 6, and `turn` is one word. */
extern "C" __global__ void contexts_syncs(uint64_t *report, uint64_t *words, uint64_t *turn, uint64_t rounds) {
  if (threadIdx.x != 0) return;
  const uint32_t block = number_of_block(), blocks = gridDim.x;
  const rushmem::team t = rushmem::world();
  for (uint64_t round = 0; round < 2 * rounds; ++round) {
    if (block != (round + round / 3) % blocks) continue;
    rushmem::wait_until(turn, rushmem::cmp::ge, round);
    if (round < rounds) {
      rushmem::sync_all();
    } else {
      const int root = static_cast<int>(round / 16 % static_cast<uint64_t>(rushmem::n_pes()));
      uint64_t *said = words + 3;
      for (uint64_t i = 0; i < 3; ++i) words[i] = mix(round, i);
      rushmem::broadcast(t, said, words, 3, root);
      for (uint64_t i = 0; i < 3; ++i) CHECK_EQ(report, said[i], mix(round, i), round);
      if (round % 5 == 0) rushmem::sync(t);
    }
    hand_over(turn);
  }
}

/* Blocks wait in several contexts, for ever, until something ends them. */
extern "C" __global__ void contexts_go_on(uint64_t *word_, int pe) {
  for (uint64_t round = 0;; ++round) {
    rushmem::p(word_, round, pe);
    if (number_of_block() % 2) rushmem::fence();
    else rushmem::quiet();
  }
}
