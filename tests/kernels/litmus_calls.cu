/* Litmus tests of collectives: an array that a call reads is what all of the scope's threads stored before
 * it, and may be changed behind it; one that a call fills is the caller's until all of its threads have
 * come, and is whole for each of them behind it. No two threads wait for each other but in the call: a word
 * is stored before it by one of them and read behind it by another, a different one each round. Values carry
 * the round's number, so a stale one shows. Each block has a slot set. One form is too weak on purpose: it
 * calls nothing, and its words are the round's that the others' calls happen to let in. */
#if !defined(RUSHMEM_TEST_CHECK_H)
#include "check.h"
#endif
#if !defined(CALLS_OF)
#define CALLS_OF rushmem::warp
#endif

enum { CALL_BROADCAST = 0, CALL_FCOLLECT = 1, CALL_ALLTOALL = 2, CALL_REDUCE = 3, CALL_REDUCESCATTER = 4, CALL_WEAK = 5 };

/* `Calls` of tests/gpu_device/calls.rs. */
struct calls_args {
  int form, rounds;
  size_t words; /* of a member, or of the root */
  uint64_t seed;
};

namespace {

__device__ uint64_t word_of(uint64_t round, int member, size_t i) {
  return round << 32 | static_cast<uint64_t>(member) << 24 | (i & 0xffffff);
}

/* Is late, by up to a microsecond: each thread of a warp as long as the others, so that they stay together,
 * or each by itself. */
__device__ void dawdle(uint64_t *report, uint64_t random, bool apart) {
  uint64_t x = random | 1;
  for (uint64_t i = (apart ? random ^ threadIdx.x : random) % 96; i > 0; --i) {
    x = x * 6364136223846793005ull + 1442695040888963407ull;
  }
  CHECK(report, x != 0x123456789abcdefull, 0); /* so that the loop is not nothing */
}

/* What `dst` has of word `i` behind the call, for each form. */
__device__ uint64_t wanted(int form, uint64_t round, int n, int me, int root, size_t words, size_t i) {
  const int member = static_cast<int>(i / words);
  switch (form) {
    case CALL_BROADCAST: return word_of(round, root, i);
    case CALL_FCOLLECT: return word_of(round, member, i % words);
    case CALL_ALLTOALL: return word_of(round, member, static_cast<size_t>(me) * words + i % words);
    default: break;
  }
  uint64_t sum = 0;
  const size_t first = form == CALL_REDUCESCATTER ? static_cast<size_t>(me) * words : 0;
  for (int m = 0; m < n; ++m) sum += word_of(round, m, first + i);
  return sum;
}

template <typename Scope>
__device__ void calls(uint64_t *report, uint64_t *stats, uint64_t *dst, uint64_t *src, const calls_args &a) {
  if (Scope::rank() != threadIdx.x) return; /* One warp, or one thread, of a block. */
  const rushmem::team team = rushmem::world().on(blockIdx.x);
  const int n = team.n_pes(), me = team.my_pe();
  const size_t words = a.words, all = static_cast<size_t>(n) * words;
  dst += blockIdx.x * all;
  src += blockIdx.x * all;
  const size_t rank = Scope::rank(), size = Scope::size();
  const bool source_is_all = a.form == CALL_ALLTOALL || a.form == CALL_REDUCESCATTER;
  const bool is_all = a.form == CALL_FCOLLECT || a.form == CALL_ALLTOALL;
  uint64_t weak = 0;
  for (uint64_t round = 1; round <= static_cast<uint64_t>(a.rounds); ++round) {
    const int root = static_cast<int>(round % static_cast<uint64_t>(n));
    const uint64_t random = mix(a.seed ^ blockIdx.x, round * 8 + static_cast<uint64_t>(me));
    if (random % 4 != 0) dawdle(report, random >> 8, random % 4 == 1);
    const size_t sent = source_is_all ? all : words;
    if (a.form != CALL_BROADCAST || me == root || round % 2 == 0) {
      for (size_t i = (rank + round) % size; i < sent; i += size) src[i] = word_of(round, me, i);
    }
    switch (a.form) {
      case CALL_BROADCAST: rushmem::broadcast<Scope>(team, dst, src, words, root); break;
      case CALL_FCOLLECT: rushmem::fcollect<Scope>(team, dst, src, words); break;
      case CALL_ALLTOALL: rushmem::alltoall<Scope>(team, dst, src, words); break;
      case CALL_REDUCE: rushmem::reduce<Scope>(team, dst, src, words, rushmem::sum{}); break;
      case CALL_REDUCESCATTER: rushmem::reducescatter<Scope>(team, dst, src, words, rushmem::sum{}); break;
      default: /* To all, with nothing before or behind it. */
        for (size_t i = rank; i < words; i += size) rushmem::p(dst + i, src[i], right_of(me));
        break;
    }
    for (size_t i = (rank + 3 * round + 1) % size; i < (is_all ? all : words); i += size) {
      if (a.form == CALL_WEAK) weak += dst[i] != word_of(round, left_of(me), i);
      else CHECK_EQ(report, dst[i], wanted(a.form, round, n, me, root, words, i), round << 8 | static_cast<uint64_t>(a.form));
    }
  }
  if (weak != 0) atomicAdd(reinterpret_cast<unsigned long long *>(stats), static_cast<unsigned long long>(weak));
}

}  // namespace

/* `dst` and `src` have, for each block, as many words as a call moves to or from all members. CALLS_OF is the
 * scope: compilers take half a minute for each. */
extern "C" __global__ void __launch_bounds__(1024) litmus_calls(uint64_t *report, uint64_t *stats, uint64_t *dst,
                                                                uint64_t *src, calls_args a) {
  calls<CALLS_OF>(report, stats, dst, src, a);
}
