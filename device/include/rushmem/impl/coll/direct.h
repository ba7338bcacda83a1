/* Large collectives between members that map each other: no staging, each byte travels once. Members meet,
 * read or write one another's arrays, and meet again.
 *
 * Every member must choose alike, so the choice rests on what all have in common: the team, the size, and
 * that an array is symmetric for all or for none (a call in which that differs ends with a mismatch). */
#ifndef RUSHMEM_IMPL_COLL_DIRECT_H
#define RUSHMEM_IMPL_COLL_DIRECT_H

#include <rushmem/impl/coll/call.h>
#include <rushmem/impl/copy.h>

namespace rushmem {
namespace impl {

/* Whether an array is in this PE's symmetric memory. */
RUSHMEM_DEVICE bool is_symmetric(const void *at, size_t bytes) {
  const uint64_t offset = reinterpret_cast<uint64_t>(at) - state().heap_base;
  return offset < state().stride && bytes <= state().stride - offset;
}

/* Above this many bytes to or from one member, a call is direct where it can be: as many as go in one phase
 * of packets. */
RUSHMEM_DEVICE bool is_large(const team &t, size_t bytes) { return bytes > size_t(8) * t.raw.packets; }

/* This PE's array as `member` has it. */
template <typename Scope, typename T> RUSHMEM_DEVICE T *of_member(const call<Scope> &c, T *local, int member) {
  return c.near_at(local, member);
}

/* A copy to a member, or within this PE. Out of line: what it keeps in flight would be added to what the
 * collective around it keeps. */
template <typename Scope, size_t unit> RUSHMEM_OUTLINED void copy_apart(char *to, const char *from, size_t bytes) {
  copy<Scope, unit, false>(to, from, bytes);
}

template <typename Scope, typename T> RUSHMEM_DEVICE void copy_to_member(const call<Scope> &c, T *dst, const T *src, size_t n, int member) {
  copy_apart<Scope, unit_of<T>::value>(reinterpret_cast<char *>(of_member(c, dst, member)),
                                       reinterpret_cast<const char *>(src), n * sizeof(T));
}

/* This scope's own arrays. */
template <typename Scope, typename T> RUSHMEM_DEVICE void copy_own(T *dst, const T *src, size_t n) {
  if (dst == src) return;
  copy_apart<Scope, unit_of<T>::value>(reinterpret_cast<char *>(dst), reinterpret_cast<const char *>(src),
                                       n * sizeof(T));
}

}  // namespace impl
}  // namespace rushmem

#endif
