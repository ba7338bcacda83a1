/* What goes wrong in kernels, by the first argument: PE 1 makes the mistake or dies, PE 0 waits in a kernel
 * or on a stream; "stall": both wait for what never comes. The next call of the host says what has happened,
 * and ends the job. */
#include <csignal>
#include <cstdio>
#include <cstring>

#include <nvshmem.h>
#include <nvshmemx.h>

__global__ void bad_pe(int *at) { nvshmem_int_p(at, 1, 7); }
__global__ void bad_address(int *own) { nvshmem_int_p(own, 1, 0); }
__global__ void bad_team() { nvshmemx_barrier_block(41); }
__global__ void waits(uint64_t *sig) { nvshmem_signal_wait_until(sig, NVSHMEM_CMP_EQ, 1); }

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "none";
  const auto is = [what](const char *name) { return std::strcmp(what, name) == 0; };
  int devices = 0, *own = nullptr;
  nvshmem_init();
  const int me = nvshmem_my_pe();
  if (cudaGetDeviceCount(&devices) != cudaSuccess || cudaSetDevice(nvshmem_team_my_pe(NVSHMEMX_TEAM_NODE) % devices) != cudaSuccess ||
      cudaMalloc(&own, sizeof(int)) != cudaSuccess) {
    return 1;
  }
  int *at = static_cast<int *>(nvshmem_calloc(1, sizeof(int)));
  uint64_t *sig = static_cast<uint64_t *>(nvshmem_calloc(1, sizeof(uint64_t)));
  nvshmem_barrier_all();
  if (me == 0 && is("stream")) nvshmemx_signal_wait_until_on_stream(sig, NVSHMEM_CMP_EQ, 1, nullptr);
  else if (me == 0 && !is("none")) waits<<<1, 1>>>(sig);
  if (me == 1) {
    if (is("pe")) bad_pe<<<1, 1>>>(at);
    if (is("address")) bad_address<<<1, 1>>>(own);
    if (is("team")) bad_team<<<1, 32>>>();
    if (is("stall")) waits<<<1, 1>>>(sig);
    if (is("killed") || is("stream")) raise(SIGKILL);
  }
  const cudaError_t ended = cudaDeviceSynchronize();
  std::printf("PE %d: CUDA says %s\n", me, cudaGetErrorName(ended));
  std::fflush(stdout);
  nvshmem_barrier_all();
  nvshmem_finalize();
  return 0;
}
