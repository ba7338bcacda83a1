/* Reductions of a team by every operator at three scopes. */
#include "members.h"

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
/* A kernel for each operator, as each takes the compiler a while. */
#define OF_TEAMS(name, ...)                                                      \
  PARTIAL_KERNEL(name) {                                                         \
    UNUSED;                                                                      \
    for (int turn = 0; turn < 2; ++turn) {                                       \
      OF_TEAM(turn ? team : NVSHMEM_TEAM_WORLD);                                 \
      __VA_ARGS__                                                                \
    }                                                                            \
    nvshmemx_barrier_all_block();                                                \
  }
OF_TEAMS(reduce_and, SCOPES(int64, int64_t, and, x & y))
OF_TEAMS(reduce_or, SCOPES(int64, int64_t, or, x | y))
OF_TEAMS(reduce_xor, SCOPES(int64, int64_t, xor, x ^ y))
OF_TEAMS(reduce_max, SCOPES(int64, int64_t, max, x < y ? y : x))
OF_TEAMS(reduce_min, SCOPES(int64, int64_t, min, y < x ? y : x))
OF_TEAMS(reduce_sum, SCOPES(int64, int64_t, sum, x + y))
OF_TEAMS(reduce_prod, SCOPES(int64, int64_t, prod, x * y))
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

#define KERNELS_OF_REDUCTIONS(X)                                                 \
  X(reduce_and) X(reduce_or) X(reduce_xor) X(reduce_max) X(reduce_min) X(reduce_sum) X(reduce_prod) \
  X(reduce_float) X(reduce_uint8)
