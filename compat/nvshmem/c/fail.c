/* Errors. The functions of the interface have no errors to return but for a few, so a call that cannot be
 * done ends the job, with a text that says which PE called what from where, and what is wrong with it. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
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
  /* One less: the address behind the call may belong to the next line. */
  const size_t offset = (size_t) ((const char *) from - (const char *) info.dli_fbase) - 1;
  snprintf(text, room, "%s (addr2line -e %s %#zx)", info.dli_fname, info.dli_fname, offset);
}

static int put_text(struct call call, const char *why, char *text, size_t room)
{
  char from[1024], who[32] = "";
  place(from, sizeof from, call.from);
  if (job.world) snprintf(who, sizeof who, "PE %d: ", job.me);
  int length = snprintf(text, room, "rushmem: %s%s: %s; called from %s\n", who, call.name, why, from);
  if (length >= (int) room) length = (int) room - 1;
  /* One write, so that the texts of several PEs do not mix. */
  const ssize_t written = write(STDERR_FILENO, text, (size_t) length);
  (void) written;
  return length;
}

void flush_output(void)
{
  if (ftrylockfile(stdout) == 0) {
    fflush(stdout);
    funlockfile(stdout);
  }
}

/* Threads come to an end of their own because the job is broken. They stop here, so that the process has one
 * status and one text. */
void end_begins(void)
{
  static atomic_long ender;
  long none = 0, mine = syscall(SYS_gettid);
  if (atomic_compare_exchange_strong(&ender, &none, mine) || none == mine) return;
  for (;;) pause();
}

static NORETURN void end(struct call call, const char *why)
{
  char text[4096];
  end_begins();
  flush_output();
  const int length = put_text(call, why, text, sizeof text);
  if (job.world) {
    text[length - 1] = 0;
    /* The memory stays: other threads may be at it. */
    rushmem_break(job.world, text);
  }
  _exit(1);
}

void fail(struct call call, int32_t code)
{
  (void) code;
  if (!job.world) end(call, "this process is in no job: nvshmem_init comes first, and nvshmem_finalize last");
  char text[2048];
  snprintf(text, sizeof text, "%s", rushmem_last_error());
  /* Of another PE: its status is that of the job. */
  const char *exited = strstr(text, "nvshmem_global_exit(");
  if (exited) {
    end_begins();
    exit(atoi(exited + strlen("nvshmem_global_exit(")));
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

int decline(struct call call, int code, const char *format, ...)
{
  char why[2048], text[4096];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(why, sizeof why, format, arguments);
  va_end(arguments);
  put_text(call, why, text, sizeof text);
  return code;
}

/* What a split returns instead of ending the job: arguments that make no team, too little room, alike on
 * all. */
int team_declined(struct call call, int32_t code)
{
  if (code == RUSHMEM_OK) return 0;
  if (code == RUSHMEM_ERR_INVALID_ARGUMENT)
    return decline(call, NVSHMEMX_ERROR_INVALID_VALUE, "%s", rushmem_last_error());
  if (code == RUSHMEM_ERR_HEAP_EXHAUSTED)
    return decline(call, NVSHMEMX_ERROR_OUT_OF_MEMORY, "%s", rushmem_last_error());
  fail(call, code);
}

const char *status_string(int status)
{
  static const char *const texts[] = {
      [NVSHMEMX_SUCCESS] = "success",
      [NVSHMEMX_ERROR_INVALID_VALUE] = "an argument makes no sense",
      [NVSHMEMX_ERROR_OUT_OF_MEMORY] = "out of memory",
      [NVSHMEMX_ERROR_NOT_SUPPORTED] = "not supported",
      [NVSHMEMX_ERROR_SYMMETRY] = "PEs made different calls",
      [NVSHMEMX_ERROR_GPU_NOT_SELECTED] = "no GPU was chosen",
      [NVSHMEMX_ERROR_COLLECTIVE_LAUNCH_FAILED] = "a collective launch failed",
      [NVSHMEMX_ERROR_INTERNAL] = "an error in the runtime, or of CUDA's",
  };
  const size_t known = sizeof texts / sizeof *texts;
  return status >= 0 && (size_t) status < known ? texts[status] : "an unknown status";
}
