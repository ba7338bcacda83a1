//! Memory that all PEs allocate and free at random, while threads of each PE go on with operations on memory
//! that stays. What is new is zero and nobody else's, what stands keeps its words, and the threads' words
//! arrive as without the allocations.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rushmem::{Pe, SymSlice, World};

use crate::api_common::{seed, Rng};
use crate::{field::Field, seconds};

/// Threads of each PE beside the one that allocates.
const THREADS: usize = 3;
/// Words of the memory that stays, for each thread of each PE.
const ROW: usize = 700;
/// Bytes of all allocations that live at a time, about: past what a heap starts with.
const MOST: usize = 24 << 20;

/// Lengths around what a granule, a page and a chunk of the heap hold.
fn length(random: &mut Rng) -> usize {
    let edge = [1usize, 32, 512, 4096, 65_536, 262_144][random.below(6)];
    match random.below(4) {
        0 => edge,
        1 => edge + 1,
        2 => edge.max(2) - 1,
        _ => 1 + random.below(edge),
    }
}

/// A live allocation, and what tells its words from those of any other.
struct Live<'w> {
    slice: SymSlice<'w, u64>,
    key: u64,
}

impl Live<'_> {
    fn word(&self, pe: Pe, i: usize) -> u64 {
        (self.key ^ u64::from(pe.number()) << 56).wrapping_mul(2 * i as u64 + 1) | 1
    }

    fn expect(&self, seen: &[u64], pe: Pe) {
        for (i, word) in seen.iter().enumerate() {
            assert_eq!(*word, self.word(pe, i), "word {i} of {} on {pe}", seen.len());
        }
    }
}

/// All PEs alike: a random step each, for as long as a way is tried.
fn allocate_and_free(world: &World, field: &Field<'_>) -> u64 {
    // The same on all PEs, as calls are collective.
    let mut common = Rng::new(seed()).fork(0xa11u64);
    let mut own = common.fork(u64::from(world.my_pe().number()) + 1);
    let (me, n) = (world.my_pe(), world.n_pes() as usize);
    let (start, limit) = (Instant::now(), Duration::from_secs(seconds()));
    let (mut live, mut bytes, mut steps) = (Vec::<Live<'_>>::new(), 0, 0);
    while !field.agree(start.elapsed() > limit) {
        for _ in 0..8 {
            steps += 1;
            let frees = !live.is_empty() && (bytes > MOST || common.below(5) < 2);
            if frees {
                let gone = live.swap_remove(common.below(live.len()));
                bytes -= gone.slice.len() * 8;
                gone.expect(&gone.slice.to_vec().unwrap(), me);
                gone.slice.free().unwrap();
                continue;
            }
            let (len, key) = (length(&mut common), common.next());
            let new = Live { slice: world.alloc::<u64>(len).unwrap(), key };
            bytes += len * 8;
            assert!(new.slice.to_vec().unwrap().iter().all(|word| *word == 0), "new memory of {len} words");
            // All words come from the PE on the left, so that new memory is reached from afar at once.
            let left = Pe::new((me.number() + n as u32 - 1) % n as u32);
            let right = Pe::new((me.number() + 1) % n as u32);
            world.barrier_all().unwrap();
            let words: Vec<u64> = (0..len).map(|i| new.word(right, i)).collect();
            new.slice.put(&words, right).unwrap();
            world.barrier_all().unwrap();
            let mut seen = vec![0; len];
            new.slice.get(&mut seen, left).unwrap();
            new.expect(&seen, left);
            live.push(new);
            let any = &live[own.below(live.len())];
            let pe = Pe::new(own.below(n) as u32);
            let (from, at) = (any.slice.len(), own.below(any.slice.len()));
            assert_eq!(any.slice.g(at, pe).unwrap(), any.word(pe, at), "word {at} of {from} on {pe}");
        }
    }
    world.barrier_all().unwrap();
    for left in live {
        left.expect(&left.slice.to_vec().unwrap(), me);
        left.slice.free().unwrap();
    }
    steps
}

/// One thread: its row on a random PE gets new words, of all or one by one, and is read back; its counter
/// counts.
fn post(
    world: &World,
    rows: &SymSlice<'_, u64>,
    counters: &SymSlice<'_, u64>,
    thread: usize,
    stop: &AtomicBool,
) {
    let (me, n) = (world.my_pe().number() as usize, world.n_pes() as usize);
    let number = me * THREADS + thread;
    let mut random = Rng::new(seed()).fork(0xb05 + number as u64);
    let mut counted = vec![0; n];
    while !stop.load(Ordering::Relaxed) {
        let pe = Pe::new(random.below(n) as u32);
        let len = 1 + random.below(ROW);
        let from = number * ROW + random.below(ROW - len + 1);
        let words = random.words(len);
        let part = rows.slice(from..from + len).unwrap();
        match random.below(3) {
            0 => part.put(&words, pe).unwrap(),
            1 => world.nbi(|scope| scope.put(&part, &words, pe)).unwrap(),
            _ => words.iter().enumerate().for_each(|(i, word)| part.p(i, *word, pe).unwrap()),
        }
        let counter = counters.at(number, pe);
        assert_eq!(counter.fetch_add(1).unwrap(), counted[pe.number() as usize], "{number} on {pe}");
        counted[pe.number() as usize] += 1;
        world.quiet().unwrap();
        let mut seen = vec![0; len];
        part.get(&mut seen, pe).unwrap();
        assert!(seen == words, "{len} words from {from} on of thread {number} on {pe}");
    }
}

pub(crate) fn soak(world: &World) {
    let field = Field::new(world);
    let actors = world.n_pes() as usize * THREADS;
    let rows = world.alloc::<u64>(actors * ROW).unwrap();
    let counters = world.alloc::<u64>(actors).unwrap();
    let stop = AtomicBool::new(false);
    let steps = std::thread::scope(|scope| {
        let (rows, counters, stop) = (&rows, &counters, &stop);
        let posting: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || post(world, rows, counters, thread, stop)))
            .collect();
        // However it goes, the threads end.
        let steps =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| allocate_and_free(world, &field)));
        stop.store(true, Ordering::Relaxed);
        posting.into_iter().for_each(|thread| thread.join().unwrap());
        steps.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    world.barrier_all().unwrap();
    if world.my_pe().number() == 0 {
        println!("{steps} allocations and frees of {} PEs", world.n_pes());
    }
}
