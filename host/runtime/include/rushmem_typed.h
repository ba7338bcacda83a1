/* rushmem's typed forms for C and C++: inline functions over the untyped C ABI of rushmem.h, one set for each
 * standard type, named as OpenSHMEM names them (1.5, sections 9.6 to 9.10): rushmem_double_put,
 * rushmem_int_p, rushmem_uint64_atomic_fetch_add, rushmem_long_wait_until, and so on. rushmem.h includes this
 * file.
 *
 * Two things differ from OpenSHMEM, on purpose: the world comes first (a collective's team in its place), and
 * every function returns RUSHMEM_OK or a negative code, so that no error can hide in a value. What a function
 * fetches comes through its last argument:
 *
 *     int64_t old;
 *     if (rushmem_int64_atomic_fetch_add(w, &counter[0], 1, pe, &old) != RUSHMEM_OK)
 *       die(rushmem_last_error());
 *
 * Counts and strides are in elements. Errors, ordering and everything else: the untyped function, in
 * rushmem.h. */
#ifndef RUSHMEM_TYPED_H
#define RUSHMEM_TYPED_H

#include "rushmem.h"

#include <string.h>

/* The types of put, get, iput, iget, p and g: X(name, type). */
#define RUSHMEM_RMA_TYPES(X)                                                                                  \
  X(float, float) X(double, double)                                                                           \
  X(char, char) X(schar, signed char) X(short, short) X(int, int) X(long, long) X(longlong, long long)        \
  X(uchar, unsigned char) X(ushort, unsigned short) X(uint, unsigned int) X(ulong, unsigned long)             \
  X(ulonglong, unsigned long long)                                                                            \
  X(int8, int8_t) X(int16, int16_t) X(int32, int32_t) X(int64, int64_t)                                       \
  X(uint8, uint8_t) X(uint16, uint16_t) X(uint32, uint32_t) X(uint64, uint64_t)                               \
  X(size, size_t) X(ptrdiff, ptrdiff_t)

/* The types of waits, tests and all atomics: X(name, type, element type). */
#define RUSHMEM_INTEGER_TYPES(X)                                                                              \
  X(int, int, RUSHMEM_SIGNED_TYPE(int)) X(long, long, RUSHMEM_SIGNED_TYPE(long))                              \
  X(longlong, long long, RUSHMEM_SIGNED_TYPE(long long))                                                      \
  X(uint, unsigned int, RUSHMEM_UNSIGNED_TYPE(unsigned int))                                                  \
  X(ulong, unsigned long, RUSHMEM_UNSIGNED_TYPE(unsigned long))                                               \
  X(ulonglong, unsigned long long, RUSHMEM_UNSIGNED_TYPE(unsigned long long))                                 \
  X(int32, int32_t, RUSHMEM_INT32) X(int64, int64_t, RUSHMEM_INT64)                                           \
  X(uint32, uint32_t, RUSHMEM_UINT32) X(uint64, uint64_t, RUSHMEM_UINT64)                                     \
  X(size, size_t, RUSHMEM_UNSIGNED_TYPE(size_t)) X(ptrdiff, ptrdiff_t, RUSHMEM_SIGNED_TYPE(ptrdiff_t))

/* The integers that are reduced and have no atomics: X(name, type). */
#define RUSHMEM_SMALL_INTEGER_TYPES(X)                                                                        \
  X(char, char) X(schar, signed char) X(short, short) X(uchar, unsigned char) X(ushort, unsigned short)       \
  X(int8, int8_t) X(int16, int16_t) X(uint8, uint8_t) X(uint16, uint16_t)

/* The further types of atomic fetch, set and swap. */
#define RUSHMEM_FLOAT_TYPES(X) X(float, float, RUSHMEM_FLOAT) X(double, double, RUSHMEM_DOUBLE)

