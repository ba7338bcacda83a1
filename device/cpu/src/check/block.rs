//! A block of a launch under the checker. Its threads are strands that share what its barriers make
//! common; all of this is touched by the block's OS thread alone, by its scheduler or from the one coroutine
//! that runs.

mod faults;

use std::ops::Range;
use std::sync::Arc;

use super::actor::{Access, Actor, Conflict, Effect, Order, Pages, Spot};
use super::calls::Asked;
use super::clock::{Clock, Strand, Track};
use super::fault::Fault;
use super::launch::CheckedLaunch;
use super::report;
use super::scope::Scope;
use super::shared::SharedMemory;
use crate::lines::Variable;
use crate::lock::lock;
use crate::stack_trace::Counters;

/// Frames that tell one place in a source from another. The library's own, of a put to a far PE, are four; in
/// kernels that are not optimised, where each function is one, they are more than eight.
const FRAMES: usize = 32;

/// A CUDA thread.
pub(crate) struct CheckedThread {
    actor: Actor,
    /// Where the functions that are not inlined were called.
    frames: Vec<usize>,
    /// Of the reads and writes that an nbi operation makes.
    tracks: [Track; 2],
    /// What the library sends is a packet.
    packet: bool,
    /// Fences are the library's own, with its host.
    inner: bool,
    /// Of its atomic operations and fences.
    scope: Scope,
    /// What its last collective call was asked for.
    asked: Asked,
    block: *mut CheckedBlock,
}

/// A block under way.
pub(crate) struct CheckedBlock {
    launch: Arc<CheckedLaunch>,
    threads: Vec<CheckedThread>,
    pages: Pages,
    shared: SharedMemory,
    /// The module's other variables.
    globals: Arc<[Variable]>,
    /// Where the word is by which the launch's blocks meet.
    grid_barrier: Option<usize>,
    /// How often it has come there.
    met: u64,
    /// Offsets that live allocations have, as they were looked up last, and the version of that.
    live: (u64, [Range<usize>; 4]),
    sites: Box<[(u64, u32); 512]>,
    /// Places whose lines are to be looked up.
    unnamed: Vec<(u32, Counters)>,
    found: Vec<Conflict>,
    faults: Vec<Fault>,
    /// Lines whose calls were misused.
    misused: Vec<u32>,
}

impl CheckedBlock {
    /// The block of that linear number; `shared` is its dynamic shared memory, and at `grid_barrier` the word
    /// by which the launch's blocks meet.
    pub(crate) fn begin(
        launch: &Arc<CheckedLaunch>,
        block: u64,
        threads: usize,
        shared: Range<usize>,
        grid_barrier: Option<usize>,
    ) -> Box<CheckedBlock> {
        let statics = crate::signals::thread_locals_of(launch.code.slot as usize);
        let variables = launch.code.lines().variables();
        let mut made = Box::new(CheckedBlock {
            launch: Arc::clone(launch),
            threads: Vec::with_capacity(threads),
            pages: Pages::default(),
            shared: SharedMemory::new(shared, statics, Arc::clone(&variables.locals)),
            globals: Arc::clone(&variables.globals),
            grid_barrier,
            met: 0,
            live: Default::default(),
            sites: Box::new([(0, 0); 512]),
            unnamed: Vec::new(),
            found: Vec::new(),
            faults: Vec::new(),
            misused: Vec::new(),
        });
        let at: *mut CheckedBlock = &raw mut *made;
        let chain = launch.threads;
        made.threads.extend((0..threads as u32).map(|thread| CheckedThread {
            actor: Actor::of_thread(Strand::thread(chain, block, thread), launch.start, &launch.known),
            frames: Vec::new(),
            tracks: [Track::Now; 2],
            packet: false,
            inner: false,
            scope: Scope::System,
            asked: Asked::default(),
            block: at,
        }));
        // An earlier block of this OS thread had the same memory.
        let world = launch.world();
        for range in made.shared.ranges() {
            world.forget_spots(Spot { space: world.private, at: range.start }, range.len());
        }
        made
    }

    /// What a CUDA thread's hooks are handed.
    pub(crate) fn thread(&mut self, thread: usize) -> *mut CheckedThread {
        &raw mut self.threads[thread]
    }

