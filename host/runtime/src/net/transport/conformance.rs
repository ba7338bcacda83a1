//! What every transport must do, as functions that any of them is put through: UCX with either carrier, the
//! fake network, and the stand-in of other tests. Each function is given a fresh job of three PEs in this
//! thread.
//!
//! The contract: an operation ends exactly once, by `Ok(true)` or by one event; a put's source may be
//! overwritten as soon as it has ended, and its data is there after a flush; a message comes once and whole;
//! the data of a large one is taken in any order; what `cut` finds in flight ends, too, and what is asked
//! later fails. Nothing is assumed about order.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::stand_in::{Network, StandIn};
use super::ucx::listen::Listen;
use super::ucx::Ucx;
use super::{fake, BulkId, Event, Memory, Remote, Token, Transport, BULK_HEAD, MESSAGE};
use crate::config::{Carrier, FarGpu};
use crate::net::wire::message::{begin, PRELUDE};
use crate::testing::random::Random;

const LIMIT: Duration = Duration::from_secs(60);
const PES: usize = 3;
const BYTES: usize = 1 << 20;
const SEGMENT: u32 = 7;

/// One PE, and the events of its transport.
struct Pe {
    transport: Box<dyn Transport>,
    memory: Vec<u8>,
    /// How often each token has ended, and how often badly.
    ended: HashMap<Token, u32>,
    failed: HashMap<Token, u32>,
    messages: Vec<Vec<u8>>,
    bulk: Vec<(Vec<u8>, usize, BulkId)>,
    next: Token,
}

struct Job {
    pes: Vec<Pe>,
    /// Lets the network do something, where the test has to.
    step: Box<dyn FnMut(&mut Random)>,
    random: Random,
}

impl Job {
    fn new(
        transports: Vec<Box<dyn Transport>>,
        step: Box<dyn FnMut(&mut Random)>,
        mut random: Random,
    ) -> Job {
        let mut pes: Vec<Pe> = transports
            .into_iter()
            .map(|transport| Pe {
                transport,
                memory: random.bytes(BYTES),
                ended: HashMap::new(),
                failed: HashMap::new(),
                messages: Vec::new(),
                bulk: Vec::new(),
                next: 1,
            })
            .collect();
        let addresses: Vec<_> = pes.iter().map(|pe| pe.transport.address().unwrap()).collect();
        let register = |pe: &mut Pe| {
            let address = pe.memory.as_mut_ptr() as usize;
            let memory = Memory { address, bytes: BYTES, gpu: false, single: true };
            // SAFETY: the vector is neither moved nor freed while its transport lives.
            unsafe { pe.transport.register(SEGMENT, memory) }.unwrap()
        };
        let keys: Vec<_> = pes.iter_mut().map(register).collect();
        for pe in &mut pes {
            pe.transport.learn_addresses(addresses.clone());
            pe.transport.learn_keys(SEGMENT, keys.clone());
        }
        Job { pes, step, random }
    }

    fn at(&self, pe: usize, offset: usize) -> Remote {
        Remote { pe, segment: SEGMENT, address: self.pes[pe].memory.as_ptr() as u64 + offset as u64 }
    }

    /// Begins an operation of `pe`; its token.
    fn begin(&mut self, pe: usize, what: impl FnOnce(&mut dyn Transport, Token) -> bool) -> Token {
        let of = &mut self.pes[pe];
        let token = of.next;
        of.next += 1;
        if what(&mut *of.transport, token) {
            *of.ended.entry(token).or_default() += 1;
        }
        token
    }

    fn put(&mut self, from: usize, to: usize, offset: usize, source: &[u8]) -> Token {
        let there = self.at(to, offset);
        // SAFETY: the caller keeps the source until the token has ended.
        self.begin(from, |t, token| unsafe { t.put(there, source.as_ptr(), source.len(), token) }.unwrap())
    }

    fn flush(&mut self, from: usize, to: usize) -> Token {
        self.begin(from, |t, token| t.flush(to, token).unwrap())
    }

