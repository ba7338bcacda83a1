/* Bad calls, by the name in the first argument; PE 1 makes them, while PE 0 waits. "exit" ends the job beside
 * threads that are in calls, "stall" waits for what never comes. "layout" and "later" are programs whose
 * kernels were compiled with other headers, and whose library of such kernels was loaded in the job. */
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "check.h"

static void *put_for_ever(void *words)
{
  for (int i = 0;; ++i) nvshmem_int_p(words, i, 0);
  return NULL;
}

static int fill(const void *state, size_t bytes, int gpu)
{
  (void) state, (void) bytes, (void) gpu;
  return 0;
}

int main(int argc, char **argv)
{
  const char *what = argc > 1 ? argv[1] : "none";
  if (!strcmp(what, "early")) return nvshmem_my_pe();
  if (!strcmp(what, "layout")) rushmem_nvshmem_attach(fill, 1, 8);
  nvshmem_init();
  int *words = nvshmem_malloc(16 * sizeof *words), local[16] = {0};
  const int *volatile wild = (const int *) 0x5000000000;
  /* Words on both sides of memory that was given back. */
  int *before = nvshmem_malloc(4096), *freed = nvshmem_malloc(4096), *behind = nvshmem_malloc(4096);
  nvshmem_free(freed);
  if (nvshmem_malloc((size_t) 1 << 30) == NULL) printf("no room for 1 GiB\n");
  /* On all PEs: one that waited for another one's end would give up, too. */
  if (!strcmp(what, "stall")) nvshmem_signal_wait_until((uint64_t *) words, NVSHMEM_CMP_EQ, 41);
  if (nvshmem_my_pe() == 1) {
    if (!strcmp(what, "address")) nvshmem_int_p(local, 1, 0);
    if (!strcmp(what, "pe")) nvshmem_int_get(local, words, 4, 7);
    if (!strcmp(what, "team")) nvshmem_barrier(41);
    if (!strcmp(what, "signal")) nvshmemx_signal_op((uint64_t *) words, 1, 3, 0);
    if (!strcmp(what, "many"))
      nvshmemx_int_wait_until_all_vector_on_stream(words, SIZE_MAX, NULL, NVSHMEM_CMP_EQ, local, NULL);
    if (!strcmp(what, "more"))
      nvshmemx_int_wait_until_all_on_stream(words, (size_t) 1 << 40, local, NVSHMEM_CMP_EQ, 0, NULL);
    if (!strcmp(what, "between"))
      nvshmemx_int_wait_until_all_on_stream(before, behind + 1 - before, local, NVSHMEM_CMP_EQ, 0, NULL);
    if (!strcmp(what, "wild")) nvshmem_int_put(words, wild, 4, 0);
    if (!strcmp(what, "wild on a stream")) {
      nvshmemx_int_put_on_stream(words, wild, 4, 0, NULL);
      nvshmemx_quiet_on_stream(NULL);
      pause();
    }
    if (!strcmp(what, "later")) rushmem_nvshmem_attach(fill, 2, 16), nvshmem_fence();
    if (!strcmp(what, "killed")) kill(getpid(), SIGKILL);
    if (!strcmp(what, "exit")) {
      for (int i = 0; i < 3; ++i) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, put_for_ever, words + i) != 0) return 2;
      }
      usleep(20000);
      nvshmem_global_exit(7);
    }
  }
  nvshmem_barrier_all();
  nvshmem_finalize();
  return 0;
}
