/* Collective launches for those who find them by name, as other languages' bindings do, and for C. C++ has
 * them in the header (rushmem_nvshmem/program.h), where they call the program's own CUDA runtime; here that
 * runtime is looked for: what the program exports or has loaded, which knows its kernels. */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "library.h"

/* As CUDA has them, whose headers are not needed here. */
struct dim3 {
  unsigned x, y, z;
};
struct launch_attribute {
  int id;
  char padding[4];
  union {
    char room[64];
    int cooperative;
  } value;
};
struct launch_config {
  struct dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
  struct launch_attribute *attributes;
  unsigned count;
};
_Static_assert(sizeof(struct launch_attribute) == 72 && sizeof(struct launch_config) == 56, "CUDA's layouts");

enum { COOPERATIVE = 2 /* cudaLaunchAttributeCooperative */, PROCESSORS = 16 /* cudaDevAttrMultiProcessorCount */, MOST = 32 };

static struct {
  int (*get_device)(int *);
  int (*attribute)(int *, int, int);
  int (*occupancy)(int *, const void *, int, size_t);
  int (*cooperative)(const void *, struct dim3, struct dim3, void **, size_t, cudaStream_t);
  int (*launch)(const struct launch_config *, const void *, void **);
} cuda;

static void *named(const char *name)
{
  void *found = dlsym(RTLD_DEFAULT, name);
  static const char *const libraries[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so"};
  for (size_t i = 0; !found && i < sizeof libraries / sizeof *libraries; i++) {
    /* Only where it is loaded: another copy knows none of the program's kernels. */
    void *library = dlopen(libraries[i], RTLD_NOW | RTLD_NOLOAD);
    if (library) found = dlsym(library, name);
  }
  return found;
}

static void find_runtime(void)
{
  *(void **) &cuda.get_device = named("cudaGetDevice");
  *(void **) &cuda.attribute = named("cudaDeviceGetAttribute");
  *(void **) &cuda.occupancy = named("cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  *(void **) &cuda.cooperative = named("cudaLaunchCooperativeKernel");
  *(void **) &cuda.launch = named("cudaLaunchKernelExC");
}

/* 0 once there is a runtime: it may be loaded at any time. */
static int runtime(struct call call)
{
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&lock);
  if (!cuda.cooperative) find_runtime();
  const bool whole = cuda.get_device && cuda.attribute && cuda.occupancy && cuda.cooperative && cuda.launch;
  pthread_mutex_unlock(&lock);
  if (whole) return 0;
  return decline(call, NVSHMEMX_ERROR_NOT_SUPPORTED,
                 "this process has no CUDA runtime whose functions can be found by name: link with -lcudart, nvcc's "
                 "-cudart shared");
}

static int failed(struct call call, int code, int error, const char *what)
{
  return decline(call, code, "%s: CUDA's error %d", what, error);
}

static int most_blocks(struct call call, const void *kernel, struct dim3 block, size_t shared, int *out)
{
  int device = 0, processors = 0, each = 0;
  if (!kernel || !out) return decline(call, NVSHMEMX_ERROR_INVALID_VALUE, "%s is null", kernel ? "gridsize" : "func");
  int code = runtime(call);
  if (code != 0) return code;
  code = cuda.get_device(&device);
  if (code == 0) code = cuda.attribute(&processors, PROCESSORS, device);
  if (code == 0) code = cuda.occupancy(&each, kernel, (int) (block.x * block.y * block.z), shared);
  if (code != 0) return failed(call, NVSHMEMX_ERROR_INTERNAL, code, "how many blocks of the kernel run at once");
  *out = each * processors;
  return 0;
}

PUBLIC int nvshmemx_collective_launch_query_gridsize(const void *func, struct dim3 block, void **args, size_t shared,
                                                     int *gridsize)
{
  const struct call call = {"nvshmemx_collective_launch_query_gridsize", __builtin_return_address(0)};
  (void) args;
  return most_blocks(call, func, block, shared, gridsize);
}

PUBLIC int nvshmemx_collective_launch(const void *func, struct dim3 grid, struct dim3 block, void **args, size_t shared,
                                      cudaStream_t stream)
{
  const struct call call = {"nvshmemx_collective_launch", __builtin_return_address(0)};
  in_job(call);
  module_fill(call);
  if (grid.x == 0 && grid.y == 0 && grid.z == 0) {
    int most = 0;
    const int code = most_blocks(call, func, block, shared, &most);
    if (code != 0) return code;
    grid = (struct dim3){(unsigned) most, 1, 1};
  }
  const int none = func ? runtime(call) : decline(call, NVSHMEMX_ERROR_INVALID_VALUE, "func is null");
  if (none != 0) return none;
  const int code = cuda.cooperative(func, grid, block, args, shared, stream);
  return code == 0 ? 0 : failed(call, NVSHMEMX_ERROR_COLLECTIVE_LAUNCH_FAILED, code, "the launch");
}

/* `config` is the only member of nvshmemx_collective_launch_attr_t. */
PUBLIC int nvshmemx_collective_launch_attr(const struct launch_config *config, const void *func, void **args)
{
  const struct call call = {"nvshmemx_collective_launch_attr", __builtin_return_address(0)};
  in_job(call);
  module_fill(call);
  if (!config || !func || config->count >= MOST)
    return decline(call, NVSHMEMX_ERROR_INVALID_VALUE, "attributes and a kernel are needed, and at most %d attributes of CUDA's",
                   MOST - 1);
  const int none = runtime(call);
  if (none != 0) return none;
  struct launch_attribute attributes[MOST];
  struct launch_config with = *config;
  if (with.count) memcpy(attributes, with.attributes, with.count * sizeof *attributes);
  attributes[with.count] = (struct launch_attribute){.id = COOPERATIVE, .value.cooperative = 1};
  with.attributes = attributes;
  with.count++;
  const int code = cuda.launch(&with, func, args);
  return code == 0 ? 0 : failed(call, NVSHMEMX_ERROR_COLLECTIVE_LAUNCH_FAILED, code, "the launch");
}
