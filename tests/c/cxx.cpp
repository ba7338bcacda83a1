// The headers from C++, beside those that kernels include: the same constants, whatever the order. A world
// through a unique ID or the environment, a few typed calls, and a second world after the first.
#include <rushmem/abi.h>

#include "check.h"

#include <numeric>
#include <type_traits>
#include <vector>

static_assert(std::is_standard_layout<rushmem_init_attr_t>::value && std::is_trivial<rushmem_view_t>::value,
              "plain C structs");
static_assert(RUSHMEM_CMP_LE == 5 && RUSHMEM_SIGNAL_ADD == 1, "constants of both headers");

static void sum_to_all(rushmem_world_t *w)
{
  double *parts = nullptr;
  OK(rushmem_alloc(w, static_cast<size_t>(n) * sizeof *parts, 0, reinterpret_cast<void **>(&parts)));
  for (int pe = 0; pe < n; pe++) OK(rushmem_double_p(w, parts + me, 0.5 + me, pe));
  OK(rushmem_barrier_all(w));
  std::vector<double> all(static_cast<size_t>(n));
  look(w, all.data(), parts, all.size() * sizeof all[0]);
  CHECK(std::accumulate(all.begin(), all.end(), 0.0) == 0.5 * n * n);
  OK(rushmem_barrier_all(w));
  OK(rushmem_free(w, parts));
}

int main()
{
  rushmem_world_t *w = start();
  sum_to_all(w);
  rushmem_uid_t uid = {};
  // The ID of the next job travels through the first one.
  void *shared = nullptr;
  OK(rushmem_alloc(w, sizeof uid, 0, &shared));
  if (me == 0) {
    OK(rushmem_uid_create(&uid));
    for (int pe = 0; pe < n; pe++) OK(rushmem_put(w, shared, &uid, sizeof uid, pe));
  }
  OK(rushmem_barrier_all(w));
  OK(rushmem_get(w, &uid, shared, sizeof uid, me));
  OK(rushmem_finalize(w));

  rushmem_init_attr_t attr = {};
  attr.size = sizeof attr;
  attr.uid = &uid;
  attr.rank = n - 1 - me;
  attr.n_pes = n;
  OK(rushmem_init(&attr, &w));
  CHECK(rushmem_my_pe(w) == n - 1 - me);
  me = rushmem_my_pe(w);
  sum_to_all(w);
  return finish(w);
}
