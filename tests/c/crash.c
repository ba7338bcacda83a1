/* Faults in calls of rushmem's and at addresses of its memory have a text, and end the process as they would
 * have; others are the program's own. Each is a process of its own, made before any world begins. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static const char constant[] = "a text that may only be read, so that a get cannot write it, however long it is .......";

static void ends(int signal)
{
  (void)signal;
  static const char said[] = "THE PROGRAM'S HANDLER\n";
  if (write(2, said, sizeof said - 1) < 0) _exit(45);
  _exit(44);
}

static void handle(void)
{
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = ends;
  CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
}

static void *volatile nowhere = (void *)0x5000000000;

static void put_wild(rushmem_world_t *w, char *memory)
{
  OK(rushmem_put(w, memory, nowhere, 64, me)); /* put_wild */
}

static void put_wild_on_stream(rushmem_world_t *w, char *memory)
{
  OK(rushmem_put_on_stream(w, memory, nowhere, 64, me, NULL)); /* put_wild_on_stream */
  OK(rushmem_stream_synchronize(w, NULL));
}

static void get_constant(rushmem_world_t *w, char *memory)
{
  OK(rushmem_get(w, (void *)(uintptr_t)constant, memory, 64, me)); /* get_constant */
}

static void store_outside(rushmem_world_t *w, char *memory)
{
  (void)w;
  *(volatile char *)(memory + (1 << 30)) = 1; /* store_outside */
}

static void store_null(rushmem_world_t *w, char *memory)
{
  (void)w, (void)memory;
  char *volatile at = NULL;
  *(volatile char *)(at + 16) = 1;
}

static void handler_of_later(rushmem_world_t *w, char *memory)
{
  handle();
  put_wild(w, memory);
}

/* 40 KiB down, as in a driver's or its compiler's frames. */
static int32_t deep(void)
{
  volatile char frame[40 << 10];
  for (size_t i = 0; i < sizeof frame; i += 1024) frame[i] = (char)i;
  char *volatile at = NULL;
  return *(volatile char *)(at + 16) + frame[1024];
}

static void wait_deep(rushmem_world_t *w, char *memory)
{
  OK(rushmem_on_wait(deep));
  OK(rushmem_signal_wait_until(w, (uint64_t *)memory, RUSHMEM_CMP_EQ, 7, NULL)); /* wait_deep */
}

struct fault {
  const char *name;
  void (*make)(rushmem_world_t *w, char *memory);
  int handles_before, code; /* exit code, or 0 for SIGSEGV */
  const char *says[4];
};

static const struct fault faults[] = {
    {"put_wild", put_wild, 0, 0, {", in rushmem_put() called at ", " in put_wild: SIGSEGV: it reads address 0x50000000", "nothing is mapped there", "PE 0 ("}},
    {"put_wild_on_stream", put_wild_on_stream, 0, 0, {", in rushmem_put_on_stream() called at ", " in put_wild_on_stream, on thread `rushmem-stream`: SIGSEGV: it reads address 0x50000000", "it must stay until the stream has come to it", "nothing is mapped there"}},
    {"get_constant", get_constant, 0, 0, {", in rushmem_get() called at ", " in get_constant: SIGSEGV: it writes address 0x", "which may only be read", NULL}},
    {"store_outside", store_outside, 0, 0, {" in store_outside: SIGSEGV: it writes address 0x", "PE 0's heap, at offset 0x4", " bytes behind the end of the allocation of 400 bytes at offset 0x", NULL}},
    {"store_null", store_null, 0, 0, {NULL}},
    {"wait_deep", wait_deep, 0, 0, {", in rushmem_signal_wait_until() called at ", " in wait_deep: SIGSEGV: it reads address 0x10", NULL}},
    {"handler_of_later", handler_of_later, 0, 44, {NULL, "THE PROGRAM'S HANDLER"}},
    {"put_wild", put_wild, 1, 44, {", in rushmem_put() called at ", "THE PROGRAM'S HANDLER", NULL}},
};

/* The number of the line of this file that ends in the mark. */
static int line_of(const char *name)
{
  char mark[80], text[400];
  snprintf(mark, sizeof mark, "/* %s */\n", name);
  FILE *file = fopen(__FILE__, "r");
  CHECK(file);
  for (int line = 1; fgets(text, sizeof text, file); line++)
    if (strlen(text) > strlen(mark) && !strcmp(text + strlen(text) - strlen(mark), mark)) return fclose(file), line;
  CHECK(!"the mark is in the file");
  return 0;
}

static void play(const struct fault *fault)
{
  if (fault->handles_before) handle();
  rushmem_world_t *w = start();
  void *memory = NULL;
  OK(rushmem_alloc(w, 400, 0, &memory));
  fault->make(w, memory);
  fprintf(stderr, "IT GOES ON\n");
  _exit(0);
}

static void check(const struct fault *fault)
{
  int ends_of[2];
  CHECK(pipe(ends_of) == 0);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm(50);
    CHECK(dup2(ends_of[1], 2) == 2);
    close(ends_of[0]);
    close(ends_of[1]);
    play(fault);
  }
  close(ends_of[1]);
  static char text[1 << 16];
  size_t used = 0;
  for (ssize_t got; (got = read(ends_of[0], text + used, sizeof text - 1 - used)) > 0;) used += (size_t)got;
  text[used] = '\0';
  close(ends_of[0]);
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  fprintf(stderr, "%s:\n%s", fault->name, text);
  if (fault->code) CHECK(WIFEXITED(status) && WEXITSTATUS(status) == fault->code);
  else CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
  const char *first = strstr(text, "rushmem [error]");
  CHECK(!first == !fault->says[0]);
  CHECK(!first || !strstr(first + 1, "rushmem [error]"));
  for (size_t i = 0; i < sizeof fault->says / sizeof *fault->says; i++)
    if (fault->says[i] && !strstr(text, fault->says[i])) check_failed(__FILE__, __LINE__, fault->says[i]);
  if (first) {
    char line[40];
    snprintf(line, sizeof line, "crash.c:%d in ", line_of(fault->name));
    if (!strstr(first, line)) check_failed(__FILE__, __LINE__, line);
  }
}

int main(void)
{
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) check(&faults[i]);
  puts("all faults have their text");
  return 0;
}
