/* put, get and put_signal through a stage in shared memory: sizes around every boundary, alignments of both
 * sides, stages from none to all there is, at each scope; several callers in a block at once; and a litmus
 * test of many rounds: a signal is never seen before the data that the copy engine wrote, nor is data of an
 * older round. */
#if !defined(RUSHMEM_TEST_CHECK_H)
#include "check.h"
#endif

enum { STAGED_PUT = 0, STAGED_GET = 1, STAGED_PUT_SIGNAL = 2 };

namespace {

constexpr unsigned char canary = 0xee;
constexpr size_t margin = 32;

template <typename Scope, typename T>
__device__ void transfer(int op, unsigned char *to_, const unsigned char *from_, size_t bytes, uint64_t *sig, int pe,
                         const rushmem::stage &through) {
  T *to = reinterpret_cast<T *>(to_);
  const T *from = reinterpret_cast<const T *>(from_);
  const size_t n = bytes / sizeof(T);
  if (op == STAGED_PUT) rushmem::put<Scope>(to, from, n, pe, through);
  else if (op == STAGED_GET) rushmem::get<Scope>(to, from, n, pe, through);
  else rushmem::put_signal<Scope>(to, from, n, sig, 1, rushmem::signal::add, pe, through);
}

}  // namespace

/* `Transfer` of tests/device/staged.rs. */
struct transfer_args {
  int op, scope, wide;
  uint32_t callers;
  size_t bytes, slot, from_align, to_align, stage_bytes, stage_align;
  uint64_t seed;
};
/* `Messages` there. */
struct messages_args {
  int scope, rounds;
  size_t words, stage_bytes;
  uint64_t seed;
};

/* One transfer of `bytes` bytes (`wide`: of 8 bytes each) for each scope of the block, `slot` bytes apart in `dst` and
 * `src`, `from_align` and `to_align` past 16-byte boundaries, with an equal part of `stage_bytes` of dynamic shared
 * memory, `stage_align` past its beginning. `callers` of the block's scopes take part. `sig` is zero. */
extern "C" __global__ void staged_transfer(uint64_t *report, unsigned char *dst, unsigned char *src, uint64_t *sig,
                                           transfer_args a) {
  const int op = a.op, scope = a.scope, wide = a.wide;
  const uint32_t callers = a.callers;
  const size_t bytes = a.bytes, slot = a.slot, from_align = a.from_align, to_align = a.to_align;
  const size_t stage_bytes = a.stage_bytes, stage_align = a.stage_align;
  const uint64_t seed = a.seed;
  RUSHMEM_DYNAMIC_SHARED(char, memory);
  const int me = rushmem::my_pe(), right = right_of(me);
  const int from_pe = op == STAGED_GET ? right : left_of(me);
  for (size_t i = threadIdx.x; i < callers * slot; i += blockDim.x) dst[i] = canary;
  for (size_t i = threadIdx.x; i < callers * slot; i += blockDim.x) src[i] = pattern(seed, me, i);
  rushmem::barrier_all<rushmem::block>();
  const uint32_t mine = scope == SCOPE_THREAD ? threadIdx.x : scope == SCOPE_WARP ? threadIdx.x / 32 : 0;
  const size_t each = stage_bytes / callers / 16 * 16;
  if (mine < callers) {
    unsigned char *to = dst + mine * slot + margin + to_align;
    const unsigned char *from = src + mine * slot + from_align;
    const rushmem::stage through(memory + mine * each + stage_align, each > stage_align ? each - stage_align : 0);
    if (scope == SCOPE_THREAD) {
      if (wide) transfer<rushmem::thread, uint64_t>(op, to, from, bytes, sig, right, through);
      else transfer<rushmem::thread, unsigned char>(op, to, from, bytes, sig, right, through);
    } else if (scope == SCOPE_WARP) {
      if (wide) transfer<rushmem::warp, uint64_t>(op, to, from, bytes, sig, right, through);
      else transfer<rushmem::warp, unsigned char>(op, to, from, bytes, sig, right, through);
    } else {
      if (wide) transfer<rushmem::block, uint64_t>(op, to, from, bytes, sig, right, through);
      else transfer<rushmem::block, unsigned char>(op, to, from, bytes, sig, right, through);
    }
    if (op == STAGED_GET) {
      /* All of it is there for every thread of the scope, without anything more. */
      const size_t rank = scope == SCOPE_THREAD ? 0 : scope == SCOPE_WARP ? threadIdx.x % 32 : threadIdx.x;
      const size_t size = scope == SCOPE_THREAD ? 1 : scope == SCOPE_WARP ? 32 : blockDim.x;
      for (size_t i = size - 1 - (rank < size ? rank : 0); i < bytes; i += size) {
        CHECK_EQ(report, to[i], pattern(seed, from_pe, mine * slot + from_align + i), bytes << 32 | i);
      }
    }
  }
  __syncthreads();
  if (op == STAGED_PUT_SIGNAL) {
    if (threadIdx.x == 0) rushmem::signal_wait_until(sig, rushmem::cmp::eq, callers);
    __syncthreads();
  } else {
    rushmem::barrier_all<rushmem::block>();
  }
  for (size_t i = threadIdx.x; i < callers * slot; i += blockDim.x) {
    const size_t caller = i / slot, at = i % slot - margin - to_align;
    const bool inside = i % slot >= margin + to_align && at < bytes;
    CHECK_EQ(report, dst[i], inside ? pattern(seed, from_pe, caller * slot + from_align + at) : canary,
             bytes << 32 | i);
  }
  rushmem::barrier_all<rushmem::block>();
}

