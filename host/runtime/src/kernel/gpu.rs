//! Kernels on a GPU: compiled by NVRTC or brought as machine code, launched cooperatively so that blocks may
//! wait for one another and for other PEs.
//!
//! A kernel that gives up (a PE died, a wait passed its limit) traps, because nothing milder is sure to end
//! the threads that count on it. A trap takes the process' whole context on that GPU with it; so the first
//! failure is kept, and every later call on this device says why it cannot be done.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use super::device_stream::DeviceStream;
use super::gpu_trace::{self, GpuTracing};
use super::launch_name::LaunchName;
use super::streams::Streams;
use super::unreported::Unreported;
use super::{compiling, gpu_compiler, lock, Common};
use crate::error::{code, err, Error, Result};
use crate::gpu::compile::Cubin;
use crate::gpu::event::CudaEvent;
use crate::gpu::launch::Shape;
use crate::gpu::module::{self, Kernel, Module};
use crate::gpu::sharing::{Flights, SharedContext};
use crate::gpu::stream::{hardware_queues, Priority, Stream};
use crate::gpu::watch::DriverCalls;
use crate::gpu::Cuda;
use rushmem_abi::c::{rushmem_arg_type_t, rushmem_launch_t, RUSHMEM_LAUNCH_EARLY, RUSHMEM_LAUNCH_IN_TURNS};

/// Kernels that are named when a launch fails and it is not known which it was.
const NAMED: usize = 3;
/// A kernel that still runs so long after the job has broken and after its time to trap, or after it has said
/// itself that it gives up, never ends.
const GRACE: Duration = Duration::from_secs(1);
/// Entries of work on streams that nobody ever synchronises here, kept for the same end.
const NOTED: usize = 64;

/// Runs a world's kernels.
pub(super) struct GpuRunner {
    cuda: Arc<Cuda>,
    common: Arc<Common>,
    streams: Streams<Stream>,
    /// For the device state of modules; a kernel that waits on the other stream must not hold it up.
    side: Stream,
    /// PEs whose kernels share the GPU's processors at the same time.
    sharing: u64,
    /// Where there are several.
    shared: Option<Arc<SharedContext>>,
    /// What was put on each stream since its last synchronisation and may take long, for texts.
    noted: Mutex<VecDeque<(usize, String)>>,
    /// Why the context is lost.
    lost: OnceLock<Error>,
    /// Kernels that have given up, and whether the driver has reported them.
    unreported: Unreported,
    /// Of a run that has a timeline.
    tracing: Option<Box<GpuTracing>>,
}

/// Loaded code.
pub(super) struct GpuCode {
    module: Arc<Module>,
    /// Its number in the timeline, where its calls are written.
    traced: Option<u16>,
    /// So that code in use is not unloaded.
    flights: Arc<Flights>,
}

/// A kernel of it.
#[derive(Clone)]
pub(super) struct GpuFunction {
    kernel: Kernel,
    traced: Option<u16>,
    flights: Arc<Flights>,
}

impl DeviceStream for Stream {
    fn raw(&self) -> usize {
        self.as_raw() as usize
    }

    fn is_spent(&self) -> bool {
        !matches!(is_idle(self), Ok(false))
    }
}

/// Whether the stream's work is done. Not asked of one that is being captured: that would end the capture.
fn is_idle(stream: &Stream) -> Result<bool> {
    Ok(!stream.is_capturing()? && stream.query()?)
}

impl GpuRunner {
    pub(super) fn new(cuda: &Arc<Cuda>, common: &Arc<Common>, sharing: usize) -> Result<GpuRunner> {
        Ok(GpuRunner {
            cuda: Arc::clone(cuda),
            common: Arc::clone(common),
            streams: Streams::new(Stream::new(cuda, Priority::Normal)?, common.config.streams),
            side: Stream::new(cuda, Priority::High)?,
            sharing: sharing.max(1) as u64,
            shared: (sharing > 1).then(|| SharedContext::new(cuda.facts().uuid)),
            noted: Mutex::default(),
            lost: OnceLock::new(),
            unreported: Unreported::new(GRACE),
            tracing: GpuTracing::new(cuda, common),
        })
    }

    pub(super) fn streams(&self) -> &Streams<Stream> {
        &self.streams
    }

    pub(super) fn new_stream(&self) -> Result<Stream> {
        self.check_alive()?;
        Stream::new(&self.cuda, Priority::Normal)
    }

