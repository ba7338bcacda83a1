//! NVRTC, NVIDIA's compiler as a library: found at run time, its few functions bound by hand.
//!
//! By hand, because cudarc knows the file names of its own CUDA version only, gives no say in where to look,
//! and its result type is an enum, for which an unknown value is undefined behaviour.

use std::ffi::{c_char, c_int, CStr, CString};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, PoisonError};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::search;
use crate::error::{err, Error, Result};

/// File names, the newest first: machine code of a newer NVRTC runs on older drivers, unlike its PTX.
const NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];

type Program = *mut std::ffi::c_void;

search::functions! {
    nvrtcVersion: fn(*mut c_int, *mut c_int);
    nvrtcGetNumSupportedArchs: fn(*mut c_int);
    nvrtcGetSupportedArchs: fn(*mut c_int);
    nvrtcCreateProgram: fn(*mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char);
    nvrtcDestroyProgram: fn(*mut Program);
    nvrtcAddNameExpression: fn(Program, *const c_char);
    nvrtcCompileProgram: fn(Program, c_int, *const *const c_char);
    nvrtcGetProgramLogSize: fn(Program, *mut usize);
    nvrtcGetProgramLog: fn(Program, *mut c_char);
    nvrtcGetCUBINSize: fn(Program, *mut usize);
    nvrtcGetCUBIN: fn(Program, *mut c_char);
    nvrtcGetLTOIRSize: fn(Program, *mut usize);
    nvrtcGetLTOIR: fn(Program, *mut c_char);
    nvrtcGetLoweredName: fn(Program, *const c_char, *mut *const c_char);
}

/// `NVRTC_ERROR_COMPILATION`: the log says what is wrong with the source.
const COMPILATION: c_int = 6;

/// A loaded NVRTC. Never unloaded: it keeps threads and state of its own.
pub(crate) struct Nvrtc {
    functions: Functions,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    /// 13.0 is `(13, 0)`.
    pub(crate) version: (i32, i32),
    /// The library.
    pub(crate) path: PathBuf,
    archs: Vec<u32>,
}

/// What to compile.
#[derive(Clone, Copy)]
pub(crate) struct Compilation<'a> {
    /// Stands for the source in messages.
    pub(crate) name: &'a str,
    /// The text.
    pub(crate) source: &'a str,
    /// Headers by the name under which they are included, and their text.
    pub(crate) headers: &'a [(&'a str, &'a str)],
    /// NVRTC's options.
    pub(crate) options: &'a [String],
    /// Kernels to make that the source does not instantiate itself, such as `scale<float>`.
    pub(crate) instances: &'a [&'a str],
    /// What to make of it.
    pub(crate) made: Product,
}

/// What NVRTC makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Product {
    /// Machine code, ready to load.
    Cubin,
    /// Relocatable LTO-IR, to be linked by nvJitLink.
    LtoIr,
}

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Output {
    /// In the form that was asked for.
    pub(crate) code: Vec<u8>,
    /// The instances' names in it.
    pub(crate) symbols: Vec<String>,
    /// Warnings.
    pub(crate) log: String,
}

impl Nvrtc {
    /// The NVRTC at `asked` (RUSHMEM_NVRTC: the library, or a folder that holds it), or else wherever there
    /// is one.
    pub(crate) fn load(asked: Option<&Path>) -> Result<Arc<Nvrtc>> {
        static LOADED: Mutex<Vec<(Option<PathBuf>, Arc<Nvrtc>)>> = Mutex::new(Vec::new());
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = loaded.iter().find(|(from, _)| from.as_deref() == asked) {
            return Ok(Arc::clone(known));
        }
        let nvrtc = search::first(&search::places(&NAMES, asked, None), Nvrtc::open).map_err(|looked| {
            err!(
                UNSUPPORTED,
                "NVRTC, which compiles kernels for GPUs, was not found: no {}{looked}. Install it (it is part of the CUDA \
                 toolkit, or `pip install nvidia-cuda-nvrtc`, 12.4 or newer) and set RUSHMEM_NVRTC to the path of \
                 libnvrtc.so",
                NAMES.join(", ")
            )
        })?;
        let nvrtc = Arc::new(nvrtc);
        loaded.push((asked.map(Path::to_owned), Arc::clone(&nvrtc)));
        Ok(nvrtc)
    }

