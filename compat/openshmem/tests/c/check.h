/* What the test programs share: checks that end the job, values that differ by PE and place, a seed. */
#ifndef CHECK_H
#define CHECK_H

#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sets.h"

static int me, n, next, prev;
static unsigned long long seed;

#define CHECK(condition, ...)                                                                                \
  do {                                                                                                       \
    if (!(condition)) {                                                                                      \
      fprintf(stderr, "PE %d, %s:%d: %s is not so: ", me, __FILE__, __LINE__, #condition);                   \
      fprintf(stderr, __VA_ARGS__);                                                                          \
      fprintf(stderr, " (seed %llu)\n", seed);                                                               \
      exit(3);                                                                                               \
    }                                                                                                        \
  } while (0)

/* A small number, which every type can hold, of place `i` of PE `pe` in round `salt`. */
static int number(int pe, int i, int salt)
{
  unsigned long long x = seed + 1000003ull * (unsigned) pe + 10007ull * (unsigned) i;
  x += 101ull * (unsigned) salt;
  x ^= x >> 12;
  x *= 0x9e3779b97f4a7c15ull;
  return (int) (x >> 40) % 100 + 1;
}

static void begin(void)
{
  const char *given = getenv("RUSHMEM_TEST_SEED");
  seed = given ? strtoull(given, NULL, 10) : 1;
  shmem_init();
  me = shmem_my_pe();
  n = shmem_n_pes();
  next = (me + 1) % n;
  prev = (me + n - 1) % n;
}

static int end(void)
{
  shmem_barrier_all();
  printf("PE %d of %d: all well\n", me, n);
  shmem_finalize();
  return 0;
}

#endif
