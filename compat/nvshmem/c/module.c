/* How kernels that this runtime has not loaded learn who their PE is: each has a global, `rushmem_state`
 * (rushmem/abi.h), into which the world's device state is copied.
 *
 * Programs' own kernels, which CUDA's runtime loads, come with a function that copies
 * (rushmem_nvshmem/program.h); modules and libraries of other loaders are looked into through the driver.
 * Both say which layout they were compiled for, and another one is refused. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rushmem/abi.h>

#include "library.h"

/* Kernels of a program or of a shared library of it. */
struct attached {
  struct attached *next;
  rushmem_nvshmem_fill fill;
  unsigned version;
  size_t bytes;
  bool filled; /* for this job */
};

static struct attached *programs;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
bool module_pending;

PUBLIC void rushmem_nvshmem_attach(rushmem_nvshmem_fill fill, unsigned version, size_t bytes)
{
  struct attached *new = malloc(sizeof *new);
  if (!new) return;
  pthread_mutex_lock(&lock);
  *new = (struct attached){programs, fill, version, bytes, false};
  programs = new;
  __atomic_store_n(&module_pending, true, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&lock);
}

PUBLIC void rushmem_nvshmem_detach(rushmem_nvshmem_fill fill)
{
  pthread_mutex_lock(&lock);
  for (struct attached **at = &programs; *at; at = &(*at)->next)
    if ((*at)->fill == fill) {
      struct attached *gone = *at;
      *at = gone->next;
      free(gone);
      break;
    }
  pthread_mutex_unlock(&lock);
}

PUBLIC void rushmem_nvshmem_fill_all(const char *function)
{
  const struct call call = {function, __builtin_return_address(0)};
  in_job(call);
  module_fill(call);
}

static void check_layout(struct call call, unsigned version, size_t bytes)
{
  if (version != RUSHMEM_DEVICE_ABI_VERSION || bytes != sizeof(rushmem_device_state))
    refuse(call,
           "kernels of this program were compiled with headers of another rushmem (device state %u, %zu bytes; this "
           "library has %u, %zu): build them again",
           version, bytes, RUSHMEM_DEVICE_ABI_VERSION, sizeof(rushmem_device_state));
}

void module_fill(struct call call)
{
  if (!job.world || !__atomic_load_n(&module_pending, __ATOMIC_ACQUIRE)) return;
  rushmem_device_state state;
  check(call, rushmem_kernel_state(job.world, &state, sizeof state));
  pthread_mutex_lock(&lock);
  __atomic_store_n(&module_pending, false, __ATOMIC_RELEASE);
  for (struct attached *at = programs; at; at = at->next) {
    if (at->filled) continue;
    /* Also where no kernel of them can run, so that a program is not refused on some machines alone. */
    check_layout(call, at->version, at->bytes);
    if (job.gpu < 0) continue;
    const int code = at->fill(&state, sizeof state, job.gpu);
    if (code != 0) refuse(call, "telling the program's kernels their PE: CUDA's error %d on GPU %d", code, job.gpu);
    at->filled = true;
  }
  pthread_mutex_unlock(&lock);
}

void module_start(struct call call)
{
  pthread_mutex_lock(&lock);
  for (struct attached *at = programs; at; at = at->next) at->filled = false;
  __atomic_store_n(&module_pending, programs != NULL, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&lock);
  module_fill(call);
}

/* --- the driver, as far as it is needed here ------------------------------------------------------------ */

typedef unsigned long long device_pointer;
static struct {
  int (*ctx_get_device)(int *);
  int (*module_global)(device_pointer *, size_t *, CUmodule, const char *);
  int (*library_global)(device_pointer *, size_t *, CUlibrary, const char *);
  int (*attribute)(void *, int, device_pointer);
  int (*retain)(void **, int);
  int (*release)(int);
  int (*push)(void *);
  int (*pop)(void **);
  int (*capture_mode)(int *);
  int (*stream_create)(void **, unsigned);
  int (*stream_wait)(void *);
  int (*stream_destroy)(void *);
  int (*copy)(device_pointer, device_pointer, size_t, void *);
} cuda;

static void load_driver(void)
{
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return;
  *(void **) &cuda.ctx_get_device = dlsym(library, "cuCtxGetDevice");
  *(void **) &cuda.module_global = dlsym(library, "cuModuleGetGlobal_v2");
  *(void **) &cuda.library_global = dlsym(library, "cuLibraryGetGlobal");
  *(void **) &cuda.attribute = dlsym(library, "cuPointerGetAttribute");
  *(void **) &cuda.retain = dlsym(library, "cuDevicePrimaryCtxRetain");
  *(void **) &cuda.release = dlsym(library, "cuDevicePrimaryCtxRelease_v2");
  *(void **) &cuda.push = dlsym(library, "cuCtxPushCurrent_v2");
  *(void **) &cuda.pop = dlsym(library, "cuCtxPopCurrent_v2");
  *(void **) &cuda.capture_mode = dlsym(library, "cuThreadExchangeStreamCaptureMode");
  *(void **) &cuda.stream_create = dlsym(library, "cuStreamCreate");
  *(void **) &cuda.stream_wait = dlsym(library, "cuStreamSynchronize");
  *(void **) &cuda.stream_destroy = dlsym(library, "cuStreamDestroy_v2");
  *(void **) &cuda.copy = dlsym(library, "cuMemcpyAsync");
}