namespace {

template <typename Scope>
__device__ void litmus(uint64_t *report, uint64_t *data, uint64_t *src, uint64_t *sig, uint64_t *ack, size_t words,
                       int rounds, uint64_t seed, const rushmem::stage &through) {
  const int me = rushmem::my_pe(), left = left_of(me), right = right_of(me);
  const size_t rank = Scope::rank(), size = Scope::size();
  for (int round = 1; round <= rounds; ++round) {
    const uint64_t number = static_cast<uint64_t>(round), said = mix(seed, number);
    for (size_t i = rank; i < words; i += size) src[i] = said + i;
    Scope::sync();
    switch (round % 3) {
      case 0:
        rushmem::put_signal<Scope>(data, src, words, sig, number, rushmem::signal::set, right, through);
        break;
      case 1: rushmem::put<Scope>(data, src, words, right, through);
        /* The source is free, and one fence for all orders the engine's stores, too. */
        for (size_t i = rank; i < words; i += size) src[i] = ~said;
        if (rank == 0) {
          rushmem::fence();
          rushmem::signal_op(sig, number, rushmem::signal::set, right);
        }
        break;
      default: rushmem::put<Scope>(data, src, words, right, through);
        if (rank == 0) {
          rushmem::quiet();
          rushmem::p(sig, number, right);
        }
    }
    if (rank == 0) rushmem::signal_wait_until(sig, rushmem::cmp::ge, number);
    Scope::sync();
    for (size_t i = rank; i < words; i += size) {
      CHECK_EQ(report, data[words - 1 - i], said + words - 1 - i, number << 16 | i);
    }
    Scope::sync();
    /* Sent on as it came: what another PE's engine wrote is read by this one's. In every other round a get,
     * from the left one's source, which is as it was until the acknowledgement. */
    if (round % 3 != 1 && round % 2) {
      rushmem::get<Scope>(data, src, words, left, through);
      for (size_t i = rank; i < words; i += size) {
        CHECK_EQ(report, data[words - 1 - i], said + words - 1 - i, number << 16 | i);
      }
      Scope::sync();
    }
    if (rank == 0) {
      rushmem::fence();
      rushmem::signal_op(ack, number, rushmem::signal::set, left);
      rushmem::wait_until(ack, rushmem::cmp::ge, number);
    }
    Scope::sync();
  }
}

}  // namespace

/* Each scope of each block has a lane of `words` words in `data` and `src`, 32 words in `flags`, and an equal part of
 * the block's `stage_bytes` of dynamic shared memory. At thread scope each warp's first thread has one. Zero all. */
extern "C" __global__ void staged_litmus(uint64_t *report, uint64_t *data, uint64_t *src, uint64_t *flags,
                                         messages_args a) {
  const int scope = a.scope, rounds = a.rounds;
  const size_t words = a.words, stage_bytes = a.stage_bytes;
  RUSHMEM_DYNAMIC_SHARED(char, memory);
  const size_t lanes = scope == SCOPE_BLOCK ? 1 : blockDim.x / 32;
  const size_t within = scope == SCOPE_BLOCK ? 0 : threadIdx.x / 32, lane = blockIdx.x * lanes + within;
  const size_t each = stage_bytes / lanes / 128 * 128;
  const rushmem::stage through(memory + within * each, each);
  data += lane * words;
  src += lane * words;
  uint64_t *sig = flags + lane * 32, *ack = sig + 16;
  const uint64_t seed = a.seed ^ mix(lane);
  if (scope == SCOPE_BLOCK) {
    litmus<rushmem::block>(report, data, src, sig, ack, words, rounds, seed, through);
  } else if (scope == SCOPE_WARP) {
    litmus<rushmem::warp>(report, data, src, sig, ack, words, rounds, seed, through);
  } else if (threadIdx.x % 32 == 0) {
    litmus<rushmem::thread>(report, data, src, sig, ack, words, rounds, seed, through);
  }
}
