/* Remote memory access: every type by single threads, some at warp and block scope, every width, bytes. */
#include "check.h"

/* X is nvshmem or nvshmemx, and S a scope's ending. ENDING stands for elements of a width. */
#define MOVES(X, PUT, GET, PUT_NBI, GET_NBI, T, UNIT, S)                         \
  {                                                                              \
    T *to = reinterpret_cast<T *>(a), *from = reinterpret_cast<T *>(b);          \
    T *got = from + 512;                                                         \
    __syncthreads();                                                             \
    fill(from, 64, salt);                                                        \
    nvshmemx_barrier_all_block();                                                \
    if (IN##S) X##_##PUT##S(to, from, 13 * UNIT, right);                         \
    if (IN##S) X##_##PUT_NBI##S(to + 16, from, 9 * UNIT, right);                 \
    nvshmem_quiet();                                                             \
    nvshmemx_barrier_all_block();                                                \
    EXPECT(to, 13, left, salt);                                                  \
    EXPECT(to + 16, 9, left, salt);                                              \
    if (IN##S) X##_##GET##S(got, to, 13 * UNIT, right);                          \
    if (IN##S) X##_##GET_NBI##S(got + 16, to + 16, 9 * UNIT, right);             \
    nvshmem_quiet();                                                             \
    __syncthreads();                                                             \
    EXPECT(got, 13, me, salt);                                                   \
    EXPECT(got + 16, 9, me, salt);                                               \
    nvshmemx_barrier_all_block();                                                \
  }

#define STRIDES(X, IPUT, IGET, T, S)                                             \
  {                                                                              \
    T *to = reinterpret_cast<T *>(a) + 64, *from = reinterpret_cast<T *>(b);     \
    T *got = from + 512;                                                         \
    __syncthreads();                                                             \
    fill(from, 64, salt + 1);                                                    \
    nvshmemx_barrier_all_block();                                                \
    if (IN##S) X##_##IPUT##S(to, from, 3, 2, 11, right);                         \
    nvshmem_quiet();                                                             \
    nvshmemx_barrier_all_block();                                                \
    if (threadIdx.x < 11) CHECK(to[threadIdx.x * 3] == value_of<T>(left, threadIdx.x * 2, salt + 1)); \
    if (threadIdx.x < 10) CHECK(to[threadIdx.x * 3 + 1] == T(0));                \
    if (IN##S) X##_##IGET##S(got, to, 1, 3, 11, right);                          \
    __syncthreads();                                                             \
    if (threadIdx.x < 11) CHECK(got[threadIdx.x] == value_of<T>(me, threadIdx.x * 2, salt + 1)); \
    nvshmemx_barrier_all_block();                                                \
  }

#define SIGNALS(X, PUT, PUT_NBI, T, UNIT, S)                                     \
  {                                                                              \
    T *to = reinterpret_cast<T *>(a) + 160, *from = reinterpret_cast<T *>(b);    \
    __syncthreads();                                                             \
    fill(from, 64, salt + 2);                                                    \
    nvshmemx_barrier_all_block();                                                \
    if (IN##S) X##_##PUT##S(to, from, 7 * UNIT, sig, 5, NVSHMEM_SIGNAL_SET, right); \
    if (threadIdx.x == 0) CHECK(nvshmem_signal_wait_until(sig, NVSHMEM_CMP_EQ, 5) == 5); \
    __syncthreads();                                                             \
    EXPECT(to, 7, left, salt + 2);                                               \
    nvshmemx_barrier_all_block();                                                \
    if (IN##S) X##_##PUT_NBI##S(to + 8, from, 7 * UNIT, sig, 2, NVSHMEM_SIGNAL_ADD, right); \
    if (threadIdx.x == 0) CHECK(nvshmem_signal_wait_until(sig, NVSHMEM_CMP_GE, 6) == 7); \
    __syncthreads();                                                             \
    CHECK(nvshmem_signal_fetch(sig) == 7);                                       \
    EXPECT(to + 8, 7, left, salt + 2);                                           \
    nvshmem_quiet();                                                             \
    nvshmemx_barrier_all_block();                                                \
    if (threadIdx.x == 0) *sig = 0;                                              \
    nvshmemx_barrier_all_block();                                                \
  }

#define ONE(NAME, T)                                                             \
  {                                                                              \
    T *to = reinterpret_cast<T *>(a) + 200;                                      \
    if (threadIdx.x == 0) nvshmem_##NAME##_p(to, value_of<T>(me, 3, salt), right); \
    nvshmemx_barrier_all_block();                                                \
    CHECK(*to == value_of<T>(left, 3, salt));                                    \
    CHECK(nvshmem_##NAME##_g(to, right) == value_of<T>(me, 3, salt));            \
    nvshmemx_barrier_all_block();                                                \
  }

#define BY_SCOPE(X, NAME, T, S)                                                  \
  MOVES(X, NAME##_put, NAME##_get, NAME##_put_nbi, NAME##_get_nbi, T, 1, S)      \
  STRIDES(X, NAME##_iput, NAME##_iget, T, S)                                     \
  SIGNALS(X, NAME##_put_signal, NAME##_put_signal_nbi, T, 1, S)

/* C++ names of macros' arguments must not hold an empty one. */
#define OF_TYPE(NAME, T)                                                         \
  PARTIAL_KERNEL(rma_##NAME) {                                                           \
    NEIGHBOURS;                                                                  \
    UNUSED;                                                                      \
    ONE(NAME, T)                                                                 \
    BY_SCOPE(nvshmem, NAME, T, )                                                 \
  }
#define BY_MANY(NAME, T)                                                         \
  PARTIAL_KERNEL(rma_many_##NAME) {                                                      \
    NEIGHBOURS;                                                                  \
    UNUSED;                                                                      \
    BY_SCOPE(nvshmemx, NAME, T, _warp)                                           \
    BY_SCOPE(nvshmemx, NAME, T, _block)                                          \
  }
#define FOR_MANY(X) X(uchar, t_uchar) X(short, short) X(float, float) X(longlong, t_longlong)

FOR_RMA(OF_TYPE)
FOR_MANY(BY_MANY)

#define WIDTH(X, BITS, T, S)                                                     \
  MOVES(X, put##BITS, get##BITS, put##BITS##_nbi, get##BITS##_nbi, T, 1, S)      \
  STRIDES(X, iput##BITS, iget##BITS, T, S)                                       \
  SIGNALS(X, put##BITS##_signal, put##BITS##_signal_nbi, T, 1, S)
#define ALL_SCOPES(BITS, T)                                                      \
  PARTIAL_KERNEL(rma_bits##BITS) {                                                       \
    NEIGHBOURS;                                                                  \
    UNUSED;                                                                      \
    WIDTH(nvshmem, BITS, T, )                                                    \
    WIDTH(nvshmemx, BITS, T, _warp)                                              \
    WIDTH(nvshmemx, BITS, T, _block)                                             \
  }
ALL_SCOPES(8, uint8_t)
ALL_SCOPES(16, uint16_t)
ALL_SCOPES(32, uint32_t)
ALL_SCOPES(64, uint64_t)

/* Elements of 16 bytes: pairs. */
PARTIAL_KERNEL(rma_bits128) {
  NEIGHBOURS;
  UNUSED;
  uint64_t *to = reinterpret_cast<uint64_t *>(a), *from = reinterpret_cast<uint64_t *>(b), *got = from + 512;
  fill(from, 64, salt);
  nvshmemx_barrier_all_block();
  if (threadIdx.x == 0) nvshmem_put128(to, from, 6, right);
  nvshmemx_put128_block(to + 16, from, 6, right);
  nvshmem_quiet();
  nvshmemx_barrier_all_block();
  EXPECT(to, 12, left, salt);
  EXPECT(to + 16, 12, left, salt);
  if (threadIdx.x == 0) nvshmem_iput128(to + 64, from, 2, 1, 5, right);
  nvshmem_quiet();
  nvshmemx_barrier_all_block();
  if (threadIdx.x < 10) {
    const unsigned i = threadIdx.x / 2, half = threadIdx.x % 2;
    CHECK(to[64 + 4 * i + half] == value_of<uint64_t>(left, 2 * i + half, salt));
  }
  if (threadIdx.x < 32) nvshmemx_get128_warp(got, to, 6, right);
  __syncthreads();
  EXPECT(got, 12, me, salt);
  nvshmemx_barrier_all_block();
}

#define BYTES(X, S)                                                              \
  MOVES(X, putmem, getmem, putmem_nbi, getmem_nbi, int, 4, S)                    \
  SIGNALS(X, putmem_signal, putmem_signal_nbi, int, 4, S)
PARTIAL_KERNEL(rma_bytes) {
  NEIGHBOURS;
  UNUSED;
  BYTES(nvshmem, )
  BYTES(nvshmemx, _warp)
  BYTES(nvshmemx, _warpgroup)
  BYTES(nvshmemx, _block)
}

/* Queues are a hint. `K` tells the scopes' values apart. */
#define QUEUES(S, K)                                                             \
  {                                                                              \
    __syncthreads();                                                             \
    fill(from, 32, salt + K);                                                    \
    nvshmemx_barrier_all_block();                                                \
    if (IN##S) nvshmemx_qp_int_put##S(to, from, 13, right, NVSHMEMX_QP_DEFAULT); \
    if (IN##S) nvshmemx_qp_fence##S(right, nullptr, 0);                          \
    if (IN##S) nvshmemx_qp_int_put_nbi##S(to + 16, from, 9, right, NVSHMEMX_QP_ANY); \
    if (IN##S) nvshmemx_qp_quiet##S(right, nullptr, 0);                          \
    nvshmemx_barrier_all_block();                                                \
    EXPECT(to, 13, left, salt + K);                                              \
    EXPECT(to + 16, 9, left, salt + K);                                          \
    if (IN##S) nvshmemx_qp_int_get##S(got, to, 13, right, NVSHMEMX_QP_DEFAULT);  \
    if (IN##S) nvshmemx_qp_int_get_nbi##S(got + 16, to + 16, 9, right, NVSHMEMX_QP_DEFAULT); \
    if (IN##S) nvshmemx_qp_quiet##S(right, nullptr, 0);                          \
    __syncthreads();                                                             \
    EXPECT(got, 13, me, salt + K);                                               \
    EXPECT(got + 16, 9, me, salt + K);                                           \
    if (IN##S) nvshmemx_qp_int_put_signal##S(to + 32, from, 7, sig + K, 5, NVSHMEM_SIGNAL_SET, right, NVSHMEMX_QP_ANY); \
    if (threadIdx.x == 0) CHECK(nvshmem_signal_wait_until(sig + K, NVSHMEM_CMP_EQ, 5) == 5); \
    __syncthreads();                                                             \
    EXPECT(to + 32, 7, left, salt + K);                                          \
    nvshmemx_barrier_all_block();                                                \
    if (IN##S) nvshmemx_qp_int_put_signal_nbi##S(to + 40, from, 7, sig + K, 2, NVSHMEM_SIGNAL_ADD, right, NVSHMEMX_QP_ANY); \
    if (threadIdx.x == 0) CHECK(nvshmem_signal_wait_until(sig + K, NVSHMEM_CMP_GE, 6) == 7); \
    __syncthreads();                                                             \
    EXPECT(to + 40, 7, left, salt + K);                                          \
    nvshmemx_barrier_all_block();                                                \
  }
PARTIAL_KERNEL(rma_queues) {
  NEIGHBOURS;
  UNUSED;
  int *to = reinterpret_cast<int *>(a), *from = reinterpret_cast<int *>(b), *got = from + 512;
  QUEUES(, 0)
  QUEUES(_warp, 1)
  QUEUES(_block, 2)
  if (threadIdx.x == 0) nvshmemx_qp_int_p(to + 60, value_of<int>(me, 30, salt), right, NVSHMEMX_QP_DEFAULT);
  nvshmemx_barrier_all_block();
  CHECK(to[60] == value_of<int>(left, 30, salt));
  CHECK(nvshmemx_qp_int_g(to + 60, right, NVSHMEMX_QP_DEFAULT) == value_of<int>(me, 30, salt));
  nvshmemx_barrier_all_block();
}

#define NAME_OF_TYPE(X, NAME) X(rma_##NAME)
#define KERNELS_OF_RMA(X)                                                        \
  X(rma_bits8) X(rma_bits16) X(rma_bits32) X(rma_bits64) X(rma_bits128) X(rma_bytes) X(rma_queues) \
  X(rma_many_uchar) X(rma_many_short) X(rma_many_float) X(rma_many_longlong)     \
  X(rma_float) X(rma_double) X(rma_char) X(rma_long) X(rma_uint16) X(rma_size) X(rma_ptrdiff)
