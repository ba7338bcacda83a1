//! What a source or a binary becomes: a module of kernels, each of which can be launched.

use std::ffi::{c_void, CString};
use std::sync::{Arc, Mutex};

use super::handle::{Handle, Handled};
use super::launch_name::LaunchName;
use super::{args, cpu, gpu, lock, KernelCore, Runner};
use crate::error::{err, Error, Result};
use crate::trace::event::About;
use rushmem_abi::c::{rushmem_arg_type_t, rushmem_launch_t};

/// A module's code.
pub(super) enum Code {
    Cpu(cpu::CpuCode),
    Gpu(gpu::GpuCode),
}

/// A kernel's code.
#[derive(Clone)]
pub(super) enum Function {
    Cpu(cpu::CpuFunction),
    Gpu(gpu::GpuFunction),
}

/// A loaded source or binary.
pub(crate) struct LoadedModule {
    pub(super) core: Arc<KernelCore>,
    pub(super) code: Code,
    pub(super) names: Vec<CString>,
    pub(super) kernels: Mutex<Vec<&'static Handle<LoadedKernel>>>,
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

impl Code {
    fn name(&self) -> &str {
        match self {
            Code::Cpu(code) => code.name(),
            Code::Gpu(code) => code.name(),
        }
    }

    pub(super) fn kernel_names(&self) -> Box<dyn Iterator<Item = &str> + '_> {
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

    pub(super) fn function(&self, name: &str) -> Option<Function> {
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

    pub(super) fn end(&self) {
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
        let _span = common.trace.as_ref().map(|trace| {
            let about = About { shape: Some((config.grid, config.block)), ..About::default() };
            trace.span("launch", format!("launch {}", self.function.name()), about)
        });
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
