/* What programs share that call every function of an interface with random arguments, of which some make no
 * sense. `_exit` and `rushmem_break` of the library lead here, because the program's functions go before
 * libraries': a refused call comes back, and its text is looked at. A crash ends the program with status 9,
 * a text without the call's name or place with 7; both name the call and the seed. */
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A function, and what calls it. */
struct named {
  const char *name;
  void (*call)(void);
  int one_sided;
};

static unsigned long long state, given_seed;

static unsigned rnd(unsigned n)
{
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (unsigned) (state >> 33) % n;
}
static int some(int a, int b, int c, int d, int e, int f)
{
  const int all[] = {a, b, c, d, e, f};
  return all[rnd(6)];
}
static int some_pe(int n)
{
  const int all[] = {0, n - 1, -1, n, INT_MAX, INT_MIN};
  return all[rnd(4) ? rnd(2) : rnd(6)];
}
static size_t count(void)
{
  const size_t all[] = {0, 1, 5, 33, SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 8 + 1, 1ull << 46, 1ull << 32,
                        INT_MAX};
  return all[rnd(3) ? rnd(4) : rnd(10)];
}
static ptrdiff_t distance(void)
{
  const ptrdiff_t all[] = {1, 2, 3, 0, -1, PTRDIFF_MAX, PTRDIFF_MIN, PTRDIFF_MAX / 8};
  return all[rnd(3) ? rnd(3) : rnd(8)];
}
static int *status(void)
{
  static int flags[64];
  for (int i = 0; i < 64; i++) flags[i] = rnd(3) == 0;
  return rnd(2) ? flags : NULL;
}

static sigjmp_buf back;
static volatile int inside;
static char said[8192];
static const struct named *now;

/* The library's ends. */
void _exit(int status)
{
  if (inside) siglongjmp(back, 1);
  syscall(SYS_exit_group, status);
  __builtin_unreachable();
}
struct rushmem_world_t;
int32_t rushmem_break(struct rushmem_world_t *world, const char *why)
{
  (void) world, (void) why;
  return 0;
}
ssize_t write(int file, const void *bytes, size_t n)
{
  /* A line of SHMEM_DEBUG's trace. */
  if (file == STDERR_FILENO && n > 4 && !memcmp(bytes, "[PE ", 4)) return (ssize_t) n;
  /* The runtime's own lines, and its text of a fault, go out. */
  if (!inside || file != STDERR_FILENO || n < 9 || memcmp(bytes, "rushmem: ", 9)) return syscall(SYS_write, file, bytes, n);
  const size_t kept = n < sizeof said - 1 ? n : sizeof said - 1;
  memcpy(said, bytes, kept);
  said[kept] = 0;
  return (ssize_t) n;
}

static void crashed(int number)
{
  char text[256];
  const char *in = now ? now->name : "no call";
  const int n = snprintf(text, sizeof text, "signal %d in %s (seed %llu)\n", number, in, given_seed);
  syscall(SYS_write, STDERR_FILENO, text, n);
  syscall(SYS_exit_group, 9);
}

/* The seed that RUSHMEM_TEST_SEED gives, and the handlers. */
static void attack_start(void)
{
  const char *given = getenv("RUSHMEM_TEST_SEED");
  given_seed = given ? strtoull(given, NULL, 10) : 1;
  state = given_seed * 2654435761u + 1;
  for (int i = 0; i < 4; i++) signal((int[]){SIGSEGV, SIGBUS, SIGFPE, SIGABRT}[i], crashed);
}

/* The call, or its refusal. */
#define ATTEMPT(call)                                                                                        \
  do {                                                                                                       \
    if (sigsetjmp(back, 1) == 0) inside = 1, (call);                                                         \
    inside = 0;                                                                                              \
  } while (0)

static unsigned returned, refused;

/* Makes the call, which returns or is refused by its name. */
static void attack(const struct named *one)
{
  now = one;
  said[0] = 0;
  if (sigsetjmp(back, 1) == 0) {
    inside = 1;
    now->call();
    inside = 0;
    returned++;
  } else {
    inside = 0;
    refused++;
    /* "rushmem: PE 0: shmem_put: ...; called from ...", without the PE where there is no job. */
    char wanted[128];
    snprintf(wanted, sizeof wanted, "%s: ", now->name);
    if (strncmp(said, "rushmem: ", 9) || !strstr(said, wanted) || !strstr(said, "; called from ")) {
      fprintf(stderr, "%s ends with this text: %s (seed %llu)\n", now->name, said, given_seed);
      syscall(SYS_exit_group, 7);
    }
  }
  now = NULL;
}
