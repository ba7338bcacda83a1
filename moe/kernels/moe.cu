/* The kernels: dispatch and combine, each whole or in its two halves, between which the caller's work
 * runs. */
#if defined(RUSHMEM_CPU)
#define MOE_PARAMETER const
#else
/* Read where they lie, also by address. */
#define MOE_PARAMETER const __grid_constant__
#endif

/* MOE_BLOCKS of a multiprocessor: where one is enough it may have more registers. */
#define MOE_BOUNDS __launch_bounds__(MOE_THREADS, MOE_BLOCKS)

using moe::exchange;
using moe::products;
using moe::received;
using moe::tokens;

#if MOE_FEW

extern "C" __global__ void MOE_BOUNDS dispatch(MOE_PARAMETER rushmem::team t, MOE_PARAMETER exchange e, MOE_PARAMETER tokens in, MOE_PARAMETER received r) {
  RUSHMEM_DYNAMIC_SHARED(unsigned char, shared);
  const moe::few::routes all = moe::few::prepare(e, t, shared);
  rushmem::await_stream();
  const uint64_t round = e.sent[blockIdx.x] + 1;
  const moe::few::kept_parts kept = moe::few::send_all<true>(e, t, in);
  moe::few::receive_all<true>(e, t, r, round, all, kept);
}

extern "C" __global__ void MOE_BOUNDS dispatch_send(MOE_PARAMETER rushmem::team t, MOE_PARAMETER exchange e, MOE_PARAMETER tokens in) {
  rushmem::await_stream();
  const uint64_t round = e.sent[blockIdx.x] + 1;
  moe::few::send_all<false>(e, t, in);
  moe::count_round(e, e.sent, round);
}

extern "C" __global__ void MOE_BOUNDS dispatch_receive(MOE_PARAMETER rushmem::team t, MOE_PARAMETER exchange e, MOE_PARAMETER received r) {
  RUSHMEM_DYNAMIC_SHARED(unsigned char, shared);
  const moe::few::routes all = moe::few::prepare(e, t, shared);
  rushmem::await_stream();
  const uint64_t round = e.received[blockIdx.x] + 1;
  moe::few::receive_all<false>(e, t, r, round, all, {});
}

extern "C" __global__ void MOE_BOUNDS combine(MOE_PARAMETER rushmem::team t, MOE_PARAMETER exchange e, MOE_PARAMETER products y) {
  rushmem::await_stream();
  moe::few::combine<true, true>(e, t, y);
}

extern "C" __global__ void MOE_BOUNDS combine_send(MOE_PARAMETER rushmem::team t, MOE_PARAMETER exchange e, MOE_PARAMETER products y) {
  rushmem::await_stream();
  moe::few::combine<true, false>(e, t, y);
}

extern "C" __global__ void MOE_BOUNDS combine_receive(MOE_PARAMETER rushmem::team t, MOE_PARAMETER exchange e, MOE_PARAMETER products y) {
  rushmem::await_stream();
  moe::few::combine<false, true>(e, t, y);
}

#else

extern "C" __global__ void MOE_BOUNDS dispatch(MOE_PARAMETER rushmem::team t, MOE_PARAMETER exchange e, MOE_PARAMETER tokens in, MOE_PARAMETER received r) {
  RUSHMEM_DYNAMIC_SHARED(unsigned char, shared);
  rushmem::await_stream();
  __shared__ moe::outgoing of_warps[moe::warps];
  moe::outgoing &out = of_warps[moe::warp_of()];
  const uint64_t round = e.sent[blockIdx.x] + 1;
  const moe::roles w = moe::roles_of(e, t, in);
  moe::send(e, t, in, round, w, out);
  if (blockIdx.x >= w.senders) {
    moe::receive(e, t, r, round, w.senders, w.own_stay ? &in : nullptr, shared, [&] {
      if (w.split) moe::send_rows(e, t, in, round, w, {blockIdx.x, gridDim.x, moe::warps - moe::takers}, false, out);
    });
  }
  moe::count_round(e, e.sent, round);
  moe::count_round(e, e.received, round);
}

extern "C" __global__ void MOE_BOUNDS dispatch_send(MOE_PARAMETER rushmem::team t, MOE_PARAMETER exchange e, MOE_PARAMETER tokens in) {
  rushmem::await_stream();
  __shared__ moe::outgoing of_warps[moe::warps];
  const uint64_t round = e.sent[blockIdx.x] + 1;
  const uint64_t said = in.count_at ? *in.count_at : in.count;
  moe::send(e, t, in, round, moe::roles{static_cast<uint32_t>(said), 0, false, 1, false}, of_warps[moe::warp_of()]);
  moe::count_round(e, e.sent, round);
}

extern "C" __global__ void MOE_BOUNDS dispatch_receive(MOE_PARAMETER rushmem::team t, MOE_PARAMETER exchange e, MOE_PARAMETER received r) {
  RUSHMEM_DYNAMIC_SHARED(unsigned char, shared);
  rushmem::await_stream();
  const uint64_t round = e.received[blockIdx.x] + 1;
  moe::receive(e, t, r, round, 0, nullptr, shared, [] {});
  moe::count_round(e, e.received, round);
}

extern "C" __global__ void MOE_BOUNDS combine(MOE_PARAMETER rushmem::team t, MOE_PARAMETER exchange e, MOE_PARAMETER products y) {
  RUSHMEM_DYNAMIC_SHARED(unsigned char, shared);
  rushmem::await_stream();
  const uint64_t round = e.received[blockIdx.x];
  if (moe::may_combine(e, round)) {
    moe::combine<true, true>(e, t, y, round, shared);
  }
  moe::count_round(e, e.combined, round);
}

extern "C" __global__ void MOE_BOUNDS combine_send(MOE_PARAMETER rushmem::team t, MOE_PARAMETER exchange e, MOE_PARAMETER products y) {
  RUSHMEM_DYNAMIC_SHARED(unsigned char, shared);
  rushmem::await_stream();
  const uint64_t round = e.received[blockIdx.x];
  if (moe::may_combine(e, round)) moe::combine<true, false>(e, t, y, round, shared);
}

extern "C" __global__ void MOE_BOUNDS combine_receive(MOE_PARAMETER rushmem::team t, MOE_PARAMETER exchange e, MOE_PARAMETER products y) {
  RUSHMEM_DYNAMIC_SHARED(unsigned char, shared);
  rushmem::await_stream();
  const uint64_t round = e.received[blockIdx.x];
  if (moe::may_combine(e, round)) moe::combine<false, true>(e, t, y, round, shared);
  moe::count_round(e, e.combined, round);
}

#endif
