/* Where a slot set's words lie, and which of them are a channel's (call.h says what a slot set is). */
#ifndef RUSHMEM_IMPL_COLL_SLOT_SET_H
#define RUSHMEM_IMPL_COLL_SLOT_SET_H

#include <rushmem/impl/coll/words.h>

namespace rushmem {
namespace impl {

template <typename Scope> struct slot_set {
  /* Who shares the work of a channel, and whether there are several. */
  using group = typename group_of<Scope>::type;
  static constexpr bool blocks = has_blocks<Scope>::value;

  const team &t;
  uint32_t room; /* packets of this channel from one member in one phase */

  RUSHMEM_DEVICE static uint32_t channels_of(const team &t) {
    const uint32_t all = blocks_in_grid();
    return all < t.raw.packets ? all : t.raw.packets;
  }
  RUSHMEM_DEVICE static uint32_t room_of(const team &t) {
    if constexpr (blocks) return t.raw.packets / channels_of(t);
    return t.raw.packets;
  }

  RUSHMEM_DEVICE uint32_t channels() const { return channels_of(t); }
  /* Blocks for which there are no packets have nothing to do but to come to barriers. */
  RUSHMEM_DEVICE bool is_idle() const {
    if constexpr (blocks) return block_in_grid() >= t.raw.packets;
    return false;
  }
  /* The one thread that writes what the whole call has. */
  RUSHMEM_DEVICE static bool is_first() {
    if constexpr (blocks) return block_in_grid() == 0 && group::rank() == 0;
    return group::rank() == 0;
  }

  RUSHMEM_DEVICE rushmem_team_slots *slots() const { return reinterpret_cast<rushmem_team_slots *>(t.raw.slots); }

  /* What this PE alone has of the slot set, and what its members write. */
  RUSHMEM_DEVICE rushmem_sync_line *lines() const { return reinterpret_cast<rushmem_sync_line *>(slots() + 1); }
  RUSHMEM_DEVICE packet *all_packets() const { return reinterpret_cast<packet *>(lines() + t.raw.n_pes); }
  RUSHMEM_DEVICE packet *packets(uint64_t phase, int from) const {
    const uint32_t place = static_cast<uint32_t>(phase % RUSHMEM_TEAM_PHASES) * static_cast<uint32_t>(t.raw.n_pes);
    packet *at = all_packets() + static_cast<size_t>(place + static_cast<uint32_t>(from)) * t.raw.packets;
    if constexpr (blocks) at += block_in_grid() * room;
    return at;
  }
  RUSHMEM_DEVICE packet *grid_words() const { return reinterpret_cast<packet *>(slots()->grid); }
  RUSHMEM_DEVICE uint64_t *ended_by_blocks() const {
    const size_t places = static_cast<size_t>(RUSHMEM_TEAM_PHASES) * static_cast<uint32_t>(t.raw.n_pes);
    return reinterpret_cast<uint64_t *>(all_packets() + places * t.raw.packets);
  }

  /* Behind all of that: wide packets (wide.h). */
  RUSHMEM_DEVICE char *wide() const {
    return reinterpret_cast<char *>(ended_by_blocks() + (t.raw.packets + 15) / 16 * 16);
  }

  /* The member `steps` to the right of this one, 0 < steps < n. */
  RUSHMEM_DEVICE int right(int steps) const {
    const int at = t.raw.my_pe + steps;
    return at < t.raw.n_pes ? at : at - t.raw.n_pes;
  }

  /* This PE's memory as `member` has it, where all members are near. */
  template <typename T> RUSHMEM_DEVICE T *near_at(T *local, int member) const {
    return run_address(local, t.world_pe(member));
  }
};

}  // namespace impl
}  // namespace rushmem

#endif
