//! A loaded shared object and its kernels. What is loaded is a sealed copy in memory of the bytes that the
//! cache vouched for, so it does not matter what the file's name stands for by then, and two loads of one
//! source are two modules, each with its own `__device__` variables (the dynamic linker knows a file by its
//! inode). The copy's descriptor stays open as long as the module: its path `/proc/PID/fd/N` is what
//! debuggers open.

use std::collections::HashMap;
use std::ffi::{c_char, c_void, CStr, OsStr};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use rustix::fs::{fcntl_add_seals, memfd_create, MemfdFlags, SealFlags};

use crate::cache::{by_descriptor, leads_to, unique, Folder};
use crate::check::hooks::{CheckHooks, CHECK_HOOKS};
use crate::check_mode::Mode;
use crate::code::Code;
use crate::context::ThreadContext;
use crate::crash;
use crate::error::Error;
use crate::hooks::{Hooks, HOOKS};
use crate::launch::{self, LaunchConfig, Reports};
use crate::limits::Limits;
use crate::lines::Lines;
use crate::outcome::RunError;
use crate::run::run;
use crate::signals;
use crate::source::{file_name, SourceNames};
use crate::stack_trace::Counters;
use crate::trace_hooks::{TraceHooks, TRACE_HOOKS};

/// What a kernel parameter is, in the numbers of `RUSHMEM_ARG_*`: 0 pointer, 1 signed integer, 2 unsigned
/// integer or bool, 3 floating point, 4 struct, 5 unknown.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// The kind.
    pub kind: i32,
    /// Size in bytes.
    pub size: u32,
    /// Of a pointer: the kind of what it points at (5 for void, structs and all others).
    pub pointee_kind: i32,
    /// Of a pointer: the size of what it points at, 0 where unknown.
    pub pointee_size: u32,
}

/// `rushmem_cpu_kernel`.
#[repr(C)]
struct RawKernel {
    name: *const c_char,
    run: Option<unsafe extern "C" fn(*const *const c_void)>,
    params: *const Param,
    n_params: u32,
}

struct KernelEntry {
    name: String,
    run: unsafe extern "C" fn(*const *const c_void),
    params: Vec<Param>,
}

struct Inner {
    /// Held, not used. Goes before the image: the next one may have its number, and so its path.
    _library: Library,
    _image: Image,
    names: SourceNames,
    /// The addresses of its code.
    text: std::ops::Range<usize>,
    kernels: Vec<KernelEntry>,
    templates: Vec<String>,
    slot: unsafe extern "C" fn() -> *mut *mut ThreadContext,
    limits: Limits,
    check: Mode,
    lines: Lines,
    /// Lines of traced calls that were looked up.
    known_lines: Mutex<HashMap<Vec<usize>, Option<String>>>,
}

/// A compiled and loaded source. Unloaded when the last clone and kernel are gone.
#[derive(Clone)]
pub struct Module {
    inner: Arc<Inner>,
}

/// A kernel of a module.
#[derive(Clone)]
pub struct Kernel {
    inner: Arc<Inner>,
    index: usize,
}

impl std::fmt::Debug for Module {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Module").field("name", &self.inner.names.name).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Kernel").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl Module {
    /// Loads the object, which was read from this folder of the cache; what is checked.
    pub(crate) fn load(
        object: &[u8],
        folder: &Folder,
        name: &str,
        limits: Limits,
        check: Mode,
    ) -> Result<Self, Error> {
        let mut stale = Vec::new();
        while stale.len() < MOST_STALE {
            let image = Image::in_memory(object, name)
                .map_err(|error| Error::io(format!("a copy of {name}'s code in memory"), error));
            // No /proc, or a machine that runs nothing from memory: a file that goes once it is loaded.
            let opened = match image {
                Ok(image) if leads_to(&image.path, &image.fd) => open(image, object, folder, name, limits),
                Ok(image) => Err(Error::io(image.path.display(), "/proc is not mounted")),
                Err(error) => Err(error),
            };
            let opened = opened.or_else(|first| {
                let beside = Beside::of(object, folder).map_err(|_| first.clone())?;
                open(beside.image(folder).map_err(|_| first.clone())?, object, folder, name, limits)
                    .map_err(|second| Error::io(first, second))
            })?;
            match opened {
                Ok(inner) => return Ok(Module { inner: Arc::new(Inner { check, ..inner }) }),
                // The dynamic linker took the path for a module that it could not let go. The next image has
                // another.
                Err(image) => stale.push(image),
            }
        }
        Err(Error::io(folder.path().display(), "the dynamic linker takes a fresh copy for a loaded file"))
    }

    /// The name that the source was given.
    pub fn name(&self) -> &str {
        &self.inner.names.name
    }

