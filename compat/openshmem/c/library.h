/* What the library's files share: the state of the job, where a call comes from, how a call fails.
 *
 * Everything that a program can see is a thin function of the generated symbols.c, which says where it was
 * called from and goes on here. */
#ifndef RUSHMEM_OPENSHMEM_LIBRARY_H
#define RUSHMEM_OPENSHMEM_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rushmem.h"
#include "shmem.h"

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define COLD __attribute__((cold, noinline))

/* A call of the program's, for texts: its name, and where it was made. */
struct call {
  const char *name;
  const void *from;
};

/* The job that this process is in. */
struct job {
  rushmem_world_t *world; /* null before the first initialisation and after the last finalisation */
  rushmem_team_t *team;   /* of all PEs */
  int me, n_pes;
  uintptr_t window, window_bytes; /* this PE's addresses of symmetric memory, of which parts live */
  int thread_level;
  int starts; /* initialisations that were not finalised */
  int debug;  /* SHMEM_DEBUG: calls are traced, and checked more closely */
  bool checked;  /* RUSHMEM_CHECK: the runtime is to know of each fence and quiet */
  bool host;     /* the heap is in host memory */
  bool all_near; /* no PE is far: what a call puts is there when it returns */
};
extern struct job job;

/* --- fail.c: texts, and the end of the job ------------------------------------------------------------- */

/* Ends the job with the text of the runtime's error `code`. `address`, unless null, is the call's symmetric
 * address. */
COLD _Noreturn void fail(struct call call, int32_t code, const void *address);
/* Ends the job with a text of our own. */
COLD _Noreturn void refuse(struct call call, const char *format, ...) __attribute__((format(printf, 2,
                                3)));
/* This thread is about to end the process; where another one is, it waits for ever, or gets false. For a
 * signal's handler, too. */
bool end_begins(bool wait);
/* exit(status), by a thread that has begun the end; within exit's handlers the end with the first status. */
_Noreturn void exit_all(int status);
/* Before the process ends without exit's work: writes all of C's streams out that no other thread is at. */
void flush_all(void);
/* For a signal's handler: standard output alone. */
void flush_output(void);
/* SHMEM_DEBUG: tells of the call. */
COLD void trace(struct call call);
/* SHMEM_DEBUG: refuses a copy within this PE between arrays that overlap. */
COLD void check_apart(struct call call, const void *dest, const void *source, size_t bytes, int pe);
/* Ends this process if `text`, the reason of a broken job, is another PE's shmem_global_exit. */
void exit_with(const char *text, bool main_flow);

static inline void check_at(struct call call, int32_t code, const void *address)
{
  if (!LIKELY(code == RUSHMEM_OK)) fail(call, code, address);
}
static inline void check(struct call call, int32_t code)
{
  check_at(call, code, NULL);
}
/* Refuses a call outside of a job. */
static inline void in_job(struct call call)
{
  if (!LIKELY(job.world != NULL)) fail(call, RUSHMEM_ERR_BAD_HANDLE, NULL);
}

/* --- fault.c: wild pointers ----------------------------------------------------------------------------- */

/* A function: its name, and those of its arguments that are pointers: "dest, source". */
struct function {
  const char *name, *arguments;
};
/* A call that this thread is in, on its stack; `outer`: another one that it is in, in a signal's handler. */
struct inside {
  const struct function *function;
  const void *from;
  const struct inside *outer;
  const volatile void *const *arguments;
};
/* One load and one store for each call. */
extern _Thread_local const struct inside *inside_call __attribute__((tls_model("initial-exec"),
                                                                     visibility("hidden")));
void fault_start(void);
/* Touches memory of this PE alone that an operation on PE `pe` of the world reads, or writes to, if that is
 * far: the operation may come to it later, in another thread. */
