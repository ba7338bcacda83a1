//! The mailbox without a GPU: the host's bookkeeping against a server that the test plays, and the device's
//! half on the CPU device, where it is the same code.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rushmem_device_cpu::{LaunchConfig, Module};

use super::*;
use crate::testing::atomics::updated;
use crate::testing::device::{compile, state, LIMIT};
use crate::testing::random::Random;
use rushmem_abi::device::RawState;

fn add(at: usize, value: u64) -> AtomicRequest {
    AtomicRequest { op: 5, kind: WordKind::Bits, bytes: 8, at, value, compare: 0 }
}

/// Far more requests than slots, served in pieces of any size: each is handed out once, in order, with its
/// own result.
#[test]
fn requests_are_told_once_and_in_order() {
    let mut random = Random::new("requests_are_told_once_and_in_order");
    let (queue, mut ledger) = (Queue::default(), Ledger::default());
    let (mut taken, mut done, total) = (0u64, 0u64, 20_000u64);
    while taken < total {
        match random.below(3) {
            0 => {
                for _ in 0..random.below(2 * SLOTS) {
                    if ledger.posted < total {
                        let number = ledger.posted;
                        assert_eq!(ledger.post(&queue, &add(8 * number as usize, !number)), number);
                    }
                }
            }
            1 => {
                assert!(ledger.written - done <= SLOTS as u64);
                for _ in 0..random.below((ledger.written - done) as usize + 1) {
                    let slot = &queue.requests[done as usize % SLOTS];
                    assert_eq!(slot.address.load(Ordering::Relaxed), 8 * done);
                    assert_eq!(slot.value.load(Ordering::Relaxed), !done);
                    assert_eq!(slot.what.load(Ordering::Relaxed), 5 | 8 << 16);
                    queue.results[done as usize % SLOTS].store(done * 3, Ordering::Relaxed);
                    done += 1;
                }
                queue.done.store(done, Ordering::Release);
            }
            _ => ledger.take(&queue, &mut |number, result| {
                assert_eq!((number, result), (taken, taken * 3));
                taken += 1;
            }),
        }
    }
    assert_eq!((ledger.taken, ledger.waiting.len()), (total, 0));
}

/// A mailbox in ordinary memory, for the CPU device, and the state of the one PE that has it.
struct Local {
    queue: Box<Queue>,
    words: Box<RawMailbox>,
    ledger: Ledger,
    state: Box<RawState>,
    module: Module,
}

const SOURCE: &str = r#"
#include <rushmem/rushmem.cuh>
extern "C" __global__ void waiting(uint64_t *sig, uint64_t until) {
  rushmem::signal_wait_until(sig, rushmem::cmp::ge, until);
}
extern "C" __global__ void counting(uint64_t *counter, uint32_t *small, uint64_t rounds, uint64_t *sig) {
  for (uint64_t i = 0; i < rounds; ++i) {
    rushmem::atomic_fetch_add(counter, 1, 0);
    rushmem::atomic_add(small, 3, 0);
  }
  rushmem::signal_wait_until(sig, rushmem::cmp::ge, 1);
}
"#;

impl Local {
    fn new() -> Local {
        let (queue, words) = (Box::new(Queue::default()), Box::new(RawMailbox::default()));
        words.queue.store(std::ptr::from_ref(&*queue) as u64, Ordering::Relaxed);
        let mailbox = std::ptr::from_ref(&*words).cast_mut().cast();
        let state = Box::new(RawState { mailbox, ..state(0, 1, 0, 0) });
        let module = compile("mailbox.cu", SOURCE);
        Local { queue, words, ledger: Ledger::default(), state, module }
    }

    /// Runs `host` beside the kernel; false where the kernel was stopped.
    fn beside<T>(
        &mut self,
        name: &str,
        grid: u32,
        block: u32,
        args: &[u64],
        host: impl FnOnce(&mut Local) -> T,
    ) -> T {
        let kernel = self.module.kernel(name).unwrap();
        let state = std::ptr::from_ref(&*self.state) as usize;
        let stop = AtomicU32::new(0);
        std::thread::scope(|s| {
            let kernel = s.spawn(|| {
                let args: Vec<_> = args.iter().map(|arg| std::ptr::from_ref(arg).cast::<c_void>()).collect();
                let shape = LaunchConfig {
                    grid: [grid, 1, 1],
                    block: [block, 1, 1],
                    shared: 0,
                    in_turns: false,
                    early: false,
                };
                // SAFETY: words and pointers, as the parameters are; the state outlives the scope.
                unsafe { kernel.run(&shape, &args, state as *const c_void, &stop) }
            });
            let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| host(self)));
            if answer.is_err() {
                stop.store(1, Ordering::Relaxed);
            }
            let ran = kernel.join().unwrap();
            let answer = answer.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            ran.unwrap();
            answer
        })
    }

    fn ring(&self) {
        self.words.bell.store(self.ledger.written, Ordering::Release);
    }

    /// Rings until all is done.
    fn drain(&mut self, results: &mut Vec<u64>) {
        let start = Instant::now();
        while self.ledger.taken < self.ledger.posted {
            self.ring();
            self.ledger.take(&self.queue, &mut |number, result| {
                assert_eq!(number, results.len() as u64);
                results.push(result);
            });
            assert!(start.elapsed() < LIMIT, "{} of {} taken", self.ledger.taken, self.ledger.posted);
            std::thread::yield_now();
        }
    }
}

