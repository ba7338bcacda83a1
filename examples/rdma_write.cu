// PE 0 writes to PE 1 by the network card's own queue: posts a work request for the data, rings the doorbell,
// polls the completion, and signals. `put` and `signal_op` do that where a queue leads to the PE; `queued`
// counts the requests, to show that one did. Kernels for GPUs have queues where this is defined.
#define RUSHMEM_NET_QUEUE
#include <rushmem/rushmem.cuh>

__device__ static uint64_t posted(int pe) {
  const rushmem_queues *queues = rushmem::state().queues;
  return queues ? queues->queues[pe].tail : 0;
}

extern "C" __global__ void rdma_write(unsigned char *to, const unsigned char *from, size_t bytes, uint64_t *sig,
                                      uint64_t round, uint64_t *queued) {
  using namespace rushmem;
  if (my_pe() == 0) {
    const uint64_t before = posted(1);
    put<block>(to, from, bytes, 1);  // posted, rung, complete: `from` may be changed
    if (threadIdx.x == 0) {
      fence();  // the data before its signal
      signal_op(sig, round, signal::set, 1);
      quiet();
      *queued = posted(1) - before;
    }
  } else if (threadIdx.x == 0) {
    signal_wait_until(sig, cmp::ge, round);
  }
}
