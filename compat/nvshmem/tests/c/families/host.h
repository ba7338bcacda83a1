/* What the files of this folder share. */
#ifndef NVSHMEM_TESTS_FAMILIES_HOST_H
#define NVSHMEM_TESTS_FAMILIES_HOST_H

#include <stdbool.h>
#include <time.h>

#include "../check.h"
#include "sets.h"

static int me, n, right, left;
static cudaStream_t stream;
static uint64_t salt;

static void say(const char *part, const char *what)
{
  static double begin;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  const double seconds = (double) now.tv_sec + (double) now.tv_nsec * 1e-9;
  if (begin == 0) begin = seconds;
  if (me == 0) printf("%7.2f s: %s %s\n", seconds - begin, part, what);
  fflush(stdout);
}

#define VALUE(T, pe, i) ((T) (((uint64_t) (pe) * 37 + (uint64_t) (i) * 11 + salt) % 101))

/* The PE's own symmetric memory. */
#define LOAD(to, from, count) nvshmem_getmem(to, from, (count) * sizeof *(to), me)

static void meet(void)
{
  finish(stream);
  nvshmem_barrier_all();
}

static void clear(char *a)
{
  static const char zeroes[8192];
  nvshmem_putmem(a, zeroes, sizeof zeroes, me);
  nvshmem_barrier_all();
}

static bool is_asked(int argc, char **argv, const char *part)
{
  for (int i = 1; i < argc; i++)
    if (!strcmp(argv[i], part)) return true;
  return argc < 2;
}

#endif
