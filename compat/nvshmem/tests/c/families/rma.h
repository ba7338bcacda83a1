/* Remote memory access of every type, and with signals. */
#ifndef NVSHMEM_TESTS_FAMILIES_RMA_H
#define NVSHMEM_TESTS_FAMILIES_RMA_H

#include "host.h"

#define RMA(NAME, T)                                                                        \
  static void rma_##NAME(char *a, uint64_t *sig)                                            \
  {                                                                                         \
    T *at = (T *) a, from[24], got[64];                                                     \
    for (int i = 0; i < 24; i++) from[i] = VALUE(T, me, i);                                 \
    nvshmem_##NAME##_put(at, from, 5, right);                                               \
    nvshmem_##NAME##_put_nbi(at + 5, from + 5, 5, right);                                   \
    nvshmem_##NAME##_p(at + 10, from[10], right);                                           \
    nvshmem_##NAME##_iput(at + 12, from, 2, 3, 4, right);                                   \
    nvshmem_##NAME##_put_signal(at + 20, from, 2, sig, 3, NVSHMEM_SIGNAL_SET, right);       \
    CHECK(nvshmem_signal_wait_until(sig, NVSHMEM_CMP_GE, 3) >= 3);                          \
    nvshmem_##NAME##_put_signal_nbi(at + 22, from, 2, sig, 2, NVSHMEM_SIGNAL_ADD, right);   \
    CHECK(nvshmem_signal_wait_until(sig, NVSHMEM_CMP_GT, 4) == 5);                          \
    nvshmemx_##NAME##_put_on_stream(at + 24, from, 4, right, stream);                       \
    nvshmemx_##NAME##_put_nbi_on_stream(at + 28, from, 4, right, stream);                   \
    nvshmemx_##NAME##_p_on_stream(at + 32, from[7], right, stream);                         \
    nvshmemx_##NAME##_iput_on_stream(at + 34, from, 3, 2, 3, right, stream);                \
    nvshmemx_##NAME##_put_signal_on_stream(at + 44, from, 3, sig + 1, 7, NVSHMEM_SIGNAL_SET, right, stream); \
    nvshmemx_signal_wait_until_on_stream(sig + 1, NVSHMEM_CMP_GE, 7, stream);               \
    nvshmemx_##NAME##_put_signal_nbi_on_stream(at + 48, from, 3, sig + 1, 1, NVSHMEM_SIGNAL_ADD, right, stream); \
    nvshmemx_signal_wait_until_on_stream(sig + 1, NVSHMEM_CMP_EQ, 8, stream);               \
    nvshmemx_quiet_on_stream(stream);                                                       \
    meet();                                                                                 \
    LOAD(got, at, 52);                                                                      \
    for (int i = 0; i < 11; i++) CHECK(got[i] == VALUE(T, left, i));                        \
    for (int i = 0; i < 4; i++) CHECK(got[12 + 2 * i] == VALUE(T, left, 3 * i));            \
    for (int i = 0; i < 8; i++) CHECK(got[24 + i] == VALUE(T, left, i % 4));                \
    CHECK(got[20] == VALUE(T, left, 0) && got[23] == VALUE(T, left, 1));                    \
    CHECK(got[32] == VALUE(T, left, 7) && got[11] == (T) 0 && got[33] == (T) 0);            \
    for (int i = 0; i < 3; i++) CHECK(got[34 + 3 * i] == VALUE(T, left, 2 * i));            \
    for (int i = 0; i < 3; i++) CHECK(got[44 + i] == VALUE(T, left, i) && got[48 + i] == VALUE(T, left, i)); \
    memset(got, 0, sizeof got);                                                             \
    nvshmem_##NAME##_get(got, at, 5, right);                                                \
    nvshmem_##NAME##_get_nbi(got + 5, at + 5, 5, right);                                    \
    nvshmem_quiet();                                                                        \
    got[10] = nvshmem_##NAME##_g(at + 10, right);                                           \
    nvshmem_##NAME##_iget(got + 12, at + 12, 1, 2, 4, right);                               \
    nvshmemx_##NAME##_get_on_stream(got + 20, at, 4, right, stream);                        \
    nvshmemx_##NAME##_get_nbi_on_stream(got + 24, at + 4, 4, right, stream);                \
    nvshmemx_##NAME##_iget_on_stream(got + 30, at + 12, 2, 2, 4, right, stream);            \
    got[40] = nvshmemx_##NAME##_g_on_stream(at + 3, right, stream);                         \
    finish(stream);                                                                         \
    for (int i = 0; i < 11; i++) CHECK(got[i] == VALUE(T, me, i));                          \
    for (int i = 0; i < 4; i++) CHECK(got[12 + i] == VALUE(T, me, 3 * i) && got[30 + 2 * i] == VALUE(T, me, 3 * i)); \
    for (int i = 0; i < 8; i++) CHECK(got[20 + i] == VALUE(T, me, i));                      \
    CHECK(got[40] == VALUE(T, me, 3));                                                      \
    static const char zeroes[1024];                                                         \
    meet();                                                                                 \
    nvshmem_putmem(a, zeroes, sizeof zeroes, me);                                           \
    nvshmem_putmem(sig, zeroes, 64, me);                                                    \
    meet();                                                                                 \
  }
FOR_RMA(RMA)

#endif