    /// The stream that C calls `raw`: null is the default one.
    ///
    /// # Safety
    /// Another one is a stream of the GPU's primary context that outlives the value.
    pub(super) unsafe fn on(&self, raw: *mut c_void) -> Result<Stream> {
        self.check_alive()?;
        let raw = if raw.is_null() { self.streams.default().as_raw() } else { raw };
        // SAFETY: per contract; the default one and the GPU live as long as the world, which no call
        // outlives.
        Ok(unsafe { Stream::foreign(&self.cuda, raw) })
    }

    pub(super) fn load(&self, name: &str, source: &str, options: Vec<String>) -> Result<GpuCode> {
        self.load_cubin(name, &self.compile(name, source, options)?)
    }

    /// Machine code for the GPU, which every PE on it can load.
    pub(super) fn compile(&self, name: &str, source: &str, options: Vec<String>) -> Result<Cubin> {
        let options = gpu_trace::options(&self.common.config, options);
        let compiler = gpu_compiler(&self.common.config, self.cuda.facts().capability, options);
        let (called, source) = (name.to_owned(), source.to_owned());
        compiling::beside(&self.common.health, name, move || compiler.compile(&called, &source))?
    }

    pub(super) fn load_cubin(&self, name: &str, cubin: &Cubin) -> Result<GpuCode> {
        self.load_binary(name, &cubin.code, &cubin.instances)
    }

    /// Does something that loads code, where PEs share the GPU's context while no kernel of theirs runs.
    pub(super) fn while_idle<T>(&self, what: &str, load: impl FnOnce() -> T) -> T {
        match &self.shared {
            Some(shared) => shared.load(what, load),
            None => load(),
        }
    }

    pub(super) fn load_binary(
        &self,
        name: &str,
        code: &[u8],
        instances: &[(String, String)],
    ) -> Result<GpuCode> {
        self.check_alive()?;
        let _outside = self.common.health.outside(|| {
            format!(
                "for the driver to load {name} into {}, which kernels and streams that wait can hold up ({})",
                self.cuda,
                hardware_queues()
            )
        });
        let module = Module::load(&self.cuda, self.shared.as_ref(), name, code, instances)?;
        module.upload(self.common.state.raw(), &self.side)?;
        let traced = self.tracing.as_ref().map(|tracing| tracing.show(&module, &self.side));
        Ok(GpuCode { module, traced: traced.transpose()?.flatten(), flights: Arc::default() })
    }

    /// Tells a module that others have loaded who its PE is; whether it asks.
    ///
    /// # Safety
    /// As for [`module::tell`].
    pub(super) unsafe fn tell(&self, raw: *mut c_void) -> Result<bool> {
        self.check_alive()?;
        // SAFETY: per contract.
        unsafe { module::tell(&self.cuda, raw, self.common.state.raw(), &self.side) }
    }

    /// Calls of the driver for this PE.
    pub(super) fn calls(&self) -> &Arc<DriverCalls> {
        self.cuda.calls()
    }

    /// What a call of the driver that does not return waits for.
    pub(super) fn held_up(&self) -> String {
        format!(
            "for CUDA's driver to return from a call on {}: kernels that wait may hold it up, or streams that wait \
             ({}); {} may be what runs",
            self.cuda,
            hardware_queues(),
            self.suspects(None)
        )
    }

    pub(super) fn check_alive(&self) -> Result<()> {
        match self.lost.get() {
            None => Ok(()),
            Some(e) => Err(e.clone()),
        }
    }

    pub(super) fn max_blocks(
        &self,
        function: &GpuFunction,
        block: [u32; 3],
        shared: usize,
        cluster: Option<[u32; 3]>,
    ) -> Result<u64> {
        let most = function.kernel.max_blocks(block, shared, cluster)? / self.sharing;
        // Whole clusters only.
        let unit = cluster.map_or(1, |[x, y, z]| u64::from(x) * u64::from(y) * u64::from(z)).max(1);
        Ok(most / unit * unit)
    }