    /// All kernels: qualified names, in the order of their definitions.
    pub fn kernel_names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.inner.kernels.iter().map(|kernel| kernel.name.as_str())
    }

    /// Kernel templates of the source: only their instances can be launched.
    pub fn template_names(&self) -> &[String] {
        &self.inner.templates
    }

    /// The kernel of this name: the qualified one, or its last part where that is unique.
    pub fn kernel(&self, name: &str) -> Option<Kernel> {
        let kernels = &self.inner.kernels;
        let exact = kernels.iter().position(|kernel| kernel.name == name);
        let index = exact.or_else(|| {
            let suffix = format!("::{name}");
            let mut ends = kernels.iter().enumerate().filter(|(_, kernel)| kernel.name.ends_with(&suffix));
            let first = ends.next()?;
            ends.next().is_none().then_some(first.0)
        })?;
        Some(Kernel { inner: self.inner.clone(), index })
    }
}

impl Kernel {
    /// The qualified name.
    pub fn name(&self) -> &str {
        &self.inner.kernels[self.index].name
    }

    /// The parameters.
    pub fn params(&self) -> &[Param] {
        &self.inner.kernels[self.index].params
    }

    /// The line of the program's own source at which a traced call is made ([`KernelCall::stack`]).
    ///
    /// [`KernelCall::stack`]: crate::KernelCall::stack
    pub fn line_of(&self, stack: &[usize]) -> Option<String> {
        // Whole between any two statements.
        let mut known = self.inner.known_lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = known.get(stack) {
            return line.clone();
        }
        let depth = stack.iter().position(|place| *place == 0).unwrap_or(stack.len());
        let line = Counters::of_calls(&stack[..depth]).place_in(&self.inner.lines, &self.inner.names).at;
        known.insert(stack.to_vec(), line.clone());
        line
    }

    /// The largest grid (number of blocks) of this shape whose blocks can all be resident; 0 where no block
    /// can.
    pub fn max_blocks(&self, block: [u32; 3], shared: usize) -> u64 {
        self.inner.limits.max_blocks(block, shared)
    }

    /// Whether a launch of this shape would be refused.
    pub fn check(&self, config: &LaunchConfig) -> Result<(), RunError> {
        launch::check(self.inner.limits, config).map(drop).map_err(RunError::Refused)
    }

    /// Runs the kernel to its end: block 0 on the caller's thread, each other block on an OS thread of its
    /// own. The kernel's blocks run at the same time, and may wait for each other. `state` is handed to the
    /// kernel as it is. `stop` is polled: once it is not zero the kernel is abandoned where it stands.
    ///
    /// # Safety
    /// `args` holds a pointer to a value of the right type for each of the kernel's parameters, and the
    /// kernel is sound with these values, this state and this shape. Memory that an abandoned kernel was
    /// using may be left in any state.
    pub unsafe fn run(
        &self,
        config: &LaunchConfig,
        args: &[*const c_void],
        state: *const c_void,
        stop: &AtomicU32,
    ) -> Result<(), RunError> {
        // SAFETY: the caller gives what the other function asks for.
        unsafe { self.run_reporting(config, args, state, stop, &Reports::default()) }
    }

    /// The same, with what is said of blocks that do not move.
    ///
    /// # Safety
    /// As for [`Kernel::run`].
    pub unsafe fn run_reporting(
        &self,
        config: &LaunchConfig,
        args: &[*const c_void],
        state: *const c_void,
        stop: &AtomicU32,
        reports: &Reports,
    ) -> Result<(), RunError> {
        let params = self.params().len();
        if args.len() != params {
            let text = format!("`{}` takes {params} arguments, got {}", self.name(), args.len());
            return Err(RunError::Refused(text));
        }
        let entry = &self.inner.kernels[self.index];
        let code = Code {
            run: entry.run,
            slot: self.inner.slot,
            text: self.inner.text.clone(),
            kernel: &*entry.name,
            names: &self.inner.names,
            lines: &self.inner.lines,
            check: self.inner.check,
        };
        crash::install();
        run(code, self.inner.limits, config, args.as_ptr(), state, stop, reports)
    }
}

/// As many modules that were not unloaded may be in the way of a load.
const MOST_STALE: usize = 64;

/// What the dynamic linker is given.
struct Image {
    fd: OwnedFd,
    path: PathBuf,
}

impl Image {
    /// A copy in memory that nothing can change any more.
    fn in_memory(object: &[u8], name: &str) -> io::Result<Image> {
        // For readers of /proc/PID/maps. The kernel takes 249 bytes of it.
        let label: String = name.chars().filter(|c| !c.is_control()).take(60).collect();
        let fd = memfd_create(&*label, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let mut file = File::from(fd);
        file.write_all(object)?;
        fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let path = by_descriptor(file.as_raw_fd());
        Ok(Image { fd: file.into(), path })
    }
}

/// A copy in the cache's folder, gone from it with the value.
struct Beside<'a> {
    name: String,
    folder: &'a Folder,
}

