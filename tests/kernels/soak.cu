/* Interprets random programs of operations, a block each (tests/soak). The first threads of a block make
 * them, at the scope that each operation names. */
#if !defined(RUSHMEM_TEST_CHECK_H)
#include "check.h"
#endif

/* As in tests/soak/program.rs and kernel.rs. */
enum { SOAK_WORDS = 9000, SOAK_SIGNALS = 4, SOAK_COUNTERS = 4, SOAK_ARENA = 1 << 17, SOAK_OPERATIONS = 384, SOAK_FIELDS = 10 };

/* Before this text where the test compiles it. */
#if !defined(SOAK_KINDS)
#include "soak_kinds.h"
#endif

/* Which actor each block is: its number among all, and on its PE. */
struct soak_who { uint64_t numbers[8]; };

namespace {

struct memory {
  uint64_t *rows, *signals, *counters, *shared, *sources, *landing, *fetched;
};

/* An operation of words that a scope makes together. */
template <typename Scope> __device__ void move(const memory &m, const uint64_t *op) {
  const int pe = static_cast<int>(op[1]);
  const size_t n = op[3];
  uint64_t *const row = m.rows + op[2], *const here = m.landing + op[5];
  const uint64_t *const from = m.sources + op[5];
  uint64_t *const signal = m.signals + op[6];
  const ptrdiff_t stride = static_cast<ptrdiff_t>(op[4]);
  switch (op[0]) {
    case PUT: rushmem::put<Scope>(row, from, n, pe); break;
    case PUT_NBI: rushmem::put_nbi<Scope>(row, from, n, pe); break;
    case PUT_SIGNAL: rushmem::put_signal<Scope>(row, from, n, signal, op[8], rushmem::signal::set, pe); break;
    case PUT_SIGNAL_NBI: rushmem::put_signal_nbi<Scope>(row, from, n, signal, op[8], rushmem::signal::set, pe); break;
    case IPUT: rushmem::iput<Scope>(row, from, stride, 1, n, pe); break;
    case GET: rushmem::get<Scope>(here, row, n, pe); break;
    case GET_NBI: rushmem::get_nbi<Scope>(here, row, n, pe); break;
    case IGET: rushmem::iget<Scope>(here, row, 1, stride, n, pe); break;
  }
}

/* What one thread makes. */
__device__ void single(const memory &m, const uint64_t *op, uint64_t *fetched) {
  const int pe = static_cast<int>(op[1]);
  uint64_t *const counter = m.counters + op[6];
  switch (op[0]) {
    case P: rushmem::p(m.rows + op[2], op[7], pe); break;
    case G: m.landing[op[5]] = rushmem::g(m.rows + op[2], pe); break;
    case SIGNAL: rushmem::signal_op(m.signals + op[6], op[8], rushmem::signal::set, pe); break;
    case SET: rushmem::atomic_set(counter, op[7], pe); break;
    case ADD: rushmem::atomic_add(counter, op[7], pe); break;
    case FETCH_ADD: *fetched = rushmem::atomic_fetch_add(counter, op[7], pe); break;
    case SWAP: *fetched = rushmem::atomic_swap(counter, op[7], pe); break;
    case COMPARE_SWAP: *fetched = rushmem::atomic_compare_swap(counter, op[8], op[7], pe); break;
    case SHARED_ADD: rushmem::atomic_add(m.shared, op[7], pe); break;
    case FENCE: rushmem::fence(); break;
    case QUIET: rushmem::quiet(); break;
  }
}

}  // namespace

/* `rows`, `signals` and `counters` have WORDS, SIGNALS and COUNTERS words for each actor of all PEs;
 * `sources` and `landing` ARENA words for each of this PE; `code` and `fetched` OPERATIONS entries for each
 * block. */
extern "C" __global__ void soak(uint64_t *rows, uint64_t *signals, uint64_t *counters, uint64_t *shared, uint64_t *code,
                                uint64_t *sources, uint64_t *landing, uint64_t *fetched, soak_who who) {
  const uint64_t actor = who.numbers[2 * blockIdx.x], k = who.numbers[2 * blockIdx.x + 1];
  const memory m = {rows + actor * SOAK_WORDS, signals + actor * SOAK_SIGNALS, counters + actor * SOAK_COUNTERS, shared,
                    sources + k * SOAK_ARENA, landing + k * SOAK_ARENA, fetched};
  const uint64_t *op = code + static_cast<size_t>(blockIdx.x) * SOAK_OPERATIONS * SOAK_FIELDS;
  uint64_t *old = fetched + static_cast<size_t>(blockIdx.x) * SOAK_OPERATIONS;
  for (int i = 0; i < SOAK_OPERATIONS; ++i, op += SOAK_FIELDS, ++old) {
    const uint64_t kind = op[0], scope = op[9];
    if (kind > QUIET) break;
    const bool moves = (kind >= PUT && kind <= IGET);
    if (moves && scope == SCOPE_BLOCK) {
      move<rushmem::block>(m, op);
    } else if (moves && scope == SCOPE_WARP) {
      if (threadIdx.x < 32) move<rushmem::warp>(m, op);
    } else if (threadIdx.x == 0) {
      if (moves) move<rushmem::thread>(m, op);
      else single(m, op, old);
    }
    /* A fence of the first thread covers what the block's threads have done behind this. */
    __syncthreads();
  }
  if (threadIdx.x == 0) rushmem::quiet();
  __syncthreads();
}
