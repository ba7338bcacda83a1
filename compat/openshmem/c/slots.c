/* Handles of teams and contexts: a number of a slot, and how often that slot was given out.
 *
 * Looking one up takes no lock, so that threads may use contexts at once. A slot's count changes before its
 * object goes, so a handle that outlived its object finds nothing. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "library.h"

enum { CHUNK = 256, CHUNKS = 4096, FIRST = 16 };

struct slot {
  _Atomic(uint32_t) uses;
  _Atomic(void *) object;
  uint32_t next_free;
};

struct slots {
  pthread_mutex_t lock;
  _Atomic(struct slot *) chunks[CHUNKS];
  uint32_t made, free; /* `free` is a slot's number plus one */
};

struct slots team_slots = {.lock = PTHREAD_MUTEX_INITIALIZER};
struct slots context_slots = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct slot *slot_at(struct slots *slots, uint32_t number)
{
  if (number >= CHUNK * CHUNKS) return NULL;
  struct slot *chunk = atomic_load_explicit(&slots->chunks[number / CHUNK], memory_order_acquire);
  return chunk ? &chunk[number % CHUNK] : NULL;
}

uintptr_t slots_add(struct slots *slots, void *object)
{
  uintptr_t handle = 0;
  pthread_mutex_lock(&slots->lock);
  uint32_t number = slots->free ? slots->free - 1 : slots->made;
  struct slot *slot = slot_at(slots, number);
  if (!slot && number < CHUNK * CHUNKS) {
    struct slot *chunk = calloc(CHUNK, sizeof *chunk);
    atomic_store_explicit(&slots->chunks[number / CHUNK], chunk, memory_order_release);
    slot = chunk;
  }
  if (slot) {
    if (slots->free)
      slots->free = slot->next_free;
    else
      slots->made++;
    atomic_store_explicit(&slot->object, object, memory_order_release);
    handle = (uintptr_t) atomic_load_explicit(&slot->uses, memory_order_relaxed) << 32 | (number + FIRST);
  }
  pthread_mutex_unlock(&slots->lock);
  return handle;
}

void *slots_find(struct slots *slots, uintptr_t handle)
{
  struct slot *slot = slot_at(slots, (uint32_t) handle - FIRST);
  if (!slot || atomic_load_explicit(&slot->uses, memory_order_acquire) != handle >> 32) return NULL;
  return atomic_load_explicit(&slot->object, memory_order_acquire);
}

static void *empty(struct slots *slots, uint32_t number)
{
  struct slot *slot = slot_at(slots, number);
  atomic_fetch_add_explicit(&slot->uses, 1, memory_order_acq_rel);
  void *object = atomic_exchange_explicit(&slot->object, NULL, memory_order_acq_rel);
  slot->next_free = slots->free;
  slots->free = number + 1;
  return object;
}

void *slots_take(struct slots *slots, uintptr_t handle)
{
  pthread_mutex_lock(&slots->lock);
  void *object = slots_find(slots, handle) ? empty(slots, (uint32_t) handle - FIRST) : NULL;
  pthread_mutex_unlock(&slots->lock);
  return object;
}

void *slots_take_any(struct slots *slots, bool (*wanted)(const void *object, const void *what),
                     const void *what)
{
  void *taken = NULL;
  pthread_mutex_lock(&slots->lock);
  for (uint32_t number = 0; number < slots->made && !taken; number++) {
    const void *object = atomic_load_explicit(&slot_at(slots, number)->object, memory_order_acquire);
    if (object && wanted(object, what)) taken = empty(slots, number);
  }
  pthread_mutex_unlock(&slots->lock);
  return taken;
}
