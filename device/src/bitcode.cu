/* The device library as LLVM bitcode, for kernels that no CUDA compiler compiles: Triton's, Numba's, CuTe's.
 * C functions with numbers for arguments, addresses among them, made of device/functions.table;
 * device/bitcode builds it, and says what becomes of a row.
 *
 * A *program* is what Triton calls a block: one thread of control, to its author. Its functions meet the
 * block's threads before and after, so that stores of all threads come before a put, and give every thread
 * one result. */
#include "clang.h"

#include <rushmem/rushmem.cuh>

namespace rushmem {
namespace bitcode {

RUSHMEM_DEVICE char *bytes(uint64_t at) { return reinterpret_cast<char *>(at); }
template <typename T> RUSHMEM_DEVICE T *array(uint64_t at) { return reinterpret_cast<T *>(at); }

/* The team of that number, or the world where it is negative. */
RUSHMEM_DEVICE team team_of(int number) { return number < 0 ? world() : numbered_team(number); }

/* Votes of a barrier carry five bits: the first warp's lanes below the digit say yes. */
constexpr uint32_t digit_bits = 5;

/* Thread 0's value, for all threads of the block, which meet here. By votes, and not through shared memory,
 * whose layout and size belong to the compiler that made the kernel. */
RUSHMEM_DEVICE uint64_t of_first(uint64_t value, uint32_t bits) {
  const uint32_t thread = impl::thread_in_block();
  if (thread < 32) {
    const uint32_t lanes = warp::size() == 32 ? 0xffffffffu : (1u << warp::size()) - 1u;
    const uint32_t low = __shfl_sync(lanes, static_cast<uint32_t>(value), 0);
    const uint32_t high = bits > 32 ? __shfl_sync(lanes, static_cast<uint32_t>(value >> 32), 0) : 0;
    value = static_cast<uint64_t>(high) << 32 | low;
  }
  if (impl::threads_in_block() <= 32) return value;
  uint64_t all = 0;
  for (uint32_t shift = 0; shift < bits; shift += digit_bits) {
    const uint32_t digit = static_cast<uint32_t>(value >> shift) & ((1u << digit_bits) - 1u);
    const uint32_t vote = thread < digit ? 1 : 0;
    uint32_t votes;
    asm volatile(
        "{\n\t.reg .pred yes;\n\t"
        "setp.ne.u32 yes, %1, 0;\n\t"
        "bar.red.popc.u32 %0, 0, yes;\n\t}"
        : "=r"(votes)
        : "r"(vote)
        : "memory");
    all |= static_cast<uint64_t>(votes) << shift;
  }
  return all;
}

/* What thread 0 makes of `f`, once, after all that the block's threads have done. */
template <typename R, typename F> RUSHMEM_DEVICE R once(F f) {
  impl::word<R> bits = 0;
  block::sync();
  if (impl::thread_in_block() == 0) bits = impl::to_bits(f());
  const uint64_t all = of_first(bits, sizeof(R) * 8);
  return impl::from_bits<R>(static_cast<impl::word<R>>(all));
}

/* The same of a function without a result. */
template <typename F> RUSHMEM_DEVICE int once_done(F f) {
  block::sync();
  if (impl::thread_in_block() == 0) f();
  block::sync();
  return 0;
}

/* All threads of the block together. */
template <typename F> RUSHMEM_DEVICE int together(F f) {
  block::sync();
  f();
  block::sync();
  return 0;
}

/* A function without a result gives 0. */
template <typename F> RUSHMEM_DEVICE int done(F f) {
  f();
  return 0;
}

}  // namespace bitcode

using namespace bitcode;

#include "functions.h"

}  // namespace rushmem
