//! What the ring's kernel tests run on: PEs of one process on the CPU device, each with a heap, a ring and a
//! thread that stands in for the proxy ([`stand_in`](super::stand_in)).
//!
//! Heaps of one node lie side by side, as mapped ones do; those of different nodes lie anywhere, so that a
//! kernel that takes a far PE for a near one writes to where nobody looks, or faults.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::OnceLock;

use rushmem_device_cpu::{LaunchConfig, Module, RunError};

use super::stand_in::StandIn;
use crate::net::proxy::ring::{DeviceRing, Line};
use crate::testing::device::{compile, state};
use crate::testing::random::Random;
use rushmem_abi::device::{RawState, RUSHMEM_NOT_NEAR};

/// Bytes of a heap.
pub(super) const HEAP: usize = 4 << 20;

/// One PE.
pub(super) struct Pe {
    pub(super) heap: usize,
    pub(super) state: Box<RawState>,
    _counters: Vec<Line>,
    _near: Box<[u64]>,
}

// SAFETY: kernels only read the state, and nobody changes it while they run.
unsafe impl Sync for Pe {}

/// A job of PEs, of which so many share a node.
pub(super) struct Job {
    pub(super) pes: Vec<Pe>,
    /// One for each PE.
    pub(super) rings: Vec<DeviceRing>,
    module: Module,
    used: usize,
    _memory: Vec<Vec<u64>>,
    broken: Box<AtomicU32>,
}

impl Job {
    pub(super) fn new(n: usize, per_node: usize, slots: usize) -> Job {
        let line = Line { value: 0, pad: [0; 15] };
        let broken = Box::new(AtomicU32::new(0));
        let (mut memory, mut pes, mut rings) = (Vec::new(), Vec::new(), Vec::new());
        for first in (0..n).step_by(per_node) {
            let mut node = vec![0u64; per_node * HEAP / 8 + 16];
            let base = (node.as_mut_ptr() as usize).next_multiple_of(128);
            memory.push(node);
            for me in first..first + per_node {
                let heap = base + (me - first) * HEAP;
                let mut counters = vec![line; DeviceRing::MOST_DEVICE_BYTES.div_ceil(size_of::<Line>())];
                // SAFETY: the counters live as long, and kernels end before.
                let ring = unsafe { DeviceRing::new(None, counters.as_mut_ptr() as usize, slots) }.unwrap();
                // Heaps of a few MiB side by side.
                let apart = |pe: usize| (pe as u64).wrapping_sub(me as u64).wrapping_mul(HEAP as u64);
                let is_near = |pe: &usize| (first..first + per_node).contains(pe);
                let near: Box<[u64]> =
                    (0..n).map(|pe| if is_near(&pe) { apart(pe) } else { RUSHMEM_NOT_NEAR }).collect();
                let state = Box::new(RawState {
                    near_table: near.as_ptr(),
                    broken: broken.as_ptr(),
                    ring: ring.raw_address() as *mut c_void,
                    ..state(me, n, heap, HEAP)
                });
                pes.push(Pe { heap, state, _counters: counters, _near: near });
                rings.push(ring);
            }
        }
        Job { pes, rings, module: module(), used: (n + 1) * 128, _memory: memory, broken }
    }

    /// Memory at one offset of every heap, zero.
    pub(super) fn alloc(&mut self, bytes: usize) -> usize {
        let at = self.used;
        self.used += bytes.next_multiple_of(128) + 128;
        assert!(self.used <= HEAP);
        at
    }

    /// Words of a PE's heap.
    pub(super) fn words(&self, pe: usize, offset: usize, n: usize) -> Vec<u64> {
        let at = (self.pes[pe].heap + offset) as *const u64;
        // SAFETY: inside the heap; no kernel runs.
        (0..n).map(|i| unsafe { at.add(i).read() }).collect()
    }

    pub(super) fn set_words(&self, offset: usize, words: &[u64]) {
        for pe in &self.pes {
            for (i, word) in words.iter().enumerate() {
                // SAFETY: inside the heap; no kernel runs.
                unsafe { ((pe.heap + offset) as *mut u64).add(i).write(*word) };
            }
        }
    }