COLD void fault_source(const void *source, const void *dest, size_t bytes, int pe);
COLD void fault_dest(void *dest, const void *source, size_t bytes, int pe);
/* The same for `n` elements that are a stride apart, `other` on the symmetric side. */
COLD void fault_rows(const void *local, ptrdiff_t stride, const void *symmetric, ptrdiff_t other,
                     size_t bytes, size_t n, int pe, bool writes);

/* --- job.c: beginning and end -------------------------------------------------------------------------- */

void job_init(struct call call, int level);
int job_init_thread(struct call call, int requested, int *provided);
void job_start_pes(struct call call);
void job_query_thread(struct call call, int *provided);
void job_query_initialized(struct call call, int *initialized);
void job_finalize(struct call call);
_Noreturn void job_exit(struct call call, int status);
void job_version(struct call call, int *major, int *minor);
void job_name(struct call call, char *name);
static inline int job_my_pe(struct call call)
{
  in_job(call);
  return job.me;
}
static inline int job_n_pes(struct call call)
{
  in_job(call);
  return job.n_pes;
}

/* --- watch.c: the death of the job, seen by a PE that computes ------------------------------------------ */

void watch_start(const uint32_t *broken);
void watch_stop(void);
/* For a signal's handler: has the watching thread end the job with that text, and waits for a moment. */
void watch_abort(const char *text);

/* --- settings.c: the environment ----------------------------------------------------------------------- */

/* SHMEM_`name`, else the deprecated SMA_`name`; null where neither is set. */
const char *setting(const char *name);
/* SHMEM_SYMMETRIC_SIZE in bytes, 0 where it is not set. */
uint64_t setting_heap(struct call call);
/* What SHMEM_VERSION and SHMEM_INFO ask for, on PE 0. */
void settings_print(void);

/* --- program.c: the program's writable segments --------------------------------------------------------- */

enum { SEGMENTS = 16 };

struct segment {
  uintptr_t start, end;
};

struct program {
  struct segment data[SEGMENTS];
  int n;
  struct segment relro;
  uint64_t identity; /* the same for the same executable file */
};
struct program program_of_process(void);
/* Where `address` is if that is in the program's data and not symmetric, for texts; else null. */
const char *program_why(const void *address);

/* --- static_data.c: the program's variables ------------------------------------------------------------- */

/* Bytes of all of its segments. */
size_t static_bytes(void);
/* Collective: makes the main program's variables symmetric. */
void static_register(struct call call);
/* Which byte of the program's symmetric data `address` is, plus one; 0 where it is none. Alike on all PEs. */
uint64_t static_offset(const void *address);

/* --- memory.c: the symmetric heap ----------------------------------------------------------------------- */

void *memory_malloc(struct call call, size_t size, size_t align);
void *memory_align(struct call call, size_t align, size_t size);
void *memory_with_hints(struct call call, size_t size, long hints);
void *memory_calloc(struct call call, size_t count, size_t size);
void *memory_realloc(struct call call, void *pointer, size_t size);
void memory_free(struct call call, void *pointer);
void memory_forget(void);
void *memory_ptr(struct call call, shmem_team_t team, const void *address, int pe);
/* What to say of collect's dest: its end is the runtime's to find. A member that gives nothing may have any
 * dest where nobody gives anything. */
size_t memory_room(const void *dest, size_t n);
int memory_pe_accessible(struct call call, int pe);
int memory_addr_accessible(struct call call, const void *address, int pe);
/* Refuses arrays of collectives that are no memory of this PE's, `to` and `from` bytes of them. Where they
 * are symmetric the runtime looks whether they end in time. They are to be symmetric, but programs exist that
 * give private ones, and the runtime takes them. */
void memory_arrays(struct call call, const void *dest, size_t to, const void *source, size_t from);
bool memory_is_symmetric(const void *address);
/* Bytes of an array of `all` bytes whose elements are a stride apart, or a little more. The runtime refuses
 * strides that are none. */
size_t memory_spread(struct call call, size_t all, ptrdiff_t stride);

/* --- slots.c: handles ----------------------------------------------------------------------------------- */