    /// # Safety
    /// Each of `values` points at a value of its parameter's type, and the kernel is sound with them; the
    /// stream is null or one of the GPU's primary context.
    pub(super) unsafe fn launch(
        &self,
        function: &GpuFunction,
        source: &str,
        config: &rushmem_launch_t,
        values: &[*const c_void],
    ) -> Result<()> {
        self.check_alive()?;
        let cluster =
            config.cluster.iter().any(|blocks| *blocks > 1).then(|| config.cluster.map(|b| b.max(1)));
        let shape = Shape {
            grid: config.grid,
            block: config.block,
            shared: usize::try_from(config.shared_bytes).unwrap_or(usize::MAX),
            cooperative: config.flags & RUSHMEM_LAUNCH_IN_TURNS == 0,
            cluster,
            early: config.flags & RUSHMEM_LAUNCH_EARLY != 0 && self.common.config.early,
        };
        if self.sharing > 1 && shape.cooperative {
            let most = self.max_blocks(function, shape.block, shape.shared, cluster)?;
            let blocks = shape.grid.iter().map(|n| u64::from(*n)).product::<u64>();
            if blocks > most {
                return Err(err!(
                    LAUNCH,
                    "kernel `{}`: {blocks} blocks, of which {most} can be resident at once, and all must be: {} PEs of this \
                     process share {}",
                    function.name(),
                    self.sharing,
                    self.cuda
                ));
            }
        }
        // SAFETY: the caller keeps the stream alive during the call.
        let stream = &unsafe { self.on(config.stream) }?;
        let head = || self.common.head(function.name(), source);
        self.trace_launch(function, &shape);
        // SAFETY: the caller vouches for the kernel, and for arguments of its parameters' types.
        let launch = || unsafe { function.kernel.launch(&shape, values, stream) };
        let refused = |e| if function.traced.is_some() { gpu_trace::refused(e, &shape) } else { e };
        self.put(stream, launch).map_err(|e| self.explain(refused(e), &head()))?;
        function.flights.record(stream)?;
        self.note(stream, format!("kernel `{}` ({source})", function.name()));
        Ok(())
    }

    /// Launches a kernel of the runtime's own, whose code stays loaded as long as the world lives.
    ///
    /// # Safety
    /// As for [`GpuRunner::launch`].
    pub(super) unsafe fn launch_own(
        &self,
        function: &GpuFunction,
        LaunchName { what, head }: LaunchName,
        shape: &Shape,
        values: &[*const c_void],
        raw: *mut c_void,
    ) -> Result<()> {
        // SAFETY: the caller keeps the stream alive during the call.
        let stream = unsafe { self.on(raw) }?;
        self.trace_launch(function, shape);
        // SAFETY: the caller vouches for the kernel, and for arguments of its parameters' types.
        let launch = || unsafe { function.kernel.launch(shape, values, &stream) };
        self.put(&stream, launch).map_err(|e| self.explain(e, &head))?;
        self.note(&stream, what);
        Ok(())
    }

    fn put(&self, stream: &Stream, launch: impl FnOnce() -> Result<()>) -> Result<()> {
        match &self.shared {
            Some(shared) => shared.launch(stream, launch),
            None => launch(),
        }
    }

    fn trace_launch(&self, function: &GpuFunction, shape: &Shape) {
        if let Some((tracing, module)) = self.tracing.as_ref().zip(function.traced) {
            tracing.launch(module, function.name(), shape);
        }
    }

    /// Keeps in mind what was put on a stream, for texts.
    pub(super) fn note(&self, stream: &Stream, what: String) {
        let mut noted = lock(&self.noted);
        let entry = (stream.raw(), what);
        let of_the_stream = noted.iter().filter(|(raw, _)| *raw == entry.0).count();
        if of_the_stream > NAMED || noted.contains(&entry) {
            return;
        }
        if noted.len() >= NOTED {
            noted.pop_front();
        }
        noted.push_back(entry);
    }

    /// Waits for the stream's work.
    pub(super) fn synchronize(&self, stream: &Stream) -> Result<()> {
        if stream.is_capturing().map_err(|e| self.explain(e, &self.head(None)))? {
            return Err(err!(
                UNSUPPORTED,
                "the stream is being captured into a graph: nothing on it runs that could end"
            ));
        }
        let raw = stream.raw();
        let result = self.finish(raw, &|| stream.query());
        if let (Ok(()), Some(tracing)) = (&result, &self.tracing) {
            tracing.compare_clocks();
        }
        lock(&self.noted).retain(|(noted, _)| *noted != raw);
        result
    }

    /// Waits for the work before `event`, which was recorded on that stream.
    pub(super) fn wait(&self, event: &CudaEvent, stream: usize) -> Result<()> {
        self.finish(stream, &|| event.query())
    }

    /// Whether the work before `event`, which was recorded on that stream, is done.
    pub(super) fn test(&self, event: &CudaEvent, stream: usize) -> Result<bool> {
        self.check_alive()?;
        match event.query() {
            Ok(false) if self.is_overdue() => Err(self.unheard(stream)),
            result => result.map_err(|e| self.explain(e, &self.head(Some(stream)))),
        }
    }

