//! Every small program, in every order of the network's events, against what [`crate::far::order`] promises.
//!
//! Two engines run on a network of which the test chooses the next event: a copy arrives, a message arrives, a flush is over, or the program
//! goes on. Each operation has a region of the target's memory to itself, so that the test sees after every event which of them
//! have happened. States that have been seen before are not explored again.
//!
//! `cargo test` explores all programs of three operations and some of four. `RUSHMEM_TEST_ROUNDS=all` explores all of four, too.

use std::collections::{hash_map::DefaultHasher, HashSet, VecDeque};
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::{Done, Engine, Rows, INLINE};
use crate::error::Result;
use crate::far::message::Record;
use crate::far::transport::{BulkId, Event, Memory, Remote, Token, Transport, BULK_HEAD};
use crate::health::Health;
use crate::testing::random::Random;
use crate::word::Update;

/// A copy on its way.
#[derive(Debug, Clone)]
struct Copying {
    id: u64,
    dst: usize,
    data: Vec<u8>,
    /// Whom its arrival completes, if its source was not free at once.
    token: Option<Token>,
    put: bool,
}

/// What is on its way between the two PEs.
#[derive(Debug, Default)]
struct Net {
    /// Messages to each PE, in order: the engine sorts them anyway.
    messages: [VecDeque<Vec<u8>>; 2],
    copies: Vec<Copying>,
    flushes: Vec<(Vec<u64>, Token)>,
    next: u64,
    /// Whether sources are free at once.
    eager: bool,
    /// What each PE hears of at its next turn.
    events: [Vec<Event>; 2],
}

/// What may happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Issue,
    Message(usize),
    Copy(usize),
    Flush(usize),
}

impl Net {
    fn steps(&self) -> Vec<Step> {
        let messages = (0..2).filter(|pe| !self.messages[*pe].is_empty()).map(Step::Message);
        let copies = (0..self.copies.len()).map(Step::Copy);
        let over = |(ids, _): &(Vec<u64>, Token)| !self.copies.iter().any(|copy| ids.contains(&copy.id));
        let flushes =
            self.flushes.iter().enumerate().filter(|(_, flush)| over(flush)).map(|(i, _)| Step::Flush(i));
        messages.chain(copies).chain(flushes).collect()
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Issue => {}
            Step::Message(pe) => {
                let message = self.messages[pe].pop_front().expect("there is one");
                self.events[pe].push(Event::Message(message));
            }
            Step::Copy(i) => {
                let Copying { dst, data, token, put, .. } = self.copies.remove(i);
                let data = if put { data } else { read(data) };
                // SAFETY: the memory of a world of this test, which lives until the run is over.
                unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), dst as *mut u8, data.len()) };
                self.events[0].extend(token.map(Event::Done));
            }
            Step::Flush(i) => {
                let (_, token) = self.flushes.remove(i);
                self.events[0].push(Event::Done(token));
            }
        }
    }
}

/// What a get finds when it is carried out: its source's address and length were kept.
fn read(source: Vec<u8>) -> Vec<u8> {
    let word = |i: usize| usize::from_le_bytes(source[i * 8..][..8].try_into().unwrap());
    // SAFETY: the memory of a world of this test.
    unsafe { std::slice::from_raw_parts(word(0) as *const u8, word(1)) }.to_vec()
}

/// The network as PE `me` sees it.
struct Stepped {
    me: usize,
    net: Arc<Mutex<Net>>,
}

impl Stepped {
    fn net(&self) -> MutexGuard<'_, Net> {
        self.net.lock().unwrap()
    }
}

