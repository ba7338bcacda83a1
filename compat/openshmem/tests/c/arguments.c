/* Calls every function with random arguments, of which some make no sense (attack.h). The argument is the
 * number of rounds. With more than one PE, PE 0 makes the calls that need no other PE; the others wait. */
#include <shmem.h>
#include <sys/mman.h>

#include "attack.h"

enum { HEAP = 1 << 16 };
static int shmem_me, shmem_n;
/* Larger than what the counts below can reach. */
static long long data[1 << 16], zeros[1 << 12];
static volatile long finished;
static char area[1 << 20];
static const char *const constants[] = {"RELRO"};
static char *heap, *freed, *private_area;
static shmem_team_t a_team, old_team, made;
static shmem_ctx_t a_context, old_context, context_made;

static int comparison(void)
{
  return some(SHMEM_CMP_EQ, SHMEM_CMP_GE, SHMEM_CMP_LE, -1, 6, INT_MAX);
}
static int pe(void)
{
  return some_pe(shmem_n);
}
int main(int argc, char **argv);
static void *symmetric(void)
{
  void *all[] = {heap, heap + HEAP - 8, data, &data[100], heap + 1, heap + HEAP, freed, private_area, NULL,
                 (void *) 8,
                 (void *) -1, (void *) (1ull << 63), (void *) constants, (void *) main};
  return all[rnd(2) ? rnd(4) : rnd(sizeof all / sizeof *all)];
}
/* Of its own, because a lock that a put has overwritten is waited for. */
static long *lock(void)
{
  static long locks[4];
  void *all[] = {&locks[0], &locks[1], &locks[2], NULL, (void *) 8, (void *) -1, area + 1,
                 (char *) locks + 4, freed};
  return all[rnd(3) ? rnd(3) : rnd(8)];
}
static void *zero(void)
{
  void *all[] = {zeros, &zeros[64], (char *) zeros + 2, freed, NULL, (void *) 8, (void *) -1, area};
  return all[rnd(3) ? rnd(2) : rnd(7)];
}
/* Memory of this PE alone: there or not. */
static void *unmapped, *read_only, *edge;
static void *local(void *there, size_t bytes)
{
  if (rnd(6) == 0) {
    void *all[] = {NULL, (void *) 8, unmapped, read_only, edge, (void *) -1, (void *) (1ull << 62),
                   (void *) main};
    return all[rnd(8)];
  }
  memset(there, 0, bytes < 4096 ? bytes : 4096);
  return there;
}
static shmem_team_t team(void)
{
  const shmem_team_t all[] = {SHMEM_TEAM_WORLD, SHMEM_TEAM_SHARED, a_team, old_team, SHMEM_TEAM_INVALID,
                              (shmem_team_t) 12345, (shmem_team_t) -1, (shmem_team_t) data};
  return all[rnd(2) ? rnd(3) : rnd(8)];
}
static shmem_ctx_t context(void)
{
  const shmem_ctx_t all[] = {SHMEM_CTX_DEFAULT, a_context, old_context, SHMEM_CTX_INVALID,
                             (shmem_ctx_t) 12345,
                             (shmem_ctx_t) -1, (shmem_ctx_t) data};
  return all[rnd(2) ? rnd(2) : rnd(7)];
}

#include "calls.h"

/* A page that nothing is at, one that is for reading alone, and the last bytes before such a one. */
static void make_pages(void)
{
  const size_t page = (size_t) sysconf(_SC_PAGESIZE);
  char *pages = mmap(NULL, 5 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(pages + page, page);
  mprotect(pages + 3 * page, page, PROT_READ);
  munmap(pages + 4 * page, page);
  unmapped = pages + page;
  read_only = pages + 3 * page;
  edge = pages + page - 12;
}

/* What calls have used up or ended is made anew. */
static void prepare(int number)
{
  int lives = 0;
  shmem_query_initialized(&lives);
  if (!lives) {
    shmem_init();
    heap = NULL;
  }
  memset(zeros, 0, sizeof zeros);
  if (heap && shmem_n > 1) return;
  if (!heap || !shmem_addr_accessible(heap, 0)) {
    freed = shmem_malloc(HEAP);
    heap = shmem_malloc(HEAP);
    shmem_free(freed);
  }
  if (made != SHMEM_TEAM_INVALID && made != a_team) ATTEMPT(shmem_team_destroy(made));
  made = SHMEM_TEAM_INVALID;
  if (number % 64 == 0 || !lives) {
    ATTEMPT(shmem_team_destroy(a_team));
    old_team = a_team;
    shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, shmem_n, NULL, 0, &a_team);
    ATTEMPT(shmem_ctx_destroy(a_context));
    old_context = a_context;
    shmem_ctx_create(0, &a_context);
  }
}

int main(int argc, char **argv)
{
  const int rounds = argc > 1 ? atoi(argv[1]) : 1;
  attack_start();
  make_pages();
  shmem_init();
  shmem_me = shmem_my_pe();
  private_area = malloc(1 << 21);
  shmem_n = shmem_n_pes();
  prepare(0);
  shmem_barrier_all();
  for (int i = 0; i < rounds && shmem_me == 0; i++)
    for (size_t k = 0; k < sizeof calls / sizeof *calls; k++) {
      if (shmem_n > 1 && !calls[k].one_sided) continue;
      attack(&calls[k]);
      prepare((int) k);
    }
  printf("PE %d: all well, %u calls returned and %u were refused\n", shmem_me, returned, refused);
  fflush(stdout);
  while (shmem_me > 0 && !finished) usleep(1000);
  /* PE 0 is to learn that this has come. */
  if (shmem_me > 0) usleep(500000);
  for (int i = 1; i < shmem_n && shmem_me == 0; i++) shmem_long_p((long *) &finished, 1, i);
  if (shmem_me == 0) shmem_quiet();
  syscall(SYS_exit_group, 0);
}
