/* Global and static variables are symmetric: initialised and not, small and large, in functions and not, as
 * targets and sources; what the library does not own is not. */
#include <unistd.h>

#include "check.h"

#define HUGE (1ul << 30)

int initialised = 7;
const char *address_of_text = "text";
static double array[3] = {1.5, 2.5, 3.5};
static long untouched[1000];
/* As large as the issue of bss gets: it takes no memory, and next to no time. */
static char huge[HUGE];
static struct {
  char pad[3];
  short value;
} odd = {{1, 2, 3}, 4};

static int *in_function(void)
{
  static int counter = 100;
  return &counter;
}

int main(int argc, char **argv)
{
  begin();
  CHECK(initialised == 7 && !strcmp(address_of_text, "text") && array[2] == 3.5 && odd.value == 4,
        "initial values");
  CHECK(*in_function() == 100 && untouched[999] == 0 && huge[HUGE - 1] == 0, "initial values");
  huge[HUGE / 2] = (char) (me + 1);
  *in_function() += me;
  shmem_barrier_all();
  CHECK(shmem_int_g(&initialised, next) == 7 && shmem_double_g(&array[1], next) == 2.5,
        "a neighbour's values");
  CHECK(shmem_int_g(in_function(), next) == 100 + next, "a static variable of a function");
  CHECK(shmem_char_g(&huge[HUGE / 2], next) == next + 1, "the middle of a gibibyte");
  shmem_long_put(&untouched[500], (long[]){me, me}, 2, next);
  shmem_short_p(&odd.value, (short) (me + 5), next);
  shmem_char_p(&huge[HUGE - 1], (char) me, next);
  shmem_long_atomic_add(&untouched[0], 3, 0);
  shmem_barrier_all();
  CHECK(untouched[500] == prev && untouched[501] == prev && untouched[502] == 0, "a put");
  CHECK(odd.value == prev + 5 && odd.pad[2] == 3 && huge[HUGE - 1] == prev, "puts");
  if (me == 0) CHECK(untouched[0] == 3 * n, "an atomic");
  shmem_double_sum_reduce(SHMEM_TEAM_WORLD, array, array, 3);
  CHECK(array[0] == 1.5 * n && array[2] == 3.5 * n, "a reduction");
  CHECK(!shmem_addr_accessible(&argc, next) && !shmem_addr_accessible(stdout, next), "not symmetric");
  CHECK(!shmem_addr_accessible(argv, next), "not symmetric");
  return end();
}
