//! One program on two engines, and what must hold after every event.

use std::collections::hash_map::DefaultHasher;
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};

use super::{Between, Kind, Program};
use crate::error::Result;
use crate::health::Health;
use crate::net::completion::Done;
use crate::net::engine::core::Core;
use crate::net::engine::{Engine, INLINE};
use crate::net::request::Rows;
use crate::net::transport::stand_in::{Network, StandIn, Step as Event};
use crate::net::wire::message::Record;
use crate::word::Update;

/// Bytes of a region, and of a copy: more than goes by messages.
const REGION: usize = 1024;
const COPY: usize = INLINE + 8;
/// Where a region's signal is.
const SIGNAL: usize = REGION - 8;

/// What may happen next: the program's next operation, or something on the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Issue,
    Network(Event),
}

/// A run of one program.
pub(super) struct Run {
    engines: [Engine; 2],
    net: Arc<Mutex<Network>>,
    program: Program,
    issued: usize,
    target: Vec<u8>,
    sources: Vec<u8>,
    landing: Vec<u8>,
    /// What waits for each operation, and for each quiet with the operations before it; `None`: it is over.
    waiters: Vec<Option<usize>>,
    quiets: Vec<(usize, Option<usize>)>,
}

impl Run {
    pub(super) fn new(program: &Program, eager: bool) -> Run {
        let net = Network::shared(2, eager);
        let n = program.len() + 1;
        let mut own = vec![0u8; n * REGION];
        let mut target = vec![0u8; n * REGION];
        let sources = (0..n * REGION).map(|at| (at / REGION) as u8 + 1).collect();
        let remote = vec![own.as_mut_ptr() as u64, target.as_mut_ptr() as u64];
        let engines = [0, 1].map(|me| {
            let health = Arc::new(Health::new(format!("PE {me}"), false, None));
            let transport = Box::new(StandIn::new(me, &net));
            let names = vec!["PE 0".to_owned(), "PE 1".to_owned()];
            let mut engine = Engine::new(me, transport, names, Box::new(|_, _| ()), health);
            let here = remote[me] as usize;
            engine.segments().insert(1, 0, n * REGION, here, remote.clone(), vec![true; 2]);
            engine
        });
        // PE 0's own memory is never touched: nothing is asked of it.
        drop(own);
        let landing = vec![0; n * REGION];
        Run {
            engines,
            net,
            program: program.clone(),
            issued: 0,
            target,
            sources,
            landing,
            waiters: Vec::new(),
            quiets: Vec::new(),
        }
    }

    /// The program's next operation, with what stands before it.
    fn issue(&mut self) {
        let i = self.issued;
        let (between, kind) = self.program[i];
        self.issued += 1;
        match between {
            Between::Nothing => {}
            Between::Fence => self.engines[0].fence(),
            Between::Quiet => self.quiet(),
        }
        let waiter = self.engines[0].waiter();
        let engine = &mut self.engines[0].operations;
        let done = Done::Waiter(waiter);
        let offset = (i * REGION) as u64;
        let src = self.sources[i * REGION..].as_ptr() as usize;
        let landing = self.landing[i * REGION..].as_mut_ptr() as usize;
        let value = i as u64 + 1;
        let signal = Record::Signal { add: false, offset: offset + SIGNAL as u64, value };
        let rows = Rows { elem: 8, near_stride: 8, far_stride: 16, n: 4 };
        // SAFETY: sources and destinations live as long as the run.
        let (answers, asked) = unsafe {
            match kind {
                Kind::Word => (false, engine.record(1, &Record::Word { width: 8, offset, value })),
                Kind::Put => (true, engine.put(1, offset, src, 8, done)),
                Kind::Copy => (true, engine.put(1, offset, src, COPY, done)),
                Kind::CopySignal => (true, engine.put_signal(1, offset, src, COPY, &signal, done)),
                Kind::PutSignal => (true, engine.put_signal(1, offset, src, 8, &signal, done)),
                Kind::Add => (false, engine.atomic(1, Update::Add as u8, 8, offset, value, 0, Done::Nothing)),
                Kind::FetchAdd => (true, engine.atomic(1, Update::Add as u8, 8, offset, value, 0, done)),
                Kind::Rows => (true, engine.put_rows(1, offset, src, rows, done)),
                Kind::Get => (true, engine.get(1, offset, landing, COPY, done)),
                Kind::Load => (true, engine.load(1, 8, offset, done)),
            }
        };
        asked.unwrap();
        self.waiters.push(answers.then_some(waiter));
    }

    fn quiet(&mut self) {
        let waiter = self.engines[0].waiter();
        self.engines[0].quiet(Done::Waiter(waiter)).unwrap();
        self.quiets.push((self.waiters.len(), Some(waiter)));
    }

    /// Lets both engines do what they can.
    fn settle(&mut self) {
        for engine in &mut self.engines {
            while engine.turn() {}
            engine.operations.core.failures.check().unwrap();
        }
    }

    pub(super) fn step(&mut self, step: Step) {
        match step {
            Step::Issue => self.issue(),
            Step::Network(event) => self.net.lock().unwrap().take(event),
        }
        self.settle();
    }

    pub(super) fn steps(&self) -> Vec<Step> {
        let issue = (self.issued < self.program.len()).then_some(Step::Issue);
        let events = self.net.lock().unwrap().steps();
        issue.into_iter().chain(events.into_iter().map(Step::Network)).collect()
    }

