/* A C library that uses rushmem by itself and is loaded into another program's process: it and its host must
 * find themselves in one runtime. */
#include <rushmem.h>

const char *client_library_path(void)
{
  return rushmem_library_path();
}

/* With its host's world: puts `value` to the right neighbour's `word` and meets everybody. */
int32_t client_pass_right(rushmem_world_t *w, int64_t *word, int64_t value)
{
  const int32_t me = rushmem_my_pe(w), n = rushmem_n_pes(w);
  if (me < 0) return me;
  const int32_t rc = rushmem_int64_p(w, word, value, (me + 1) % n);
  return rc == RUSHMEM_OK ? rushmem_barrier_all(w) : rc;
}

/* The text of this thread's last error, after making one. */
const char *client_error(rushmem_world_t *w)
{
  return rushmem_fence(w) == RUSHMEM_OK && rushmem_p(w, (void *)8, 0, 8, 0) != RUSHMEM_OK ? rushmem_last_error() : "";
}
