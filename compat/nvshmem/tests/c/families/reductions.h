/* Reductions: of each type some, of one type all operators, for all PEs and for some. */
#ifndef NVSHMEM_TESTS_FAMILIES_REDUCTIONS_H
#define NVSHMEM_TESTS_FAMILIES_REDUCTIONS_H

#include "collectives.h"

static int turns_of_reductions = 1;

#define REDUCE(NAME, T)                                                                     \
  static void reduce_##NAME(char *a, char *b)                                               \
  {                                                                                         \
    T *to = (T *) a, *from = (T *) b, got[48], mine[48];                                    \
    for (int i = 0; i < 4 * n; i++) mine[i] = (T) ((int) VALUE(T, me, i) % 7);              \
    nvshmem_putmem(from, mine, 4 * (size_t) n * sizeof(T), me);                             \
    nvshmem_barrier_all();                                                                  \
    for (int on = 0; on < (sizeof(T) == sizeof(int) ? 2 : turns_of_reductions); on++) {     \
      if (on) {                                                                             \
        CHECK(nvshmemx_##NAME##_sum_reduce_on_stream(NVSHMEM_TEAM_WORLD, to, from, 4, stream) == 0); \
        CHECK(nvshmemx_##NAME##_max_reduce_on_stream(NVSHMEM_TEAM_WORLD, to + 4, from, 4, stream) == 0); \
        CHECK(nvshmemx_##NAME##_sum_reducescatter_on_stream(NVSHMEM_TEAM_WORLD, to + 8, from, 4, stream) == 0); \
        finish(stream);                                                                     \
      } else {                                                                              \
        CHECK(nvshmem_##NAME##_sum_reduce(NVSHMEM_TEAM_WORLD, to, from, 4) == 0);           \
        CHECK(nvshmem_##NAME##_max_reduce(NVSHMEM_TEAM_WORLD, to + 4, from, 4) == 0);       \
        CHECK(nvshmem_##NAME##_sum_reducescatter(NVSHMEM_TEAM_WORLD, to + 8, from, 4) == 0); \
      }                                                                                     \
      LOAD(got, to, 12);                                                                    \
      for (int i = 0; i < 4; i++) {                                                         \
        T sum = 0, most = 0, part = 0;                                                      \
        for (int pe = 0; pe < n; pe++) {                                                    \
          const T v = (T) ((int) VALUE(T, pe, i) % 7);                                      \
          sum = (T) (sum + v);                                                              \
          part = (T) (part + (T) ((int) VALUE(T, pe, 4 * me + i) % 7));                     \
          most = v > most ? v : most;                                                       \
        }                                                                                   \
        CHECK(got[i] == sum && got[4 + i] == most && got[8 + i] == part);                   \
      }                                                                                     \
      meet();                                                                               \
    }                                                                                       \
  }
#define WHOLE(X)                                                                            \
  X(char, t_char) X(short, t_short) X(int, t_int) X(long, t_long) X(ulonglong, t_ulonglong) X(uint8, t_uint8)     \
  X(int64, t_int64)
WHOLE(REDUCE)

/* Of either sign; four of them multiplied stay within 32 bits. */
#define NUMBER(pe, i) (VALUE(int32_t, pe, i) - 50)

#define OPERATORS(X)                                                                        \
  X(and, AND, x & y) X(or, OR, x | y) X(xor, XOR, x ^ y) X(max, MAX, x > y ? x : y)         \
  X(min, MIN, x < y ? x : y) X(sum, SUM, x + y) X(prod, PROD, x * y)

#define OPERATOR(OP, CODE, EXPRESSION)                                                      \
  static int32_t model_##OP(nvshmem_team_t team, int i)                                     \
  {                                                                                         \
    int32_t x = NUMBER(pe_of(team, 0), i);                                                  \
    for (int member = 1; member < nvshmem_team_n_pes(team); member++) {                     \
      const int32_t y = NUMBER(pe_of(team, member), i);                                     \
      x = EXPRESSION;                                                                       \
    }                                                                                       \
    return x;                                                                               \
  }                                                                                         \
  static void reduce_by_##OP(nvshmem_team_t team, int32_t *to, int32_t *from)               \
  {                                                                                         \
    const int mine = nvshmem_team_my_pe(team), size = nvshmem_team_n_pes(team);             \
    int32_t got[16], source[64];                                                            \
    for (int i = 0; i < 5 * size; i++) source[i] = NUMBER(me, i);                           \
    nvshmem_putmem(from, source, 5 * (size_t) size * sizeof *source, me);                   \
    nvshmem_barrier(team);                                                                  \
    for (int on = 0; on < 2; on++) {                                                        \
      if (on) {                                                                             \
        CHECK(nvshmemx_int32_##OP##_reduce_on_stream(team, to, from, 5, stream) == 0);      \
        CHECK(nvshmemx_int32_##OP##_reducescatter_on_stream(team, to + 8, from, 5, stream) == 0); \
        finish(stream);                                                                     \
      } else {                                                                              \
        CHECK(nvshmem_int32_##OP##_reduce(team, to, from, 5) == 0);                         \
        CHECK(nvshmem_int32_##OP##_reducescatter(team, to + 8, from, 5) == 0);              \
      }                                                                                     \
      LOAD(got, to, 16);                                                                    \
      for (int i = 0; i < 5; i++) {                                                         \
        CHECK(got[i] == model_##OP(team, i));                                               \
        CHECK(got[8 + i] == model_##OP(team, 5 * mine + i));                                \
      }                                                                                     \
      nvshmem_barrier(team);                                                                \
      clear((char *) to);                                                                   \
    }                                                                                       \
  }
OPERATORS(OPERATOR)

static void reduce_by_each(nvshmem_team_t team, char *a, char *b)
{
#define BY(OP, CODE, EXPRESSION) reduce_by_##OP(team, (int32_t *) a, (int32_t *) b);
  OPERATORS(BY)
}

/* The runtime's type of whole numbers. */
#define WHOLE_OF(T)                                                                         \
  (sizeof(T) == 1 ? ONE_OF(T, 8) : sizeof(T) == 2 ? ONE_OF(T, 16) : sizeof(T) == 4 ? ONE_OF(T, 32) : ONE_OF(T, 64))
#define ONE_OF(T, bits) ((T) -1 < (T) 1 ? RUSHMEM_INT##bits : RUSHMEM_UINT##bits)

/* By the name of a type, or of an operator. */
static void prepare(int count, char **names)
{
  rushmem_team_t *team;
  CHECK(rushmem_team_world(world(), &team) == RUSHMEM_OK);
#define PREPARE(NAME, T)                                                                    \
  if (is_asked(count, names, #NAME)) {                                                      \
    say("prepare", #NAME);                                                                  \
    CHECK(rushmem_team_prepare(team, "reduce", WHOLE_OF(T), RUSHMEM_SUM) == RUSHMEM_OK);    \
    CHECK(rushmem_team_prepare(team, "reduce", WHOLE_OF(T), RUSHMEM_MAX) == RUSHMEM_OK);    \
    CHECK(rushmem_team_prepare(team, "reducescatter", WHOLE_OF(T), RUSHMEM_SUM) == RUSHMEM_OK); \
  }
#define PREPARE_BY(OP, CODE, EXPRESSION)                                                    \
  if (is_asked(count, names, #OP)) {                                                        \
    say("prepare", #OP);                                                                    \
    CHECK(rushmem_team_prepare(team, "reduce", RUSHMEM_INT32, RUSHMEM_##CODE) == RUSHMEM_OK); \
    CHECK(rushmem_team_prepare(team, "reducescatter", RUSHMEM_INT32, RUSHMEM_##CODE) == RUSHMEM_OK); \
  }
  WHOLE(PREPARE)
  OPERATORS(PREPARE_BY)
}

#endif
