/* Remote memory access: every form of every type, and of every width, on the heap and on static variables. */
#include "check.h"

enum { ROOM = 48 };
static uint64_t signals[2];

/* All places but those that `put` says hold 0. */
#define EXPECT(N, place, value)                                                                              \
  for (int i = 0; i < ROOM; i++) {                                                                           \
    int j = (place);                                                                                         \
    CHECK(dest[i] == (j < 0 ? zero : (value)), "%s, place %d", N, i);                                        \
  }
#define CLEAR()                                                                                              \
  memset(dest, 0, ROOM * sizeof *dest);                                                                      \
  shmem_barrier_all()

#define TEST(T, N)                                                                                           \
  static T N##_static[ROOM];                                                                                 \
  static void test_##N(T *dest, shmem_ctx_t ctx)                                                             \
  {                                                                                                          \
    const T zero = 0;                                                                                        \
    T source[ROOM], result[ROOM];                                                                            \
    for (int i = 0; i < ROOM; i++) source[i] = (T) number(me, i, 0);                                         \
    for (int form = 0; form < 6; form++) {                                                                   \
      CLEAR();                                                                                               \
      switch (form) {                                                                                        \
      case 0: shmem_##N##_put(dest + 3, source, 9, next); break;                                             \
      case 1: shmem_ctx_##N##_put(ctx, dest + 3, source, 9, next); break;                                    \
      case 2: shmem_##N##_put_nbi(dest + 3, source, 9, next); break;                                         \
      case 3: shmem_ctx_##N##_put_nbi(ctx, dest + 3, source, 9, next), shmem_ctx_quiet(ctx); break;          \
      case 4:                                                                                                \
        for (int i = 0; i < 9; i++)                                                                          \
          i % 2 ? shmem_##N##_p(dest + 3 + i, source[i], next)                                               \
                : shmem_ctx_##N##_p(ctx, dest + 3 + i, source[i], next);                                     \
        break;                                                                                               \
      case 5:                                                                                                \
        signals[0] = signals[1] = 0;                                                                         \
        shmem_barrier_all();                                                                                 \
        shmem_##N##_put_signal(dest + 3, source, 4, &signals[0], 5, SHMEM_SIGNAL_SET, next);                 \
        shmem_ctx_##N##_put_signal_nbi(ctx, dest + 7, source + 4, 5, &signals[1], 7, SHMEM_SIGNAL_ADD,       \
                                       next);                                                                \
        CHECK(shmem_signal_wait_until(&signals[0], SHMEM_CMP_EQ, 5) == 5, "a signal");                       \
        CHECK(shmem_signal_wait_until(&signals[1], SHMEM_CMP_GE, 7) == 7, "a signal");                       \
      }                                                                                                      \
      shmem_ctx_quiet(ctx);                                                                                  \
      if (form < 5) shmem_barrier_all();                                                                     \
      EXPECT(#N, i >= 3 && i < 12 ? i - 3 : -1, (T) number(prev, j, 0));                                     \
      shmem_barrier_all();                                                                                   \
    }                                                                                                        \
    CLEAR();                                                                                                 \
    shmem_##N##_iput(dest + 1, source, 3, 2, 7, next);                                                       \
    shmem_ctx_##N##_iput(ctx, dest + 30, source, 2, 1, 5, next);                                             \
    shmem_ctx_quiet(ctx);                                                                                    \
    shmem_barrier_all();                                                                                     \
    EXPECT(#N, i >= 1 && i < 22 && i % 3 == 1 ? (i - 1) / 3 * 2                                              \
               : i >= 30 && i < 40 && i % 2 == 0 ? i / 2 - 15 : -1,                                          \
           (T) number(prev, j, 0));                                                                          \
    shmem_barrier_all();                                                                                     \
    CLEAR();                                                                                                 \
    shmem_##N##_ibput(dest, source, 4, 6, 2, 3, next);                                                       \
    shmem_ctx_##N##_ibput(ctx, dest + 20, source, 5, 3, 2, 3, next);                                         \
    shmem_ctx_quiet(ctx);                                                                                    \
    shmem_barrier_all();                                                                                     \
    EXPECT(#N, i < 12 && i % 4 < 2 ? i / 4 * 6 + i % 4                                                       \
               : i >= 20 && i < 35 && i % 5 < 2 ? (i - 20) / 5 * 3 + i % 5 : -1,                             \
           (T) number(prev, j, 0));                                                                          \
    shmem_barrier_all();                                                                                     \
    for (int i = 0; i < ROOM; i++) dest[i] = (T) number(me, i, 1);                                           \
    shmem_barrier_all();                                                                                     \
    for (int form = 0; form < 7; form++) {                                                                   \
      memset(result, 0, sizeof result);                                                                      \
      switch (form) {                                                                                        \
      case 0: shmem_##N##_get(result, dest + 2, 9, next); break;                                             \
      case 1: shmem_ctx_##N##_get(ctx, result, dest + 2, 9, next); break;                                    \
      case 2: shmem_##N##_get_nbi(result, dest + 2, 9, next), shmem_quiet(); break;                          \
      case 3: shmem_ctx_##N##_get_nbi(ctx, result, dest + 2, 9, next), shmem_ctx_quiet(ctx); break;          \
      case 4:                                                                                                \
        for (int i = 0; i < 9; i++)                                                                          \
          result[i] = i % 2 ? shmem_##N##_g(dest + 2 + i, next)                                              \
                            : shmem_ctx_##N##_g(ctx, dest + 2 + i, next);                                    \
        break;                                                                                               \
      case 5:                                                                                                \
        shmem_##N##_iget(result, dest + 2, 2, 1, 5, next);                                                   \
        shmem_ctx_##N##_iget(ctx, result + 1, dest + 7, 2, 1, 4, next);                                      \
        break;                                                                                               \
      case 6:                                                                                                \
        shmem_##N##_ibget(result, dest + 2, 3, 5, 3, 2, next);                                               \
        shmem_ctx_##N##_ibget(ctx, result + 6, dest + 12, 3, 4, 3, 1, next);                                 \
      }                                                                                                      \
      for (int i = 0; i < 9; i++) {                                                                          \
        int at = form == 5 ? (i % 2 ? 7 + i / 2 : 2 + i / 2) : form == 6 ? 2 + i / 3 * 5 + i % 3 : 2 + i;    \
        CHECK(result[i] == (T) number(next, at, 1), #N ", form %d, place %d", form, i);                      \
      }                                                                                                      \
    }                                                                                                        \
    shmem_barrier_all();                                                                                     \
  }

FOR_RMA(TEST)

/* Widths take any memory: the whole is compared as bytes. */
#define WIDTH(S)                                                                                             \
  do {                                                                                                       \
    memset(to, 0, bytes);                                                                                    \
    shmem_barrier_all();                                                                                     \
    shmem_put##S(to, from, 3, next);                                                                         \
    shmem_ctx_put##S##_nbi(ctx, to + 3 * S / 8, from + 3 * S / 8, 2, next);                                  \
    shmem_iput##S(to + 5 * S / 8, from + 5 * S / 8, 1, 1, 2, next);                                          \
    shmem_ctx_ibput##S(ctx, to + 7 * S / 8, from + 7 * S / 8, 2, 2, 2, 1, next);                             \
    shmem_ctx_quiet(ctx);                                                                                    \
    signals[0] = 0;                                                                                          \
    shmem_barrier_all();                                                                                     \
    shmem_put##S##_signal(to + 9 * S / 8, from + 9 * S / 8, 1, &signals[0], 1, SHMEM_SIGNAL_ADD, next);      \
    shmem_put##S##_signal_nbi(to + 10 * S / 8, from + 10 * S / 8, 1, &signals[0], 1, SHMEM_SIGNAL_ADD,       \
                              next);                                                                         \
    shmem_signal_wait_until(&signals[0], SHMEM_CMP_EQ, 2);                                                   \
    for (int i = 0; i < 11 * S / 8; i++) CHECK(to[i] == number(prev, i, 9), "width " #S ", byte %d", i);     \
    shmem_barrier_all();                                                                                     \
    memset(back, 0, bytes);                                                                                  \
    shmem_get##S(back, to, 3, prev);                                                                         \
    shmem_ctx_get##S##_nbi(ctx, back + 3 * S / 8, to + 3 * S / 8, 2, prev);                                  \
    shmem_iget##S(back + 5 * S / 8, to + 5 * S / 8, 1, 1, 2, prev);                                          \
    shmem_ibget##S(back + 7 * S / 8, to + 7 * S / 8, 2, 2, 2, 2, prev);                                      \
    shmem_quiet();                                                                                           \
    shmem_ctx_quiet(ctx);                                                                                    \
    for (int i = 0; i < 11 * S / 8; i++)                                                                     \
      CHECK(back[i] == number((prev + n - 1) % n, i, 9), "width " #S ", byte %d", i);                        \
    shmem_barrier_all();                                                                                     \
  } while (0)

static void widths(shmem_ctx_t ctx)
{
  enum { bytes = 256 };
  static unsigned char to[bytes] __attribute__((aligned(16)));
  unsigned char from[bytes], back[bytes];
  for (int i = 0; i < bytes; i++) from[i] = (unsigned char) number(me, i, 9);
  WIDTH(8);
  WIDTH(16);
  WIDTH(32);
  WIDTH(64);
  WIDTH(128);
  shmem_putmem(to, from, 33, next);
  shmem_barrier_all();
  shmem_getmem(back, to, 33, prev);
  for (int i = 0; i < 33; i++) CHECK(back[i] == number((prev + n - 1) % n, i, 9), "mem, byte %d", i);
}

int main(void)
{
  begin();
  shmem_ctx_t ctx;
  CHECK(shmem_ctx_create(SHMEM_CTX_SERIALIZED, &ctx) == 0, "a context");
  long double *heap = shmem_malloc(ROOM * sizeof *heap);
#define RUN(T, N) test_##N((T *) heap, ctx), test_##N(N##_static, ctx);
  FOR_RMA(RUN)
  widths(ctx);
  shmem_ctx_destroy(ctx);
  shmem_free(heap);
  return end();
}
