/* A child of fork from C: each call is an error that says so, however the child was made, and its parent goes
 * on. */
#define _GNU_SOURCE
#include "check.h"

#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Calls in a child: no allocation, so that a child without any handler of fork can make them. How many were
 * not refused. */
static int refused(rushmem_world_t *w, int64_t *sym)
{
  int wrong = 0;
  int64_t mine = 99;
  void *memory = NULL;
  rushmem_world_t *another = NULL;
  rushmem_uid_t uid;
  int32_t done = 0;
  const char *text = NULL;
#define REFUSED(call) wrong += (call) != RUSHMEM_ERR_FORKED
  REFUSED(rushmem_barrier_all(w));
  REFUSED(rushmem_put(w, sym, &mine, 8, (me + 1) % n));
  REFUSED(rushmem_put(w, sym, &mine, 8, me));
  REFUSED(rushmem_get(w, &mine, sym, 8, (me + 1) % n));
  REFUSED(rushmem_int64_atomic_add(w, sym, 99, (me + 1) % n));
  REFUSED(rushmem_wait_until(w, RUSHMEM_INT64, sym, RUSHMEM_CMP_EQ, 4711, 0));
  REFUSED(rushmem_alloc(w, 64, 0, &memory));
  REFUSED(rushmem_free(w, sym));
  REFUSED(rushmem_quiet(w));
  REFUSED(rushmem_fence(w));
  REFUSED(rushmem_my_pe(w));
  REFUSED(rushmem_n_pes(w));
  REFUSED(rushmem_synchronize(w));
  REFUSED(rushmem_event_test(NULL, &done));
  REFUSED(rushmem_init(NULL, &another));
  REFUSED(rushmem_uid_create(&uid));
  REFUSED(rushmem_device_name(w, &text));
  REFUSED(rushmem_abort(w, "a child may not"));
  REFUSED(rushmem_finalize(w));
  wrong += !strstr(rushmem_last_error(), "forked from PE");
  wrong += strcmp(rushmem_error_name(RUSHMEM_ERR_FORKED), "RUSHMEM_ERR_FORKED") != 0;
  return wrong;
}

static void ends_well(pid_t child)
{
  int status = -1;
  CHECK(child > 0);
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

int main(void)
{
  rushmem_world_t *w = start();
  int64_t *sym;
  OK(rushmem_alloc(w, 64, 0, (void **)&sym));
  for (int64_t round = 1; round <= 20; round++) {
    OK(rushmem_int64_p(w, sym, round, (me + 1) % n));
    const pid_t forked = fork();
    if (forked == 0) {
      alarm(30);
      _exit(refused(w, sym));
    }
    ends_well(forked);
    /* No handler runs for this one; the kernel says it. */
    const pid_t cloned = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (cloned == 0) {
      alarm(30);
      _exit(refused(w, sym));
    }
    ends_well(cloned);
    pid_t started;
    char *const arguments[] = {"true", NULL};
    CHECK(posix_spawnp(&started, "true", NULL, NULL, arguments, environ) == 0);
    ends_well(started);
    OK(rushmem_barrier_all(w));
    int64_t seen = 0;
    OK(rushmem_int64_g(w, sym, me, &seen));
    CHECK(seen == round);
    OK(rushmem_barrier_all(w));
  }
  /* The handle is whole in the parent, though the child called finalize and abort with it. */
  OK(rushmem_free(w, sym));
  return finish(w);
}
