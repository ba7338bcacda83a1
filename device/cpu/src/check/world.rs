//! A PE as the checker sees it: where its memory and its peers' is, its host's strand and its streams'.

use std::cell::RefCell;
use std::collections::hash_map::{Entry, HashMap};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use super::actor::{Actor, Conflict, Pages, Spot};
use super::allocations::Allocations;
use super::clock::{Clock, Strand, Track};
use super::findings;
use super::segment::{Segment, PAGE};
use crate::check_mode::Mode;
use crate::lock::lock;
use crate::stack_trace::Counters;

/// Words by which the blocks of chains' launches meet: no PE's memory, and clocks alone.
pub(super) const GRIDS: u32 = (1 << 14) - 3;

/// Where a PE's symmetric memory is, and that of the PEs that it has mapped.
#[derive(Clone, Debug, Default)]
pub struct Windows {
    /// Where the first of them lies.
    pub first: usize,
    /// From each to the next.
    pub stride: usize,
    /// The PEs, in the order of their memory.
    pub pes: Vec<i32>,
    /// Offsets that are the library's own: what happens there is not reported.
    pub own: Range<usize>,
}

/// The checker's memory: one of a job's PEs of a host makes it, the others open that one.
pub struct Memory(Segment);

impl Memory {
    /// A fresh one.
    pub fn create() -> io::Result<Memory> {
        Segment::create().map(Memory)
    }

    /// By which process of this host and by which of its descriptors others open it, as long as it lives.
    pub fn place(&self) -> (u32, u32) {
        self.0.place()
    }

    /// The one of that place.
    pub fn open((process, descriptor): (u32, u32)) -> io::Result<Memory> {
        Segment::open(format!("/proc/{process}/fd/{descriptor}").as_ref()).map(Memory)
    }
}

/// A PE of a job that is checked.
pub struct World {
    pub(crate) segment: Segment,
    pub(crate) mode: Mode,
    pub(crate) allocations: Allocations,
    pub(crate) pe: i32,
    /// Of memory that is this PE's alone.
    pub(crate) private: u32,
    windows: Windows,
    /// Bytes of all of them, and which one is this PE's.
    bytes: usize,
    slot: usize,
    host: Mutex<Option<Arc<Chain>>>,
    /// Places in sources by what tells them apart.
    sites: Mutex<HashMap<u64, u32>>,
    /// Host calls whose line was not looked up.
    pub(crate) calls: Mutex<HashMap<u32, (String, Counters)>>,
}

/// What runs one after the other: a PE's host, or a stream.
pub struct Chain {
    pub(crate) world: Arc<World>,
    pub(crate) number: u32,
    state: Mutex<ChainState>,
}

pub(crate) struct ChainState {
    pub(crate) actor: Actor,
    pub(crate) pages: Pages,
    pub(crate) found: Vec<Conflict>,
    /// The last kernel, as long as only kernels have followed it: the next may start before its end.
    pub(super) kernel: Option<LastKernel>,
    /// A second chain: of two kernels that may overlap one has its threads there.
    other: Option<u32>,
}

/// The last kernel of a chain.
pub(super) struct LastKernel {
    /// All before it, and what the host had done before it launched the next.
    pub(super) behind: Arc<Clock>,
    /// The chain whose strands its threads are.
    pub(super) threads: u32,
}

/// A point in a chain, for what comes after it elsewhere.
#[derive(Clone, Debug, Default)]
pub struct Point(Clock);

thread_local! {
    /// Not there any more in exit handlers, which may make calls as well.
    static CURRENT: RefCell<Option<Arc<Chain>>> = const { RefCell::new(None) };
}

impl Point {
    pub(crate) fn clock(&self) -> &Clock {
        &self.0
    }
}

impl World {
    /// PE `pe` of a job whose checker has this memory.
    pub fn new(pe: i32, windows: Windows, Memory(segment): Memory, mode: Mode) -> Arc<World> {
        findings::at_exit();
        let number = segment.new_chain(pe, "host");
        let world = Arc::new(World {
            segment,
            mode,
            allocations: Allocations::default(),
            pe,
            private: 1 << 15 | number,
            bytes: windows.stride * windows.pes.len(),
            slot: windows.pes.iter().position(|other| *other == pe).unwrap_or(0),
            windows,
            host: Mutex::new(None),
            sites: Mutex::default(),
            calls: Mutex::default(),
        });
        *lock(&world.host) = Some(Chain::with(&world, number));
        world
    }

    /// Breaks the circle of the world and its host's strand.
    pub fn end(&self) {
        *lock(&self.host) = None;
    }

    pub(crate) fn forget_spots(&self, from: Spot, bytes: usize) {
        let pages =
            (from.at / PAGE..(from.at + bytes).div_ceil(PAGE)).map(|page| Spot { at: page * PAGE, ..from });
        for page in pages.filter_map(|spot| self.segment.page_if_any(spot.page_key())) {
            page.forget();
        }
    }

