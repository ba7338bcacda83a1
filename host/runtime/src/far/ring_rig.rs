//! What the ring's kernel tests run on: PEs of one process on the CPU device, each with a heap, a ring and a thread that stands in
//! for the proxy. The stand-in reaches other PEs' heaps directly, but as badly as it may: what it has taken it carries
//! out late, in pieces and in any order that FENCE and QUIET leave.
//!
//! Heaps of one node lie side by side, as mapped ones do; those of different nodes lie anywhere, so that a kernel that
//! takes a far PE for a near one writes to where nobody looks, or faults.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rushmem_device_cpu::{Compiler, LaunchConfig, Limits, Module, RunError};

use crate::capi::types::*;
use crate::device_state::{RawState, VERSION};
use crate::far::ring::{Descriptor, DeviceRing, Line, Op, FLOAT};
use crate::kernel::headers::DEVICE_HEADERS;

/// The longest that one launch may take on a loaded machine.
pub(super) const LIMIT: Duration = Duration::from_secs(60);
const HEAP: usize = 4 << 20;

/// splitmix64, seeded, printed.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(test: &str) -> Random {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).unwrap();
        let seed = u64::from_le_bytes(seed);
        eprintln!("{test}: seed {seed:#x}");
        Random(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// One PE.
pub(super) struct Pe {
    pub(super) heap: usize,
    pub(super) state: Box<RawState>,
    _counters: Vec<Line>,
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
                let state = Box::new(RawState {
                    version: VERSION,
                    bytes: size_of::<RawState>() as u32,
                    my_pe: me as i32,
                    n_pes: n as i32,
                    near_first: first as i32,
                    near_count: per_node as i32,
                    heap_base: heap as u64,
                    stride: HEAP as u64,
                    broken: broken.as_ptr(),
                    sync_lines: heap as *mut _,
                    sync_epoch: (heap + n * 128) as *mut u64,
                    stall_ns: 0,
                    wait_limit_ns: LIMIT.as_nanos() as u64,
                    stalls: std::ptr::null_mut(),
                    failure: std::ptr::null_mut(),
                    trap_delay_ns: 0,
                    ring: ring.raw_address() as *mut c_void,
                    mailbox: std::ptr::null_mut(),
                    reserved: [0; 1],
                });
                pes.push(Pe { heap, state, _counters: counters });
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
                // SAFETY: as above.
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
        args: &[Arg],
    ) -> Result<(), RunError> {
        launch(&self.module, &self.pes[pe], kernel, shape, args)
    }

    /// Runs the kernel on all PEs with their stand-ins, and looks at the report at the start of `args`.
    pub(super) fn run(&mut self, random: &mut Random, kernel: &str, shape: (u32, u32), args: &[Arg]) {
        let heaps: Vec<usize> = self.pes.iter().map(|pe| pe.heap).collect();
        let done = AtomicBool::new(false);
        let Job { pes, rings, module, .. } = self;
        let (pes, module) = (&*pes, &*module);
        std::thread::scope(|scope| {
            for (me, ring) in rings.iter_mut().enumerate() {
                let (heaps, done, seed) = (&heaps, &done, random.next());
                scope.spawn(move || {
                    StandIn { me, heaps, ring, open: Vec::new(), epoch: 0, random: Random(seed) }.run(done);
                });
            }
            let kernels: Vec<_> =
                pes.iter().map(|pe| scope.spawn(move || launch(module, pe, kernel, shape, args))).collect();
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

/// The kernels, compiled once for this process.
fn module() -> Module {
    static ONCE: OnceLock<Module> = OnceLock::new();
    let compile = || {
        let dir = tempfile::tempdir().unwrap();
        let compiler = Compiler {
            cxx: std::env::var_os("RUSHMEM_CXX").filter(|cxx| !cxx.is_empty()).map(Into::into),
            cache_dir: dir.path().to_owned(),
            options: Vec::new(),
            headers: DEVICE_HEADERS,
            limits: Limits::default(),
        };
        let source = concat!(
            include_str!("../../../../tests/kernels/check.h"),
            include_str!("../../../../tests/kernels/far.cu")
        );
        compiler.compile("far.cu", source).unwrap()
    };
    ONCE.get_or_init(compile).clone()
}

/// A launch on one PE, to its end.
fn launch(module: &Module, pe: &Pe, kernel: &str, shape: (u32, u32), args: &[Arg]) -> Result<(), RunError> {
    let words: Vec<u64> = args
        .iter()
        .map(|arg| match *arg {
            Arg::Offset(offset) => (pe.heap + offset) as u64,
            Arg::Value(value) => value,
        })
        .collect();
    let args: Vec<_> = words.iter().map(|word| std::ptr::from_ref(word).cast::<c_void>()).collect();
    let config = LaunchConfig { grid: [shape.0, 1, 1], block: [shape.1, 1, 1], shared: 0 };
    let kernel = module.kernel(kernel).unwrap();
    let state = std::ptr::from_ref(&*pe.state).cast();
    // SAFETY: pointers and numbers of at most 8 bytes, as the parameters are; the wait limit ends what hangs.
    unsafe { kernel.run(&config, &args, state, &AtomicU32::new(0)) }
}

/// An argument of a kernel.
#[derive(Clone, Copy)]
pub(super) enum Arg {
    /// The address of something in the PE's own heap.
    Offset(usize),
    Value(u64),
}

/// An operation that was taken and is not complete.
struct Open {
    d: Descriptor,
    /// Only those of the lowest epoch go on.
    epoch: u64,
    /// Data on its way.
    data: Option<Vec<u8>>,
}

/// What carries out a PE's descriptors.
pub(super) struct StandIn<'j> {
    me: usize,
    heaps: &'j [usize],
    ring: &'j mut DeviceRing,
    open: Vec<Open>,
    epoch: u64,
    random: Random,
}

impl StandIn<'_> {
    fn run(mut self, done: &AtomicBool) {
        let start = Instant::now();
        loop {
            let over = done.load(Ordering::Acquire);
            let taken = self.take();
            for _ in 0..self.random.below(6) {
                self.step();
            }
            if self.open.is_empty() && taken == 0 {
                if over {
                    return;
                }
                std::thread::yield_now();
            }
            assert!(start.elapsed() < 4 * LIMIT, "operations that never end");
        }
    }

    fn take(&mut self) -> usize {
        let mut taken = Vec::new();
        let most = self.random.below(7);
        let n = self.ring.take(&mut taken, most);
        assert!(n == taken.len() && n <= most);
        for d in taken {
            let op = d.op().expect("an operation");
            if op == Op::Fence {
                self.epoch += 1;
                continue;
            }
            // A quiet waits for all before it, and what comes after it for the quiet.
            self.epoch += u64::from(op == Op::Quiet);
            self.open.push(Open { d, epoch: self.epoch, data: None });
            self.epoch += u64::from(op == Op::Quiet);
        }
        n
    }

    /// Where PE `pe` has what this PE names by its own address.
    fn there(&self, address: u64, pe: i32) -> usize {
        let offset = (address as usize).wrapping_sub(self.heaps[self.me]);
        assert!(offset < HEAP, "{address:#x} is not symmetric");
        self.heaps[pe as usize] + offset
    }

    /// One piece of work on one of the operations whose turn it is.
    fn step(&mut self) {
        let Some(epoch) = self.open.iter().map(|open| open.epoch).min() else { return };
        let ready: Vec<usize> = (0..self.open.len()).filter(|i| self.open[*i].epoch == epoch).collect();
        let at = ready[self.random.below(ready.len())];
        let Open { d, data, .. } = &mut self.open[at];
        let (d, data) = (*d, data.take());
        match self.advance(&d, data) {
            Some(data) => self.open[at].data = Some(data),
            None => {
                self.open.swap_remove(at);
            }
        }
    }

    fn answer(&self, d: &Descriptor, value: u64) {
        if let Some(to) = d.reply_to() {
            self.ring.reply(to, value);
        }
    }

    /// The next step of an operation; the data that it has in hand then, or none when it is complete.
    fn advance(&self, d: &Descriptor, data: Option<Vec<u8>>) -> Option<Vec<u8>> {
        let (n, element) = (d.bytes as usize, d.element as usize);
        match (d.op().unwrap(), data) {
            (Op::Put | Op::PutSignal, None) => {
                let data = read(d.src as usize, n);
                self.answer(d, 0);
                return Some(data);
            }
            (Op::Put, Some(data)) => write(self.there(d.dst, d.pe), &data),
            (Op::PutSignal, Some(data)) => {
                write(self.there(d.dst, d.pe), &data);
                self.signal(d)
            }
            (Op::PutInline, _) => {
                assert!((1..=32).contains(&d.width));
                write(self.there(d.dst, d.pe), &d.inline()[..usize::from(d.width)])
            }
            (Op::PutSignalInline, _) => {
                assert!((1..=8).contains(&d.width));
                write(self.there(d.dst, d.pe), &d.inline()[..usize::from(d.width)]);
                self.signal(d)
            }
            (Op::Signal, _) => self.signal(d),
            (Op::Get, None) => return Some(read(self.there(d.src, d.pe), n)),
            (Op::Get, Some(data)) => {
                write(d.dst as usize, &data);
                self.answer(d, 0)
            }
            (Op::G, _) => {
                assert!((1..=8).contains(&d.width) && d.reply_to().is_some());
                self.answer(d, load(self.there(d.src, d.pe), d.width))
            }
            (Op::Iput, None) => {
                let data = gather(d.src as usize, d.value, n, element);
                self.answer(d, 0);
                return Some(data);
            }
            (Op::Iput, Some(data)) => scatter(self.there(d.dst, d.pe), d.sig, element, &data),
            (Op::Iget, None) => return Some(gather(self.there(d.src, d.pe), d.value, n, element)),
            (Op::Iget, Some(data)) => {
                scatter(d.dst as usize, d.sig, element, &data);
                self.answer(d, 0)
            }
            (Op::Atomic, _) => {
                let before = update(self.there(d.dst, d.pe), d);
                assert_eq!(d.reply_to().is_some(), matches!(i32::from(d.sub), 0 | 2 | 3 | 5 | 7 | 9 | 11));
                self.answer(d, before)
            }
            (Op::Quiet, _) => self.answer(d, 0),
            (Op::Fence, _) => unreachable!("a fence is no operation"),
        }
        None
    }

    fn signal(&self, d: &Descriptor) {
        let at = word(self.there(d.sig, d.pe));
        match i32::from(d.sub) {
            RUSHMEM_SIGNAL_ADD => drop(at.fetch_add(d.value, Ordering::Release)),
            _ => at.store(d.value, Ordering::Release),
        }
    }
}

fn word<'a>(at: usize) -> &'a AtomicU64 {
    // SAFETY: an aligned word of a heap, which kernels access as one.
    unsafe { AtomicU64::from_ptr(at as *mut u64) }
}

fn half<'a>(at: usize) -> &'a AtomicU32 {
    // SAFETY: as above.
    unsafe { AtomicU32::from_ptr(at as *mut u32) }
}

fn read(at: usize, n: usize) -> Vec<u8> {
    // SAFETY: kernels pass memory of theirs.
    (0..n).map(|i| unsafe { (at as *const u8).add(i).read_volatile() }).collect()
}

/// Aligned words in one piece each, as wait loops look at them.
fn write(at: usize, data: &[u8]) {
    let mut done = 0;
    while done < data.len() {
        let (to, left) = (at + done, &data[done..]);
        if to % 8 == 0 && left.len() >= 8 {
            word(to).store(u64::from_le_bytes(left[..8].try_into().unwrap()), Ordering::Release);
            done += 8;
        } else if to % 4 == 0 && left.len() >= 4 {
            half(to).store(u32::from_le_bytes(left[..4].try_into().unwrap()), Ordering::Release);
            done += 4;
        } else {
            // SAFETY: kernels pass memory of theirs, or symmetric addresses.
            unsafe { (to as *mut u8).write_volatile(left[0]) };
            done += 1;
        }
    }
}

fn load(at: usize, width: u8) -> u64 {
    match width {
        8 if at % 8 == 0 => word(at).load(Ordering::Acquire),
        4 if at % 4 == 0 => half(at).load(Ordering::Acquire).into(),
        _ => read(at, width.into()).iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte)),
    }
}

