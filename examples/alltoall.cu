// A mixture of experts in one kernel: each PE is one expert. Tokens go to the experts that they are routed
// to, are worked on there, and come back: two all-to-all exchanges of sizes that only the senders know. Block
// b of each PE deals with PE b, all at the same time, and a signal for each pair says how many tokens came.
#include <rushmem/rushmem.cuh>

using namespace rushmem;

// `inbox` and `results` have room for n_tokens tokens from each PE, `order` likewise; the signals are one
// from each PE.
extern "C" __global__ void mixture(const uint32_t *expert, const float *tokens, float *output, float *inbox,
                                   float *results, uint32_t *order, uint64_t *dispatched, uint64_t *combined,
                                   uint32_t n_tokens, uint32_t width) {
  const int me = my_pe(), peer = blockIdx.x;
  const size_t area = size_t(n_tokens) * width;
  const size_t mine = me * area, theirs = peer * area;  // my area at the peer, the peer's area here

  // Dispatch: my tokens for this expert, one after the other, then a signal that says how many (and one, as 0
  // is none).
  uint32_t sent = 0;
  for (uint32_t token = 0; token < n_tokens; ++token) {
    if (expert[token] != uint32_t(peer)) continue;
    put_nbi<block>(inbox + mine + size_t(sent) * width, tokens + size_t(token) * width, width, peer);
    if (threadIdx.x == 0) order[peer * n_tokens + sent] = token;
    ++sent;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    fence();
    signal_op(dispatched + me, sent + 1, signal::set, peer);
  }

  // The expert's work, in place, on the peer's tokens; then straight back to where they came from.
  __shared__ uint64_t received;
  if (threadIdx.x == 0) received = signal_wait_until(dispatched + peer, cmp::ne, 0) - 1;
  __syncthreads();
  for (size_t i = threadIdx.x; i < received * width; i += blockDim.x) {
    inbox[theirs + i] = inbox[theirs + i] * float(me + 1) + float(me);
  }
  __syncthreads();
  put_signal_nbi<block>(results + mine, inbox + theirs, received * width, combined + me, 1, signal::set, peer);

  // Combine: the results that this expert sent back, to the tokens' places.
  if (threadIdx.x == 0) signal_wait_until(combined + peer, cmp::eq, 1);
  __syncthreads();
  for (uint32_t i = 0; i < sent; ++i) {
    const uint32_t token = order[peer * n_tokens + i];
    for (uint32_t j = threadIdx.x; j < width; j += blockDim.x) {
      output[size_t(token) * width + j] = results[theirs + size_t(i) * width + j];
    }
  }
}
