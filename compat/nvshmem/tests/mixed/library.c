/* A library that calls nvshmem.h's functions, in whatever program it is. */
#include <nvshmem.h>
#include <nvshmemx.h>

/* Puts to the right neighbour's `put`, and looks at what the program has put to `there` from the left one.
 * The line of what is wrong, or 0. Collective. */
int shift(uint64_t *put, const uint64_t *there, uint64_t turn)
{
  nvshmem_init();
  const int me = nvshmem_my_pe(), n = nvshmem_n_pes(), left = (me + n - 1) % n, right = (me + 1) % n;
  int wrong = 0;
  nvshmem_uint64_p(put, turn * 1000000 + (uint64_t) me, right);
  uint64_t *own = nvshmem_malloc(sizeof *own);
  if (!own || nvshmem_ptr(own, me) != own) wrong = __LINE__;
  else nvshmem_uint64_atomic_set(own, turn + (uint64_t) me, right);
  nvshmem_barrier_all();
  if (*there != turn * 1000 + (uint64_t) left) wrong = __LINE__;
  if (own && nvshmem_uint64_g(own, me) != turn + (uint64_t) left) wrong = __LINE__;
  nvshmem_free(own);
  nvshmem_finalize();
  if (nvshmemx_init_status() != NVSHMEM_STATUS_NOT_INITIALIZED) wrong = __LINE__;
  return wrong;
}
