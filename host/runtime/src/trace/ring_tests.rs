//! The ring's reader beside writers that are played: words arrive in any order, writers stop in the middle,
//! the ring comes round, and records are lost; each record that is taken is right, and taken once.

use std::collections::HashSet;

use super::*;
use crate::testing::random::Random;

/// An empty ring.
pub(in crate::trace) fn ring() -> Vec<AtomicU64> {
    (0..SLOTS * WORDS).map(|_| AtomicU64::new(0)).collect()
}

/// The words of a record, as `write_trace_record` makes them (device/include/rushmem/impl/trace.h).
pub(in crate::trace) fn words_of(number: u64, record: &GpuRecord) -> [u64; WORDS] {
    let ([bx, by, bz], [tx, ty, tz]) = record.place;
    let wide = |n: u32| u64::from(n);
    let words = [
        record.time & MASK,
        record.bytes.min(MASK),
        record.word.unwrap_or(MASK),
        wide(bx) | wide(by) << 32,
        wide(bz) | wide(tx) << 16 | wide(ty) << 26 | wide(tz) << 36 | (record.event | record.kind << 2) << 42,
        wide(record.name) | u64::from(record.module) << 32,
        wide(record.peer.unwrap_or(-1) as u32) | u64::from(record.launch) << 32,
        record.last & MASK,
    ];
    let tag = number / SLOTS as u64 % ROUNDS + 1;
    words.map(|word| word | tag << BITS)
}

/// Writes a record at once.
pub(in crate::trace) fn write(slots: &[AtomicU64], number: u64, record: &GpuRecord) {
    let at = number as usize % SLOTS * WORDS;
    for (slot, word) in slots[at..].iter().zip(words_of(number, record)) {
        slot.store(word, Ordering::Relaxed);
    }
}

/// A record that tells its number, in all its parts.
fn numbered(number: u64) -> GpuRecord {
    let part = |bits: u32, salt: u64| {
        (number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(salt as u32) & ((1 << bits) - 1)) as u32
    };
    GpuRecord {
        time: number,
        bytes: number * 3,
        word: (number % 3 > 0).then_some(number * 8),
        place: ([part(31, 1), part(16, 2), part(16, 3)], [part(10, 4), part(10, 5), part(6, 6)]),
        event: number % 3,
        kind: number % 5,
        name: part(31, 7),
        module: part(16, 8) as u16,
        peer: (number % 4 > 0).then_some(part(20, 9) as i32),
        launch: part(16, 10) as u16,
        last: number * 7,
    }
}

#[test]
fn a_record_is_what_was_written() {
    let slots = ring();
    for number in [0, 1, 65_535, 65_536, 1 << 30, (1 << 32) - 65_536, 1 << 32] {
        write(&slots, number, &numbered(number));
        assert!(matches!(look(&slots, number), SlotState::Whole(r) if r == numbered(number)), "{number}");
        assert!(matches!(look(&slots, number + SLOTS as u64), SlotState::Hole), "{number}");
        if number >= SLOTS as u64 {
            assert!(matches!(look(&slots, number - SLOTS as u64), SlotState::Later(1)), "{number}");
        }
    }
}

/// Threads that write a record each, a word at a time, in an order of their own.
struct Writers {
    /// Number, what is left to write.
    under_way: Vec<(u64, Vec<usize>)>,
    claimed: u64,
    whole: u64,
}

impl Writers {
    fn step(&mut self, slots: &[AtomicU64], random: &mut Random, most: usize) {
        let draw = |random: &mut Random, most: usize| random.next() as usize % most;
        if self.under_way.len() < most && (self.under_way.is_empty() || draw(random, 8) == 0) {
            self.under_way.push((self.claimed, (0..WORDS).collect()));
            self.claimed += 1;
        }
        let one = draw(random, self.under_way.len());
        let (number, left) = &mut self.under_way[one];
        let word = left.swap_remove(draw(random, left.len()));
        let at = *number as usize % SLOTS * WORDS + word;
        slots[at].store(words_of(*number, &numbered(*number))[word], Ordering::Relaxed);
        if left.is_empty() {
            self.under_way.swap_remove(one);
            self.whole += 1;
        }
    }
}

