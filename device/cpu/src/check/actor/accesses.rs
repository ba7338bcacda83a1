//! Accesses of memory, compared with those before them.

use std::sync::atomic::Ordering;

use super::{Access, Actor, Conflict, Seen, Spot};
use crate::check::clock::{Strand, Track, STRAND_BITS};
use crate::check::scope::Scope;
use crate::check::segment::{Cell, Page, Segment, CELLS, GRANULE, PAGE};

/// Flags of a cell.
const WRITE: u64 = 1;
const ATOMIC: u64 = 2;
/// Of an atomic access: the scope, if it is not the system's.
const IN_DEVICE: u64 = 4;
const IN_BLOCK: u64 = 8;
/// In no order with others of its strand that are so, until a fence or quiet.
const UNORDERED: u64 = 16;
const FLAG_BITS: u32 = 5;
const MASK_BITS: u32 = 8;
const _: () = assert!(STRAND_BITS + MASK_BITS + FLAG_BITS <= 64);

fn flags_of(access: Access) -> u64 {
    let atomic = match access.atomic {
        None => 0,
        Some(Scope::System) => ATOMIC,
        Some(Scope::Device) => ATOMIC | IN_DEVICE,
        Some(Scope::Block) => ATOMIC | IN_BLOCK,
    };
    let unordered = access.unordered && matches!(access.track, Track::Far | Track::Nbi);
    atomic | (u64::from(access.write) * WRITE) | (u64::from(unordered) * UNORDERED)
}

fn scope_of(flags: u64) -> Scope {
    match flags & (IN_DEVICE | IN_BLOCK) {
        0 => Scope::System,
        IN_DEVICE => Scope::Device,
        _ => Scope::Block,
    }
}

/// How many pages are known without a look-up: of 2 MiB, as each thread of a block may go through a whole
/// array before the next one does.
const KNOWN: usize = 4096;

/// Pages looked up before: their keys, one more than that, and where they are.
pub(crate) struct Pages(Vec<(u64, *const Page)>);

// SAFETY: the pointers are into the segment, which the owner of this value keeps; pages are all atomics.
unsafe impl Send for Pages {}

impl Default for Pages {
    fn default() -> Self {
        Pages(vec![(0, std::ptr::null()); KNOWN])
    }
}

impl Pages {
    fn get<'a>(&mut self, segment: &'a Segment, key: u64) -> Option<&'a Page> {
        let slot = &mut self.0[(key ^ key >> 33) as usize % KNOWN];
        if slot.0 != key + 1 {
            *slot = (key + 1, segment.page(key)?);
        }
        // SAFETY: a page of this segment, which is as long in place as the segment.
        Some(unsafe { &*slot.1 })
    }
}

impl Actor {
    /// Notes an access, and tells of each one before it that is in no order with it.
    pub(crate) fn access(
        &mut self,
        segment: &Segment,
        pages: &mut Pages,
        spot: Spot,
        access: Access,
        found: &mut Vec<Conflict>,
    ) {
        let (mut at, end) = (spot.at, spot.at + access.bytes);
        while at < end {
            let here = Spot { at, ..spot };
            let page_end = (at / PAGE + 1) * PAGE;
            if let Some(page) = pages.get(segment, here.page_key()) {
                let _held = page.hold();
                while at < end.min(page_end) {
                    let first = at % GRANULE;
                    let count = (GRANULE - first).min(end - at);
                    let mask = ((1_u64 << count) - 1) << first;
                    let cells = &page.granules[at % PAGE / GRANULE];
                    if let Some(first) = self.note(segment, cells, mask, access) {
                        let second = Seen {
                            strand: self.strand.on(access.track),
                            site: access.site,
                            clock: self.clock,
                            write: access.write,
                            atomic: access.atomic,
                            unordered: access.unordered,
                        };
                        let narrow = self.missed.covers(first.strand, first.clock);
                        found.push(Conflict { spot: Spot { at, ..spot }, first, second, narrow });
                    }
                    at += count;
                }
            }
            at = at.max(page_end.min(end));
        }
    }

