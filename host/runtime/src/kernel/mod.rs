//! Kernels of a world: sources are compiled and loaded for the PE's device, launches are checked and put on a
//! stream, failures name the kernel and the PE. What is the same on both kinds of device is here; [`cpu`] and
//! [`gpu`] are the rest.

pub(crate) mod args;
pub(crate) mod collectives;
mod cpu;
pub(crate) mod event;
mod failure;
mod gpu;
pub(crate) mod handle;
pub(crate) mod headers;
pub(crate) mod service;
pub(crate) mod stream;
pub(crate) mod streams;
mod unreported;

use std::ffi::{c_void, CString};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::Config;
use crate::device::Device;
use crate::device_state::DeviceState;
use crate::error::{err, Error, Result};
use crate::health::Health;
use collectives::CollectiveKernels;
use event::StreamEvent;
use handle::{Handle, Handled};
use rushmem_abi::c::{rushmem_arg_type_t, rushmem_launch_t};

/// The kernels of one world.
pub(crate) struct Kernels {
    core: Arc<KernelCore>,
}

/// What the world, its modules and its running kernels share.
struct KernelCore {
    runner: Runner,
    common: Arc<Common>,
    announce: Box<dyn Fn() + Send + Sync>,
    modules: Mutex<Vec<&'static Handle<LoadedModule>>>,
    collectives: CollectiveKernels,
    events: Mutex<Vec<&'static Handle<StreamEvent>>>,
}

/// What both kinds of device need.
struct Common {
    state: DeviceState,
    health: Arc<Health>,
    config: Config,
    /// Kernels launched since all work was last waited for, for texts about what one of them has done: the
    /// first few.
    launched: Mutex<Vec<String>>,
    /// What kernels have reported of their waits.
    printed: failure::Printed,
    /// Whether a launch has failed: what it was in the middle of stays as it was.
    failed: AtomicBool,
}

/// Who runs kernels.
enum Runner {
    Cpu(cpu::CpuRunner),
    Gpu(gpu::GpuRunner),
}

/// A module's code.
enum Code {
    Cpu(cpu::CpuCode),
    Gpu(gpu::GpuCode),
}

/// A kernel's code.
#[derive(Clone)]
enum Function {
    Cpu(cpu::CpuFunction),
    Gpu(gpu::GpuFunction),
}

/// What a PE has of its GPU, and what every PE has at least.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GpuShare {
    /// PEs that run their kernels on this PE's GPU at the same time, this one included.
    pub(crate) pes: usize,
    /// Multiprocessors for each PE, on the GPU that has the fewest; 0 where a PE has no GPU.
    pub(crate) least: u64,
}

impl GpuShare {
    /// From the places of all PEs: a GPU by two words, a process, and the GPU's multiprocessors.
    pub(crate) fn of(places: &[[u64; 4]], mine: &[u64; 4]) -> GpuShare {
        let pes = |place: &[u64; 4]| places.iter().filter(|other| *other == place).count().max(1);
        let least = places.iter().map(|place| place[3] / pes(place) as u64).min();
        GpuShare { pes: pes(mine), least: least.unwrap_or(0) }
    }
}

/// What a launch is called.
struct LaunchName {
    /// In the middle of a text: ``kernel `ring` ``.
    what: String,
    /// Where a text begins: the PE, and what it is of.
    head: String,
}

/// A loaded source or binary.
pub(crate) struct LoadedModule {
    core: Arc<KernelCore>,
    code: Code,
    names: Vec<CString>,
    kernels: Mutex<Vec<&'static Handle<LoadedKernel>>>,
}

/// A kernel of a module.
pub(crate) struct LoadedKernel {
    core: Arc<KernelCore>,
    function: Function,
    source: String,
    params: Vec<rushmem_arg_type_t>,
}

impl Handled for LoadedModule {
    const MAGIC: u64 = u64::from_le_bytes(*b"rushmemM");
    const WHAT: &'static str = "module";
}

