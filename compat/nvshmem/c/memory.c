/* The symmetric heap, and memory of the program that becomes symmetric. */
#include "library.h"

/* A program whose kernels run on another GPU than the PE's would fault there. */
static void check_gpu(struct call call)
{
  if (job.gpu < 0) return;
  const int current = module_current_gpu();
  if (current >= 0 && current != job.gpu)
    refuse(call,
           "this PE's GPU is %d, and the current device %d: call cudaSetDevice before nvshmem_init, or choose the "
           "device by nvshmem_team_my_pe(NVSHMEMX_TEAM_NODE)",
           job.gpu, current);
}

void *memory_malloc(struct call call, size_t size, size_t align)
{
  in_job(call);
  check_gpu(call);
  if (size == 0) return NULL;
  void *at = NULL;
  const int32_t code = rushmem_alloc(job.world, size, align, &at);
  /* On all PEs alike. */
  if (code == RUSHMEM_ERR_HEAP_EXHAUSTED) return NULL;
  check(call, code);
  return at;
}

void *memory_align(struct call call, size_t align, size_t size)
{
  if (align < sizeof(void *) || align & (align - 1)) return NULL;
  return memory_malloc(call, size, align);
}

void *memory_calloc(struct call call, size_t count, size_t size)
{
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return NULL;
  return memory_malloc(call, bytes, 0); /* which is zeroed */
}

void memory_free(struct call call, void *pointer)
{
  in_job(call);
  if (pointer) check(call, rushmem_free(job.world, pointer));
}

void *memory_ptr(struct call call, const void *address, int pe)
{
  in_job(call);
  void *out = NULL;
  const int32_t code = rushmem_ptr(job.world, address, pe, &out);
  if (code == RUSHMEM_ERR_BAD_ADDRESS) return NULL;
  check(call, code);
  return out;
}

/* Any memory of the PE's is a source or a destination here, registered or not. */
int memory_register_local(struct call call, void *address, size_t bytes)
{
  in_job(call);
  if (!address || !bytes) return decline(call, NVSHMEMX_ERROR_INVALID_VALUE, "there are no %zu bytes at %p", bytes, address);
  return 0;
}

int memory_unregister_local(struct call call, void *address)
{
  in_job(call);
  return address ? 0 : NVSHMEMX_ERROR_INVALID_VALUE;
}

void *memory_register(struct call call, void *address, size_t bytes, void *preferred, int flags)
{
  in_job(call);
  (void) preferred;
  void *alias = NULL;
  if (flags != 0) {
    decline(call, 0, "flags %#x have bits that stand for nothing", (unsigned) flags);
    return NULL;
  }
  if (rushmem_register(job.world, address, bytes, &alias) != RUSHMEM_OK) {
    if (rushmem_check(job.world) != RUSHMEM_OK) fail(call, RUSHMEM_ERR_PEER_DEAD);
    decline(call, 0, "%s", rushmem_last_error());
    return NULL;
  }
  return alias;
}

int memory_unregister(struct call call, void *address, size_t bytes)
{
  in_job(call);
  (void) bytes;
  if (rushmem_unregister(job.world, address) == RUSHMEM_OK) return 0;
  return decline(call, NVSHMEMX_ERROR_INVALID_VALUE, "%s", rushmem_last_error());
}
