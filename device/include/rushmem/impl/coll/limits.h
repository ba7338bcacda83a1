/* Which protocol a collective takes, and when: all thresholds in one place. Members choose alike, because the
 * choice rests on what all of them have in common: the team, the size, the scope's width, and that an array
 * is symmetric for all or for none (a call in which that differs ends with a mismatch).
 *
 * Packets take twice the bytes, and a reduction by packets sends all of its data to every member; the direct
 * protocol has two meetings of all members, about 2.6 us between two H200s. One block moves 46 GB/s over
 * NVLink, so it gains by packets while they cost less than some 100 KiB more; a grid moves eight times as
 * much. */
#ifndef RUSHMEM_IMPL_COLL_LIMITS_H
#define RUSHMEM_IMPL_COLL_LIMITS_H

#include <rushmem/scope.h>
#include <rushmem/team.h>

namespace rushmem {
namespace impl {

/* Bytes to all other members together up to which a call is made by packets, by a block (or less) and by a
 * grid, where it could be direct. */
constexpr size_t most_by_packets = 64 << 10;
constexpr size_t most_by_packets_of_grid = 512 << 10;

/* Phases of packets that a grid may take before a call is direct where it can be. */
constexpr size_t most_phases_of_grid = 4;

/* Whether a call that moves so many bytes to or from one member is direct where it can be. */
template <typename Scope> RUSHMEM_DEVICE bool is_large(const team &t, size_t bytes) {
  constexpr bool blocks = has_blocks<Scope>::value;
  const size_t room = (blocks ? most_phases_of_grid : 1) * 8 * t.raw.packets;
  const size_t others = static_cast<size_t>(t.raw.n_pes > 1 ? t.raw.n_pes - 1 : 1);
  return bytes > room || bytes * others > (blocks ? most_by_packets_of_grid : most_by_packets);
}

}  // namespace impl
}  // namespace rushmem

#endif
