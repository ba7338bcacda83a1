/* MPI_Init and MPI_Finalize of programs that are on MPI and OpenSHMEM, where OpenSHMEM came first.
 *
 * Under MPI's launcher shmem_init starts MPI to find the other PEs, unless it is up. A program that then
 * calls MPI_Init would start it a second time, which ends the job. So oshcc links this archive's one member
 * into programs that call MPI_Init themselves, in front of MPI's library: there MPI_Init finds MPI up, and
 * MPI_Finalize leaves it to the runtime's plug-in, which finalises it when the process exits. MPI's profiling
 * interface (MPI 4.0, chapter 15) is what makes both possible: PMPI_Init is MPI's own function. The plug-in's
 * calls come by here as well, because the program's names go before the libraries'. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

/* Alike in all MPIs. */
enum { SUCCESS = 0 };
int PMPI_Init(int *argc, char ***argv);
int PMPI_Init_thread(int *argc, char ***argv, int required, int *provided);
int PMPI_Finalize(void);
int PMPI_Initialized(int *flag);
int PMPI_Query_thread(int *provided);
int MPI_Init(int *argc, char ***argv);
int MPI_Init_thread(int *argc, char ***argv, int required, int *provided);
int MPI_Finalize(void);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Whether MPI is up because of the plug-in, and whether the program has called MPI_Init. */
static bool lent, called;

static bool by_plugin(const void *from)
{
  Dl_info info;
  return dladdr(from, &info) && info.dli_fname && strstr(info.dli_fname, "rushmem_bootstrap");
}

/* Whether the call at `from` finds an MPI that the plug-in has started. */
static bool begins_lent(const void *from)
{
  int up = 0;
  PMPI_Initialized(&up);
  pthread_mutex_lock(&lock);
  const bool plugin = by_plugin(from);
  if (plugin)
    lent = !up;
  else if (!called) {
    called = true;
    pthread_mutex_unlock(&lock);
    return lent && up;
  }
  pthread_mutex_unlock(&lock);
  return false;
}

int MPI_Init(int *argc, char ***argv)
{
  return begins_lent(__builtin_return_address(0)) ? SUCCESS : PMPI_Init(argc, argv);
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
  if (!begins_lent(__builtin_return_address(0))) return PMPI_Init_thread(argc, argv, required, provided);
  return provided ? PMPI_Query_thread(provided) : SUCCESS;
}

int MPI_Finalize(void)
{
  pthread_mutex_lock(&lock);
  const bool stays = lent && !by_plugin(__builtin_return_address(0));
  pthread_mutex_unlock(&lock);
  return stays ? SUCCESS : PMPI_Finalize();
}
