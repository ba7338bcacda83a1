/* The platform's interface: relaxed, acquire and release accesses, the two fences, atomic updates, a clock, a
 * pause between polls, and the end of a kernel that fails. impl/cuda.h and impl/cuda_atomic.h implement it in
 * PTX, impl/cpu.h in compiler builtins and the CPU device's hooks. Elsewhere only what copies, posts to far
 * PEs or helps the host differs between the devices (impl/copy.h, bulk.h, net/, help.h).
 *
 * All accesses are at system scope: the other side is another GPU or a host.
 */
#ifndef RUSHMEM_IMPL_PLATFORM_H
#define RUSHMEM_IMPL_PLATFORM_H

#include <rushmem/impl/traits.h>

#include <rushmem/abi.h>

#if defined(RUSHMEM_CPU)
#include <rushmem/impl/cpu.h>
#elif defined(__CUDACC__)
#include <rushmem/impl/cuda.h>
#include <rushmem/impl/cuda_atomic.h>
#else
#error "rushmem device headers need nvcc or NVRTC, or rushmem's CPU device (-DRUSHMEM_CPU)"
#endif

#define RUSHMEM_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define RUSHMEM_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/* The layout that the host mirrors. */
static_assert(sizeof(rushmem_device_state) == 264 && sizeof(rushmem_team) == 96 && sizeof(rushmem_stall_record) == 80 &&
                  sizeof(rushmem_sync_line) == 128 && sizeof(rushmem_team_slots) == 256,
              "rushmem/abi.h");

namespace rushmem {
namespace impl {

/* The bit pattern of a value of 1, 2, 4 or 8 bytes, and back. */
template <typename T> RUSHMEM_DEVICE word<T> to_bits(const T &value) {
  return __builtin_bit_cast(word<T>, value);
}

template <typename T> RUSHMEM_DEVICE T from_bits(word<T> bits) { return __builtin_bit_cast(T, bits); }

/* One access for a T of 1, 2, 4 or 8 bytes, naturally aligned. */
template <typename T> RUSHMEM_DEVICE T load_relaxed(const volatile T *from) {
  return from_bits<T>(load_relaxed_word(reinterpret_cast<const volatile word<T> *>(from)));
}

template <typename T> RUSHMEM_DEVICE T load_acquire(const volatile T *from) {
  return from_bits<T>(load_acquire_word(reinterpret_cast<const volatile word<T> *>(from)));
}

template <typename T> RUSHMEM_DEVICE void store_relaxed(T *to, const T &value) {
  store_relaxed_word(reinterpret_cast<word<T> *>(to), to_bits(value));
}

}  // namespace impl
}  // namespace rushmem

#endif
