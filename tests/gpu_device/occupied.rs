//! A device full of waiting threads: what they wait for comes all the same, from its host, from another PE's
//! host and from another PE's kernel. Delivery needs no free SM.

use std::time::Instant;

use rushmem::{Signal, SignalOp};

use rushmem_test_support::arguments::Occupied;

use crate::*;

const OCCUPIED: &str = kernels!("occupied.cu");
const WORDS: usize = 50_000;
/// The device is to be full, so as many threads to a block as there can be.
const THREADS: u32 = 1024;
/// The PE whose device that is.
const TARGET: Pe = Pe::new(0);

/// What is sent, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// The host sets the signal.
    Signal,
    /// The host puts, and sets the signal after it.
    PutThenSignal,
    /// The host puts data with its signal.
    PutSignal,
    /// The host puts, and adds to the signal: for a far PE that is an atomic update of its GPU's memory,
    /// which the threads that wait carry out.
    PutThenAdd,
    /// A kernel does.
    Kernel,
}

const BY_HOST: [Way; 3] = [Way::Signal, Way::PutThenSignal, Way::PutSignal];

/// What another PE sends. (An update of memory that is mapped is a kernel on the sender's GPU, which may be
/// the one that is full.)
fn by_another() -> Vec<Way> {
    let mut ways = [&BY_HOST[..], &[Way::Kernel]].concat();
    if !all_mapped(2) {
        ways.push(Way::PutThenAdd);
    }
    ways
}

struct Scene<'w> {
    world: &'w World,
    bench: Bench<'w>,
    data: SymSlice<'w, u64>,
    outbox: SymSlice<'w, u64>,
    signal: Signal<'w>,
    counts: SymSlice<'w, u64>,
}

impl<'w> Scene<'w> {
    fn new(world: &'w World) -> Self {
        let bench = Bench::new(world, OCCUPIED);
        bench.report.fill(0).unwrap();
        Scene {
            world,
            bench,
            data: world.alloc(WORDS).unwrap(),
            outbox: world.alloc(WORDS).unwrap(),
            signal: world.signal().unwrap(),
            counts: world.alloc(2).unwrap(),
        }
    }

    /// Launches as many threads as there can be at once, to wait for `value`; returns when all have begun to.
    fn fill_the_device(&self, value: u64, words: usize, seed: u64) -> u64 {
        let kernel = self.bench.kernel("occupied_wait");
        let (most, threads) = match on_gpus() {
            true => (kernel.max_blocks(THREADS, 0).unwrap(), THREADS),
            // Any number of threads fits a CPU.
            false => (2, 32),
        };
        self.counts.fill(0).unwrap();
        let (arrived, left) = (self.counts.slice(..1).unwrap(), self.counts.slice(1..).unwrap());
        let expected = ByValue(Occupied { words, value, seed });
        let args = (&self.bench.report, &arrived, &left, &self.data, &self.signal, expected);
        // SAFETY: the kernel reads the data when it has come, and writes its own counts and report.
        unsafe { kernel.launch(Launch::new(most as u32, threads), args) }.unwrap();
        let (all, start) = (most * u64::from(threads), Instant::now());
        // The host reads while the device is full: a copy needs no SM.
        while arrived.g(0, TARGET).unwrap() < all {
            assert!(start.elapsed() < LIMIT, "{:?} of {all} threads came", arrived.to_vec());
        }
        all
    }

    fn send(&self, way: Way, value: u64, seed: u64) {
        let mix = |x: u64| Rng::new(x).next(); // as in check.h
        let payload = || (0..WORDS as u64).map(|i| mix(mix(seed) ^ i)).collect::<Vec<_>>();
        match way {
            Way::Signal => self.signal.set(value, TARGET).unwrap(),
            Way::PutThenSignal => {
                self.data.put(&payload(), TARGET).unwrap();
                self.world.fence().unwrap();
                self.signal.set(value, TARGET).unwrap();
            }
            Way::PutThenAdd => {
                self.data.put(&payload(), TARGET).unwrap();
                self.world.fence().unwrap();
                // From the value before.
                self.signal.signal_op(SignalOp::Add, 1, TARGET).unwrap();
            }
            Way::PutSignal => {
                self.data.put_signal(&payload(), &self.signal, SignalOp::Set, value, TARGET).unwrap();
            }
            Way::Kernel => {
                let target = TARGET.number() as i32;
                let sent = ByValue(Occupied { words: WORDS, value, seed });
                let args = (&self.data, &self.outbox, &self.signal, target, sent);
                // SAFETY: the outbox is this PE's own, and the data is read after its signal.
                unsafe { self.bench.kernel("occupied_send").launch(Launch::new(1, 256), args) }.unwrap();
                self.world.synchronize().unwrap();
            }
        }
    }

    /// `from` sends to the PE whose device is full, once in each of the ways.
    fn play(&self, from: Pe, ways: &[Way], rng: &mut Rng) {
        let me = self.world.my_pe();
        for (value, &way) in (1u64..).zip(ways) {
            let (seed, words) = (rng.next(), if way == Way::Signal { 0 } else { WORDS });
            let waiting = (me == TARGET).then(|| self.fill_the_device(value, words, seed));
            self.world.barrier_all().unwrap();
            let sent = Instant::now();
            if me == from {
                self.send(way, value, seed);
            }
            if let Some(all) = waiting {
                self.world.synchronize().unwrap();
                let (took, name) = (sent.elapsed(), self.world.device_name());
                assert_eq!(self.counts.to_vec().unwrap(), [all, all], "{way:?}");
                self.bench.check(&format!("{way:?}"));
                assert!(took < Duration::from_secs(5), "{way:?} from {from}: {took:?}");
                println!("OCCUPIED {all} threads of {name} saw {way:?} from {from} after {took:?}");
            }
            self.world.barrier_all().unwrap();
        }
    }
}

#[test]
fn a_full_device_hears_its_own_host() {
    both(1, |world, rng| Scene::new(world).play(TARGET, &BY_HOST, rng));
}

/// Also where two processes take turns on one GPU: full means that the other's kernel only comes in its turn.
#[test]
fn a_full_device_hears_another_pe() {
    let play = |world: &World| {
        Scene::new(world).play(Pe::new(1), &by_another(), &mut Rng::new(seed()));
    };
    let pes = || seeded(testing::pes(2));
    pes().run(play);
    pes().threads(play);
}