    fn open(place: &Path) -> std::result::Result<Nvrtc, libloading::Error> {
        // SAFETY: NVIDIA's library, whose initialisers ask nothing of us.
        let library = unsafe { Library::open(Some(place), RTLD_NOW | RTLD_LOCAL) }?;
        // SAFETY: the library stays loaded (it is forgotten below).
        let functions = unsafe { Functions::of(&library) }?;
        // SAFETY: a function of this signature in NVIDIA's library, which stays loaded (it is forgotten
        // below).
        let error_string = unsafe { *library.get(b"nvrtcGetErrorString\0")? };
        let (mut major, mut minor, mut count) = (0, 0, 0);
        // SAFETY: each writes ints; the last one writes as many as the call before it has counted.
        let archs = unsafe {
            (functions.nvrtcVersion)(&mut major, &mut minor);
            (functions.nvrtcGetNumSupportedArchs)(&mut count);
            let mut archs: Vec<c_int> = vec![0; usize::try_from(count).unwrap_or(0)];
            (functions.nvrtcGetSupportedArchs)(archs.as_mut_ptr());
            archs.into_iter().filter_map(|arch| u32::try_from(arch).ok()).collect()
        };
        let path = search::path_of(functions.nvrtcVersion as *const std::ffi::c_void)
            .unwrap_or_else(|| place.to_owned());
        // NVRTC opens this one by its bare name when it compiles, which finds it only if it is loaded already
        // or on the loader's path. Where it is missing NVRTC says so itself.
        let builtins = path.with_file_name(format!("libnvrtc-builtins.so.{major}.{minor}"));
        // SAFETY: NVIDIA's library, whose initialisers ask nothing of us.
        if let Ok(builtins) = unsafe { Library::open(Some(&builtins), RTLD_NOW | RTLD_LOCAL) } {
            std::mem::forget(builtins);
        }
        std::mem::forget(library);
        Ok(Nvrtc { functions, error_string, version: (major, minor), path, archs })
    }

    /// Tells one NVRTC from another.
    pub(crate) fn stamp(&self) -> String {
        format!("nvrtc {}.{} {}", self.version.0, self.version.1, search::stamp(&self.path))
    }

    /// The target whose code runs on a GPU of that capability: its own, or the next lower of the same
    /// generation.
    pub(crate) fn target(&self, capability: (u32, u32)) -> Result<String> {
        let (major, minor) = capability;
        let fits = |arch: &&u32| **arch / 10 == major && **arch % 10 <= minor;
        self.archs.iter().filter(fits).max().map(|arch| format!("sm_{arch}")).ok_or_else(|| {
            let known: Vec<_> = self.archs.iter().map(|arch| format!("{}.{}", arch / 10, arch % 10)).collect();
            err!(
                UNSUPPORTED,
                "{} (NVRTC {}.{}) cannot compile for a GPU of compute capability {major}.{minor}: it knows {}; install \
                 another and set RUSHMEM_NVRTC to its path",
                self.path.display(),
                self.version.0,
                self.version.1,
                known.join(", ")
            )
        })
    }

    fn check(&self, what: &str, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: gives a constant string, also for codes that it does not know.
        let text = unsafe { (self.error_string)(code) };
        // SAFETY: a constant, terminated string.
        let text = if text.is_null() { c"" } else { unsafe { CStr::from_ptr(text) } };
        Err(err!(COMPILE, "{what}: {} ({code})", text.to_string_lossy()))
    }

