//! What a traced run (`RUSHMEM_TRACE`) has of a PE's GPU: the ring that its kernels write their calls to
//! (`abi_trace.h`), which module is which, and the kernel that reads the GPU's clock. All of it is made when
//! the world starts, before a kernel runs that could hold the driver up.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{gpu_compiler, lock, Common};
use crate::config::Config;
use crate::error::{code, err, Error, Result};
use crate::gpu::launch::Shape;
use crate::gpu::module::{Kernel, Module};
use crate::gpu::pinned::PinnedBox;
use crate::gpu::plain::Plain;
use crate::gpu::stream::{Priority, Stream};
use crate::gpu::Cuda;
use crate::trace::clock::now;
use crate::trace::gpu_clock::Reading;
use crate::trace::gpu_kernels::GpuTrace;
use crate::trace::{Timeline, TraceSource};
use rushmem_abi::device::{TraceRing, RUSHMEM_TRACE_SLOTS, RUSHMEM_TRACE_WORDS};

/// Makes kernels for GPUs write their calls (device/include/rushmem/impl/trace.h).
const HOOKS: &str = "-DRUSHMEM_GPU_TRACE";

/// Questions to the GPU's clock. The closest answers count.
const QUESTIONS: usize = 16;
/// Words before the first answer.
const BEFORE: usize = 8;
/// When the clock's kernel ends in any case.
const KERNEL_LIMIT: Duration = Duration::from_millis(10);
/// How long the host waits for its first answer as the world starts, and later, beside other kernels.
const FIRST_ANSWER: Duration = Duration::from_secs(1);
const LATER_ANSWER: Duration = Duration::from_millis(3);
/// The clocks are compared again so long after the last time.
const AGAIN: Duration = Duration::from_millis(500);

/// The options of a kernel that is compiled for GPUs, with the hooks where the run has a timeline.
pub(super) fn options(config: &Config, mut options: Vec<String>) -> Vec<String> {
    if config.trace.is_some() {
        options.push(HOOKS.into());
    }
    options
}

/// Says what may be behind a launch of that shape that is refused.
pub(super) fn refused(mut e: Error, shape: &Shape) -> Error {
    let threads = shape.block.iter().map(|n| u64::from(*n)).product::<u64>();
    if e.code == code::LAUNCH && threads > 512 {
        e.message += "; kernels take more registers in a run with RUSHMEM_TRACE: launch smaller blocks, or load this one \
                      with --maxrregcount=64";
    }
    e
}

/// Of one PE.
pub(super) struct GpuTracing {
    trace: Arc<GpuTrace>,
    /// Where the records are, and how many.
    ring: TraceRing,
    clock: Option<ClockKernel>,
    /// When that was last asked.
    asked: AtomicU64,
    /// Kernels count in it.
    _claimed: Plain,
}

/// The kernel that reads the GPU's clock.
struct ClockKernel {
    kernel: Kernel,
    stream: Stream,
    words: PinnedWords,
    /// For one thread at a time.
    turn: Mutex<()>,
}

/// Words that kernels write to while the host reads.
struct PinnedWords(PinnedBox<[u64]>);

impl PinnedWords {
    fn new(cuda: &Arc<Cuda>, len: usize) -> Result<PinnedWords> {
        Ok(PinnedWords(PinnedBox::filled(cuda, len, 0)?))
    }

    fn device_address(&self) -> u64 {
        self.0.device_address() as u64
    }
}

impl AsRef<[AtomicU64]> for PinnedWords {
    fn as_ref(&self) -> &[AtomicU64] {
        let words = self.0.as_ptr();
        // SAFETY: initialised words that live as long as `self`, of the size and alignment of atomics; no
        // reference to them as plain words is ever made.
        unsafe { std::slice::from_raw_parts(words.cast::<AtomicU64>(), words.len()) }
    }
}

impl GpuTracing {
    /// For a PE whose run keeps spans; where it cannot be had, its kernels are not in the picture.
    pub(super) fn new(cuda: &Arc<Cuda>, common: &Common) -> Option<Box<GpuTracing>> {
        let timeline = common.timeline().filter(|timeline| timeline.keeps_spans())?;
        let who = common.health.who();
        let made = GpuTracing::make(cuda, common, timeline);
        let tracing = made.map_err(|e| log::warn!("{who}: calls in kernels are not traced: {e}")).ok()?;
        // Without that kernel there is no NVRTC, and so no kernel with hooks.
        if tracing.clock.is_some() && !tracing.read_clock(FIRST_ANSWER) {
            log::warn!(
                "{who}: the clock of {cuda} cannot be compared with the host's: calls in kernels are in the timeline where \
                 the host read of them, milliseconds late"
            );
        }
        Some(Box::new(tracing))
    }