    /// All threads have met.
    pub(crate) fn barrier(&mut self) {
        let (known, last) = self.joined();
        let known = Arc::new(known);
        for thread in &mut self.threads {
            thread.actor.known = Arc::clone(&known);
            thread.actor.clock = last + 1;
        }
    }

    /// What all threads know together, themselves included, and the largest clock.
    fn joined(&self) -> (Clock, u32) {
        let last = self.threads.iter().map(|thread| thread.actor.clock).max().unwrap_or(0);
        let mut seen: Vec<*const Clock> = Vec::new();
        let mut known = Clock::default();
        for thread in &self.threads {
            let at = Arc::as_ptr(&thread.actor.known);
            if seen.last() != Some(&at) && !seen.contains(&at) {
                seen.push(at);
                known.join(thread.actor.known.entries());
            }
        }
        if let Some(thread) = self.threads.first() {
            known.raise(thread.actor.strand.block_of(), last);
        }
        (known, last)
    }

    /// Lanes of the warp whose first thread is `first` have met.
    pub(crate) fn warp(&mut self, first: usize, lanes: u32) {
        let mine = || (0..32).filter(|lane| lanes >> lane & 1 == 1).map(|lane| first + lane);
        let mut known = Clock::default();
        for thread in mine() {
            let actor = &self.threads[thread].actor;
            known.join(actor.known.entries());
        }
        let last = mine().map(|thread| self.threads[thread].actor.clock).max().unwrap_or(0);
        for thread in mine() {
            let actor = &self.threads[thread].actor;
            known.raise(actor.strand, actor.clock);
        }
        let known = Arc::new(known);
        for thread in mine() {
            self.threads[thread].actor.known = Arc::clone(&known);
            self.threads[thread].actor.clock = last + 1;
        }
    }

    /// Looks up lines and reports what was found: on the scheduler's stack, which has room.
    pub(crate) fn settle(&mut self) {
        let world = Arc::clone(self.launch.world());
        for (site, counters) in std::mem::take(&mut self.unnamed) {
            let code = &self.launch.code;
            let place = counters.place_in(code.lines(), code.names());
            world
                .segment
                .name_site(site, &format!("kernel `{}`{}", self.launch.code.kernel(), place.phrase()));
        }
        for conflict in std::mem::take(&mut self.found) {
            report::race(&world, &conflict, self.launch.code.check);
        }
        for fault in std::mem::take(&mut self.faults) {
            fault.say(&world);
        }
    }

    /// The block has ended, or was given up.
    pub(crate) fn end(&mut self) {
        self.settle();
        // A kernel's end is a fence of each thread.
        for thread in &mut self.threads {
            thread.actor.fence(&self.launch.chain.world.segment, Order::ACQUIRE);
        }
        let (known, last) = self.joined();
        let mut ended = lock(&self.launch.ended);
        ended.0.join(known.entries());
        ended.1 = ended.1.max(last);
    }

    fn spot(&self, at: usize) -> Option<Spot> {
        let world = self.launch.world();
        if let Some(spot) = world.spot(at) {
            return Some(spot);
        }
        if self.grid_barrier == Some(at) {
            return Some(self.launch.grid_word(self.met));
        }
        let private = self.shared.has(at) || self.launch.data.contains(&at);
        private.then_some(Spot { space: world.private, at })
    }

    /// The number of the place where a thread is.
    fn site(&mut self, counter: usize, frames: &[usize]) -> u32 {
        let callers = &frames[frames.len().saturating_sub(FRAMES)..];
        let mix =
            |key: u64, at: &usize| (key ^ *at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        let key = callers.iter().fold(mix(1, &counter), mix) | 1;
        let slot = (key >> 8) as usize % self.sites.len();
        if self.sites[slot].0 == key {
            return self.sites[slot].1;
        }
        let launch = &self.launch;
        let shape = launch.grid.iter().chain(&launch.block).fold(key, |key, dim| mix(key, &(*dim as usize)));
        let whole = launch.code.kernel().bytes().fold(shape, |key, byte| mix(key, &usize::from(byte)));
        let (site, is_new) = launch.world().site(whole, launch.grid, launch.block);
        if is_new {
            let mut stack = vec![counter];
            stack.extend(frames.iter().rev());
            self.unnamed.push((site, Counters::of_calls(&stack)));
        }
        self.sites[slot] = (key, site);
        site
    }
}

impl CheckedThread {
    /// # Safety
    /// The block lives, and nothing else uses it meanwhile: one of its coroutines has called.
    unsafe fn parts(&mut self) -> (&mut CheckedBlock, &mut Actor, &mut Vec<usize>) {
        // SAFETY: the caller's word; the block's threads are not touched through this reference.
        (unsafe { &mut *self.block }, &mut self.actor, &mut self.frames)
    }