static void need_driver(void)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load_driver);
}

/* Copies between memory of either kind. On a stream of its own that waits for no other: on the null stream a
 * copy would wait for whatever waits on the program's streams, for this very PE perhaps. */
static int copy_now(device_pointer to, device_pointer from, size_t bytes)
{
  void *stream = NULL, *context = NULL;
  int mode = 2; /* relaxed: it has nothing to do with a capture that is under way */
  if (!cuda.copy || !cuda.retain || cuda.retain(&context, job.gpu) != 0) return -1;
  int code = cuda.push(context);
  if (code == 0) {
    cuda.capture_mode(&mode);
    code = cuda.stream_create(&stream, 1 /* CU_STREAM_NON_BLOCKING */);
    if (code == 0) {
      code = cuda.copy(to, from, bytes, stream);
      const int waited = cuda.stream_wait(stream);
      if (code == 0) code = waited;
      cuda.stream_destroy(stream);
    }
    cuda.capture_mode(&mode);
    cuda.pop(&context);
  }
  cuda.release(job.gpu);
  return code;
}

int module_current_gpu(void)
{
  need_driver();
  int device = -1;
  if (!cuda.ctx_get_device || cuda.ctx_get_device(&device) != 0) return -1;
  return device;
}

void module_copy(struct call call, void *to, const void *from, size_t bytes)
{
  const device_pointer source = (uintptr_t) from;
  unsigned kind = 0;
  if (job.gpu >= 0) need_driver();
  /* What the driver does not know is the program's own; 2 is memory of a GPU. */
  if (job.gpu < 0 || !cuda.attribute || cuda.attribute(&kind, 2 /* MEMORY_TYPE */, source) != 0 || kind != 2) {
    memcpy(to, from, bytes);
    return;
  }
  const int code = copy_now((uintptr_t) to, source, bytes);
  if (code != 0) refuse(call, "copying %zu bytes from %p: CUDA's error %d", bytes, from, code);
}

static int fill_at(struct call call, int found, device_pointer at, size_t bytes)
{
  if (found != 0)
    return decline(call, NVSHMEMX_ERROR_INVALID_VALUE,
                   "no global rushmem_state (CUDA's error %d): the module was not compiled with this nvshmem.h, or "
                   "calls nothing of it",
                   found);
  unsigned head[2] = {0};
  if (bytes >= sizeof head && copy_now((uintptr_t) head, at, sizeof head) != 0)
    return decline(call, NVSHMEMX_ERROR_INTERNAL, "the module's rushmem_state cannot be read");
  if (bytes != sizeof(rushmem_device_state) || (head[0] && head[0] != RUSHMEM_DEVICE_ABI_VERSION))
    return decline(call, NVSHMEMX_ERROR_NOT_SUPPORTED,
                   "the module was compiled with headers of another rushmem (device state %u, %zu bytes; this library "
                   "has %u, %zu): build it again",
                   head[0], bytes, RUSHMEM_DEVICE_ABI_VERSION, sizeof(rushmem_device_state));
  rushmem_device_state state;
  check(call, rushmem_kernel_state(job.world, &state, sizeof state));
  if (copy_now(at, (uintptr_t) &state, sizeof state) != 0)
    return decline(call, NVSHMEMX_ERROR_INTERNAL, "the module's rushmem_state cannot be written");
  return 0;
}

static int ready(struct call call, const void *module)
{
  in_job(call);
  if (job.gpu < 0)
    return decline(call, NVSHMEMX_ERROR_NOT_SUPPORTED, "this PE's device is the CPU, whose kernels rushmem_module_load loads");
  if (!module) return decline(call, NVSHMEMX_ERROR_INVALID_VALUE, "the module is null");
  need_driver();
  return 0;
}

int module_init(struct call call, CUmodule module)
{
  int code = ready(call, module);
  if (code != 0) return code;
  device_pointer at = 0;
  size_t bytes = 0;
  code = cuda.module_global ? cuda.module_global(&at, &bytes, module, "rushmem_state") : -1;
  return fill_at(call, code, at, bytes);
}

int library_init(struct call call, CUlibrary library)
{
  int code = ready(call, library);
  if (code != 0) return code;
  device_pointer at = 0;
  size_t bytes = 0;
  code = cuda.library_global ? cuda.library_global(&at, &bytes, library, "rushmem_state") : -1;
  return fill_at(call, code, at, bytes);
}

/* What was filled in belongs to the module. */
int module_finalize(const void *module)
{
  return module ? 0 : NVSHMEMX_ERROR_INVALID_VALUE;
}
