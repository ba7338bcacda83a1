/* The platform's atomic updates, relaxed. In PTX, as CUDA's own functions take generic addresses: where the
 * compiler cannot see that one is global (it has been computed from integers), they become code for three
 * kinds of memory, and always fetch the old value. `red` fetches nothing and nobody waits for it. Each takes
 * exactly the width of its pointer. */
#ifndef RUSHMEM_IMPL_CUDA_ATOMIC_H
#define RUSHMEM_IMPL_CUDA_ATOMIC_H

#include <rushmem/impl/cuda.h>

namespace rushmem {
namespace impl {

/* Not volatile: of a loop with volatile assembly in it the compiler makes nothing else, while of this it
 * makes two, for PEs of the run and for others (performance-log.md, 41). "memory" says that it has effects,
 * so it is neither removed nor moved. Of a RED `to` is a result, because assembly without one counts as
 * volatile. */
#define RUSHMEM_ATOM(name, operation, T, letter)              \
  RUSHMEM_DEVICE T name(T *to, T value) {                     \
    T before;                                                 \
    asm("atom.relaxed.sys.global." operation " %0, [%1], %2;" \
        : "=" letter(before)                                  \
        : "l"(to), letter(value)                              \
        : "memory");                                          \
    return before;                                            \
  }
#define RUSHMEM_FETCH(T, width, letter)                                                          \
  RUSHMEM_DEVICE T fetch_word(const T *from) {                                                   \
    T value;                                                                                     \
    asm("ld.relaxed.sys.global." width " %0, [%1];" : "=" letter(value) : "l"(from) : "memory"); \
    return value;                                                                                \
  }
#define RUSHMEM_RED(name, operation, T, letter)                                                  \
  RUSHMEM_DEVICE void name(T *to, T value) {                                                     \
    asm("red.relaxed.sys.global." operation " [%0], %1;" : "+l"(to) : letter(value) : "memory"); \
  }
#define RUSHMEM_WRITE(T, width, letter)                                                     \
  RUSHMEM_DEVICE void write_word(T *to, T value) {                                          \
    asm("st.relaxed.sys.global." width " [%0], %1;" : "+l"(to) : letter(value) : "memory"); \
  }
/* Under a predicate; `to` may be any address where it is false. */
#define RUSHMEM_WORD_IF(name, instruction, T, letter)                                          \
  RUSHMEM_DEVICE void name(uint32_t when, T *to, T value) {                                        \
    asm("{\n\t.reg .pred when;\n\tsetp.ne.u32 when, %2, 0;\n\t@when " instruction " [%0], %1;\n\t}" \
        : "+l"(to)                                                                             \
        : letter(value), "r"(when)                                      \
        : "memory");                                                                           \
  }
#define RUSHMEM_UPDATE_IF(name, operation, bits)                                                  \
  RUSHMEM_WORD_IF(name, "red.relaxed.sys.global." operation "." bits "32", uint32_t, "r")         \
  RUSHMEM_WORD_IF(name, "red.relaxed.sys.global." operation "." bits "64", uint64_t, "l")
#define RUSHMEM_COMPARE_SWAP(operation, T, letter)                \
  RUSHMEM_DEVICE T compare_swap_word(T *to, T expected, T value) {  \
    T before;                                                       \
    asm("atom.relaxed.sys.global." operation " %0, [%1], %2, %3;" \
        : "=" letter(before)                                      \
        : "l"(to), letter(expected), letter(value)                \
        : "memory");                                              \
    return before;                                                \
  }

RUSHMEM_WRITE(uint32_t, "u32", "r")
RUSHMEM_WRITE(uint64_t, "u64", "l")
RUSHMEM_FETCH(uint32_t, "u32", "r")
RUSHMEM_FETCH(uint64_t, "u64", "l")
RUSHMEM_ATOM(fetch_add_word, "add.u32", uint32_t, "r")
RUSHMEM_ATOM(fetch_add_word, "add.u64", uint64_t, "l")
RUSHMEM_ATOM(fetch_add_float, "add.f32", float, "f")
RUSHMEM_ATOM(fetch_add_float, "add.f64", double, "d")
RUSHMEM_ATOM(fetch_and_word, "and.b32", uint32_t, "r")
RUSHMEM_ATOM(fetch_and_word, "and.b64", uint64_t, "l")
RUSHMEM_ATOM(fetch_or_word, "or.b32", uint32_t, "r")
RUSHMEM_ATOM(fetch_or_word, "or.b64", uint64_t, "l")
RUSHMEM_ATOM(fetch_xor_word, "xor.b32", uint32_t, "r")
RUSHMEM_ATOM(fetch_xor_word, "xor.b64", uint64_t, "l")
RUSHMEM_RED(add_word, "add.u32", uint32_t, "r")
RUSHMEM_RED(add_word, "add.u64", uint64_t, "l")
RUSHMEM_RED(add_float, "add.f32", float, "f")
RUSHMEM_RED(add_float, "add.f64", double, "d")
RUSHMEM_RED(and_word, "and.b32", uint32_t, "r")
RUSHMEM_RED(and_word, "and.b64", uint64_t, "l")
RUSHMEM_RED(or_word, "or.b32", uint32_t, "r")
RUSHMEM_RED(or_word, "or.b64", uint64_t, "l")
RUSHMEM_RED(xor_word, "xor.b32", uint32_t, "r")
RUSHMEM_RED(xor_word, "xor.b64", uint64_t, "l")
RUSHMEM_WORD_IF(write_word_if, "st.relaxed.sys.global.u32", uint32_t, "r")
RUSHMEM_WORD_IF(write_word_if, "st.relaxed.sys.global.u64", uint64_t, "l")
RUSHMEM_UPDATE_IF(add_word_if, "add", "u")
RUSHMEM_UPDATE_IF(and_word_if, "and", "b")
RUSHMEM_UPDATE_IF(or_word_if, "or", "b")
RUSHMEM_UPDATE_IF(xor_word_if, "xor", "b")
RUSHMEM_ATOM(swap_word, "exch.b32", uint32_t, "r")
RUSHMEM_ATOM(swap_word, "exch.b64", uint64_t, "l")
RUSHMEM_COMPARE_SWAP("cas.b16", unsigned short, "h")
RUSHMEM_COMPARE_SWAP("cas.b32", uint32_t, "r")
RUSHMEM_COMPARE_SWAP("cas.b64", uint64_t, "l")

/* 16-bit floats, by their bits: the types are known to those programs alone that include their headers.
 * Rounded to nearest, subnormals kept. */
RUSHMEM_DEVICE float float_of_half(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
RUSHMEM_DEVICE unsigned short half_of_float(float value) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
RUSHMEM_DEVICE float float_of_bfloat16(unsigned short bits) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
}
RUSHMEM_DEVICE unsigned short bfloat16_of_float(float value) {
  unsigned short bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
RUSHMEM_DEVICE unsigned short sum_of_halves(unsigned short a, unsigned short b) {
  unsigned short sum;
  asm("add.rn.f16 %0, %1, %2;" : "=h"(sum) : "h"(a), "h"(b));
  return sum;
}
RUSHMEM_DEVICE unsigned short sum_of_bfloat16s(unsigned short a, unsigned short b) {
  unsigned short sum;
  /* 1.0 * a + b: sm_80 has no plain addition of these. */
  asm("fma.rn.bf16 %0, %1, %2, %3;" : "=h"(sum) : "h"(a), "h"(static_cast<unsigned short>(0x3f80)), "h"(b));
  return sum;
}
/* The hardware adds pairs only, which would touch the neighbour, so the compiler makes these a loop around a
 * compare-and-swap. */
RUSHMEM_ATOM(fetch_add_half, "add.noftz.f16", unsigned short, "h")
#if __CUDA_ARCH__ >= 900
RUSHMEM_ATOM(fetch_add_bfloat16, "add.noftz.bf16", unsigned short, "h")
#else
RUSHMEM_DEVICE unsigned short fetch_add_bfloat16(unsigned short *to, unsigned short value) {
  unsigned short before, found = load_relaxed_word(to);
  do {
    before = found;
    found = compare_swap_word(to, before, sum_of_bfloat16s(before, value));
  } while (found != before);
  return before;
}
#endif

#undef RUSHMEM_WRITE
#undef RUSHMEM_WORD_IF
#undef RUSHMEM_UPDATE_IF
#undef RUSHMEM_FETCH
#undef RUSHMEM_ATOM
#undef RUSHMEM_RED
#undef RUSHMEM_COMPARE_SWAP

}  // namespace impl
}  // namespace rushmem

#endif