/* The element type (RUSHMEM_INT32 ...) of a C integer type, by its size. */
#define RUSHMEM_SIGNED_TYPE(T) (sizeof(T) == 4 ? RUSHMEM_INT32 : RUSHMEM_INT64)
#define RUSHMEM_UNSIGNED_TYPE(T) (sizeof(T) == 4 ? RUSHMEM_UINT32 : RUSHMEM_UINT64)

/* The bit pattern of a value of 1, 2, 4 or 8 bytes, in the low bytes. */
static inline uint64_t rushmem_typed_to_bits(const void *value, size_t bytes)
{
  uint8_t b1;
  uint16_t b2;
  uint32_t b4;
  uint64_t b8;
  switch (bytes) {
  case 1: memcpy(&b1, value, sizeof b1); return b1;
  case 2: memcpy(&b2, value, sizeof b2); return b2;
  case 4: memcpy(&b4, value, sizeof b4); return b4;
  default: memcpy(&b8, value, sizeof b8); return b8;
  }
}

/* The opposite. */
static inline void rushmem_typed_from_bits(void *value, size_t bytes, uint64_t bits)
{
  const uint8_t b1 = (uint8_t)bits;
  const uint16_t b2 = (uint16_t)bits;
  const uint32_t b4 = (uint32_t)bits;
  switch (bytes) {
  case 1: memcpy(value, &b1, sizeof b1); break;
  case 2: memcpy(value, &b2, sizeof b2); break;
  case 4: memcpy(value, &b4, sizeof b4); break;
  default: memcpy(value, &bits, sizeof bits); break;
  }
}

/* rushmem_T_put(w, dst, src, n, pe), _put_nbi, _get, _get_nbi: `n` elements. rushmem_T_iput(w, dst, src,
 * dst_stride, src_stride, n, pe), _iget: `n` elements, some apart. rushmem_T_iput_signal(w, dst, src,
 * dst_stride, src_stride, n, sig, value, sig_op, pe): the same, then the signal. rushmem_T_put_signal(w, dst,
 * src, n, sig, value, sig_op, pe), _put_signal_nbi: `n` elements, then the signal. rushmem_T_p(w, dst, value,
 * pe), rushmem_T_g(w, src, pe, out): one element. */
#define RUSHMEM_TYPED_BLOCK(NAME, T, CALL, DST, SRC)                                                          \
  static inline int32_t rushmem_##NAME##_##CALL(rushmem_world_t *w, DST *dst, SRC *src, size_t n, int32_t pe) \
  {                                                                                                           \
    if (n > SIZE_MAX / sizeof(T)) n = SIZE_MAX / sizeof(T); /* too many to exist: refused as out of bounds */ \
    return rushmem_##CALL(w, dst, src, n * sizeof(T), pe);                                                    \
  }
#define RUSHMEM_TYPED_STRIDED(NAME, T, CALL)                                                                  \
  static inline int32_t rushmem_##NAME##_##CALL(rushmem_world_t *w, T *dst, const T *src,                     \
                                                ptrdiff_t dst_stride, ptrdiff_t src_stride, size_t n,         \
                                                int32_t pe)                                                   \
  {                                                                                                           \
    return rushmem_##CALL(w, dst, src, dst_stride, src_stride, sizeof(T), n, pe);                             \
  }
#define RUSHMEM_TYPED_IPUT_SIGNAL(NAME, T)                                                                    \
  static inline int32_t rushmem_##NAME##_iput_signal(rushmem_world_t *w, T *dst, const T *src,                \
                                                     ptrdiff_t dst_stride, ptrdiff_t src_stride, size_t n,    \
                                                     uint64_t *sig, uint64_t value, int32_t sig_op,           \
                                                     int32_t pe)                                              \
  {                                                                                                           \
    return rushmem_iput_signal(w, dst, src, dst_stride, src_stride, sizeof(T), n, sig, value, sig_op, pe);    \
  }
