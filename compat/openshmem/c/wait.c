/* Waits on 16-bit words, which 1.5 deprecated and the runtime does not have. */
#include <sched.h>

#include "library.h"

static bool compares(struct call call, int kind, const void *ivar, int cmp, uint64_t value)
{
  int seen, wanted;
  if (kind == KIND_short) {
    seen = __atomic_load_n((const int16_t *) ivar, __ATOMIC_ACQUIRE);
    wanted = (int16_t) value;
  } else {
    seen = __atomic_load_n((const uint16_t *) ivar, __ATOMIC_ACQUIRE);
    wanted = (uint16_t) value;
  }
  switch (cmp) {
  case SHMEM_CMP_EQ: return seen == wanted;
  case SHMEM_CMP_NE: return seen != wanted;
  case SHMEM_CMP_GT: return seen > wanted;
  case SHMEM_CMP_GE: return seen >= wanted;
  case SHMEM_CMP_LT: return seen < wanted;
  case SHMEM_CMP_LE: return seen <= wanted;
  default: refuse(call, "%d is no comparison (SHMEM_CMP_EQ and its like)", cmp);
  }
}

int test_short(struct call call, int kind, const void *ivar, int cmp, uint64_t value)
{
  uint64_t bits;
  /* It says whether the address is this PE's own symmetric memory. */
  check_at(call, rushmem_g(job.world, ivar, &bits, sizeof(int16_t), job.me), ivar);
  if (compares(call, kind, ivar, cmp, value)) return 1;
  check(call, rushmem_check(job.world));
  return 0;
}

void wait_short(struct call call, int kind, const void *ivar, int cmp, uint64_t value)
{
  for (unsigned turn = 0; !test_short(call, kind, ivar, cmp, value); turn++)
    if (turn >= 64) sched_yield();
}
