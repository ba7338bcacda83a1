/* Faults of the program's own beside the library's handler: which handler sees them is the argument. */
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <unistd.h>

#include "check.h"

static sigjmp_buf back;
static volatile int seen;
static const void *volatile where;
static long word;

static void plain(int number)
{
  seen = number;
  siglongjmp(back, 1);
}

static void info(int number, siginfo_t *about, void *context)
{
  (void) context;
  seen = number;
  where = about->si_addr;
  siglongjmp(back, 1);
}

static void sent(int number)
{
  seen = number;
}

static void install(void (*handler)(int), void (*with_info)(int, siginfo_t *, void *))
{
  struct sigaction action = {.sa_flags = with_info ? SA_SIGINFO : 0};
  if (with_info)
    action.sa_sigaction = with_info;
  else
    action.sa_handler = handler;
  sigaction(SIGSEGV, &action, NULL);
}

static void fault(uintptr_t at)
{
  seen = 0;
  if (sigsetjmp(back, 1) == 0) *(volatile long *) at = 1;
  CHECK(seen == SIGSEGV, "%d", seen);
}

static void alarmed(int number)
{
  (void) number;
  siglongjmp(back, 1);
}

int main(int argc, char **argv)
{
  const char *which = argc > 1 ? argv[1] : "";
  if (!strcmp(which, "plain") || !strcmp(which, "jump") || !strcmp(which, "heap")) install(plain, NULL);
  if (!strcmp(which, "info")) install(NULL, info);
  if (!strcmp(which, "sent")) install(sent, NULL);
  begin();
  if (!strcmp(which, "later")) install(plain, NULL);
  shmem_long_p(&word, 1, 0);
  if (!strcmp(which, "none")) *(volatile long *) (uintptr_t) 8 = 1;
  if (!strcmp(which, "heap") || !strcmp(which, "heap, no handler")) {
    /* In the symmetric heap's addresses, where no memory is yet: the runtime has a text for it. */
    char *memory = shmem_malloc(4096);
    fault((uintptr_t) memory + (256 << 20));
    shmem_free(memory);
    /* The library's own text is as it was. */
    shmem_long_put(&word, (long *) (uintptr_t) 16, 1, 0);
  }
  if (!strcmp(which, "sent")) {
    raise(SIGSEGV);
    CHECK(seen == SIGSEGV, "%d", seen);
  } else if (!strcmp(which, "jump")) {
    /* Out of a call that waits for ever. */
    signal(SIGALRM, alarmed);
    alarm(1);
    if (sigsetjmp(back, 1) == 0) shmem_long_wait_until(&word, SHMEM_CMP_EQ, 77);
    for (int i = 0; i < 3; i++) fault(8);
  } else {
    /* More than once: the handler stays. */
    for (int i = 0; i < 3; i++) fault(8 + (unsigned) i);
    if (!strcmp(which, "info")) CHECK(where == (void *) 10, "%p", where);
  }
  /* The library goes on. */
  shmem_long_p(&word, 5, 0);
  CHECK(shmem_long_g(&word, 0) == 5, "the word");
  printf("%s: all well\n", which);
  shmem_finalize();
  return 0;
}