    /// Compiles a source. A `COMPILE` error has the compiler's messages.
    pub(crate) fn compile(&self, job: &Compilation<'_>) -> Result<Output> {
        let f = &self.functions;
        let (source, name) = (c_string(job.source, job.name)?, c_string(job.name, "the source's name")?);
        let list = |texts: &mut dyn Iterator<Item = &str>, what: &str| {
            texts.map(|text| c_string(text, what)).collect::<Result<Vec<_>>>()
        };
        let names = list(&mut job.headers.iter().map(|h| h.0), "a header's name")?;
        let texts = list(&mut job.headers.iter().map(|h| h.1), "a header")?;
        let form = (job.made == Product::LtoIr).then_some("-dlto");
        let options = form.into_iter().chain(job.options.iter().map(String::as_str));
        let options = list(&mut { options }, "a compiler option")?;
        let instances = list(&mut job.instances.iter().copied(), "a kernel's name")?;
        let pointers = |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).collect::<Vec<_>>();

        let mut program = OwnedProgram { nvrtc: self, raw: null_mut() };
        let (headers, count) = (pointers(&texts), names.len() as c_int);
        let (to, source, called) = (&mut program.raw, source.as_ptr(), name.as_ptr());
        // SAFETY: strings and lists of them that live through the call, which copies them.
        let made = unsafe {
            (f.nvrtcCreateProgram)(to, source, called, count, headers.as_ptr(), pointers(&names).as_ptr())
        };
        self.check("nvrtcCreateProgram", made)?;
        for instance in &instances {
            // SAFETY: a program and a string that lives through the call.
            let added = unsafe { (f.nvrtcAddNameExpression)(program.raw, instance.as_ptr()) };
            self.check("nvrtcAddNameExpression", added)?;
        }
        // SAFETY: a program, and options that live through the call.
        let compiled = unsafe {
            (f.nvrtcCompileProgram)(program.raw, options.len() as c_int, pointers(&options).as_ptr())
        };
        let log = program.bytes(f.nvrtcGetProgramLogSize, f.nvrtcGetProgramLog, "nvrtcGetProgramLog")?;
        let log = String::from_utf8_lossy(&log).trim_end_matches(['\0', '\n']).to_owned();
        if compiled == COMPILATION {
            return Err(err!(COMPILE, "{} does not compile:\n{log}", job.name));
        }
        self.check("nvrtcCompileProgram", compiled).map_err(|e| {
            if log.is_empty() {
                e
            } else {
                Error::new(e.code, format!("{e}:\n{log}"))
            }
        })?;
        let code = match job.made {
            Product::Cubin => program.bytes(f.nvrtcGetCUBINSize, f.nvrtcGetCUBIN, "nvrtcGetCUBIN"),
            Product::LtoIr => program.bytes(f.nvrtcGetLTOIRSize, f.nvrtcGetLTOIR, "nvrtcGetLTOIR"),
        }?;
        if code.is_empty() {
            return Err(err!(
                COMPILE,
                "{}: no machine code was made: the options name no real architecture",
                job.name
            ));
        }
        let mut symbols = Vec::new();
        for instance in &instances {
            let mut at = std::ptr::null();
            // SAFETY: the string that was added above; writes a pointer that holds as long as the program.
            let named = unsafe { (f.nvrtcGetLoweredName)(program.raw, instance.as_ptr(), &mut at) };
            self.check("nvrtcGetLoweredName", named)?;
            // SAFETY: a terminated string that lives as long as the program.
            symbols.push(unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned());
        }
        Ok(Output { code, symbols, log })
    }
}

struct OwnedProgram<'a> {
    nvrtc: &'a Nvrtc,
    raw: Program,
}

impl OwnedProgram<'_> {
    fn bytes(
        &self,
        size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
        get: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
        what: &str,
    ) -> Result<Vec<u8>> {
        let mut len = 0;
        // SAFETY: a program; writes one number.
        self.nvrtc.check(what, unsafe { size(self.raw, &mut len) })?;
        let mut bytes = vec![0; len];
        // SAFETY: the buffer is as long as was asked for.
        self.nvrtc.check(what, unsafe { get(self.raw, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }
}

impl Drop for OwnedProgram<'_> {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: made by nvrtcCreateProgram, and used no more.
            unsafe { (self.nvrtc.functions.nvrtcDestroyProgram)(&mut self.raw) };
        }
    }
}

fn c_string(text: &str, what: &str) -> Result<CString> {
    CString::new(text).map_err(|_| err!(INVALID_ARGUMENT, "{what} holds a zero byte"))
}
