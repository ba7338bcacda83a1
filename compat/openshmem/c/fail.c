/* How a call fails: one text that names PE, call, reason and the place in the program, then the end of the
 * job.
 *
 * OpenSHMEM's calls have no error codes, so a program could not look at one.
 *
 * One thread ends the process. Others that come to an end of their own meanwhile, because the job is broken,
 * stop there, so that the process has one status and one text. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "library.h"

/* The place of a call: what addr2line takes, and the function where the program exports its name. */
static void place(char *text, size_t room, const void *from)
{
  Dl_info info;
  if (!dladdr(from, &info) || !info.dli_fname) {
    snprintf(text, room, "%p", from);
    return;
  }
  /* One less: the address behind the call may belong to the next line, or function. */
  size_t offset = (size_t) ((const char *) from - (const char *) info.dli_fbase) - 1;
  if (info.dli_sname)
    snprintf(text, room, "%s, in %s (addr2line -e %s %#zx)", info.dli_fname, info.dli_sname, info.dli_fname,
             offset);
  else
    snprintf(text, room, "%s (addr2line -e %s %#zx)", info.dli_fname, info.dli_fname, offset);
}

void flush_output(void)
{
  if (ftrylockfile(stdout) == 0) {
    fflush(stdout);
    funlockfile(stdout);
  }
}

static sem_t written_out;

static void *write_out(void *nothing)
{
  fflush(NULL);
  sem_post(&written_out);
  return nothing;
}

/* A thread that reads has its stream's lock, maybe for ever, so nobody here waits for one: another thread
 * does. It comes to standard input last. */
void flush_all(void)
{
  pthread_t thread;
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec++;
  if (sem_init(&written_out, 0, 0) != 0 || pthread_create(&thread, NULL, write_out, NULL) != 0) {
    flush_output();
    return;
  }
  pthread_detach(thread);
  while (sem_timedwait(&written_out, &until) != 0 && errno == EINTR) {}
}

/* --- one end ------------------------------------------------------------------------------------------- */

/* The thread that ends the process, by its number in the system; 0 as long as there is none. */
static atomic_long ender;
/* What shmem_global_exit was given, of this PE or another, once the program's exit handlers run; else -1. */
static atomic_int exit_status = -1;

bool end_begins(bool wait)
{
  long none = 0, mine = syscall(SYS_gettid);
  if (atomic_compare_exchange_strong(&ender, &none, mine) || none == mine) return true;
  while (wait) pause();
  return false;
}

void exit_all(int status)
{
  int none = -1;
  if (atomic_compare_exchange_strong(&exit_status, &none, status & 0xff)) exit(status);
  /* From an exit handler: it comes too late. */
  flush_all();
  _exit(none);
}

static _Noreturn void end(struct call call, const char *why)
{
  end_begins(true);
  if (atomic_load(&exit_status) >= 0) exit_all(0);
  char from[1024], text[4096];
  place(from, sizeof from, call.from);
  char who[32] = "";
  if (job.world) snprintf(who, sizeof who, "PE %d: ", job.me);
  int length = snprintf(text, sizeof text, "rushmem: %s%s: %s; called from %s\n", who, call.name, why, from);
  if (length >= (int) sizeof text) length = sizeof text - 1;
  flush_all();
  /* One write, so that the texts of several PEs do not mix. */
  ssize_t written = write(STDERR_FILENO, text, (size_t) length);
  (void) written;
  if (job.world) {
    text[length - 1] = 0;
    rushmem_break(job.world, text);
  }
  _exit(1);
}

void fail(struct call call, int32_t code, const void *address)
{
  if (!job.world) {
    end(call, "this process is in no OpenSHMEM job: shmem_init comes first, and shmem_finalize last");
  }
  char text[2048];
  snprintf(text, sizeof text, "%s", rushmem_last_error());
  if (code == RUSHMEM_ERR_PEER_DEAD) {
    exit_with(text, true);
    /* The launcher names the first PE that ends: the other one, whose process may still be on its way out. */
    nanosleep(&(struct timespec){0, 50000000}, NULL);
  }
  const char *hint = code == RUSHMEM_ERR_BAD_ADDRESS && address ? program_why(address) : NULL;
  if (hint) {
    size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, "; %s", hint);
  }
  end(call, text);
}

void refuse(struct call call, const char *format, ...)
{
  char text[2048];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  end(call, text);
}

void exit_with(const char *text, bool main_flow)
{
  const char *at = strstr(text, "shmem_global_exit(");
  if (!at) return;
  int status = atoi(at + strlen("shmem_global_exit("));
  if (!end_begins(main_flow)) return;
  if (main_flow) exit_all(status);
  /* The thread that watches must not run the program's exit handlers beside its main function. */
  flush_all();
  _exit(status);
}

void check_apart(struct call call, const void *dest, const void *source, size_t bytes, int pe)
{
  const uintptr_t to = (uintptr_t) dest, from = (uintptr_t) source;
  if (pe != job.me || to == from || (to - from >= bytes && from - to >= bytes)) return;
  refuse(call, "dest %p and source %p overlap in their %zu bytes", dest, source, bytes);
}

void trace(struct call call)
{
  char from[1024], text[1400];
  place(from, sizeof from, call.from);
  int length = snprintf(text, sizeof text, "[PE %d] %s from %s\n", job.world ? job.me : -1, call.name, from);
  if (length >= (int) sizeof text) length = sizeof text - 1;
  ssize_t written = write(STDERR_FILENO, text, (size_t) length);
  (void) written;
}
