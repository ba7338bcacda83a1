//! Kernels of a world: sources are compiled and loaded for the PE's device, launches are checked and put on a
//! stream, failures name the kernel and the PE. What is the same on both kinds of device is here; [`cpu`] and
//! [`gpu`] are the rest.

mod ahead;
pub(crate) mod args;
pub(crate) mod collectives;
mod compiling;
mod cpu;
mod device_stream;
pub(crate) mod event;
mod failure;
mod gpu;
mod gpu_trace;
pub(crate) mod handle;
pub(crate) mod headers;
mod launch_name;
mod module;
mod options;
pub(crate) mod service;
pub(crate) mod stream;
pub(crate) mod streams;
mod unreported;
mod without_queues;

use std::ffi::CString;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rushmem_device_cpu::check;

use crate::config::Config;
use crate::device::Device;
use crate::device_state::DeviceState;
use crate::error::{err, Result};
use crate::gpu::compile::Compiler;
use crate::gpu::watch::DriverWatch;
use crate::health::Health;
use crate::trace::{Timeline, Trace};
use collectives::CollectiveKernels;
use event::StreamEvent;
use handle::Handle;
use module::Code;
pub(crate) use module::{LoadedKernel, LoadedModule};

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
    /// Of a run that is checked: set before any work begins.
    check: Arc<OnceLock<Arc<check::World>>>,
    /// Of a run that is traced.
    trace: Option<Arc<Trace>>,
    /// Whether a launch has failed: what it was in the middle of stays as it was.
    failed: AtomicBool,
}

impl Common {
    /// The file of a run that has one.
    fn timeline(&self) -> Option<&Arc<Timeline>> {
        self.trace.as_ref().and_then(|trace| trace.timeline())
    }
}

/// What compiles for GPUs of that compute capability, as the settings say.
fn gpu_compiler(config: &Config, capability: (u32, u32), options: Vec<String>) -> Compiler {
    Compiler {
        nvrtc: config.nvrtc.clone(),
        nvjitlink: config.nvjitlink.clone(),
        cache_dir: config.cache_dir.clone(),
        capability,
        options: options::for_gpus(options),
        headers: headers::DEVICE_HEADERS,
    }
}

/// Who runs kernels.
enum Runner {
    Cpu(cpu::CpuRunner),
    Gpu(gpu::GpuRunner),
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is guarded is whole between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kernels {
    /// For a world whose `state` stays true as long as this lives. Code that is loaded is `announce`d before
    /// any of it runs.
    pub(crate) fn new(
        state: DeviceState,
        (health, trace): (Arc<Health>, Option<Arc<Trace>>),
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
            check: Arc::default(),
            trace,
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

    /// From now on what streams do is checked.
    pub(crate) fn check(&self, world: &Arc<check::World>) {
        // A world has one checker, and says so once.
        let _ = self.core.common.check.set(Arc::clone(world));
    }

    /// What the world's monitor does now and then: report the stalls of kernels, and calls of a driver or a
    /// compiler that do not return.
    pub(crate) fn monitor(&self) -> Box<dyn FnMut() + Send> {
        let (common, core) = (Arc::downgrade(&self.core.common), Arc::downgrade(&self.core));
        let calls = match &self.core.runner {
            Runner::Cpu(_) => None,
            Runner::Gpu(runner) => Some(Arc::clone(runner.calls())),
        };
        let mut watch = self.core.common.config.stall_report.map(DriverWatch::new).zip(calls);
        Box::new(move || {
            let Some(common) = common.upgrade() else { return };
            common.print_stalls();
            let named = common.health.report_outside();
            let overdue = watch.as_mut().and_then(|(watch, calls)| watch.overdue(calls));
            let (Some(lasted), Some(core)) = (overdue.filter(|_| !named), core.upgrade()) else { return };
            if let Runner::Gpu(runner) = &core.runner {
                let (who, text) = (common.health.who(), runner.held_up());
                log::warn!("{who} has waited {:.1} s: {text}", lasted.as_secs_f64());
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
        ahead::compile(&core.common, name, source, &options)?;
        self.keep(match &core.runner {
            Runner::Cpu(runner) => Code::Cpu(runner.load(name, source, options)?),
            Runner::Gpu(runner) => {
                core.look_at_source(name, source, &options::for_gpus(options.clone()));
                Code::Gpu(runner.load(name, source, options)?)
            }
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
            Runner::Gpu(runner) => {
                core.look_at_code(name, code);
                Code::Gpu(runner.load_binary(name, code, &[])?)
            }
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

    /// Tells a module that others have loaded who its PE is; whether it asks.
    ///
    /// # Safety
    /// `module` is a `CUmodule` of the PE's GPU, in its primary context, and none of its kernels runs.
    pub(crate) unsafe fn tell(&self, module: *mut std::ffi::c_void) -> Result<bool> {
        match &self.core.runner {
            Runner::Cpu(_) => Err(err!(
                UNSUPPORTED,
                "this PE's device is the CPU, which has no CUmodules: rushmem_module_load loads kernels for it"
            )),
            // SAFETY: per contract.
            Runner::Gpu(runner) => unsafe { runner.tell(module) },
        }
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

#[cfg(test)]
mod abandoned_tests;
#[cfg(test)]
mod tests;
