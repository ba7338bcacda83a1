/* The symmetric heap, and what of another PE's memory is at hand. Sizes are kept for shmem_realloc. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "library.h"

enum { BUCKETS = 1024 };

struct block {
  struct block *next;
  void *at;
  size_t bytes;
};

static struct block *buckets[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct block **bucket(const void *at)
{
  return &buckets[((uintptr_t) at >> 6) % BUCKETS];
}

static void remember(struct call call, void *at, size_t bytes)
{
  struct block *block = malloc(sizeof *block);
  if (!block) refuse(call, "there is no memory left");
  pthread_mutex_lock(&lock);
  *block = (struct block){*bucket(at), at, bytes};
  *bucket(at) = block;
  pthread_mutex_unlock(&lock);
}

/* The bytes of a block, which is forgotten if `take` is true; 0 where there is none. */
static size_t look_up(const void *at, bool take)
{
  size_t bytes = 0;
  pthread_mutex_lock(&lock);
  for (struct block **block = bucket(at); *block; block = &(*block)->next)
    if ((*block)->at == at) {
      struct block *found = *block;
      bytes = found->bytes;
      if (take) {
        *block = found->next;
        free(found);
      }
      break;
    }
  pthread_mutex_unlock(&lock);
  return bytes;
}

void memory_forget(void)
{
  for (int i = 0; i < BUCKETS; i++)
    while (buckets[i]) {
      struct block *gone = buckets[i];
      buckets[i] = gone->next;
      free(gone);
    }
}

void *memory_malloc(struct call call, size_t size, size_t align)
{
  in_job(call);
  if (size == 0) return NULL;
  void *at = NULL;
  int32_t code = rushmem_alloc(job.world, size, align, &at);
  /* On all PEs alike, as is an alignment that is larger than a heap. */
  if (code == RUSHMEM_ERR_HEAP_EXHAUSTED || (align && code == RUSHMEM_ERR_INVALID_ARGUMENT)) return NULL;
  check(call, code);
  remember(call, at, size);
  return at;
}

void *memory_align(struct call call, size_t align, size_t size)
{
  if (align < sizeof(void *) || align & (align - 1)) return NULL;
  return memory_malloc(call, size, align);
}

void *memory_with_hints(struct call call, size_t size, long hints)
{
  if (hints & ~(SHMEM_MALLOC_ATOMICS_REMOTE | SHMEM_MALLOC_SIGNAL_REMOTE))
    refuse(call, "hints %#lx have bits that stand for nothing", hints);
  /* Allocations begin at a cache line anyway. */
  return memory_malloc(call, size, 0);
}

void *memory_calloc(struct call call, size_t count, size_t size)
{
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return NULL;
  return memory_malloc(call, bytes, 0); /* which is zeroed */
}

void memory_free(struct call call, void *pointer)
{
  in_job(call);
  if (!pointer) return;
  check_at(call, rushmem_free(job.world, pointer), pointer);
  look_up(pointer, true);
}

void *memory_realloc(struct call call, void *pointer, size_t size)
{
  if (!pointer) return memory_malloc(call, size, 0);
  if (size == 0) {
    memory_free(call, pointer);
    return NULL;
  }
  size_t before = look_up(pointer, false);
  if (before == 0) refuse(call, "%p is not the start of memory that shmem_malloc and its like gave", pointer);
  if (before == size) return pointer;
  void *at = memory_malloc(call, size, 0);
  if (!at) return NULL;
  /* What others have under way to the old place arrives there first. */
  check(call, rushmem_barrier_all(job.world));
  /* The heap may be in GPU memory. */
  check(call, rushmem_put(job.world, at, pointer, before < size ? before : size, job.me));
  memory_free(call, pointer);
  return at;
}

void *memory_ptr(struct call call, shmem_team_t team, const void *address, int pe)
{
  in_job(call);
  if (team == SHMEM_TEAM_INVALID) return NULL;
  if (team != SHMEM_TEAM_WORLD) pe = team_to_world(call, team_of(call, team), pe);
  void *out = NULL;
  int32_t code = rushmem_ptr(job.world, address, pe, &out);
  if (code == RUSHMEM_ERR_BAD_ADDRESS) return NULL;
  check(call, code);
  /* Its own variables have another address besides, which is not the one that a program compares with. */
  return pe == job.me ? (void *) address : out;
}

bool memory_is_symmetric(const void *address)
{
  void *out;
  return rushmem_ptr(job.world, address, job.me, &out) == RUSHMEM_OK;
}

/* The kernel reads the first byte and the last one, and writes them back where they are to be written. */
static void check_private_array(struct call call, const char *what, const void *at, size_t bytes, bool writes)
{
  const uintptr_t start = (uintptr_t) at, page = (uintptr_t) sysconf(_SC_PAGESIZE);
  char *first = (char *) at, *last = first + bytes - 1, scratch[2];
  bool there = start != 0 && start + bytes > start;
  if (there) {
    struct iovec here[2] = {{first, 1}, {last, 1}}, there_too[2] = {{&scratch[0], 1}, {&scratch[1], 1}};
    there = process_vm_readv(getpid(), writes ? here : there_too, 2, here, 2, 0) == 2 || errno != EFAULT;
    /* It does nothing but to see whether all pages are there. */
    const uintptr_t from = start / page * page;
    if (there && msync((void *) from, start + bytes - from, MS_ASYNC) != 0) there = errno != ENOMEM;
  }
  if (there) return;
  const char *why = program_why(at);
  refuse(call, "%s %p is neither symmetric memory nor %zu bytes of this PE's own%s%s%s", what, at, bytes,
         writes ? " that can be written to" : "", why ? ": " : "", why ? why : "");
}

/* Whether the runtime will look at an array itself, because it is no memory of this PE alone. */
static bool is_the_runtimes(const void *at)
{
  /* The usual case, for which a call of the runtime would take as long as a tenth of a small broadcast. */
  return (uintptr_t) at - job.window < job.window_bytes || memory_is_symmetric(at);
}

void memory_arrays(struct call call, const void *dest, size_t to, const void *source, size_t from)
{
  if (!job.host) return;
  if (to > 0 && !is_the_runtimes(dest)) check_private_array(call, "dest", dest, to, true);
  if (from > 0 && !is_the_runtimes(source)) check_private_array(call, "source", source, from, false);
}

size_t memory_spread(struct call call, size_t all, ptrdiff_t stride)
{
  return stride < 1 ? all : bytes_of(call, all, (size_t) stride);
}

size_t memory_room(const void *dest, size_t n)
{
  return n > 0 || !job.host || memory_is_symmetric(dest) ? SIZE_MAX : 0;
}

int memory_pe_accessible(struct call call, int pe)
{
  in_job(call);
  return pe >= 0 && pe < job.n_pes;
}

int memory_addr_accessible(struct call call, const void *address, int pe)
{
  if (!memory_pe_accessible(call, pe)) return 0;
  void *out;
  return rushmem_ptr(job.world, address, pe, &out) == RUSHMEM_OK;
}
