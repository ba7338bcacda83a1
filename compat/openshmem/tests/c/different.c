/* PEs of two executables that differ in the order of their variables alone (OTHER): the heap is symmetric,
 * variables are not. */
#include "check.h"

#ifdef OTHER
static long second = 2, first = 1;
#else
static long first = 1, second = 2;
#endif

int main(void)
{
  begin();
  long *heap = shmem_malloc(sizeof *heap), mine = me;
  for (int pe = 0; pe < n; pe++) {
    CHECK(shmem_pe_accessible(pe) && shmem_addr_accessible(heap, pe), "PE %d", pe);
    CHECK(!shmem_addr_accessible(&first, pe) && !shmem_addr_accessible(&second, pe), "PE %d", pe);
    CHECK(shmem_ptr(&first, pe) == NULL, "PE %d", pe);
  }
  shmem_long_put(heap, &mine, 1, next);
  shmem_barrier_all();
  CHECK(*heap == prev && first == 1 && second == 2, "from %ld", *heap);
  return end();
}
