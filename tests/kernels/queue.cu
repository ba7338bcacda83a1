/* What is particular to kernels that write a card's queues (impl/net/queue.h): slots and counters that wrap,
 * order between what goes by a queue and what goes by the proxy, and requests that fail. */
#if !defined(RUSHMEM_TEST_CHECK_H)
#include "check.h"
#endif

/* The queue of a context to a PE, as abi_queue.h has them. */
__device__ static rushmem_queue *queue_of(uint32_t context, int pe) {
  return rushmem::state().queues->queues + (context * static_cast<uint32_t>(rushmem::n_pes()) + static_cast<uint32_t>(pe));
}

/* Requests posted to the queues of a PE so far. */
__device__ static uint64_t posted(int pe) {
  const rushmem_queues *all = rushmem::state().queues;
  uint64_t sum = 0;
  for (uint32_t context = 0; all && context < all->contexts; ++context) {
    sum += rushmem::impl::load_relaxed_word(&queue_of(context, pe)->tail);
  }
  return sum;
}

/* Every thread of many blocks writes 1, 2, ... `rounds` to its word at the next PE. */
extern "C" __global__ void queue_flood(uint64_t *report, uint32_t *words, uint32_t rounds) {
  const int right = (rushmem::my_pe() + 1) % rushmem::n_pes();
  const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  const uint64_t before = posted(right);
  for (uint32_t round = 1; round <= rounds; ++round) rushmem::p(words + thread, round, right);
  rushmem::quiet();
  CHECK(report, posted(right) - before >= rounds, posted(right) - before);
  CHECK_EQ(report, rushmem::g(words + thread, right), rounds, thread);
}

/* `words` has 8 words, `large` 2 * `n`. Thread 0 of each PE but 0 hears of rounds from PE 0: by `way`, one
 * operation goes by a queue and the other by the proxy, with a fence between them. The other threads of PE 0
 * write elsewhere meanwhile. */
extern "C" __global__ void queue_mixture(uint64_t *report, uint64_t *words, uint64_t *large, uint64_t n, int way,
                                         uint64_t rounds) {
  uint64_t *flag = words, *data = words + 1, *ack = words + 2, *noise = words + 3;
  const int me = rushmem::my_pe(), others = rushmem::n_pes() - 1;
  if (me != 0) {
    if (threadIdx.x != 0) return;
    for (uint64_t round = 1; round <= rounds; ++round) {
      rushmem::wait_until(flag, rushmem::cmp::ge, round);
      if (way == 2 || way == 3) {
        for (uint64_t i = 0; i < n; ++i) CHECK_EQ(report, large[i], mix(round, i), round << 32 | i);
      } else {
        CHECK_EQ(report, rushmem::impl::load_relaxed(data), round, round);
      }
      rushmem::atomic_add(ack, 1, 0);
    }
    return;
  }
  if (threadIdx.x != 0) {
    for (uint64_t round = 0; round < 4 * rounds; ++round) {
      rushmem::p(noise, round, 1 + static_cast<int>(round % static_cast<uint64_t>(others)));
    }
    return;
  }
  for (uint64_t round = 1; round <= rounds; ++round) {
    for (uint64_t i = 0; i < n; ++i) large[n + i] = mix(round, i);
    for (int pe = 1; pe <= others; ++pe) {
      switch (way) {
        case 0: /* queue, then proxy */
          rushmem::p(data, round, pe);
          rushmem::fence();
          rushmem::atomic_add(flag, 1, pe);
          break;
        case 1: /* proxy, then queue */
          rushmem::atomic_set(data, round, pe);
          rushmem::fence();
          rushmem::p(flag, round, pe);
          break;
        case 2: /* a large copy by the queue, and a signal that adds */
          rushmem::put_nbi(large, large + n, n, pe);
          rushmem::fence();
          rushmem::signal_op(flag, 1, rushmem::signal::add, pe);
          break;
        case 3: /* both in one queue */
          rushmem::put_signal_nbi(large, large + n, n, flag, round, rushmem::signal::set, pe);
          break;
        case 4: /* proxy, then queue, and the fence is another thread's affair: quiet */
          rushmem::atomic_add(data, 1, pe);
          rushmem::quiet();
          rushmem::signal_op(flag, round, rushmem::signal::set, pe);
          break;
      }
    }
    rushmem::wait_until(ack, rushmem::cmp::ge, round * static_cast<uint64_t>(others));
    if (way == 2 || way == 3) rushmem::quiet();
  }
}