fn gather(at: usize, stride: u64, n: usize, element: usize) -> Vec<u8> {
    (0..n).flat_map(|i| read(at + i * stride as usize * element, element)).collect()
}

fn scatter(at: usize, stride: u64, element: usize, data: &[u8]) {
    for (i, piece) in data.chunks(element).enumerate() {
        write(at + i * stride as usize * element, piece);
    }
}

/// An atomic update of a 4- or 8-byte word; the old value.
fn update(at: usize, d: &Descriptor) -> u64 {
    let new = |old: u64| -> u64 {
        match i32::from(d.sub) {
            RUSHMEM_ATOMIC_FETCH => old,
            RUSHMEM_ATOMIC_SET | RUSHMEM_ATOMIC_SWAP => d.value,
            RUSHMEM_ATOMIC_COMPARE_SWAP if old == d.sig => d.value,
            RUSHMEM_ATOMIC_COMPARE_SWAP => old,
            RUSHMEM_ATOMIC_ADD | RUSHMEM_ATOMIC_FETCH_ADD if d.flags & FLOAT == 0 => {
                old.wrapping_add(d.value)
            }
            RUSHMEM_ATOMIC_ADD | RUSHMEM_ATOMIC_FETCH_ADD if d.width == 4 => {
                u64::from((f32::from_bits(old as u32) + f32::from_bits(d.value as u32)).to_bits())
            }
            RUSHMEM_ATOMIC_ADD | RUSHMEM_ATOMIC_FETCH_ADD => {
                (f64::from_bits(old) + f64::from_bits(d.value)).to_bits()
            }
            RUSHMEM_ATOMIC_AND | RUSHMEM_ATOMIC_FETCH_AND => old & d.value,
            RUSHMEM_ATOMIC_OR | RUSHMEM_ATOMIC_FETCH_OR => old | d.value,
            RUSHMEM_ATOMIC_XOR | RUSHMEM_ATOMIC_FETCH_XOR => old ^ d.value,
            other => panic!("atomic {other}"),
        }
    };
    let order = (Ordering::AcqRel, Ordering::Acquire);
    if d.width == 8 {
        word(at).fetch_update(order.0, order.1, |old| Some(new(old))).unwrap()
    } else {
        assert!(d.width == 4 && (d.value | d.sig) >> 32 == 0);
        half(at).fetch_update(order.0, order.1, |old| Some(new(old.into()) as u32)).unwrap().into()
    }
}
