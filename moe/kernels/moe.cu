/* The kernels: dispatch and combine, each whole or in its two halves, between which the caller's work runs. */
using moe::exchange;
using moe::products;
using moe::received;
using moe::tokens;

namespace moe {

/* Whether this round's combine has anything to do: not where the round failed, nor twice. */
__device__ inline bool may_combine(const exchange &e, uint64_t round, uint64_t combined) {
  if (combined < round) return e.failure[failure_last] != round;
  if (blockIdx.x == 0 && threadIdx.x == 0 && e.failure[failure_kind] == 0) {
    e.failure[failure_round] = round;
    e.failure[failure_kind] = combined_twice;
  }
  return false;
}

}  // namespace moe

extern "C" __global__ void __launch_bounds__(MOE_THREADS) dispatch(rushmem::team t, exchange e, tokens in, received r) {
  RUSHMEM_DYNAMIC_SHARED(unsigned char, shared);
  const uint64_t round = e.sent[blockIdx.x] + 1;
  moe::send(e, t, in, round);
  moe::receive(e, t, r, round, shared);
  moe::count_round(e, e.sent, round);
  moe::count_round(e, e.received, round);
}

extern "C" __global__ void __launch_bounds__(MOE_THREADS) dispatch_send(rushmem::team t, exchange e, tokens in) {
  const uint64_t round = e.sent[blockIdx.x] + 1;
  moe::send(e, t, in, round);
  moe::count_round(e, e.sent, round);
}

extern "C" __global__ void __launch_bounds__(MOE_THREADS) dispatch_receive(rushmem::team t, exchange e, received r) {
  RUSHMEM_DYNAMIC_SHARED(unsigned char, shared);
  const uint64_t round = e.received[blockIdx.x] + 1;
  moe::receive(e, t, r, round, shared);
  moe::count_round(e, e.received, round);
}

extern "C" __global__ void __launch_bounds__(MOE_THREADS) combine(rushmem::team t, exchange e, products y) {
  const uint64_t round = e.received[blockIdx.x];
  if (moe::may_combine(e, round, e.combined[blockIdx.x])) {
    moe::push(e, t, y, round);
    moe::collect(e, t, y, round);
  }
  moe::count_round(e, e.combined, round);
}

extern "C" __global__ void __launch_bounds__(MOE_THREADS) combine_send(rushmem::team t, exchange e, products y) {
  const uint64_t round = e.received[blockIdx.x];
  if (moe::may_combine(e, round, e.combined[blockIdx.x])) moe::push(e, t, y, round);
}

extern "C" __global__ void __launch_bounds__(MOE_THREADS) combine_receive(rushmem::team t, exchange e, products y) {
  const uint64_t round = e.received[blockIdx.x];
  if (moe::may_combine(e, round, e.combined[blockIdx.x])) moe::collect(e, t, y, round);
  moe::count_round(e, e.combined, round);
}
