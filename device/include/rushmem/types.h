/* The constants of the interface by their C++ names; the values are abi.h's, and functions take either. */
#ifndef RUSHMEM_TYPES_H
#define RUSHMEM_TYPES_H

#include <rushmem/impl/platform.h>

namespace rushmem {

/* How a wait or test compares the word (on the left) with the given value. (OpenSHMEM 1.5, 9.10) */
namespace cmp {
enum : int {
  eq = RUSHMEM_CMP_EQ,
  ne = RUSHMEM_CMP_NE,
  gt = RUSHMEM_CMP_GT,
  ge = RUSHMEM_CMP_GE,
  lt = RUSHMEM_CMP_LT,
  le = RUSHMEM_CMP_LE
};
}  // namespace cmp

/* What a signal does to its word: replace it, or add to it. (OpenSHMEM 1.5, 9.8) */
namespace signal {
enum : int { set = RUSHMEM_SIGNAL_SET, add = RUSHMEM_SIGNAL_ADD };
}  // namespace signal

/* The index that any-of waits and tests return for an empty set. */
constexpr size_t none = ~static_cast<size_t>(0);

namespace impl {

/* `how` is nearly always a literal: inlined, one comparison is left. An unknown one is never satisfied. */
template <typename T> RUSHMEM_DEVICE bool compare(T seen, int how, T value) {
  switch (how) {
    case RUSHMEM_CMP_EQ: return seen == value;
    case RUSHMEM_CMP_NE: return seen != value;
    case RUSHMEM_CMP_GT: return seen > value;
    case RUSHMEM_CMP_GE: return seen >= value;
    case RUSHMEM_CMP_LT: return seen < value;
    case RUSHMEM_CMP_LE: return seen <= value;
  }
  return false;
}

}  // namespace impl
}  // namespace rushmem

#endif
