/* Ordering, by litmus tests between neighbours: message passing (a flag is never seen before its data) by
 * every pair of data operation and flag operation, and store buffering (two PEs cannot both miss the other's
 * completed put). Values carry the round's number, so a stale one shows. One block to a PE. Where PEs are not
 * mapped, words and up to 512 bytes travel in messages that keep their order, and more than that does not:
 * hence the larger ones. */
#if !defined(RUSHMEM_TEST_CHECK_H)
#include "check.h"
#endif

enum {
  MP_PUT_SIGNAL = 0,       /* put_signal */
  MP_P_FENCE_P = 1,        /* p, fence, p as the flag */
  MP_PUT_FENCE_ATOMIC = 2, /* put_nbi, fence, atomic_add as the flag */
  MP_PUT_QUIET_SIGNAL = 3, /* put_nbi, quiet, signal_op */
  MP_P_PUT_SIGNAL = 4,     /* p to one place, fence, put_signal to another */
  MP_BLOCK_ONE_FENCE = 5,  /* the block's threads each put, one fences for all and sets the flag */
  MP_ATOMIC_FENCE_P = 6,   /* atomics as the data */
  MP_FORMS = 7
};

namespace {

__device__ void send(int form, uint64_t *data, uint64_t *flag, uint64_t number, size_t words, int pe) {
  const size_t t = threadIdx.x;
  if (form == MP_BLOCK_ONE_FENCE) {
    for (size_t i = t; i < words; i += blockDim.x) rushmem::put_nbi(data + i, &number, 1, pe);
    __syncthreads();
    if (t == 0) {
      rushmem::fence();
      rushmem::p(flag, number, pe);
    }
    return;
  }
  if (t != 0) return;
  if (form == MP_PUT_SIGNAL) {
    for (size_t i = 0; i + 1 < words; ++i)
      rushmem::put_signal(data + i, &number, 1, flag + 1 + i, number, rushmem::signal::set, pe);
    rushmem::fence();
    rushmem::put_signal(data + words - 1, &number, 1, flag, number, rushmem::signal::set, pe);
    return;
  }
  for (size_t i = 0; i < words; ++i) {
    if (form == MP_P_FENCE_P || form == MP_P_PUT_SIGNAL) rushmem::p(data + i, number, pe);
    else if (form == MP_ATOMIC_FENCE_P) rushmem::atomic_swap(data + i, number, pe);
    else rushmem::put_nbi(data + i, &number, 1, pe);
  }
  if (form == MP_PUT_QUIET_SIGNAL) {
    rushmem::quiet();
    rushmem::signal_op(flag, number, rushmem::signal::set, pe);
  } else {
    rushmem::fence();
    if (form == MP_PUT_FENCE_ATOMIC) rushmem::atomic_add(flag, 1, pe);
    else if (form == MP_P_PUT_SIGNAL)
      rushmem::put_signal(data, &number, 1, flag, number, rushmem::signal::set, pe);
    else rushmem::p(flag, number, pe);
  }
}

}  // namespace

/* `Litmus` of arguments.rs. */
struct litmus_args {
  size_t words;
  int form, rounds;
};

/* `data` has `words` words, `flag` `words` and `ack` one: all zero. Flags may lead by no more than a round.
 */
extern "C" __global__ void litmus_message_passing(uint64_t *report, uint64_t *data, uint64_t *flag,
                                                  uint64_t *ack, litmus_args a) {
  const int form = a.form, rounds = a.rounds;
  const size_t words = a.words;
  const int me = rushmem::my_pe(), right = right_of(me), left = left_of(me);
  for (int round = 1; round <= rounds; ++round) {
    const uint64_t number = static_cast<uint64_t>(round);
    send(form, data, flag, number, words, right);
    if (threadIdx.x == 0) {
      /* In turn: a wait, and tests in a loop. */
      if (round % 2) rushmem::wait_until(flag, rushmem::cmp::eq, number);
      else
        while (!rushmem::test(flag, rushmem::cmp::ge, number)) {
        }
      /* Last first: the stores went the other way. */
      for (size_t i = words; i-- > 0;) CHECK_EQ(report, data[i], number, number << 8 | i);
      rushmem::fence();
      rushmem::p(ack, number, left);
      rushmem::wait_until(ack, rushmem::cmp::ge, number);
    }
    __syncthreads();
  }
}

