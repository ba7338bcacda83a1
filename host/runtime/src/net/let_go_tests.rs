//! What a broken job and the end of a process leave of operations in flight: once a caller has the error, the
//! network touches none of its memory, and once the process ends, nothing at all.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::completion::Done;
use super::engine::Engine;
use super::proxy::doorbell::Doorbell;
use super::proxy::submissions::Submissions;
use super::transport::stand_in::{Network, StandIn, Step};
use super::{Far, Lane, Shared};
use crate::health::Health;
use crate::word::Update;

/// More than goes in a message.
const COPY: usize = 1000;
const LITTLE: usize = 100;

/// Two engines on a network of which a test chooses the next event. PE 1's memory is all ones.
struct Pair {
    net: Arc<Mutex<Network>>,
    engines: [Engine; 2],
    health: Arc<Health>,
    there: Vec<u8>,
}

impl Pair {
    fn new() -> Pair {
        let net = Network::shared(2, false);
        let mut there = vec![1u8; 4096];
        let health = Arc::new(Health::new("PE 0".into(), false, None));
        let engines = [0, 1].map(|me| {
            let health =
                if me == 0 { Arc::clone(&health) } else { Arc::new(Health::new("PE 1".into(), false, None)) };
            engine(me, &net, health, there.as_mut_ptr() as usize)
        });
        Pair { net, engines, health, there }
    }

    fn turn(&mut self, pe: usize) {
        while self.engines[pe].turn() {}
    }

    /// Takes one event on the network, and lets nobody act on it.
    #[track_caller]
    fn take(&self, wanted: impl Fn(&Step) -> bool) {
        let mut net = self.net.lock().unwrap();
        let step = net.steps().into_iter().find(wanted).expect("it is on its way");
        net.take(step);
    }

    /// As when another PE has died: PE 0's callers have the error, and free their memory.
    fn let_go(&mut self) {
        self.health.break_job("PE 2 is gone".into());
        self.engines[0].let_go();
        self.turn(0);
        assert!(!self.engines[0].uses_memory_of_callers());
    }

    /// All that may still happen.
    fn end(&mut self) {
        loop {
            [0, 1].into_iter().for_each(|pe| self.turn(pe));
            let mut net = self.net.lock().unwrap();
            let Some(step) = net.steps().first().copied() else { return };
            net.take(step);
        }
    }
}

/// The engine of PE `me` of two; PE 1's memory is at `there`.
fn engine(me: usize, net: &Arc<Mutex<Network>>, health: Arc<Health>, there: usize) -> Engine {
    let names = vec!["PE 0".to_owned(), "PE 1".to_owned()];
    let mut engine = Engine::new(me, Box::new(StandIn::new(me, net)), names, Box::new(|_, _| Ok(())), health);
    let id = engine.segments().new_id();
    engine.segments().insert(id, 0, 4096, there, vec![there as u64; 2], vec![true; 2]);
    engine
}

#[test]
fn answers_that_come_too_late_are_not_laid_down() {
    for bytes in [LITTLE, COPY] {
        let mut pair = Pair::new();
        let mut landing = vec![0u8; bytes];
        let waiter = pair.engines[0].waiter();
        let at = landing.as_mut_ptr() as usize;
        // SAFETY: the landing lives as long as the engines.
        unsafe { pair.engines[0].get(Lane::to(1), 0, at, bytes, Done::Waiter(waiter)) }.unwrap();
        pair.turn(0);
        if bytes == LITTLE {
            pair.take(|step| *step == Step::Message(1));
            pair.turn(1);
        }
        pair.let_go();
        pair.end();
        assert!(landing.iter().all(|byte| *byte == 0), "{bytes} bytes were written to freed memory");
    }
}

