//! One program on two engines, and what must hold after every event.

use std::collections::hash_map::DefaultHasher;
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};

use super::gpu::{Arena, Gpu, GpuMover, Track};
use super::{Between, Kind, Program};
use crate::error::Result;
use crate::health::Health;
use crate::net::completion::Done;
use crate::net::engine::core::Core;
use crate::net::engine::{Engine, INLINE};
use crate::net::gpu::chunks::SMALL;
use crate::net::gpu::traffic::Traffic;
use crate::net::ordering::Lane;
use crate::net::request::Rows;
use crate::net::transport::stand_in::{Network, StandIn, Step as Event};
use crate::net::wire::message::Record;
use crate::word::Update;

/// The PEs' memory, and how the network reaches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heap {
    /// The host's: one-sided copies.
    Host,
    /// A GPU's, in chunks. `source`: what PE 0 puts is in a GPU's memory, too. `scarce`: chunks are.
    Staged { source: bool, scarce: bool },
    /// A GPU's that one-sided copies reach.
    Direct,
}

impl Heap {
    fn on_gpu(self) -> bool {
        self != Heap::Host
    }
}

/// The other context.
pub(super) const APART: u64 = 5;

/// What programs run on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting {
    pub(super) heap: Heap,
    /// Sources are free at once.
    pub(super) eager: bool,
    /// Bytes of a copy: more than goes by messages.
    pub(super) copy: usize,
    /// A bit for each operation: it is in a context of its own with the others of that bit.
    pub(super) apart: u8,
}

impl Setting {
    pub(super) fn new(heap: Heap, eager: bool) -> Setting {
        Setting { heap, eager, copy: 8 + if heap.on_gpu() { SMALL } else { INLINE }, apart: 0 }
    }

    /// Bytes of a region, and where in it its signal is.
    fn region(&self) -> usize {
        (self.copy + 16).next_power_of_two()
    }

    fn signal(&self) -> usize {
        self.region() - 8
    }

    /// The lane of operation `i`.
    pub(super) fn lane(&self, i: usize) -> Lane {
        Lane { pe: 1, context: if self.apart >> i & 1 == 1 { APART } else { Lane::DEFAULT } }
    }

    /// Memory for programs of so many operations.
    pub(super) fn arena(&self, operations: usize) -> Arena {
        let chunks = if self.heap.on_gpu() { 2 * GpuMover::CHUNKS } else { 0 };
        Arena::new(4 * operations * self.region() + chunks)
    }
}

/// What may happen next: the program's next operation, or something on the network or on a PE's GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Issue,
    Network(Event),
    Gpu(usize, Track),
}

/// A run of one program.
pub(super) struct Run<'a> {
    engines: [Engine; 2],
    net: Arc<Mutex<Network>>,
    gpus: Vec<Arc<Mutex<Gpu>>>,
    setting: Setting,
    program: &'a Program,
    issued: usize,
    /// Where the host finds the target's memory, and where PE 0 puts from and gets to; and how far from there
    /// the last two are for the engine.
    target: usize,
    sources: usize,
    landing: usize,
    near: usize,
    /// What waits for each operation, and for each quiet with the operations before it, and its context, or
    /// all; `None`: it is over.
    waiters: Vec<Option<usize>>,
    quiets: Vec<(usize, Option<u64>, Option<usize>)>,
    _arena: &'a Arena,
}

/// Turns in which engines do all that they can do for now, and at the end.
const TURNS: usize = 4;
const MANY_TURNS: usize = 40;

