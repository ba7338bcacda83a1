//! Kernels on the CPU device: compiled by the system's C++ compiler, run by their stream's worker thread one
//! after the other. Launches on different streams run at the same time, each within the CPU device's limits
//! for one launch.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use rushmem_device_cpu::{Cause, Compiler, Failure, LaunchConfig, Limits, Optimization, Reports, RunError};

use super::args;
use super::launch_name::LaunchName;
use super::options::for_the_cpu;
use super::stream::{CpuStream, StreamJob};
use super::streams::Streams;
use super::Common;
use super::{compiling, headers};
use crate::error::{err, Error, Result};
use crate::trace::event::About;
use crate::trace::kernels::LaunchTrace;
use rushmem_abi::c::{rushmem_arg_type_t, rushmem_launch_t, RUSHMEM_LAUNCH_EARLY, RUSHMEM_LAUNCH_IN_TURNS};
use rushmem_abi::device::RUSHMEM_DEVICE_FAIL_TIMEOUT;

/// Runs a world's kernels.
pub(super) struct CpuRunner {
    common: Arc<Common>,
    streams: Streams<CpuStream>,
    /// What is said of its launches.
    reports: Arc<Reports>,
}

/// What the next stream of the process is called, by C too. No address: there is nothing behind it to look
/// at. No number that a program comes by otherwise: such addresses do not exist.
static NEXT_NAME: AtomicUsize = AtomicUsize::new(0x7275_7368_0000_1000);

/// A loaded source.
pub(super) struct CpuCode {
    module: rushmem_device_cpu::Module,
    /// Launches that have not ended.
    in_flight: Arc<AtomicUsize>,
}

/// A kernel of one.
#[derive(Clone)]
pub(super) struct CpuFunction {
    kernel: rushmem_device_cpu::Kernel,
    in_flight: Arc<AtomicUsize>,
}

impl CpuRunner {
    pub(super) fn new(common: &Arc<Common>) -> CpuRunner {
        let streams = Streams::new(new_stream(common), common.config.streams);
        let reports = Reports {
            who: common.health.who().to_owned(),
            stall: common.config.stall_report,
            limit: common.config.wait_timeout,
            trace: None,
        };
        CpuRunner { common: Arc::clone(common), streams, reports: Arc::new(reports) }
    }

    pub(super) fn streams(&self) -> &Streams<CpuStream> {
        &self.streams
    }

    pub(super) fn new_stream(&self) -> CpuStream {
        new_stream(&self.common)
    }

    pub(super) fn load(&self, name: &str, source: &str, options: Vec<String>) -> Result<CpuCode> {
        let config = &self.common.config;
        let environment = |text| err!(ENVIRONMENT, "{text}");
        let optimization = Optimization::from_env().map_err(environment)?;
        let limits = Limits::from_env().map_err(environment)?;
        let compiler = Compiler {
            cxx: config.cxx.clone(),
            cache_dir: config.cache_dir.clone(),
            options: for_the_cpu(options),
            headers: headers::DEVICE_HEADERS,
            optimization,
            limits,
            check: config.check,
            trace: self.common.timeline().is_some(),
        };
        let (called, source) = (name.to_owned(), source.to_owned());
        let module =
            compiling::beside(&self.common.health, name, move || compiler.compile(&called, &source))?
                .map_err(|e| compile_error(name, e))?;
        Ok(CpuCode { module, in_flight: Arc::default() })
    }

