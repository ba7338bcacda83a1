/* What the C test programs share: a check that says where and why it failed, and leaves at once, so that the
 * other PEs end too. */
#ifndef CHECK_H
#define CHECK_H

#include <rushmem.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int me = -1, n = -1;

static void check_failed(const char *file, int line, const char *what)
{
  fprintf(stderr, "PE %d: %s:%d: %s; last error: %s\n", me, file, line, what, rushmem_last_error());
  exit(1);
}

#define CHECK(condition)                                                 \
  do {                                                                   \
    if (!(condition)) check_failed(__FILE__, __LINE__, #condition);      \
  } while (0)

/* The call succeeds. */
#define OK(call)                                                         \
  do {                                                                   \
    const int32_t check_rc = (call);                                     \
    if (check_rc != RUSHMEM_OK) {                                        \
      fprintf(stderr, "%s: ", rushmem_error_name(check_rc));             \
      check_failed(__FILE__, __LINE__, #call);                           \
    }                                                                    \
  } while (0)

/* The call fails with that code and says something about `word`. */
#define FAILS(call, code, word)                                          \
  do {                                                                   \
    const int32_t check_rc = (call);                                     \
    if (check_rc != (code)) {                                            \
      fprintf(stderr, "%s instead of %s: ", rushmem_error_name(check_rc), rushmem_error_name(code)); \
      check_failed(__FILE__, __LINE__, #call);                           \
    }                                                                    \
    if (!strstr(rushmem_last_error(), word)) check_failed(__FILE__, __LINE__, "the text lacks " word); \
  } while (0)

/* Joins the job that the environment describes. */
static inline rushmem_world_t *start(void)
{
  rushmem_world_t *w = NULL;
  OK(rushmem_init(NULL, &w));
  me = rushmem_my_pe(w);
  n = rushmem_n_pes(w);
  CHECK(me >= 0 && me < n);
  return w;
}

/* Copies this PE's own symmetric memory out, or zeroes it: the heap may be a GPU's, which only the library
 * reaches. */
static inline void look(rushmem_world_t *w, void *copy, const void *sym, size_t bytes)
{
  OK(rushmem_get(w, copy, sym, bytes, me));
}

static inline void blank(rushmem_world_t *w, void *sym, size_t bytes)
{
  static const char zeroes[256] = {0};
  CHECK(bytes <= sizeof zeroes);
  OK(rushmem_put(w, sym, zeroes, bytes, me));
}

static inline int finish(rushmem_world_t *w)
{
  OK(rushmem_finalize(w));
  FAILS(rushmem_finalize(w), RUSHMEM_ERR_BAD_HANDLE, "world");
  printf("PE %d of %d: all well\n", me, n);
  return 0;
}

#endif