#define RUSHMEM_TYPED_PUT_SIGNAL(NAME, T, CALL)                                                               \
  static inline int32_t rushmem_##NAME##_##CALL(rushmem_world_t *w, T *dst, const T *src, size_t n,           \
                                                uint64_t *sig, uint64_t value, int32_t sig_op, int32_t pe)    \
  {                                                                                                           \
    if (n > SIZE_MAX / sizeof(T)) n = SIZE_MAX / sizeof(T);                                                   \
    return rushmem_##CALL(w, dst, src, n * sizeof(T), sig, value, sig_op, pe);                                \
  }
#define RUSHMEM_TYPED_RMA(NAME, T)                                                                            \
  RUSHMEM_TYPED_BLOCK(NAME, T, put, T, const T)                                                               \
  RUSHMEM_TYPED_BLOCK(NAME, T, put_nbi, T, const T)                                                           \
  RUSHMEM_TYPED_BLOCK(NAME, T, get, T, const T)                                                               \
  RUSHMEM_TYPED_BLOCK(NAME, T, get_nbi, T, const T)                                                           \
  RUSHMEM_TYPED_STRIDED(NAME, T, iput)                                                                        \
  RUSHMEM_TYPED_STRIDED(NAME, T, iget)                                                                        \
  RUSHMEM_TYPED_IPUT_SIGNAL(NAME, T)                                                                          \
  RUSHMEM_TYPED_PUT_SIGNAL(NAME, T, put_signal)                                                               \
  RUSHMEM_TYPED_PUT_SIGNAL(NAME, T, put_signal_nbi)                                                           \
  static inline int32_t rushmem_##NAME##_p(rushmem_world_t *w, T *dst, T value, int32_t pe)                   \
  {                                                                                                           \
    return rushmem_p(w, dst, rushmem_typed_to_bits(&value, sizeof value), sizeof value, pe);                  \
  }                                                                                                           \
  static inline int32_t rushmem_##NAME##_g(rushmem_world_t *w, const T *src, int32_t pe, T *out)              \
  {                                                                                                           \
    uint64_t bits = 0;                                                                                        \
    const int32_t rc = out ? rushmem_g(w, src, &bits, sizeof(T), pe) : rushmem_g(w, src, NULL, sizeof(T), pe);\
    if (rc == RUSHMEM_OK) rushmem_typed_from_bits(out, sizeof(T), bits);                                      \
    return rc;                                                                                                \
  }

/* rushmem_T_atomic_set(w, target, value, pe), _inc (no value), _add, _and, _or, _xor;
 * rushmem_T_atomic_fetch(w, target, pe, fetched), _fetch_inc;
 * rushmem_T_atomic_swap(w, target, value, pe, fetched), _fetch_add, _fetch_and, _fetch_or, _fetch_xor;
 * rushmem_T_atomic_compare_swap(w, target, compare, value, pe, fetched). */
#define RUSHMEM_TYPED_UPDATE(NAME, T, KIND, CALL, OP)                                                         \
  static inline int32_t rushmem_##NAME##_atomic_##CALL(rushmem_world_t *w, T *target, T value, int32_t pe)    \
  {                                                                                                           \
    return rushmem_atomic(w, OP, KIND, target, rushmem_typed_to_bits(&value, sizeof value), 0, pe, NULL);     \
  }
#define RUSHMEM_TYPED_FETCHING(NAME, T, KIND, OP, VALUE, COMPARE)                                             \
  {                                                                                                           \
    uint64_t old = 0;                                                                                         \
    const int32_t rc = rushmem_atomic(w, OP, KIND, (T *)target, VALUE, COMPARE, pe, fetched ? &old : NULL);   \
    if (rc == RUSHMEM_OK) rushmem_typed_from_bits(fetched, sizeof(T), old);                                   \
    return rc;                                                                                                \
  }