/* One thread of each PE puts a word to each PE: by a queue to those of `expected`, a bit for each, and by the
 * proxy to the others. `words` has one for each PE. */
extern "C" __global__ void queue_ways(uint64_t *report, uint64_t *words, uint64_t expected) {
  const int me = rushmem::my_pe();
  for (int pe = 0; pe < rushmem::n_pes(); ++pe) {
    const uint64_t wanted = expected >> pe & 1, before = posted(pe);
    /* The queue to itself is for atomics by the card alone. */
    if (pe != me) CHECK_EQ(report, static_cast<uint64_t>(rushmem::impl::has_queue(pe)), wanted, pe);
    rushmem::p(words + me, uint64_t(1000 + me), pe);
    CHECK_EQ(report, posted(pe) - before, wanted, pe);
    rushmem::fence();
    rushmem::atomic_add(words + me, 1, pe);
  }
  rushmem::quiet();
  for (int pe = 0; pe < rushmem::n_pes(); ++pe) {
    CHECK_EQ(report, rushmem::g(words + me, pe), static_cast<uint64_t>(1001 + me), pe);
  }
}

/* A put behind a get_nbi of the same word changes nothing that the get reads. `words` has 3. */
extern "C" __global__ void queue_get_then_put(uint64_t *report, uint64_t *words, uint64_t rounds) {
  const int right = (rushmem::my_pe() + 1) % rushmem::n_pes();
  if (threadIdx.x != 0) return;
  rushmem::p(words, uint64_t(0), right);
  rushmem::quiet();
  for (uint64_t round = 1; round <= rounds; ++round) {
    rushmem::get_nbi(words + 1, words, 1, right);
    rushmem::p(words, round, right);
    rushmem::quiet();
    CHECK_EQ(report, rushmem::impl::load_relaxed(words + 1), round - 1, round);
  }
}

/* Each thread gets words into memory of its own, which the card does not reach. `words` has one for each. */
extern "C" __global__ void queue_answers(uint64_t *report, const uint64_t *words, uint64_t seed, int rounds) {
  const int right = (rushmem::my_pe() + 1) % rushmem::n_pes();
  for (int round = 0; round < rounds; ++round) {
    uint64_t here[8];
    const uint64_t first = (threadIdx.x + static_cast<uint64_t>(round)) % (blockDim.x - 7);
    rushmem::get(here, words + first, 8, right);
    for (uint64_t i = 0; i < 8; ++i) CHECK_EQ(report, here[i], mix(seed, first + i), first);
    unsigned char byte[3];
    rushmem::get(byte, reinterpret_cast<const unsigned char *>(words + first) + 3, 3, right);
    for (uint64_t i = 0; i < 3; ++i) CHECK_EQ(report, byte[i], mix(seed, first) >> 8 * (3 + i) & 255, first);
  }
}

#if defined(RUSHMEM_CPU)
/* A request with a key that is none: written here as the headers never would. (In relocatable code for GPUs
 * these functions are the device library's.) */
extern "C" __global__ void queue_bad_key(uint64_t *word_, int pe) {
  if (threadIdx.x != 0) return;
  rushmem::impl::queue_posting what;
  rushmem::impl::queue_word(what.requests[0], reinterpret_cast<uint64_t>(word_), 1, 8, pe);
  what.requests[0].rkey ^= 1;
  rushmem::impl::queue_post(what, 1, rushmem::impl::queue_waits, pe);
}

