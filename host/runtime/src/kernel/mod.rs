//! Kernels of a world: sources compiled and loaded for the CPU device, launches checked and put on the world's stream,
//! failures told with the kernel's and the PE's name.

pub(crate) mod args;
pub(crate) mod handle;
pub(crate) mod headers;
mod stream;

use std::ffi::CString;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rushmem_device_cpu::{default_cache_dir, Cause, Compiler, Failure, LaunchConfig, Limits, RunError};

use crate::capi::types::{rushmem_arg_type_t, rushmem_launch_t};
use crate::config::Config;
use crate::device_state::{DeviceFacts, DeviceState, FAIL_BAD_PE, FAIL_BROKEN, FAIL_TIMEOUT};
use crate::error::{err, Error, Result};
use crate::health::Health;
use handle::{Handle, Handled};
use stream::{Job, Stream};

/// The kernels of one world.
pub(crate) struct Kernels {
    core: Arc<Core>,
}

/// What the world, its modules and its running kernels share.
struct Core {
    state: DeviceState,
    health: Arc<Health>,
    config: Config,
    stream: Stream,
    modules: Mutex<Vec<&'static Handle<LoadedModule>>>,
}

/// A loaded source.
pub(crate) struct LoadedModule {
    core: Arc<Core>,
    module: rushmem_device_cpu::Module,
    names: Vec<CString>,
    kernels: Mutex<Vec<&'static Handle<LoadedKernel>>>,
    /// Launches that have not ended.
    in_flight: Arc<AtomicUsize>,
}

/// A kernel of a loaded source.
pub(crate) struct LoadedKernel {
    core: Arc<Core>,
    kernel: rushmem_device_cpu::Kernel,
    source: String,
    params: Vec<rushmem_arg_type_t>,
    in_flight: Arc<AtomicUsize>,
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
    /// For a world of which `facts` are true as long as this lives.
    pub(crate) fn new(facts: &DeviceFacts, health: Arc<Health>, config: Config) -> Self {
        let (state, modules) = (DeviceState::new(facts), Mutex::default());
        Kernels { core: Arc::new(Core { state, health, config, stream: Stream::default(), modules }) }
    }

