/* Locks: first come, first served, and a waiter spins on its own memory (Mellor-Crummey and Scott).
 *
 * A lock is a long on each PE, zero where nobody has it. PE 0's upper half is the tail: the last PE in the
 * queue, plus one. Each PE's lower half is its place in the queue: the PE behind it, plus one, and a bit that
 * its predecessor sets. That half is zero again before the PE is out of the queue. Threads of one PE take
 * turns at its place. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "inline.h"

#define GRANTED 0x80000000u

/* Locks that a thread of this PE has, or waits for. */
struct busy {
  struct busy *next;
  const long *lock;
};
static struct busy *busy;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t freed = PTHREAD_COND_INITIALIZER;

static uint32_t *tail(long *lock)
{
  return (uint32_t *) lock + 1;
}
static uint32_t *place(long *lock)
{
  return (uint32_t *) lock;
}

static uint32_t update(struct call call, int op, uint32_t *word, uint32_t value, uint32_t compare, int pe)
{
  uint64_t old = 0;
  check_at(call, rushmem_atomic(job.world, op, RUSHMEM_UINT32, word, value, compare, pe, &old), word);
  return (uint32_t) old;
}

static uint32_t see(struct call call, uint32_t *word)
{
  return update(call, RUSHMEM_ATOMIC_FETCH, word, 0, 0, job.me);
}

/* This PE's turn at the lock, for one of its threads; false where another has it and `wait` is false. */
static bool enter(struct call call, const long *lock, bool wait)
{
  in_job(call);
  struct busy *mine = malloc(sizeof *mine);
  if (!mine) refuse(call, "there is no memory left");
  pthread_mutex_lock(&guard);
  for (struct busy *other = busy; other;) {
    if (other->lock != lock) {
      other = other->next;
      continue;
    }
    if (!wait || job.thread_level < SHMEM_THREAD_MULTIPLE) {
      pthread_mutex_unlock(&guard);
      free(mine);
      if (wait) refuse(call, "this PE has the lock at %p already", (const void *) lock);
      return false;
    }
    pthread_cond_wait(&freed, &guard);
    other = busy;
  }
  *mine = (struct busy){busy, lock};
  busy = mine;
  pthread_mutex_unlock(&guard);
  return true;
}

/* Whether a thread of this PE has the lock; if `out`, no longer. */
static bool has(const long *lock, bool out)
{
  pthread_mutex_lock(&guard);
  struct busy **mine = &busy;
  while (*mine && (*mine)->lock != lock) mine = &(*mine)->next;
  struct busy *found = *mine;
  if (found && out) {
    *mine = found->next;
    pthread_cond_broadcast(&freed);
  }
  pthread_mutex_unlock(&guard);
  if (found && out) free(found);
  return found;
}

void lock_set(struct call call, long *lock)
{
  enter(call, lock, true);
  const uint32_t me = (uint32_t) job.me + 1;
  const uint32_t before = update(call, RUSHMEM_ATOMIC_SWAP, tail(lock), me, 0, 0);
  if (before == 0) return;
  update(call, RUSHMEM_ATOMIC_FETCH_OR, place(lock), me, 0, (int) before - 1);
  wait_until(call, RUSHMEM_UINT32, place(lock), RUSHMEM_CMP_GE, GRANTED);
  /* The bit goes; who stands behind, if anybody does, stays. */
  update(call, RUSHMEM_ATOMIC_FETCH_AND, place(lock), ~GRANTED, 0, job.me);
}

int lock_test(struct call call, long *lock)
{
  if (enter(call, lock, false)) {
    if (update(call, RUSHMEM_ATOMIC_COMPARE_SWAP, tail(lock), (uint32_t) job.me + 1, 0, 0) == 0) return 0;
    has(lock, true);
  }
  /* Programs ask again at once, and the one who has the lock may be waiting for this core. */
  sched_yield();
  return 1;
}

void lock_clear(struct call call, long *lock)
{
  in_job(call);
  if (!has(lock, false)) refuse(call, "this PE does not have the lock at %p", (void *) lock);
  check(call, rushmem_quiet(job.world));
  const uint32_t me = (uint32_t) job.me + 1;
  uint32_t next = see(call, place(lock));
  if (next == 0) {
    const uint32_t last = update(call, RUSHMEM_ATOMIC_COMPARE_SWAP, tail(lock), 0, me, 0);
    if (last != me) {
      /* Another has come, and is about to say so. */
      wait_until(call, RUSHMEM_UINT32, place(lock), RUSHMEM_CMP_NE, 0);
      next = see(call, place(lock));
    }
  }
  if (next != 0) {
    update(call, RUSHMEM_ATOMIC_SWAP, place(lock), 0, 0, job.me);
    update(call, RUSHMEM_ATOMIC_FETCH_OR, place(lock), GRANTED, 0, (int) next - 1);
  }
  has(lock, true);
}