    /// The strand of what the calling thread does: its stream's, else the PE's host.
    pub fn current(self: &Arc<Self>) -> Arc<Chain> {
        let stream = Chain::of_this_thread().filter(|chain| Arc::ptr_eq(&chain.world, self));
        stream.unwrap_or_else(|| lock(&self.host).clone().unwrap_or_else(|| Chain::new(self, "host")))
    }

    /// The number of a place in a source, and whether it is new and wants a text.
    pub(crate) fn site(&self, key: u64, grid: [u32; 2], block: [u32; 2]) -> (u32, bool) {
        match lock(&self.sites).entry(key) {
            Entry::Occupied(known) => (*known.get(), false),
            Entry::Vacant(free) => (*free.insert(self.segment.new_site(grid, block)), true),
        }
    }

    /// Symmetric memory at an address of this process: a PE, and where in its stride.
    #[inline]
    pub(crate) fn spot(&self, at: usize) -> Option<Spot> {
        let offset = at.wrapping_sub(self.windows.first);
        if offset >= self.bytes {
            return None;
        }
        // A heap at a time: most accesses are to this PE's own.
        let mut index = self.slot;
        let mut inside = offset.wrapping_sub(index * self.windows.stride);
        if inside >= self.windows.stride {
            index = offset / self.windows.stride;
            inside = offset % self.windows.stride;
        }
        Some(Spot { space: self.windows.pes[index] as u32 + 1, at: inside })
    }

    /// The same address of PE `pe`'s copy, of one in this PE's own memory.
    pub(crate) fn spot_on(&self, at: usize, pe: i32) -> Option<Spot> {
        self.spot(at).map(|own| Spot { space: pe as u32 + 1, ..own })
    }

    /// Whether a spot is the library's own.
    #[inline]
    pub(crate) fn is_own(&self, spot: Spot) -> bool {
        self.windows.own.contains(&spot.at) && spot.space & 1 << 15 == 0 || spot.space == GRIDS
    }

    /// The PE whose heap a spot is in.
    pub(crate) fn pe_of(spot: Spot) -> Option<i32> {
        (spot.space & 1 << 15 == 0).then_some(spot.space as i32 - 1)
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("World").field("pe", &self.pe).finish_non_exhaustive()
    }
}

impl Chain {
    /// A stream of a PE's.
    pub fn new(world: &Arc<World>, name: &str) -> Arc<Chain> {
        Chain::with(world, world.segment.new_chain(world.pe, name))
    }

    fn with(world: &Arc<World>, number: u32) -> Arc<Chain> {
        let actor = Actor::new(Strand::chain(number), 1, Arc::default());
        let state =
            ChainState { actor, pages: Pages::default(), found: Vec::new(), kernel: None, other: None };
        Arc::new(Chain { world: Arc::clone(world), number, state: Mutex::new(state) })
    }

    /// A chain for the threads of a kernel that may overlap one whose threads are of chain `threads`.
    pub(super) fn other(&self, state: &mut ChainState, threads: u32) -> u32 {
        if threads != self.number {
            return self.number;
        }
        let segment = &self.world.segment;
        *state.other.get_or_insert_with(|| segment.new_chain(self.world.pe, &early_name(self.number)))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, ChainState> {
        lock(&self.state)
    }

    /// Whether it is its PE's host's.
    pub(crate) fn is_host(&self) -> bool {
        self.world.private & !(1 << 15) == self.number
    }

    /// The calling thread does this chain's work until what is returned is dropped.
    pub fn enter(self: &Arc<Self>) -> Entered {
        let before = CURRENT.try_with(|current| current.replace(Some(Arc::clone(self))));
        Entered(before.unwrap_or_default())
    }

    /// All that was done on the chain so far.
    pub fn point(&self) -> Point {
        let mut state = self.state();
        // An event, a barrier or the host's wait: the next kernel comes behind all of it.
        state.kernel = None;
        state.actor.complete(&self.world.segment, &[Track::Put], self.world.pe);
        Point(state.actor.publish())
    }

    /// What the chain does from now on comes after that.
    pub fn after(&self, point: &Point) {
        let mut state = self.state();
        state.actor.learn(point.0.entries());
        if let Some(kernel) = &mut state.kernel {
            Arc::make_mut(&mut kernel.behind).join(point.0.entries());
        }
    }

    /// The chain that the calling thread works for.
    pub(crate) fn of_this_thread() -> Option<Arc<Chain>> {
        CURRENT.try_with(|current| current.borrow().clone()).unwrap_or_default()
    }
}

/// The name of a chain's second one.
pub(super) fn early_name(number: u32) -> String {
    format!("early {number}")
}

/// Ends [`Chain::enter`].
pub struct Entered(Option<Arc<Chain>>);

impl Drop for Entered {
    fn drop(&mut self) {
        let before = self.0.take();
        drop(CURRENT.try_with(|current| current.replace(before)));
    }
}
