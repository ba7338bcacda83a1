/* Deprecated collectives of active sets: all PEs, every other one, the last ones; one pSync for each. */
#include "check.h"

enum { COUNT = 6, PES = 8 };
static long psync[2][SHMEM_SYNC_SIZE], reduce_sync[2][SHMEM_REDUCE_SYNC_SIZE];
static int start, log_stride, size, index_;
static int turn;

#define SET start, log_stride, size
#define PE(i) (start + ((i) << log_stride))
/* Of two arrays in turn, with a barrier of the set between uses. */
static long *sync_array(void)
{
  static long barrier[SHMEM_BARRIER_SYNC_SIZE];
  shmem_barrier(SET, barrier);
  for (int i = 0; i < SHMEM_BARRIER_SYNC_SIZE; i++) CHECK(barrier[i] == SHMEM_SYNC_VALUE,
       "pSync is restored");
  return psync[turn++ % 2];
}

#define MOVES(T, S)                                                                                          \
  static void moves##S(void)                                                                                 \
  {                                                                                                          \
    static T dest[2 * COUNT * PES], source[2 * COUNT * PES];                                                 \
    for (int i = 0; i < 2 * COUNT * PES; i++) source[i] = (T) number(me, i, 5), dest[i] = 0;                 \
    const int root = size - 1;                                                                               \
    shmem_broadcast##S(dest, source, COUNT, root, SET, sync_array());                                        \
    for (int i = 0; i < COUNT; i++)                                                                          \
      CHECK(dest[i] == (index_ == root ? 0 : (T) number(PE(root), i, 5)), "broadcast" #S);                   \
    shmem_fcollect##S(dest, source, COUNT, SET, sync_array());                                               \
    for (int i = 0; i < COUNT * size; i++)                                                                   \
      CHECK(dest[i] == (T) number(PE(i / COUNT), i % COUNT, 5), "fcollect" #S);                              \
    shmem_collect##S(dest, source, (size_t) index_ + 1, SET, sync_array());                                  \
    for (int m = 0, at = 0; m < size; m++)                                                                   \
      for (int i = 0; i <= m; i++) CHECK(dest[at++] == (T) number(PE(m), i, 5), "collect" #S);               \
    shmem_alltoall##S(dest, source, COUNT, SET, sync_array());                                               \
    for (int i = 0; i < COUNT * size; i++)                                                                   \
      CHECK(dest[i] == (T) number(PE(i / COUNT), index_ * COUNT + i % COUNT, 5), "alltoall" #S);             \
    shmem_alltoalls##S(dest, source, 1, 2, COUNT, SET, sync_array());                                        \
    for (int i = 0; i < COUNT * size; i++)                                                                   \
      CHECK(dest[i] == (T) number(PE(i / COUNT), 2 * (index_ * COUNT + i % COUNT), 5), "alltoalls" #S);      \
  }
MOVES(uint32_t, 32)
MOVES(uint64_t, 64)

#define STEP_sum(T, a, b) ((T) ((a) + (b)))
#define STEP_prod(T, a, b) ((T) ((a) * (b)))
#define STEP_min(T, a, b) ((b) < (a) ? (b) : (a))
#define STEP_max(T, a, b) ((b) > (a) ? (b) : (a))
#define STEP_and(T, a, b) ((T) ((a) & (b)))
#define STEP_or(T, a, b) ((T) ((a) | (b)))
#define STEP_xor(T, a, b) ((T) ((a) ^ (b)))
#define TO_ALL(T, N, op)                                                                                     \
  static void op##_##N(void)                                                                                 \
  {                                                                                                          \
    static T dest[COUNT], source[COUNT], work[COUNT / 2 + 1 + SHMEM_REDUCE_MIN_WRKDATA_SIZE];                \
    for (int in_place = 0; in_place < 2; in_place++) {                                                       \
      for (int i = 0; i < COUNT; i++) source[i] = (T) number(me, i, 6);                                      \
      sync_array();                                                                                          \
      shmem_##N##_##op##_to_all(in_place ? source : dest, source, COUNT, SET, work, reduce_sync[in_place]);  \
      for (int i = 0; i < COUNT; i++) {                                                                      \
        T model = (T) number(start, i, 6);                                                                   \
        for (int m = 1; m < size; m++) model = STEP_##op(T, model, (T) number(PE(m), i, 6));                 \
        CHECK((in_place ? source : dest)[i] == model, #N " " #op);                                           \
      }                                                                                                      \
    }                                                                                                        \
  }
#define SUM(T, N) TO_ALL(T, N, sum) TO_ALL(T, N, prod)
#define MIN(T, N) TO_ALL(T, N, min) TO_ALL(T, N, max)
#define AND(T, N) TO_ALL(T, N, and) TO_ALL(T, N, or) TO_ALL(T, N, xor)
FOR_OLD_REDUCE(SUM)
FOR_OLD_REDUCE_ORDER(MIN)
FOR_OLD_REDUCE_BITS(AND)

static void all(int first, int log, int members)
{
  start = first, log_stride = log, size = members;
  index_ = (me - start) >> log;
  if (members > 0 && me >= start && index_ < size && me == PE(index_)) {
    for (int i = 0; i < 20; i++) shmem_sync(SET, psync[0]);
    moves32();
    moves64();
#define RUN_SUM(T, N) sum_##N(), prod_##N();
    FOR_OLD_REDUCE(RUN_SUM)
#define RUN_MIN(T, N) min_##N(), max_##N();
    FOR_OLD_REDUCE_ORDER(RUN_MIN)
#define RUN_AND(T, N) and_##N(), or_##N(), xor_##N();
    FOR_OLD_REDUCE_BITS(RUN_AND)
  }
  shmem_barrier_all();
}

int main(void)
{
  start_pes(0);
  begin();
  CHECK(_my_pe() == me && _num_pes() == n, "old names");
  all(0, 0, n);
  all(0, 1, (n + 1) / 2);
  all(1, 0, n - 1);
  all(n - 1, 0, 1);
  long *old = shmalloc(64);
  old = shrealloc(old, 128);
  shfree(old);
  shmem_clear_cache_inv();
  shmem_udcflush_line(psync);
  return end();
}
