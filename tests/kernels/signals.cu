/* Signals: data and its signal at each scope, both ways of updating, blocking and not; a ring; many senders
 * to one word. One block to a PE. */
#if !defined(RUSHMEM_TEST_CHECK_H)
#include "check.h"
#endif

namespace {

template <typename Scope>
__device__ void exchange(uint64_t *report, unsigned char *dst, unsigned char *src, uint64_t *sig,
                         uint64_t *ack, size_t bytes, int rounds, uint64_t seed) {
  const int me = rushmem::my_pe(), right = right_of(me), left = left_of(me);
  const bool takes_part = share<Scope>::mine() == 0;
  for (int round = 1; round <= rounds; ++round) {
    const uint64_t number = static_cast<uint64_t>(round), data = mix(seed, number);
    for (size_t i = threadIdx.x; i < bytes; i += blockDim.x) src[i] = pattern(data, me, i);
    __syncthreads();
    if (takes_part) {
      if (round % 4 == 0) {
        rushmem::put_signal<Scope>(dst, src, bytes, sig, 1, rushmem::signal::add, right);
      } else if (round % 4 == 1) {
        rushmem::put_signal<Scope>(dst, src, bytes, sig, number, rushmem::signal::set, right);
      } else if (round % 4 == 2) {
        rushmem::put_signal_nbi<Scope>(dst, src, bytes, sig, number, rushmem::signal::set, right);
      } else {
        rushmem::put_signal_nbi<Scope>(dst, src, bytes, sig, 1, rushmem::signal::add, right);
      }
    }
    if (threadIdx.x == 0) {
      CHECK_EQ(report, rushmem::signal_wait_until(sig, rushmem::cmp::ge, number), number, round);
      CHECK_EQ(report, rushmem::signal_fetch(sig), number, round);
    }
    __syncthreads();
    for (size_t i = threadIdx.x; i < bytes; i += blockDim.x) {
      CHECK_EQ(report, dst[i], pattern(data, left, i), number << 32 | i);
    }
    __syncthreads();
    /* The left neighbour may overwrite it now. */
    if (threadIdx.x == 0) {
      rushmem::quiet();
      rushmem::signal_op(ack, number, rushmem::signal::set, left);
      rushmem::signal_wait_until(ack, rushmem::cmp::eq, number);
    }
    __syncthreads();
  }
}

/* What PE `from` has in `row` of its column. */
__device__ uint32_t cell(uint64_t seed, int round, int from, int row) {
  const uint64_t where = static_cast<uint64_t>(from) << 32 | static_cast<uint32_t>(row);
  return static_cast<uint32_t>(mix(mix(seed, static_cast<uint64_t>(round)), where));
}

}  // namespace

/* `Columns` of arguments.rs. */
struct columns_args {
  int rows, scope, rounds;
  uint64_t seed;
};

namespace {

template <typename Scope>
__device__ void columns(uint64_t *report, uint32_t *table, uint32_t *src, uint64_t *sig, columns_args a) {
  const int rows = a.rows, rounds = a.rounds;
  const uint64_t seed = a.seed;
  const int me = rushmem::my_pe(), n = rushmem::n_pes();
  const bool takes_part = share<Scope>::mine() == 0;
  const uint64_t each = static_cast<uint64_t>(rows) + 1;
  for (int round = 1; round <= rounds; ++round) {
    for (int i = threadIdx.x; i < rows; i += blockDim.x) src[2 * i] = cell(seed, round, me, i);
    __syncthreads();
    if (takes_part) {
      for (int pe = 0; pe < n; ++pe) {
        rushmem::iput_signal<Scope>(table + me, src, n, 2, static_cast<size_t>(rows), sig, each,
                                    rushmem::signal::add, pe);
      }
    }
    if (threadIdx.x == 0) {
      const uint64_t all = each * static_cast<uint64_t>(n) * static_cast<uint64_t>(round);
      CHECK_EQ(report, rushmem::signal_wait_until(sig, rushmem::cmp::ge, all), all, round);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < rows * n; i += blockDim.x) {
      CHECK_EQ(report, table[i], cell(seed, round, i % n, i / n), static_cast<uint64_t>(round) << 32 | i);
    }
    /* Nobody writes the next round's columns before all have read these. */
    rushmem::sync_all<rushmem::block>();
  }
}

}  // namespace