    fn make(cuda: &Arc<Cuda>, common: &Common, timeline: &Arc<Timeline>) -> Result<GpuTracing> {
        let slots = PinnedWords::new(cuda, RUSHMEM_TRACE_SLOTS * RUSHMEM_TRACE_WORDS)?;
        let claimed = Plain::holding(cuda, &[0; size_of::<u64>()])?;
        let ring = TraceRing {
            records: slots.device_address(),
            claimed: claimed.base() as u64,
            blocks: common.config.trace_blocks,
            module: 0,
        };
        let clock = ClockKernel::load(cuda, &common.config);
        let clock = clock.map_err(|e| log::info!("no kernel reads the clock of {cuda}: {e}")).ok();
        let (first, count) = (common.state.raw().near_first, common.state.raw().near_count);
        let trace = GpuTrace::new(timeline, first..first + count, Box::new(slots));
        Ok(GpuTracing { trace, ring, clock, asked: AtomicU64::new(now()), _claimed: claimed })
    }

    /// Shows a module that has the hooks the ring, before its first launch; its number.
    pub(super) fn show(&self, module: &Module, stream: &Stream) -> Result<Option<u16>> {
        if !module.has_trace() {
            return Ok(None);
        }
        let Some(number) = self.trace.module(module.name(), module.kernel_names()) else { return Ok(None) };
        module.upload_trace(&TraceRing { module: number.into(), ..self.ring }, stream)?;
        self.compare_clocks();
        Ok(Some(number))
    }

    /// A kernel of a module is about to be launched.
    pub(super) fn launch(&self, module: u16, kernel: &str, shape: &Shape) {
        self.trace.launch(module, kernel, shape.grid, shape.block);
    }

    /// Work has ended or is about to begin: a moment to compare the clocks again. Code may be loaded
    /// meanwhile: the kernel that does it waits for no other PE.
    pub(super) fn compare_clocks(&self) {
        let (now, asked) = (now(), self.asked.load(Ordering::Relaxed));
        let is_time = now.saturating_sub(asked) >= AGAIN.as_nanos() as u64;
        let mine = || self.asked.compare_exchange(asked, now, Ordering::Relaxed, Ordering::Relaxed);
        if is_time && mine().is_ok() {
            self.read_clock(LATER_ANSWER);
        }
    }

    /// Kernels have failed, and none of the PE's runs any more.
    pub(super) fn finish(&self) {
        self.trace.finish();
        self.trace.flush();
    }

    fn read_clock(&self, patience: Duration) -> bool {
        let readings = self.clock.as_ref().map(|clock| clock.read(patience)).unwrap_or_default();
        self.trace.meet(&readings);
        !readings.is_empty()
    }
}

impl ClockKernel {
    fn load(cuda: &Arc<Cuda>, config: &Config) -> Result<ClockKernel> {
        let compiler = gpu_compiler(config, cuda.facts().capability, Vec::new());
        let cubin = compiler.compile("trace_clock.cu", rushmem_device::TRACE_CLOCK)?;
        let module = Module::load(cuda, None, "trace_clock.cu", &cubin.code, &cubin.instances)?;
        let kernel = module.kernel("rushmem_trace_clock");
        let kernel = kernel.ok_or_else(|| err!(INTERNAL, "trace_clock.cu lacks rushmem_trace_clock"))?;
        let (stream, words) =
            (Stream::new(cuda, Priority::High)?, PinnedWords::new(cuda, BEFORE + QUESTIONS)?);
        Ok(ClockKernel { kernel, stream, words, turn: Mutex::default() })
    }

    /// What the clock showed; nothing where the kernel did not come to run within `patience`.
    fn read(&self, patience: Duration) -> Vec<Reading> {
        let _turn = lock(&self.turn);
        // One that came too late may run still.
        if !self.stream.query().is_ok_and(|done| done) {
            return Vec::new();
        }
        let words = self.words.as_ref();
        words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        let values = [self.words.device_address(), QUESTIONS as u64, KERNEL_LIMIT.as_nanos() as u64];
        let values = values.each_ref().map(|value| std::ptr::from_ref(value).cast::<c_void>());
        let one = [1; 3];
        let shape =
            Shape { grid: one, block: one, shared: 0, cooperative: false, cluster: None, early: false };
        // SAFETY: a pointer and two numbers, as the kernel takes. It ends by itself, and the words outlive
        // it: freeing pinned memory waits for the GPU.
        if let Err(e) = unsafe { self.kernel.launch(&shape, &values, &self.stream) } {
            log::debug!("the kernel that reads the GPU's clock was not launched: {e}");
            return Vec::new();
        }
        let mut readings = Vec::with_capacity(QUESTIONS);
        let mut limit = patience;
        for (i, answer) in words[BEFORE..].iter().enumerate() {
            let (asked, since) = (now(), Instant::now());
            words[0].store(i as u64 + 1, Ordering::Release);
            let gpu = loop {
                match answer.load(Ordering::Acquire) {
                    0 if since.elapsed() > limit => return readings,
                    0 => std::hint::spin_loop(),
                    gpu => break gpu,
                }
            };
            readings.push(Reading { asked, gpu, seen: now() });
            limit = KERNEL_LIMIT;
        }
        readings
    }
}
