/* Arithmetic of reductions that the runtime does not do: those of long doubles, and of active sets. Integers
 * wrap. */
#include <stdlib.h>

#include "library.h"

size_t type_bytes(int type)
{
  switch (type) {
  case RUSHMEM_INT8:
  case RUSHMEM_UINT8: return 1;
  case RUSHMEM_INT16:
  case RUSHMEM_UINT16: return 2;
  case RUSHMEM_INT32:
  case RUSHMEM_UINT32:
  case RUSHMEM_FLOAT: return 4;
  case RUSHMEM_COMPLEX_DOUBLE: return sizeof(double _Complex);
  case LONG_DOUBLE: return sizeof(long double);
  default: return 8;
  }
}

#define EACH(T, expression)                                                                                  \
  do {                                                                                                       \
    T *a = into;                                                                                             \
    const T *b = from;                                                                                       \
    for (size_t i = 0; i < n; i++) a[i] = (T) (expression);                                                  \
  } while (0);                                                                                               \
  break
#define ARITHMETIC(T, W)                                                                                     \
  case RUSHMEM_SUM: EACH(T, (W) a[i] + (W) b[i]);                                                            \
  case RUSHMEM_PROD: EACH(T, (W) a[i] * (W) b[i])
#define ORDER(T)                                                                                             \
  case RUSHMEM_MIN: EACH(T, b[i] < a[i] ? b[i] : a[i]);                                                      \
  case RUSHMEM_MAX: EACH(T, b[i] > a[i] ? b[i] : a[i])
#define BITWISE(T)                                                                                           \
  case RUSHMEM_AND: EACH(T, a[i] & b[i]);                                                                    \
  case RUSHMEM_OR: EACH(T, a[i] | b[i]);                                                                     \
  case RUSHMEM_XOR: EACH(T, a[i] ^ b[i])
/* `W` is unsigned and at least as wide as int, so that nothing overflows. */
#define INTEGER(T, W)                                                                                        \
  switch (op) {                                                                                              \
    ARITHMETIC(T, W);                                                                                        \
    ORDER(T);                                                                                                \
    BITWISE(T);                                                                                              \
  }                                                                                                          \
  break
#define REAL(T)                                                                                              \
  switch (op) {                                                                                              \
    ARITHMETIC(T, T);                                                                                        \
    ORDER(T);                                                                                                \
  }                                                                                                          \
  break
#define COMPLEX(T)                                                                                           \
  switch (op) {                                                                                              \
    ARITHMETIC(T, T);                                                                                        \
  }                                                                                                          \
  break

void combine(int type, int op, void *into, const void *from, size_t n)
{
  switch (type) {
  case RUSHMEM_INT16: INTEGER(int16_t, uint32_t);
  case RUSHMEM_INT32: INTEGER(int32_t, uint32_t);
  case RUSHMEM_INT64: INTEGER(int64_t, uint64_t);
  case RUSHMEM_FLOAT: REAL(float);
  case RUSHMEM_DOUBLE: REAL(double);
  case LONG_DOUBLE: REAL(long double);
  case RUSHMEM_COMPLEX_FLOAT: COMPLEX(float _Complex);
  case RUSHMEM_COMPLEX_DOUBLE: COMPLEX(double _Complex);
  default: abort(); /* the table has no other type for this file */
  }
}