/* A table of objects by handles that are never given out twice, so that a stale one is known. */
struct slots;
extern struct slots team_slots, context_slots;
/* A handle for `object`; 0 where there is no memory. */
uintptr_t slots_add(struct slots *slots, void *object);
/* The object of a handle, or null. */
void *slots_find(struct slots *slots, uintptr_t handle);
/* Takes the object of a handle out, or null. */
void *slots_take(struct slots *slots, uintptr_t handle);
/* Takes any object out for which `wanted` is true; null where there is none left. */
void *slots_take_any(struct slots *slots, bool (*wanted)(const void *object, const void *what),
                     const void *what);

/* --- team.c --------------------------------------------------------------------------------------------- */

struct team {
  rushmem_team_t *team;
  shmem_team_t handle;
  rushmem_team_info_t info;
  shmem_team_config_t config;
};
/* The team of a handle; refuses what is none. */
struct team *team_of(struct call call, shmem_team_t team);
/* The world's number of a team's PE; refuses what is none. */
int team_to_world(struct call call, const struct team *team, int pe);
/* The same of one that is known to be. */
int team_member(const struct team *team, int pe);
/* Whether operations on this PE of the world may be under way when their calls have returned. */
bool team_is_far(int pe);
/* Collective: the predefined teams. */
void team_start(struct call call);
void team_forget(void);
int team_my_pe(struct call call, shmem_team_t team);
int team_n_pes(struct call call, shmem_team_t team);
int team_get_config(struct call call, shmem_team_t team, long mask, shmem_team_config_t *config);
int team_translate(struct call call, shmem_team_t from, int pe, shmem_team_t to);
int team_split_strided(struct call call, shmem_team_t parent, int start, int stride, int size,
                       const shmem_team_config_t *config, long mask, shmem_team_t *out);
int team_split_2d(struct call call, shmem_team_t parent, int xrange, const shmem_team_config_t *xconfig,
                  long xmask,
                  shmem_team_t *xout, const shmem_team_config_t *yconfig, long ymask, shmem_team_t *yout);
/* The last step of `team_destroy`: contexts of this team's are no more. */
void team_free(struct call call, struct team *team);

/* --- context.c ------------------------------------------------------------------------------------------ */

/* The world's number of PE `pe` of a context other than the default one. */
COLD int context_target(struct call call, shmem_ctx_t ctx, int pe);
/* Refuses what is no context. */
void context_check(struct call call, shmem_ctx_t ctx);
/* Around an operation of a context other than the default one on PE `pe` of its team: to a far PE it is in
 * the runtime's context of this one, and true is returned: it is to be left. `may_last`: the operation may be
 * under way when its call returns. */
COLD bool context_enter(struct call call, shmem_ctx_t ctx, int pe);
COLD void context_leave(shmem_ctx_t ctx, bool may_last);
/* Of a context other than the default one. */
void context_quiet(struct call call, shmem_ctx_t ctx);
void context_fence(struct call call, shmem_ctx_t ctx);
int context_create(struct call call, shmem_team_t team, long options, shmem_ctx_t *out);
void context_destroy(struct call call, shmem_ctx_t ctx);
int context_team(struct call call, shmem_ctx_t ctx, shmem_team_t *team);
void context_session(struct call call, shmem_ctx_t ctx, long options,
                     const shmem_ctx_session_config_t *config, long mask);
/* The contexts of a team that ends, or all, where it is null. */
void context_forget(const struct team *team);

/* --- team_destroy.c ------------------------------------------------------------------------------------- */

void team_destroy(struct call call, shmem_team_t team);

/* --- rma.c: what is not inlined ------------------------------------------------------------------------- */

void rma_ibput(struct call call, shmem_ctx_t ctx, void *dest, const void *source, ptrdiff_t dst,
               ptrdiff_t sst,
               size_t bsize, size_t nblocks, size_t bytes, int pe);
