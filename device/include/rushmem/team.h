/* Teams: sets of PEs that synchronise and communicate together. (OpenSHMEM 1.5, 9.4)
 *
 *     __global__ void step(rushmem::team row, float *x, size_t n) {
 *       rushmem::reduce<rushmem::block>(row, x, x, n, rushmem::sum{});
 *     }
 *
 * The host makes teams (`Team` in Rust, `rushmem_team_*` in C), and a kernel takes one by value.
 * `rushmem::world()` is the team of all PEs. Members are numbered 0 .. n_pes() - 1 in the team. Operations on
 * one PE (put, p, atomics) take its number in the world: `world_pe(i)` translates.
 *
 * Collectives of a team meet in one of its slot sets, 0 unless the program says `team.on(set)`. On one slot
 * set a PE makes one call at a time, whichever threads or blocks make it, and all members make the same calls
 * in the same order. A block that goes on where another one has made calls acquires what that one did: by a
 * barrier of the grid, by wait_until and the like, or by a fence behind a wait of its own; else the call ends
 * with an error. Calls on different slot sets, or of different teams, run at once. */
#ifndef RUSHMEM_TEAM_H
#define RUSHMEM_TEAM_H

#include <rushmem/state.h>

namespace rushmem {

/* What this PE knows of a team: a kernel's argument, the host's struct bit for bit. */
struct team {
  rushmem_team raw;

  /* This PE's number in the team. (OpenSHMEM 1.5, 9.4 shmem_team_my_pe)
   * Order: none. Cost: local. */
  RUSHMEM_DEVICE int my_pe() const { return raw.my_pe; }

  /* The number of members. (OpenSHMEM 1.5, 9.4 shmem_team_n_pes)
   * Order: none. Cost: local. */
  RUSHMEM_DEVICE int n_pes() const { return raw.n_pes; }

  /* The number in the world of member `i`, 0 <= i < n_pes(). (OpenSHMEM 1.5, 9.4 shmem_team_translate_pe)
   * Order: none. Cost: local. */
  RUSHMEM_DEVICE int world_pe(int i) const {
    return RUSHMEM_LIKELY(!raw.table) ? raw.start + i * raw.stride : raw.table[i];
  }

  /* How many slot sets the team has.
   * Order: none. Cost: local. */
  RUSHMEM_DEVICE unsigned slot_sets() const { return raw.slot_sets; }

  /* The same team, whose collectives meet in slot set `set`, 0 <= set < slot_sets(). Blocks that make
   * collectives of one team at once take a set each. Slot set 0 of the world has more room than the others,
   * for calls by a whole grid.
   * Order: none. Cost: local. */
  RUSHMEM_DEVICE team on(unsigned set) const {
    if (RUSHMEM_UNLIKELY(set >= raw.slot_sets)) impl::fail(RUSHMEM_DEVICE_FAIL_TEAM);
    team other = *this;
    if (set == 0) return other;
    other.raw.slots += raw.first_bytes + (set - 1) * raw.slot_bytes;
    other.raw.slot_sets -= set;
    other.raw.first_bytes = raw.slot_bytes;
    other.raw.packets = raw.next_packets;
    other.raw.wide = 0;
    if (other.raw.pair_bytes != 0) other.raw.pair_bytes = other.raw.packets * 8;
    return other;
  }
};

static_assert(sizeof(team) == sizeof(rushmem_team), "rushmem/abi.h");

/* The team to which the host gave this number, 0 .. 63 (rushmem_team_number); else one that no collective
 * takes, with n_pes() 0. For interfaces whose kernels name teams by integers.
 * Order: none. Cost: local. */
RUSHMEM_DEVICE team numbered_team(int number) {
  const rushmem_team *at = state().teams;
  if (RUSHMEM_UNLIKELY(!at || static_cast<uint32_t>(number) >= RUSHMEM_NUMBERED_TEAMS)) return team{};
  return team{at[number]};
}

/* All PEs. (OpenSHMEM 1.5, 9.4 SHMEM_TEAM_WORLD)
 * Order: none. Cost: local. */
RUSHMEM_DEVICE team world() { return team{state().world}; }

}  // namespace rushmem

#endif