    /// What the world's monitor does now and then: print the stalls that kernels have reported.
    pub(crate) fn monitor(&self) -> Box<dyn FnMut() + Send> {
        let core = Arc::downgrade(&self.core);
        Box::new(move || {
            if let Some(core) = core.upgrade() {
                core.print_stalls();
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
        core.health.check()?;
        let limits = Limits::from_env().map_err(|text| err!(ENVIRONMENT, "{text}"))?;
        let compiler = Compiler {
            cxx: core.config.cxx.clone(),
            cache_dir: core.config.cache_dir.clone().unwrap_or_else(default_cache_dir),
            options,
            headers: headers::DEVICE_HEADERS,
            limits,
        };
        let module = compiler.compile(name, source).map_err(|e| compile_error(name, e))?;
        let names = module.kernel_names().map(|name| CString::new(name).unwrap_or_default()).collect();
        let kernels = Mutex::default();
        let loaded =
            LoadedModule { core: Arc::clone(core), module, names, kernels, in_flight: Arc::default() };
        let handle = Handle::leak(Arc::new(loaded));
        lock(&core.modules).push(handle);
        Ok(handle)
    }

    /// Waits for all launches; the first failure since the last call.
    pub(crate) fn synchronize(&self) -> Result<()> {
        let core = &self.core;
        let result = core.stream.synchronize(core.health.who(), core.config.stall_report);
        core.print_stalls();
        result
    }

    /// `BUSY` while a launch has not ended.
    pub(crate) fn check_idle(&self) -> Result<()> {
        self.core.stream.check_idle()
    }
}

impl Drop for Kernels {
    /// Ends when no kernel of the world runs any more: each polls the world's broken word, which whoever drops a world
    /// with kernels in flight has set.
    fn drop(&mut self) {
        self.core.stream.close();
        self.core.print_stalls();
        for module in std::mem::take(&mut *lock(&self.core.modules)) {
            module.end();
        }
    }
}

impl Core {
    fn print_stalls(&self) {
        for text in self.state.drain_stalls(self.health.who()) {
            log::warn!("{text}");
        }
    }

    /// Why `kernel` did not run to its end.
    fn explain(&self, kernel: &str, source: &str, error: RunError) -> Error {
        let head = format!("{}: kernel `{kernel}` ({source})", self.health.who());
        match error {
            RunError::Refused(text) => err!(LAUNCH, "{head}: {text}"),
            RunError::Stopped => self.broken(&head),
            RunError::Failed(Failure { cause, place }) => {
                let place = place.map_or(String::new(), |([bx, by, bz], [tx, ty, tz])| {
                    format!(" in block ({bx},{by},{bz}), thread ({tx},{ty},{tz})")
                });
                match cause {
                    Cause::Code(FAIL_BROKEN) => self.broken(&head),
                    Cause::Code(FAIL_TIMEOUT) => {
                        let stalls = self.state.drain_stalls("it");
                        let what = stalls.first().map_or(String::new(), |text| format!(": {text}"));
                        let limit = self.config.wait_timeout.unwrap_or_default().as_secs_f64();
                        err!(TIMEOUT, "{head}: a wait{place} passed its limit of {limit} s (RUSHMEM_WAIT_TIMEOUT){what}")
                    }
                    Cause::Code(FAIL_BAD_PE) => {
                        err!(BAD_PE, "{head}: a PE that does not exist was addressed{place}")
                    }
                    Cause::Code(code) => err!(LAUNCH, "{head}: gave up{place} with code {code}"),
                    Cause::Text(text) => err!(LAUNCH, "{head}: failed{place}: {text}"),
                }
            }
        }
    }

    fn broken(&self, head: &str) -> Error {
        match self.health.check() {
            Err(why) => why.context(format!("{head} was ended")),
            Ok(()) => err!(INTERNAL, "{head} was ended, though the job is whole"),
        }
    }
}

impl Handle<LoadedModule> {
    /// Unloads the module, unless one of its kernels is in flight.
    pub(crate) fn unload(&'static self) -> Result<()> {
        let module = self.get()?;
        let in_flight = module.in_flight.load(Ordering::Acquire);
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
        self.module.name()
    }

    /// The kernels' names.
    pub(crate) fn names(&self) -> &[CString] {
        &self.names
    }

    /// The kernel of this name; the same handle each time.
    pub(crate) fn kernel(&self, name: &str) -> Result<&'static Handle<LoadedKernel>> {
        let kernel = self.module.kernel(name).ok_or_else(|| self.unknown(name))?;
        let mut known = lock(&self.kernels);
        for handle in known.iter() {
            if handle.get().is_ok_and(|other| other.kernel.name() == kernel.name()) {
                return Ok(handle);
            }
        }
        let convert = |param: &rushmem_device_cpu::Param| rushmem_arg_type_t {
            kind: param.kind,
            size: param.size,
            pointee_kind: param.pointee_kind,
            pointee_size: param.pointee_size,
        };
        let params = kernel.params().iter().map(convert).collect();
        let handle = Handle::leak(Arc::new(LoadedKernel {
            core: Arc::clone(&self.core),
            kernel,
            source: self.name().to_owned(),
            params,
            in_flight: Arc::clone(&self.in_flight),
        }));
        known.push(handle);
        Ok(handle)
    }

    fn unknown(&self, name: &str) -> Error {
        let quoted = |names: &mut dyn Iterator<Item = &str>| {
            names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        };
        let source = self.name();
        if self
            .module
            .template_names()
            .iter()
            .any(|template| template == name || template.ends_with(&format!("::{name}")))
        {
            return err!(
                LAUNCH,
                "kernel `{name}` of {source} is a template: instantiate it in the source, or ask for an instance with the \
                 option --kernel={name}<…>"
            );
        }
        if self.names.is_empty() {
            return err!(LAUNCH, "{source} has no kernel `{name}`, and no other");
        }
        let there = quoted(&mut self.module.kernel_names());
        err!(LAUNCH, "{source} has no kernel `{name}`, or several that end in it: it has {there}")
    }
}

/// Counts a launch as in flight as long as it lives.
struct InFlight(Arc<AtomicUsize>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl LoadedKernel {
    /// The parameters.
    pub(crate) fn params(&self) -> &[rushmem_arg_type_t] {
        &self.params
    }

    /// The largest grid of this shape whose blocks can all be resident.
    pub(crate) fn max_blocks(&self, block: [u32; 3], shared: usize) -> u64 {
        self.kernel.max_blocks(block, shared)
    }

    /// Checks a launch and puts it on the stream; the argument values are copied.
    ///
    /// # Safety
    /// Each of `values` points at a value of its parameter's type, and the kernel is sound with them.
    pub(crate) unsafe fn launch(
        &self,
        config: &rushmem_launch_t,
        values: &[*const std::ffi::c_void],
        types: Option<&[rushmem_arg_type_t]>,
    ) -> Result<()> {
        let core = &self.core;
        core.health.check()?;
        let name = self.kernel.name().to_owned();
        let shared = usize::try_from(config.shared_bytes).unwrap_or(usize::MAX);
        let shape = LaunchConfig { grid: config.grid, block: config.block, shared };
        self.kernel.check(&shape).map_err(|e| core.explain(&name, &self.source, e))?;
        args::check(&name, &self.params, values.len(), types)?;
        // SAFETY: as many values as parameters, and per contract.
        let copied = unsafe { args::Copied::of(&name, &self.params, values) }?;
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        let in_flight = InFlight(Arc::clone(&self.in_flight));
        let (core, kernel, source) = (Arc::clone(core), self.kernel.clone(), self.source.clone());
        let run = move || {
            let _in_flight = in_flight;
            let stop = core.health.broken_word();
            // SAFETY: copies of values of the parameters' types; what the kernel does with them is the caller's word.
            let result = unsafe { kernel.run(&shape, &copied.pointers(), core.state.as_ptr(), stop) };
            result.map_err(|e| core.explain(kernel.name(), &source, e))
        };
        self.core.stream.push(Job { kernel: name, run: Box::new(run) })
    }
}

fn compile_error(name: &str, error: rushmem_device_cpu::Error) -> Error {
    use rushmem_device_cpu::Error as E;
    match error {
        E::Compile { text } => err!(COMPILE, "{name} does not compile:\n{text}"),
        E::NoCompiler { text } => err!(UNSUPPORTED, "{text}"),
        E::Io { text } => err!(IO, "{text}"),
        E::Environment { text } => err!(ENVIRONMENT, "{text}"),
    }
}

#[cfg(test)]
mod tests;
