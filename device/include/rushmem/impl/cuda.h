/* The platform in PTX (ISA 8.x, sm_70 memory model). The orderings below refer to the "Memory Consistency
 * Model" chapter of the PTX manual. Every symmetric object is in global memory, so the accesses name that
 * space: the compiler then need not think of shared or local memory. */
#ifndef RUSHMEM_IMPL_CUDA_H
#define RUSHMEM_IMPL_CUDA_H

#include <rushmem/impl/traits.h>

#include <rushmem/abi.h>

#define RUSHMEM_DEVICE __device__ __forceinline__
#define RUSHMEM_UNROLL _Pragma("unroll")

/* Who holds the cold path and the device state: in relocatable code (nvcc -rdc=true, NVRTC -dlto) the device
 * library does, once for the whole program, and these headers declare; otherwise there is nothing to link with,
 * and they define. */
#if defined(__CUDACC_RDC__) && !defined(RUSHMEM_DEVICE_LIBRARY)
#define RUSHMEM_COLD __device__
#define RUSHMEM_COLD_IN_LIBRARY 1
#elif defined(__CUDACC_RDC__)
#define RUSHMEM_COLD __device__ __noinline__
#else
#define RUSHMEM_COLD inline __device__ __noinline__
#endif

/* The state of this PE's device, in constant memory: a field costs no load instruction of its own. The runtime
 * fills it before the first launch. Until then it says which layout the code was compiled for: a runtime that
 * has another refuses the module. */
extern "C" {
#if defined(RUSHMEM_COLD_IN_LIBRARY)
extern __constant__ rushmem_device_state rushmem_state;
#else
__constant__ rushmem_device_state rushmem_state = {RUSHMEM_DEVICE_ABI_VERSION, sizeof(rushmem_device_state)};
#endif
}

