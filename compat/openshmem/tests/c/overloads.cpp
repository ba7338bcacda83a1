// C++: overloads in the place of C11's type-generic forms, complex numbers, variables with constructors.
// Old headers left this to the program.
extern "C" {
#include <pshmem.h>
#include <shmemx.h>
}
#include <string>
#include <vector>

#include "forms.h"

struct Made {
  int value;
  Made() : value(17) {}
};
static Made made;
static std::complex<double> z[2] = {{1, 2}, {3, 4}};
static double d[4];
static long word;
static std::vector<std::string> names = {"heap", "of", "C++"};

int main()
{
  begin();
  every_form();
  CHECK(made.value == 17 && names[2] == "C++", "constructors ran");
  CHECK(shmem_g(&made.value, next) == 17, "a neighbour's");
  const double source[] = {1.5, 2.5};
  shmem_put(d, source, 2, next);
  shmem_put(SHMEM_CTX_DEFAULT, d + 2, source, 2, next);
  shmem_p(&word, 4L, next);
  shmem_barrier_all();
  CHECK(d[3] == 2.5 && shmem_atomic_fetch_add(&word, 1L, me) == 4, "values");
  CHECK(shmem_sum_reduce(SHMEM_TEAM_WORLD, z, z, 2) == 0 && z[1] == std::complex<double>(3.0 * n, 4.0 * n),
        "complex");
  CHECK(shmem_test(&word, SHMEM_CMP_EQ, 5L) == 1, "a test");
  shmem_wait_until(&word, SHMEM_CMP_GE, 5L);
  CHECK(shmem_sync(SHMEM_TEAM_WORLD) == 0, "a team's sync");
  return end();
}
