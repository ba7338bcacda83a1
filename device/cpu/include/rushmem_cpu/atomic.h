/* CUDA's atomic functions, for the types that CUDA has them for and no others, so that what compiles here
 * compiles under nvcc too. Relaxed, as CUDA's are. Each counts as a tick, so
 * that a spin loop made of atomics lets the rest of the block run. */
#ifndef RUSHMEM_CPU_ATOMIC_H
#define RUSHMEM_CPU_ATOMIC_H

#include <string.h>

#include "rushmem_cpu/sync.h"

template <class T> static inline T rushmem_cpu_noted(const T *address, T seen) {
  uint64_t bits = 0;
  memcpy(&bits, &seen, sizeof seen);
  rushmem_cpu_saw(address, bits);
  return seen;
}
template <class T, class F> static inline T rushmem_cpu_update(T *address, F next) {
  T seen, wanted;
  __atomic_load(address, &seen, __ATOMIC_RELAXED);
  do {
    wanted = next(seen);
  } while (!__atomic_compare_exchange(address, &seen, &wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return rushmem_cpu_noted(address, seen);
}
template <class T> static inline T rushmem_cpu_exchange_word(T *address, T value) {
  T seen;
  __atomic_exchange(address, &value, &seen, __ATOMIC_RELAXED);
  return rushmem_cpu_noted(address, seen);
}
template <class T> static inline T rushmem_cpu_compare_exchange(T *address, T compare, T value) {
  __atomic_compare_exchange(address, &compare, &value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return rushmem_cpu_noted(address, compare);
}

/* One function of one type in its three scopes. */
#define RUSHMEM_CPU_ATOMIC(name, T, body)                             \
  static inline T name(T *address, T value) {                         \
    RUSHMEM_CPU_SCOPED(RUSHMEM_CPU_OF_DEVICE);                        \
    return body;                                                      \
  }                                                                   \
  static inline T name##_block(T *address, T value) {                 \
    RUSHMEM_CPU_SCOPED(RUSHMEM_CPU_OF_BLOCK);                         \
    return body;                                                      \
  }                                                                   \
  static inline T name##_system(T *address, T value) { return body; }
#define RUSHMEM_CPU_FETCH(name, T, builtin) \
  RUSHMEM_CPU_ATOMIC(name, T, rushmem_cpu_noted(address, builtin(address, value, __ATOMIC_RELAXED)))
#define RUSHMEM_CPU_BY_CAS(name, T, expression) \
  RUSHMEM_CPU_ATOMIC(name, T, rushmem_cpu_update(address, [value](T old) -> T { return expression; }))
#define RUSHMEM_CPU_CAS(T)                                           \
  static inline T atomicCAS(T *address, T compare, T value) {        \
    RUSHMEM_CPU_SCOPED(RUSHMEM_CPU_OF_DEVICE);                       \
    return rushmem_cpu_compare_exchange(address, compare, value);    \
  }                                                                  \
  static inline T atomicCAS_block(T *address, T compare, T value) {  \
    RUSHMEM_CPU_SCOPED(RUSHMEM_CPU_OF_BLOCK);                        \
    return rushmem_cpu_compare_exchange(address, compare, value);    \
  }                                                                  \
  static inline T atomicCAS_system(T *address, T compare, T value) { \
    return rushmem_cpu_compare_exchange(address, compare, value);    \
  }

#define RUSHMEM_CPU_EACH_WORD(X, name, arg) \
  X(name, int, arg) X(name, unsigned int, arg) X(name, unsigned long long, arg)
#define RUSHMEM_CPU_EACH_ORDERED(X, name, arg) RUSHMEM_CPU_EACH_WORD(X, name, arg) X(name, long long, arg)

RUSHMEM_CPU_EACH_WORD(RUSHMEM_CPU_FETCH, atomicAdd, __atomic_fetch_add)
RUSHMEM_CPU_BY_CAS(atomicAdd, float, old + value)
RUSHMEM_CPU_BY_CAS(atomicAdd, double, old + value)
RUSHMEM_CPU_FETCH(atomicSub, int, __atomic_fetch_sub)
RUSHMEM_CPU_FETCH(atomicSub, unsigned int, __atomic_fetch_sub)
RUSHMEM_CPU_EACH_WORD(RUSHMEM_CPU_ATOMIC, atomicExch, rushmem_cpu_exchange_word(address, value))
RUSHMEM_CPU_ATOMIC(atomicExch, float, rushmem_cpu_exchange_word(address, value))
RUSHMEM_CPU_EACH_ORDERED(RUSHMEM_CPU_BY_CAS, atomicMin, value < old ? value : old)
RUSHMEM_CPU_EACH_ORDERED(RUSHMEM_CPU_BY_CAS, atomicMax, value > old ? value : old)
RUSHMEM_CPU_BY_CAS(atomicInc, unsigned int, old >= value ? 0u : old + 1u)
RUSHMEM_CPU_BY_CAS(atomicDec, unsigned int, (old == 0u || old > value) ? value : old - 1u)
RUSHMEM_CPU_EACH_WORD(RUSHMEM_CPU_FETCH, atomicAnd, __atomic_fetch_and)
RUSHMEM_CPU_EACH_WORD(RUSHMEM_CPU_FETCH, atomicOr, __atomic_fetch_or)
RUSHMEM_CPU_EACH_WORD(RUSHMEM_CPU_FETCH, atomicXor, __atomic_fetch_xor)
RUSHMEM_CPU_CAS(unsigned short)
RUSHMEM_CPU_CAS(int)
RUSHMEM_CPU_CAS(unsigned int)
RUSHMEM_CPU_CAS(unsigned long long)

/* Vectors: each element by itself is added at once (CUDA C++ Programming Guide, "atomicAdd"). */
static inline float2 atomicAdd(float2 *address, float2 value) {
  return make_float2(atomicAdd(&address->x, value.x), atomicAdd(&address->y, value.y));
}
static inline float4 atomicAdd(float4 *address, float4 value) {
  return make_float4(atomicAdd(&address->x, value.x), atomicAdd(&address->y, value.y),
                     atomicAdd(&address->z, value.z), atomicAdd(&address->w, value.w));
}

#undef RUSHMEM_CPU_ATOMIC
#undef RUSHMEM_CPU_FETCH
#undef RUSHMEM_CPU_BY_CAS
#undef RUSHMEM_CPU_CAS
#undef RUSHMEM_CPU_EACH_WORD
#undef RUSHMEM_CPU_EACH_ORDERED

/* Cache hints are nothing here. */
#define RUSHMEM_CPU_LOAD(name) \
  template <class T> static inline T name(const T *address) { return *address; }
RUSHMEM_CPU_LOAD(__ldg)
RUSHMEM_CPU_LOAD(__ldcg)
RUSHMEM_CPU_LOAD(__ldca)
RUSHMEM_CPU_LOAD(__ldcs)
RUSHMEM_CPU_LOAD(__ldlu)
#undef RUSHMEM_CPU_LOAD
/* Read anew each time; a vector word by word. */
template <class T> static inline T __ldcv(const T *address) {
  if constexpr (sizeof(T) % sizeof(uint32_t) == 0) {
    uint32_t words[sizeof(T) / sizeof(uint32_t)];
    for (size_t i = 0; i < sizeof(T) / sizeof(uint32_t); ++i)
      words[i] = ((const volatile uint32_t *)address)[i];
    T value;
    memcpy(&value, words, sizeof value);
    return value;
  } else {
    return *(const volatile T *)address;
  }
}
#define RUSHMEM_CPU_STORE(name) \
  template <class T> static inline void name(T *address, T value) { *address = value; }
RUSHMEM_CPU_STORE(__stwb)
RUSHMEM_CPU_STORE(__stcg)
RUSHMEM_CPU_STORE(__stcs)
RUSHMEM_CPU_STORE(__stwt)
#undef RUSHMEM_CPU_STORE

#endif