/// A reader in time takes every record once, in the order of their numbers.
#[test]
fn records_of_many_writers_are_taken_once_and_in_order() {
    let mut random = Random::new("records_of_many_writers_are_taken_once_and_in_order");
    let (slots, mut reader) = (ring(), RingReader::default());
    let mut writers = Writers { under_way: Vec::new(), claimed: 0, whole: 0 };
    let mut taken = 0;
    while taken < 3 * SLOTS as u64 {
        for _ in 0..1 + random.next() % 4000 {
            writers.step(&slots, &mut random, 40);
        }
        reader.read(&slots, 0, false, |record| {
            assert_eq!(record, numbered(taken));
            taken += 1;
        });
        assert!(taken <= writers.whole);
    }
    while !writers.under_way.is_empty() {
        writers.step(&slots, &mut random, 0);
    }
    reader.read(&slots, 0, true, |_| taken += 1);
    assert_eq!((taken, reader.lost), (writers.claimed, 0));
}

/// A reader that is late loses what was overwritten, counts it, and takes no word of one record for a word of
/// another.
#[test]
fn what_was_overwritten_is_counted() {
    let mut random = Random::new("what_was_overwritten_is_counted");
    let (slots, mut reader) = (ring(), RingReader::default());
    let mut writers = Writers { under_way: Vec::new(), claimed: 0, whole: 0 };
    let (mut seen, mut before) = (HashSet::new(), None);
    for turn in 0..12 {
        let most = if turn % 2 == 0 { 60_000 } else { 400_000 + random.next() % 3_000_000 };
        for _ in 0..most {
            writers.step(&slots, &mut random, 30);
        }
        reader.read(&slots, 0, false, |record| {
            assert!(record == numbered(record.time) && before < Some(record.time), "{record:?}");
            before = Some(record.time);
            assert!(seen.insert(record.time));
        });
    }
    while !writers.under_way.is_empty() {
        writers.step(&slots, &mut random, 0);
    }
    reader.read(&slots, 0, true, |record| {
        assert_eq!(record, numbered(record.time));
        assert!(seen.insert(record.time));
    });
    assert_eq!(seen.len() as u64 + reader.lost, writers.claimed);
    assert!(reader.lost > SLOTS as u64, "{}", reader.lost);
}

/// A thread that ends between taking a number and writing is waited for, then passed over.
#[test]
fn a_hole_is_waited_for_and_then_counted() {
    let (slots, mut reader) = (ring(), RingReader::default());
    let mut taken = Vec::new();
    let late = HOLE.as_nanos() as u64;
    for number in (0..10).filter(|number| *number != 4) {
        write(&slots, number, &numbered(number));
    }
    // Half of it is there.
    slots[4 * WORDS].store(words_of(4, &numbered(4))[0], Ordering::Relaxed);
    reader.read(&slots, 1000, false, |record| taken.push(record.time));
    assert_eq!(taken, [0, 1, 2, 3]);
    reader.read(&slots, 999 + late, false, |record| taken.push(record.time));
    assert_eq!((taken.len(), reader.lost), (4, 0));
    reader.read(&slots, 1000 + late, false, |record| taken.push(record.time));
    assert_eq!((taken.as_slice(), reader.lost), ([0, 1, 2, 3, 5, 6, 7, 8, 9].as_slice(), 1));
    // The end is no hole, however long it is looked at; nor is it at the very last.
    reader.read(&slots, 9 * late, false, |_| panic!("nothing is there"));
    reader.read(&slots, 9 * late, true, |_| panic!("nothing is there"));
    assert_eq!(reader.lost, 1);
    // Two of them, when nothing more comes.
    write(&slots, 12, &numbered(12));
    reader.read(&slots, 9 * late, true, |record| taken.push(record.time));
    assert_eq!((taken.last(), reader.lost), (Some(&12), 3));
}
