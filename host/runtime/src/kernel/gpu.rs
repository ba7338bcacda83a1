//! Kernels on a GPU: compiled by NVRTC or brought as machine code, launched cooperatively so that blocks may wait for one
//! another and for other PEs.
//!
//! A kernel that gives up (a PE died, a wait passed its limit) traps, because nothing milder is sure to end the threads
//! that count on it. A trap takes the process' whole context on that GPU with it; so the first failure is kept, and every
//! later call on this device says why it cannot be done.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::{headers, Common};
use crate::capi::types::{rushmem_arg_type_t, rushmem_launch_t};
use crate::cuda::compile::Compiler;
use crate::cuda::event::Event;
use crate::cuda::launch::Shape;
use crate::cuda::module::{Kernel, Module};
use crate::cuda::stream::{Priority, Stream};
use crate::cuda::Cuda;
use crate::error::{code, err, Error, Result};

/// Kernels that are named when a launch fails and it is not known which it was.
const NAMED: usize = 3;

/// Runs a world's kernels.
pub(super) struct Runner {
    cuda: Arc<Cuda>,
    common: Arc<Common>,
    stream: Stream,
    /// For the device state of modules; a kernel that waits on the other stream must not hold it up.
    side: Stream,
    /// PEs whose kernels share the GPU's processors at the same time.
    sharing: u64,
    /// What was launched since the last synchronisation, for texts: name and source.
    launched: Mutex<Vec<(String, String)>>,
    /// Why the context is lost.
    lost: OnceLock<Error>,
}

/// Loaded code.
pub(super) struct Code {
    module: Arc<Module>,
    flights: Arc<Flights>,
}

/// A kernel of it.
#[derive(Clone)]
pub(super) struct Function {
    kernel: Kernel,
    flights: Arc<Flights>,
}

/// The end of the last launch on each stream, so that code in use is not unloaded.
#[derive(Default)]
struct Flights(Mutex<Vec<(usize, Event)>>);

impl Flights {
    fn record(&self, stream: &Stream) -> Result<()> {
        // An event that is recorded into a graph tells nothing about now.
        if stream.is_capturing()? {
            return Ok(());
        }
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let raw = stream.as_raw() as usize;
        if let Some((_, event)) = list.iter().find(|(known, _)| *known == raw) {
            return event.record(stream);
        }
        let event = Event::new(stream.cuda(), false)?;
        event.record(stream)?;
        list.push((raw, event));
        Ok(())
    }

    /// Streams that have not passed their last launch.
    fn count(&self) -> usize {
        let list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.iter().filter(|(_, event)| matches!(event.query(), Ok(false))).count()
    }
}

impl Runner {
    pub(super) fn new(cuda: &Arc<Cuda>, common: &Arc<Common>, sharing: usize) -> Result<Runner> {
        Ok(Runner {
            cuda: Arc::clone(cuda),
            common: Arc::clone(common),
            stream: Stream::new(cuda, Priority::Normal)?,
            side: Stream::new(cuda, Priority::High)?,
            sharing: sharing.max(1) as u64,
            launched: Mutex::default(),
            lost: OnceLock::new(),
        })
    }

    pub(super) fn load(&self, name: &str, source: &str, options: Vec<String>) -> Result<Code> {
        let config = &self.common.config;
        let compiler = Compiler {
            nvrtc: config.nvrtc.clone(),
            nvjitlink: config.nvjitlink.clone(),
            cache_dir: config.cache_dir.clone().unwrap_or_else(rushmem_device_cpu::default_cache_dir),
            capability: self.cuda.facts().capability,
            options,
            headers: headers::DEVICE_HEADERS,
        };
        let cubin = compiler.compile(name, source)?;
        self.load_binary(name, &cubin.code, &cubin.instances)
    }

    pub(super) fn load_binary(
        &self,
        name: &str,
        code: &[u8],
        instances: &[(String, String)],
    ) -> Result<Code> {
        self.check_alive()?;
        let module = Module::load(&self.cuda, name, code, instances)?;
        module.upload(self.common.state.raw(), &self.side)?;
        Ok(Code { module, flights: Arc::default() })
    }

    fn check_alive(&self) -> Result<()> {
        match self.lost.get() {
            None => Ok(()),
            Some(e) => Err(e.clone()),
        }
    }