impl<'a> Run<'a> {
    pub(super) fn new(program: &'a Program, setting: Setting, arena: &'a Arena) -> Run<'a> {
        arena.clear();
        let net = Network::shared(2, setting.eager);
        let (bytes, device) = (program.len() * setting.region(), arena.device());
        let own = arena.base();
        let (target, sources, landing) = (own + bytes, own + 2 * bytes, own + 3 * bytes);
        // How far from its contents memory is for the engines.
        let apart = |on_gpu: bool| if on_gpu { device.at - device.contents } else { 0 };
        let far = apart(setting.heap.on_gpu());
        let near = apart(matches!(setting.heap, Heap::Staged { source: true, .. } | Heap::Direct));
        if setting.heap == Heap::Direct {
            net.lock().unwrap().reach(device);
        }
        let remote = [(own + far) as u64, (target + far) as u64];
        let mut gpus = Vec::new();
        let engines = [0, 1].map(|me| {
            let health = Arc::new(Health::new(format!("PE {me}"), false, None));
            let transport = Box::new(StandIn::new(me, &net));
            let names = vec!["PE 0".to_owned(), "PE 1".to_owned()];
            let mut engine = Engine::new(me, transport, names, Box::new(|_, _| Ok(())), health);
            for (offset, bytes) in pieces(setting, program.len()) {
                let id = engine.segments().new_id();
                let there = remote.iter().map(|base| base + offset as u64).collect();
                let reachable = vec![!matches!(setting.heap, Heap::Staged { .. }); 2];
                engine.segments().insert(id, offset, bytes, remote[me] as usize + offset, there, reachable);
            }
            if setting.heap.on_gpu() {
                let gpu = Gpu::new(device);
                let chunks = landing + bytes + me * GpuMover::CHUNKS;
                let scarce = matches!(setting.heap, Heap::Staged { scarce: true, .. });
                let mover = Box::new(GpuMover::new(&gpu, chunks, scarce));
                engine.attach_gpu(Traffic::new(2, mover));
                gpus.push(gpu);
            }
            engine
        });
        let mut run = Run {
            engines,
            net,
            gpus,
            setting,
            program,
            issued: 0,
            target,
            sources,
            landing,
            near,
            waiters: Vec::new(),
            quiets: Vec::new(),
            _arena: arena,
        };
        for (i, (_, kind)) in program.iter().enumerate() {
            run.bytes_mut(run.sources, i).fill(mark(i));
            if matches!(kind, Kind::Get | Kind::Load) {
                run.bytes_mut(run.target, i).fill(mark(i));
            }
        }
        run
    }

    /// The region of operation `i` in memory that begins at `base`.
    fn bytes(&self, base: usize, i: usize) -> &[u8] {
        let region = self.setting.region();
        // SAFETY: the arena's, which only the run uses, and no engine while this is borrowed.
        unsafe { std::slice::from_raw_parts((base + i * region) as *const u8, region) }
    }

    fn bytes_mut(&mut self, base: usize, i: usize) -> &mut [u8] {
        let region = self.setting.region();
        // SAFETY: the arena's, borrowed mutably with the run, and no engine looks at it meanwhile.
        unsafe { std::slice::from_raw_parts_mut((base + i * region) as *mut u8, region) }
    }

    /// The program's next operation, with what stands before it.
    fn issue(&mut self) {
        let i = self.issued;
        let (between, kind) = self.program[i];
        self.issued += 1;
        match between {
            Between::Nothing => {}
            Between::Fence => self.engines[0].fence(self.setting.lane(i).context),
            Between::Quiet => self.quiet(Some(self.setting.lane(i).context)),
        }
        let waiter = self.engines[0].waiter();
        let (Setting { copy, .. }, lane) = (self.setting, self.setting.lane(i));
        let (region, value) = (self.setting.region(), u64::from(mark(i)));
        let offset = (i * region) as u64;
        let src = self.sources + i * region + self.near;
        let landing = self.landing + i * region + self.near;
        let engine = &mut self.engines[0].operations;
        let done = Done::Waiter(waiter);
        let signal = Record::Signal { add: false, offset: offset + self.setting.signal() as u64, value };
        let rows = Rows { elem: 8, near_stride: 8, far_stride: 16, n: 4 };
        // SAFETY: sources and destinations live as long as the run.
        let (answers, asked) = unsafe {
            match kind {
                Kind::Word => (false, engine.record(lane, &Record::Word { width: 8, offset, value })),
                Kind::Put => (true, engine.put(lane, offset, src, 8, done)),
                Kind::Copy => (true, engine.put(lane, offset, src, copy, done)),
                Kind::CopySignal => (true, engine.put_signal(lane, offset, src, copy, &signal, done)),
                Kind::PutSignal => (true, engine.put_signal(lane, offset, src, 8, &signal, done)),
                Kind::Add => {
                    (false, engine.atomic(lane, Update::Add as u8, 8, offset, value, 0, Done::Nothing))
                }
                Kind::FetchAdd => (true, engine.atomic(lane, Update::Add as u8, 8, offset, value, 0, done)),
                Kind::Rows => (true, engine.put_rows(lane, offset, src, rows, done)),
                Kind::RowsSignal => {
                    let asked = engine.put_rows(lane, offset, src, rows, done);
                    engine.fence_rows(lane);
                    (true, asked.and_then(|()| engine.record(lane, &signal)))
                }
                Kind::Get => (true, engine.get(lane, offset, landing, copy, done)),
                Kind::Load => (true, engine.load(lane, 8, offset, done)),
            }
        };
        asked.unwrap();
        self.waiters.push(answers.then_some(waiter));
    }

    pub(super) fn quiet(&mut self, context: Option<u64>) {
        let waiter = self.engines[0].waiter();
        self.engines[0].quiet(context, Done::Waiter(waiter)).unwrap();
        self.quiets.push((self.waiters.len(), context, Some(waiter)));
    }

    /// Lets both engines do what they can. With a GPU they cannot tell when that is all.
    fn settle(&mut self, turns: usize) {
        for _ in 0..turns {
            let mut worked = false;
            for engine in &mut self.engines {
                worked |= engine.turn();
                engine.operations.core.failures.check().unwrap();
            }
            if !worked {
                break;
            }
        }
    }

    pub(super) fn step(&mut self, step: Step) {
        match step {
            Step::Issue => self.issue(),
            Step::Network(event) => self.net.lock().unwrap().take(event),
            Step::Gpu(pe, track) => self.gpus[pe].lock().unwrap().take(track),
        }
        self.settle(TURNS);
    }

    pub(super) fn steps(&self) -> Vec<Step> {
        let issue = (self.issued < self.program.len()).then_some(Step::Issue);
        let events = self.net.lock().unwrap().steps();
        let mut steps: Vec<Step> = issue.into_iter().chain(events.into_iter().map(Step::Network)).collect();
        for (pe, gpu) in self.gpus.iter().enumerate() {
            steps.extend(gpu.lock().unwrap().steps().map(|track| Step::Gpu(pe, track)));
        }
        steps
    }

    /// What of the data of an operation is in the target's memory: of every so many bytes up to there, one.
    fn data(&self, i: usize) -> impl Iterator<Item = &u8> {
        let (end, step) = match self.program[i].1 {
            Kind::Word | Kind::Add | Kind::FetchAdd => (1, 1),
            Kind::Put | Kind::PutSignal => (8, 1),
            Kind::Copy | Kind::CopySignal => (self.setting.copy, 1),
            Kind::Rows | Kind::RowsSignal => (64, 16),
            Kind::Get | Kind::Load => (0, 1),
        };
        self.bytes(self.target, i)[..end].iter().step_by(step)
    }

    /// The signal of an operation that has one.
    fn signal(&self, i: usize) -> Option<&u8> {
        let signals = matches!(self.program[i].1, Kind::CopySignal | Kind::PutSignal | Kind::RowsSignal);
        signals.then(|| &self.bytes(self.target, i)[self.setting.signal()])
    }

    /// Whether something of an operation is in the target's memory, and whether all of it is.
    fn effect(&self, i: usize) -> (bool, bool) {
        let (mut some, mut all) = (false, true);
        for byte in self.data(i).chain(self.signal(i)) {
            some |= *byte == mark(i);
            all &= *byte == mark(i);
        }
        (some, all)
    }

    /// What must hold after every event.
    pub(super) fn check(&mut self) {
        let effects: Vec<(bool, bool)> = (0..self.issued).map(|i| self.effect(i)).collect();
        for later in 0..self.issued {
            let of_it = |i: &usize| self.setting.lane(*i) == self.setting.lane(later);
            let is_fence = |i: &usize| self.program[*i].0 == Between::Fence;
            let fence = (1..=later).rev().filter(of_it).find(is_fence);
            if let (true, Some(fence)) = (effects[later].0, fence) {
                for earlier in (0..fence).filter(of_it) {
                    assert!(
                        effects[earlier].1,
                        "operation {later} is seen before operation {earlier}: {:?}",
                        self.program
                    );
                }
            }
            if self.signal(later).is_some_and(|signal| *signal != 0) {
                let whole = self.data(later).all(|byte| *byte == mark(later));
                assert!(whole, "signal {later} is seen before its data: {:?}", self.program);
            }
        }
        for (i, effect) in effects.iter().enumerate() {
            let Some(waiter) = self.waiters[i] else { continue };
            let Some(result) = self.engines[0].take(waiter).map(Result::unwrap) else { continue };
            self.waiters[i] = None;
            let right = match self.program[i].1 {
                Kind::FetchAdd => effect.1 && result == 0,
                Kind::Load => result == u64::from_ne_bytes([mark(i); 8]),
                Kind::Get => self.bytes(self.landing, i)[..self.setting.copy].iter().all(|b| *b == mark(i)),
                _ => true,
            };
            assert!(right, "{i} has its answer, which is wrong or came too early: {:?}", self.program);
        }
        for (before, context, waiter) in &mut self.quiets {
            let Some(key) = *waiter else { continue };
            if self.engines[0].take(key).map(Result::unwrap).is_some() {
                *waiter = None;
                let of_it = |i: &usize| context.is_none_or(|of| self.setting.lane(*i).context == of);
                let over = (0..*before).filter(of_it).all(|i| effects[i].1);
                assert!(over, "a quiet is over before {before} operations: {:?}", self.program);
            }
        }
    }

    /// Lets happen whatever `may` says, until nothing is left.
    pub(super) fn step_while(&mut self, may: impl Fn(&Step) -> bool) {
        self.settle(MANY_TURNS);
        while let Some(step) = self.steps().into_iter().find(&may) {
            self.step(step);
            self.settle(MANY_TURNS);
            self.check();
        }
    }

    /// Whether a quiet has seen its end, and whether all of operation `i` has happened.
    pub(super) fn is_over(&self, quiet: usize) -> bool {
        self.quiets[quiet].2.is_none()
    }

    pub(super) fn has_happened(&self, i: usize) -> bool {
        self.effect(i).1
    }

    /// What must hold when nothing can happen any more.
    pub(super) fn check_end(&mut self) {
        self.quiet(None);
        self.settle(MANY_TURNS);
        while let Some(step) = self.steps().first().copied() {
            self.step(step);
            self.settle(MANY_TURNS);
            self.check();
        }
        self.check();
        let stuck = self.waiters.iter().any(Option::is_some) || self.quiets.iter().any(|(.., w)| w.is_some());
        assert!(
            !stuck,
            "something never ends: {:?}, {:?}",
            self.program, self.engines[0].operations.core.ordering
        );
        assert!((0..self.issued).all(|i| self.effect(i).1), "something is lost: {:?}", self.program);
        assert!(self.engines[0].is_quiet(None) && self.engines[0].operations.core.ordering.held() == 0);
    }

    /// All that decides what may still happen.
    pub(super) fn state(&self) -> u64 {
        let mut text = String::new();
        for engine in &self.engines {
            let Core { wire, ordering, in_flight, completions, .. } = &engine.operations.core;
            let (wire, waiters) = (wire.peers(), completions.waiters());
            write!(text, "{wire:?}{ordering:?}{in_flight:?}{waiters:?}{:?}", engine.operations.gpu).unwrap();
        }
        write!(text, "{:?}{:?}{}{:?}", self.net.lock().unwrap(), self.gpus, self.issued, self.waiters)
            .unwrap();
        let mut hash = DefaultHasher::new();
        text.hash(&mut hash);
        (0..self.program.len()).for_each(|i| self.bytes(self.target, i).hash(&mut hash));
        hash.finish()
    }
}

/// What an operation writes, or finds.
fn mark(i: usize) -> u8 {
    i as u8 + 1
}

/// The segments of `n` regions. Where one-sided copies reach a GPU's memory, each copy lies in two, and what
/// of it is in the second is no more than a message takes.
fn pieces(setting: Setting, n: usize) -> Vec<(usize, usize)> {
    let (region, cut) = (setting.region(), setting.copy - 8);
    if setting.heap != Heap::Direct {
        return vec![(0, n * region)];
    }
    (0..n).flat_map(|i| [(i * region, cut), (i * region + cut, region - cut)]).collect()
}
