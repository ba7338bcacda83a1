/* A quiet or a fence of one context waits for nothing of another's. Where PEs are far from each other, PE 0
 * stops PE 1, so that what it puts there cannot arrive, and then uses and completes other contexts. */
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "check.h"

enum { COUNT = 1 << 17 };
static long pid_of_next, inbox[COUNT], word, other;

/* Whether all threads of the process have stopped. */
static int has_stopped(long pid)
{
  char name[64], text[512] = "";
  snprintf(name, sizeof name, "/proc/%ld/stat", pid);
  FILE *file = fopen(name, "r");
  if (!file) return 0;
  const size_t got = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  const char *behind = got ? strrchr(text, ')') : NULL;
  return behind && behind[2] == 'T';
}

static void random_operations(shmem_ctx_t *ctx, int contexts)
{
  static long theirs[64], values[64];
  for (int round = 0; round < 50; round++) {
    for (int i = 0; i < contexts; i++) {
      const int length = number(me, round, i) % 16;
      for (int k = 0; k < length; k++) values[16 * i + k] = number(me, round, 100 * i + k);
      shmem_ctx_long_put_nbi(ctx[i], theirs + 16 * i, values + 16 * i, (size_t) length, next);
      if (length % 3 == 0) shmem_ctx_fence(ctx[i]);
    }
    /* Each in an order of its own; what it has put is there, and its sources are free. */
    for (int k = 0; k < contexts; k++) {
      const int i = (k * 3 + round) % contexts, length = number(me, round, i) % 16;
      long back[16];
      shmem_ctx_quiet(ctx[i]);
      shmem_ctx_long_get(ctx[i], back, theirs + 16 * i, (size_t) length, next);
      CHECK(!memcmp(back, values + 16 * i, (size_t) length * sizeof *back), "round %d, context %d", round, i);
    }
    shmem_barrier_all();
  }
}

int main(void)
{
  begin();
  shmem_ctx_t ctx[4];
  for (int i = 0; i < 4; i++) CHECK(shmem_ctx_create(i % 2 ? SHMEM_CTX_PRIVATE : 0, &ctx[i]) == 0, "context");
  random_operations(ctx, 4);
  shmem_long_p(&pid_of_next, getpid(), prev);
  shmem_barrier_all();
  if (me == 0 && n >= 2 && !shmem_ptr(inbox, next)) {
    static long source[COUNT];
    for (int i = 0; i < COUNT; i++) source[i] = number(me, i, 2);
    /* Whose operations are complete. */
    shmem_ctx_long_p(ctx[2], &word, 5, next);
    shmem_ctx_quiet(ctx[2]);
    CHECK(kill((pid_t) pid_of_next, SIGSTOP) == 0, "stopping PE 1: %s", strerror(errno));
    while (!has_stopped(pid_of_next)) usleep(100);
    /* It would otherwise wait as long as PE 1 sleeps. */
    alarm(20);
    shmem_ctx_long_put_nbi(ctx[1], inbox, source, COUNT, next);
    for (int i = 0; i < 1000; i++) {
      shmem_ctx_fence(ctx[0]);
      shmem_ctx_quiet(ctx[0]);
      shmem_ctx_pe_quiet(ctx[2], &next, 1);
    }
    shmem_ctx_destroy(ctx[2]);
    /* Where there is a third PE far away, contexts work with it meanwhile, the default one among them. */
    const int third = n > 2 && !shmem_ptr(&word, 2) ? 2 : 0;
    for (long i = 1; third && i <= 100; i++) {
      const shmem_ctx_t by = i % 2 ? ctx[0] : SHMEM_CTX_DEFAULT;
      shmem_ctx_long_put_nbi(by, &word, &i, 1, third);
      shmem_ctx_fence(by);
      shmem_ctx_long_atomic_add(by, &other, i, third);
      shmem_ctx_quiet(by);
      CHECK(shmem_long_g(&word, third) == i, "round %ld", i);
      CHECK(shmem_ctx_long_g(ctx[3], &other, third) == i * (i + 1) / 2, "round %ld", i);
    }
    alarm(0);
    CHECK(kill((pid_t) pid_of_next, SIGCONT) == 0, "PE 1 goes on: %s", strerror(errno));
    shmem_ctx_quiet(ctx[1]);
    static long back[COUNT];
    shmem_long_get(back, inbox, COUNT, next);
    CHECK(!memcmp(back, source, sizeof back), "what context 1 has put");
    CHECK(shmem_long_g(&word, next) == 5, "what context 2 has put");
    printf("a quiet beside another context's put\n");
  } else
    shmem_ctx_destroy(ctx[2]);
  for (int i = 0; i < 4; i++)
    if (i != 2) shmem_ctx_destroy(ctx[i]);
  return end();
}
