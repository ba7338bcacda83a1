/* The kernels of this folder as part of a program that nvcc compiles: they are launched by
 * nvshmemx_collective_launch, and learn by nvshmem_init who their PE is. */
#include "atomics.cu"
#include "collectives.cu"
#include "reductions.cu"
#include "rma.cu"
#include "teams.cu"
#include "waits.cu"

#include <cstdio>
#include <cstdlib>
#include <ctime>

#define FINE(call)                                                                    \
  do {                                                                                \
    const int code = static_cast<int>(call);                                          \
    if (code != 0) {                                                                  \
      std::fprintf(stderr, "PE %d: %s: %d\n", nvshmem_my_pe(), #call, code);          \
      nvshmem_global_exit(4);                                                         \
    }                                                                                 \
  } while (0)

struct named {
  const char *name;
  const void *kernel;
};
#define ENTRY(name) {#name, reinterpret_cast<const void *>(name)},
static const named kernels[] = {KERNELS_OF_ATOMICS(ENTRY) KERNELS_OF_COLLECTIVES(ENTRY)
                                KERNELS_OF_REDUCTIONS(ENTRY) KERNELS_OF_RMA(ENTRY) KERNELS_OF_TEAMS(ENTRY)
                                KERNELS_OF_WAITS(ENTRY)};

/* Blocks that wait for those of other PEs. */
__global__ void ring(int *dest) {
  const int me = nvshmem_my_pe(), n = nvshmem_n_pes();
  nvshmem_int_p(dest + blockIdx.x, me, (me + 1) % n);
}

/* 16-bit floats, which only GPUs have. */
__global__ void halves(__half *a, __half *b, unsigned *bad) {
  const int me = nvshmem_my_pe(), n = nvshmem_n_pes();
  nvshmem_half_p(a, __float2half(me + 1.0f), (me + 1) % n);
  nvshmem_barrier_all();
  CHECK(__half2float(a[0]) == (me + n - 1) % n + 1.0f);
  CHECK(__half2float(nvshmem_half_g(a, (me + 1) % n)) == me + 1.0f);
  b[1] = a[0];
  nvshmem_half_sum_reduce(NVSHMEM_TEAM_WORLD, b, b + 1, 1);
  CHECK(__half2float(b[0]) == n * (n + 1) / 2.0f);
  nvshmem_half_put(a + 2, b, 1, (me + 1) % n);
  nvshmemx_half_atomic_add(a + 4, __float2half(0.5f), (me + 1) % n);
  nvshmem_half_atomic_set(a + 7, __float2half(3.0f), (me + 1) % n);
  CHECK(__half2float(nvshmem_half_atomic_swap(a + 6, __float2half(2.0f), (me + 1) % n)) == 0.0f);
  CHECK(__half2float(nvshmem_half_atomic_fetch(a + 6, (me + 1) % n)) == 2.0f);
  nvshmem_barrier_all();
  CHECK(__half2float(a[6]) == 2.0f && __half2float(a[7]) == 3.0f);
  CHECK(__half2float(a[2]) == n * (n + 1) / 2.0f && __half2float(a[4]) == 0.5f);
}

int main() {
  /* As most programs do it. */
  nvshmem_init();
  int devices = 0;
  FINE(cudaGetDeviceCount(&devices));
  FINE(cudaSetDevice(nvshmem_team_my_pe(NVSHMEMX_TEAM_NODE) % devices));
  const int me = nvshmem_my_pe(), n = nvshmem_n_pes();
  cudaStream_t stream;
  FINE(cudaStreamCreate(&stream));
  const size_t room = 1 << 16;
  char *a = static_cast<char *>(nvshmem_malloc(room)), *b = static_cast<char *>(nvshmem_malloc(room));
  uint64_t *sig = static_cast<uint64_t *>(nvshmem_calloc(64, 8));
  unsigned *bad = static_cast<unsigned *>(nvshmem_calloc(1, sizeof(unsigned)));
  int *dest = static_cast<int *>(nvshmem_calloc(64, sizeof(int)));
  nvshmem_team_t even, odd = NVSHMEM_TEAM_INVALID;
  FINE(nvshmem_team_split_strided(NVSHMEM_TEAM_WORLD, 0, 2, (n + 1) / 2, nullptr, 0, &even));
  if (n > 1) FINE(nvshmem_team_split_strided(NVSHMEM_TEAM_WORLD, 1, 2, n / 2, nullptr, 0, &odd));
  nvshmem_team_t team = me % 2 == 0 ? even : odd;
  uint64_t salt = static_cast<uint64_t>(std::time(nullptr)) / 1000;

  unsigned line = 0;
  for (const named &one : kernels) {
    if (me == 0) std::printf("%s\n", one.name);
    std::fflush(stdout);
    FINE(cudaMemsetAsync(a, 0, room, stream));
    FINE(cudaMemsetAsync(b, 0, room, stream));
    FINE(cudaMemsetAsync(sig, 0, 64 * 8, stream));
    nvshmemx_barrier_all_on_stream(stream);
    void *arguments[] = {&a, &b, &sig, &bad, &salt, &team};
    FINE(nvshmemx_collective_launch(one.kernel, dim3(1), dim3(64), arguments, 0, stream));
    nvshmemx_barrier_all_on_stream(stream);
    FINE(cudaMemcpyAsync(&line, bad, sizeof(line), cudaMemcpyDeviceToHost, stream));
    FINE(cudaStreamSynchronize(stream));
    if (line) {
      std::fprintf(stderr, "PE %d: %s is wrong at line %u\n", me, one.name, line);
      nvshmem_global_exit(3);
    }
  }

  /* The null stream, and a plain launch. */
  int most = 0, got[4] = {-1, -1, -1, -1};
  void *of_ring[] = {&dest};
  FINE(nvshmemx_collective_launch_query_gridsize(reinterpret_cast<const void *>(ring), dim3(1), of_ring, 0, &most));
  if (most < 4) nvshmem_global_exit(5);
  ring<<<4, 1>>>(dest);
  nvshmemx_barrier_all_on_stream(nullptr);
  FINE(cudaMemcpy(got, dest, sizeof(got), cudaMemcpyDeviceToHost));
  for (int value : got) FINE(value != (me + n - 1) % n);
  FINE(cudaMemset(a, 0, room));
  FINE(cudaDeviceSynchronize());
  nvshmem_barrier_all();
  halves<<<1, 1, 0, stream>>>(reinterpret_cast<__half *>(a), reinterpret_cast<__half *>(b), bad);
  FINE(cudaMemcpyAsync(&line, bad, sizeof(line), cudaMemcpyDeviceToHost, stream));
  FINE(cudaStreamSynchronize(stream));
  FINE(line);
  std::printf("PE %d of %d on GPU %d: %zu kernels: all well\n", me, n,
              nvshmem_team_my_pe(NVSHMEMX_TEAM_NODE) % devices, sizeof(kernels) / sizeof(*kernels));
  nvshmem_finalize();
  return 0;
}
