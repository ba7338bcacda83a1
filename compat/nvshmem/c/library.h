/* What the library's files share: the state of the job, where a call comes from, how a call fails.
 *
 * Everything that a program can see is a thin function of the generated symbols.c, which says where it was
 * called from and goes on here. */
#ifndef RUSHMEM_NVSHMEM_LIBRARY_H
#define RUSHMEM_NVSHMEM_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rushmem.h"
#include "rushmem_nvshmem/host.h"
#include "rushmem_nvshmem/program.h"

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define COLD __attribute__((cold, noinline))
#define NORETURN __attribute__((noreturn))
/* A symbol of the library's. */
#define PUBLIC __attribute__((visibility("default")))

/* A call of the program's, for texts: its name, and where it was made. */
struct call {
  const char *name;
  const void *from;
};

/* The job that this process is in. */
struct job {
  rushmem_world_t *world; /* null before the first initialisation and after the last finalisation */
  int me, n_pes;
  int gpu;     /* the PE's, or -1 */
  int starts;  /* initialisations that were not finalised */
  bool joined; /* the world is another library's, which ends it */
};
extern struct job job;

/* --- fail.c: texts, and the end of the job ------------------------------------------------------------- */

/* Writes standard output out, where no other thread holds its lock. */
void flush_output(void);
/* Returns to the one thread that ends the process; others wait for that end. */
COLD void end_begins(void);
/* Ends the job with the text of the runtime's error `code`. */
COLD NORETURN void fail(struct call call, int32_t code);
/* Ends the job with a text of our own. */
COLD NORETURN void refuse(struct call call, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Says what is wrong with a call that returns `code`. */
COLD int decline(struct call call, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* 0 or NVSHMEM's code, for the runtime's where a team was not made for reasons that all members know. */
int team_declined(struct call call, int32_t code);
const char *status_string(int status);

static inline void check(struct call call, int32_t code)
{
  if (!LIKELY(code == RUSHMEM_OK)) fail(call, code);
}
/* Refuses a call outside of a job. */
static inline void in_job(struct call call)
{
  if (!LIKELY(job.world != NULL)) fail(call, RUSHMEM_ERR_BAD_HANDLE);
}

/* --- job.c: beginning and end -------------------------------------------------------------------------- */

void job_init(struct call call);
int job_init_thread(struct call call, int requested, int *provided);
int job_init_attr(struct call call, unsigned flags, nvshmemx_init_attr_t *attr);
void job_query_thread(struct call call, int *provided);
int job_status(void);
void job_finalize(struct call call);
NORETURN void job_exit(struct call call, int status);
void job_name(char *name);
int job_unique_id(struct call call, nvshmemx_uniqueid_t *id);
int job_set_unique_id(int rank, int n, const nvshmemx_uniqueid_t *id, nvshmemx_init_attr_t *attr);
int job_set_mpi(void *comm, nvshmemx_init_attr_t *attr);
int job_create_queues(struct call call, int n, nvshmemx_qp_handle_t **out);
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

/* --- settings.c: the environment ----------------------------------------------------------------------- */

/* NVSHMEM_SYMMETRIC_SIZE in bytes, 0 where it is not set. */
uint64_t setting_heap(struct call call);
/* What must be said to the runtime before it starts. */
void settings_before(void);
/* What NVSHMEM_VERSION and NVSHMEM_INFO ask for, on PE 0, and which settings mean nothing here. */
void settings_print(void);

/* --- module.c: kernels --------------------------------------------------------------------------------- */

/* Tells the program's kernels who their PE is. */
void module_start(struct call call);
/* Kernels have come since: rushmem_nvshmem_attach. */
extern bool module_pending;
COLD void module_fill(struct call call);
int module_init(struct call call, CUmodule module);
int library_init(struct call call, CUlibrary library);
int module_finalize(const void *module);
/* The device of the thread's CUDA context; -1 where there is none. */
int module_current_gpu(void);
/* Copies what a program may keep in the GPU's memory or in its own. */
void module_copy(struct call call, void *to, const void *from, size_t bytes);

/* --- memory.c: the symmetric heap ----------------------------------------------------------------------- */

void *memory_malloc(struct call call, size_t size, size_t align);
void *memory_align(struct call call, size_t align, size_t size);
void *memory_calloc(struct call call, size_t count, size_t size);
void memory_free(struct call call, void *pointer);
void *memory_ptr(struct call call, const void *address, int pe);
int memory_register_local(struct call call, void *address, size_t bytes);
int memory_unregister_local(struct call call, void *address);
void *memory_register(struct call call, void *address, size_t bytes, void *preferred, int flags);
int memory_unregister(struct call call, void *address, size_t bytes);

/* Teams that a PE can be in at a time: as many as kernels find by number (rushmem_team_number). */
enum { TEAMS = 64 };

/* --- team.c --------------------------------------------------------------------------------------------- */

/* The team of a number; refuses what is none. */
rushmem_team_t *team_of(struct call call, nvshmem_team_t team);
/* Collective: the predefined teams. */
void team_start(struct call call);
/* Collective: frees all but the world's. */
void team_stop(struct call call);
int team_my_pe(struct call call, nvshmem_team_t team);
int team_n_pes(struct call call, nvshmem_team_t team);
void team_get_config(struct call call, nvshmem_team_t team, nvshmem_team_config_t *config);
int team_translate(struct call call, nvshmem_team_t from, int pe, nvshmem_team_t to);
int team_split_strided(struct call call, nvshmem_team_t parent, int start, int stride, int size,
                       const nvshmem_team_config_t *config, long mask, nvshmem_team_t *out);
int team_split_2d(struct call call, nvshmem_team_t parent, int xrange, const nvshmem_team_config_t *xconfig,
                  long xmask, nvshmem_team_t *xout, const nvshmem_team_config_t *yconfig, long ymask,
                  nvshmem_team_t *yout);
int team_unique_id(struct call call, nvshmemx_team_uniqueid_t *id);
int team_init(struct call call, nvshmem_team_t *out, nvshmem_team_config_t *config, long mask, int n, int pe);
void team_destroy(struct call call, nvshmem_team_t team);

/* --- meeting.c: teams by unique ID --------------------------------------------------------------------- */

/* Collective. */
void meeting_start(struct call call);
void meeting_stop(struct call call);
/* A new ID; 0 where there are too many. */
uint64_t meeting_id(struct call call);
/* Collective over the `n` members, of which this PE is number `mine`. */
int meeting_hold(struct call call, uint64_t id, int n, int mine, rushmem_team_t **out);

/* Bytes of `n` elements of `bytes` bytes; refuses more than there are addresses. */
static inline size_t bytes_of(struct call call, size_t n, size_t bytes)
{
  size_t total;
  if (!LIKELY(!__builtin_mul_overflow(n, bytes, &total)))
    refuse(call, "%zu elements of %zu bytes are more than there are addresses", n, bytes);
  return total;
}

#endif