impl Transport for Stepped {
    fn name(&self) -> &'static str {
        "stepped"
    }
    fn about(&self) -> String {
        String::new()
    }
    fn address(&self) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }
    fn learn_addresses(&mut self, _: Vec<Vec<u8>>) {}
    unsafe fn register(&mut self, _: u32, _: Memory) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }
    fn learn_keys(&mut self, _: u32, _: Vec<Vec<u8>>) {}
    fn forget(&mut self, _: u32) {}
    unsafe fn put(&mut self, to: Remote, src: *const u8, bytes: usize, token: Token) -> Result<bool> {
        let mut net = self.net();
        let (id, eager) = (net.next, net.eager);
        net.next += 1;
        // SAFETY: the caller vouches for the source.
        let data = unsafe { std::slice::from_raw_parts(src, bytes) }.to_vec();
        let token = (!eager).then_some(token);
        net.copies.push(Copying { id, dst: to.address as usize, data, token, put: true });
        Ok(eager)
    }
    unsafe fn get(&mut self, from: Remote, dst: *mut u8, bytes: usize, token: Token) -> Result<bool> {
        let mut net = self.net();
        let id = net.next;
        net.next += 1;
        let data = [from.address.to_le_bytes(), (bytes as u64).to_le_bytes()].concat();
        net.copies.push(Copying { id, dst: dst as usize, data, token: Some(token), put: false });
        Ok(false)
    }
    fn send(&mut self, pe: usize, message: Vec<u8>) -> Result<()> {
        self.net().messages[pe].push_back(message);
        Ok(())
    }
    unsafe fn send_bulk(
        &mut self,
        _: usize,
        _: [u8; BULK_HEAD],
        _: *const u8,
        _: usize,
        _: Token,
    ) -> Result<bool> {
        unreachable!("there is no GPU memory")
    }
    unsafe fn receive(&mut self, _: BulkId, _: *mut u8, _: Token) -> Result<bool> {
        unreachable!("there is no GPU memory")
    }
    fn flush(&mut self, _pe: usize, token: Token) -> Result<bool> {
        let mut net = self.net();
        let ids: Vec<u64> = net.copies.iter().filter(|copy| copy.put).map(|copy| copy.id).collect();
        if ids.is_empty() {
            return Ok(true);
        }
        net.flushes.push((ids, token));
        Ok(false)
    }
    fn progress(&mut self, events: &mut Vec<Event>) {
        events.append(&mut self.net().events[self.me]);
    }
    fn fd(&self) -> Option<RawFd> {
        None
    }
    fn arm(&mut self) -> bool {
        true
    }
    fn congested(&self) -> bool {
        false
    }
    fn buffer(&mut self) -> Vec<u8> {
        Vec::new()
    }
    fn recycle(&mut self, _: Vec<u8>) {}
    fn cut(&mut self) {}
}

/// One operation of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Word,
    Put,
    Copy,
    CopySignal,
    PutSignal,
    Add,
    FetchAdd,
    Rows,
    Get,
    Load,
}

/// What stands between two operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Between {
    Nothing,
    Fence,
    /// A quiet of one thread; others go on without waiting for it.
    Quiet,
}

type Program = Vec<(Between, Kind)>;

const ALL: [Kind; 10] = [
    Kind::Word,
    Kind::Put,
    Kind::Copy,
    Kind::CopySignal,
    Kind::PutSignal,
    Kind::Add,
    Kind::FetchAdd,
    Kind::Rows,
    Kind::Get,
    Kind::Load,
];
/// One of each way that an operation takes through the engine.
const WAYS: [Kind; 5] = [Kind::Put, Kind::Copy, Kind::CopySignal, Kind::FetchAdd, Kind::Get];

/// Bytes of a region, and of a copy: more than goes by messages.
const REGION: usize = 1024;
const COPY: usize = INLINE + 8;
/// Where a region's signal is.
const SIGNAL: usize = REGION - 8;

/// A run of one program.
struct Run {
    engines: [Engine; 2],
    net: Arc<Mutex<Net>>,
    program: Program,
    issued: usize,
    target: Vec<u8>,
    sources: Vec<u8>,
    landing: Vec<u8>,
    /// Who waits for each operation, and for each quiet with what is before it; `None`: has heard.
    waiters: Vec<Option<usize>>,
    quiets: Vec<(usize, Option<usize>)>,
}

