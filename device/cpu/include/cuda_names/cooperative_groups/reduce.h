/* <cooperative_groups/reduce.h>: the values of a group's threads combined, in the order of their ranks. A GPU
 * combines floating-point numbers in another order. */
#ifndef RUSHMEM_CPU_COOPERATIVE_GROUPS_REDUCE_H
#define RUSHMEM_CPU_COOPERATIVE_GROUPS_REDUCE_H

#include <cooperative_groups.h>
#include "operators.h"

namespace cooperative_groups {

template <class Group, class T, class Op>
inline auto reduce(const Group &group, T &&value, Op &&op, RUSHMEM_CPU_HERE) {
  using Value = std::decay_t<T>;
  Value own = value, all = group.shfl(own, 0, file, line);
  for (unsigned rank = 1; rank < group.num_threads(); ++rank) {
    const Value next = group.shfl(own, (int)rank, file, line);
    all = op(all, next);
  }
  return all;
}

}  // namespace cooperative_groups

#endif
