/* The platform in PTX (ISA 8.x, sm_70 memory model), but its atomic updates (impl/cuda_atomic.h). The
 * orderings below refer to the "Memory Consistency Model" chapter of the PTX manual. Every symmetric object
 * is in global memory, so the accesses name that space, and the compiler makes no code for shared or local
 * memory. */
#ifndef RUSHMEM_IMPL_CUDA_H
#define RUSHMEM_IMPL_CUDA_H

#include <rushmem/impl/traits.h>

#include <rushmem/abi.h>

#define RUSHMEM_DEVICE __device__ __forceinline__
#define RUSHMEM_UNROLL _Pragma("unroll")
#define RUSHMEM_ROLLED _Pragma("unroll 1")

/* Of templates that are off the near path. */
#define RUSHMEM_OUTLINED static __device__ __noinline__

/* The same, of more than a few registers. Not in relocatable machine code, which nvcc makes: there a function
 * takes as many as it likes, and a kernel that might call it has as many; and it saves those of its caller,
 * which takes a block of 512 threads 3 us for a collective's (docs/performance-log.md, 17). */
#if defined(__CUDACC_RDC__) && !defined(__CUDACC_RTC__)
#define RUSHMEM_OUTLINED_LARGE RUSHMEM_DEVICE
#else
#define RUSHMEM_OUTLINED_LARGE RUSHMEM_OUTLINED
#endif

/* Where the cold path and the device state are defined. In relocatable code (nvcc -rdc=true, NVRTC -dlto) the
 * device library defines them, once for the whole program, and these headers declare them. Otherwise there is
 * nothing to link with, and the headers define them. */
#if defined(__CUDACC_RDC__) && !defined(RUSHMEM_DEVICE_LIBRARY)
#define RUSHMEM_COLD __device__
#define RUSHMEM_COLD_IN_LIBRARY 1
#elif defined(__CUDACC_RDC__)
#define RUSHMEM_COLD __device__ __noinline__
#else
#define RUSHMEM_COLD inline __device__ __noinline__
#endif

/* The state of this PE's device, in constant memory: a field costs no load instruction of its own. The
 * runtime fills it before the first launch. Until then it says which layout the code was compiled for: a
 * runtime that has another refuses the module. */
