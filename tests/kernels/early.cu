/* Kernels that are launched early, each of which turns what the one before it has written. */
#include <rushmem/rushmem.cuh>

/* `to[i]` out of two words that other threads, mostly of other blocks, have written. `when` the next kernel
 * may come: before this one's turn, behind it, once it has written, or when it ends. A slow block ends long
 * after the others. */
extern "C" __global__ void step(uint64_t *to, const uint64_t *from, uint32_t n, uint64_t salt, uint32_t when) {
  if (when == 0) rushmem::impl::let_next_kernel_come();
  rushmem::await_stream();
  if (when == 1 && threadIdx.x == 0) rushmem::impl::let_next_kernel_come();
  if (blockIdx.x == salt % gridDim.x) {
    for (uint64_t begin = rushmem::impl::now_ns(); rushmem::impl::now_ns() - begin < salt % 5000;) {
    }
  }
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    to[i] = (from[n - 1 - i] + salt) * 0x9e3779b97f4a7c15u + from[(i + n / 2) % n];
  }
  if (when == 2) rushmem::impl::let_next_kernel_come();
}