#define RUSHMEM_TYPED_FETCH(NAME, T, KIND, CALL, OP)                                                          \
  static inline int32_t rushmem_##NAME##_atomic_##CALL(rushmem_world_t *w, T *target, T value, int32_t pe,    \
                                                       T *fetched)                                            \
  RUSHMEM_TYPED_FETCHING(NAME, T, KIND, OP, rushmem_typed_to_bits(&value, sizeof value), 0)
#define RUSHMEM_TYPED_ATOMIC_MOVES(NAME, T, KIND)                                                             \
  static inline int32_t rushmem_##NAME##_atomic_fetch(rushmem_world_t *w, const T *target, int32_t pe,        \
                                                      T *fetched)                                             \
  RUSHMEM_TYPED_FETCHING(NAME, T, KIND, RUSHMEM_ATOMIC_FETCH, 0, 0)                                           \
  RUSHMEM_TYPED_UPDATE(NAME, T, KIND, set, RUSHMEM_ATOMIC_SET)                                                \
  RUSHMEM_TYPED_FETCH(NAME, T, KIND, swap, RUSHMEM_ATOMIC_SWAP)
#define RUSHMEM_TYPED_ATOMICS(NAME, T, KIND)                                                                  \
  RUSHMEM_TYPED_ATOMIC_MOVES(NAME, T, KIND)                                                                   \
  static inline int32_t rushmem_##NAME##_atomic_compare_swap(rushmem_world_t *w, T *target, T compare,        \
                                                             T value, int32_t pe, T *fetched)                 \
  RUSHMEM_TYPED_FETCHING(NAME, T, KIND, RUSHMEM_ATOMIC_COMPARE_SWAP,                                          \
                         rushmem_typed_to_bits(&value, sizeof value),                                         \
                         rushmem_typed_to_bits(&compare, sizeof compare))                                     \
  static inline int32_t rushmem_##NAME##_atomic_inc(rushmem_world_t *w, T *target, int32_t pe)                \
  {                                                                                                           \
    return rushmem_atomic(w, RUSHMEM_ATOMIC_ADD, KIND, target, 1, 0, pe, NULL);                               \
  }                                                                                                           \
  static inline int32_t rushmem_##NAME##_atomic_fetch_inc(rushmem_world_t *w, T *target, int32_t pe,          \
                                                          T *fetched)                                         \
  RUSHMEM_TYPED_FETCHING(NAME, T, KIND, RUSHMEM_ATOMIC_FETCH_ADD, 1, 0)                                       \
  RUSHMEM_TYPED_UPDATE(NAME, T, KIND, add, RUSHMEM_ATOMIC_ADD)                                                \
  RUSHMEM_TYPED_UPDATE(NAME, T, KIND, and, RUSHMEM_ATOMIC_AND)                                                \
  RUSHMEM_TYPED_UPDATE(NAME, T, KIND, or, RUSHMEM_ATOMIC_OR)                                                  \
  RUSHMEM_TYPED_UPDATE(NAME, T, KIND, xor, RUSHMEM_ATOMIC_XOR)                                                \
  RUSHMEM_TYPED_FETCH(NAME, T, KIND, fetch_add, RUSHMEM_ATOMIC_FETCH_ADD)                                     \
  RUSHMEM_TYPED_FETCH(NAME, T, KIND, fetch_and, RUSHMEM_ATOMIC_FETCH_AND)                                     \
  RUSHMEM_TYPED_FETCH(NAME, T, KIND, fetch_or, RUSHMEM_ATOMIC_FETCH_OR)                                       \
  RUSHMEM_TYPED_FETCH(NAME, T, KIND, fetch_xor, RUSHMEM_ATOMIC_FETCH_XOR)

/* rushmem_T_wait_until(w, ivar, cmp, value), _wait_until_all(w, ivars, n, status, cmp, value),
 * _wait_until_any(..., index), _wait_until_some(..., indices, count), and the _vector forms with `values` in
 * place of `value`; the world's default time limit holds. rushmem_T_test(w, ivar, cmp, value, result) and its
 * forms likewise; _test_all has a `result`, too. */
