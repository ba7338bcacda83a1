//! The ring that kernels on a GPU write their calls to (`abi_trace.h`), from the host's side. Nobody waits
//! for it: what it has not read before the ring comes round is lost, and counted.
//!
//! Each word of a record says in which round of the ring it was written, so a record is whole where all of
//! them say the round that the reader is in. A thread takes a number, then writes: one that is held up, or
//! ends in between, leaves a hole. The reader waits for it for a while, and then goes on behind it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rushmem_abi::device::{RUSHMEM_TRACE_SLOTS as SLOTS, RUSHMEM_TRACE_WORDS as WORDS};
use rushmem_device_cpu::Place;

/// Bits of a word that are the record's; the others say the round.
const BITS: u32 = 48;
const MASK: u64 = (1 << BITS) - 1;
/// Rounds that have different numbers.
const ROUNDS: u64 = 65535;
/// How long a hole is waited for: a kernel that is to make room for another process's has its time.
pub(super) const HOLE: Duration = Duration::from_millis(100);

/// What a record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GpuRecord {
    /// The lower 48 bits of the GPU's time in nanoseconds.
    pub(super) time: u64,
    pub(super) bytes: u64,
    /// An offset in the heap.
    pub(super) word: Option<u64>,
    /// Block and thread.
    pub(super) place: Place,
    /// `RUSHMEM_TRACE_BEGIN` and so on.
    pub(super) event: u64,
    /// `RUSHMEM_TRACE_RMA` and so on.
    pub(super) kind: u64,
    /// FNV-1a of the function's name.
    pub(super) name: u32,
    pub(super) module: u16,
    pub(super) peer: Option<i32>,
    /// Tells it from others that run at the same time.
    pub(super) launch: u16,
    /// The shape of the launch, or the phase of a round.
    pub(super) last: u64,
}

impl GpuRecord {
    fn of(words: &[u64; WORDS]) -> GpuRecord {
        let &[time, bytes, word, block, thread, name, peer, last] = words;
        let bits = |word: u64, from: u32, count: u32| (word >> from & ((1 << count) - 1)) as u32;
        let block = [block as u32, bits(block, 32, 16), bits(thread, 0, 16)];
        let at = [bits(thread, 16, 10), bits(thread, 26, 10), bits(thread, 36, 6)];
        GpuRecord {
            time,
            bytes,
            word: (word != MASK).then_some(word),
            place: (block, at),
            event: u64::from(bits(thread, 42, 2)),
            kind: u64::from(bits(thread, 44, 3)),
            name: name as u32,
            module: bits(name, 32, 16) as u16,
            peer: Some(peer as u32 as i32).filter(|pe| *pe >= 0),
            launch: bits(peer, 32, 16) as u16,
            last,
        }
    }
}

/// What a slot holds.
enum SlotState {
    Whole(GpuRecord),
    /// Not all of the record is there.
    Hole,
    /// Something that was written so many rounds later.
    Later(u64),
}

/// Where the host is.
#[derive(Debug, Default)]
pub(super) struct RingReader {
    /// The number of the next record.
    next: u64,
    /// The number of one that is waited for, and since when, in nanoseconds.
    hole: Option<(u64, u64)>,
    /// Records that are lost.
    pub(super) lost: u64,
}

impl RingReader {
    /// Takes what is there, at the time `now` in nanoseconds; with `last` nothing more is written.
    pub(super) fn read(
        &mut self,
        slots: &[AtomicU64],
        now: u64,
        last: bool,
        mut take: impl FnMut(GpuRecord),
    ) {
        // A ring that is filled as fast as it is read keeps nobody here.
        for _ in 0..2 * SLOTS {
            match look(slots, self.next) {
                SlotState::Whole(record) => {
                    take(record);
                    self.next += 1;
                }
                SlotState::Later(rounds) => {
                    // The oldest one that may be whole still.
                    let oldest = self.next + rounds * SLOTS as u64 + 1 - SLOTS as u64;
                    self.lost += oldest - self.next;
                    self.next = oldest;
                }
                SlotState::Hole => {
                    let since = match self.hole {
                        Some((number, since)) if number == self.next => since,
                        _ => now,
                    };
                    self.hole = Some((self.next, since));
                    let has_waited = last || now.saturating_sub(since) >= HOLE.as_nanos() as u64;
                    // Often there is nothing behind it, and it is no hole, but the end.
                    let behind = has_waited.then(|| first_behind(slots, self.next)).flatten();
                    let Some(behind) = behind else {
                        // Not again the next time: it takes reading all of the ring.
                        self.hole = if has_waited { None } else { self.hole };
                        return;
                    };
                    self.lost += behind - self.next;
                    self.next = behind;
                }
            }
        }
    }
}

/// What the slot of record `number` holds.
fn look(slots: &[AtomicU64], number: u64) -> SlotState {
    let at = number as usize % SLOTS * WORDS;
    let round = number / SLOTS as u64 % ROUNDS;
    let mut words = [0; WORDS];
    let mut whole = true;
    for (word, slot) in words.iter_mut().zip(&slots[at..at + WORDS]) {
        // What stands in a word is there at once; nothing is read through it.
        let seen = slot.load(Ordering::Relaxed);
        let tag = seen >> BITS;
        *word = seen & MASK;
        if tag == round + 1 {
            continue;
        }
        whole = false;
        // 0: never written. Half of all rounds are later ones, and half are earlier ones.
        let later = if tag == 0 { 0 } else { (tag - 1 + ROUNDS - round) % ROUNDS };
        if later > 0 && later < ROUNDS / 2 {
            return SlotState::Later(later);
        }
    }
    if whole {
        SlotState::Whole(GpuRecord::of(&words))
    } else {
        SlotState::Hole
    }
}

/// The number of the first record behind `hole` that is there, or was.
fn first_behind(slots: &[AtomicU64], hole: u64) -> Option<u64> {
    (hole + 1..hole + SLOTS as u64).find(|number| !matches!(look(slots, *number), SlotState::Hole))
}

#[cfg(test)]
#[path = "ring_tests.rs"]
pub(super) mod tests;
