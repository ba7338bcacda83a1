/* Beginning and end of a job. Initialisations are counted: the last finalisation ends it, and another
 * initialisation may begin a new one. Where the process is in a job of rushmem's already, because a Rust
 * program or OpenSHMEM has joined one, that is this library's, too. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;

static void begin(struct call call, rushmem_world_t *world, bool joined)
{
  rushmem_view_t view;
  if (rushmem_view(world, &view) != RUSHMEM_OK) refuse(call, "%s", rushmem_last_error());
  job = (struct job){.world = world, .me = view.my_pe, .n_pes = view.n_pes, .gpu = view.gpu, .joined = joined};
  team_start(call);
  module_start(call);
  if (job.me == 0) settings_print();
  check(call, rushmem_barrier_all(job.world));
}

static int start(struct call call, unsigned flags, const nvshmemx_init_attr_t *attr)
{
  const unsigned how = flags & (NVSHMEMX_INIT_WITH_MPI_COMM | NVSHMEMX_INIT_WITH_SHMEM | NVSHMEMX_INIT_WITH_UNIQUEID);
  rushmem_world_t *world = NULL;
  rushmem_init_attr_t start = {.size = sizeof start};
  rushmem_uid_t id;
  if (!attr && how != 0)
    return decline(call, NVSHMEMX_ERROR_INVALID_VALUE, "flags are %#x, but attributes are null", flags);
  rushmem_current(&world);
  if (world) {
    begin(call, world, true);
    return 0;
  }
  settings_before();
  switch (how) {
  case 0: break;
  case NVSHMEMX_INIT_WITH_MPI_COMM:
    if (!attr->mpi_comm) return decline(call, NVSHMEMX_ERROR_INVALID_VALUE, "mpi_comm is null: it points at an MPI_Comm");
    start.mpi_comm = attr->mpi_comm;
    break;
  case NVSHMEMX_INIT_WITH_UNIQUEID:
    if (!attr->args.uid_args.id)
      return decline(call, NVSHMEMX_ERROR_INVALID_VALUE,
                     "there is no unique ID: nvshmemx_set_attr_uniqueid_args fills the attributes");
    memcpy(&id, attr->args.uid_args.id, sizeof id);
    start.uid = &id;
    start.rank = attr->args.uid_args.myrank;
    start.n_pes = attr->args.uid_args.nranks;
    break;
  case NVSHMEMX_INIT_WITH_SHMEM:
    return decline(call, NVSHMEMX_ERROR_INVALID_VALUE,
                   "this process is in no OpenSHMEM job of rushmem's: shmem_init of its libshmem.so comes first");
  default: return decline(call, NVSHMEMX_ERROR_INVALID_VALUE, "flags %#x ask for several ways to start", flags);
  }
  /* PyTorch's are what the stack held: only what an initialiser has filled chooses a GPU. */
  if (attr && attr->args.version == NVSHMEM_INIT_ARGS_V2_IDENTIFIER && attr->args.cuda_device_id >= 0) {
    start.device = RUSHMEM_DEVICE_CUDA;
    start.gpu = attr->args.cuda_device_id + 1;
  }
  const uint64_t heap = setting_heap(call);
  if (heap && !getenv("RUSHMEM_HEAP_MAX")) {
    /* Room for the teams' memory besides. */
    const uint64_t granule = 2ull << 20;
    start.heap_max = (heap + 32 * granule) / granule * granule;
  }
  if (rushmem_init(&start, &world) != RUSHMEM_OK) {
    return decline(call, NVSHMEMX_ERROR_INTERNAL, "%s", rushmem_last_error());
  }
  begin(call, world, false);
  return 0;
}

int job_init_attr(struct call call, unsigned flags, nvshmemx_init_attr_t *attr)
{
  int code = 0;
  pthread_mutex_lock(&starting);
  if (!job.world) code = start(call, flags, attr);
  else module_fill(call);
  if (code == 0) job.starts++;
  pthread_mutex_unlock(&starting);
  return code;
}