#define RUSHMEM_TYPED_SETS(NAME, T, KIND, SUFFIX, EXPECT, GIVEN)                                              \
  static inline int32_t rushmem_##NAME##_wait_until_all##SUFFIX(                                              \
      rushmem_world_t *w, const T *ivars, size_t n, const int32_t *status, int32_t cmp, EXPECT)               \
  {                                                                                                           \
    return rushmem_wait_until_all##SUFFIX(w, KIND, ivars, n, status, cmp, GIVEN, 0);                          \
  }                                                                                                           \
  static inline int32_t rushmem_##NAME##_wait_until_any##SUFFIX(                                              \
      rushmem_world_t *w, const T *ivars, size_t n, const int32_t *status, int32_t cmp, EXPECT,               \
      size_t *index)                                                                                          \
  {                                                                                                           \
    return rushmem_wait_until_any##SUFFIX(w, KIND, ivars, n, status, cmp, GIVEN, 0, index);                   \
  }                                                                                                           \
  static inline int32_t rushmem_##NAME##_wait_until_some##SUFFIX(                                             \
      rushmem_world_t *w, const T *ivars, size_t n, const int32_t *status, int32_t cmp, EXPECT,               \
      size_t *indices, size_t *count)                                                                         \
  {                                                                                                           \
    return rushmem_wait_until_some##SUFFIX(w, KIND, ivars, n, status, cmp, GIVEN, 0, indices, count);         \
  }                                                                                                           \
  static inline int32_t rushmem_##NAME##_test_all##SUFFIX(                                                    \
      rushmem_world_t *w, const T *ivars, size_t n, const int32_t *status, int32_t cmp, EXPECT,               \
      int32_t *result)                                                                                        \
  {                                                                                                           \
    return rushmem_test_all##SUFFIX(w, KIND, ivars, n, status, cmp, GIVEN, result);                           \
  }                                                                                                           \
  static inline int32_t rushmem_##NAME##_test_any##SUFFIX(                                                    \
      rushmem_world_t *w, const T *ivars, size_t n, const int32_t *status, int32_t cmp, EXPECT,               \
      size_t *index)                                                                                          \
  {                                                                                                           \
    return rushmem_test_any##SUFFIX(w, KIND, ivars, n, status, cmp, GIVEN, index);                            \
  }                                                                                                           \
  static inline int32_t rushmem_##NAME##_test_some##SUFFIX(                                                   \
      rushmem_world_t *w, const T *ivars, size_t n, const int32_t *status, int32_t cmp, EXPECT,               \
      size_t *indices, size_t *count)                                                                         \
  {                                                                                                           \
    return rushmem_test_some##SUFFIX(w, KIND, ivars, n, status, cmp, GIVEN, indices, count);                  \
  }
#define RUSHMEM_TYPED_WAITS(NAME, T, KIND)                                                                    \
  static inline int32_t rushmem_##NAME##_wait_until(rushmem_world_t *w, const T *ivar, int32_t cmp, T value)  \
  {                                                                                                           \
    return rushmem_wait_until(w, KIND, ivar, cmp, rushmem_typed_to_bits(&value, sizeof value), 0);            \
  }                                                                                                           \
  static inline int32_t rushmem_##NAME##_test(rushmem_world_t *w, const T *ivar, int32_t cmp, T value,        \
                                              int32_t *result)                                                \
  {                                                                                                           \
    return rushmem_test(w, KIND, ivar, cmp, rushmem_typed_to_bits(&value, sizeof value), result);             \
  }                                                                                                           \
  RUSHMEM_TYPED_SETS(NAME, T, KIND, , T value, rushmem_typed_to_bits(&value, sizeof value))                   \
  RUSHMEM_TYPED_SETS(NAME, T, KIND, _vector, const T *values, values)

