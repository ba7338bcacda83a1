/* What is used up comes back: teams until there are no more, thousands of contexts, and jobs that begin and
 * end as often as the first argument says, with the descriptors, mappings, threads and memory of the process
 * counted. */
#include <dirent.h>
#include <malloc.h>

#include "check.h"

static long word;

static int entries(const char *folder)
{
  DIR *dir = opendir(folder);
  CHECK(dir, "%s", folder);
  int count = 0;
  while (readdir(dir)) count++;
  closedir(dir);
  return count;
}

static long mappings(void)
{
  FILE *file = fopen("/proc/self/maps", "r");
  CHECK(file, "no maps");
  long lines = 0;
  for (int c; (c = getc(file)) != EOF;) lines += c == '\n';
  fclose(file);
  return lines;
}

/* What malloc has given out and not got back, in KiB. */
static long allocated(void)
{
  const struct mallinfo2 all = mallinfo2();
  return (long)((all.uordblks + all.hblkhd) >> 10);
}

/* Memory of this process, in KiB, without pages that malloc could give back: threads that run side by side
 * take arenas of their own, how many is a matter of timing. */
static long resident(void)
{
  malloc_trim(0);
  FILE *file = fopen("/proc/self/status", "r");
  CHECK(file, "no status");
  char line[256];
  long kib = -1;
  while (fgets(line, sizeof line, file))
    if (sscanf(line, "RssAnon: %ld", &kib) == 1) break;
  fclose(file);
  return kib;
}

static void teams(void)
{
  enum { MOST = 5000 };
  static shmem_team_t made[MOST];
  int before = -1;
  for (int turn = 0; turn < 2; turn++) {
    int count = 0;
    while (count < MOST && shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n, NULL, 0, &made[count]) == 0)
      count++;
    CHECK(count > 500 && count < MOST, "%d teams", count);
    CHECK(made[count] == SHMEM_TEAM_INVALID, "the one too many is none");
    CHECK(before < 0 || before == count, "%d teams, and before that %d", count, before);
    before = count;
    static long sum, one = 1;
    for (int i = 0; i < count; i += 97) {
      shmem_long_sum_reduce(made[i], &sum, &one, 1);
      CHECK(sum == n, "team %d sums up %ld", i, sum);
      shmem_team_sync(made[i]);
    }
    for (int i = 0; i < count; i++) shmem_team_destroy(made[i]);
  }
}

static void contexts(void)
{
  enum { MANY = 20000 };
  static shmem_ctx_t made[MANY];
  for (int i = 0; i < MANY; i++) CHECK(shmem_ctx_create(i % 8, &made[i]) == 0, "context %d", i);
  for (int i = 0; i < MANY; i += 1000) shmem_ctx_long_p(made[i], &word, i, next), shmem_ctx_quiet(made[i]);
  for (int i = 0; i < MANY; i++) shmem_ctx_destroy(made[i]);
}

int main(int argc, char **argv)
{
  const int jobs = argc > 1 ? atoi(argv[1]) : 60;
  begin();
  teams();
  contexts();
  shmem_barrier_all();
  shmem_finalize();
  int files = 0, threads = 0;
  long maps = 0, kib = 0, pages = 0;
  for (int job = 0; job < jobs; job++) {
    shmem_init();
    CHECK(shmem_my_pe() == me && shmem_n_pes() == n, "job %d", job);
    long *heap = shmem_malloc(100000);
    shmem_long_p(heap, me + job, next);
    shmem_long_p(&word, me + job, next);
    shmem_ctx_t ctx;
    shmem_team_t team;
    CHECK(shmem_ctx_create(0, &ctx) == 0, "a context");
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n, NULL, 0, &team) == 0, "a team");
    shmem_barrier_all();
    CHECK(*heap == prev + job && word == prev + job, "job %d: %ld and %ld", job, *heap, word);
    /* What a program forgets to give back goes with the job. */
    shmem_finalize();
    if (job == jobs / 2) {
      files = entries("/proc/self/fd"), threads = entries("/proc/self/task");
      maps = mappings(), kib = allocated(), pages = resident();
    }
  }
  const int files_now = entries("/proc/self/fd"), threads_now = entries("/proc/self/task");
  CHECK(files_now <= files, "%d descriptors, and before %d", files_now, files);
  CHECK(threads_now <= threads, "%d threads, and before %d", threads_now, threads);
  CHECK(mappings() <= maps + 4, "%ld mappings, and before %ld", mappings(), maps);
  /* A kibibyte a job is what handles and names may keep. */
  CHECK(allocated() <= kib + 64 + jobs, "%ld KiB allocated, and before %ld", allocated(), kib);
  CHECK(resident() <= pages + 2048 + jobs, "%ld KiB of pages, and before %ld", resident(), pages);
  shmem_init();
  return end();
}