    /// Notes an access of memory that the checker knows.
    ///
    /// # Safety
    /// As for [`CheckedThread::parts`].
    #[inline]
    pub(crate) unsafe fn access(&mut self, at: usize, access: Access, counter: usize) {
        let tracks = self.tracks;
        // SAFETY: the caller's word.
        let (block, actor, frames) = unsafe { self.parts() };
        let spot = block.spot(at);
        if spot.is_some_and(|spot| block.launch.world().is_own(spot)) {
            return;
        }
        if block.launch.code.check.memory {
            if let Some(what) = block.judge(at, spot, access.bytes, access.write) {
                let spot = spot.unwrap_or(Spot { space: block.launch.world().private, at });
                let site = block.site(counter, frames);
                return block.fault(Fault::of(actor.strand, site, spot, &access, what));
            }
        }
        let Some(spot) = spot else { return };
        let track = if access.track == Track::Now { tracks[usize::from(access.write)] } else { access.track };
        let unordered = access.unordered || tracks != [Track::Now; 2];
        let access = Access { site: block.site(counter, frames), track, unordered, ..access };
        // SAFETY: the block holds the launch.
        let launch: &CheckedLaunch = unsafe { &*Arc::as_ptr(&block.launch) };
        let segment = &launch.world().segment;
        actor.access(segment, &mut block.pages, spot, access, &mut block.found);
    }

    /// Of what scope its atomic operations and fences are from now on.
    pub(crate) fn scoped(&mut self, scope: Scope) {
        self.scope = scope;
    }

    pub(crate) fn scope(&self) -> Scope {
        self.scope
    }

    /// An atomic operation on a word.
    ///
    /// # Safety
    /// As for [`CheckedThread::parts`].
    pub(crate) unsafe fn atomic<R>(
        &mut self,
        at: usize,
        bytes: usize,
        order: Order,
        effect: Effect,
        counter: usize,
        perform: impl FnOnce() -> (R, bool),
    ) -> R {
        let write = effect != Effect::Load;
        let access =
            Access { bytes, write, atomic: Some(order.scope), track: Track::Now, unordered: false, site: 0 };
        if effect == Effect::Update {
            // SAFETY: the caller's word.
            unsafe { self.reads_shared(at, access, counter) };
        }
        // SAFETY: the caller's word.
        unsafe { self.access(at, access, counter) };
        // SAFETY: the caller's word.
        let (block, actor, _) = unsafe { self.parts() };
        if effect == Effect::Update && block.grid_barrier == Some(at) {
            // Others may be a time ahead before this one looks: what they did meanwhile is not before it.
            block.met += 1;
        }
        match block.spot(at) {
            Some(spot) => actor.atomic(&block.launch.chain.world.segment, spot, order, effect, perform),
            None => perform().0,
        }
    }

    /// # Safety
    /// As for [`CheckedThread::parts`].
    pub(crate) unsafe fn fence(&mut self, order: Order) {
        if self.inner {
            return;
        }
        // SAFETY: the caller's word.
        let (block, actor, _) = unsafe { self.parts() };
        actor.fence(&block.launch.chain.world.segment, order);
    }

    /// # Safety
    /// As for [`CheckedThread::parts`].
    pub(crate) unsafe fn complete(&mut self, tracks: &[Track]) {
        // SAFETY: the caller's word.
        let (block, actor, _) = unsafe { self.parts() };
        let world = &block.launch.chain.world;
        actor.complete(&world.segment, tracks, world.pe);
    }