/* Collectives of a team: rushmem_T_broadcast(team, dst, src, n, root), rushmem_T_fcollect(team, dst, src, n),
 * rushmem_T_collect(team, dst, room, src, n, received), rushmem_T_alltoall(team, dst, src, n),
 * rushmem_T_alltoalls(team, dst, src, dst_stride, src_stride, n); rushmem_T_sum_reduce(team, dst, src, n),
 * _sum_reducescatter, _sum_inscan, _sum_exscan, the same of prod, min and max and, for integers, of and, or
 * and xor. */
#define RUSHMEM_TYPED_BYTES(T, n) ((n) > SIZE_MAX / sizeof(T) ? SIZE_MAX : (n) * sizeof(T))
#define RUSHMEM_TYPED_MOVES(NAME, T)                                                                          \
  static inline int32_t rushmem_##NAME##_broadcast(rushmem_team_t *team, T *dst, const T *src, size_t n,      \
                                                   int32_t root)                                              \
  {                                                                                                           \
    return rushmem_team_broadcast(team, dst, src, RUSHMEM_TYPED_BYTES(T, n), root);                           \
  }                                                                                                           \
  static inline int32_t rushmem_##NAME##_fcollect(rushmem_team_t *team, T *dst, const T *src, size_t n)       \
  {                                                                                                           \
    return rushmem_team_fcollect(team, dst, src, RUSHMEM_TYPED_BYTES(T, n));                                  \
  }                                                                                                           \
  static inline int32_t rushmem_##NAME##_collect(rushmem_team_t *team, T *dst, size_t room, const T *src,     \
                                                 size_t n, size_t *received)                                  \
  {                                                                                                           \
    const size_t bytes = RUSHMEM_TYPED_BYTES(T, n);                                                           \
    const int32_t rc = rushmem_team_collect(team, dst, RUSHMEM_TYPED_BYTES(T, room), src, bytes, received);   \
    if (rc == RUSHMEM_OK && received) *received /= sizeof(T);                                                 \
    return rc;                                                                                                \
  }                                                                                                           \
  static inline int32_t rushmem_##NAME##_alltoall(rushmem_team_t *team, T *dst, const T *src, size_t n)       \
  {                                                                                                           \
    return rushmem_team_alltoall(team, dst, src, RUSHMEM_TYPED_BYTES(T, n));                                  \
  }                                                                                                           \
  static inline int32_t rushmem_##NAME##_alltoalls(rushmem_team_t *team, T *dst, const T *src,                \
                                                   ptrdiff_t dst_stride, ptrdiff_t src_stride, size_t n)      \
  {                                                                                                           \
    return rushmem_team_alltoalls(team, dst, src, dst_stride, src_stride, sizeof(T), n);                      \
  }

/* The element type of reductions (RUSHMEM_INT8 ...) of a C type, by what it holds. */
#define RUSHMEM_REDUCED_TYPE(T)                                                                               \
  ((T)0.5 != 0 ? (sizeof(T) == 4 ? RUSHMEM_FLOAT : RUSHMEM_DOUBLE)                                            \
   : (T)-1 < (T)1                                                                                             \
     ? (sizeof(T) == 1   ? RUSHMEM_INT8                                                                       \
        : sizeof(T) == 2 ? RUSHMEM_INT16                                                                      \
        : sizeof(T) == 4 ? RUSHMEM_INT32                                                                      \
                         : RUSHMEM_INT64)                                                                     \
     : (sizeof(T) == 1   ? RUSHMEM_UINT8                                                                      \
        : sizeof(T) == 2 ? RUSHMEM_UINT16                                                                     \
        : sizeof(T) == 4 ? RUSHMEM_UINT32                                                                     \
                         : RUSHMEM_UINT64))
