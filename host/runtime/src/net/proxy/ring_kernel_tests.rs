//! Kernels on the CPU device that reach far PEs by the ring: every operation, from many threads at once,
//! through rings so small that posts wait and wrap around. Here the header's own producer meets the runtime's
//! consumer. `host/ring` has a model of that producer, and tries every interleaving with the consumer; a test
//! there compares the model with the header, step by step.

use rushmem_device_cpu::{Cause, RunError};

use super::rig::{Arg, Job};
use super::*;
use crate::testing::device::LIMIT;
use crate::testing::random::Random;
use rushmem_abi::device::{
    RUSHMEM_DEVICE_FAIL_BAD_ADDRESS, RUSHMEM_DEVICE_FAIL_BAD_PE, RUSHMEM_DEVICE_FAIL_BROKEN,
    RUSHMEM_DEVICE_FAIL_TIMEOUT, RUSHMEM_DEVICE_FAIL_UNMAPPED,
};

use Arg::{Fields, Offset, Value};

const THREAD: u64 = 0;
const WARP: u64 = 1;
const BLOCK: u64 = 2;

/// `far_words_memory` of far.cu.
struct WordsMemory {
    rows: [Arg<'static>; 6],
    counter: Arg<'static>,
    sum: Arg<'static>,
    sum8: Arg<'static>,
    tickets: Arg<'static>,
}

impl WordsMemory {
    fn fields(self) -> [Arg<'static>; 10] {
        let [of1, of2, of4, of8, of3, of40] = self.rows;
        [of1, of2, of4, of8, of3, of40, self.counter, self.sum, self.sum8, self.tickets]
    }
}

/// `far_bytes_args` of far.cu.
struct Bytes {
    areas: Arg<'static>,
    local: Arg<'static>,
    signals: Arg<'static>,
    sizes: Arg<'static>,
    count: usize,
    most: usize,
    scope: u64,
    seed: u64,
}

impl Bytes {
    fn fields(self) -> [Arg<'static>; 8] {
        let (count, most) = (Value(self.count as u64), Value(self.most as u64));
        let (scope, seed) = (Value(self.scope), Value(self.seed));
        [self.areas, self.local, self.signals, self.sizes, count, most, scope, seed]
    }
}

/// `far_order_args` of far.cu.
struct Order {
    data: Arg<'static>,
    source: Arg<'static>,
    flag: Arg<'static>,
    way: u64,
    rounds: usize,
}

impl Order {
    fn fields(self) -> [Arg<'static>; 5] {
        [self.data, self.source, self.flag, Value(self.way), Value(self.rounds as u64)]
    }
}

#[test]
fn many_blocks_post_words_at_once() {
    let mut random = Random::new("many_blocks_post_words_at_once");
    for (slots, grid, block) in [(1, 2, 3), (4, 6, 40), (8, 3, 33), (256, 4, 16)] {
        let mut job = Job::new(4, 2, slots);
        let threads = 4 * (grid * block) as usize;
        let report = job.alloc(64);
        let rows = [1, 2, 4, 8, 3, 40].map(|size| Offset(job.alloc(size * threads)));
        let [counter, sum, sum8, tickets] = [8, 4, 8, 8 * threads].map(|bytes| job.alloc(bytes));
        let memory = WordsMemory {
            rows,
            counter: Offset(counter),
            sum: Offset(sum),
            sum8: Offset(sum8),
            tickets: Offset(tickets),
        };
        let args = [Offset(report), Fields(&memory.fields()), Value(random.next())];
        job.run(&mut random, "far_words", (grid, block), &args);
        for pe in 0..4 {
            assert_eq!(job.words(pe, counter, 1), [threads as u64]);
            assert_eq!(f32::from_bits(job.words(pe, sum, 1)[0] as u32), threads as f32);
            assert_eq!(f64::from_bits(job.words(pe, sum8, 1)[0]), threads as f64 / 2.0);
            // What all threads of all PEs got of this PE's counter.
            let each = threads / 4;
            let mut got: Vec<u64> =
                (0..4).flat_map(|of| job.words(of, tickets + 8 * pe * each, each)).collect();
            got.sort_unstable();
            assert!(got.into_iter().eq(0..threads as u64));
        }
    }
}

#[test]
fn bytes_of_all_sizes_at_all_scopes() {
    let mut random = Random::new("bytes_of_all_sizes_at_all_scopes");
    let sizes = [0u64, 1, 2, 7, 8, 9, 15, 16, 31, 32, 33, 63, 64, 65, 1000, 4097];
    let most = 4097;
    for (scope, grid, block) in [(THREAD, 3, 1), (WARP, 2, 32), (WARP, 1, 23), (BLOCK, 2, 70)] {
        let mut job = Job::new(3, 1, 4);
        let report = job.alloc(64);
        let list = job.alloc(8 * sizes.len());
        job.set_words(list, &sizes);
        let bytes = Bytes {
            areas: Offset(job.alloc(3 * grid * (most + 64))),
            local: Offset(job.alloc(grid * 2 * (most + 128))),
            signals: Offset(job.alloc(3 * grid * 8)),
            sizes: Offset(list),
            count: sizes.len(),
            most,
            scope,
            seed: random.next(),
        };
        let args = [Offset(report), Fields(&bytes.fields())];
        job.run(&mut random, "far_bytes", (grid as u32, block), &args);
    }
}

#[test]
fn memory_of_a_thread_and_of_a_block() {
    let mut random = Random::new("memory_of_a_thread_and_of_a_block");
    let mut job = Job::new(2, 1, 8);
    let (report, area, sig) = (job.alloc(64), job.alloc(2 * 20 * 256 * 8), job.alloc(2 * 20 * 8));
    let args = [Offset(report), Offset(area), Offset(sig), Value(random.next())];
    job.run(&mut random, "far_local_memory", (1, 20), &args);
}

#[test]
fn strided_puts_and_gets() {
    let mut random = Random::new("strided_puts_and_gets");
    let mut job = Job::new(4, 2, 8);
    let (report, areas, local) = (job.alloc(64), job.alloc(4 * 4096), job.alloc(4096));
    let args = [Offset(report), Offset(areas), Offset(local), Value(random.next())];
    job.run(&mut random, "far_strided", (1, 40), &args);
}

#[test]
fn every_atomic_and_its_answer() {
    let mut random = Random::new("every_atomic_and_its_answer");
    let mut job = Job::new(4, 2, 4);
    let (report, words) = (job.alloc(64), job.alloc(4 * 3 * 10 * 32));
    let args = [Offset(report), Offset(words), Value(random.next())];
    job.run(&mut random, "far_atomics", (3, 10), &args);
}

#[test]
fn data_is_there_before_what_announces_it() {
    let mut random = Random::new("data_is_there_before_what_announces_it");
    let rounds = 200;
    for way in 0..6 {
        for slots in [2, 16] {
            let mut job = Job::new(4, 1, slots);
            let report = job.alloc(64);
            let [data, source, flag] = [32 * rounds, 32 * rounds, 8].map(|bytes| Offset(job.alloc(bytes)));
            let order = Order { data, source, flag, way, rounds };
            let args = [Offset(report), Fields(&order.fields())];
            job.run(&mut random, "far_order", (2, 1), &args);
        }
    }
}

#[test]
fn barriers_of_near_and_far() {
    let mut random = Random::new("barriers_of_near_and_far");
    for (n, per_node, slots) in [(2, 1, 2), (4, 2, 4), (6, 3, 64)] {
        for (scope, block) in [(THREAD, 1), (THREAD, 5), (WARP, 32), (WARP, 40), (BLOCK, 3), (BLOCK, 64)] {
            let mut job = Job::new(n, per_node, slots);
            let (report, rows) = (job.alloc(64), job.alloc(8 * n));
            let args = [Offset(report), Offset(rows), Value(25), Value(scope)];
            job.run(&mut random, "far_barriers", (1, block), &args);
        }
    }
}

fn gave_up(end: std::result::Result<(), RunError>) -> u32 {
    match end {
        Err(RunError::Failed(failure)) => match failure.cause {
            Cause::Code(code) => code,
            Cause::Text(text) | Cause::Stuck(text) => panic!("{text}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_kernel_may_not_do_ends_it() {
    let mut job = Job::new(2, 1, 4);
    let at = Offset(job.alloc(8));
    for pe in [2, u64::MAX] {
        assert_eq!(
            gave_up(job.run_alone(0, "far_ask", (1, 1), &[at, Value(pe & 0xffff_ffff)])),
            RUSHMEM_DEVICE_FAIL_BAD_PE
        );
    }
    // An address that is none of this PE's symmetric memory: before the heap, and behind its stride.
    for address in [8, u64::MAX - 7] {
        assert_eq!(
            gave_up(job.run_alone(0, "far_ask", (1, 1), &[Value(address), Value(1)])),
            RUSHMEM_DEVICE_FAIL_BAD_ADDRESS
        );
    }
    job.pes[0].state.ring = std::ptr::null_mut();
    assert_eq!(gave_up(job.run_alone(0, "far_ask", (1, 1), &[at, Value(1)])), RUSHMEM_DEVICE_FAIL_UNMAPPED);
    assert_eq!(gave_up(job.run_alone(0, "far_ask", (1, 1), &[at, Value(7)])), RUSHMEM_DEVICE_FAIL_BAD_PE);
    assert_eq!(
        gave_up(job.run_alone(0, "far_barriers", (1, 1), &[at, at, Value(1), Value(THREAD)])),
        RUSHMEM_DEVICE_FAIL_UNMAPPED
    );
}

/// Threads that are abandoned, some waiting for an answer, the others for room, leave a ring that works.
#[test]
fn a_launch_that_failed_leaves_no_hole() {
    let mut random = Random::new("a_launch_that_failed_leaves_no_hole");
    let mut job = Job::new(2, 1, 4);
    let (at, words) = (Offset(job.alloc(8)), job.alloc(2 * 3 * 10 * 32));
    let report = job.alloc(64);
    job.pes[0].state.wait_limit_ns = 50_000_000;
    for round in 0..3 {
        let late = round == 1;
        assert_eq!(
            gave_up(job.run_alone(0, "far_ask", (3, 20), &[at, Value(1)])),
            RUSHMEM_DEVICE_FAIL_TIMEOUT
        );
        let ring = &mut job.rings[0];
        let mut taken = Vec::new();
        while ring.take(&mut taken, 3) > 0 {}
        assert!(taken.len() <= 4 && taken.iter().all(|d| d.op() == Some(Op::G)), "{taken:?}");
        // One answer comes while nobody has asked for it any more, perhaps after the slots were given back.
        if late {
            ring.reclaim();
        }
        for d in &taken {
            ring.reply(d.reply_to().unwrap(), 99);
        }
        ring.reclaim();
        job.pes[0].state.wait_limit_ns = LIMIT.as_nanos() as u64;
        let args = [Offset(report), Offset(words), Value(random.next())];
        job.run(&mut random, "far_atomics", (3, 10), &args);
        job.pes[0].state.wait_limit_ns = 50_000_000;
    }
    // A broken job ends the wait for an answer, and for room.
    job.broken().store(1, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(gave_up(job.run_alone(0, "far_ask", (3, 20), &[at, Value(1)])), RUSHMEM_DEVICE_FAIL_BROKEN);
}