    fn progress(&mut self) {
        (self.step)(&mut self.random);
        for pe in &mut self.pes {
            let mut events = Vec::new();
            pe.transport.progress(&mut events);
            for event in events {
                match event {
                    Event::Done(token) => *pe.ended.entry(token).or_default() += 1,
                    Event::Failed(token, _) => *pe.failed.entry(token).or_default() += 1,
                    Event::Message(message) => pe.messages.push(message),
                    Event::Bulk { head, bytes, data } => pe.bulk.push((head, bytes, data)),
                    Event::Lost(..) => {}
                }
            }
        }
    }

    fn until(&mut self, what: &str, so: impl Fn(&[Pe]) -> bool) {
        let start = Instant::now();
        while !so(&self.pes) {
            self.progress();
            assert!(start.elapsed() < LIMIT, "{what}: it never ends");
        }
    }

    fn until_ended(&mut self, pe: usize, token: Token) {
        self.until("an operation", |pes| pes[pe].ended.contains_key(&token));
    }

    /// Every operation has ended once, and none has failed.
    fn check(&mut self) {
        let idle = Instant::now();
        while idle.elapsed() < Duration::from_millis(5) {
            self.progress();
        }
        for pe in &self.pes {
            assert!(pe.failed.is_empty(), "{:?}", pe.failed);
            assert!(pe.ended.values().all(|times| *times == 1), "{:?}", pe.ended);
            assert_eq!(pe.ended.len() as u64, pe.next - 1);
        }
    }
}

/// What is put is there after a flush, whatever becomes of the source once the put has ended.
fn puts_arrive_and_give_their_source_back(mut job: Job) {
    for bytes in [1, 7, 8, 512, 513, 4096, 8064, 61_440, 61_441, 300_001, BYTES - 3] {
        for (from, to) in [(0, 1), (1, 2), (2, 0), (1, 0)] {
            let data = job.random.bytes(bytes);
            let mut source = data.clone();
            let token = job.put(from, to, 3, &source);
            job.until_ended(from, token);
            source.fill(0);
            let flush = job.flush(from, to);
            job.until_ended(from, flush);
            assert!(job.pes[to].memory[3..3 + bytes] == data, "{bytes} bytes of PE {from} to PE {to}");
        }
    }
    // Nothing is on its way: a flush ends all the same.
    let flush = job.flush(0, 2);
    job.until_ended(0, flush);
    job.check();
}

fn gets_bring_what_is_there(mut job: Job) {
    for bytes in [1, 9, 512, 4097, 61_440, 61_441, 300_001, BYTES - 5] {
        for (by, of) in [(0, 1), (2, 1), (1, 0)] {
            let from = job.at(of, 5);
            let mut got = vec![0; bytes];
            let to = got.as_mut_ptr();
            // SAFETY: the destination lives until the token has ended.
            let token = job.begin(by, |t, token| unsafe { t.get(from, to, bytes, token) }.unwrap());
            job.until_ended(by, token);
            assert!(got == job.pes[of].memory[5..5 + bytes], "{bytes} bytes of PE {of}");
        }
    }
    job.check();
}

/// A message of `from`, of that length.
fn message(job: &mut Job, from: usize, length: usize) -> Vec<u8> {
    let mut message = job.pes[from].transport.buffer();
    begin(&mut message, from as u32);
    let rest = job.random.bytes(length - PRELUDE);
    message.extend_from_slice(&rest);
    message
}

fn messages_come_once_and_whole(mut job: Job) {
    let mut sent: Vec<Vec<Vec<u8>>> = vec![Vec::new(); PES];
    for round in 0..40 {
        for (from, to) in [(0, 1), (1, 0), (2, 1), (0, 2)] {
            let length = [PRELUDE, PRELUDE + 8, 513, MESSAGE - 1, MESSAGE][round % 5];
            let message = message(&mut job, from, length);
            sent[to].push(message.clone());
            job.pes[from].transport.send(to, message).unwrap();
        }
    }
    job.until("messages", |pes| (0..PES).all(|pe| pes[pe].messages.len() >= sent[pe].len()));
    job.check();
    for (pe, sent) in job.pes.iter_mut().zip(&mut sent) {
        pe.messages.sort();
        sent.sort();
        assert!(pe.messages == *sent, "other messages than were sent");
        for message in pe.messages.drain(..) {
            pe.transport.recycle(message);
        }
    }
}