extern "C" {
#if defined(RUSHMEM_COLD_IN_LIBRARY)
extern __constant__ rushmem_device_state rushmem_state;
#else
__constant__ rushmem_device_state rushmem_state = {RUSHMEM_DEVICE_ABI_VERSION,
                                                   sizeof(rushmem_device_state),
                                                   0,
                                                   0,
                                                   0,
                                                   0,
                                                   0,
                                                   0,
                                                   nullptr,
                                                   nullptr,
                                                   nullptr,
                                                   0,
                                                   0,
                                                   nullptr,
                                                   nullptr,
                                                   0, nullptr, nullptr,
                                                   0, 0, 0, 0, 0, nullptr,
                                                   {0, 0, 0, 0, nullptr, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, nullptr, nullptr};
#endif
}

namespace rushmem {
namespace impl {

/* What checked runs of the CPU device note (impl/cpu.h): nothing here. */
enum noted : uint32_t { noted_fence, noted_quiet, noted_put_nbi, noted_get_nbi, noted_put_signal_nbi, noted_packet };
RUSHMEM_DEVICE void note(noted) {}
RUSHMEM_DEVICE void note_arguments(uint32_t, uint64_t, uint64_t, uint32_t) {}
struct noted_nbi {
  explicit RUSHMEM_DEVICE noted_nbi(noted) {}
};
/* What traced runs note, by impl/trace.h: nothing in any other run. */
#if !defined(RUSHMEM_GPU_TRACE)
RUSHMEM_DEVICE void note_call(uint64_t, uint64_t, uint32_t, int) {}
#define RUSHMEM_TRACED(kind, name, is_first, pe, bytes, word_)
#define RUSHMEM_TRACED_ROUND(is_first, slots, phase)
#endif

/* Whether what is short and frequent has code of its own, in line. */
constexpr bool short_path = true;

RUSHMEM_DEVICE const rushmem_device_state &device_state() { return rushmem_state; }

/* A word of this GPU's memory that nobody writes as long as kernels run. Volatile: the compiler takes other
 * assembly for arithmetic, and moves it out of a loop, in front of the branch that asks whether there is such
 * a word at all. */
RUSHMEM_DEVICE uint64_t load_constant(const uint64_t *from) {
  uint64_t value;
  asm volatile("ld.global.nc.u64 %0, [%1];" : "=l"(value) : "l"(from));
  return value;
}

/* ---- single words of a mapped PE, for p and g: `distance` from this PE's copy at `local`. ----
 *
 * Volatile accesses, which PTX treats as relaxed ones at system scope, and which are the same instructions
 * (LDG and STG.STRONG.SYS). They are not in assembly, as the relaxed accesses below are, because of loops: of
 * one with assembly in it the compiler makes nothing else, while of one without it makes two, for a near PE
 * and for another one, and unrolls them, so that loads of several rounds go out together (performance-log.md,
 * 10). Order: volatile accesses keep their order among themselves and with assembly, so with every fence and
 * every other operation here; each may be to the same memory as any plain access through a pointer, and keeps
 * its place among those, but for plain accesses to other memory, of which p and g promise nothing.
 *
 * The address is computed as a pointer: of one computed as an integer nvcc does not believe that it is in
 * global memory. */
#if defined(__NVCC__) || defined(__CUDACC_RTC__)
#define RUSHMEM_GLOBAL
#define RUSHMEM_ASSUME_GLOBAL(at) __builtin_assume(__isGlobal(at))
#elif defined(__clang__)
#define RUSHMEM_GLOBAL __attribute__((address_space(1)))
#define RUSHMEM_ASSUME_GLOBAL(at)
#else
#define RUSHMEM_GLOBAL
#define RUSHMEM_ASSUME_GLOBAL(at)
#endif
template <typename W> struct mapped {
  typedef W __attribute__((may_alias)) word_;
  RUSHMEM_DEVICE static volatile RUSHMEM_GLOBAL word_ *at(const volatile void *local, uint64_t distance) {
    char *there = static_cast<char *>(const_cast<void *>(local)) + static_cast<int64_t>(distance);
    RUSHMEM_ASSUME_GLOBAL(there);
    return (volatile RUSHMEM_GLOBAL word_ *)there;
  }
};
template <typename W> RUSHMEM_DEVICE W load_mapped_word(const volatile W *local, uint64_t distance) {
  return *mapped<W>::at(local, distance);
}
template <typename W> RUSHMEM_DEVICE void store_mapped_word(W *local, uint64_t distance, W value) {
  *mapped<W>::at(local, distance) = value;
}

/* `local`, `upper` times 4 GiB on. Said in C++ the compiler adds 0 to the lower half, or adds a store's
 * distance to the index of the loop around it, in units of W: one and three instructions more. Assembly
 * without effects, so the compiler still takes a condition out of the loop; of g's loads it would no longer
 * see that they may go out together (performance-log.md, 20). */
template <typename W> RUSHMEM_DEVICE W *address_in_run(W *local, uint32_t upper) {
  W *there;
  asm("{\n\t.reg .u32 low, high;\n\t"
      "mov.b64 {low, high}, %1;\n\t"
      "add.u32 high, high, %2;\n\t"
      "mov.b64 %0, {low, high};\n\t}"
      : "=l"(there)
      : "l"(local), "r"(upper));
  return there;
}

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

/* ---- threads of one GPU ---- */

/* Adds to a word of this GPU's memory, after what this thread has done or seen; gives what was there. */
RUSHMEM_DEVICE uint64_t arrive_word(uint64_t *at, uint64_t value) {
  uint64_t before;
  asm volatile("atom.release.gpu.global.add.u64 %0, [%1], %2;" : "=l"(before) : "l"(at), "l"(value) : "memory");
  return before;
}
RUSHMEM_DEVICE uint32_t arrive_word(uint32_t *at, uint32_t value) {
  uint32_t before;
  asm volatile("atom.release.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(at), "r"(value) : "memory");
  return before;
}
/* The word by which the blocks of a cooperative launch meet, CUDA's cooperative groups too: the driver gives
 * each launch one, behind four bytes, in two of the registers that are its own to define (driver_abi.h of
 * CUDA's cooperative_groups). Null in other launches. */
RUSHMEM_DEVICE uint32_t *grid_word() {
  uint32_t high, low;
  asm("mov.u32 %0, %%envreg1;" : "=r"(high));
  asm("mov.u32 %0, %%envreg2;" : "=r"(low));
  const uint64_t at = uint64_t(high) << 32 | low;
  return at ? reinterpret_cast<uint32_t *>(at) + 1 : nullptr;
}
/* Nobody knows here: programs may launch as many blocks as fit in other ways, too. */
RUSHMEM_DEVICE constexpr bool blocks_can_meet() { return true; }
RUSHMEM_DEVICE void fence_acq_rel_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
/* Stores to a word that threads of this GPU alone read, after what this thread has done or seen. */
RUSHMEM_DEVICE void store_release_word_gpu(uint64_t *to, uint64_t value) {
  asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

/* ---- 16 bytes of a peer's array, or of this PE's, as two words. Loads see memory as it is, never the L1
 * cache. ---- */

struct pair {
  uint64_t a, b;
};
RUSHMEM_DEVICE pair load_pair(const void *from) {
  pair v;
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(v.a), "=l"(v.b) : "l"(from) : "memory");
  return v;
}
/* Of any memory of this PE's, shared memory too. */
RUSHMEM_DEVICE pair load_own_pair(const void *from) {
  pair v;
  asm volatile("ld.v2.u64 {%0, %1}, [%2];" : "=l"(v.a), "=l"(v.b) : "l"(from) : "memory");
  return v;
}
RUSHMEM_DEVICE void store_pair(void *to, pair v) {
  asm volatile("st.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(v.a), "l"(v.b) : "memory");
}

/* ---- packets (packed.h): 16 bytes by one access. ---- */

/* Whole since PTX ISA 8.3 has accesses of 128 bits; a vector of two words is two accesses to the manual,
 * though one instruction, and the same one, to every GPU since sm_70. */
template <typename P> RUSHMEM_DEVICE void store_packet(P *to, uint64_t value, uint64_t sequence) {
#if __CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 4)
  asm volatile(
      "{\n\t.reg .b128 both;\n\t"
      "mov.b128 both, {%1, %2};\n\t"
      "st.relaxed.sys.global.b128 [%0], both;\n\t}" ::"l"(to),
      "l"(value), "l"(sequence)
      : "memory");
#else
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(value), "l"(sequence) : "memory");
#endif
}
template <typename P> RUSHMEM_DEVICE P load_packet(const P *from) {
  P seen;
#if __CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 4)
  asm volatile(
      "{\n\t.reg .b128 both;\n\t"
      "ld.relaxed.sys.global.b128 both, [%2];\n\t"
      "mov.b128 {%0, %1}, both;\n\t}"
      : "=l"(seen.value), "=l"(seen.sequence)
      : "l"(from)
      : "memory");
#else
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(seen.value), "=l"(seen.sequence)
               : "l"(from)
               : "memory");
#endif
  return seen;
}

/* A word that is never read while it is written: weak accesses, which the L1 cache may serve. Who reads what
 * another SM has written has acquired it, which drops that cache. */
RUSHMEM_DEVICE uint64_t load_plain_word(const uint64_t *from) {
  uint64_t value;
  asm volatile("ld.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}
RUSHMEM_DEVICE void store_plain_word(uint64_t *to, uint64_t value) {
  asm volatile("st.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

/* ---- fences ----
 *
 * What they become on sm_90, and cost: acq_rel is MEMBAR.ALL.SYS, which waits until every outstanding store
 * has been acknowledged (half a microsecond where there is none), and CCTL.IVALL, which drops this SM's L1
 * cache. A release needs the first of the two only and an acquire the second, which waits for nothing: after
 * a relaxed poll, fence.acquire is what makes an acquire of it for free. ("PTX Writer's Guide to
 * Interoperability", Atomics ABI: an acquire load is ld.relaxed and fence.acquire.) The two came with PTX ISA
 * 8.6, for sm_90. */
RUSHMEM_DEVICE void fence_acq_rel() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
RUSHMEM_DEVICE void fence_sc() { asm volatile("fence.sc.sys;" ::: "memory"); }

#if __CUDA_ARCH__ >= 900 && \
    (__CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 8))
#define RUSHMEM_FENCE_ACQUIRE 1
RUSHMEM_DEVICE void fence_acquire() { asm volatile("fence.acquire.sys;" ::: "memory"); }
RUSHMEM_DEVICE void fence_release() { asm volatile("fence.release.sys;" ::: "memory"); }
#else
RUSHMEM_DEVICE void fence_acquire() { fence_acq_rel(); }
RUSHMEM_DEVICE void fence_release() { fence_acq_rel(); }
#endif

/* Bounds what the compiler moves; the hardware is not asked for anything. */
RUSHMEM_DEVICE void compiler_fence() { asm volatile("" ::: "memory"); }

/* Returns its argument, of 4 or 8 bytes, and hides it from the compiler: the value is computed before this
 * point, and what depends on it after. For code around fences, whose cost the compiler does not know. */
template <typename T> RUSHMEM_DEVICE T opaque(T value) {
  if constexpr (sizeof(T) == 8) asm volatile("" : "+l"(value)::"memory");
  else asm volatile("" : "+r"(value)::"memory");
  return value;
}

/* What a thread's numbers are, asked for each time. */
RUSHMEM_DEVICE uint32_t lane_again() {
  uint32_t lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}
RUSHMEM_DEVICE uint32_t thread_in_block_again() {
  uint32_t x, y, z, nx, ny;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
  asm volatile("mov.u32 %0, %%tid.y;" : "=r"(y));
  asm volatile("mov.u32 %0, %%tid.z;" : "=r"(z));
  asm volatile("mov.u32 %0, %%ntid.x;" : "=r"(nx));
  asm volatile("mov.u32 %0, %%ntid.y;" : "=r"(ny));
  return x + nx * (y + ny * z);
}

/* All 32 lanes of a warp meet. Where they are together there is nothing to do: an SM issues the accesses of a
 * warp in order. (__syncwarp() asks as well, and takes 40 cycles longer.) */
RUSHMEM_DEVICE void meet_lanes() {
  if (__activemask() != 0xffffffffu) __syncwarp();
  compiler_fence();
}

/* An address that is known when a kernel begins, in a register of this thread: the compiler takes it for a
 * constant, which it would fetch where it is used, some forty cycles. `rank`: the thread's in its block. */
template <typename T> RUSHMEM_DEVICE T *in_register(T *at, uint32_t rank) {
  return opaque(reinterpret_cast<T *>(reinterpret_cast<uint64_t>(at) + (rank >> 20)));
}

/* The same of an address, which may be computed once for several uses, or not at all. */
RUSHMEM_DEVICE char *fixed_address(char *at) {
  asm("mov.b64 %0, %0;" : "+l"(at));
  return at;
}

/* A line of this GPU's memory is wanted in the L2 cache, where accesses of all kinds meet. */
RUSHMEM_DEVICE void prefetch(const void *line) { asm volatile("prefetch.global.L2 [%0];" ::"l"(line)); }

/* In a kernel that may start while the one before it on its stream ends (programmatic dependent launch):
 * waits until that one has ended and all that it wrote is to be seen. */
RUSHMEM_DEVICE void await_kernel_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* The next kernel on the stream, if it is such a one, may come, and wait, from when all blocks of this one
 * have said so. */
RUSHMEM_DEVICE void let_next_kernel_come() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/* After the loads of a get. Their values have been stored, so they have returned: an SM issues in order, and
 * a later access of this thread cannot be performed before them. */
RUSHMEM_DEVICE void loads_before_later() { compiler_fence(); }

/* ---- waiting and failing ---- */

/* Polls between two looks at the clock: a few hundred microseconds. */
constexpr uint32_t polls_per_tick = 1024;
/* No wait naps here. */
constexpr uint64_t naps_after_ns = 0;

/* Polls before the first look at the mailbox, and between two: some microseconds, for a look that takes as
 * long as a poll. Powers of two, no larger than a tick. */
constexpr uint32_t polls_before_help = 16;
constexpr uint32_t polls_per_help = 8;

/* Whether this is the first of the threads that its warp runs together here. */
RUSHMEM_DEVICE bool is_first_lane() {
  uint32_t below;
  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
  return (__activemask() & below) == 0;
}

/* Between two polls: nothing, the load's own latency is the pause. */
RUSHMEM_DEVICE void pause(bool) {}
RUSHMEM_DEVICE void note_stall() {}

/* In operations that a program may spin on. */
RUSHMEM_DEVICE void breathe() {}

RUSHMEM_DEVICE uint64_t now_ns() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

/* Leaves the reason and the place where the host finds them, then ends the kernel. Inline: with a call, even
 * one that is never made, every caller would have to keep the calling convention. The instructions land
 * behind the kernel's end. */
RUSHMEM_DEVICE void fail(uint32_t why) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(device_state().failure), "r"(why),
               "r"(blockIdx.x), "r"(blockIdx.y << 16 | blockIdx.z),
               "r"(threadIdx.z << 20 | threadIdx.y << 10 | threadIdx.x)
               : "memory");
  __threadfence_system();
  __trap();
  __builtin_unreachable();
}

}  // namespace impl
}  // namespace rushmem

#if defined(RUSHMEM_GPU_TRACE)
#include <rushmem/impl/trace.h>
#endif

#endif