#[test]
fn what_is_held_back_does_not_start_any_more() {
    // What the fence waits for: a copy's arrival, or an answer.
    for waits_for_copy in [true, false] {
        let mut pair = Pair::new();
        let source = vec![7u8; COPY];
        let src = source.as_ptr() as usize;
        let engine = &mut pair.engines[0];
        let waiter = engine.waiter();
        if waits_for_copy {
            // SAFETY: the source lives as long as the engines.
            unsafe { engine.put(Lane::to(1), 0, src, COPY, Done::Nothing) }.unwrap();
        } else {
            engine.atomic(Lane::to(1), Update::Add as u8, 8, 0, 0, 0, Done::Waiter(waiter)).unwrap();
        }
        engine.fence(Lane::DEFAULT);
        // SAFETY: the source lives as long as the engines.
        unsafe { engine.put(Lane::to(1), 2048, src, COPY, Done::Nothing) }.unwrap();
        pair.turn(0);
        // The news is with PE 0, and it has not looked.
        if waits_for_copy {
            pair.take(|step| matches!(step, Step::Copy(_)));
            pair.turn(0);
            pair.take(|step| matches!(step, Step::Flush(_)));
        } else {
            pair.take(|step| *step == Step::Message(1));
            pair.turn(1);
            pair.take(|step| *step == Step::Message(0));
        }
        pair.let_go();
        pair.end();
        assert!(pair.there[2048..].iter().all(|byte| *byte == 1), "a freed source was read");
    }
}

/// PE 0's way to PE 1, without a proxy thread.
fn far(net: &Arc<Mutex<Network>>, there: &mut [u8]) -> Far {
    let health = Arc::new(Health::new("PE 0".into(), false, None));
    let engine = engine(0, net, Arc::clone(&health), there.as_mut_ptr() as usize);
    let shared = Shared {
        engine: Mutex::new(engine),
        health,
        driven: AtomicU64::new(0),
        doorbell: Doorbell::new(None).unwrap(),
        submissions: Submissions::default(),
        cuda: None,
        gates: OnceLock::new(),
        stop: AtomicBool::new(false),
        retries: Arc::new([]),
        may_lack_queues: false,
    };
    let boot = Arc::new(rushmem_bootstrap_uid::Single);
    let (about, without_queues) = (String::new(), String::new());
    let shared = Arc::new(shared);
    Far { shared, boot, proxy: None, name: "stand-in", about, without_queues, gpu: false }
}

/// The job was broken before the call, which therefore waits for nothing.
#[test]
fn a_quiet_that_fails_leaves_no_operation_behind() {
    let net = Network::shared(2, false);
    let (mut there, mut landing) = (vec![1u8; 4096], vec![0u8; COPY]);
    let far = far(&net, &mut there);
    let at = landing.as_mut_ptr() as usize;
    // SAFETY: the landing lives as long as the network.
    far.begin(None, |engine| unsafe { engine.get(Lane::to(1), 0, at, COPY, Done::Nothing) }).unwrap();
    far.shared.health.break_job("PE 1 is gone".into());
    far.quiet(None).unwrap_err();
    let mut net = net.lock().unwrap();
    while let Some(step) = net.steps().first().copied() {
        net.take(step);
    }
    assert!(landing.iter().all(|byte| *byte == 0), "quiet is over, and the network writes");
}

/// A thread that has the engine for long is not waited for; nor does it go on when it is done.
#[test]
fn a_process_that_ends_calls_the_network_no_more() {
    let net = Network::shared(2, false);
    let mut there = vec![1u8; 4096];
    let far = far(&net, &mut there);
    far.begin(None, |engine| {
        engine.record(Lane::to(1), &crate::net::message::Record::Word { width: 8, offset: 0, value: 5 })
    })
    .unwrap();
    let held = far.shared.lock();
    let begin = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| far.halt());
        std::thread::sleep(Duration::from_millis(20));
        drop(held);
    });
    assert!(begin.elapsed() < Duration::from_secs(60));
    let mut engine = far.shared.lock();
    let waiter = engine.waiter();
    engine.quiet(None, Done::Waiter(waiter)).unwrap();
    let on_the_way = net.lock().unwrap().waiting(1);
    (0..100).for_each(|_| assert!(!engine.turn()));
    assert_eq!(net.lock().unwrap().waiting(1), on_the_way, "a message was sent");
    drop(engine);
    let held = far.shared.lock();
    let begin = Instant::now();
    far.halt();
    assert!(begin.elapsed() < Duration::from_secs(60), "halting waits for ever");
    drop(held);
}