    /// Whether something of an operation is in the target's memory, and whether all of it is.
    fn effect(&self, i: usize) -> (bool, bool) {
        let region = &self.target[i * REGION..][..REGION];
        let mark = i as u8 + 1;
        let set = |at: usize| region[at] == mark;
        let (all, some): (Vec<usize>, Vec<usize>) = match self.program[i].1 {
            Kind::Word | Kind::Add | Kind::FetchAdd => (vec![0], vec![0]),
            Kind::Put => ((0..8).collect(), (0..8).collect()),
            Kind::Copy => ((0..COPY).collect(), (0..COPY).collect()),
            Kind::CopySignal => {
                let data = (0..COPY).chain([SIGNAL]);
                (data.clone().collect(), data.collect())
            }
            Kind::PutSignal => {
                let data = (0..8).chain([SIGNAL]);
                (data.clone().collect(), data.collect())
            }
            Kind::Rows => {
                let data = (0..4).map(|row| row * 16);
                (data.clone().collect(), data.collect())
            }
            Kind::Get | Kind::Load => return (false, true),
        };
        (some.into_iter().any(set), all.into_iter().all(set))
    }

    /// What must hold after every event.
    pub(super) fn check(&mut self) {
        let effects: Vec<(bool, bool)> = (0..self.issued).map(|i| self.effect(i)).collect();
        for later in 0..self.issued {
            let fence = (1..=later).rev().find(|i| self.program[*i].0 == Between::Fence);
            if let (true, Some(fence)) = (effects[later].0, fence) {
                for (earlier, effect) in effects.iter().enumerate().take(fence) {
                    assert!(
                        effect.1,
                        "operation {later} is seen before operation {earlier}: {:?}",
                        self.program
                    );
                }
            }
            let region = &self.target[later * REGION..][..REGION];
            if region[SIGNAL] != 0 {
                let bytes = if self.program[later].1 == Kind::CopySignal { COPY } else { 8 };
                let whole = region[..bytes].iter().all(|byte| *byte == later as u8 + 1);
                assert!(whole, "signal {later} is seen before its data: {:?}", self.program);
            }
        }
        for (i, effect) in effects.iter().enumerate() {
            let Some(waiter) = self.waiters[i] else { continue };
            if self.engines[0].take(waiter).map(Result::unwrap).is_some() {
                self.waiters[i] = None;
                let fetched = self.program[i].1 == Kind::FetchAdd;
                assert!(
                    !fetched || effect.1,
                    "{i} has its answer and is not carried out: {:?}",
                    self.program
                );
            }
        }
        for (before, waiter) in &mut self.quiets {
            let Some(key) = *waiter else { continue };
            if self.engines[0].take(key).map(Result::unwrap).is_some() {
                *waiter = None;
                let over = effects[..*before].iter().all(|effect| effect.1);
                assert!(over, "a quiet is over before {before} operations: {:?}", self.program);
            }
        }
    }

    /// What must hold when nothing can happen any more.
    pub(super) fn check_end(&mut self) {
        self.quiet();
        self.settle();
        while let Some(step) = self.steps().first().copied() {
            self.step(step);
            self.check();
        }
        self.check();
        let stuck = self.waiters.iter().any(Option::is_some) || self.quiets.iter().any(|(_, w)| w.is_some());
        assert!(
            !stuck,
            "something never ends: {:?}, {:?}",
            self.program, self.engines[0].operations.core.ordering
        );
        assert!((0..self.issued).all(|i| self.effect(i).1), "something is lost: {:?}", self.program);
        assert!(self.engines[0].is_quiet() && self.engines[0].operations.core.ordering.held() == 0);
    }

    /// All that decides what may still happen.
    pub(super) fn state(&self) -> u64 {
        let mut text = String::new();
        for engine in &self.engines {
            let Core { wire, ordering, in_flight, completions, .. } = &engine.operations.core;
            let (wire, waiters) = (wire.peers(), completions.waiters());
            write!(text, "{wire:?}{ordering:?}{in_flight:?}{waiters:?}").unwrap();
        }
        write!(text, "{:?}{}{:?}", self.net.lock().unwrap(), self.issued, self.waiters).unwrap();
        let mut hash = DefaultHasher::new();
        // Addresses differ from run to run: only how far they are from the target's memory counts.
        let buffers = [&self.target[..], &self.sources[..], &self.landing[..]];
        with_distances(&text, &buffers).hash(&mut hash);
        self.target.hash(&mut hash);
        hash.finish()
    }
}

/// The text with each number that lies in one of the buffers replaced by its distance.
fn with_distances(text: &str, buffers: &[&[u8]]) -> String {
    let near =
        |number: usize| buffers.iter().position(|b| number.wrapping_sub(b.as_ptr() as usize) < b.len());
    let mut out = String::with_capacity(text.len());
    for word in text.split_inclusive(|c: char| !c.is_ascii_digit()) {
        let digits = word.trim_end_matches(|c: char| !c.is_ascii_digit());
        match digits.parse::<usize>().ok().and_then(|number| near(number).map(|i| (i, number))) {
            Some((i, number)) => {
                write!(out, "b{i}+{}{}", number - buffers[i].as_ptr() as usize, &word[digits.len()..])
                    .unwrap();
            }
            None => out.push_str(word),
        }
    }
    out
}
