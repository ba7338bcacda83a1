//! A vtable seen as a bootstrap: what the runtime does with a loaded plug-in.

use std::ffi::{c_void, CStr};
use std::mem::size_of;

use crate::ffi::{BootstrapVtable, PluginArgs, PluginEntry, RawError, OK};
use crate::{BootError, BootErrorKind, Bootstrap, Death, Result, ABI_VERSION};

use super::{c_text, to_ms, vtable_size, Limits};

impl RawError {
    fn into_error(self, code: i32) -> BootError {
        let mut message = self.message();
        if message.is_empty() {
            message = format!("the bootstrap plug-in failed with code {code} and said no more");
        }
        BootError { kind: BootErrorKind::from_code(code), rank: self.rank(), message }
    }
}

/// A bootstrap that lives behind a vtable; destroys it on drop.
pub struct ForeignBootstrap {
    vtable: BootstrapVtable,
    name: String,
}

// SAFETY: the vtable's contract (ffi.rs) is that its functions may be called from any thread.
unsafe impl Send for ForeignBootstrap {}
// SAFETY: the vtable's functions may be called from several threads at once (ffi.rs).
unsafe impl Sync for ForeignBootstrap {}

impl ForeignBootstrap {
    /// Takes `vtable` over. One of another version or size, or with a required function missing, is refused
    /// and left alone: what cannot be understood cannot be destroyed either.
    ///
    /// # Safety
    /// A vtable of this version keeps the contract of [`BootstrapVtable`], and nobody else uses it from now
    /// on.
    pub unsafe fn new(vtable: BootstrapVtable) -> Result<Self> {
        let mismatch = |text| Err(BootError::new(BootErrorKind::Mismatch, text));
        if vtable.abi_version != ABI_VERSION || vtable.struct_size != vtable_size() {
            return mismatch(format!(
                "the bootstrap plug-in speaks version {} with a vtable of {} bytes, this runtime version {} with {} \
                 bytes: build both from one version of rushmem",
                vtable.abi_version,
                vtable.struct_size,
                ABI_VERSION,
                vtable_size()
            ));
        }
        let required = [
            ("allgather", vtable.allgather.is_some()),
            ("alltoall", vtable.alltoall.is_some()),
            ("barrier", vtable.barrier.is_some()),
            ("broadcast", vtable.broadcast.is_some()),
            ("finalize", vtable.finalize.is_some()),
            ("destroy", vtable.destroy.is_some()),
        ];
        if let Some((name, _)) = required.iter().find(|(_, there)| !there) {
            return mismatch(format!("the bootstrap plug-in's vtable has no {name}"));
        }
        if vtable.rank >= vtable.n_ranks {
            return mismatch(format!(
                "the bootstrap plug-in says rank {} of {}",
                vtable.rank, vtable.n_ranks
            ));
        }
        let name = if vtable.name.is_null() {
            "plug-in".to_owned()
        } else {
            // SAFETY: by contract NUL-terminated and valid until destroy.
            unsafe { CStr::from_ptr(vtable.name) }.to_string_lossy().into_owned()
        };
        Ok(ForeignBootstrap { vtable, name })
    }

    /// Calls a plug-in's entry point and takes over what it made. `comm` is handed on as it is.
    ///
    /// # Safety
    /// `entry` is a plug-in's `rushmem_bootstrap_plugin_v1`, its library stays loaded for as long as the
    /// result lives, and `comm` is null or what that plug-in documents.
    pub unsafe fn open(entry: PluginEntry, comm: *const c_void, limits: Limits) -> Result<Self> {
        let mut error = RawError::empty();
        let args = PluginArgs {
            abi_version: ABI_VERSION,
            struct_size: size_of::<PluginArgs>() as u32,
            vtable_size: vtable_size(),
            reserved: 0,
            comm,
            timeout_ms: to_ms(limits.call),
            init_timeout_ms: to_ms(limits.init),
            error: &mut error,
        };
        let mut vtable = BootstrapVtable {
            abi_version: 0,
            struct_size: 0,
            ctx: std::ptr::null_mut(),
            name: std::ptr::null(),
            rank: 0,
            n_ranks: 0,
            allgather: None,
            alltoall: None,
            barrier: None,
            broadcast: None,
            death: None,
            abort: None,
            finalize: None,
            destroy: None,
        };
        // SAFETY: both structs are complete and live across the call; the rest is the caller's promise.
        let code = unsafe { entry(&args, &mut vtable) };
        if code != OK {
            return Err(error.into_error(code));
        }
        // SAFETY: the plug-in filled it for us alone.
        unsafe { Self::new(vtable) }
    }

