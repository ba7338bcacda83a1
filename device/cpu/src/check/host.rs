//! What the host, a stream or the network's engine does, as the runtime notes it: where it is asked for, in
//! the strand of the PE's host or of the stream that carries it out.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::actor::{Access, Effect, Order, Spot};
use super::calls;
use super::clock::{Clock, Strand, Track};
use super::report;
use super::segment::{Segment, Word};
use super::world::{ChainState, World};
use crate::lock::lock;
use crate::stack_trace::Counters;

/// Memory of an operation's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// At an address of this process. What is not symmetric is not looked at.
    At(usize),
    /// That offset in a PE's stride.
    Of(i32, usize),
}

/// When an operation reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Before its call returns.
    Now,
    /// Before its call returns, but what announces it goes behind a fence, a quiet or a collective call.
    Delivered,
    /// Until the next fence or quiet.
    Ordered,
    /// Until the next quiet.
    Complete,
}

impl When {
    fn track(self) -> Track {
        match self {
            When::Now => Track::Now,
            When::Delivered => Track::Put,
            When::Ordered => Track::Far,
            When::Complete => Track::Nbi,
        }
    }
}

/// Words in which the rounds of teams carry clocks: no PE's memory.
const ROUNDS: u32 = (1 << 14) - 1;

/// Rounds of a team: its board, and its first member. Teams without a common member may have one board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TeamRounds {
    /// The number of the board.
    pub board: usize,
    /// A PE of the world.
    pub first: usize,
}

impl TeamRounds {
    /// The word of a round. Members are never two rounds apart.
    fn word_key(self, number: u64) -> u64 {
        let at = self.board << 20 | (self.first & 0x7_ffff) << 1 | (number as usize % 2);
        Spot { space: ROUNDS, at }.word_key()
    }
}

impl World {
    /// Notes what the calling thread does: `what` is its name, for texts.
    pub fn note<R>(self: &Arc<Self>, what: &str, note: impl FnOnce(&mut Notes<'_>) -> R) -> R {
        let chain = self.current();
        let site = self.host_site(what);
        let mut state = chain.state();
        if !chain.is_host() {
            // What is on one stream happens in order, signals too.
            state.actor.fence(&self.segment, Order::BOTH);
            state.kernel = None;
        }
        let is_host = chain.is_host();
        let mut notes =
            Notes { world: self, state: &mut state, site, is_host, unordered: false, under_way: false };
        let result = note(&mut notes);
        if notes.under_way {
            state.actor.begun();
        }
        let found = std::mem::take(&mut state.found);
        drop(state);
        found.iter().for_each(|conflict| report::race(self, conflict, self.mode));
        result
    }

    /// The place of the call in the program.
    fn host_site(&self, what: &str) -> u32 {
        let counters = Counters::of_this_call();
        let mut key = DefaultHasher::new();
        (what, counters.list()).hash(&mut key);
        let (site, is_new) = self.site(key.finish(), [1; 2], [1; 2]);
        if is_new {
            // The line is looked up once it is reported.
            self.segment.name_site(site, what);
            lock(&self.calls).insert(site, (what.to_owned(), counters));
        }
        site
    }

    /// This PE comes to a round of a team: all that it has done is before what members do behind it.
    pub fn come(self: &Arc<Self>, team: TeamRounds, number: u64) {
        let all = self.current().point();
        let all = all.clock();
        let Some(word) = self.segment.word(team.word_key(number)) else { return };
        let _held = word.hold();
        let mut clock = read(&self.segment, word);
        clock.join(all.entries());
        write(&self.segment, word, &clock);
    }

    /// All members have come to the round.
    pub fn leave(self: &Arc<Self>, team: TeamRounds, number: u64) {
        let Some(word) = self.segment.word_if_any(team.word_key(number)) else { return };
        let clock = {
            let _held = word.hold();
            read(&self.segment, word)
        };
        self.current().state().actor.learn(clock.entries());
    }

    /// That memory of this PE's is another allocation from now on, by the call `what`.
    pub fn allocated(&self, what: &str, offset: usize, bytes: usize) {
        self.forget_spots(Spot { space: self.pe as u32 + 1, at: offset }, bytes);
        self.allocations.insert(offset, bytes, self.host_site(what));
    }

    /// A slot set at that offset is a new team's, whose first member is PE `first`. By one of its members,
    /// before any of them makes a call there.
    pub fn new_slots(&self, slots: u64, first: i32) {
        calls::forget(&self.segment, slots, first);
    }

    /// The allocation that begins there is given back, by the call `what`.
    pub fn freed(&self, what: &str, offset: usize) {
        self.allocations.remove(offset, self.host_site(what));
    }
}

/// What has come to a round; under its lock.
fn read(segment: &Segment, word: &Word) -> Clock {
    let entries = segment.entries(word);
    Clock::of_sorted(entries.into_iter().map(|(strand, clock)| (Strand::from_bits(strand), clock)).collect())
}

/// Says what has come to a round; under its lock.
fn write(segment: &Segment, word: &Word, clock: &Clock) {
    segment.set_entries(word, clock.entries().iter().map(|&(strand, clock)| (strand.bits(), clock)));
}

/// What an operation does.
pub struct Notes<'a> {
    world: &'a Arc<World>,
    state: &'a mut ChainState,
    site: u32,
    is_host: bool,
    unordered: bool,
    /// Whether what was noted goes on behind the call.
    under_way: bool,
}

