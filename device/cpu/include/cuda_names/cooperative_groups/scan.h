/* <cooperative_groups/scan.h>: running sums over a group's threads, in the order of their ranks. */
#ifndef RUSHMEM_CPU_COOPERATIVE_GROUPS_SCAN_H
#define RUSHMEM_CPU_COOPERATIVE_GROUPS_SCAN_H

#include <cooperative_groups.h>
#include "operators.h"

namespace cooperative_groups {

template <class Group, class T, class Op>
inline auto inclusive_scan(const Group &group, T &&value, Op &&op, RUSHMEM_CPU_HERE) {
  using Value = std::decay_t<T>;
  Value own = value, sum = group.shfl(own, 0, file, line);
  for (unsigned rank = 1; rank < group.num_threads(); ++rank) {
    const Value next = group.shfl(own, (int)rank, file, line);
    if (rank <= group.thread_rank()) sum = op(sum, next);
  }
  return sum;
}
template <class Group, class T> inline auto inclusive_scan(const Group &group, T &&value, RUSHMEM_CPU_HERE) {
  return inclusive_scan(group, value, plus<std::decay_t<T>>(), file, line);
}

/* The first thread has nothing before it, and gets the type's default value. */
template <class Group, class T, class Op>
inline auto exclusive_scan(const Group &group, T &&value, Op &&op, RUSHMEM_CPU_HERE) {
  using Value = std::decay_t<T>;
  const Value before = group.shfl_up(inclusive_scan(group, value, op, file, line), 1, file, line);
  return group.thread_rank() == 0 ? Value{} : before;
}
template <class Group, class T> inline auto exclusive_scan(const Group &group, T &&value, RUSHMEM_CPU_HERE) {
  return exclusive_scan(group, value, plus<std::decay_t<T>>(), file, line);
}

}  // namespace cooperative_groups

#endif