#define RUSHMEM_TYPED_REDUCTION(NAME, T, WHAT, OP, CALL)                                                      \
  static inline int32_t rushmem_##NAME##_##WHAT##_##CALL(rushmem_team_t *team, T *dst, const T *src, size_t n)\
  {                                                                                                           \
    return rushmem_team_##CALL(team, dst, src, n, RUSHMEM_REDUCED_TYPE(T), OP);                               \
  }
#define RUSHMEM_TYPED_OPERATOR(NAME, T, WHAT, OP)                                                             \
  RUSHMEM_TYPED_REDUCTION(NAME, T, WHAT, OP, reduce)                                                          \
  RUSHMEM_TYPED_REDUCTION(NAME, T, WHAT, OP, reducescatter)                                                   \
  RUSHMEM_TYPED_REDUCTION(NAME, T, WHAT, OP, inscan)                                                          \
  RUSHMEM_TYPED_REDUCTION(NAME, T, WHAT, OP, exscan)
#define RUSHMEM_TYPED_REDUCTIONS(NAME, T)                                                                     \
  RUSHMEM_TYPED_OPERATOR(NAME, T, sum, RUSHMEM_SUM)                                                           \
  RUSHMEM_TYPED_OPERATOR(NAME, T, prod, RUSHMEM_PROD)                                                         \
  RUSHMEM_TYPED_OPERATOR(NAME, T, min, RUSHMEM_MIN)                                                           \
  RUSHMEM_TYPED_OPERATOR(NAME, T, max, RUSHMEM_MAX)
#define RUSHMEM_TYPED_BITS(NAME, T)                                                                           \
  RUSHMEM_TYPED_OPERATOR(NAME, T, and, RUSHMEM_AND)                                                           \
  RUSHMEM_TYPED_OPERATOR(NAME, T, or, RUSHMEM_OR)                                                             \
  RUSHMEM_TYPED_OPERATOR(NAME, T, xor, RUSHMEM_XOR)
#define RUSHMEM_TYPED_BITS_OF(NAME, T, KIND) RUSHMEM_TYPED_BITS(NAME, T)

RUSHMEM_RMA_TYPES(RUSHMEM_TYPED_RMA)
RUSHMEM_RMA_TYPES(RUSHMEM_TYPED_MOVES)
RUSHMEM_RMA_TYPES(RUSHMEM_TYPED_REDUCTIONS)
RUSHMEM_SMALL_INTEGER_TYPES(RUSHMEM_TYPED_BITS)
RUSHMEM_INTEGER_TYPES(RUSHMEM_TYPED_BITS_OF)
RUSHMEM_INTEGER_TYPES(RUSHMEM_TYPED_ATOMICS)
RUSHMEM_FLOAT_TYPES(RUSHMEM_TYPED_ATOMIC_MOVES)
RUSHMEM_INTEGER_TYPES(RUSHMEM_TYPED_WAITS)

#undef RUSHMEM_TYPED_BLOCK
#undef RUSHMEM_TYPED_STRIDED
#undef RUSHMEM_TYPED_PUT_SIGNAL
#undef RUSHMEM_TYPED_RMA
#undef RUSHMEM_TYPED_UPDATE
#undef RUSHMEM_TYPED_FETCHING
#undef RUSHMEM_TYPED_FETCH
#undef RUSHMEM_TYPED_ATOMIC_MOVES
#undef RUSHMEM_TYPED_ATOMICS
#undef RUSHMEM_TYPED_SETS
#undef RUSHMEM_TYPED_WAITS
#undef RUSHMEM_TYPED_BYTES
#undef RUSHMEM_TYPED_MOVES
#undef RUSHMEM_TYPED_REDUCTION
#undef RUSHMEM_TYPED_OPERATOR
#undef RUSHMEM_TYPED_REDUCTIONS
#undef RUSHMEM_TYPED_BITS
#undef RUSHMEM_TYPED_BITS_OF

#endif /* RUSHMEM_TYPED_H */