fn large_messages_are_taken_in_any_order(mut job: Job) {
    let sizes = [0, 1, 4000, 61_439, 61_440, 61_441, 524_288, BYTES];
    let sources: Vec<Vec<u8>> = sizes.iter().map(|bytes| job.random.bytes(*bytes)).collect();
    for (from, to) in [(0, 1), (1, 0), (2, 1)] {
        for (i, source) in sources.iter().enumerate() {
            let head = [(from * sizes.len() + i) as u8; BULK_HEAD];
            let (at, bytes) = (source.as_ptr(), source.len());
            // SAFETY: the sources outlive the job.
            job.begin(from, |t, token| unsafe { t.send_bulk(to, head, at, bytes, token) }.unwrap());
        }
    }
    job.until("announcing", |pes| pes[1].bulk.len() == 2 * sizes.len() && pes[0].bulk.len() == sizes.len());
    for me in [0, 1] {
        let mut bulk = std::mem::take(&mut job.pes[me].bulk);
        while !bulk.is_empty() {
            let (head, bytes, data) = bulk.swap_remove(job.random.below(bulk.len()));
            let source = &sources[usize::from(head[0]) % sizes.len()];
            assert!(head.len() == BULK_HEAD && bytes == source.len());
            let mut got = vec![0; bytes];
            let to = got.as_mut_ptr();
            // SAFETY: as long as was announced, and lives until the token has ended.
            let token = job.begin(me, |t, token| unsafe { t.receive(data, to, token) }.unwrap());
            job.until_ended(me, token);
            assert!(got == *source, "{bytes} bytes");
        }
    }
    job.until("sources", |pes| (0..PES).all(|pe| pes[pe].ended.len() as u64 == pes[pe].next - 1));
    job.check();
}

/// All of it at once, from all PEs, each with an area of its own on each other.
fn everything_at_once(mut job: Job) {
    const AREA: usize = BYTES / PES;
    let mut expected: Vec<Vec<u8>> = job.pes.iter().map(|pe| pe.memory.clone()).collect();
    let (mut kept, mut sent, mut used) = (Vec::new(), [0; PES], [[0; PES]; PES]);
    for _ in 0..300 {
        let from = job.random.below(PES);
        let to = (from + 1 + job.random.below(PES - 1)) % PES;
        match job.random.below(6) {
            0..=2 => {
                let bytes = [8, 600, 9000][job.random.below(3)];
                // Puts that overlap have no order.
                let (inside, offset) = (used[to][from], from * AREA + used[to][from]);
                if inside + bytes > AREA {
                    continue;
                }
                used[to][from] += bytes;
                let source = job.random.bytes(bytes);
                expected[to][offset..offset + bytes].copy_from_slice(&source);
                job.put(from, to, offset, &source);
                kept.push(source);
            }
            3 => drop(job.flush(from, to)),
            4 => {
                let message = message(&mut job, from, 200);
                job.pes[from].transport.send(to, message).unwrap();
                sent[to] += 1;
            }
            _ => job.progress(),
        }
    }
    for from in 0..PES {
        for to in (0..PES).filter(|to| *to != from) {
            job.flush(from, to);
        }
    }
    job.until("everything", |pes| {
        (0..PES)
            .all(|pe| pes[pe].ended.len() as u64 == pes[pe].next - 1 && pes[pe].messages.len() >= sent[pe])
    });
    job.check();
    for (pe, expected) in job.pes.iter().zip(expected) {
        assert!(pe.memory == expected && pe.transport.about().is_ascii());
    }
    for pe in &mut job.pes {
        pe.transport.forget(SEGMENT);
    }
    assert!((0..PES).all(|pe| job.pes[pe].messages.len() == sent[pe]));
    drop(kept);
}

