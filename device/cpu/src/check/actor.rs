//! One strand under way: its clock, what it knows, and what its accesses and synchronisation do to both. The
//! rules are those of C++'s memory model (acquire and release operations, fences, release sequences), to
//! which CUDA's and OpenSHMEM's operations are mapped by `host` and by the kernels' own code; and of scopes
//! ([`super::scope`]).

mod accesses;

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use super::clock::{Clock, Strand, Track};
use super::scope::{Carried, Release, Scope};
use super::segment::{Segment, Word, PAGE};

pub(crate) use accesses::Pages;

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
    /// In one piece, among the threads of that scope.
    pub(crate) atomic: Option<Scope>,
    pub(crate) track: Track,
    /// By an nbi operation, or a put to a far PE: in no order with others of its strand that are so.
    pub(crate) unordered: bool,
    pub(crate) site: u32,
}

/// An atomic operation's order, and its scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) acquire: bool,
    pub(crate) release: bool,
    pub(crate) scope: Scope,
}

impl Order {
    pub(crate) const RELAXED: Order = Order { acquire: false, release: false, scope: Scope::System };
    pub(crate) const ACQUIRE: Order = Order { acquire: true, ..Order::RELAXED };
    pub(crate) const RELEASE: Order = Order { release: true, ..Order::RELAXED };
    pub(crate) const BOTH: Order = Order { acquire: true, ..Order::RELEASE };

    /// As the compilers number it (`__ATOMIC_*`).
    pub(crate) fn of(number: i32, scope: Scope) -> Order {
        Order { acquire: matches!(number, 1 | 2 | 4 | 5), release: matches!(number, 3..=5), scope }
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
    /// There was a release and an acquire, of too narrow a scope.
    pub(crate) narrow: bool,
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) strand: Strand,
    pub(crate) site: u32,
    pub(crate) clock: u32,
    pub(crate) write: bool,
    pub(crate) atomic: Option<Scope>,
    pub(crate) unordered: bool,
}

/// A strand.
pub(crate) struct Actor {
    pub(crate) strand: Strand,
    pub(crate) clock: u32,
    pub(crate) known: Arc<Clock>,
    /// What relaxed stores carry: all before the last release fence of that scope or a wider one, or before
    /// the kernel.
    released: [Option<Arc<Clock>>; 3],
    /// What relaxed loads have seen, for the next acquire fence of that scope, or the kernel's end.
    pending: [Clock; 3],
    /// Words read by volatile loads since then, which the checker sees before they happen.
    volatiles: Vec<Spot>,
    /// What was seen and not taken up, because of a scope.
    missed: Clock,
    /// Words whose clock was taken up at that version, in that scope.
    seen: [(u64, u32, Scope); 4],
    /// A strand that was found to be known up to there: what is known only grows.
    covered: Cell<(Strand, u32)>,
}

impl Actor {
    pub(crate) fn new(strand: Strand, clock: u32, known: Arc<Clock>) -> Actor {
        Actor {
            strand,
            clock,
            known,
            released: Default::default(),
            pending: Default::default(),
            volatiles: Vec::new(),
            missed: Clock::default(),
            seen: [(u64::MAX, 0, Scope::System); 4],
            covered: Cell::new((strand, 0)),
        }
    }

    /// A CUDA thread of a launch before which all that is known was done. A kernel's start is a fence.
    pub(crate) fn of_thread(strand: Strand, clock: u32, known: &Arc<Clock>) -> Actor {
        let released = Scope::ALL.map(|_| Some(Arc::clone(known)));
        Actor { released, ..Actor::new(strand, clock, Arc::clone(known)) }
    }

    /// A CUDA thread that began behind `begun` comes behind all before its kernel, of which that is a part.
    pub(crate) fn begin_behind(&mut self, begun: &Arc<Clock>, all: &Arc<Clock>) {
        for known in self.released.iter_mut().flatten().chain([&mut self.known]) {
            if Arc::ptr_eq(known, begun) {
                *known = Arc::clone(all);
            } else {
                Arc::make_mut(known).join(all.entries());
            }
        }
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
            self.take(segment, key, word, order);
        }
        if effect != Effect::Load && took {
            let releases = self.releases(order);
            let carried = if effect == Effect::Store {
                Carried(releases)
            } else {
                if releases.is_empty() {
                    return result;
                }
                let mut carried = Carried::read(segment, word);
                let new = releases.into_iter().filter(|one| carried.join(segment, one)).count();
                if new == 0 {
                    return result;
                }
                carried
            };
            carried.write(segment, word);
            self.saw(key, word.version.load(Ordering::Relaxed), order.scope);
        }
        result
    }

    /// What a store or an update hands on: in its scope, and in each narrower one in which more was released.
    fn releases(&mut self, order: Order) -> Vec<Release> {
        if order.release {
            return vec![Release::new(order.scope, self.strand, self.publish())];
        }
        let mut releases = Vec::new();
        let mut wider: Option<&Arc<Clock>> = None;
        for scope in Scope::ALL.into_iter().rev().filter(|scope| *scope <= order.scope) {
            let Some(clock) = &self.released[scope as usize] else { continue };
            if !wider.is_some_and(|wider| Arc::ptr_eq(wider, clock)) {
                releases.push(Release::new(scope, self.strand, (**clock).clone()));
            }
            wider = Some(clock);
        }
        releases
    }

    fn saw(&mut self, key: u64, version: u32, scope: Scope) {
        let slot = &mut self.seen[(key >> 3) as usize % 4];
        *slot = (key, version, scope);
    }

    fn take(&mut self, segment: &Segment, key: u64, word: &Word, order: Order) {
        let version = word.version.load(Ordering::Relaxed);
        if !order.acquire && self.seen[(key >> 3) as usize % 4] == (key, version, order.scope) {
            return;
        }
        for release in Carried::read(segment, word).0 {
            let narrowest = release.narrowest(segment, self.strand);
            let Some(narrowest) = narrowest.filter(|narrowest| *narrowest <= order.scope) else {
                self.missed.join(release.clock.entries());
                continue;
            };
            if order.acquire {
                self.learn(release.clock.entries());
                continue;
            }
            for pending in &mut self.pending[narrowest as usize..] {
                pending.join(release.clock.entries());
            }
        }
        self.saw(key, version, order.scope);
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
            self.take(segment, spot.word_key(), word, Order::RELAXED);
        }
    }

    /// A fence.
    pub(crate) fn fence(&mut self, segment: &Segment, order: Order) {
        if order.acquire {
            for spot in std::mem::take(&mut self.volatiles) {
                self.look(segment, spot);
            }
            // A wider fence may follow.
            for pending in &self.pending[order.scope as usize + 1..] {
                self.missed.join(pending.entries());
            }
            let pending = std::mem::take(&mut self.pending[order.scope as usize]);
            self.learn(pending.entries());
            self.pending[..order.scope as usize].fill(Clock::default());
        }
        if order.release {
            self.release(order.scope);
        }
    }

    /// What relaxed stores of that scope, or of a narrower one, hand on from now on is all before this.
    fn release(&mut self, scope: Scope) {
        let released = Arc::new(self.publish());
        self.released[..=scope as usize].fill(Some(released));
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
        self.release(Scope::System);
    }
}

#[cfg(test)]
mod tests;