    fn finish(&self, stream: usize, query: &dyn Fn() -> Result<bool>) -> Result<()> {
        self.check_alive()?;
        let report = || format!("for {} to end", self.suspects(Some(stream)));
        let waited = self.unreported.wait(&self.common.health, &self.common.state, &report, query);
        waited.map_err(|e| {
            if e.code == code::PEER_DEAD {
                // Its kernels notice too, and say more; but not for ever.
                while query().is_ok_and(|done| !done) && !self.is_hopeless() && !self.is_overdue() {
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
            // Any stream's work may have lost the context; where it is whole, it was this one's.
            let failed = query().err();
            let head = self.head(Some(stream).filter(|_| failed.is_none()));
            self.explain(failed.unwrap_or(e), &head)
        })
    }

    fn head(&self, stream: Option<usize>) -> String {
        format!("{}: {}", self.common.health.who(), self.suspects(stream))
    }

    /// ``kernel `ring` (ring.cu)``, or several: on that stream, or on all.
    fn suspects(&self, stream: Option<usize>) -> String {
        let noted = lock(&self.noted);
        let mut names: Vec<&str> = Vec::new();
        for (raw, what) in noted.iter() {
            if stream.is_none_or(|stream| stream == *raw) && !names.contains(&what.as_str()) {
                names.push(what);
            }
        }
        match names.len() {
            0 => "the stream's work".into(),
            1 => names[0].into(),
            n if n > NAMED => format!("one of {}, …", names[..NAMED].join(", ")),
            _ => format!("one of {}", names.join(", ")),
        }
    }

    /// Whether a kernel has given up and the driver should have reported it by now.
    fn is_overdue(&self) -> bool {
        self.unreported.is_overdue(&self.common.state)
    }

    /// The error of a kernel that has given up, which the driver does not report to callers that ask for that
    /// stream.
    fn unheard(&self, stream: usize) -> Error {
        let head = self.head(Some(stream));
        self.explain(err!(LAUNCH, "{head}: has given up, and the driver does not report it"), &head)
    }

    /// What an error of the driver's means: a kernel that gave up has left its reason.
    pub(super) fn explain(&self, e: Error, head: &str) -> Error {
        if let Some(first) = self.lost.get() {
            return first.clone();
        }
        let unreported = self.is_overdue();
        if !unreported && !self.cuda.is_lost() {
            return e;
        }
        let error = match self.common.state.take_failure() {
            (0, _) => e.context(head),
            (code, place) => self.common.gave_up(head, code, &place, ""),
        };
        let error =
            Error::new(error.code, format!("{}; this process can use {} no more", error.message, self.cuda));
        let first = self.lost.get_or_init(|| error).clone();
        if let Some(tracing) = &self.tracing {
            tracing.finish();
        }
        if unreported {
            log::warn!(
                "{head}: has given up, which the driver did not report; what is on {} stays there",
                self.cuda
            );
            // Nobody else is to wait for what the driver still takes for running.
            self.cuda.condemn(first.clone());
        }
        first
    }

    pub(super) fn check_idle(&self) -> Result<()> {
        for stream in self.streams.all() {
            if let Ok(false) = is_idle(&stream) {
                if self.is_overdue() {
                    return Err(self.unheard(stream.raw()));
                }
                let suspects = self.suspects(Some(stream.raw()));
                return Err(err!(BUSY, "{suspects} is still in flight: synchronize first"));
            }
        }
        Ok(())
    }

    /// Whether what still runs is not going to end: the job broke, and its kernels have had their time.
    fn is_hopeless(&self) -> bool {
        let delay = Duration::from_nanos(self.common.state.raw().trap_delay_ns);
        self.common.health.broken_for().is_some_and(|time| time > delay + GRACE)
    }

    /// Waits for what runs, which ends by itself or because the job is broken; false where it does not.
    pub(super) fn close(&self) -> bool {
        for stream in self.streams.all() {
            while stream.query().is_ok_and(|done| !done) {
                if self.is_hopeless() || self.is_overdue() {
                    log::error!(
                        "{} does not end, though the job is broken: it spins without a rushmem wait, or has trapped and the \
                         driver does not report it",
                        self.suspects(Some(stream.raw()))
                    );
                    return false;
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        // The driver takes a kernel that it did not report for one that runs, and would wait for it to give
        // anything back.
        !self.cuda.is_condemned()
    }
}

impl GpuCode {
    pub(super) fn name(&self) -> &str {
        self.module.name()
    }

    pub(super) fn kernel_names(&self) -> impl Iterator<Item = &str> {
        self.module.kernel_names()
    }

    pub(super) fn function(&self, name: &str) -> Option<GpuFunction> {
        let (kernel, flights) = (self.module.kernel(name)?, Arc::clone(&self.flights));
        Some(GpuFunction { kernel, traced: self.traced, flights })
    }

    pub(super) fn in_flight(&self) -> usize {
        self.flights.count()
    }
}

impl GpuFunction {
    pub(super) fn name(&self) -> &str {
        self.kernel.name()
    }

    pub(super) fn params(&self) -> &[rushmem_arg_type_t] {
        self.kernel.params()
    }
}
