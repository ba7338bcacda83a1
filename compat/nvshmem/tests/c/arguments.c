/* Calls every function of the host with random arguments, of which some make no sense (attack.h). Memory of
 * the PE alone is there always: a wild address of that has the runtime's text for a fault. The argument is
 * the number of rounds. With more than one PE, PE 0 makes the calls that need no other PE. */
#include <nvshmem.h>
#include <nvshmemx.h>
#include <rushmem.h>

#include "attack.h"

enum { HEAP = 1 << 16 };
static int me, n;
static char *heap, *zeros, *freed;
static volatile uint64_t *finished;
/* Larger than what the counts of attack.h can reach. */
static _Alignas(16) char area[1 << 20];
static nvshmem_team_t a_team, old_team, made;
static cudaStream_t a_stream, old_stream;
static nvshmemx_init_attr_t attributes;
static nvshmemx_uniqueid_t id;
static nvshmemx_team_uniqueid_t team_id;
static nvshmemx_qp_handle_t *queues;

static int comparison(void)
{
  return some(NVSHMEM_CMP_EQ, NVSHMEM_CMP_GE, NVSHMEM_CMP_LE, NVSHMEM_CMP_EQ, -1, 6);
}
static int pe(void)
{
  return some_pe(n);
}
int main(int argc, char **argv);
static void *symmetric(void)
{
  void *all[] = {heap, heap + 4096, heap + HEAP - 8, heap + 1, heap + HEAP, freed, area, NULL, (void *) 8,
                 (void *) -1, (void *) (1ull << 63), (void *) main};
  return all[rnd(2) ? rnd(4) : rnd(sizeof all / sizeof *all)];
}
/* Of a collective, which takes memory of the PE alone for what it is. */
static void *mapped(void)
{
  void *all[] = {heap, heap + 4096, heap + HEAP - 8, heap + 1, heap + HEAP, freed};
  return all[rnd(6)];
}
static void *zero(void)
{
  void *all[] = {zeros, zeros + 512, zeros + 2, freed, NULL, (void *) 8, (void *) -1, area};
  return all[rnd(3) ? rnd(2) : rnd(8)];
}
static void *local(void)
{
  memset(area, 0, 4096);
  return area;
}
/* Of a side that is this PE's alone: no wild addresses. */
static ptrdiff_t near_distance(void)
{
  return some(1, 2, 3, 1, 0, -1);
}
static nvshmem_team_t team(void)
{
  const nvshmem_team_t all[] = {NVSHMEM_TEAM_WORLD, NVSHMEM_TEAM_SHARED, a_team, old_team, NVSHMEM_TEAM_INVALID,
                                12345, INT_MIN, NVSHMEMX_TEAM_NODE};
  return all[rnd(2) ? rnd(3) : rnd(8)];
}
static nvshmem_team_config_t *config(void)
{
  static nvshmem_team_config_t zeroed;
  memset(&zeroed, 0, sizeof zeroed);
  return rnd(2) ? &zeroed : NULL;
}
static cudaStream_t stream(void)
{
  const cudaStream_t all[] = {a_stream, NULL, old_stream, (cudaStream_t) 12345, (cudaStream_t) -1,
                              (cudaStream_t) area};
  return all[rnd(2) ? rnd(2) : rnd(6)];
}

#include "calls.h"

/* What calls have used up or ended is made anew. */
static void prepare(int number)
{
  const int lives = nvshmemx_init_status() != NVSHMEM_STATUS_NOT_INITIALIZED;
  if (!lives) nvshmem_init(), heap = NULL, a_stream = NULL;
  if (heap && n > 1) return;
  if (heap) {
    /* Which a call has freed, perhaps. */
    void *there = NULL;
    ATTEMPT(there = nvshmem_ptr(heap, me));
    if (!there) heap = NULL;
    there = NULL;
    ATTEMPT(there = nvshmem_ptr(zeros, me));
    if (!there) heap = NULL;
  }
  if (!heap) {
    freed = nvshmem_malloc(HEAP);
    heap = nvshmem_malloc(HEAP);
    zeros = nvshmem_malloc(HEAP);
    nvshmem_free(freed);
  }
  memset(zeros, 0, 4096);
  if (made != NVSHMEM_TEAM_INVALID && made != a_team) ATTEMPT(nvshmem_team_destroy(made));
  made = NVSHMEM_TEAM_INVALID;
  if (number % 64 == 0 || !a_stream) {
    rushmem_world_t *world = NULL;
    rushmem_current(&world);
    if (lives) ATTEMPT(nvshmem_team_destroy(a_team));
    old_team = a_team;
    nvshmem_team_split_strided(NVSHMEM_TEAM_WORLD, 0, 1, n, NULL, 0, &a_team);
    if (a_stream) rushmem_stream_destroy(world, a_stream);
    old_stream = a_stream;
    rushmem_stream_create(world, (void **) &a_stream);
  }
}

int main(int argc, char **argv)
{
  const int rounds = argc > 1 ? atoi(argv[1]) : 1;
  attack_start();
  nvshmem_init();
  me = nvshmem_my_pe(), n = nvshmem_n_pes();
  made = NVSHMEM_TEAM_INVALID;
  /* Not where freed memory was. */
  finished = nvshmem_calloc(1, sizeof *finished);
  prepare(0);
  nvshmem_barrier_all();
  for (int i = 0; i < rounds && me == 0; i++)
    for (size_t k = 0; k < sizeof calls / sizeof *calls; k++) {
      if (n > 1 && !calls[k].one_sided) continue;
      attack(&calls[k]);
      prepare((int) k);
    }
  printf("PE %d: all well, %u calls returned and %u were refused\n", me, returned, refused);
  fflush(stdout);
  while (me > 0 && !*finished) usleep(1000);
  /* PE 0 is to learn that this has come. */
  if (me > 0) usleep(500000);
  for (int i = 1; i < n && me == 0; i++) nvshmem_uint64_p((uint64_t *) finished, 1, i);
  if (me == 0) nvshmem_quiet();
  syscall(SYS_exit_group, 0);
}
