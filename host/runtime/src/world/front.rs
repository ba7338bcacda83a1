//! What lies at the front of each PE's heap: lines of the kernels' sync, tables, counters of the device ring,
//! and the memory of teams, which begins with the world's slot sets.

use rushmem_abi::device::{RawTeam, RUSHMEM_NUMBERED_TEAMS};

use crate::config::Config;
use crate::error::{err, Result};
use crate::net::proxy::ring::DeviceRing;
use crate::team::books::GRANULE;
use crate::team::slots::Slots;

/// What GPUs map at a time.
const MAPPED: usize = 2 << 20;
/// One line for each PE at the front of the heap, for the kernels' sync, then this PE's own counts.
pub(super) const SYNC_LINE: usize = 128;
/// Bytes at the front of the heap that the kernels' sync of `n` PEs takes: the lines, and a count for each
/// PE. Behind them lie the table of near PEs, where kernels need one, and the device ring's counters.
pub(super) const fn sync_bytes(n: usize) -> usize {
    (n + (n * size_of::<u64>()).div_ceil(SYNC_LINE)) * SYNC_LINE
}

/// Bytes of the table that tells kernels where near PEs are, where their numbers do not.
pub(super) const fn table_bytes(n: usize) -> usize {
    (n * size_of::<u64>()).next_multiple_of(SYNC_LINE)
}

/// Where the table lies in which kernels find teams by number.
pub(super) const fn teams_offset(n: usize) -> usize {
    (sync_bytes(n) + table_bytes(n) + DeviceRing::MOST_DEVICE_BYTES).next_multiple_of(SYNC_LINE)
}

/// Where the slot sets of the world lie in the heap, and where they end.
pub(super) const fn slots_offset(n: usize) -> usize {
    teams_offset(n) + (RUSHMEM_NUMBERED_TEAMS * size_of::<RawTeam>()).next_multiple_of(SYNC_LINE)
}

/// How much of the heap's front is the memory of teams: what the setting says; where it is the default, less
/// in a small heap and more in a large world. And what the world has of it: a wide first slot set, with
/// wide packets or without, where half of what was asked for, or a quarter of the heap, is room enough.
pub(super) fn team_memory(n: usize, config: &Config, heap: usize, apart: bool) -> Result<(usize, Slots)> {
    let (slots, front) = (Slots::of_world(n, apart), slots_offset(n));
    let larger = [slots.widened().with_wide_packets(), slots.widened()];
    let world = slots.bytes().next_multiple_of(GRANULE);
    let asked = config.team_memory as usize / GRANULE * GRANULE;
    if !config.team_memory_given {
        let usual = asked.max(2 * world);
        for wide in larger {
            // With the words in front of it a multiple of what is mapped at a time: the nearest that leaves
            // three quarters of what is usual.
            let least = (front + usual / 4 * 3 + wide.extra()).next_multiple_of(MAPPED);
            let both = least.max((usual + wide.extra() + MAPPED / 2) / MAPPED * MAPPED);
            if both <= heap / 4 {
                return Ok((both - front.next_multiple_of(GRANULE), wide));
            }
        }
        return Ok((usual.min(heap / 4 / GRANULE * GRANULE).max(world), slots));
    }
    if asked < world || front + asked > heap {
        return Err(err!(
            ENVIRONMENT,
            "RUSHMEM_TEAM_MEMORY={}: a world of {n} PEs takes {world} bytes of it, and the heap (RUSHMEM_HEAP_MAX) holds \
             {}",
            config.team_memory,
            heap.saturating_sub(front)
        ));
    }
    Ok((asked, larger.into_iter().find(|wide| 2 * wide.bytes() <= asked).unwrap_or(slots)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a world commits before the program allocates is a multiple of what GPUs map at a time, and leaves
    /// teams what 500 take.
    #[test]
    fn the_front_of_a_heap_fills_what_is_mapped() {
        let config = Config::from_lookup(&|_| None).expect("the defaults");
        for n in (1..=300).chain([1000, 4000]) {
            let (bytes, slots) = team_memory(n, &config, 1 << 30, true).unwrap();
            let front = slots_offset(n) + bytes;
            assert_eq!(front.next_multiple_of(GRANULE) % MAPPED, 0, "{n} PEs: {front}");
            let world = slots.bytes() - slots.extra();
            let wanted = (config.team_memory as usize).max(2 * world) + slots.extra();
            assert!(front.abs_diff(wanted) <= MAPPED, "{n} PEs: {front} for {wanted}");
            assert!(bytes >= slots.bytes(), "{n} PEs: {bytes} for {}", slots.bytes());
            // In so much books.rs has 500 teams.
            assert!(bytes >= slots.extra() + (3 << 20), "{n} PEs: {bytes} with {} beside", slots.extra());
        }
        // Two to eight PEs of a host, whose start-up has a limit.
        for n in [2, 4, 8] {
            let (bytes, _) = team_memory(n, &config, 1 << 30, true).unwrap();
            assert_eq!((slots_offset(n) + bytes).next_multiple_of(GRANULE), 10 << 20, "{n} PEs");
        }
    }
}