void rma_ibget(struct call call, shmem_ctx_t ctx, void *dest, const void *source, ptrdiff_t dst,
               ptrdiff_t sst,
               size_t bsize, size_t nblocks, size_t bytes, int pe);

/* --- order.c -------------------------------------------------------------------------------------------- */

void order_fence(struct call call, shmem_ctx_t ctx);
void order_quiet(struct call call, shmem_ctx_t ctx);
void order_pe_quiet(struct call call, shmem_ctx_t ctx, const int *pes, size_t n);

/* --- collective.c: teams -------------------------------------------------------------------------------- */

void collective_barrier_all(struct call call);
void collective_sync_all(struct call call);
int collective_sync(struct call call, shmem_team_t team);
int collective_alltoall(struct call call, shmem_team_t team, void *dest, const void *source, size_t n,
                        size_t bytes);
int collective_alltoalls(struct call call, shmem_team_t team, void *dest, const void *source, ptrdiff_t dst,
                         ptrdiff_t sst, size_t n, size_t bytes);
int collective_broadcast(struct call call, shmem_team_t team, void *dest, const void *source, size_t n,
                         size_t bytes,
                         int root);
int collective_collect(struct call call, shmem_team_t team, void *dest, const void *source, size_t n,
                       size_t bytes);
int collective_fcollect(struct call call, shmem_team_t team, void *dest, const void *source, size_t n,
                        size_t bytes);
int collective_reduce(struct call call, shmem_team_t team, void *dest, const void *source, size_t n,
                      int type, int op);
int collective_scan(struct call call, shmem_team_t team, void *dest, const void *source, size_t n, int type,
                    bool inclusive);

/* --- combine.c: arithmetic ------------------------------------------------------------------------------ */

/* A type that the runtime does not know. */
#define LONG_DOUBLE (-1)
/* Bytes of an element. */
size_t type_bytes(int type);
/* `into[i] = into[i] op from[i]`. */
void combine(int type, int op, void *into, const void *from, size_t n);

/* --- active_set.c: deprecated collectives --------------------------------------------------------------- */

/* PEs start, start + 2^log_stride, ..., size of them. */
struct active_set {
  int start, log_stride, size;
};
void active_barrier(struct call call, struct active_set set, long *psync);
void active_sync(struct call call, struct active_set set, long *psync);
void active_broadcast(struct call call, struct active_set set, long *psync, void *dest, const void *source,
                      size_t n,
                      size_t bytes, int root);
void active_collect(struct call call, struct active_set set, long *psync, void *dest, const void *source,
                    size_t n,
                    size_t bytes);
void active_fcollect(struct call call, struct active_set set, long *psync, void *dest, const void *source,
                     size_t n,
                     size_t bytes);
void active_alltoalls(struct call call, struct active_set set, long *psync, void *dest, const void *source,
                      ptrdiff_t dst, ptrdiff_t sst, size_t n, size_t bytes);
void active_reduce(struct call call, struct active_set set, long *psync, void *dest, const void *source,
                   int n,
                   int type, int op);

/* --- psync.c: SHMEM_DEBUG ------------------------------------------------------------------------------- */

/* Collective. */
void psync_start(struct call call);
void psync_forget(void);
/* A collective of all PEs begins, other than a barrier or sync, which may use one array again at once. */
void psync_enter(struct call call, const void *psync);
void psync_leave(void);

/* --- lock.c --------------------------------------------------------------------------------------------- */

void lock_set(struct call call, long *lock);
int lock_test(struct call call, long *lock);
void lock_clear(struct call call, long *lock);

/* Bytes of `n` elements of `bytes` bytes; refuses more than there are addresses. */
static inline size_t bytes_of(struct call call, size_t n, size_t bytes)
{
  size_t total;
  if (!LIKELY(!__builtin_mul_overflow(n, bytes, &total)))
    refuse(call, "%zu elements of %zu bytes are more than there are addresses", n, bytes);
  return total;
}

#endif
