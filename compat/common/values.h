/* Values in the generated functions of OpenSHMEM and NVSHMEM: what a call writes as an expression, and the
 * bits of any type as a word. */
#ifndef RUSHMEM_COMPAT_VALUES_H
#define RUSHMEM_COMPAT_VALUES_H

#include <stdint.h>
#include <string.h>

/* The result of a call that writes it to `result`. */
#define RESULT(type, expression)                                                                             \
  ({                                                                                                         \
    type result;                                                                                             \
    expression;                                                                                              \
    result;                                                                                                  \
  })
/* A value's bits, in the low bytes. */
#define BITS(type, value)                                                                                    \
  ({                                                                                                         \
    const type typed = (value);                                                                              \
    uint64_t bits = 0;                                                                                       \
    memcpy(&bits, &typed, sizeof typed);                                                                     \
    bits;                                                                                                    \
  })

#endif