    fn call(&self, f: impl FnOnce(&BootstrapVtable, *mut RawError) -> Option<i32>) -> Result<()> {
        let mut error = RawError::empty();
        match f(&self.vtable, &mut error).expect("checked when the vtable was taken over") {
            OK => Ok(()),
            code => Err(error.into_error(code)),
        }
    }

    fn check_size(&self, what: &str, got: usize, want: Option<usize>) -> Result<()> {
        if want == Some(got) {
            return Ok(());
        }
        let want = want.map_or("more than memory can hold".to_owned(), |w| w.to_string());
        let text =
            format!("{what}: the output has {got} bytes, needed are {want} ({} ranks)", self.vtable.n_ranks);
        Err(BootError::new(BootErrorKind::InvalidArgument, text))
    }
}

impl Bootstrap for ForeignBootstrap {
    fn name(&self) -> &str {
        &self.name
    }

    fn rank(&self) -> u32 {
        self.vtable.rank
    }

    fn n_ranks(&self) -> u32 {
        self.vtable.n_ranks
    }

    fn allgather(&self, input: &[u8], out: &mut [u8]) -> Result<()> {
        self.check_size("allgather", out.len(), input.len().checked_mul(self.vtable.n_ranks as usize))?;
        let (from, bytes, to) = (input.as_ptr(), input.len(), out.as_mut_ptr());
        // SAFETY: the sizes were checked; ctx is live until drop.
        self.call(|v, e| v.allgather.map(|f| unsafe { f(v.ctx, from, bytes, to, e) }))
    }

    fn alltoall(&self, input: &[u8], out: &mut [u8]) -> Result<()> {
        self.check_size("alltoall", out.len(), Some(input.len()))?;
        let n = self.vtable.n_ranks as usize;
        if input.len() % n != 0 {
            let text = format!("alltoall: {} bytes do not divide into blocks for {n} ranks", input.len());
            return Err(BootError::new(BootErrorKind::InvalidArgument, text));
        }
        let (from, bytes, to) = (input.as_ptr(), input.len() / n, out.as_mut_ptr());
        // SAFETY: the sizes were checked; ctx is live until drop.
        self.call(|v, e| v.alltoall.map(|f| unsafe { f(v.ctx, from, bytes, to, e) }))
    }

    fn barrier(&self) -> Result<()> {
        // SAFETY: ctx is live until drop.
        self.call(|v, e| v.barrier.map(|f| unsafe { f(v.ctx, e) }))
    }

    fn broadcast(&self, buf: &mut [u8], root: u32) -> Result<()> {
        let (data, bytes) = (buf.as_mut_ptr(), buf.len());
        // SAFETY: data and bytes are one slice; ctx is live until drop.
        self.call(|v, e| v.broadcast.map(|f| unsafe { f(v.ctx, data, bytes, root, e) }))
    }

    fn death(&self) -> Option<Death> {
        let mut what = RawError::empty();
        // SAFETY: ctx is live until drop.
        let dead = unsafe { self.vtable.death?(self.vtable.ctx, &mut what) };
        (dead == 1).then(|| Death { rank: what.rank().unwrap_or(u32::MAX), what: what.message() })
    }

    fn abort(&self, why: &str) {
        if let Some(abort) = self.vtable.abort {
            let why = c_text(why);
            // SAFETY: ctx is live until drop; why is NUL-terminated.
            unsafe { abort(self.vtable.ctx, why.as_ptr()) }
        }
    }

    fn finalize(&self) -> Result<()> {
        // SAFETY: ctx is live until drop.
        self.call(|v, e| v.finalize.map(|f| unsafe { f(v.ctx, e) }))
    }
}

impl Drop for ForeignBootstrap {
    fn drop(&mut self) {
        if let Some(destroy) = self.vtable.destroy {
            // SAFETY: the last call, once.
            unsafe { destroy(self.vtable.ctx) }
        }
    }
}