impl Handled for LoadedKernel {
    const MAGIC: u64 = u64::from_le_bytes(*b"rushmemK");
    const WHAT: &'static str = "kernel";
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is guarded is whole between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kernels {
    /// For a world whose `state` stays true as long as this lives. Code that is loaded is `announce`d before
    /// any of it runs.
    pub(crate) fn new(
        state: DeviceState,
        health: Arc<Health>,
        config: Config,
        device: &Device,
        sharing: GpuShare,
        announce: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Self> {
        let common = Arc::new(Common {
            state,
            health,
            config,
            launched: Mutex::default(),
            printed: failure::Printed::default(),
            failed: AtomicBool::new(false),
        });
        let runner = match device {
            Device::Cpu => Runner::Cpu(cpu::CpuRunner::new(&common)),
            Device::Gpu(cuda) => Runner::Gpu(gpu::GpuRunner::new(cuda, &common, sharing.pes)?),
        };
        let core = KernelCore {
            runner,
            common,
            announce,
            modules: Mutex::default(),
            collectives: CollectiveKernels::new(device.gpu().map(|cuda| cuda.facts().uuid), sharing.least),
            events: Mutex::default(),
        };
        let core = Arc::new(core);
        core.share();
        Ok(Kernels { core })
    }

    /// What the world's monitor does now and then: print the stalls that kernels have reported.
    pub(crate) fn monitor(&self) -> Box<dyn FnMut() + Send> {
        let common = Arc::downgrade(&self.core.common);
        Box::new(move || {
            if let Some(common) = common.upgrade() {
                common.print_stalls();
            }
        })
    }

    /// Compiles and loads a source.
    pub(crate) fn load(
        &self,
        name: &str,
        source: &str,
        options: Vec<String>,
    ) -> Result<&'static Handle<LoadedModule>> {
        let core = &self.core;
        core.common.health.check()?;
        self.keep(match &core.runner {
            Runner::Cpu(runner) => Code::Cpu(runner.load(name, source, options)?),
            Runner::Gpu(runner) => Code::Gpu(runner.load(name, source, options)?),
        })
    }

    /// Loads a cubin, a fatbin or PTX: what another compiler made.
    pub(crate) fn load_binary(&self, name: &str, code: &[u8]) -> Result<&'static Handle<LoadedModule>> {
        let core = &self.core;
        core.common.health.check()?;
        self.keep(match &core.runner {
            Runner::Cpu(_) => {
                return Err(err!(
                    UNSUPPORTED,
                    "{name}: this PE's device is the CPU, which runs CUDA C++ sources, not binaries for a GPU"
                ))
            }
            Runner::Gpu(runner) => Code::Gpu(runner.load_binary(name, code, &[])?),
        })
    }

