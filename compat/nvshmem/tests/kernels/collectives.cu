/* Collectives of a team that move data, at three scopes. */
#include "members.h"

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
  DATA(nvshmemx, broadcastmem, fcollectmem, alltoallmem, int, 4, _warp, 17)
  DATA(nvshmemx, broadcastmem, fcollectmem, alltoallmem, int, 4, _block, 17)
  nvshmemx_barrier_all_block();
}

#define KERNELS_OF_COLLECTIVES(X) X(coll_double) X(coll_bytes)
