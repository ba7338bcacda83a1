/* Litmus tests of many rounds: message passing and store buffering between this PE and its neighbours, in
 * many lanes side by side, each a pair of threads, warps or blocks with words of its own. Every round has new
 * values, so that a stale one shows, and each side is late by a random part of a link's latency. One form of
 * each test is too weak on purpose: how often it fails shows whether the test could see a failure of the
 * others. */
#if !defined(RUSHMEM_TEST_CHECK_H)
#include "check.h"
#endif

/* `stats`, added up by all lanes: rounds that waited for their message, or of store buffering those in which
 * one side missed the other's put; failures of the weak form; rounds. */
enum { STAT_RACED = 0, STAT_WEAK = 1, STAT_ROUNDS = 2 };

enum {
  MP_PUT_FENCE_SIGNAL = 0, /* put, fence, signal_op set */
  MP_NBI_FENCE_P = 1,      /* put_nbi, fence, p */
  MP_PUT_SIGNAL_SET = 2,   /* put_signal */
  MP_PUT_SIGNAL_ADD = 3,   /* the same, adding */
  MP_PUT_SIGNAL_NBI = 4,   /* put_signal_nbi */
  MP_NBI_QUIET_ADD = 5,    /* put_nbi, quiet, atomic_add */
  MP_P_FENCE_SET = 6,      /* p of each word, fence, atomic_set */
  MP_ATOMICS_FENCE_P = 7,  /* atomics as the data, fence, p */
  MP_IPUT_FENCE_SWAP = 8,  /* iput, fence, atomic_swap */
  MP_GET = 9,              /* plain stores to one's own words, fence, signal_op; the other gets them */
  MP_WEAK = 10             /* p of each word, p */
};

enum {
  SB_PUT_G = 0,   /* put_nbi to the other, quiet, g of one's own */
  SB_P_GET = 1,   /* p to one's own, quiet, get from the other */
  SB_ATOMICS = 2, /* atomic_set, quiet, atomic_fetch */
  SB_SIGNALS = 3, /* signal_op, quiet, signal_fetch */
  SB_WEAK = 4     /* p, g */
};