    fn keep(&self, code: Code) -> Result<&'static Handle<LoadedModule>> {
        (self.core.announce)();
        let names = code.kernel_names().map(|name| CString::new(name).unwrap_or_default()).collect();
        let loaded = LoadedModule { core: Arc::clone(&self.core), code, names, kernels: Mutex::default() };
        let handle = Handle::hold(Arc::new(loaded))?;
        lock(&self.core.modules).push(handle);
        Ok(handle)
    }

    /// The device state that the world's kernels read.
    pub(crate) fn state(&self) -> &DeviceState {
        &self.core.common.state
    }

    /// Waits for all work on the world's streams; the first failure since the last call.
    pub(crate) fn synchronize(&self) -> Result<()> {
        let wait_for_all = |results: &mut dyn Iterator<Item = Result<()>>| results.fold(Ok(()), Result::and);
        let result = match &self.core.runner {
            Runner::Cpu(runner) => {
                wait_for_all(&mut runner.streams().all().iter().map(|stream| runner.synchronize(stream)))
            }
            Runner::Gpu(runner) => {
                wait_for_all(&mut runner.streams().all().iter().map(|stream| runner.synchronize(stream)))
            }
        };
        self.core.common.print_stalls();
        result
    }

    /// All work has been waited for.
    pub(crate) fn forget_launched(&self) {
        lock(&self.core.common.launched).clear();
    }

    /// The kernels launched since then, as the beginning of a text about what one of them has done.
    pub(crate) fn launched(&self) -> String {
        let names: Vec<String> =
            lock(&self.core.common.launched).iter().map(|name| format!("kernel `{name})")).collect();
        let who = self.core.common.health.who();
        match names.as_slice() {
            [] => format!("{who}: a kernel"),
            [one] => format!("{who}: {one}"),
            several => format!("{who}: one of {}", several.join(", ")),
        }
    }

    /// Does something while no kernel runs on the CPU device, and none begins; false where one does.
    pub(crate) fn while_idle(&self, then: impl FnOnce()) -> bool {
        match &self.core.runner {
            Runner::Cpu(runner) => runner.streams().while_idle(then),
            Runner::Gpu(_) => false,
        }
    }

    /// `BUSY` while something on the world's streams has not ended.
    pub(crate) fn check_idle(&self) -> Result<()> {
        match &self.core.runner {
            Runner::Cpu(runner) => runner.streams().all().iter().try_for_each(|stream| stream.check_idle()),
            Runner::Gpu(runner) => runner.check_idle(),
        }
    }
}

impl Kernels {
    /// Returns when no kernel of the world runs any more: each polls the world's broken word, which the end
    /// of a world with kernels in flight has set. False where one on a GPU does not end: what it may touch
    /// must stay.
    pub(crate) fn close(&self) -> bool {
        match &self.core.runner {
            Runner::Cpu(runner) => {
                runner.streams().all().iter().for_each(|stream| stream.close());
                true
            }
            Runner::Gpu(runner) => runner.close(),
        }
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        self.close();
        self.core.common.print_stalls();
        for module in std::mem::take(&mut *lock(&self.core.modules)) {
            module.end();
        }
        for event in std::mem::take(&mut *lock(&self.core.events)) {
            event.empty();
        }
    }
}

impl Code {
    fn name(&self) -> &str {
        match self {
            Code::Cpu(code) => code.name(),
            Code::Gpu(code) => code.name(),
        }
    }

    fn kernel_names(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        match self {
            Code::Cpu(code) => Box::new(code.kernel_names()),
            Code::Gpu(code) => Box::new(code.kernel_names()),
        }
    }

    fn template_names(&self) -> &[String] {
        match self {
            Code::Cpu(code) => code.template_names(),
            // NVRTC keeps nothing of a template that nobody asked for.
            Code::Gpu(_) => &[],
        }
    }

    fn function(&self, name: &str) -> Option<Function> {
        match self {
            Code::Cpu(code) => code.function(name).map(Function::Cpu),
            Code::Gpu(code) => code.function(name).map(Function::Gpu),
        }
    }

    fn in_flight(&self) -> usize {
        match self {
            Code::Cpu(code) => code.in_flight(),
            Code::Gpu(code) => code.in_flight(),
        }
    }
}

impl Function {
    fn name(&self) -> &str {
        match self {
            Function::Cpu(function) => function.name(),
            Function::Gpu(function) => function.name(),
        }
    }

    fn params(&self) -> Vec<rushmem_arg_type_t> {
        match self {
            Function::Cpu(function) => function.params(),
            Function::Gpu(function) => function.params().to_vec(),
        }
    }
}

impl Handle<LoadedModule> {
    /// Unloads the module, unless one of its kernels is in flight.
    pub(crate) fn unload(&'static self) -> Result<()> {
        let module = self.get()?;
        let in_flight = module.code.in_flight();
        if in_flight > 0 {
            return Err(err!(
                BUSY,
                "{in_flight} launches of kernels of {} are in flight: synchronize first",
                module.name()
            ));
        }
        lock(&module.core.modules).retain(|known| !std::ptr::eq(*known, self));
        drop(module);
        self.end();
        Ok(())
    }

