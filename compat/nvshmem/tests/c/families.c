/* The host's functions, for every type, from the host and on a stream, on heaps of either kind: what a PE
 * puts into its right neighbour's memory is a formula of it. sets.h has the lists of types.
 *
 *   families [PART...]        rma collectives reductions atomics waits words teams rest; all of them without
 *                             arguments
 *   families prepare NAME...  compiles the kernels of the reductions of that type, or by that operator, for
 *                             runs to come: each takes seconds, which several processes may spend at once
 *
 * PE 0 says each family as it begins, so that a run that hangs or is killed shows where. */
#include "families/atomics.h"
#include "families/collectives.h"
#include "families/reductions.h"
#include "families/rest.h"
#include "families/rma.h"
#include "families/waits.h"
#include "families/widths.h"

int main(int argc, char **argv)
{
  if (nvshmemx_init_status() != NVSHMEM_STATUS_NOT_INITIALIZED) return 1;
  int provided;
  if (nvshmem_init_thread(NVSHMEM_THREAD_SERIALIZED, &provided) != 0) return 1;
  nvshmem_init(); /* counted */
  me = nvshmem_my_pe(), n = nvshmem_n_pes();
  right = (me + 1) % n, left = (me + n - 1) % n;
  if (argc > 2 && !strcmp(argv[1], "prepare")) {
    prepare(argc - 1, argv + 1);
    all_well();
    nvshmem_finalize();
    nvshmem_finalize();
    return 0;
  }
  CHECK(rushmem_stream_create(world(), (void **) &stream) == RUSHMEM_OK);
  char *a = nvshmem_calloc(1, 8192), *b = nvshmem_calloc(1, 8192);
  uint64_t *sig = nvshmem_calloc(16, sizeof *sig);
  CHECK(a && b && sig);
  /* On streams each type and operator is a kernel that is compiled first: those of words of an int do. */
  if (getenv("RUSHMEM_TEST_ROUNDS")) turns_of_reductions = 2;
  /* Each PE's clock is another one. */
  salt = (uint64_t) time(NULL);
  nvshmem_uint64_broadcast(NVSHMEM_TEAM_WORLD, &salt, &salt, 1, 0);
  /* Every other PE. */
  nvshmem_team_t even, odd = NVSHMEM_TEAM_INVALID;
  CHECK(nvshmem_team_split_strided(NVSHMEM_TEAM_WORLD, 0, 2, (n + 1) / 2, NULL, 0, &even) == 0);
  if (n > 1) CHECK(nvshmem_team_split_strided(NVSHMEM_TEAM_WORLD, 1, 2, n / 2, NULL, 0, &odd) == 0);
  const nvshmem_team_t others = me % 2 == 0 ? even : odd;
#define SAID(part, name, call) say(part, #name), call;
#define CALL_RMA(NAME, T) SAID("rma", NAME, rma_##NAME(a, sig))
#define CALL_COLLECT(NAME, T) SAID("collectives", NAME, collect_##NAME(team, a, b))
#define CALL_REDUCE(NAME, T) SAID("reductions", NAME, reduce_##NAME(a, b))
#define CALL_AMO(NAME, T) SAID("atomics", NAME, amo_##NAME(a))
#define CALL_BITS(NAME, T) SAID("bits", NAME, bits_##NAME(a))
#define CALL_WAIT(NAME, T) SAID("waits", NAME, wait_##NAME(a))
  if (is_asked(argc, argv, "rma")) {
    FOR_RMA(CALL_RMA)
  }
  if (is_asked(argc, argv, "collectives")) {
    nvshmem_team_t team = NVSHMEM_TEAM_WORLD;
    FOR_RMA(CALL_COLLECT)
    SAID("collectives", bytes, collect_mem(team, a, b))
    team = others;
    FOR_RMA(CALL_COLLECT)
    SAID("collectives", bytes, collect_mem(team, a, b))
    clear(a);
  }
  if (is_asked(argc, argv, "reductions")) {
    WHOLE(CALL_REDUCE)
    SAID("reductions", of all PEs, reduce_by_each(NVSHMEM_TEAM_WORLD, a, b))
    SAID("reductions", of every other PE, reduce_by_each(others, a, b))
    clear(a);
  }
  if (is_asked(argc, argv, "atomics")) {
    FOR_AMO(CALL_AMO)
    FOR_BITWISE_AMO(CALL_BITS)
    SAID("atomics", float, sum_float(a))
    SAID("atomics", double, sum_double(a))
    SAID("atomics", half, sum_half(a))
    clear(a);
  }
  if (is_asked(argc, argv, "waits")) {
    FOR_WAIT(CALL_WAIT)
  }
  if (is_asked(argc, argv, "words")) SAID("words", by width, widths(a, sig))
  if (is_asked(argc, argv, "teams")) SAID("teams", of all kinds, teams())
  if (is_asked(argc, argv, "rest")) SAID("rest", of the interface, rest(a))
  say("end", "");
  CHECK(rushmem_stream_destroy(world(), stream) == RUSHMEM_OK);
  nvshmem_team_destroy(others);
  nvshmem_free(sig);
  nvshmem_free(b);
  nvshmem_free(a);
  nvshmem_finalize();
  all_well();
  nvshmem_finalize();
  return 0;
}