namespace rushmem {
namespace impl {

RUSHMEM_DEVICE const rushmem_device_state &device_state() { return rushmem_state; }

/* ---- single words. "memory": a relaxed store may be to this PE's own heap, whose plain accesses the
 * compiler must not keep in registers across it. ---- */

RUSHMEM_DEVICE unsigned char load_relaxed_word(const volatile unsigned char *from) {
  uint32_t value;
  asm volatile("ld.relaxed.sys.global.u8 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return static_cast<unsigned char>(value);
}
RUSHMEM_DEVICE unsigned short load_relaxed_word(const volatile unsigned short *from) {
  unsigned short value;
  asm volatile("ld.relaxed.sys.global.u16 %0, [%1];" : "=h"(value) : "l"(from) : "memory");
  return value;
}
RUSHMEM_DEVICE uint32_t load_relaxed_word(const volatile uint32_t *from) {
  uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
RUSHMEM_DEVICE uint64_t load_relaxed_word(const volatile uint64_t *from) {
  uint64_t value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}

RUSHMEM_DEVICE uint32_t load_acquire_word(const volatile uint32_t *from) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
RUSHMEM_DEVICE uint64_t load_acquire_word(const volatile uint64_t *from) {
  uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}

RUSHMEM_DEVICE void store_relaxed_word(unsigned char *to, unsigned char value) {
  asm volatile("st.relaxed.sys.global.u8 [%0], %1;" ::"l"(to), "r"(static_cast<uint32_t>(value)) : "memory");
}
RUSHMEM_DEVICE void store_relaxed_word(unsigned short *to, unsigned short value) {
  asm volatile("st.relaxed.sys.global.u16 [%0], %1;" ::"l"(to), "h"(value) : "memory");
}
RUSHMEM_DEVICE void store_relaxed_word(uint32_t *to, uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
RUSHMEM_DEVICE void store_relaxed_word(uint64_t *to, uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

RUSHMEM_DEVICE void store_release_word(uint64_t *to, uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
RUSHMEM_DEVICE void add_release_word(uint64_t *to, uint64_t value) {
  asm volatile("red.release.sys.global.add.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

/* ---- fences ---- */

RUSHMEM_DEVICE void fence_acq_rel() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
RUSHMEM_DEVICE void fence_sc() { asm volatile("fence.sc.sys;" ::: "memory"); }

/* Bounds what the compiler moves; the hardware is not asked for anything. */
RUSHMEM_DEVICE void compiler_fence() { asm volatile("" ::: "memory"); }

/* After the loads of a get. Their values have been stored, so they have returned: an SM issues in order, and
 * a later access of this thread cannot be performed before them. */
RUSHMEM_DEVICE void loads_before_later() { compiler_fence(); }

/* ---- atomic updates: the compiler's own, relaxed at system scope; without a use of the result they become
 * `red`. Each takes exactly the width of its pointer. ---- */

using u64 = unsigned long long;

RUSHMEM_DEVICE uint32_t fetch_add_word(uint32_t *to, uint32_t v) { return atomicAdd_system(to, v); }
RUSHMEM_DEVICE uint64_t fetch_add_word(uint64_t *to, uint64_t v) {
  return atomicAdd_system(reinterpret_cast<u64 *>(to), static_cast<u64>(v));
}
RUSHMEM_DEVICE float fetch_add_float(float *to, float v) { return atomicAdd_system(to, v); }
RUSHMEM_DEVICE double fetch_add_float(double *to, double v) { return atomicAdd_system(to, v); }

/* By their bits, as the types are known to programs alone that include their headers. Rounded to nearest;
 * subnormals count. */
RUSHMEM_DEVICE unsigned short fetch_add_half(unsigned short *to, unsigned short v) {
  unsigned short before;
  asm volatile("atom.relaxed.sys.global.add.noftz.f16 %0, [%1], %2;"
               : "=h"(before)
               : "l"(to), "h"(v)
               : "memory");
  return before;
}
RUSHMEM_DEVICE unsigned short fetch_add_bfloat16(unsigned short *to, unsigned short v) {
  unsigned short before;
#if __CUDA_ARCH__ >= 900
  asm volatile("atom.relaxed.sys.global.add.noftz.bf16 %0, [%1], %2;"
               : "=h"(before)
               : "l"(to), "h"(v)
               : "memory");
#else
  /* sm_80 adds them in registers alone: read, add (as 1.0 * before + v), and try to put it back. */
  unsigned short found = load_relaxed_word(to);
  do {
    unsigned short after;
    before = found;
    asm("fma.rn.bf16 %0, %1, %2, %3;" : "=h"(after) : "h"(before), "h"((unsigned short)0x3f80), "h"(v));
    asm volatile("atom.relaxed.sys.global.cas.b16 %0, [%1], %2, %3;"
                 : "=h"(found)
                 : "l"(to), "h"(before), "h"(after)
                 : "memory");
  } while (found != before);
#endif
  return before;
}
RUSHMEM_DEVICE uint32_t fetch_and_word(uint32_t *to, uint32_t v) { return atomicAnd_system(to, v); }
RUSHMEM_DEVICE uint64_t fetch_and_word(uint64_t *to, uint64_t v) {
  return atomicAnd_system(reinterpret_cast<u64 *>(to), static_cast<u64>(v));
}
RUSHMEM_DEVICE uint32_t fetch_or_word(uint32_t *to, uint32_t v) { return atomicOr_system(to, v); }
RUSHMEM_DEVICE uint64_t fetch_or_word(uint64_t *to, uint64_t v) {
  return atomicOr_system(reinterpret_cast<u64 *>(to), static_cast<u64>(v));
}
RUSHMEM_DEVICE uint32_t fetch_xor_word(uint32_t *to, uint32_t v) { return atomicXor_system(to, v); }
RUSHMEM_DEVICE uint64_t fetch_xor_word(uint64_t *to, uint64_t v) {
  return atomicXor_system(reinterpret_cast<u64 *>(to), static_cast<u64>(v));
}
RUSHMEM_DEVICE uint32_t swap_word(uint32_t *to, uint32_t v) { return atomicExch_system(to, v); }
RUSHMEM_DEVICE uint64_t swap_word(uint64_t *to, uint64_t v) {
  return atomicExch_system(reinterpret_cast<u64 *>(to), static_cast<u64>(v));
}
RUSHMEM_DEVICE uint32_t compare_swap_word(uint32_t *to, uint32_t expected, uint32_t v) {
  return atomicCAS_system(to, expected, v);
}
RUSHMEM_DEVICE uint64_t compare_swap_word(uint64_t *to, uint64_t expected, uint64_t v) {
  return atomicCAS_system(reinterpret_cast<u64 *>(to), static_cast<u64>(expected), static_cast<u64>(v));
}

/* ---- waiting and failing ---- */

/* Polls between two looks at the clock: a few hundred microseconds. */
constexpr uint32_t polls_per_tick = 1024;

/* Between two polls: nothing, the load's own latency is the pause. */
RUSHMEM_DEVICE void pause(bool) {}

/* In operations that a program may spin on. */
RUSHMEM_DEVICE void breathe() {}

RUSHMEM_DEVICE uint64_t now_ns() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

/* Leaves the reason where the host finds it, then ends the kernel. Inline, because a call, even one never
 * made, would make every caller keep to the calling convention; the instructions land behind the kernel's
 * end. */
RUSHMEM_DEVICE void fail(uint32_t why) {
  *static_cast<volatile uint32_t *>(device_state().failure) = why;
  __threadfence_system();
  __trap();
  __builtin_unreachable();
}

}  // namespace impl
}  // namespace rushmem

#endif