#[test]
fn waiting_threads_carry_out_every_operation() {
    let mut random = Random::new("waiting_threads_carry_out_every_operation");
    let mut local = Local::new();
    let mut memory = [0u64; 16];
    let (at, sig) = (memory.as_mut_ptr() as usize, AtomicU64::new(0));
    let sig_at = sig.as_ptr() as usize;
    let mut model_memory = [0u64; 16];
    let mut expected = Vec::new();
    let mut results = Vec::new();
    local.beside("waiting", 2, 8, &[sig_at as u64, 1], |local| {
        for round in 0..600 {
            let (op, index, bytes) = (random.below(12) as i32, random.below(16), 4 + 4 * random.below(2));
            let mask = u64::MAX >> (64 - 8 * bytes);
            let (old, value) = (model_memory[index], random.next());
            let compare = if random.below(2) == 0 { old } else { random.next() };
            let kept = old & !mask;
            model_memory[index] = kept | updated(op, bytes, old & mask, value, compare);
            expected.push(old & mask);
            let request =
                AtomicRequest { op, kind: WordKind::Bits, bytes, at: at + 8 * index, value, compare };
            local.ledger.post(&local.queue, &request);
            if round % 7 == 0 {
                local.ring();
            }
        }
        // Floats, by numbers that add up exactly.
        let (d, f) = (f64::from_bits(1.5f64.to_bits()), 0.25f32);
        for (bytes, bits) in [(8, d.to_bits()), (4, u64::from(f.to_bits()))] {
            local
                .ledger
                .post(&local.queue, &AtomicRequest { op: 1, kind: WordKind::Bits, bytes, ..add(at, bits) });
            local
                .ledger
                .post(&local.queue, &AtomicRequest { op: 4, kind: WordKind::Float, bytes, ..add(at, bits) });
            local
                .ledger
                .post(&local.queue, &AtomicRequest { op: 0, kind: WordKind::Bits, bytes, ..add(at, 0) });
        }
        local.ledger.post(&local.queue, &add(sig_at, 1));
        local.drain(&mut results);
    });
    assert_eq!(results[..600], expected[..]);
    let double = (2.0 * 1.5f64).to_bits();
    assert_eq!((results[601], results[602]), (1.5f64.to_bits(), double));
    assert_eq!((results[604], results[605]), (u64::from(0.25f32.to_bits()), u64::from(0.5f32.to_bits())));
    assert_eq!(sig.load(Ordering::Relaxed), 1);
    model_memory[0] = double & !0xffff_ffff | u64::from(0.5f32.to_bits());
    // SAFETY: the array above, which threads wrote to that have ended.
    let memory = unsafe { std::ptr::read_volatile(&raw const memory) };
    assert_eq!(memory, model_memory);
}

/// Additions by requests race with the waiting threads' own.
#[test]
fn requests_are_atomic_with_the_devices_threads() {
    let mut local = Local::new();
    let (counter, small, sig) = (AtomicU64::new(0), AtomicU32::new(0), AtomicU64::new(0));
    let (blocks, threads, rounds, requests) = (2u32, 8u32, 2000u64, 3000u64);
    let args = [counter.as_ptr() as u64, small.as_ptr() as u64, rounds, sig.as_ptr() as u64];
    let mut results = Vec::new();
    local.beside("counting", blocks, threads, &args, |local| {
        for _ in 0..requests {
            local.ledger.post(&local.queue, &add(args[0] as usize, 1));
            local.ledger.post(&local.queue, &AtomicRequest { bytes: 4, ..add(args[1] as usize, 5) });
        }
        local.ledger.post(&local.queue, &add(args[3] as usize, 1));
        local.drain(&mut results);
    });
    let own = u64::from(blocks * threads) * rounds;
    assert_eq!(counter.load(Ordering::Relaxed), own + requests);
    assert_eq!(u64::from(small.load(Ordering::Relaxed)), 3 * own + 5 * requests);
    let seen: Vec<u64> = results.iter().step_by(2).take(requests as usize).copied().collect();
    assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "what requests saw grows");
}
