//! A loaded shared object and its kernels. Loading the same file twice must give two modules, each with its own
//! `__device__` variables, but the dynamic linker knows a file by its inode: a second one is loaded from a copy.

use std::collections::HashSet;
use std::ffi::{c_char, c_void, CStr};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::cache::unique;
use crate::error::Error;
use crate::hooks::{Hooks, ThreadContext, HOOKS};
use crate::launch::{self, Code, LaunchConfig, RunError};
use crate::limits::Limits;

/// What a kernel parameter is, in the numbers of `RUSHMEM_ARG_*`: 0 pointer, 1 signed integer, 2 unsigned integer or
/// bool, 3 floating point, 4 struct, 5 unknown.
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

struct Entry {
    name: String,
    run: unsafe extern "C" fn(*const *const c_void),
    params: Vec<Param>,
}

struct Inner {
    /// Taken when the module goes.
    library: Option<Library>,
    file: (u64, u64),
    name: String,
    kernels: Vec<Entry>,
    templates: Vec<String>,
    slot: unsafe extern "C" fn() -> *mut *mut ThreadContext,
    limits: Limits,
}

/// The files (device, inode) that are loaded as modules now.
static LOADED: Mutex<Option<HashSet<(u64, u64)>>> = Mutex::new(None);

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
        out.debug_struct("Module").field("name", &self.inner.name).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Kernel").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl Module {
    pub(crate) fn load(path: &Path, name: &str, limits: Limits) -> Result<Self, Error> {
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = loaded.get_or_insert_default();
        let file = identity(path)?;
        if !loaded.contains(&file) {
            if let Some(inner) = open(path, file, name, limits)? {
                loaded.insert(file);
                return Ok(Module { inner: Arc::new(inner) });
            }
        }
        // In this process already, as a module or as one that the dynamic linker could not let go.
        let copy = Copied::of(path)?;
        let file = identity(&copy.path)?;
        let Some(inner) = open(&copy.path, file, name, limits)? else {
            return Err(Error::io(path.display(), "the dynamic linker takes a fresh copy for a loaded file"));
        };
        loaded.insert(file);
        Ok(Module { inner: Arc::new(inner) })
    }

    /// The name that the source was given.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// All kernels: qualified names, in the order of their definitions.
    pub fn kernel_names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.inner.kernels.iter().map(|kernel| kernel.name.as_str())
    }

    /// Kernel templates of the source, of which only instances can be had.
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

    /// The largest grid (number of blocks) of this shape whose blocks can all be resident; 0 where no block can.
    pub fn max_blocks(&self, block: [u32; 3], shared: usize) -> u64 {
        self.inner.limits.max_blocks(block, shared)
    }

    /// Whether a launch of this shape would be refused.
    pub fn check(&self, config: &LaunchConfig) -> Result<(), RunError> {
        launch::check(self.inner.limits, config).map(drop).map_err(RunError::Refused)
    }

    /// Runs the kernel to its end: block 0 on the caller's thread, each other block on an OS thread of its own.
    /// The kernel's blocks run at the same time, and may wait for each other. `state` is handed to the kernel as it is.
    /// `stop` is polled: once it is not zero the kernel is abandoned where it stands.
    ///
    /// # Safety
    /// `args` holds a pointer to a value of the right type for each of the kernel's parameters, and the kernel
    /// is sound with these values, this state and this shape. Memory that an abandoned kernel was using may be left in
    /// any state.
    pub unsafe fn run(
        &self,
        config: &LaunchConfig,
        args: &[*const c_void],
        state: *const c_void,
        stop: &AtomicU32,
    ) -> Result<(), RunError> {
        let params = self.params().len();
        if args.len() != params {
            let text = format!("`{}` takes {params} arguments, got {}", self.name(), args.len());
            return Err(RunError::Refused(text));
        }
        let code = Code { run: self.inner.kernels[self.index].run, slot: self.inner.slot };
        launch::run(code, self.inner.limits, config, args.as_ptr(), state, stop)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.library.take());
        if let Some(loaded) = loaded.as_mut() {
            loaded.remove(&self.file);
        }
    }
}

fn identity(path: &Path) -> Result<(u64, u64), Error> {
    let meta = fs::metadata(path).map_err(|error| Error::io(path.display(), error))?;
    Ok((meta.dev(), meta.ino()))
}

/// `None`: what the dynamic linker gave belongs to another module.
fn open(path: &Path, file: (u64, u64), name: &str, limits: Limits) -> Result<Option<Inner>, Error> {
    let failed = |error: libloading::Error| {
        let what = format!(
            "loading {} (RUSHMEM_CACHE_DIR names another place, say if this one is mounted noexec)",
            path.display()
        );
        Error::io(what, error)
    };
    // SAFETY: the file was made by `Compiler` from the user's source, whose static initialisers are the user's.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(failed)?;
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
        1 => return Ok(None),
        bytes if bytes == size_of::<ThreadContext>() => {}
        _ => return Err(Error::io(path.display(), "made for another version of the CPU device")),
    }
    let mut kernels = Vec::new();
    // SAFETY: a static table that ends with an entry of nulls, whose strings are terminated.
    unsafe {
        let mut raw = list();
        while let Some(run) = (*raw).run {
            let name = CStr::from_ptr((*raw).name).to_string_lossy().into_owned();
            let params = std::slice::from_raw_parts((*raw).params, (*raw).n_params as usize).to_vec();
            kernels.push(Entry { name, run, params });
            raw = raw.add(1);
        }
    }
    // SAFETY: as above.
    let templates = unsafe { CStr::from_ptr(templates()) }.to_string_lossy();
    let templates = templates.split_whitespace().map(str::to_owned).collect();
    Ok(Some(Inner { library: Some(library), file, name: name.to_owned(), kernels, templates, slot, limits }))
}

/// A copy of a shared object under a name of its own, gone from the file system once it has been loaded.
struct Copied {
    path: PathBuf,
}

impl Copied {
    fn of(path: &Path) -> Result<Self, Error> {
        let name = format!("copy-{}-{}.so", std::process::id(), unique());
        let copied = Copied { path: path.with_file_name(name) };
        fs::copy(path, &copied.path)
            .map_err(|error| Error::io(format!("copying {}", path.display()), error))?;
        Ok(copied)
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