/* The put of one word as kernels on GPUs post it: as queue_flood. */
extern "C" __global__ void queue_flood_as_gpus_do(uint64_t *report, uint32_t *words, uint32_t rounds) {
  const int right = (rushmem::my_pe() + 1) % rushmem::n_pes();
  const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  const uint64_t to = reinterpret_cast<uint64_t>(words + thread), before = posted(right);
  for (uint32_t round = 1; round <= rounds; ++round) rushmem::impl::queue_post_word(to, round, 4, right);
  rushmem::quiet();
  CHECK(report, posted(right) - before >= rounds, posted(right) - before);
  CHECK_EQ(report, rushmem::g(words + thread, right), rounds, thread);
}

/* Each thread writes a request; then one rings, once, for all of them. (A look at `rung` by the others tells
 * them that nothing is left to ring for.) */
extern "C" __global__ void queue_one_doorbell(uint64_t *report, uint64_t *words, uint64_t value) {
  const int right = (rushmem::my_pe() + 1) % rushmem::n_pes();
  rushmem_queue *q = rushmem::state().queues->queues + right;
  const uint64_t before = rushmem::impl::load_acquire_word(&q->rung);
  __syncthreads();
  rushmem::impl::queue_posting what;
  rushmem::impl::queue_word(what.requests[0], reinterpret_cast<uint64_t>(words + threadIdx.x), mix(value, threadIdx.x),
                            8, right);
  rushmem::impl::queue_ask(what, 1, 0, right);
  uint64_t index = 0;
  while (!rushmem::impl::queue_take(q, 1, index)) rushmem::impl::queue_look(q);
  rushmem::impl::queue_write(q, index, &what, 0);
  CHECK_EQ(report, rushmem::impl::load_acquire_word(&q->rung), before, index);
  __syncthreads();
  if (threadIdx.x == blockDim.x / 2) CHECK(report, rushmem::impl::queue_ring(q, index + 1), index);
  __syncthreads();
  CHECK_EQ(report, rushmem::impl::load_acquire_word(&q->rung), before + blockDim.x, index);
  CHECK(report, rushmem::impl::queue_ring(q, index + 1), index);
  __syncthreads(); /* before a quiet posts its probe */
  rushmem::quiet();
  CHECK_EQ(report, rushmem::g(words + threadIdx.x, right), mix(value, threadIdx.x), index);
}

/* Takes all slots of a queue, for requests that nobody writes. */
__device__ static void fill_queue(int pe) {
  rushmem_queue *q = rushmem::state().queues->queues + pe;
  rushmem::impl::fetch_add_word(&q->tail, uint64_t(q->mask) + 1);
}

/* A queue that is full, and stays so. */
extern "C" __global__ void queue_full(uint64_t *word_, int pe) {
  fill_queue(pe);
  rushmem::impl::queue_post_word(reinterpret_cast<uint64_t>(word_), 1, 8, pe);
}

/* The same of one that is full because the card has refused a request. */
extern "C" __global__ void queue_full_and_refused(uint64_t *word_, int pe) {
  rushmem::impl::queue_posting what;
  rushmem::impl::queue_word(what.requests[0], reinterpret_cast<uint64_t>(word_), 1, 8, pe);
  what.requests[0].rkey ^= 1;
  rushmem::impl::queue_post(what, 1, 0, pe);
  fill_queue(pe);
  rushmem::impl::queue_post_word(reinterpret_cast<uint64_t>(word_), 1, 8, pe);
}
#endif

/* For ever, until something ends it. */
extern "C" __global__ void queue_go_on(uint64_t *word_, int pe) {
  for (uint64_t round = 0;; ++round) {
    rushmem::p(word_, round, pe);
    rushmem::quiet();
  }
}
