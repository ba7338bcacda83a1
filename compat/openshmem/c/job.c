/* Beginning and end of a job. Initialisations are counted: the last finalisation ends it, and another
 * initialisation may begin a new one.
 *
 * A program that returns from main, or calls exit(0), without shmem_finalize is finalised then, as programs
 * of start_pes expect; one that ends with another status leaves the job, and the others learn of it. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;

static void finalize(struct call call)
{
  watch_stop();
  context_forget(NULL);
  team_forget();
  memory_forget();
  psync_forget();
  /* What is under way completes on all PEs before any of them lets go of its memory. */
  check(call, rushmem_barrier_all(job.world));
  check(call, rushmem_finalize(job.world));
  job = (struct job){0};
}

static void at_exit(int status, void *nothing)
{
  (void) nothing;
  const struct call call = {"the end of the program without shmem_finalize", NULL};
  if (job.world && status == 0 && rushmem_check(job.world) == RUSHMEM_OK) finalize(call);
}

static void start(struct call call, int level)
{
  static bool registered;
  rushmem_init_attr_t attr = {.size = sizeof attr};
  /* C loads and stores do not reach a GPU's memory, so that is for those who ask. */
  if (!getenv("RUSHMEM_DEVICE")) attr.device = RUSHMEM_DEVICE_CPU;
  uint64_t heap = setting_heap(call);
  if (heap && !getenv("RUSHMEM_HEAP_MAX")) {
    /* Room for the teams' memory besides, and as much for the program's variables. */
    const uint64_t granule = 2ull << 20, least = static_bytes();
    attr.heap_max = ((heap > least ? heap : least) + 32 * granule) / granule * granule;
  }
  rushmem_world_t *world;
  int32_t code = rushmem_init(&attr, &world);
  if (code != RUSHMEM_OK) refuse(call, "%s", rushmem_last_error());
  rushmem_view_t view;
  check(call, rushmem_view(world, &view));
  job = (struct job){.world = world,
                     .me = view.my_pe,
                     .n_pes = view.n_pes,
                     .window = view.heap_base,
                     .window_bytes = view.stride,
                     .thread_level = level};
  const char *debug = setting("DEBUG");
  job.debug = debug && strcmp(debug, "0") != 0;
  const char *checked = getenv("RUSHMEM_CHECK");
  job.checked = checked && *checked && strcmp(checked, "0") != 0;
  check(call, rushmem_team_world(world, &job.team));
  team_start(call);
  static_register(call);
  psync_start(call);
  fault_start();
  if (job.n_pes > 1) watch_start(view.broken);
  if (job.me == 0) settings_print();
  if (!registered) on_exit(at_exit, NULL);
  registered = true;
}

int job_init_thread(struct call call, int requested, int *provided)
{
  if (requested < SHMEM_THREAD_SINGLE || requested > SHMEM_THREAD_MULTIPLE)
    refuse(call, "%d is no thread level (SHMEM_THREAD_SINGLE and its like)", requested);
  pthread_mutex_lock(&starting);
  /* All levels are alike here, so that a program gets the one that it asks for, and a later one more. */
  if (!job.world)
    start(call, requested);
  else if (requested > job.thread_level)
    job.thread_level = requested;
  job.starts++;
  const int level = job.thread_level;
  pthread_mutex_unlock(&starting);
  /* Its address may be wild: nothing is locked. */
  if (provided) *provided = level;
  check(call, rushmem_barrier_all(job.world));
  return 0;
}

void job_init(struct call call, int level)
{
  job_init_thread(call, level, NULL);
}

/* Any number of calls counts as one, and needs no end. */
void job_start_pes(struct call call)
{
  if (!job.world) job_init(call, SHMEM_THREAD_SINGLE);
}

void job_query_thread(struct call call, int *provided)
{
  in_job(call);
  if (!provided) refuse(call, "provided is null");
  *provided = job.thread_level;
}

void job_query_initialized(struct call call, int *initialized)
{
  if (!initialized) refuse(call, "initialized is null");
  *initialized = job.world != NULL;
}

void job_finalize(struct call call)
{
  in_job(call);
  pthread_mutex_lock(&starting);
  if (--job.starts > 0)
    check(call, rushmem_barrier_all(job.world));
  else
    finalize(call);
  pthread_mutex_unlock(&starting);
}

void job_exit(struct call call, int status)
{
  (void) call;
  end_begins(true);
  if (job.world) {
    char why[64];
    /* The others look for this text: exit_with. */
    snprintf(why, sizeof why, "shmem_global_exit(%d)", status);
    fflush(stdout);
    /* The memory stays: other threads and exit handlers may be at it. */
    rushmem_break(job.world, why);
  }
  exit_all(status);
}

void job_version(struct call call, int *major, int *minor)
{
  if (!major || !minor) refuse(call, "%s is null", major ? "minor" : "major");
  *major = SHMEM_MAJOR_VERSION;
  *minor = SHMEM_MINOR_VERSION;
}

void job_name(struct call call, char *name)
{
  if (!name) refuse(call, "name is null");
  memset(name, 0, SHMEM_MAX_NAME_LEN);
  memcpy(name, SHMEM_VENDOR_STRING, sizeof SHMEM_VENDOR_STRING);
}
