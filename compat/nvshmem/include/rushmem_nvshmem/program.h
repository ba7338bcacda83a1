/* What has to be part of the program, because CUDA's runtime is: launches of its kernels, and the way by
 * which libnvshmem_host tells kernels who their PE is. */
#ifndef RUSHMEM_NVSHMEM_PROGRAM_H
#define RUSHMEM_NVSHMEM_PROGRAM_H

#include <rushmem_nvshmem/host.h>

#ifdef __cplusplus
extern "C" {
#endif
/* Copies the device state to a program's kernels, on that GPU; 0, or an error of CUDA's. */
typedef int (*rushmem_nvshmem_fill)(const void *state, size_t bytes, int gpu);
/* Kernels whose device state has that version and size are there; they are filled now, or once the job
 * starts. */
void rushmem_nvshmem_attach(rushmem_nvshmem_fill fill, unsigned version, size_t bytes);
void rushmem_nvshmem_detach(rushmem_nvshmem_fill fill);
/* Fills what has come since. */
void rushmem_nvshmem_fill_all(const char *function);
#ifdef __cplusplus
}
#endif

#if defined(RUSHMEM_NVSHMEM_CUDA)
typedef struct nvshmemx_collective_launch_attr {
  cudaLaunchConfig_t cuda_config;
} nvshmemx_collective_launch_attr_t;
#endif

#if defined(RUSHMEM_NVSHMEM_CUDA) && !defined(__cplusplus)
/* Of the library, which looks for the program's CUDA runtime by name. */
int nvshmemx_collective_launch_query_gridsize(const void *func, dim3 blockDims, void **args, size_t sharedMem,
                                              int *gridsize);
int nvshmemx_collective_launch(const void *func, dim3 gridDims, dim3 blockDims, void **args, size_t sharedMem,
                               cudaStream_t stream);
int nvshmemx_collective_launch_attr(const nvshmemx_collective_launch_attr_t *attr, const void *func, void **args);
#endif

#if defined(RUSHMEM_NVSHMEM_CUDA) && defined(__cplusplus)

/* The most blocks that run at once, in `*gridsize`. */
inline int nvshmemx_collective_launch_query_gridsize(const void *func, dim3 blockDims, void **args, size_t sharedMem,
                                                     int *gridsize) {
  int device = 0, processors = 0, each = 0;
  (void) args;
  if (!func || !gridsize) return NVSHMEMX_ERROR_INVALID_VALUE;
  const int threads = static_cast<int>(blockDims.x * blockDims.y * blockDims.z);
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) != cudaSuccess ||
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, func, threads, sharedMem) != cudaSuccess) {
    return NVSHMEMX_ERROR_INTERNAL;
  }
  *gridsize = each * processors;
  return NVSHMEMX_SUCCESS;
}

/* A launch whose blocks all run at once, so that kernels may wait for one another. A grid of 0 is the
 * largest. */
inline int nvshmemx_collective_launch(const void *func, dim3 gridDims, dim3 blockDims, void **args, size_t sharedMem,
                                      cudaStream_t stream) {
  rushmem_nvshmem_fill_all("nvshmemx_collective_launch");
  if (gridDims.x == 0 && gridDims.y == 0 && gridDims.z == 0) {
    int most = 0;
    const int code = nvshmemx_collective_launch_query_gridsize(func, blockDims, args, sharedMem, &most);
    if (code != NVSHMEMX_SUCCESS) return code;
    gridDims = dim3(static_cast<unsigned>(most), 1, 1);
  }
  const cudaError_t code = cudaLaunchCooperativeKernel(func, gridDims, blockDims, args, sharedMem, stream);
  return code == cudaSuccess ? NVSHMEMX_SUCCESS : NVSHMEMX_ERROR_COLLECTIVE_LAUNCH_FAILED;
}

/* The same with what CUDA's launch attributes say besides. */
inline int nvshmemx_collective_launch_attr(const nvshmemx_collective_launch_attr_t *attr, const void *func, void **args) {
  rushmem_nvshmem_fill_all("nvshmemx_collective_launch_attr");
  if (!attr || !func) return NVSHMEMX_ERROR_INVALID_VALUE;
  cudaLaunchConfig_t config = attr->cuda_config;
  cudaLaunchAttribute attributes[32];
  if (config.numAttrs >= 32) return NVSHMEMX_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < config.numAttrs; ++i) attributes[i] = config.attrs[i];
  attributes[config.numAttrs].id = cudaLaunchAttributeCooperative;
  attributes[config.numAttrs].val.cooperative = 1;
  config.attrs = attributes;
  ++config.numAttrs;
  const cudaError_t code = cudaLaunchKernelExC(&config, func, args);
  return code == cudaSuccess ? NVSHMEMX_SUCCESS : NVSHMEMX_ERROR_COLLECTIVE_LAUNCH_FAILED;
}

#endif

/* The device state of this translation unit, or, in relocatable code, that of the device library. */
#if defined(__CUDACC__) && !defined(NVSHMEM_HOSTLIB_ONLY) && \
    (!defined(__CUDACC_RDC__) || defined(RUSHMEM_DEVICE_LIBRARY))
namespace rushmem {
namespace nvshmem {
namespace {

int fill_this(const void *state, size_t bytes, int gpu) {
  int before = 0;
  cudaError_t code = cudaGetDevice(&before);
  if (code == cudaSuccess && before != gpu) code = cudaSetDevice(gpu);
  if (code != cudaSuccess) return static_cast<int>(code);
  /* Not on the null stream, which may wait for kernels that wait for this PE. */
  cudaStream_t stream;
  code = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (code == cudaSuccess) {
    code = cudaMemcpyToSymbolAsync(rushmem_state, state, bytes, 0, cudaMemcpyHostToDevice, stream);
    const cudaError_t ended = cudaStreamSynchronize(stream);
    if (code == cudaSuccess) code = ended;
    static_cast<void>(cudaStreamDestroy(stream));
  }
  if (before != gpu) static_cast<void>(cudaSetDevice(before));
  return static_cast<int>(code);
}

/* At the start of the program, or when its library is loaded; the GPU is not touched then. */
struct attached {
  attached() { rushmem_nvshmem_attach(fill_this, RUSHMEM_DEVICE_ABI_VERSION, sizeof(rushmem_device_state)); }
  ~attached() { rushmem_nvshmem_detach(fill_this); }
} attached_here;

}  // namespace
}  // namespace nvshmem
}  // namespace rushmem
#endif

#endif