    pub(super) fn max_blocks(
        &self,
        function: &Function,
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
    /// Each of `values` points at a value of its parameter's type, and the kernel is sound with them; the stream is null or
    /// one of the GPU's primary context.
    pub(super) unsafe fn launch(
        &self,
        function: &Function,
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
            cooperative: true,
            cluster,
        };
        if self.sharing > 1 {
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
        let foreign;
        let stream = if config.stream.is_null() {
            &self.stream
        } else {
            // SAFETY: passed on; the caller keeps the stream alive during the call.
            foreign = unsafe { Stream::foreign(&self.cuda, config.stream) };
            &foreign
        };
        let head = || self.common.head(function.name(), source);
        // SAFETY: passed on.
        unsafe { function.kernel.launch(&shape, values, stream) }.map_err(|e| self.explain(e, &head()))?;
        function.flights.record(stream)?;
        let mut launched = self.launched.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = (function.name().to_owned(), source.to_owned());
        if launched.len() <= NAMED && !launched.contains(&entry) {
            launched.push(entry);
        }
        Ok(())
    }

    pub(super) fn synchronize(&self) -> Result<()> {
        self.check_alive()?;
        let health = &self.common.health;
        let done = self.stream.synchronize(health, None, &|| format!("for {} to end", self.suspects()));
        let result = done.map_err(|e| {
            if e.code == code::PEER_DEAD {
                // Its kernels notice too, and say more; but not for ever.
                let start = Instant::now();
                while self.stream.query().is_ok_and(|done| !done) && start.elapsed() < Duration::from_secs(2)
                {
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
            let head = format!("{}: {}", health.who(), self.suspects());
            let failed = self.stream.query().err().unwrap_or(e);
            self.explain(failed, &head)
        });
        self.launched.lock().unwrap_or_else(PoisonError::into_inner).clear();
        result
    }

    /// ``kernel `ring` (ring.cu)``, or several.
    fn suspects(&self) -> String {
        let launched = self.launched.lock().unwrap_or_else(PoisonError::into_inner);
        let names: Vec<String> =
            launched.iter().take(NAMED).map(|(kernel, source)| format!("`{kernel}` ({source})")).collect();
        match names.len() {
            0 => "the stream's work".into(),
            1 => format!("kernel {}", names[0]),
            _ if launched.len() > NAMED => format!("one of the kernels {}, …", names.join(", ")),
            _ => format!("one of the kernels {}", names.join(", ")),
        }
    }

    /// What an error of the driver's means: a kernel that gave up has left its reason.
    fn explain(&self, e: Error, head: &str) -> Error {
        if !self.cuda.is_lost() {
            return e;
        }
        let told = match self.common.state.take_failure() {
            (0, _) => e.context(head),
            (code, place) => self.common.gave_up(head, code, &place),
        };
        let told =
            Error::new(told.code, format!("{}; this process can use {} no more", told.message, self.cuda));
        self.lost.get_or_init(|| told).clone()
    }

    pub(super) fn check_idle(&self) -> Result<()> {
        match self.stream.query() {
            Ok(false) => Err(err!(BUSY, "{} is still in flight: synchronize first", self.suspects())),
            _ => Ok(()),
        }
    }

    /// Waits for what runs, which ends by itself or because the job is broken.
    pub(super) fn close(&self) {
        let start = Instant::now();
        let mut next = Duration::from_secs(5);
        while self.stream.query().is_ok_and(|done| !done) {
            std::thread::sleep(Duration::from_micros(200));
            if start.elapsed() > next {
                log::error!(
                    "{} does not end, though its world does: it spins without a rushmem wait",
                    self.suspects()
                );
                next *= 2;
            }
        }
    }
}

impl Code {
    pub(super) fn name(&self) -> &str {
        self.module.name()
    }

    pub(super) fn kernel_names(&self) -> impl Iterator<Item = &str> {
        self.module.kernel_names()
    }

    pub(super) fn function(&self, name: &str) -> Option<Function> {
        Some(Function { kernel: self.module.kernel(name)?, flights: Arc::clone(&self.flights) })
    }

    pub(super) fn in_flight(&self) -> usize {
        self.flights.count()
    }
}

impl Function {
    pub(super) fn name(&self) -> &str {
        self.kernel.name()
    }

    pub(super) fn params(&self) -> &[rushmem_arg_type_t] {
        self.kernel.params()
    }
}
