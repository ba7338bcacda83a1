/* Kernels that another loader has loaded, as Triton and CuPy do: CUDA's driver as a module, CUDA's runtime as
 * a library; and a shared library of nvcc's. Arguments: the machine code of loaded.cu, a whole program's,
 * plugin.cu as a library, and the machine code of foreign.cu, which is refused. */
#include <cstdio>

#include <cuda.h>
#include <dlfcn.h>
#include <nvshmem.h>
#include <nvshmemx.h>

#define FINE(call)                                                          \
  do {                                                                      \
    const int code = static_cast<int>(call);                                \
    if (code != 0) {                                                        \
      std::fprintf(stderr, "PE %d: %s: %d\n", me, #call, code);             \
      nvshmem_global_exit(4);                                               \
    }                                                                       \
  } while (0)

template <typename F> static F driver(const char *name) {
  void *at = nullptr;
  cudaDriverEntryPointQueryResult found;
  if (cudaGetDriverEntryPointByVersion(name, &at, 12000, cudaEnableDefault, &found) != cudaSuccess) return nullptr;
  return reinterpret_cast<F>(at);
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  nvshmem_init();
  const int me = nvshmem_my_pe(), n = nvshmem_n_pes();
  int devices = 0;
  FINE(cudaGetDeviceCount(&devices));
  FINE(cudaSetDevice(nvshmem_team_my_pe(NVSHMEMX_TEAM_NODE) % devices));
  int *dest = static_cast<int *>(nvshmem_calloc(4, sizeof(int)));
  int got[3] = {-1, -1, -1};

  CUmodule module;
  CUfunction function;
  FINE(driver<CUresult (*)(CUmodule *, const char *)>("cuModuleLoad")(&module, argv[1]));
  FINE(nvshmemx_cumodule_init(module));
  FINE(driver<CUresult (*)(CUfunction *, CUmodule, const char *)>("cuModuleGetFunction")(&function, module, "loaded"));
  void *arguments[] = {&dest};
  using launch = CUresult (*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                              void **, void **);
  FINE(driver<launch>("cuLaunchKernel")(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  nvshmemx_barrier_all_on_stream(nullptr);
  FINE(cudaMemcpy(got, dest, sizeof(int), cudaMemcpyDeviceToHost));
  FINE(nvshmemx_cumodule_finalize(module));

  CUmodule other;
  FINE(driver<CUresult (*)(CUmodule *, const char *)>("cuModuleLoad")(&other, argv[3]));
  FINE(nvshmemx_cumodule_init(other) == 0);

  cudaLibrary_t library;
  cudaKernel_t kernel;
  FINE(cudaLibraryLoadFromFile(&library, argv[1], nullptr, nullptr, 0, nullptr, nullptr, 0));
  FINE(nvshmemx_culibrary_init(reinterpret_cast<CUlibrary>(library)));
  FINE(cudaLibraryGetKernel(&kernel, library, "loaded"));
  int *second = dest + 1;
  void *others[] = {&second};
  FINE(cudaLaunchKernel(reinterpret_cast<const void *>(kernel), dim3(1), dim3(1), others, 0, nullptr));
  nvshmemx_barrier_all_on_stream(nullptr);
  FINE(cudaMemcpy(got + 1, dest + 1, sizeof(int), cudaMemcpyDeviceToHost));
  FINE(nvshmemx_culibrary_finalize(reinterpret_cast<CUlibrary>(library)));

  void *shared = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
  if (!shared) std::fprintf(stderr, "%s\n", dlerror());
  FINE(shared == nullptr);
  const auto plugin = reinterpret_cast<int (*)(int *)>(dlsym(shared, "plugin"));
  FINE(plugin == nullptr);
  FINE(plugin(dest + 2));
  nvshmem_barrier_all();
  FINE(cudaMemcpy(got + 2, dest + 2, sizeof(int), cudaMemcpyDeviceToHost));
  for (int i = 0; i < 3; ++i) FINE(got[i] != (me + n - 1) % n + (i < 2 ? 3 : 5));

  /* Memory of the program's own as symmetric. */
  void *own = nullptr;
  FINE(cudaMalloc(&own, 1 << 20));
  int *alias = static_cast<int *>(nvshmemx_buffer_register_symmetric(own, 1 << 20, 0));
  if (!alias) nvshmem_global_exit(5);
  nvshmem_int_p(alias, me + 9, (me + 1) % n);
  nvshmem_barrier_all();
  FINE(cudaMemcpy(got, own, sizeof(int), cudaMemcpyDeviceToHost));
  FINE(got[0] != (me + n - 1) % n + 9);
  FINE(nvshmemx_buffer_unregister_symmetric(alias, 1 << 20));
  FINE(cudaFree(own));
  std::printf("PE %d of %d: all well\n", me, n);
  nvshmem_finalize();
  return 0;
}
