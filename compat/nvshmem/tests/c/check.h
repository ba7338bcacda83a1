/* What the programs of this folder share: each runs on several PEs, and a check that fails ends the job. */
#ifndef NVSHMEM_TESTS_HOST_CHECK_H
#define NVSHMEM_TESTS_HOST_CHECK_H

#include <nvshmem.h>
#include <nvshmemx.h>
#include <rushmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                    \
  do {                                                                                      \
    if (!(condition)) {                                                                     \
      fprintf(stderr, "%s:%d: PE %d: not so: %s\n", __FILE__, __LINE__, nvshmem_my_pe(), #condition); \
      nvshmem_global_exit(3);                                                               \
    }                                                                                       \
  } while (0)

static inline rushmem_world_t *world(void)
{
  rushmem_world_t *w = NULL;
  if (rushmem_current(&w) != RUSHMEM_OK || !w) abort();
  return w;
}

/* What is on a stream has ended. */
static inline void finish(cudaStream_t stream)
{
  if (rushmem_stream_synchronize(world(), stream) != RUSHMEM_OK) {
    fprintf(stderr, "%s\n", rushmem_last_error());
    nvshmem_global_exit(4);
  }
}

static inline void all_well(void)
{
  printf("PE %d of %d: all well\n", nvshmem_my_pe(), nvshmem_n_pes());
  fflush(stdout);
}

#endif