impl<'a> Beside<'a> {
    fn of(object: &[u8], folder: &'a Folder) -> io::Result<Self> {
        let beside = Beside { name: format!("copy-{}-{}.so", std::process::id(), unique()), folder };
        folder.replace(&beside.name, object)?;
        Ok(beside)
    }

    fn image(&self, folder: &Folder) -> io::Result<Image> {
        let path = folder.via().join(&self.name);
        Ok(Image { fd: File::open(&path)?.into(), path })
    }
}

impl Drop for Beside<'_> {
    fn drop(&mut self) {
        let _ = self.folder.remove(OsStr::new(&self.name));
    }
}

/// `Err` inside: what the dynamic linker gave belongs to another module.
fn open(
    image: Image,
    object: &[u8],
    folder: &Folder,
    name: &str,
    limits: Limits,
) -> Result<Result<Inner, Image>, Error> {
    let failed = |error: libloading::Error| {
        let text = error.to_string().replace(&*image.path.to_string_lossy(), name);
        Error::io(format!("loading {name} (compiled in {})", folder.path().display()), text)
    };
    // SAFETY: the object was made by `Compiler` from the user's source, whose static initialisers are the
    // user's, and has been kept where nobody else writes.
    let library = unsafe { Library::open(Some(&image.path), RTLD_NOW | RTLD_LOCAL) }.map_err(failed)?;
    // SAFETY: these are the types that hooks.h and the appended list give these symbols.
    let (attach, slot, list, templates) = unsafe {
        (
            *library
                .get::<unsafe extern "C" fn(*const Hooks) -> u32>(b"rushmem_cpu_attach\0")
                .map_err(failed)?,
            *library
                .get::<unsafe extern "C" fn() -> *mut *mut ThreadContext>(b"rushmem_cpu_slot\0")
                .map_err(failed)?,
            *library
                .get::<unsafe extern "C" fn() -> *const RawKernel>(b"rushmem_cpu_kernels\0")
                .map_err(failed)?,
            *library
                .get::<unsafe extern "C" fn() -> *const c_char>(b"rushmem_cpu_templates\0")
                .map_err(failed)?,
        )
    };
    // SAFETY: the hooks are static.
    match unsafe { attach(&HOOKS) } as usize {
        1 => return Ok(Err(image)),
        bytes if bytes == size_of::<ThreadContext>() => {}
        _ => return Err(Error::io(folder.path().display(), "made for another version of the CPU device")),
    }
    // SAFETY: the type that check.h gives this symbol, which instrumented modules alone have.
    let checked = unsafe {
        library.get::<unsafe extern "C" fn(*const CheckHooks) -> u32>(b"rushmem_cpu_check_attach\0")
    };
    if let Ok(attach) = checked {
        // SAFETY: the hooks are static.
        if unsafe { attach(&CHECK_HOOKS) } != 1 {
            return Err(Error::io(folder.path().display(), "made for another version of the checker"));
        }
    }
    // SAFETY: the type that trace.h gives this symbol, which modules of traced runs alone have.
    let traced = unsafe {
        library.get::<unsafe extern "C" fn(*const TraceHooks) -> u32>(b"rushmem_cpu_trace_attach\0")
    };
    if let Ok(attach) = traced {
        // SAFETY: the hooks are static.
        if unsafe { attach(&TRACE_HOOKS) } != 1 {
            return Err(Error::io(folder.path().display(), "made for another version of the CPU device"));
        }
    }
    let mut kernels = Vec::new();
    // SAFETY: a static table that ends with an entry of nulls, whose strings are terminated.
    unsafe {
        let mut raw = list();
        while let Some(run) = (*raw).run {
            let name = CStr::from_ptr((*raw).name).to_string_lossy().into_owned();
            let params = std::slice::from_raw_parts((*raw).params, (*raw).n_params as usize).to_vec();
            kernels.push(KernelEntry { name, run, params });
            raw = raw.add(1);
        }
    }
    // SAFETY: a static, terminated string of the kernel's library, which stays loaded.
    let templates = unsafe { CStr::from_ptr(templates()) }.to_string_lossy();
    let templates = templates.split_whitespace().map(str::to_owned).collect();
    let names = SourceNames {
        name: name.to_owned(),
        file: folder.path().join(file_name(name)),
        root: folder.path().parent().unwrap_or(folder.path()).to_owned(),
    };
    let text = signals::text_of(slot as usize);
    let lines = Lines::of(object, signals::bias_of(text.start));
    Ok(Ok(Inner {
        _library: library,
        _image: image,
        names,
        text,
        kernels,
        templates,
        slot,
        limits,
        check: Mode::OFF,
        lines,
        known_lines: Mutex::default(),
    }))
}
