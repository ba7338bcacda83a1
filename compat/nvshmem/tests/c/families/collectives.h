/* Collectives that move data, of all PEs and of some. */
#ifndef NVSHMEM_TESTS_FAMILIES_COLLECTIVES_H
#define NVSHMEM_TESTS_FAMILIES_COLLECTIVES_H

#include "host.h"

/* The PE of a team's member. */
static int pe_of(nvshmem_team_t team, int member)
{
  return nvshmem_team_translate_pe(team, member, NVSHMEM_TEAM_WORLD);
}

/* `UNIT`: what the functions count for each element. */
#define COLLECT_BY(NAME, T, UNIT, BROADCAST, FCOLLECT, ALLTOALL)                            \
  static void collect_##NAME(nvshmem_team_t team, char *a, char *b)                         \
  {                                                                                         \
    const int mine = nvshmem_team_my_pe(team), size = nvshmem_team_n_pes(team);             \
    const size_t count = 3 * UNIT;                                                          \
    T *to = (T *) a, *from = (T *) b, got[64], source[64];                                  \
    for (int i = 0; i < 3 * size; i++) source[i] = VALUE(T, me, i);                         \
    nvshmem_putmem(from, source, 3 * (size_t) size * sizeof(T), me);                        \
    nvshmem_barrier(team);                                                                  \
    for (int on = 0; on < 2; on++) {                                                        \
      if (on) {                                                                             \
        CHECK(nvshmemx_##BROADCAST##_on_stream(team, to, from, count, size - 1, stream) == 0); \
        CHECK(nvshmemx_##FCOLLECT##_on_stream(team, to + 3, from, count, stream) == 0);     \
        CHECK(nvshmemx_##ALLTOALL##_on_stream(team, to + 3 + 3 * size, from, count, stream) == 0); \
        finish(stream);                                                                     \
      } else {                                                                              \
        CHECK(nvshmem_##BROADCAST(team, to, from, count, size - 1) == 0);                   \
        CHECK(nvshmem_##FCOLLECT(team, to + 3, from, count) == 0);                          \
        CHECK(nvshmem_##ALLTOALL(team, to + 3 + 3 * size, from, count) == 0);               \
      }                                                                                     \
      LOAD(got, to, 3 + 6 * (size_t) size);                                                 \
      for (int i = 0; i < 3; i++) {                                                         \
        CHECK(got[i] == VALUE(T, pe_of(team, size - 1), i));                                \
        for (int member = 0; member < size; member++) {                                     \
          const int pe = pe_of(team, member);                                               \
          CHECK(got[3 + 3 * member + i] == VALUE(T, pe, i));                                \
          CHECK(got[3 + 3 * size + 3 * member + i] == VALUE(T, pe, 3 * mine + i));          \
        }                                                                                   \
      }                                                                                     \
      finish(stream);                                                                       \
      nvshmem_barrier(team);                                                                \
      clear(a);                                                                             \
    }                                                                                       \
  }
#define COLLECT(NAME, T) COLLECT_BY(NAME, T, 1, NAME##_broadcast, NAME##_fcollect, NAME##_alltoall)
FOR_RMA(COLLECT)
COLLECT_BY(mem, uint32_t, sizeof(uint32_t), broadcastmem, fcollectmem, alltoallmem)

#endif