enum { BULK_PUT_SIGNAL = 0, BULK_FENCE_P = 1, BULK_FENCE_ATOMIC = 2, BULK_FENCE_SIGNAL = 3, BULK_QUIET_P = 4 };

/* Message passing with `words` words that the block puts as one. `data` and `source` have that many, `flag`
 * and `ack` one: all zero. */
extern "C" __global__ void litmus_bulk(uint64_t *report, uint64_t *data, uint64_t *source, uint64_t *flag,
                                       uint64_t *ack, litmus_args a) {
  const int form = a.form, rounds = a.rounds;
  const size_t words = a.words;
  const int me = rushmem::my_pe(), right = right_of(me), left = left_of(me);
  for (int round = 1; round <= rounds; ++round) {
    const uint64_t number = static_cast<uint64_t>(round);
    for (size_t i = threadIdx.x; i < words; i += blockDim.x) source[i] = number << 32 | i;
    __syncthreads();
    if (form == BULK_PUT_SIGNAL) {
      rushmem::put_signal_nbi<rushmem::block>(data, source, words, flag, number, rushmem::signal::set, right);
    } else {
      rushmem::put_nbi<rushmem::block>(data, source, words, right);
      __syncthreads();
      if (threadIdx.x == 0) {
        if (form == BULK_QUIET_P) rushmem::quiet();
        else rushmem::fence();
        if (form == BULK_FENCE_ATOMIC) rushmem::atomic_add(flag, 1, right);
        else if (form == BULK_FENCE_SIGNAL) rushmem::signal_op(flag, number, rushmem::signal::set, right);
        else rushmem::p(flag, number, right);
      }
    }
    if (threadIdx.x == 0) rushmem::wait_until(flag, rushmem::cmp::eq, number);
    __syncthreads();
    for (size_t i = words - 1 - threadIdx.x; i < words; i -= blockDim.x)
      CHECK_EQ(report, data[i], number << 32 | i, number << 32 | i);
    __syncthreads();
    if (threadIdx.x == 0) {
      rushmem::fence();
      rushmem::p(ack, number, left);
      rushmem::wait_until(ack, rushmem::cmp::ge, number);
      /* The source is free. */
      rushmem::quiet();
    }
    __syncthreads();
  }
}

/* PEs 2k and 2k + 1 pair up (an odd one out rests). Each puts to the other in its own `words` words for the
 * round and completes it, then reads what it was sent: not both may still see nothing. `x` has `words` words
 * for each round and `seen` one, of zero, `ones` has `words` ones. By puts to the other's memory (form 0), or
 * through p and gets of the other's words (form 1). */
extern "C" __global__ void litmus_store_buffering(uint64_t *report, uint64_t *x, uint64_t *ones,
                                                  uint64_t *seen, litmus_args a) {
  const int via = a.form, rounds = a.rounds;
  const size_t words = a.words;
  const int me = rushmem::my_pe(), other = me ^ 1;
  if (other >= rushmem::n_pes()) return;
  for (int round = 0; round < rounds; ++round) {
    uint64_t got, *there = x + static_cast<size_t>(round) * words, *last = there + words - 1;
    if (via == 0) {
      /* x at the other is written by me; x here is read by me. */
      rushmem::put_nbi(there, ones, words, other);
      rushmem::quiet();
      got = rushmem::g(last, me);
    } else {
      /* x here is written by me; x at the other is read by me. */
      rushmem::p(last, static_cast<uint64_t>(1), me);
      rushmem::quiet();
      rushmem::get(&got, last, 1, other);
    }
    /* Tell the other what was seen (2: nothing, 3: its put), and judge. */
    rushmem::p(seen + round, 2 + got, other);
    rushmem::wait_until(seen + round, rushmem::cmp::ne, 0);
    const uint64_t others = rushmem::g(seen + round, me) - 2;
    CHECK(report, got == 1 || others == 1, round);
  }
}
