/* A PE's process ends without rushmem_finalize: by exit(), or by return from main; before the others, or with
 * them. The others do not hang: what they wait in ends with an error that names that PE. */
#define _POSIX_C_SOURCE 200809L

#include "check.h"

#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The call ends soon, with an error that names PE `victim` and how it left. */
#define NAMED(call, victim)                                              \
  do {                                                                   \
    const double check_start = now();                                    \
    char check_name[32];                                                 \
    FAILS(call, RUSHMEM_ERR_PEER_DEAD, "left the job without finalize"); \
    CHECK(strstr(rushmem_last_error(), "its process ended"));            \
    snprintf(check_name, sizeof check_name, "PE %d (", victim);          \
    CHECK(strstr(rushmem_last_error(), check_name));                     \
    CHECK(now() - check_start < 20);                                     \
  } while (0)

int main(void)
{
  rushmem_world_t *w = start();
  const int victim = n - 1;
  uint64_t *word = NULL;
  OK(rushmem_alloc(w, sizeof *word, 0, (void **)&word));
  OK(rushmem_check(w));
  OK(rushmem_barrier_all(w));

  if (me == victim && n > 1) {
    /* A child that exits has no world of its own to leave. */
    const pid_t child = fork();
    if (child == 0) exit(0);
    CHECK(child > 0 && waitpid(child, NULL, 0) == child);
    OK(rushmem_put_signal(w, word, NULL, 0, word, 7, RUSHMEM_SIGNAL_SET, 0));
    OK(rushmem_quiet(w));
    const struct timespec moment = {0, 600000000};
    nanosleep(&moment, NULL);
    printf("PE %d of %d: all well\n", me, n);
    exit(0);
  }
  if (me == 0 && n > 1) {
    /* What was said before the end still counts. */
    uint64_t seen = 0;
    OK(rushmem_signal_wait_until(w, word, RUSHMEM_CMP_EQ, 7, &seen));
    CHECK(seen == 7);
    OK(rushmem_check(w));
    NAMED(rushmem_signal_wait_until(w, word, RUSHMEM_CMP_EQ, 8, &seen), victim);
  }
  if (n > 1) {
    NAMED(rushmem_barrier_all(w), victim);
    NAMED(rushmem_check(w), victim);
    NAMED(rushmem_finalize(w), victim);
  }
  printf("PE %d of %d: all well\n", me, n);
  return 0; /* with a live world, as the others do: nobody minds any more */
}