    /// Runs a kernel on one PE, with nobody to carry anything out.
    pub(super) fn run_alone(
        &self,
        pe: usize,
        kernel: &str,
        shape: (u32, u32),
        args: &[Arg<'_>],
    ) -> Result<(), RunError> {
        launch(&self.module, &self.pes[pe], kernel, shape, args)
    }

    /// Runs the kernel on all PEs with their stand-ins, and looks at the report at the start of `args`.
    pub(super) fn run(&mut self, random: &mut Random, kernel: &str, shape: (u32, u32), args: &[Arg<'_>]) {
        let heaps: Vec<usize> = self.pes.iter().map(|pe| pe.heap).collect();
        let done = AtomicBool::new(false);
        let Job { pes, rings, module, broken, .. } = self;
        let (pes, module, broken) = (&*pes, &*module, &**broken);
        std::thread::scope(|scope| {
            for (me, ring) in rings.iter_mut().enumerate() {
                let (heaps, done, seed) = (&heaps, &done, random.next());
                scope.spawn(move || {
                    let _end = Ends { broken, done };
                    StandIn::new(me, heaps, ring, Random::seeded(seed)).run(done);
                });
            }
            let launches = pes.iter().map(|pe| {
                let done = &done;
                scope.spawn(move || {
                    let _end = Ends { broken, done };
                    launch(module, pe, kernel, shape, args)
                })
            });
            let kernels: Vec<_> = launches.collect();
            let ends: Vec<_> = kernels.into_iter().map(|k| k.join().unwrap()).collect();
            done.store(true, Ordering::Release);
            for (pe, end) in ends.into_iter().enumerate() {
                end.unwrap_or_else(|e| panic!("{kernel} on PE {pe}: {e}"));
            }
        });
        if let Some(Arg::Offset(report)) = args.first() {
            for pe in 0..self.pes.len() {
                let report = self.words(pe, *report, 8);
                assert_eq!(
                    report[0], 0,
                    "{kernel} on PE {pe}: {} errors, the first in line {} (of check.h and far.cu): got {:#x}, wanted {:#x}, \
                     info {:#x}, thread {} of block {}",
                    report[0], report[1], report[2], report[3], report[4], report[5], report[6]
                );
            }
        }
    }

    pub(super) fn broken(&self) -> &AtomicU32 {
        &self.broken
    }
}

/// A thread of a run: if it panics, kernels and stand-ins end too, instead of waiting for it.
struct Ends<'j> {
    broken: &'j AtomicU32,
    done: &'j AtomicBool,
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.broken.store(1, Ordering::Relaxed);
            self.done.store(true, Ordering::Release);
        }
    }
}

/// The kernels, compiled once for this process.
fn module() -> Module {
    static ONCE: OnceLock<Module> = OnceLock::new();
    let source = concat!(
        include_str!("../../../../../tests/kernels/check.h"),
        include_str!("../../../../../tests/kernels/far.cu")
    );
    ONCE.get_or_init(|| compile("far.cu", source)).clone()
}

/// A launch on one PE, to its end.
fn launch(
    module: &Module,
    pe: &Pe,
    kernel: &str,
    shape: (u32, u32),
    args: &[Arg<'_>],
) -> Result<(), RunError> {
    let words: Vec<Vec<u64>> = args.iter().map(|arg| arg.words(pe.heap)).collect();
    let args: Vec<_> = words.iter().map(|words| words.as_ptr().cast::<c_void>()).collect();
    let config = LaunchConfig {
        grid: [shape.0, 1, 1],
        block: [shape.1, 1, 1],
        shared: 0,
        in_turns: false,
        early: false,
    };
    let kernel = module.kernel(kernel).unwrap();
    let state = std::ptr::from_ref(&*pe.state).cast();
    // SAFETY: words, and structs of words, as the parameters are; the wait limit ends what hangs.
    unsafe { kernel.run(&config, &args, state, &AtomicU32::new(0)) }
}

/// An argument of a kernel.
#[derive(Clone, Copy)]
pub(super) enum Arg<'a> {
    /// The address of something in the PE's own heap.
    Offset(usize),
    Value(u64),
    /// A struct of words.
    Fields(&'a [Arg<'a>]),
}

impl Arg<'_> {
    fn words(&self, heap: usize) -> Vec<u64> {
        match self {
            Arg::Offset(offset) => vec![(heap + offset) as u64],
            Arg::Value(value) => vec![*value],
            Arg::Fields(fields) => fields.iter().flat_map(|field| field.words(heap)).collect(),
        }
    }
}