void job_init(struct call call)
{
  /* It has said why. */
  if (job_init_attr(call, 0, NULL) != 0) _Exit(1);
}

int job_init_thread(struct call call, int requested, int *provided)
{
  if (requested < NVSHMEM_THREAD_SINGLE || requested > NVSHMEM_THREAD_MULTIPLE)
    return decline(call, NVSHMEMX_ERROR_INVALID_VALUE, "%d is no thread level (NVSHMEM_THREAD_SINGLE and its like)",
                   requested);
  const int code = job_init_attr(call, 0, NULL);
  if (code == 0 && provided) *provided = NVSHMEM_THREAD_MULTIPLE;
  return code;
}

void job_query_thread(struct call call, int *provided)
{
  in_job(call);
  if (!provided) refuse(call, "provided is null");
  *provided = NVSHMEM_THREAD_MULTIPLE;
}

int job_status(void)
{
  return job.world ? NVSHMEM_STATUS_IS_INITIALIZED : NVSHMEM_STATUS_NOT_INITIALIZED;
}

void job_finalize(struct call call)
{
  in_job(call);
  pthread_mutex_lock(&starting);
  if (--job.starts > 0) {
    check(call, rushmem_barrier_all(job.world));
  } else {
    check(call, rushmem_synchronize(job.world));
    /* What is under way completes on all PEs before any of them lets go of its memory. */
    check(call, rushmem_barrier_all(job.world));
    team_stop(call);
    if (!job.joined) check(call, rushmem_finalize(job.world));
    job = (struct job){0};
  }
  pthread_mutex_unlock(&starting);
}

void job_exit(struct call call, int status)
{
  (void) call;
  if (job.world) {
    char why[64];
    /* The others look for this text: fail. */
    snprintf(why, sizeof why, "nvshmem_global_exit(%d)", status);
    flush_output();
    end_begins();
    /* The memory stays: other threads and exit handlers may be at it. */
    rushmem_break(job.world, why);
  }
  exit(status);
}

void job_name(char *name)
{
  memset(name, 0, NVSHMEM_MAX_NAME_LEN);
  memcpy(name, NVSHMEM_VENDOR_STRING, sizeof NVSHMEM_VENDOR_STRING);
}

int job_unique_id(struct call call, nvshmemx_uniqueid_t *id)
{
  _Static_assert(sizeof *id == sizeof(rushmem_uid_t), "programs carry all of it");
  if (!id) return decline(call, NVSHMEMX_ERROR_INVALID_VALUE, "uniqueid is null");
  settings_before();
  rushmem_uid_t made;
  if (rushmem_uid_create(&made) != RUSHMEM_OK)
    return decline(call, NVSHMEMX_ERROR_INTERNAL, "%s", rushmem_last_error());
  memcpy(id, &made, sizeof made);
  return 0;
}

int job_set_unique_id(int rank, int n, const nvshmemx_uniqueid_t *id, nvshmemx_init_attr_t *attr)
{
  if (!id || !attr || n < 1 || rank < 0 || rank >= n) return NVSHMEMX_ERROR_INVALID_VALUE;
  attr->args.uid_args = (nvshmemx_uniqueid_args_t){1, (nvshmemx_uniqueid_t *) id, rank, n};
  return 0;
}

int job_set_mpi(void *comm, nvshmemx_init_attr_t *attr)
{
  if (!comm || !attr) return NVSHMEMX_ERROR_INVALID_VALUE;
  attr->mpi_comm = comm;
  return 0;
}

/* There is one way to each PE, which every handle stands for. */
int job_create_queues(struct call call, int n, nvshmemx_qp_handle_t **out)
{
  in_job(call);
  if (n < 1 || !out) return NVSHMEMX_ERROR_INVALID_VALUE;
  *out = malloc((size_t) n * sizeof **out);
  if (!*out) return NVSHMEMX_ERROR_OUT_OF_MEMORY;
  for (int i = 0; i < n; i++) (*out)[i] = NVSHMEMX_QP_DEFAULT;
  return 0;
}