namespace {

constexpr size_t line = 16; /* words */

/* Which lane a thread works for. At thread scope the first thread of each warp has one. */
template <typename Scope> struct lane {
  __device__ static bool takes_part() { return true; }
  /* Its number in the block, and how many a block has. */
  __device__ static uint32_t within() { return threadIdx.x / 32; }
  __device__ static uint32_t per_block() { return blockDim.x / 32; }
  __device__ static uint32_t mine() { return blockIdx.x * per_block() + within(); }
};
template <> __device__ inline bool lane<rushmem::thread>::takes_part() { return threadIdx.x % 32 == 0; }
template <> __device__ inline uint32_t lane<rushmem::block>::within() { return 0; }
template <> __device__ inline uint32_t lane<rushmem::block>::per_block() { return 1; }

__device__ void count(uint64_t *stats, int which, uint64_t n) {
  atomicAdd(reinterpret_cast<unsigned long long *>(stats) + which, static_cast<unsigned long long>(n));
}

/* Is late, by up to a microsecond or two. */
__device__ void dawdle(uint64_t *report, uint64_t random) {
  uint64_t x = random | 1;
  for (uint64_t i = random % 192; i > 0; --i) x = x * 6364136223846793005ull + 1442695040888963407ull;
  CHECK(report, x != 0x123456789abcdefull, 0); /* so that the loop is not nothing */
}

__device__ uint64_t word_of(uint64_t number, size_t i) { return number << 20 | i; }

template <typename Scope>
__device__ void send(int form, uint64_t *data, uint64_t *src, uint64_t *flag, uint64_t number, size_t words,
                     int pe) {
  const size_t rank = Scope::rank(), size = Scope::size();
  for (size_t i = rank; i < words; i += size) src[i] = word_of(number, i);
  Scope::sync();
  switch (form) {
    case MP_PUT_SIGNAL_SET:
      rushmem::put_signal<Scope>(data, src, words, flag, number, rushmem::signal::set, pe);
      return;
    case MP_PUT_SIGNAL_ADD:
      rushmem::put_signal<Scope>(data, src, words, flag, 1, rushmem::signal::add, pe);
      return;
    case MP_PUT_SIGNAL_NBI:
      rushmem::put_signal_nbi<Scope>(data, src, words, flag, number, rushmem::signal::set, pe);
      return;
    case MP_PUT_FENCE_SIGNAL: rushmem::put<Scope>(data, src, words, pe); break;
    case MP_NBI_FENCE_P:
    case MP_NBI_QUIET_ADD: rushmem::put_nbi<Scope>(data, src, words, pe); break;
    case MP_IPUT_FENCE_SWAP: rushmem::iput<Scope>(data, src, 1, 1, words, pe); break;
    case MP_ATOMICS_FENCE_P:
      for (size_t i = rank; i < words; i += size) {
        if (i % 2) rushmem::atomic_set(data + i, src[i], pe);
        else rushmem::atomic_swap(data + i, src[i], pe);
      }
      break;
    case MP_P_FENCE_SET:
    case MP_WEAK:
      for (size_t i = rank; i < words; i += size) rushmem::p(data + i, src[i], pe);
      break;
    case MP_GET: break;
  }
  /* One for all: the barrier before it orders the others' puts, too. */
  Scope::sync();
  if (rank != 0) return;
  if (form == MP_NBI_QUIET_ADD) rushmem::quiet();
  else if (form != MP_WEAK) rushmem::fence();
  switch (form) {
    case MP_PUT_FENCE_SIGNAL:
    case MP_GET: rushmem::signal_op(flag, number, rushmem::signal::set, pe); break;
    case MP_NBI_QUIET_ADD: rushmem::atomic_add(flag, 1, pe); break;
    case MP_P_FENCE_SET: rushmem::atomic_set(flag, number, pe); break;
    case MP_IPUT_FENCE_SWAP: rushmem::atomic_swap(flag, number, pe); break;
    default: rushmem::p(flag, number, pe);
  }
}

/* Each kind of wait in turn. */
__device__ void await(uint64_t *flag, uint64_t number) {
  switch (number % 4) {
    case 0: rushmem::wait_until(flag, rushmem::cmp::ge, number); break;
    case 1: rushmem::signal_wait_until(flag, rushmem::cmp::eq, number); break;
    case 2:
      while (!rushmem::test(flag, rushmem::cmp::ge, number)) {
      }
      break;
    default: rushmem::wait_until_any(flag, 1, nullptr, rushmem::cmp::gt, number - 1);
  }
}

template <typename Scope>
__device__ void message_passing(uint64_t *report, uint64_t *stats, uint64_t *data, uint64_t *src,
                                uint64_t *flags, size_t stride, int form, size_t words, int rounds,
                                uint64_t seed) {
  if (!lane<Scope>::takes_part()) return;
  const int me = rushmem::my_pe(), right = right_of(me), left = left_of(me);
  const size_t mine = lane<Scope>::mine();
  /* Some lanes' data is not at a 16-byte boundary. */
  data += mine * stride + mine % 2;
  src += mine * stride + mine % 3;
  uint64_t *flag = flags + 2 * mine * line, *ack = flag + line;
  const size_t rank = Scope::rank(), size = Scope::size();
  uint64_t waited = 0, stale = 0;
  for (int round = 1; round <= rounds; ++round) {
    const uint64_t number = static_cast<uint64_t>(round);
    if (rank == 0) dawdle(report, mix(seed ^ mine, number * 2 + static_cast<uint64_t>(me % 2)));
    Scope::sync();
    send<Scope>(form, data, src, flag, number, words, right);
    if (rank == 0) {
      if (number % 16 == 0 && !rushmem::test(flag, rushmem::cmp::ge, number)) ++waited;
      await(flag, number);
    }
    Scope::sync();
    if (form == MP_GET) rushmem::get<Scope>(data, src, words, left);
    /* Last first: the stores went the other way. Plain loads, which may come from a cache. */
    for (size_t i = rank; i < words; i += size) {
      const size_t at = words - 1 - i;
      const uint64_t got = data[at], wanted = word_of(number, at);
      if (form == MP_WEAK) stale += got != wanted;
      else CHECK_EQ(report, got, wanted, number << 8 | static_cast<uint64_t>(form));
    }
    Scope::sync();
    if (rank == 0) {
      rushmem::fence();
      rushmem::signal_op(ack, number, rushmem::signal::set, left);
      rushmem::wait_until(ack, rushmem::cmp::ge, number);
    }
    /* `src` is free again, whatever the form. */
    rushmem::quiet();
    Scope::sync();
  }
  if (stale) count(stats, STAT_WEAK, stale);
  if (rank == 0) {
    count(stats, STAT_RACED, 16 * waited);
    count(stats, STAT_ROUNDS, static_cast<uint64_t>(rounds));
  }
}

template <typename Scope>
__device__ void store_buffering(uint64_t *report, uint64_t *stats, uint64_t *x, uint64_t *src, uint64_t *seen,
                                size_t stride, int form, size_t words, int rounds, uint64_t seed) {
  __shared__ int missed_by[32];
  const int me = rushmem::my_pe(), other = me ^ 1;
  if (!lane<Scope>::takes_part() || other >= rushmem::n_pes()) return;
  const size_t mine = lane<Scope>::mine();
  x += mine * stride;
  src += mine * stride;
  seen += 2 * mine * line;
  int *missed = missed_by + lane<Scope>::within();
  const size_t rank = Scope::rank(), size = Scope::size();
  uint64_t raced = 0, weak = 0;
  for (int round = 1; round <= rounds; ++round) {
    const uint64_t number = static_cast<uint64_t>(round);
    for (size_t i = rank; i < words; i += size) src[i] = number;
    if (rank == 0) {
      *missed = 0;
      dawdle(report, mix(seed ^ mine, number * 2 + static_cast<uint64_t>(me % 2)));
    }
    Scope::sync();
    /* To the other; in one form to oneself. */
    if (form == SB_PUT_G) {
      rushmem::put_nbi<Scope>(x, src, words, other);
    } else {
      for (size_t i = rank; i < words; i += size) {
        if (form == SB_P_GET) rushmem::p(x + i, number, me);
        else if (form == SB_ATOMICS) rushmem::atomic_set(x + i, number, other);
        else if (form == SB_SIGNALS) rushmem::signal_op(x + i, number, rushmem::signal::set, other);
        else rushmem::p(x + i, number, other);
      }
    }
    /* In turn: everybody's quiet, and one for all. */
    if (form == SB_WEAK) {
    } else if (round % 2) {
      rushmem::quiet();
      Scope::sync();
    } else {
      Scope::sync();
      if (rank == 0) rushmem::quiet();
      Scope::sync();
    }
    if (form == SB_P_GET) rushmem::get<Scope>(src, x, words, other);
    for (size_t i = rank; i < words; i += size) {
      uint64_t got;
      if (form == SB_P_GET) got = src[i];
      else if (form == SB_ATOMICS) got = rushmem::atomic_fetch(x + i, me);
      else if (form == SB_SIGNALS) got = rushmem::signal_fetch(x + i);
      else got = rushmem::g(x + i, me);
      CHECK(report, got == number || got + 1 == number, got << 32 | number);
      if (got != number) *missed = 1;
    }
    Scope::sync();
    if (rank == 0) {
      /* The other may be a round ahead when this one looks: two places, in turn. */
      uint64_t *here = seen + number % 2;
      const uint64_t my_miss = static_cast<uint64_t>(*missed);
      rushmem::p(here, number << 1 | my_miss, other);
      rushmem::wait_until(here, rushmem::cmp::ge, number << 1);
      const uint64_t other_miss = rushmem::g(here, me) & 1;
      if (form == SB_WEAK) weak += my_miss & other_miss;
      else CHECK(report, !(my_miss && other_miss), number << 8 | static_cast<uint64_t>(form));
      raced += my_miss ^ other_miss;
    }
    Scope::sync();
  }
  if (rank == 0) {
    count(stats, STAT_RACED, raced);
    count(stats, STAT_WEAK, weak);
    count(stats, STAT_ROUNDS, static_cast<uint64_t>(rounds));
  }
}

}  // namespace

