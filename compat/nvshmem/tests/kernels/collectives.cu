/* Collectives of a team at three scopes, in and out of place. */
#include "check.h"

#define OF_TEAM(t)                                                               \
  const nvshmem_team_t t_ = t;                                                   \
  const int mine = nvshmem_team_my_pe(t_), size = nvshmem_team_n_pes(t_);        \
  (void) mine
#define WORLD_PE(i) nvshmem_team_translate_pe(t_, i, NVSHMEM_TEAM_WORLD)
#define CALLED(S, CALL)                                                          \
  if (IN##S) CHECK((CALL) == 0);                                                 \
  __syncthreads()

#define DATA(X, BROADCAST, FCOLLECT, ALLTOALL, T, UNIT, S, count)                \
  {                                                                              \
    T *to = reinterpret_cast<T *>(a), *from = reinterpret_cast<T *>(b);          \
    __syncthreads();                                                             \
    fill(from, static_cast<size_t>(count) * size, salt);                         \
    __syncthreads();                                                             \
    const int root = size - 1;                                                   \
    CALLED(S, X##_##BROADCAST##S(t_, to, from, (count) * UNIT, root));           \
    EXPECT(to, count, WORLD_PE(root), salt);                                     \
    __syncthreads();                                                             \
    CALLED(S, X##_##FCOLLECT##S(t_, to, from, (count) * UNIT));                  \
    for (int i = 0; i < size; ++i) EXPECT(to + i * (count), count, WORLD_PE(i), salt); \
    __syncthreads();                                                             \
    CALLED(S, X##_##ALLTOALL##S(t_, to, from, (count) * UNIT));                  \
    for (int i = 0; i < size; ++i) {                                             \
      for (int k = threadIdx.x; k < (count); k += blockDim.x) {                  \
        CHECK(to[i * (count) + k] == value_of<T>(WORLD_PE(i), mine * (count) + k, salt)); \
      }                                                                          \
    }                                                                            \
    __syncthreads();                                                             \
  }
#define THREE(NAME, T, count)                                                    \
  DATA(nvshmem, NAME##_broadcast, NAME##_fcollect, NAME##_alltoall, T, 1, , count) \
  DATA(nvshmemx, NAME##_broadcast, NAME##_fcollect, NAME##_alltoall, T, 1, _warp, count) \
  DATA(nvshmemx, NAME##_broadcast, NAME##_fcollect, NAME##_alltoall, T, 1, _block, count)
#define MOVED(NAME, T)                                                           \
  PARTIAL_KERNEL(coll_##NAME) {                                                          \
    UNUSED;                                                                      \
    for (int turn = 0; turn < 2; ++turn) {                                       \
      OF_TEAM(turn ? team : NVSHMEM_TEAM_WORLD);                                 \
      for (int count = 1; count < 200; count = count * 5 + 2) {                  \
        THREE(NAME, T, count)                                                    \
      }                                                                          \
    }                                                                            \
    nvshmemx_barrier_all_block();                                                \
  }
MOVED(double, double)

PARTIAL_KERNEL(coll_bytes) {
  UNUSED;
  OF_TEAM(NVSHMEM_TEAM_WORLD);
  DATA(nvshmem, broadcastmem, fcollectmem, alltoallmem, int, 4, , 17)
  DATA(nvshmemx, broadcastmem, fcollectmem, alltoallmem, int, 4, _block, 17)
  nvshmemx_barrier_all_block();
}

/* Members are combined in the order of their numbers. */
template <typename T, typename F>
__device__ T combined(nvshmem_team_t t_, size_t i, uint64_t salt, F op) {
  T so_far = value_of<T>(WORLD_PE(0), i, salt);
  for (int member = 1; member < nvshmem_team_n_pes(t_); ++member) so_far = op(so_far, value_of<T>(WORLD_PE(member), i, salt));
  return so_far;
}

#define REDUCED(X, NAME, T, OP, S, EXPRESSION)                                   \
  {                                                                              \
    const auto op = [](T x, T y) { return static_cast<T>(EXPRESSION); };         \
    T *to = reinterpret_cast<T *>(a), *from = reinterpret_cast<T *>(b);          \
    __syncthreads();                                                             \
    fill(from, 37 * static_cast<size_t>(size), salt);                            \
    __syncthreads();                                                             \
    CALLED(S, X##_##NAME##_##OP##_reduce##S(t_, to, from, 37));                  \
    if (threadIdx.x < 37) CHECK(to[threadIdx.x] == combined<T>(t_, threadIdx.x, salt, op)); \
    __syncthreads();                                                             \
    CALLED(S, X##_##NAME##_##OP##_reducescatter##S(t_, to, from, 37));           \
    if (threadIdx.x < 37) CHECK(to[threadIdx.x] == combined<T>(t_, mine * 37 + threadIdx.x, salt, op)); \
    __syncthreads();                                                             \
  }
#define SCOPES(NAME, T, OP, EXPRESSION)                                          \
  REDUCED(nvshmem, NAME, T, OP, , EXPRESSION)                                    \
  REDUCED(nvshmemx, NAME, T, OP, _warp, EXPRESSION)                              \
  REDUCED(nvshmemx, NAME, T, OP, _block, EXPRESSION)
/* Three kernels, as each takes the compiler a while. */
#define OF_TEAMS(name, ...)                                                      \
  PARTIAL_KERNEL(name) {                                                         \
    UNUSED;                                                                      \
    for (int turn = 0; turn < 2; ++turn) {                                       \
      OF_TEAM(turn ? team : NVSHMEM_TEAM_WORLD);                                 \
      __VA_ARGS__                                                                \
    }                                                                            \
    nvshmemx_barrier_all_block();                                                \
  }
OF_TEAMS(reduce_bits,
  REDUCED(nvshmem, int64, int64_t, and, , x & y)
  REDUCED(nvshmemx, int64, int64_t, or, _warp, x | y)
  REDUCED(nvshmemx, int64, int64_t, xor, _block, x ^ y))
OF_TEAMS(reduce_numbers,
  REDUCED(nvshmem, int64, int64_t, max, , x < y ? y : x)
  REDUCED(nvshmemx, int64, int64_t, min, _warp, y < x ? y : x)
  REDUCED(nvshmemx, int64, int64_t, prod, _block, x * y))
OF_TEAMS(reduce_sums, SCOPES(int64, int64_t, sum, x + y))
PARTIAL_KERNEL(reduce_float) {
  UNUSED;
  OF_TEAM(NVSHMEM_TEAM_WORLD);
  REDUCED(nvshmemx, float, float, sum, _block, x + y)
  nvshmemx_barrier_all_block();
}
PARTIAL_KERNEL(reduce_uint8) {
  UNUSED;
  OF_TEAM(team);
  REDUCED(nvshmemx, uint8, uint8_t, sum, _warp, x + y)
  nvshmemx_barrier_all_block();
}

#define KERNELS_OF_COLLECTIVES(X) \
  X(coll_double) X(coll_bytes) X(reduce_bits) X(reduce_numbers) X(reduce_sums) X(reduce_float) X(reduce_uint8)
