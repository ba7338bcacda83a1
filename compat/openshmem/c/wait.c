/* Waits on 16-bit words, which 1.5 deprecated and the runtime does not have. */
#include <sched.h>
#include <stdatomic.h>

#include "library.h"

static bool compares(struct call call, int kind, uint64_t bits, int cmp, uint64_t value)
{
  const bool is_signed = kind == KIND_short;
  const int seen = is_signed ? (int16_t) bits : (uint16_t) bits;
  const int wanted = is_signed ? (int16_t) value : (uint16_t) value;
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
  if ((uintptr_t) ivar % sizeof(int16_t)) refuse(call, "ivar %p is not at a multiple of 2 bytes", ivar);
  /* It also says whether the address is this PE's own symmetric memory, which may be a GPU's. */
  check_at(call, rushmem_g(job.world, ivar, &bits, sizeof(int16_t), job.me), ivar);
  if (compares(call, kind, bits, cmp, value)) {
    /* What came before the word's update is seen behind it. */
    atomic_thread_fence(memory_order_acquire);
    return 1;
  }
  check(call, rushmem_check(job.world));
  return 0;
}

/* Waits for a change of the 32-bit word around it, as the runtime waits: with reports, and up to its limit.
 * An allocation that ends in the middle of that word is looked at again and again. */
void wait_short(struct call call, int kind, const void *ivar, int cmp, uint64_t value)
{
  const uint32_t *word = (const uint32_t *) ((uintptr_t) ivar & ~(uintptr_t) 3);
  uint64_t seen;
  for (unsigned turn = 0;; turn++) {
    const bool whole = rushmem_g(job.world, word, &seen, sizeof *word, job.me) == RUSHMEM_OK;
    if (test_short(call, kind, ivar, cmp, value)) return;
    if (turn < 64) continue;
    if (whole)
      check_at(call, rushmem_wait_until(job.world, RUSHMEM_UINT32, word, RUSHMEM_CMP_NE, seen, 0), ivar);
    else
      sched_yield();
  }
}
