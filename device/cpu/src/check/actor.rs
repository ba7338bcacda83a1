//! One strand under way: its clock, what it knows, and what its accesses and synchronisation do to both. The
//! rules are those of C++'s memory model (acquire and release operations, fences, release sequences), to
//! which CUDA's and OpenSHMEM's operations are mapped by `host` and by the kernels' own code.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use super::clock::{Clock, Strand, Track, STRAND_BITS};
use super::segment::{Page, Segment, Word, CELLS, GRANULE, PAGE};

/// Memory as the checker names it: whose, and where in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) space: u32,
    pub(crate) at: usize,
}

impl Spot {
    pub(crate) fn page_key(self) -> u64 {
        u64::from(self.space) << 40 | (self.at / PAGE) as u64
    }

    pub(crate) fn word_key(self) -> u64 {
        u64::from(self.space) << 47 | self.at as u64 & ((1 << 47) - 1)
    }
}

/// How memory is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) bytes: usize,
    pub(crate) write: bool,
    pub(crate) atomic: bool,
    pub(crate) track: Track,
    pub(crate) site: u32,
}

/// An atomic operation's order, as the compilers number it (`__ATOMIC_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) acquire: bool,
    pub(crate) release: bool,
}

impl Order {
    pub(crate) const RELAXED: Order = Order { acquire: false, release: false };
    pub(crate) const ACQUIRE: Order = Order { acquire: true, release: false };
    pub(crate) const RELEASE: Order = Order { acquire: false, release: true };

    pub(crate) fn of(number: i32) -> Order {
        Order { acquire: matches!(number, 1 | 2 | 4 | 5), release: matches!(number, 3..=5) }
    }
}

/// What an atomic operation does to its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Load,
    Store,
    Update,
}

/// Two accesses without order between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub(crate) spot: Spot,
    pub(crate) first: Seen,
    pub(crate) second: Seen,
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) strand: Strand,
    pub(crate) site: u32,
    pub(crate) write: bool,
    pub(crate) atomic: bool,
}

/// Flags of a cell.
const WRITE: u64 = 1;
const ATOMIC: u64 = 2;
const FLAG_BITS: u32 = 4;
const MASK_BITS: u32 = 8;
const _: () = assert!(STRAND_BITS + MASK_BITS + FLAG_BITS <= 64);

/// Pages looked up before.
pub(crate) struct Pages(Box<[(u64, *const Page); 128]>);

// SAFETY: the pointers are into the segment, which the owner of this value keeps; pages are all atomics.
unsafe impl Send for Pages {}

impl Default for Pages {
    fn default() -> Self {
        Pages(Box::new([(u64::MAX, std::ptr::null()); 128]))
    }
}

impl Pages {
    fn get<'a>(&mut self, segment: &'a Segment, key: u64) -> Option<&'a Page> {
        let slot = &mut self.0[(key ^ key >> 33) as usize % 128];
        if slot.0 != key {
            *slot = (key, segment.page(key)?);
        }
        // SAFETY: a page of this segment, which is as long in place as the segment.
        Some(unsafe { &*slot.1 })
    }
}

/// A strand.
pub(crate) struct Actor {
    pub(crate) strand: Strand,
    pub(crate) clock: u32,
    pub(crate) known: Arc<Clock>,
    /// What relaxed stores carry: all before the last release fence, or before the kernel.
    released: Option<Arc<Clock>>,
    /// What relaxed loads have seen, for the next acquire fence, or the kernel's end.
    pending: Clock,
    /// Words read by volatile loads since then, which the checker sees before they happen.
    volatiles: Vec<Spot>,
    /// Words whose clock was taken up at that version.
    seen: [(u64, u32); 4],
}

impl Actor {
    pub(crate) fn new(strand: Strand, clock: u32, known: Arc<Clock>) -> Actor {
        Actor {
            strand,
            clock,
            known,
            released: None,
            pending: Clock::default(),
            volatiles: Vec::new(),
            seen: [(u64::MAX, 0); 4],
        }
    }

    /// A CUDA thread of a launch before which all that is known was done. A kernel's start is a fence.
    pub(crate) fn of_thread(strand: Strand, clock: u32, known: &Arc<Clock>) -> Actor {
        Actor { released: Some(Arc::clone(known)), ..Actor::new(strand, clock, Arc::clone(known)) }
    }

