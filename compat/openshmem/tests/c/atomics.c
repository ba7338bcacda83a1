/* Atomics: each PE changes a word of the next one, which nobody else does, and keeps a plain model of it;
 * then all PEs add to one word. Words are static, and on the heap. */
#include "check.h"

#define FETCHED(N, call) CHECK((call) == model, #N ": " #call)

#define EXTENDED(T, N)                                                                                       \
  static void extended_##N(T *word, shmem_ctx_t ctx)                                                         \
  {                                                                                                          \
    T model = 5, got;                                                                                        \
    shmem_##N##_atomic_set(word, 5, next);                                                                   \
    FETCHED(N, shmem_##N##_atomic_fetch(word, next));                                                        \
    FETCHED(N, shmem_ctx_##N##_atomic_swap(ctx, word, 9, next));                                             \
    model = 9;                                                                                               \
    shmem_##N##_atomic_swap_nbi(&got, word, 11, next);                                                       \
    shmem_quiet();                                                                                           \
    FETCHED(N, got);                                                                                         \
    model = 11;                                                                                              \
    shmem_ctx_##N##_atomic_fetch_nbi(ctx, &got, word, next);                                                 \
    shmem_ctx_quiet(ctx);                                                                                    \
    FETCHED(N, got);                                                                                         \
    shmem_barrier_all();                                                                                     \
    CHECK(*word == 11, #N);                                                                                  \
    shmem_barrier_all();                                                                                     \
  }
#define STANDARD(T, N)                                                                                       \
  static T N##_static;                                                                                       \
  static void standard_##N(T *word, shmem_ctx_t ctx)                                                         \
  {                                                                                                          \
    T model = 0, got;                                                                                        \
    *word = 0;                                                                                               \
    shmem_barrier_all();                                                                                     \
    for (int i = 0; i < 30; i++) {                                                                           \
      const T value = (T) (number(me, i, 3) * 1000003);                                                      \
      switch (number(me, i, 4) % 9) {                                                                        \
      case 0: shmem_##N##_atomic_add(word, value, next), model = (T) (model + value); break;                 \
      case 1: shmem_ctx_##N##_atomic_inc(ctx, word, next), model = (T) (model + 1); break;                   \
      case 2: FETCHED(N, shmem_##N##_atomic_fetch_inc(word, next)); model = (T) (model + 1); break;          \
      case 3:                                                                                                \
        FETCHED(N, shmem_ctx_##N##_atomic_fetch_add(ctx, word, value, next));                                \
        model = (T) (model + value);                                                                         \
        break;                                                                                               \
      case 4: FETCHED(N, shmem_##N##_atomic_compare_swap(word, model, value, next)); model = value; break;   \
      case 5: FETCHED(N, shmem_##N##_atomic_compare_swap(word, (T) (model + 1), value, next)); break;        \
      case 6:                                                                                                \
        shmem_##N##_atomic_fetch_add_nbi(&got, word, value, next), shmem_quiet();                            \
        FETCHED(N, got); model = (T) (model + value);                                                        \
        break;                                                                                               \
      case 7:                                                                                                \
        shmem_ctx_##N##_atomic_fetch_inc_nbi(ctx, &got, word, next), shmem_ctx_quiet(ctx);                   \
        FETCHED(N, got); model = (T) (model + 1);                                                            \
        break;                                                                                               \
      case 8:                                                                                                \
        shmem_##N##_atomic_compare_swap_nbi(&got, word, model, value, next), shmem_quiet();                  \
        FETCHED(N, got); model = value;                                                                      \
      }                                                                                                      \
      FETCHED(N, shmem_##N##_atomic_fetch(word, next));                                                      \
    }                                                                                                        \
    shmem_barrier_all();                                                                                     \
    *word = 0;                                                                                               \
    shmem_barrier_all();                                                                                     \
    for (int i = 0; i < 20; i++) shmem_##N##_atomic_add(word, (T) (me + 1), i % n);                          \
    shmem_barrier_all();                                                                                     \
    T sum = 0;                                                                                               \
    for (int i = me; i < 20; i += n) sum = (T) (sum + (T) (n * (n + 1) / 2));                                \
    CHECK(*word == sum, #N ": contended adds");                                                              \
    shmem_barrier_all();                                                                                     \
  }
#define BITWISE(T, N)                                                                                        \
  static void bitwise_##N(T *word, shmem_ctx_t ctx)                                                          \
  {                                                                                                          \
    T model = (T) 0x5a5a5a5a, got;                                                                           \
    shmem_##N##_atomic_set(word, model, next);                                                               \
    shmem_##N##_atomic_and(word, (T) 0x0ff0ff0f, next), model &= (T) 0x0ff0ff0f;                             \
    shmem_ctx_##N##_atomic_or(ctx, word, (T) 0x11001100, next), model |= (T) 0x11001100;                     \
    shmem_##N##_atomic_xor(word, (T) 0x12345678, next), model ^= (T) 0x12345678;                             \
    FETCHED(N, shmem_##N##_atomic_fetch_and(word, (T) 0x7fffffff, next)); model &= (T) 0x7fffffff;           \
    FETCHED(N, shmem_ctx_##N##_atomic_fetch_or(ctx, word, (T) 3, next)); model |= (T) 3;                     \
    FETCHED(N, shmem_##N##_atomic_fetch_xor(word, (T) 0xf0f0, next)); model ^= (T) 0xf0f0;                   \
    shmem_##N##_atomic_fetch_and_nbi(&got, word, (T) 0xffffff, next), shmem_quiet();                         \
    FETCHED(N, got); model &= (T) 0xffffff;                                                                  \
    shmem_##N##_atomic_fetch_or_nbi(&got, word, (T) 0x8000000, next), shmem_quiet();                         \
    FETCHED(N, got); model |= (T) 0x8000000;                                                                 \
    shmem_ctx_##N##_atomic_fetch_xor_nbi(ctx, &got, word, (T) 1, next), shmem_ctx_quiet(ctx);                \
    FETCHED(N, got); model ^= (T) 1;                                                                         \
    FETCHED(N, shmem_##N##_atomic_fetch(word, next));                                                        \
    shmem_barrier_all();                                                                                     \
  }
/* Names that 1.4 deprecated. */
#define OLD(T, N)                                                                                            \
  static void old_##N(T *word)                                                                               \
  {                                                                                                          \
    T model = 1;                                                                                             \
    shmem_##N##_set(word, 1, next);                                                                          \
    shmem_##N##_add(word, 4, next), model += 4;                                                              \
    shmem_##N##_inc(word, next), model += 1;                                                                 \
    FETCHED(N, shmem_##N##_fadd(word, 2, next)); model += 2;                                                 \
    FETCHED(N, shmem_##N##_finc(word, next)); model += 1;                                                    \
    FETCHED(N, shmem_##N##_cswap(word, model, 40, next)); model = 40;                                        \
    FETCHED(N, shmem_##N##_swap(word, 50, next)); model = 50;                                                \
    FETCHED(N, shmem_##N##_fetch(word, next));                                                               \
    shmem_barrier_all();                                                                                     \
  }

FOR_EXTENDED_AMO(EXTENDED)
FOR_AMO(STANDARD)
FOR_BITWISE_AMO(BITWISE)
FOR_OLD_AMO(OLD)

int main(void)
{
  begin();
  shmem_ctx_t ctx;
  CHECK(shmem_ctx_create(0, &ctx) == 0, "a context");
  double *heap = shmem_calloc(1, sizeof *heap);
#define RUN_EXTENDED(T, N) extended_##N((T *) heap, ctx);
#define RUN_STANDARD(T, N) standard_##N((T *) heap, ctx), standard_##N(&N##_static, ctx);
#define RUN_BITWISE(T, N) bitwise_##N(&N##_static, ctx);
#define RUN_OLD(T, N) old_##N(&N##_static);
  FOR_EXTENDED_AMO(RUN_EXTENDED)
  FOR_AMO(RUN_STANDARD)
  FOR_BITWISE_AMO(RUN_BITWISE)
  FOR_OLD_AMO(RUN_OLD)
  shmem_ctx_destroy(ctx);
  return end();
}
