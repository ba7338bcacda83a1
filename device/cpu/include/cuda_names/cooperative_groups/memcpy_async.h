/* <cooperative_groups/memcpy_async.h>: a copy by all threads of a group, which is over when it returns; a
 * wait is the group's barrier. */
#ifndef RUSHMEM_CPU_COOPERATIVE_GROUPS_MEMCPY_ASYNC_H
#define RUSHMEM_CPU_COOPERATIVE_GROUPS_MEMCPY_ASYNC_H

#include <cooperative_groups.h>

namespace cooperative_groups {

/* `bytes` bytes. */
template <class Group, class T>
inline void memcpy_async(const Group &group, T *to, const T *from, size_t bytes) {
  const size_t threads = (size_t)group.num_threads(), each = (bytes + threads - 1) / threads;
  const size_t first = each * (size_t)group.thread_rank();
  if (first >= bytes) return;
  memcpy((char *)to + first, (const char *)from + first, bytes - first < each ? bytes - first : each);
}
/* As many elements as both sides have. */
template <class Group, class T>
inline void memcpy_async(const Group &group, T *to, size_t room, const T *from, size_t count) {
  memcpy_async(group, to, from, sizeof(T) * (room < count ? room : count));
}

template <class Group> inline void wait(const Group &group, RUSHMEM_CPU_HERE) { group.sync(file, line); }
template <unsigned Stages, class Group> inline void wait_prior(const Group &group, RUSHMEM_CPU_HERE) {
  group.sync(file, line);
}

}  // namespace cooperative_groups

#endif