/// What is in flight when connections are cut ends, well or badly, and only once.
fn what_is_cut_ends(mut job: Job) {
    let (source, mut got) = (job.random.bytes(BYTES), vec![0; BYTES]);
    let put = job.put(0, 1, 0, &source);
    let flush = job.flush(0, 1);
    let (from, to) = (job.at(1, 0), got.as_mut_ptr());
    // SAFETY: source and destination outlive the job.
    let get = job.begin(0, |t, token| unsafe { t.get(from, to, BYTES, token) }.unwrap());
    job.pes[0].transport.cut();
    job.until("what was cut", |pes| {
        [put, flush, get].iter().all(|t| pes[0].ended.contains_key(t) || pes[0].failed.contains_key(t))
    });
    let idle = Instant::now();
    while idle.elapsed() < Duration::from_millis(20) {
        job.progress();
    }
    let pe = &job.pes[0];
    let times = |t: &Token| pe.ended.get(t).unwrap_or(&0) + pe.failed.get(t).unwrap_or(&0);
    assert!([put, flush, get].iter().all(|t| times(t) == 1), "{:?} {:?}", pe.ended, pe.failed);
    // Later nothing begins any more, with PEs that were not reached before, either.
    let mut later = Vec::new();
    for pe in 1..PES {
        later.push(job.put(0, pe, 0, &source));
        let (from, head) = (job.at(pe, 0), [0; BULK_HEAD]);
        // SAFETY: source and destination outlive the job.
        later.push(job.begin(0, |t, token| unsafe { t.get(from, to, BYTES, token) }.unwrap()));
        // SAFETY: the source outlives the job.
        later.push(
            job.begin(0, |t, token| unsafe { t.send_bulk(pe, head, source.as_ptr(), BYTES, token) }.unwrap()),
        );
    }
    job.until("what was asked after the cut", |pes| later.iter().all(|t| pes[0].failed.contains_key(t)));
}

/// Puts a transport through all of it; `job` makes a fresh job, or says why there is none.
fn conforms(test: &str, job: impl Fn(Random) -> Result<Job, String>) {
    let cases: [fn(Job); 6] = [
        puts_arrive_and_give_their_source_back,
        gets_bring_what_is_there,
        messages_come_once_and_whole,
        large_messages_are_taken_in_any_order,
        everything_at_once,
        what_is_cut_ends,
    ];
    let mut random = Random::new(test);
    for case in cases {
        match job(Random::seeded(random.next())) {
            Ok(job) => case(job),
            Err(why) => return eprintln!("SKIP {test}: {why}"),
        }
    }
}

fn ucx(carrier: Carrier, random: Random) -> Result<Job, String> {
    ucx_sys::Ucp::load().map_err(|e| e.to_string())?;
    let open = |me| Ucx::new(me, PES, carrier, FarGpu::Bounce, &Listen::Loopback).unwrap();
    let transports = (0..PES).map(|me| Box::new(open(me)) as Box<dyn Transport>).collect();
    Ok(Job::new(transports, Box::new(|_| ()), random))
}

#[test]
fn ucx_with_its_own_copies_conforms() {
    conforms("ucx_with_its_own_copies_conforms", |random| ucx(Carrier::Ucx, random));
}

#[test]
fn ucx_with_copies_in_messages_conforms() {
    conforms("ucx_with_copies_in_messages_conforms", |random| ucx(Carrier::Messages, random));
}

#[test]
fn the_fake_network_conforms() {
    conforms("the_fake_network_conforms", |mut random| {
        let open = |seed| Box::new(fake::Fake::new(Some(seed), 50).unwrap()) as Box<dyn Transport>;
        let transports = (0..PES).map(|_| open(random.next())).collect();
        Ok(Job::new(transports, Box::new(|_| ()), random))
    });
}

/// Takes one of the stand-in's next events, any of them.
fn any_step(network: &Mutex<Network>, random: &mut Random) {
    let mut network = network.lock().unwrap();
    let steps = network.steps();
    if !steps.is_empty() {
        network.take(steps[random.below(steps.len())]);
    }
}

#[test]
fn the_stand_in_conforms() {
    for eager in [true, false] {
        conforms("the_stand_in_conforms", |random| {
            let network = Network::shared(PES, eager);
            let open = |me| Box::new(StandIn::new(me, &network)) as Box<dyn Transport>;
            let transports = (0..PES).map(open).collect();
            let of = Arc::clone(&network);
            Ok(Job::new(transports, Box::new(move |random| any_step(&of, random)), random))
        });
    }
}
