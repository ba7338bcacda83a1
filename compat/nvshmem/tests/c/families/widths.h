/* Remote memory access by width and by bytes, and signals. */
#ifndef NVSHMEM_TESTS_FAMILIES_WIDTHS_H
#define NVSHMEM_TESTS_FAMILIES_WIDTHS_H

#include "host.h"

/* Byte `i` of what PE `pe` sends. */
#define BYTE(pe, i) VALUE(unsigned char, pe, i)

enum { SENT = 3, APART = 4, PARTS = 8 };

/* Whether the first SENT elements of `bytes` bytes are those of `pe`, and the one behind them is still 0. */
static bool has_come(const unsigned char *at, int bytes, int pe)
{
  for (int i = 0; i < APART * bytes; i++)
    if (at[i] != (i < SENT * bytes ? BYTE(pe, i) : 0)) return false;
  return true;
}

static void forget(char *a, uint64_t *sig)
{
  static const uint64_t zeroes[16];
  meet();
  nvshmem_putmem(sig, zeroes, sizeof zeroes, me);
  clear(a);
}

/* Of elements of `W` bytes, each way into a place of its own; then back from there. */
#define MOVES(PUT, GET, W)                                                                  \
  static void moves_##PUT(char *a, uint64_t *sig)                                           \
  {                                                                                         \
    enum { PART = APART * W, COUNT = SENT };                                                \
    unsigned char from[SENT * W], got[PARTS * PART];                                        \
    for (int i = 0; i < SENT * W; i++) from[i] = BYTE(me, i);                               \
    nvshmem_##PUT(a, from, COUNT, right);                                                   \
    nvshmem_##PUT##_nbi(a + PART, from, COUNT, right);                                      \
    nvshmem_##PUT##_signal(a + 2 * PART, from, COUNT, sig, 3, NVSHMEM_SIGNAL_SET, right);   \
    CHECK(nvshmem_signal_wait_until(sig, NVSHMEM_CMP_GE, 3) >= 3);                          \
    nvshmem_##PUT##_signal_nbi(a + 3 * PART, from, COUNT, sig, 2, NVSHMEM_SIGNAL_ADD, right); \
    CHECK(nvshmem_signal_wait_until(sig, NVSHMEM_CMP_GT, 4) == 5);                          \
    nvshmemx_##PUT##_on_stream(a + 4 * PART, from, COUNT, right, stream);                   \
    nvshmemx_##PUT##_nbi_on_stream(a + 5 * PART, from, COUNT, right, stream);               \
    nvshmemx_##PUT##_signal_on_stream(a + 6 * PART, from, COUNT, sig + 1, 7, NVSHMEM_SIGNAL_SET, right, stream); \
    nvshmemx_signal_wait_until_on_stream(sig + 1, NVSHMEM_CMP_GE, 7, stream);               \
    nvshmemx_##PUT##_signal_nbi_on_stream(a + 7 * PART, from, COUNT, sig + 1, 1, NVSHMEM_SIGNAL_ADD, right, stream); \
    nvshmemx_signal_wait_until_on_stream(sig + 1, NVSHMEM_CMP_EQ, 8, stream);               \
    nvshmemx_quiet_on_stream(stream);                                                       \
    meet();                                                                                 \
    LOAD(got, a, sizeof got);                                                               \
    for (int part = 0; part < PARTS; part++) CHECK(has_come(got + part * PART, W, left));   \
    memset(got, 0, sizeof got);                                                             \
    nvshmem_##GET(got, a, COUNT, right);                                                    \
    nvshmem_##GET##_nbi(got + PART, a + PART, COUNT, right);                                \
    nvshmem_quiet();                                                                        \
    nvshmemx_##GET##_on_stream(got + 2 * PART, a + 2 * PART, COUNT, right, stream);         \
    nvshmemx_##GET##_nbi_on_stream(got + 3 * PART, a + 3 * PART, COUNT, right, stream);     \
    finish(stream);                                                                         \
    for (int part = 0; part < 4; part++) CHECK(has_come(got + part * PART, W, me));         \
    forget(a, sig);                                                                         \
  }
MOVES(put8, get8, 1)
MOVES(put16, get16, 2)
MOVES(put32, get32, 4)
MOVES(put64, get64, 8)
MOVES(put128, get128, 16)
MOVES(putmem, getmem, 1)

/* Every third element, of every second one. */
#define STRIDES(S)                                                                          \
  static void strides_##S(char *a, uint64_t *sig)                                           \
  {                                                                                         \
    enum { W = S / 8, COUNT = 4, SPAN = 3 * COUNT * W };                                    \
    unsigned char from[2 * COUNT * W], got[2 * SPAN], back[2 * COUNT * W];                  \
    for (int i = 0; i < 2 * COUNT * W; i++) from[i] = BYTE(me, i);                          \
    nvshmem_iput##S(a, from, 3, 2, COUNT, right);                                           \
    nvshmemx_iput##S##_on_stream(a + SPAN, from, 3, 2, COUNT, right, stream);               \
    meet();                                                                                 \
    LOAD(got, a, sizeof got);                                                               \
    for (int i = 0; i < 2 * SPAN; i++) {                                                    \
      const int element = i % SPAN / W;                                                     \
      CHECK(got[i] == (element % 3 == 0 ? BYTE(left, 2 * (element / 3) * W + i % W) : 0));  \
    }                                                                                       \
    nvshmem_iget##S(back, a, 1, 3, COUNT, right);                                           \
    nvshmemx_iget##S##_on_stream(back + COUNT * W, a + SPAN, 1, 3, COUNT, right, stream);   \
    finish(stream);                                                                         \
    for (int i = 0; i < 2 * COUNT * W; i++) {                                               \
      const int element = i / W % COUNT;                                                    \
      CHECK(back[i] == BYTE(me, 2 * element * W + i % W));                                  \
    }                                                                                       \
    forget(a, sig);                                                                         \
  }
STRIDES(8)
STRIDES(16)
STRIDES(32)
STRIDES(64)
STRIDES(128)

static void signals(uint64_t *sig)
{
  nvshmemx_signal_op_on_stream(sig + 6, 4, NVSHMEM_SIGNAL_ADD, right, stream);
  meet();
  CHECK(nvshmem_signal_fetch(sig + 6) == 4);
  nvshmem_barrier_all();
  nvshmemx_signal_op(sig + 6, 1, NVSHMEM_SIGNAL_SET, right);
  CHECK(nvshmem_signal_wait_until(sig + 6, NVSHMEM_CMP_LE, 1) == 1);
  nvshmemx_signal_counted_reset(sig + 6);
  CHECK(nvshmem_signal_fetch(sig + 6) == 0);
  nvshmem_barrier_all();
}

static void widths(char *a, uint64_t *sig)
{
  moves_put8(a, sig);
  moves_put16(a, sig);
  moves_put32(a, sig);
  moves_put64(a, sig);
  moves_put128(a, sig);
  moves_putmem(a, sig);
  strides_8(a, sig);
  strides_16(a, sig);
  strides_32(a, sig);
  strides_64(a, sig);
  strides_128(a, sig);
  signals(sig);
}

#endif
