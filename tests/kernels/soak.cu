/* Interprets random programs of operations, a block each (tests/soak). The first threads of a block make
 * them, at the scope that each operation names. */
#if !defined(RUSHMEM_TEST_CHECK_H)
#include "check.h"
#endif

/* As in tests/soak/program.rs. */
enum { SOAK_WORDS = 9000, SOAK_SIGNALS = 4, SOAK_COUNTERS = 4, SOAK_ARENA = 1 << 17, SOAK_OPERATIONS = 384 };

/* Before this text where the test compiles it. */
#if !defined(SOAK_KINDS)
#include "soak_kinds.h"
#endif

/* `Operation` of tests/soak/kernel.rs. `value` is what is put or added, `second` the signal's value, or what
 * a word is compared with. Indices are those of an actor's own words. */
struct soak_operation {
  uint64_t kind, scope, pe;
  uint64_t word, n, stride, arena, at;
  uint64_t value, second;
};

/* `Memory` of tests/soak/kernel.rs. `rows`, `signals` and `counters` have WORDS, SIGNALS and COUNTERS words
 * for each actor of all PEs; `sources` and `landing` ARENA words for each of this PE; `code` and `fetched`
 * OPERATIONS entries for each block. */
struct soak_memory {
  uint64_t *rows, *signals, *counters, *shared, *sources, *landing;
  const soak_operation *code;
  uint64_t *fetched;
};

/* Which actor each block is: its number among all, and on its PE. */
struct soak_who { uint64_t numbers[8]; };

namespace {

/* An operation of words that a scope makes together. */
template <typename Scope> __device__ void move(const soak_memory &m, const soak_operation &op) {
  const int pe = static_cast<int>(op.pe);
  const size_t n = op.n;
  uint64_t *const row = m.rows + op.word, *const here = m.landing + op.arena;
  const uint64_t *const from = m.sources + op.arena;
  uint64_t *const signal = m.signals + op.at;
  const ptrdiff_t stride = static_cast<ptrdiff_t>(op.stride);
  switch (op.kind) {
    case PUT: rushmem::put<Scope>(row, from, n, pe); break;
    case PUT_NBI: rushmem::put_nbi<Scope>(row, from, n, pe); break;
    case PUT_SIGNAL: rushmem::put_signal<Scope>(row, from, n, signal, op.second, rushmem::signal::set, pe); break;
    case PUT_SIGNAL_NBI:
      rushmem::put_signal_nbi<Scope>(row, from, n, signal, op.second, rushmem::signal::set, pe);
      break;
    case IPUT: rushmem::iput<Scope>(row, from, stride, 1, n, pe); break;
    case GET: rushmem::get<Scope>(here, row, n, pe); break;
    case GET_NBI: rushmem::get_nbi<Scope>(here, row, n, pe); break;
    case IGET: rushmem::iget<Scope>(here, row, 1, stride, n, pe); break;
  }
}

/* What one thread makes. */
__device__ void single(const soak_memory &m, const soak_operation &op, uint64_t *fetched) {
  const int pe = static_cast<int>(op.pe);
  uint64_t *const counter = m.counters + op.at;
  switch (op.kind) {
    case P: rushmem::p(m.rows + op.word, op.value, pe); break;
    case G: m.landing[op.arena] = rushmem::g(m.rows + op.word, pe); break;
    case SIGNAL: rushmem::signal_op(m.signals + op.at, op.second, rushmem::signal::set, pe); break;
    case SET: rushmem::atomic_set(counter, op.value, pe); break;
    case ADD: rushmem::atomic_add(counter, op.value, pe); break;
    case FETCH_ADD: *fetched = rushmem::atomic_fetch_add(counter, op.value, pe); break;
    case SWAP: *fetched = rushmem::atomic_swap(counter, op.value, pe); break;
    case COMPARE_SWAP: *fetched = rushmem::atomic_compare_swap(counter, op.second, op.value, pe); break;
    case SHARED_ADD: rushmem::atomic_add(m.shared, op.value, pe); break;
    case FENCE: rushmem::fence(); break;
    case QUIET: rushmem::quiet(); break;
  }
}

}  // namespace

extern "C" __global__ void soak(soak_memory all, soak_who who) {
  const uint64_t actor = who.numbers[2 * blockIdx.x], k = who.numbers[2 * blockIdx.x + 1];
  soak_memory m = all;
  m.rows += actor * SOAK_WORDS;
  m.signals += actor * SOAK_SIGNALS;
  m.counters += actor * SOAK_COUNTERS;
  m.sources += k * SOAK_ARENA;
  m.landing += k * SOAK_ARENA;
  const soak_operation *op = all.code + static_cast<size_t>(blockIdx.x) * SOAK_OPERATIONS;
  uint64_t *old = all.fetched + static_cast<size_t>(blockIdx.x) * SOAK_OPERATIONS;
  for (int i = 0; i < SOAK_OPERATIONS; ++i, ++op, ++old) {
    const uint64_t kind = op->kind, scope = op->scope;
    if (kind > QUIET) break;
    const bool moves = (kind >= PUT && kind <= IGET);
    if (moves && scope == SCOPE_BLOCK) {
      move<rushmem::block>(m, *op);
    } else if (moves && scope == SCOPE_WARP) {
      if (threadIdx.x < 32) move<rushmem::warp>(m, *op);
    } else if (threadIdx.x == 0) {
      if (moves) move<rushmem::thread>(m, *op);
      else single(m, *op, old);
    }
    /* A fence of the first thread covers what the block's threads have done behind this. */
    __syncthreads();
  }
  if (threadIdx.x == 0) rushmem::quiet();
  __syncthreads();
}
