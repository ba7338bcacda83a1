/* What the kernels of this folder share. Each is launched with one block of 64 threads on all PEs, and checks
 * what it gets against a formula; the first line that is wrong goes to `*bad`. sets.h, which the tests make
 * of the table, has the lists of types. */
#ifndef NVSHMEM_TESTS_CHECK_H
#define NVSHMEM_TESTS_CHECK_H

#include <nvshmem.h>
#include <nvshmemx.h>

#include "sets.h"

/* a, b: 64 KiB each of symmetric memory, zeroed; sig: 64 signal words; team: one that this PE is in. */
#define KERNEL(name) \
  extern "C" __global__ void name(char *a, char *b, uint64_t *sig, unsigned *bad, uint64_t salt, nvshmem_team_t team)
#define UNUSED (void) a, (void) b, (void) sig, (void) bad, (void) salt, (void) team

/* Compiled with -DPARTS=3 -DPART=1, a third of such kernels is made, by their names, and the others are
 * empty: some files take minutes. */
#ifndef PARTS
#define PARTS 1
#define PART 0
#endif
__host__ __device__ constexpr unsigned part_of(const char *name) {
  return *name ? static_cast<unsigned>(*name) + 31 * part_of(name + 1) : 0;
}
#define PARTIAL_KERNEL(name)                                                                                     \
  static __device__ void do_##name(char *, char *, uint64_t *, unsigned *, uint64_t, nvshmem_team_t);            \
  KERNEL(name) {                                                                                                 \
    UNUSED;                                                                                                      \
    if constexpr (part_of(#name) % PARTS == PART) do_##name(a, b, sig, bad, salt, team);                            \
  }                                                                                                              \
  static __device__ void do_##name(char *a, char *b, uint64_t *sig, unsigned *bad, uint64_t salt, nvshmem_team_t team)

#define CHECK(condition)                                       \
  do {                                                         \
    if (!(condition)) wrong(bad, __LINE__);                    \
  } while (0)

__device__ inline void wrong(unsigned *bad, unsigned line) {
  volatile unsigned *at = bad;
  if (*at == 0) *at = line;
}

/* Small enough for every type. */
template <typename T> __device__ T value_of(int pe, size_t i, uint64_t salt) {
  return static_cast<T>((static_cast<uint64_t>(pe) * 37 + i * 11 + salt) % 101);
}

template <typename T> __device__ void fill(T *at, size_t n, uint64_t salt) {
  for (size_t i = threadIdx.x; i < n; i += blockDim.x) at[i] = value_of<T>(nvshmem_my_pe(), i, salt);
}

template <typename T> __device__ void expect(unsigned *bad, unsigned line, const T *at, size_t n, int pe, uint64_t salt) {
  for (size_t i = threadIdx.x; i < n; i += blockDim.x) {
    if (*const_cast<const volatile T *>(at + i) != value_of<T>(pe, i, salt)) wrong(bad, line);
  }
}
#define EXPECT(at, n, pe, salt) expect(bad, __LINE__, at, n, pe, salt)

/* The threads of a scope. */
#define IN (threadIdx.x == 0)
#define IN_warp (threadIdx.x < 32)
#define IN_warpgroup true /* the block has two warps */
#define IN_block true

#define NEIGHBOURS                                                       \
  const int me = nvshmem_my_pe(), n_pes = nvshmem_n_pes();               \
  const int right = (me + 1) % n_pes, left = (me + n_pes - 1) % n_pes;   \
  (void) left, (void) right

#endif
