/* A thread that sees another PE's shmem_global_exit while this one computes: it sleeps, and looks at one word
 * of memory a few times a second. Calls notice by themselves, and sooner. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "library.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static pthread_t thread;
static bool running, stop;
/* The text with which the job is to end, and whether it has. */
static _Atomic(const char *) last_text;
static atomic_bool aborted;

static void abort_if_asked(void)
{
  const char *text = atomic_load(&last_text);
  if (!text || atomic_load(&aborted)) return;
  flush_all();
  /* The thread with the text may have locks of the runtime's, and then this does not come back. */
  rushmem_break(job.world, text);
  atomic_store(&aborted, true);
}

void watch_abort(const char *text)
{
  if (!running) {
    flush_output();
    return;
  }
  atomic_store(&last_text, text);
  for (int i = 0; i < 2000 && !atomic_load(&aborted); i++) nanosleep(&(struct timespec){0, 1000000}, NULL);
}

static void *watch(void *argument)
{
  const uint32_t *broken = argument;
  pthread_mutex_lock(&lock);
  while (!stop) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 50 * 1000 * 1000;
    if (until.tv_nsec >= 1000000000) {
      until.tv_sec++;
      until.tv_nsec -= 1000000000;
    }
    pthread_cond_timedwait(&wake, &lock, &until);
    abort_if_asked();
    if (atomic_load(&aborted)) break;
    if (!stop && __atomic_load_n(broken, __ATOMIC_ACQUIRE)) {
      /* Of a death the program's next call tells. */
      if (rushmem_check(job.world) == RUSHMEM_ERR_PEER_DEAD) exit_with(rushmem_last_error(), false);
      break;
    }
  }
  pthread_mutex_unlock(&lock);
  return NULL;
}

void watch_start(const uint32_t *broken)
{
  stop = false;
  /* Without it a PE that only computes ends when its launcher says so. */
  running = pthread_create(&thread, NULL, watch, (void *) broken) == 0;
}

void watch_stop(void)
{
  if (!running) return;
  pthread_mutex_lock(&lock);
  stop = true;
  pthread_cond_signal(&wake);
  pthread_mutex_unlock(&lock);
  if (!pthread_equal(thread, pthread_self())) pthread_join(thread, NULL);
  running = false;
}