impl Run {
    fn new(program: &Program, eager: bool) -> Run {
        let net = Arc::new(Mutex::new(Net { eager, ..Net::default() }));
        let n = program.len() + 1;
        let mut own = vec![0u8; n * REGION];
        let mut target = vec![0u8; n * REGION];
        let sources = (0..n * REGION).map(|at| (at / REGION) as u8 + 1).collect();
        let remote = vec![own.as_mut_ptr() as u64, target.as_mut_ptr() as u64];
        let engines = [0, 1].map(|me| {
            let health = Arc::new(Health::new(format!("PE {me}"), false, None));
            let transport = Box::new(Stepped { me, net: Arc::clone(&net) });
            let names = vec!["PE 0".to_owned(), "PE 1".to_owned()];
            let mut engine = Engine::new(me, transport, names, Vec::new(), health);
            let here = remote[me] as usize;
            engine.segments.insert(1, 0, n * REGION, here, remote.clone(), vec![true; 2]);
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
        let engine = &mut self.engines[0];
        let waiter = engine.waiter();
        let done = Done::Wake(waiter);
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
        self.engines[0].quiet(Done::Wake(waiter)).unwrap();
        self.quiets.push((self.waiters.len(), Some(waiter)));
    }

    /// Lets both engines do what they can.
    fn settle(&mut self) {
        for engine in &mut self.engines {
            while engine.turn() {}
            engine.health.check().unwrap();
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Issue => self.issue(),
            step => self.net.lock().unwrap().take(step),
        }
        self.settle();
    }

    fn steps(&self) -> Vec<Step> {
        let issue = (self.issued < self.program.len()).then_some(Step::Issue);
        issue.into_iter().chain(self.net.lock().unwrap().steps()).collect()
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
    fn check(&mut self) {
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
        for i in 0..self.waiters.len() {
            let Some(waiter) = self.waiters[i] else { continue };
            if self.engines[0].take(waiter).map(Result::unwrap).is_some() {
                self.waiters[i] = None;
                let fetched = self.program[i].1 == Kind::FetchAdd;
                assert!(
                    !fetched || effects[i].1,
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
    fn check_end(&mut self) {
        self.quiet();
        self.settle();
        while let Some(step) = self.steps().first().copied() {
            self.step(step);
            self.check();
        }
        self.check();
        let stuck = self.waiters.iter().any(Option::is_some) || self.quiets.iter().any(|(_, w)| w.is_some());
        assert!(!stuck, "something never ends: {:?}, {:?}", self.program, self.engines[0].peers[1]);
        assert!((0..self.issued).all(|i| self.effect(i).1), "something is lost: {:?}", self.program);
        assert!(self.engines[0].is_quiet() && self.engines[0].held == 0);
    }

    /// All that decides what may still happen.
    fn state(&self) -> u64 {
        let mut text = String::new();
        for engine in &self.engines {
            let Engine { peers, flights, awaited, quiets, waiters, .. } = engine;
            write!(text, "{peers:?}{flights:?}{awaited:?}{quiets:?}{waiters:?}").unwrap();
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

/// The text with each number that lies in one of the buffers told by its distance.
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

/// Explores all that can happen; the number of states.
fn explore(program: &Program, eager: bool) -> usize {
    let mut seen = HashSet::new();
    let mut todo: Vec<Vec<usize>> = vec![Vec::new()];
    while let Some(path) = todo.pop() {
        let mut run = Run::new(program, eager);
        for choice in &path {
            let steps = run.steps();
            run.step(steps[*choice]);
            run.check();
        }
        if !seen.insert(run.state()) {
            continue;
        }
        let steps = run.steps().len();
        if steps == 0 {
            run.check_end();
        }
        todo.extend((0..steps).map(|choice| [&path[..], &[choice]].concat()));
    }
    seen.len()
}

/// All programs of so many operations.
fn programs(n: u32, kinds: &[Kind], between: &[Between]) -> Vec<Program> {
    let (k, b) = (kinds.len(), between.len());
    let all = k.pow(n) * b.pow(n - 1);
    let program = |mut number: usize| {
        let mut pick = |of: usize| (number % of, number /= of).0;
        (0..n)
            .map(|i| {
                let kind = kinds[pick(k)];
                (if i == 0 { Between::Nothing } else { between[pick(b)] }, kind)
            })
            .collect()
    };
    (0..all).map(program).collect()
}

const BOTH: [Between; 2] = [Between::Nothing, Between::Fence];

#[test]
fn every_pair_of_operations_keeps_its_order() {
    for program in programs(2, &ALL, &[Between::Nothing, Between::Fence, Between::Quiet]) {
        explore(&program, true);
        explore(&program, false);
    }
}

#[test]
fn every_three_operations_keep_their_order() {
    let mut states = 0;
    for (i, program) in programs(3, &WAYS, &BOTH).iter().enumerate() {
        states += explore(program, i % 2 == 0);
    }
    println!("{states} states");
}

/// Programs of four operations, of which as many are explored as there is time for, unless all are asked for.
#[test]
fn four_operations_keep_their_order() {
    let kinds = [Kind::Put, Kind::Copy, Kind::CopySignal, Kind::FetchAdd];
    let mut all = programs(4, &kinds, &[Between::Nothing, Between::Fence, Between::Quiet]);
    let everything = std::env::var("RUSHMEM_TEST_ROUNDS").is_ok_and(|rounds| rounds == "all");
    let limit = Duration::from_secs(if everything { 7200 } else { 8 });
    let mut random = Random::new("four operations");
    let (start, mut explored, total) = (Instant::now(), 0, all.len());
    while !all.is_empty() && start.elapsed() < limit {
        let program = all.swap_remove(random.below(all.len()));
        explore(&program, random.below(2) == 0);
        explored += 1;
    }
    println!("{explored} of {total} programs");
    assert!(explored > 0 && (!everything || all.is_empty()));
}