    fn end(&self) {
        if let Ok(module) = self.get() {
            for kernel in std::mem::take(&mut *lock(&module.kernels)) {
                kernel.empty();
            }
        }
        self.empty();
    }
}

impl LoadedModule {
    fn name(&self) -> &str {
        self.code.name()
    }

    /// The kernels' names.
    pub(crate) fn names(&self) -> &[CString] {
        &self.names
    }

    /// The kernel of this name; the same handle each time.
    pub(crate) fn kernel(&self, name: &str) -> Result<&'static Handle<LoadedKernel>> {
        let function = self.code.function(name).ok_or_else(|| self.unknown(name))?;
        let mut known = lock(&self.kernels);
        for handle in known.iter() {
            if handle.get().is_ok_and(|other| other.function.name() == function.name()) {
                return Ok(handle);
            }
        }
        let handle = Handle::hold(Arc::new(LoadedKernel {
            core: Arc::clone(&self.core),
            params: function.params(),
            function,
            source: self.name().to_owned(),
        }))?;
        known.push(handle);
        Ok(handle)
    }

    fn unknown(&self, name: &str) -> Error {
        let source = self.name();
        let is_template = |template: &String| template == name || template.ends_with(&format!("::{name}"));
        if self.code.template_names().iter().any(is_template) {
            return err!(
                LAUNCH,
                "kernel `{name}` of {source} is a template: instantiate it in the source, or ask for an instance with the \
                 option --kernel={name}<…>"
            );
        }
        if self.names.is_empty() {
            return err!(LAUNCH, "{source} has no kernel `{name}`, and no other");
        }
        let there: Vec<String> = self.code.kernel_names().map(|name| format!("`{name}`")).collect();
        let there = there.join(", ");
        err!(LAUNCH, "{source} has no kernel `{name}`, or several that end in it: it has {there}")
    }
}

impl LoadedKernel {
    /// The parameters.
    pub(crate) fn params(&self) -> &[rushmem_arg_type_t] {
        &self.params
    }

    /// The largest grid of this shape whose blocks can all be resident.
    pub(crate) fn max_blocks(&self, block: [u32; 3], shared: usize) -> Result<u64> {
        match (&self.function, &self.core.runner) {
            (Function::Gpu(function), Runner::Gpu(runner)) => {
                runner.max_blocks(function, block, shared, None)
            }
            (Function::Cpu(function), _) => Ok(function.max_blocks(block, shared)),
            _ => Err(err!(INTERNAL, "a kernel of another kind of device")),
        }
    }

    /// Checks a launch and puts it on the stream; the argument values are copied.
    ///
    /// # Safety
    /// Each of `values` points at a value of its parameter's type, and the kernel is sound with them. The
    /// stream is null, or one that the device knows.
    pub(crate) unsafe fn launch(
        &self,
        config: &rushmem_launch_t,
        values: &[*const c_void],
        types: Option<&[rushmem_arg_type_t]>,
    ) -> Result<()> {
        self.core.common.health.check()?;
        args::check(self.function.name(), &self.params, values.len(), types)?;
        let common = &self.core.common;
        common.note_launch(self.function.name(), &self.source);
        let name = LaunchName {
            what: format!("kernel `{}`", self.function.name()),
            head: common.head(self.function.name(), &self.source),
        };
        // SAFETY: the caller vouches for the kernel, the arguments and the stream.
        unsafe {
            match (&self.function, &self.core.runner) {
                (Function::Cpu(function), Runner::Cpu(runner)) => {
                    runner.launch(function, name, config, &self.params, values)
                }
                (Function::Gpu(function), Runner::Gpu(runner)) => {
                    runner.launch(function, &self.source, config, values)
                }
                _ => Err(err!(INTERNAL, "a kernel of another kind of device")),
            }
        }
    }
}

#[cfg(test)]
mod abandoned_tests;
#[cfg(test)]
mod tests;