/* `Lanes` of tests/gpu_device/lanes.rs. */
struct lanes_args {
  int scope, form, rounds;
  size_t stride, words;
  uint64_t seed;
};

/* Blocks of whole warps. `data` and `src` have `stride` words for each lane, at least words + 2, and `flags`
 * 32: all zero. */
extern "C" __global__ void litmus_lanes_mp(uint64_t *report, uint64_t *stats, uint64_t *data, uint64_t *src,
                                           uint64_t *flags, lanes_args a) {
  if (a.scope == SCOPE_THREAD) {
    message_passing<rushmem::thread>(report, stats, data, src, flags, a.stride, a.form, a.words, a.rounds, a.seed);
  } else if (a.scope == SCOPE_WARP) {
    message_passing<rushmem::warp>(report, stats, data, src, flags, a.stride, a.form, a.words, a.rounds, a.seed);
  } else {
    message_passing<rushmem::block>(report, stats, data, src, flags, a.stride, a.form, a.words, a.rounds, a.seed);
  }
}

/* The same memory; PEs 2k and 2k + 1 are a pair. Each puts the round's number and completes it, then looks
 * for the other's: not both may miss it. */
extern "C" __global__ void litmus_lanes_sb(uint64_t *report, uint64_t *stats, uint64_t *data, uint64_t *src,
                                           uint64_t *flags, lanes_args a) {
  if (a.scope == SCOPE_THREAD) {
    store_buffering<rushmem::thread>(report, stats, data, src, flags, a.stride, a.form, a.words, a.rounds, a.seed);
  } else if (a.scope == SCOPE_WARP) {
    store_buffering<rushmem::warp>(report, stats, data, src, flags, a.stride, a.form, a.words, a.rounds, a.seed);
  } else {
    store_buffering<rushmem::block>(report, stats, data, src, flags, a.stride, a.form, a.words, a.rounds, a.seed);
  }
}
