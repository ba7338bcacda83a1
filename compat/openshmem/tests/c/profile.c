/* A profiler's own function in the place of the library's, which calls that by its profiling name. */
#include <pshmem.h>

#include "check.h"

static int calls;
static long word;

void shmem_long_p(long *dest, long value, int pe)
{
  calls++;
  pshmem_long_p(dest, value, pe);
}

int main(void)
{
  begin();
  shmem_long_p(&word, me, next);
  pshmem_barrier_all();
  CHECK(calls == 1 && word == prev, "%d calls, %ld", calls, word);
  return end();
}