/* Every PE puts its column into every PE's table and adds to its signal; a PE reads the table when the sum of
 * all is there. `table` has `rows` rows of n_pes(), `src` room for 2 * rows; `sig` is zero. */
extern "C" __global__ void signals_columns(uint64_t *report, uint32_t *table, uint32_t *src, uint64_t *sig,
                                           columns_args a) {
  if (a.scope == SCOPE_THREAD) columns<rushmem::thread>(report, table, src, sig, a);
  else if (a.scope == SCOPE_WARP) columns<rushmem::warp>(report, table, src, sig, a);
  else columns<rushmem::block>(report, table, src, sig, a);
}

/* `Exchange` of arguments.rs. */
struct exchange_args {
  size_t bytes;
  int scope, rounds;
  uint64_t seed;
};

/* `dst` and `src` have room for `bytes`; `sig` and `ack` are zero. */
extern "C" __global__ void signals_exchange(uint64_t *report, unsigned char *dst, unsigned char *src, uint64_t *sig,
                                            uint64_t *ack, exchange_args a) {
  if (a.scope == SCOPE_THREAD) exchange<rushmem::thread>(report, dst, src, sig, ack, a.bytes, a.rounds, a.seed);
  else if (a.scope == SCOPE_WARP) exchange<rushmem::warp>(report, dst, src, sig, ack, a.bytes, a.rounds, a.seed);
  else exchange<rushmem::block>(report, dst, src, sig, ack, a.bytes, a.rounds, a.seed);
}

/* A token goes round `laps` times; each PE adds one. One thread. `token` and `sig` are zero. */
extern "C" __global__ void signals_ring(uint64_t *report, uint64_t *token, uint64_t *sig, int laps) {
  const int me = rushmem::my_pe(), n = rushmem::n_pes();
  for (int lap = 1; lap <= laps; ++lap) {
    const uint64_t number = static_cast<uint64_t>(lap);
    uint64_t carried = static_cast<uint64_t>(lap - 1) * static_cast<uint64_t>(n);
    if (me != 0) {
      rushmem::signal_wait_until(sig, rushmem::cmp::eq, number);
      CHECK_EQ(report, *token, carried + static_cast<uint64_t>(me), lap);
      carried = *token;
    }
    const uint64_t next = carried + 1;
    rushmem::put_signal(token, &next, 1, sig, number, rushmem::signal::set, right_of(me));
    if (me == 0) {
      rushmem::signal_wait_until(sig, rushmem::cmp::eq, number);
      CHECK_EQ(report, *token, number * static_cast<uint64_t>(n), lap);
    }
  }
}

/* Every thread of every PE adds one to every PE's word, which waits for all of them. `sig` is zero. */
extern "C" __global__ void signals_gather(uint64_t *report, uint64_t *sig, int rounds) {
  const int n = rushmem::n_pes();
  const uint64_t all = static_cast<uint64_t>(n) * blockDim.x;
  for (int round = 1; round <= rounds; ++round) {
    for (int pe = 0; pe < n; ++pe) rushmem::signal_op(sig, 1, rushmem::signal::add, pe);
    const uint64_t wanted = all * static_cast<uint64_t>(round);
    rushmem::signal_wait_until(sig, rushmem::cmp::ge, wanted);
    rushmem::sync_all<rushmem::block>();
    CHECK_EQ(report, rushmem::signal_fetch(sig), wanted, round);
    rushmem::sync_all<rushmem::block>();
  }
}
