/* Every C11 type-generic form, or C++ overload, of every type that it has: with a context and without. */
#ifndef FORMS_H
#define FORMS_H

#include "check.h"

#define MOVES(T, N)                                                                                          \
  static void moves_##N(shmem_ctx_t ctx)                                                                     \
  {                                                                                                          \
    static T there[8], all[8 * 8];                                                                           \
    static uint64_t sig;                                                                                     \
    const T mine[8] = {1, 2, 3, 4, 5, 6, 7, 8}, *const from = there;                                         \
    T back[8] = {0};                                                                                         \
    shmem_put(there, mine, 1, next), shmem_put(ctx, there + 1, mine + 1, 1, next);                           \
    shmem_p(there + 2, mine[2], next), shmem_p(ctx, there + 3, mine[3], next);                               \
    shmem_put_signal(there + 4, mine + 4, 1, &sig, 1, SHMEM_SIGNAL_ADD, next);                               \
    shmem_put_signal(ctx, there + 5, mine + 5, 1, &sig, 1, SHMEM_SIGNAL_ADD, next);                          \
    shmem_put_signal_nbi(there + 6, mine + 6, 1, &sig, 1, SHMEM_SIGNAL_ADD, next);                           \
    shmem_put_signal_nbi(ctx, there + 7, mine + 7, 1, &sig, 1, SHMEM_SIGNAL_ADD, next);                      \
    shmem_signal_wait_until(&sig, SHMEM_CMP_EQ, 4);                                                          \
    shmem_barrier_all();                                                                                     \
    shmem_get(back, from, 1, next), shmem_get(ctx, back + 1, from + 1, 1, next);                             \
    back[2] = shmem_g(from + 2, next), back[3] = shmem_g(ctx, from + 3, next);                               \
    shmem_iget(back + 4, from + 4, 1, 1, 1, next), shmem_iget(ctx, back + 5, from + 5, 1, 1, 1, next);       \
    shmem_get_nbi(back + 6, from + 6, 1, next), shmem_get_nbi(ctx, back + 7, from + 7, 1, next);             \
    shmem_quiet(), shmem_ctx_quiet(ctx);                                                                     \
    for (int i = 0; i < 8; i++) CHECK(there[i] == mine[i] && back[i] == mine[i], #N " %d", i);               \
    shmem_barrier_all();                                                                                     \
    shmem_iput(there + 7, mine, 1, 1, 1, next), shmem_iput(ctx, there + 6, mine + 1, 1, 1, 1, next);         \
    shmem_ibput(there + 5, mine + 2, 1, 1, 1, 1, next),                                                      \
        shmem_ibput(ctx, there + 4, mine + 3, 1, 1, 1, 1, next);                                             \
    shmem_put_nbi(there + 3, mine + 4, 1, next), shmem_put_nbi(ctx, there + 2, mine + 5, 1, next);           \
    shmem_ctx_quiet(ctx);                                                                                    \
    shmem_barrier_all();                                                                                     \
    shmem_ibget(back, from, 8, 8, 4, 1, next), shmem_ibget(ctx, back + 4, from + 4, 4, 4, 4, 1, next);       \
    for (int i = 2; i < 8; i++) CHECK(there[i] == mine[7 - i] && back[i] == mine[7 - i], #N " %d", i);       \
    CHECK(!shmem_broadcast(SHMEM_TEAM_WORLD, all, from + 2, 1, n - 1) && all[0] == mine[5], #N);             \
    CHECK(!shmem_collect(SHMEM_TEAM_WORLD, all, from + 3, 1) && all[n - 1] == mine[4], #N);                  \
    CHECK(!shmem_fcollect(SHMEM_TEAM_WORLD, all, from + 4, 1) && all[n - 1] == mine[3], #N);                 \
    for (int i = 0; i < 8; i++) there[i] = mine[i];                                                          \
    CHECK(!shmem_alltoall(SHMEM_TEAM_WORLD, all, from, 1) && all[n - 1] == mine[me], #N);                    \
    CHECK(!shmem_alltoalls(SHMEM_TEAM_WORLD, all, from, 2, 1, 1) && all[2 * n - 2] == mine[me], #N);         \
    shmem_barrier_all();                                                                                     \
  }
FOR_RMA(MOVES)

#define SWAPS(T, N)                                                                                          \
  static void swaps_##N(shmem_ctx_t ctx)                                                                     \
  {                                                                                                          \
    static T word;                                                                                           \
    T a, b;                                                                                                  \
    shmem_atomic_set(&word, (T) 3, me), shmem_atomic_set(ctx, &word, (T) 4, me), shmem_ctx_quiet(ctx);       \
    CHECK(shmem_atomic_fetch(&word, me) == 4 && shmem_atomic_fetch(ctx, (const T *) &word, me) == 4, #N);    \
    CHECK(shmem_atomic_swap(&word, (T) 5, me) == 4 && shmem_atomic_swap(ctx, &word, (T) 6, me) == 5, #N);    \
    shmem_atomic_fetch_nbi(&a, &word, me), shmem_atomic_fetch_nbi(ctx, &b, &word, me);                       \
    shmem_quiet(), shmem_ctx_quiet(ctx);                                                                     \
    CHECK(a == 6 && b == 6, #N);                                                                             \
    shmem_atomic_swap_nbi(&a, &word, (T) 7, me), shmem_quiet();                                              \
    shmem_atomic_swap_nbi(ctx, &b, &word, (T) 8, me), shmem_ctx_quiet(ctx);                                  \
    CHECK(a == 6 && b == 7 && word == 8, #N);                                                                \
  }
FOR_EXTENDED_AMO(SWAPS)

#define ADDS(T, N)                                                                                           \
  static void adds_##N(shmem_ctx_t ctx)                                                                      \
  {                                                                                                          \
    static T word;                                                                                           \
    T a, b;                                                                                                  \
    shmem_atomic_inc(&word, me), shmem_atomic_inc(ctx, &word, me);                                           \
    shmem_atomic_add(&word, (T) 2, me), shmem_atomic_add(ctx, &word, (T) 3, me), shmem_ctx_quiet(ctx);       \
    shmem_quiet();                                                                                           \
    CHECK(shmem_atomic_fetch_inc(&word, me) == 7 && shmem_atomic_fetch_inc(ctx, &word, me) == 8, #N);        \
    CHECK(shmem_atomic_fetch_add(&word, (T) 1, me) == 9, #N);                                                \
    CHECK(shmem_atomic_fetch_add(ctx, &word, (T) 1, me) == 10, #N);                                          \
    CHECK(shmem_atomic_compare_swap(&word, (T) 11, (T) 20, me) == 11, #N);                                   \
    CHECK(shmem_atomic_compare_swap(ctx, &word, (T) 19, (T) 30, me) == 20, #N);                              \
    shmem_atomic_fetch_inc_nbi(&a, &word, me), shmem_quiet();                                                \
    shmem_atomic_fetch_inc_nbi(ctx, &b, &word, me), shmem_ctx_quiet(ctx);                                    \
    CHECK(a == 20 && b == 21, #N);                                                                           \
    shmem_atomic_fetch_add_nbi(&a, &word, (T) 3, me), shmem_quiet();                                         \
    shmem_atomic_fetch_add_nbi(ctx, &b, &word, (T) 3, me), shmem_ctx_quiet(ctx);                             \
    CHECK(a == 22 && b == 25, #N);                                                                           \
    shmem_atomic_compare_swap_nbi(&a, &word, (T) 28, (T) 1, me), shmem_quiet();                              \
    shmem_atomic_compare_swap_nbi(ctx, &b, &word, (T) 28, (T) 1, me), shmem_ctx_quiet(ctx);                  \
    CHECK(a == 28 && b == 1 && word == 1, #N);                                                               \
    size_t at[1];                                                                                            \
    const T one[1] = {1};                                                                                    \
    shmem_wait_until_all(&word, 1, NULL, SHMEM_CMP_EQ, (T) 1);                                               \
    shmem_wait_until_all_vector(&word, 1, NULL, SHMEM_CMP_EQ, one);                                          \
    CHECK(shmem_wait_until_any(&word, 1, NULL, SHMEM_CMP_EQ, (T) 1) == 0, #N);                               \
    CHECK(shmem_wait_until_any_vector(&word, 1, NULL, SHMEM_CMP_EQ, one) == 0, #N);                          \
    CHECK(shmem_wait_until_some(&word, 1, at, NULL, SHMEM_CMP_EQ, (T) 1) == 1, #N);                          \
    CHECK(shmem_wait_until_some_vector(&word, 1, at, NULL, SHMEM_CMP_EQ, one) == 1, #N);                     \
    CHECK(shmem_test_all(&word, 1, NULL, SHMEM_CMP_EQ, (T) 1) == 1, #N);                                     \
    CHECK(shmem_test_all_vector(&word, 1, NULL, SHMEM_CMP_EQ, one) == 1, #N);                                \
    CHECK(shmem_test_any(&word, 1, NULL, SHMEM_CMP_EQ, (T) 1) == 0, #N);                                     \
    CHECK(shmem_test_any_vector(&word, 1, NULL, SHMEM_CMP_EQ, one) == 0, #N);                                \
    CHECK(shmem_test_some(&word, 1, at, NULL, SHMEM_CMP_EQ, (T) 1) == 1, #N);                                \
    CHECK(shmem_test_some_vector(&word, 1, at, NULL, SHMEM_CMP_EQ, one) == 1, #N);                           \
  }
FOR_AMO(ADDS)

#define MASKS(T, N)                                                                                          \
  static void masks_##N(shmem_ctx_t ctx)                                                                     \
  {                                                                                                          \
    static T word = 1;                                                                                       \
    T a, b;                                                                                                  \
    shmem_atomic_or(&word, (T) 2, me), shmem_atomic_or(ctx, &word, (T) 12, me), shmem_ctx_quiet(ctx);        \
    shmem_atomic_and(&word, (T) 14, me), shmem_atomic_and(ctx, &word, (T) 7, me), shmem_ctx_quiet(ctx);      \
    shmem_atomic_xor(&word, (T) 1, me), shmem_atomic_xor(ctx, &word, (T) 2, me), shmem_ctx_quiet(ctx);       \
    shmem_quiet();                                                                                           \
    CHECK(shmem_atomic_fetch_or(&word, (T) 2, me) == 5, #N);                                                 \
    CHECK(shmem_atomic_fetch_or(ctx, &word, (T) 8, me) == 7, #N);                                            \
    CHECK(shmem_atomic_fetch_and(&word, (T) 14, me) == 15, #N);                                              \
    CHECK(shmem_atomic_fetch_and(ctx, &word, (T) 7, me) == 14, #N);                                          \
    CHECK(shmem_atomic_fetch_xor(&word, (T) 1, me) == 6, #N);                                                \
    CHECK(shmem_atomic_fetch_xor(ctx, &word, (T) 1, me) == 7, #N);                                           \
    shmem_atomic_fetch_or_nbi(&a, &word, (T) 1, me), shmem_quiet();                                          \
    shmem_atomic_fetch_or_nbi(ctx, &b, &word, (T) 8, me), shmem_ctx_quiet(ctx);                              \
    CHECK(a == 6 && b == 7, #N);                                                                             \
    shmem_atomic_fetch_and_nbi(&a, &word, (T) 14, me), shmem_quiet();                                        \
    shmem_atomic_fetch_and_nbi(ctx, &b, &word, (T) 7, me), shmem_ctx_quiet(ctx);                             \
    CHECK(a == 15 && b == 14, #N);                                                                           \
    shmem_atomic_fetch_xor_nbi(&a, &word, (T) 1, me), shmem_quiet();                                         \
    shmem_atomic_fetch_xor_nbi(ctx, &b, &word, (T) 1, me), shmem_ctx_quiet(ctx);                             \
    CHECK(a == 6 && b == 7 && word == 6, #N);                                                                \
  }
FOR_BITWISE_AMO(MASKS)

#define WAITS(T, N)                                                                                          \
  static void waits_##N(void)                                                                                \
  {                                                                                                          \
    static T word = 3;                                                                                       \
    shmem_wait_until(&word, SHMEM_CMP_GT, (T) 2);                                                            \
    CHECK(shmem_test(&word, SHMEM_CMP_NE, (T) 2) == 1, #N);                                                  \
  }
FOR_WAIT(WAITS)

#define REDUCES(T, N)                                                                                        \
  static void reduces_##N(void)                                                                              \
  {                                                                                                          \
    static T to[1], from[1] = {2};                                                                           \
    CHECK(!shmem_max_reduce(SHMEM_TEAM_WORLD, to, from, 1) && to[0] == 2, #N);                               \
    CHECK(!shmem_min_reduce(SHMEM_TEAM_WORLD, to, from, 1) && to[0] == 2, #N);                               \
    CHECK(!shmem_sum_reduce(SHMEM_TEAM_WORLD, to, from, 1) && to[0] == (T) (2 * n), #N);                     \
    from[0] = 1;                                                                                             \
    CHECK(!shmem_prod_reduce(SHMEM_TEAM_WORLD, to, from, 1) && to[0] == 1, #N);                              \
    CHECK(!shmem_sum_inscan(SHMEM_TEAM_WORLD, to, from, 1) && to[0] == (T) (me + 1), #N);                    \
    CHECK(!shmem_sum_exscan(SHMEM_TEAM_WORLD, to, from, 1) && to[0] == (T) me, #N);                          \
  }
#define COMBINES(T, N)                                                                                       \
  static void combines_##N(void)                                                                             \
  {                                                                                                          \
    static T to[1], from[1];                                                                                 \
    from[0] = (T) (me == 0 ? 3 : 2);                                                                         \
    CHECK(!shmem_and_reduce(SHMEM_TEAM_WORLD, to, from, 1) && to[0] == (n > 1 ? 2 : 3), #N);                 \
    CHECK(!shmem_or_reduce(SHMEM_TEAM_WORLD, to, from, 1) && to[0] == 3, #N);                                \
    CHECK(!shmem_xor_reduce(SHMEM_TEAM_WORLD, to, from, 1) && to[0] == (n % 2 ? 3 : 1), #N);                 \
  }
FOR_REDUCE_BITS(COMBINES)

#define OLD_SWAPS(T, N)                                                                                      \
  static void old_swaps_##N(void)                                                                            \
  {                                                                                                          \
    static T word;                                                                                           \
    shmem_set(&word, (T) 3, me);                                                                             \
    CHECK(shmem_swap(&word, (T) 4, me) == 3 && shmem_fetch(&word, me) == 4, #N);                             \
  }
FOR_OLD_EXTENDED_AMO(OLD_SWAPS)
#define OLD_ADDS(T, N)                                                                                       \
  static void old_adds_##N(void)                                                                             \
  {                                                                                                          \
    static T word;                                                                                           \
    shmem_inc(&word, me), shmem_add(&word, (T) 2, me), shmem_quiet();                                        \
    CHECK(shmem_finc(&word, me) == 3 && shmem_fadd(&word, (T) 2, me) == 4, #N);                              \
    CHECK(shmem_cswap(&word, (T) 6, (T) 7, me) == 6 && word == 7, #N);                                       \
  }
FOR_OLD_AMO(OLD_ADDS)

/* The order takes real numbers as well as integers. */
FOR_REDUCE_ORDER(REDUCES)

static void every_form(void)
{
  shmem_ctx_t ctx;
  CHECK(shmem_ctx_create(0, &ctx) == 0, "a context");
#define RUN_MOVES(T, N) moves_##N(ctx);
  FOR_RMA(RUN_MOVES)
#define RUN_SWAPS(T, N) swaps_##N(ctx);
  FOR_EXTENDED_AMO(RUN_SWAPS)
#define RUN_ADDS(T, N) adds_##N(ctx);
  FOR_AMO(RUN_ADDS)
#define RUN_MASKS(T, N) masks_##N(ctx);
  FOR_BITWISE_AMO(RUN_MASKS)
#define RUN_WAITS(T, N) waits_##N();
  FOR_WAIT(RUN_WAITS)
#define RUN_REDUCES(T, N) reduces_##N();
  FOR_REDUCE_ORDER(RUN_REDUCES)
#define RUN_COMBINES(T, N) combines_##N();
  FOR_REDUCE_BITS(RUN_COMBINES)
#define RUN_OLD_SWAPS(T, N) old_swaps_##N();
  FOR_OLD_EXTENDED_AMO(RUN_OLD_SWAPS)
#define RUN_OLD_ADDS(T, N) old_adds_##N();
  FOR_OLD_AMO(RUN_OLD_ADDS)
  static uint64_t sig;
  shmem_signal_set(ctx, &sig, 3, me), shmem_ctx_quiet(ctx), shmem_signal_add(ctx, &sig, 4, me);
  shmem_ctx_quiet(ctx);
  CHECK(shmem_signal_fetch(&sig) == 7, "a signal");
  shmem_ctx_destroy(ctx);
  shmem_barrier_all();
}

#endif