    /// # Safety
    /// Each of `values` points at a value of its parameter's type, and the kernel is sound with them.
    pub(super) unsafe fn launch(
        &self,
        function: &CpuFunction,
        LaunchName { what, head }: LaunchName,
        config: &rushmem_launch_t,
        params: &[rushmem_arg_type_t],
        values: &[*const c_void],
    ) -> Result<()> {
        let stream = self.streams.find(config.stream as usize)?;
        if config.cluster.iter().any(|blocks| *blocks > 1) {
            return Err(err!(UNSUPPORTED, "{what}: the CPU device has no thread block clusters"));
        }
        let shared = usize::try_from(config.shared_bytes).unwrap_or(usize::MAX);
        let in_turns = config.flags & RUSHMEM_LAUNCH_IN_TURNS != 0;
        let early = config.flags & RUSHMEM_LAUNCH_EARLY != 0 && self.common.config.early;
        let shape = LaunchConfig { grid: config.grid, block: config.block, shared, in_turns, early };
        function.kernel.check(&shape).map_err(|e| explain(&self.common, &head, e))?;
        // SAFETY: as many values as parameters, and per contract.
        let copied = unsafe { args::Copied::of(function.kernel.name(), params, values) }?;
        function.in_flight.fetch_add(1, Ordering::AcqRel);
        let in_flight = LaunchInFlight(Arc::clone(&function.in_flight));
        let (common, kernel) = (Arc::clone(&self.common), function.kernel.clone());
        let reports = Arc::clone(&self.reports);
        let run = move || {
            let _in_flight = in_flight;
            let stop = common.health.broken_word();
            let _span = common.trace.as_ref().map(|trace| {
                let about = About { shape: Some((shape.grid, shape.block)), ..About::default() };
                trace.span("kernel", kernel.name().to_owned(), about)
            });
            let traced = common.timeline().map(|trace| {
                let raw = common.state.raw();
                let (heap, first) = (raw.heap_base, raw.near_first);
                let near = first..first + raw.near_count;
                let launch = LaunchTrace::new(trace, &kernel, heap..heap + raw.stride, near);
                Reports { trace: Some(Arc::new(launch)), ..(*reports).clone() }
            });
            let reports = traced.as_ref().unwrap_or(&reports);
            // SAFETY: copies of values of the parameters' types; what the kernel does with them is the
            // caller's word.
            let result = unsafe {
                kernel.run_reporting(&shape, &copied.pointers(), common.state.as_ptr(), stop, reports)
            };
            result.map_err(|e| {
                let error = explain(&common, &head, e);
                common.failed.store(true, Ordering::Release);
                error
            })
        };
        stream.push(StreamJob { what, run: Box::new(run) })
    }

    pub(super) fn synchronize(&self, stream: &CpuStream) -> Result<()> {
        stream.synchronize(self.common.health.who(), self.common.config.stall_report)
    }
}

fn new_stream(common: &Common) -> CpuStream {
    CpuStream::new(NEXT_NAME.fetch_add(16, Ordering::Relaxed), Arc::clone(&common.check))
}

impl CpuCode {
    pub(super) fn name(&self) -> &str {
        self.module.name()
    }

    pub(super) fn kernel_names(&self) -> impl Iterator<Item = &str> {
        self.module.kernel_names()
    }

    pub(super) fn template_names(&self) -> &[String] {
        self.module.template_names()
    }

    pub(super) fn function(&self, name: &str) -> Option<CpuFunction> {
        let kernel = self.module.kernel(name)?;
        Some(CpuFunction { kernel, in_flight: Arc::clone(&self.in_flight) })
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }
}

impl CpuFunction {
    pub(super) fn name(&self) -> &str {
        self.kernel.name()
    }

    pub(super) fn params(&self) -> Vec<rushmem_arg_type_t> {
        let convert = |param: &rushmem_device_cpu::Param| rushmem_arg_type_t {
            kind: param.kind,
            size: param.size,
            pointee_kind: param.pointee_kind,
            pointee_size: param.pointee_size,
        };
        self.kernel.params().iter().map(convert).collect()
    }

    pub(super) fn max_blocks(&self, block: [u32; 3], shared: usize) -> u64 {
        self.kernel.max_blocks(block, shared)
    }
}

/// Counts a launch as in flight as long as it lives.
struct LaunchInFlight(Arc<AtomicUsize>);

impl Drop for LaunchInFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Why what `head` names did not run to its end.
fn explain(common: &Common, head: &str, error: RunError) -> Error {
    match error {
        RunError::Refused(text) => err!(LAUNCH, "{head}: {text}"),
        RunError::Stopped => common.broken(head),
        RunError::Failed(Failure { cause, place, at, turns }) => {
            let place = place.map_or(String::new(), |([bx, by, bz], [tx, ty, tz])| {
                format!(" in block ({bx},{by},{bz}), thread ({tx},{ty},{tz})")
            });
            match cause {
                Cause::Code(code) => {
                    let mut error = common.gave_up(head, code, &place, &at);
                    if code == RUSHMEM_DEVICE_FAIL_TIMEOUT {
                        error.message += &turns;
                    }
                    error
                }
                Cause::Text(text) => err!(LAUNCH, "{head}: failed{place}{at}: {text}"),
                Cause::Stuck(text) => {
                    let what =
                        common.waited_for(&place).map_or(String::new(), |what| format!("; one waits {what}"));
                    err!(TIMEOUT, "{head}: failed{place}: {text}{what}")
                }
            }
        }
    }
}

fn compile_error(name: &str, error: rushmem_device_cpu::Error) -> Error {
    use rushmem_device_cpu::Error as E;
    match error {
        E::Compile { text } => err!(COMPILE, "{name} does not compile:\n{text}"),
        E::NoCompiler { text } => err!(UNSUPPORTED, "{text}"),
        E::Interrupted { text } => err!(IO, "{name}: {text}"),
        E::Io { text } => err!(IO, "{text}"),
        E::Environment { text } => err!(ENVIRONMENT, "{text}"),
    }
}