    /// Notes an access of some bytes of a granule; one before it without order.
    #[inline]
    fn note(&self, segment: &Segment, cells: &[Cell; CELLS], mask: u64, access: Access) -> Option<Seen> {
        let flags = flags_of(access);
        let me = self.strand.on(access.track);
        let who = me.bits() << (MASK_BITS + FLAG_BITS) | mask << FLAG_BITS | flags;
        let when = u64::from(self.clock) << 32 | u64::from(access.site);
        // Fresh memory, or the only one that uses it.
        let first = cells[0].who.load(Ordering::Relaxed);
        // A put of one thread that is under way beside another of it.
        let puts = flags & (UNORDERED | WRITE) == UNORDERED | WRITE;
        let alone = |first| first == who && !puts && cells[1].who.load(Ordering::Relaxed) == 0;
        if first == 0 || alone(first) {
            cells[0].who.store(who, Ordering::Relaxed);
            cells[0].when.store(when, Ordering::Relaxed);
            return None;
        }
        let (mut place, mut rank, mut conflict, mut free) = (self.clock as usize % CELLS, 0, None, None);
        for (i, cell) in cells.iter().enumerate() {
            let there = cell.who.load(Ordering::Relaxed);
            if there == 0 {
                if rank < 2 {
                    place = i;
                }
                free = Some(i);
                // Cells are filled from the front.
                break;
            }
            let at = cell.when.load(Ordering::Relaxed);
            if there == who {
                if at >> 32 == when >> 32 {
                    return None;
                }
                let clock = (at >> 32) as u32;
                if puts && !self.known.covers(me, clock) {
                    let (write, atomic, unordered) = (true, None, true);
                    conflict = Some(Seen { strand: me, site: at as u32, clock, write, atomic, unordered });
                }
                (place, rank) = (i, 4);
                continue;
            }
            let (bytes, flag) = (there >> FLAG_BITS & 0xff, there & ((1 << FLAG_BITS) - 1));
            let other = Strand::from_bits(there >> (MASK_BITS + FLAG_BITS));
            let both_unordered = flag & flags & UNORDERED != 0;
            let ordered = self.is_ordered(other, (at >> 32) as u32, access.track, both_unordered);
            if ordered {
                // What this access says more strongly.
                let covered = bytes & !mask == 0 && (access.write || flag & WRITE == 0);
                if covered && rank < 3 && !(access.atomic.is_some() && flag & ATOMIC == 0) {
                    (place, rank) = (i, 3);
                } else if rank < 1 {
                    (place, rank) = (i, 1);
                }
                continue;
            }
            let writes = (flag | flags) & WRITE != 0;
            let scope = scope_of(flag | flags);
            let both_atomic = flag & flags & ATOMIC != 0 && scope.has_both(segment, other, me);
            if bytes & mask != 0 && writes && !both_atomic {
                let (write, clock) = (flag & WRITE != 0, (at >> 32) as u32);
                let atomic = (flag & ATOMIC != 0).then(|| scope_of(flag));
                let unordered = flag & UNORDERED != 0;
                conflict = Some(Seen { strand: other, site: at as u32, clock, write, atomic, unordered });
            }
        }
        // A word that was waited for may be read, if it is written in one piece.
        if conflict.is_some_and(|seen: Seen| seen.atomic.is_some() && seen.write) && !access.write {
            conflict = conflict.filter(|_| !self.has_polled(cells, mask));
        }
        // So what says that it was waited for stays as long as the write does: of one strand's reads the
        // first, of which the most strands know.
        let victim = cells[place].who.load(Ordering::Relaxed);
        if victim & (WRITE | ATOMIC) == ATOMIC {
            match written_word(cells, victim >> FLAG_BITS & 0xff) {
                Some(_) if victim == who => return conflict,
                Some(write) => place = free.unwrap_or(write),
                None => {}
            }
        }
        cells[place].who.store(who, Ordering::Relaxed);
        cells[place].when.store(when, Ordering::Relaxed);
        conflict
    }

    /// Whether these bytes were read atomically before.
    fn has_polled(&self, cells: &[Cell; CELLS], mask: u64) -> bool {
        cells.iter().any(|cell| {
            let there = cell.who.load(Ordering::Relaxed);
            let other = Strand::from_bits(there >> (MASK_BITS + FLAG_BITS));
            let at = (cell.when.load(Ordering::Relaxed) >> 32) as u32;
            let whole = there >> FLAG_BITS & mask == mask;
            whole && there & (WRITE | ATOMIC) == ATOMIC && self.is_ordered(other, at, Track::Now, false)
        })
    }

    #[inline]
    fn is_ordered(&self, other: Strand, clock: u32, track: Track, both_unordered: bool) -> bool {
        // Of two operations of one thread that both are under way the later one may be carried out first, or
        // at once; only where both say so.
        let in_order = match other.track() {
            Track::Now | Track::Put => true,
            _ => matches!(track, Track::Far | Track::Nbi) && !(both_unordered && clock != self.clock),
        };
        if other.on(Track::Now) == self.strand && in_order {
            return true;
        }
        // Neighbours in memory are mostly of one strand.
        let (strand, until) = self.covered.get();
        if strand == other && clock <= until {
            return true;
        }
        let covers = self.known.covers(other, clock);
        if covers {
            self.covered.set((other, clock));
        }
        covers
    }
}

/// The cell of an atomic write to some of these bytes of a granule.
fn written_word(cells: &[Cell; CELLS], mask: u64) -> Option<usize> {
    cells.iter().position(|cell| {
        let there = cell.who.load(Ordering::Relaxed);
        there & (WRITE | ATOMIC) == WRITE | ATOMIC && there >> FLAG_BITS & mask != 0
    })
}