impl Notes<'_> {
    fn spot(&self, memory: Location) -> Option<Spot> {
        match memory {
            Location::At(at) => self.world.spot(at),
            Location::Of(pe, offset) => Some(Spot { space: pe as u32 + 1, at: offset }),
        }
    }

    fn access(&mut self, memory: Location, access: Access) {
        let Some(spot) = self.spot(memory).filter(|spot| !self.world.is_own(*spot)) else { return };
        let access = Access { unordered: self.unordered, ..access };
        self.under_way |= matches!(access.track, Track::Far | Track::Nbi);
        let ChainState { actor, pages, found, .. } = &mut *self.state;
        actor.access(&self.world.segment, pages, spot, access, found);
    }

    /// What follows is an nbi operation's, or a put's to a far PE: others that are under way may be carried
    /// out before it.
    pub fn unordered(&mut self) {
        self.unordered = true;
    }

    /// Reads bytes.
    pub fn reads(&mut self, memory: Location, bytes: usize, when: When) {
        let (track, site) = (when.track(), self.site);
        self.access(memory, Access { bytes, write: false, atomic: None, track, unordered: false, site });
    }

    /// Writes bytes.
    pub fn writes(&mut self, memory: Location, bytes: usize, when: When) {
        let (track, site) = (when.track(), self.site);
        self.access(memory, Access { bytes, write: true, atomic: None, track, unordered: false, site });
    }

    /// Reads a word in one piece, which orders nothing.
    pub fn loads(&mut self, memory: Location, bytes: usize) {
        self.word(memory, bytes, Order::RELAXED, Effect::Load);
    }

    /// Writes a word in one piece, behind the last fence or quiet.
    pub fn stores(&mut self, memory: Location, bytes: usize) {
        self.word(memory, bytes, Order::RELAXED, Effect::Store);
    }

    /// Updates a word, behind the last fence or quiet.
    pub fn updates(&mut self, memory: Location, bytes: usize) {
        self.word(memory, bytes, Order::RELAXED, Effect::Update);
    }

    /// Updates a word, as it was read: it is done when the call returns.
    pub fn fetches(&mut self, memory: Location, bytes: usize) {
        self.tracked(memory, bytes, Order::RELAXED, Effect::Update, Track::Now);
    }

    /// Updates a signal behind all that was done before.
    pub fn signals(&mut self, memory: Location) {
        self.word(memory, 8, Order::RELEASE, Effect::Update);
    }

    /// Has seen a word as it waited for it.
    pub fn waits(&mut self, memory: Location, bytes: usize) {
        self.word(memory, bytes, Order::ACQUIRE, Effect::Load);
    }

    fn word(&mut self, memory: Location, bytes: usize, order: Order, effect: Effect) {
        let write = effect != Effect::Load;
        // Calls before it have returned with what they read; what they wrote, as the fence before it says.
        let relaxed = write && !order.release;
        let track = if relaxed && self.is_host { Track::Put } else { Track::Now };
        self.tracked(memory, bytes, order, effect, track);
    }

    fn tracked(&mut self, memory: Location, bytes: usize, order: Order, effect: Effect, track: Track) {
        let write = effect != Effect::Load;
        let relaxed = write && !order.release;
        self.access(
            memory,
            Access { bytes, write, atomic: Some(order.scope), track, unordered: false, site: self.site },
        );
        let order = Order { release: order.release || relaxed && self.is_host, ..order };
        if let Some(spot) = self.spot(memory) {
            self.state.actor.atomic(&self.world.segment, spot, order, effect, || ((), true));
        }
    }

    /// Orders what the PE has put.
    pub fn fence(&mut self) {
        self.state.actor.complete(&self.world.segment, &[Track::Far, Track::Put], self.world.pe);
    }

    /// Completes what the PE has begun: by kernels that have ended, too.
    pub fn quiet(&mut self) {
        self.state.actor.complete(&self.world.segment, &[Track::Far, Track::Nbi, Track::Put], self.world.pe);
    }
}
