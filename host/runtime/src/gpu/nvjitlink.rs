//! nvJitLink, NVIDIA's linker as a library: makes machine code of what NVRTC compiled to LTO-IR and the
//! device library's LTO-IR, optimising over both. Found at run time and bound by hand, as NVRTC is
//! (`nvrtc.rs`).

use std::ffi::{c_char, c_int, c_uint, c_void, CString};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, PoisonError};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::search;
use crate::error::{err, Result};

/// File names, the newest first.
const NAMES: [&str; 3] = ["libnvJitLink.so.13", "libnvJitLink.so.12", "libnvJitLink.so"];

type LinkHandle = *mut c_void;

search::functions! {
    nvJitLinkVersion: fn(*mut c_uint, *mut c_uint);
    nvJitLinkCreate: fn(*mut LinkHandle, u32, *const *const c_char);
    nvJitLinkDestroy: fn(*mut LinkHandle);
    nvJitLinkAddData: fn(LinkHandle, c_int, *const c_void, usize, *const c_char);
    nvJitLinkComplete: fn(LinkHandle);
    nvJitLinkGetLinkedCubinSize: fn(LinkHandle, *mut usize);
    nvJitLinkGetLinkedCubin: fn(LinkHandle, *mut c_void);
    nvJitLinkGetErrorLogSize: fn(LinkHandle, *mut usize);
    nvJitLinkGetErrorLog: fn(LinkHandle, *mut c_char);
}

/// A loaded nvJitLink. Never unloaded: it keeps threads and state of its own.
pub(crate) struct NvJitLink {
    functions: Functions,
    /// 13.0 is `(13, 0)`.
    pub(crate) version: (i32, i32),
    /// The library.
    pub(crate) path: PathBuf,
}

/// What an input to a link is, by nvJitLink's numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LinkInput {
    /// LTO-IR for one architecture.
    LtoIr = 3,
    /// A fatbin.
    Fatbin = 4,
}

/// One input to a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input<'a> {
    pub(crate) kind: LinkInput,
    /// Stands for it in messages.
    pub(crate) name: &'a str,
    pub(crate) code: &'a [u8],
}

impl NvJitLink {
    /// The nvJitLink at `asked` (RUSHMEM_NVJITLINK: the library, or a folder that holds it), or else one
    /// beside the NVRTC whose code it is to link, or wherever there is one.
    pub(crate) fn load(asked: Option<&Path>, nvrtc: &Path) -> Result<Arc<NvJitLink>> {
        type Asked = (Option<PathBuf>, PathBuf);
        static LOADED: Mutex<Vec<(Asked, Arc<NvJitLink>)>> = Mutex::new(Vec::new());
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (asked.map(Path::to_owned), nvrtc.to_owned());
        if let Some((_, known)) = loaded.iter().find(|(from, _)| *from == key) {
            return Ok(Arc::clone(known));
        }
        let found = search::first(&search::places(&NAMES, asked, Some(nvrtc)), NvJitLink::open);
        let found = found.map_err(|looked| {
            err!(UNSUPPORTED, "nvJitLink was not found: no {}{looked}", NAMES.join(", "))
        })?;
        let found = Arc::new(found);
        loaded.push((key, Arc::clone(&found)));
        Ok(found)
    }

    fn open(place: &Path) -> std::result::Result<NvJitLink, libloading::Error> {
        // SAFETY: NVIDIA's library, whose initialisers ask nothing of us.
        let library = unsafe { Library::open(Some(place), RTLD_NOW | RTLD_LOCAL) }?;
        // SAFETY: the library stays loaded (it is forgotten below).
        let functions = unsafe { Functions::of(&library) }?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: writes two numbers.
        unsafe { (functions.nvJitLinkVersion)(&mut major, &mut minor) };
        std::mem::forget(library);
        let path = search::path_of(functions.nvJitLinkVersion as *const c_void);
        let number = |part: c_uint| i32::try_from(part).unwrap_or(0);
        Ok(NvJitLink {
            functions,
            version: (number(major), number(minor)),
            path: path.unwrap_or_else(|| place.to_owned()),
        })
    }

    /// Tells one nvJitLink from another.
    pub(crate) fn stamp(&self) -> String {
        format!("nvjitlink {}.{} {}", self.version.0, self.version.1, search::stamp(&self.path))
    }

    /// Links the inputs to a cubin.
    pub(crate) fn link(&self, options: &[String], inputs: &[Input<'_>]) -> Result<Vec<u8>> {
        let f = &self.functions;
        let c_string =
            |text: &str| CString::new(text).map_err(|_| err!(INVALID_ARGUMENT, "`{text}` holds a zero byte"));
        let options = options.iter().map(|option| c_string(option)).collect::<Result<Vec<_>>>()?;
        let pointers: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        let mut link = OwnedLink { of: self, raw: null_mut() };
        // SAFETY: options that live through the call; writes a handle.
        let made = unsafe { (f.nvJitLinkCreate)(&mut link.raw, pointers.len() as u32, pointers.as_ptr()) };
        link.check("nvJitLinkCreate", made)?;
        let names = inputs.iter().map(|input| c_string(input.name)).collect::<Result<Vec<_>>>()?;
        for (input, name) in inputs.iter().zip(&names) {
            let code = input.code;
            // SAFETY: a handle, and bytes and a name that live until the link is done.
            let added = unsafe {
                (f.nvJitLinkAddData)(
                    link.raw,
                    input.kind as c_int,
                    code.as_ptr().cast(),
                    code.len(),
                    name.as_ptr(),
                )
            };
            link.check("nvJitLinkAddData", added).map_err(|e| e.context(input.name))?;
        }
        // SAFETY: a handle.
        link.check("nvJitLinkComplete", unsafe { (f.nvJitLinkComplete)(link.raw) })?;
        let mut len = 0;
        // SAFETY: a completed link; writes one number.
        let sized = unsafe { (f.nvJitLinkGetLinkedCubinSize)(link.raw, &mut len) };
        link.check("nvJitLinkGetLinkedCubinSize", sized)?;
        let mut cubin = vec![0; len];
        // SAFETY: the buffer is as long as was asked for.
        let got = unsafe { (f.nvJitLinkGetLinkedCubin)(link.raw, cubin.as_mut_ptr().cast()) };
        link.check("nvJitLinkGetLinkedCubin", got)?;
        Ok(cubin)
    }
}

struct OwnedLink<'a> {
    of: &'a NvJitLink,
    raw: LinkHandle,
}

impl OwnedLink<'_> {
    fn check(&self, what: &str, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        Err(err!(COMPILE, "{what} ({}): error {code}{}", self.of.path.display(), self.log()))
    }

    /// What the linker says went wrong.
    fn log(&self) -> String {
        let (f, mut len) = (&self.of.functions, 0);
        // SAFETY: a handle; writes one number.
        if self.raw.is_null() || unsafe { (f.nvJitLinkGetErrorLogSize)(self.raw, &mut len) } != 0 {
            return String::new();
        }
        // A byte more, as it is not said whether the length has the closing zero.
        let mut log = vec![0; len + 1];
        // SAFETY: the buffer is longer than was asked for.
        unsafe { (f.nvJitLinkGetErrorLog)(self.raw, log.as_mut_ptr().cast()) };
        let text = String::from_utf8_lossy(&log).trim_matches(['\0', '\n', ' ']).to_owned();
        if text.is_empty() {
            text
        } else {
            format!(": {text}")
        }
    }
}

impl Drop for OwnedLink<'_> {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: made by nvJitLinkCreate, and used no more.
            unsafe { (self.of.functions.nvJitLinkDestroy)(&mut self.raw) };
        }
    }
}