    /// What it knows, itself included.
    pub(crate) fn full(&self) -> Clock {
        let mut full = (*self.known).clone();
        full.raise(self.strand, self.clock);
        full
    }

    /// Takes up what others know.
    pub(crate) fn learn(&mut self, entries: &[(Strand, u32)]) {
        if !entries.iter().all(|&(strand, clock)| self.known.covers(strand, clock)) {
            Arc::make_mut(&mut self.known).join(entries);
        }
    }

    /// Hands out what it knows: what it does from now on is later.
    pub(crate) fn publish(&mut self) -> Clock {
        let full = self.full();
        self.clock += 1;
        full
    }

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
                    if let Some(first) = self.note(cells, mask, access) {
                        let second = Seen {
                            strand: self.strand.on(access.track),
                            site: access.site,
                            write: access.write,
                            atomic: access.atomic,
                        };
                        found.push(Conflict { spot: Spot { at, ..spot }, first, second });
                    }
                    at += count;
                }
            }
            at = at.max(page_end.min(end));
        }
    }

    /// Notes an access of some bytes of a granule; one before it without order.
    #[inline]
    fn note(&self, cells: &[super::segment::Cell; CELLS], mask: u64, access: Access) -> Option<Seen> {
        let flags = (u64::from(access.write) * WRITE) | (u64::from(access.atomic) * ATOMIC);
        let me = self.strand.on(access.track);
        let who = me.bits() << (MASK_BITS + FLAG_BITS) | mask << FLAG_BITS | flags;
        let when = u64::from(self.clock) << 32 | u64::from(access.site);
        // Fresh memory, or the only one that uses it.
        let first = cells[0].who.load(Ordering::Relaxed);
        if first == 0 || (first == who && cells[1].who.load(Ordering::Relaxed) == 0) {
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
                (place, rank) = (i, 4);
                continue;
            }
            let (bytes, flag) = (there >> FLAG_BITS & 0xff, there & 0xf);
            let other = Strand::from_bits(there >> (MASK_BITS + FLAG_BITS));
            let ordered = self.is_ordered(other, (at >> 32) as u32, access.track);
            if ordered {
                // What this access says more strongly.
                let covered = bytes & !mask == 0 && (access.write || flag & WRITE == 0);
                if covered && rank < 3 && !(access.atomic && flag & ATOMIC == 0) {
                    (place, rank) = (i, 3);
                } else if rank < 1 {
                    (place, rank) = (i, 1);
                }
                continue;
            }
            let writes = (flag | flags) & WRITE != 0;
            if bytes & mask != 0 && writes && flag & flags & ATOMIC == 0 {
                let (write, atomic) = (flag & WRITE != 0, flag & ATOMIC != 0);
                conflict = Some(Seen { strand: other, site: at as u32, write, atomic });
            }
        }
        // A word that was waited for may be read, if it is written in one piece.
        if conflict.is_some_and(|seen: Seen| seen.atomic && seen.write) && !access.write {
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
    fn has_polled(&self, cells: &[super::segment::Cell; CELLS], mask: u64) -> bool {
        cells.iter().any(|cell| {
            let there = cell.who.load(Ordering::Relaxed);
            let other = Strand::from_bits(there >> (MASK_BITS + FLAG_BITS));
            let at = (cell.when.load(Ordering::Relaxed) >> 32) as u32;
            let whole = there >> FLAG_BITS & mask == mask;
            whole && there & (WRITE | ATOMIC) == ATOMIC && self.is_ordered(other, at, Track::Now)
        })
    }

    #[inline]
    fn is_ordered(&self, other: Strand, clock: u32, track: Track) -> bool {
        // Conflicts between two operations of one thread that both are under way are not reported.
        let in_order =
            matches!(other.track(), Track::Now | Track::Put) || matches!(track, Track::Far | Track::Nbi);
        other.on(Track::Now) == self.strand && in_order || self.known.covers(other, clock)
    }

    /// An operation is under way, with what it reads and writes noted: what the strand does from now on is
    /// later than what it did before, even where that was the same access.
    pub(crate) fn begun(&mut self) {
        self.clock += 1;
    }

    /// Carries an atomic operation out, and passes clocks on as its order says. `perform` says whether the
    /// operation took effect (an update may not).
    pub(crate) fn atomic<R>(
        &mut self,
        segment: &Segment,
        spot: Spot,
        order: Order,
        effect: Effect,
        perform: impl FnOnce() -> (R, bool),
    ) -> R {
        let key = spot.word_key();
        let word = match effect {
            // Most words that are only loaded carry nothing.
            Effect::Load => segment.word_if_any(key),
            _ => segment.word(key),
        };
        let Some(word) = word else { return perform().0 };
        let _held = word.hold();
        let (result, took) = perform();
        if effect != Effect::Store {
            self.take(segment, key, word, order.acquire);
        }
        if effect != Effect::Load && took {
            let carried = if order.release { Some(Arc::new(self.publish())) } else { self.released.clone() };
            let clock = match (effect, carried) {
                (Effect::Store, None) => Clock::default(),
                (Effect::Store, Some(carried)) => (*carried).clone(),
                (_, None) => return result,
                (_, Some(carried)) => {
                    let mut clock = read(segment, word);
                    if !clock.join(carried.entries()) {
                        return result;
                    }
                    clock
                }
            };
            write(segment, word, &clock);
            self.saw(key, word.version.load(Ordering::Relaxed));
        }
        result
    }

    fn saw(&mut self, key: u64, version: u32) {
        let slot = &mut self.seen[(key >> 3) as usize % 4];
        *slot = (key, version);
    }

    fn take(&mut self, segment: &Segment, key: u64, word: &Word, acquire: bool) {
        let version = word.version.load(Ordering::Relaxed);
        if acquire || self.seen[(key >> 3) as usize % 4] != (key, version) {
            let clock = read(segment, word);
            if acquire {
                self.learn(clock.entries());
            } else {
                self.pending.join(clock.entries());
            }
            self.saw(key, version);
        }
    }

    /// A volatile load, which follows.
    pub(crate) fn volatile_load(&mut self, segment: &Segment, spot: Spot) {
        if self.volatiles.last() != Some(&spot) {
            self.volatiles.retain(|known| *known != spot);
            if self.volatiles.len() >= 16 {
                let oldest = self.volatiles.remove(0);
                self.look(segment, oldest);
            }
            self.volatiles.push(spot);
        }
    }

    fn look(&mut self, segment: &Segment, spot: Spot) {
        if let Some(word) = segment.word_if_any(spot.word_key()) {
            let _held = word.hold();
            self.take(segment, spot.word_key(), word, false);
        }
    }

    /// A fence.
    pub(crate) fn fence(&mut self, segment: &Segment, order: Order) {
        if order.acquire {
            for spot in std::mem::take(&mut self.volatiles) {
                self.look(segment, spot);
            }
            let pending = std::mem::take(&mut self.pending);
            self.learn(pending.entries());
        }
        if order.release {
            self.released = Some(Arc::new(self.publish()));
        }
    }

    /// What this PE has issued, as far as this strand knows of it, is there: for the next release, too.
    pub(crate) fn complete(&mut self, segment: &Segment, tracks: &[Track], pe: i32) {
        self.clock += 1;
        let mut known = (*self.known).clone();
        known.raise(self.strand, self.clock - 1);
        for &track in tracks {
            known.complete(track, |chain| segment.pe_of(chain) == pe);
        }
        self.known = Arc::new(known);
        self.released = Some(Arc::new(self.publish()));
    }
}

/// The cell of an atomic write to some of these bytes of a granule.
fn written_word(cells: &[super::segment::Cell; CELLS], mask: u64) -> Option<usize> {
    cells.iter().position(|cell| {
        let there = cell.who.load(Ordering::Relaxed);
        there & (WRITE | ATOMIC) == WRITE | ATOMIC && there >> FLAG_BITS & mask != 0
    })
}

/// A word's clock; under its lock.
pub(crate) fn read(segment: &Segment, word: &Word) -> Clock {
    let entries = segment.entries(word);
    Clock::of_sorted(entries.into_iter().map(|(strand, clock)| (Strand::from_bits(strand), clock)).collect())
}

/// Gives a word a clock; under its lock.
pub(crate) fn write(segment: &Segment, word: &Word, clock: &Clock) {
    segment.set_entries(word, clock.entries().iter().map(|&(strand, clock)| (strand.bits(), clock)));
}

#[cfg(test)]
mod tests;