    /// What was before the kernel on its stream is complete.
    ///
    /// # Safety
    /// As for [`CheckedThread::parts`].
    pub(crate) unsafe fn awaits_stream(&mut self) {
        // SAFETY: the caller's word.
        let (block, actor, _) = unsafe { self.parts() };
        actor.begin_behind(&block.launch.known, &block.launch.all);
    }

    /// A volatile access, which follows.
    ///
    /// # Safety
    /// As for [`CheckedThread::parts`].
    pub(crate) unsafe fn volatile(&mut self, at: usize, bytes: usize, write: bool, counter: usize) {
        if write {
            // SAFETY: the caller's word.
            return unsafe { self.atomic(at, bytes, Order::RELAXED, Effect::Store, counter, || ((), true)) };
        }
        let access = Access {
            bytes,
            write,
            atomic: Some(Scope::System),
            track: Track::Now,
            unordered: false,
            site: 0,
        };
        // SAFETY: the caller's word.
        unsafe { self.access(at, access, counter) };
        // SAFETY: the caller's word.
        let (block, actor, _) = unsafe { self.parts() };
        if let Some(spot) = block.spot(at) {
            actor.volatile_load(&block.launch.chain.world.segment, spot);
        }
    }

    /// An access of PE `pe`'s copy of symmetric memory, mapped or not.
    ///
    /// # Safety
    /// As for [`CheckedThread::parts`].
    pub(crate) unsafe fn remote(&mut self, at: usize, pe: i32, access: Access, counter: usize) {
        let unordered = access.unordered || self.tracks != [Track::Now; 2];
        // SAFETY: the caller's word.
        let (block, actor, frames) = unsafe { self.parts() };
        let world = Arc::clone(block.launch.world());
        let Some(spot) = world.spot_on(at, pe).filter(|spot| !world.is_own(*spot)) else { return };
        let access = Access { site: block.site(counter, frames), unordered, ..access };
        if block.launch.code.check.memory {
            if let Some(what) = block.judge(at, Some(spot), access.bytes, access.write) {
                return block.fault(Fault::of(actor.strand, access.site, spot, &access, what));
            }
        }
        actor.access(&world.segment, &mut block.pages, spot, access, &mut block.found);
    }

    /// An atomic update or a store of PE `pe`'s word, which the library carries out.
    ///
    /// # Safety
    /// As for [`CheckedThread::parts`].
    pub(crate) unsafe fn remote_atomic(
        &mut self,
        at: usize,
        pe: i32,
        bytes: usize,
        order: Order,
        effect: Effect,
        counter: usize,
    ) {
        let write = effect != Effect::Load;
        let access =
            Access { bytes, write, atomic: Some(order.scope), track: Track::Now, unordered: false, site: 0 };
        // SAFETY: the caller's word.
        unsafe { self.remote(at, pe, access, counter) };
        // SAFETY: the caller's word.
        let (block, actor, _) = unsafe { self.parts() };
        let world = block.launch.world();
        if let Some(spot) = world.spot_on(at, pe) {
            actor.atomic(&world.segment, spot, order, effect, || ((), true));
        }
    }

    /// Plain accesses from now on are on these tracks: reads, writes.
    pub(crate) fn begin(&mut self, tracks: [Track; 2]) {
        if self.tracks != [Track::Now; 2] {
            self.actor.begun();
        }
        self.tracks = tracks;
        self.packet = false;
    }

    /// A put to a far PE is under way.
    pub(crate) fn begun(&mut self) {
        self.actor.begun();
    }

    /// What the library sends from now on is a packet.
    pub(crate) fn begin_packet(&mut self) {
        self.packet = true;
    }

    pub(crate) fn sends_packet(&self) -> bool {
        self.packet
    }

    /// Whether fences from now on are the library's own.
    pub(crate) fn inner(&mut self, inner: bool) {
        self.inner = inner;
    }

    /// A function that is not inlined was called from there.
    pub(crate) fn enter(&mut self, counter: usize) {
        self.frames.push(counter);
    }

    pub(crate) fn leave(&mut self) {
        self.frames.pop();
    }
}
