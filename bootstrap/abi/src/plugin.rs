//! Between the trait and the C vtable, both ways: [`ForeignBootstrap`] makes a vtable a [`Bootstrap`], and
//! [`export`] makes a [`Bootstrap`] a vtable. A plug-in in Rust is its `Bootstrap` and one exported function
//! that calls [`plugin_main`]. Panics are caught on the exporting side and become errors; none crosses.

use std::any::Any;
use std::ffi::{c_char, c_void, CStr, CString};
use std::mem::size_of;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::Duration;

use crate::ffi::{BootstrapVtable, PluginArgs, PluginEntry, RawError, ERROR_TEXT_BYTES, OK};
use crate::{BootError, BootErrorKind, Bootstrap, Death, Result, ABI_VERSION};

/// The time limits of a plug-in's bootstrap; `None` waits for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Of one collective call.
    pub call: Option<Duration>,
    /// Of the start, until every rank is there.
    pub init: Option<Duration>,
}

fn to_ms(limit: Option<Duration>) -> u64 {
    // A limit below one millisecond must not turn into "none".
    limit.map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX).max(1))
}

fn from_ms(ms: u64) -> Option<Duration> {
    (ms != 0).then(|| Duration::from_millis(ms))
}

fn vtable_size() -> u32 {
    size_of::<BootstrapVtable>() as u32
}

impl RawError {
    /// No rank, no text.
    pub const fn empty() -> Self {
        RawError { rank: -1, text: [0; ERROR_TEXT_BYTES] }
    }

    /// Stores an error; a text that is too long is cut at a character.
    pub fn set(&mut self, rank: Option<u32>, message: &str) {
        self.rank = rank.map_or(-1, i64::from);
        let mut end = message.len().min(ERROR_TEXT_BYTES - 1);
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        // An inner NUL would end the text early for its reader.
        let bytes = message.as_bytes()[..end].iter().map(|&b| if b == 0 { b' ' } else { b });
        for (to, from) in self.text.iter_mut().zip(bytes) {
            *to = from as c_char;
        }
        self.text[end] = 0;
    }

    /// The text, up to its NUL or the end of the room.
    pub fn message(&self) -> String {
        let bytes: Vec<u8> = self.text.iter().map(|&c| c as u8).take_while(|&b| b != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The rank at fault.
    pub fn rank(&self) -> Option<u32> {
        u32::try_from(self.rank).ok()
    }

    fn into_error(self, code: i32) -> BootError {
        let mut message = self.message();
        if message.is_empty() {
            message = format!("the bootstrap plug-in failed with code {code} and said no more");
        }
        BootError { kind: BootErrorKind::from_code(code), rank: self.rank(), message }
    }
}

// ---- a vtable seen as a Bootstrap ---------------------------------------------------------------------------

/// A bootstrap that lives behind a vtable; destroys it on drop.
pub struct ForeignBootstrap {
    vtable: BootstrapVtable,
    name: String,
}

// SAFETY: the vtable's contract (ffi.rs) is that its functions may be called from any thread.
unsafe impl Send for ForeignBootstrap {}
// SAFETY: as above.
unsafe impl Sync for ForeignBootstrap {}

impl ForeignBootstrap {
    /// Takes `vtable` over. One of another version or size, or with a required function missing, is refused
    /// and left alone: what cannot be understood cannot be destroyed either.
    ///
    /// # Safety
    /// A vtable of this version keeps the contract of [`BootstrapVtable`], and nobody else uses it from now on.
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
    /// `entry` is a plug-in's `rushmem_bootstrap_plugin_v1`, its library stays loaded for as long as the result
    /// lives, and `comm` is null or what that plug-in documents.
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

fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).expect("its NULs were replaced")
}

// ---- a Bootstrap seen as a vtable ---------------------------------------------------------------------------

struct Exported {
    inner: Box<dyn Bootstrap>,
    name: CString,
}

/// A vtable over `inner`, which lives until the vtable's `destroy` is called.
pub fn export(inner: Box<dyn Bootstrap>) -> BootstrapVtable {
    let name = c_text(inner.name());
    let (rank, n_ranks) = (inner.rank(), inner.n_ranks());
    let exported = Box::new(Exported { inner, name });
    BootstrapVtable {
        abi_version: ABI_VERSION,
        struct_size: vtable_size(),
        name: exported.name.as_ptr(),
        ctx: Box::into_raw(exported).cast(),
        rank,
        n_ranks,
        allgather: Some(allgather),
        alltoall: Some(alltoall),
        barrier: Some(barrier),
        broadcast: Some(broadcast),
        death: Some(death),
        abort: Some(abort),
        finalize: Some(finalize),
        destroy: Some(destroy),
    }
}

/// The body of a Rust plug-in's entry point: checks what the caller speaks, calls `make` with the communicator
/// and the limits, and exports its result.
///
/// # Safety
/// `args` and `vtable` are what the entry point was given.
pub unsafe fn plugin_main(
    args: *const PluginArgs,
    vtable: *mut BootstrapVtable,
    make: impl FnOnce(*const c_void, Limits) -> Result<Box<dyn Bootstrap>>,
) -> i32 {
    // SAFETY: version and size are the first two words in every version of this struct.
    let (version, size) = unsafe { ((*args).abi_version, (*args).struct_size) };
    if version != ABI_VERSION || size as usize != size_of::<PluginArgs>() {
        // Where the caller's error text lies cannot be known; its own check of the code has to do.
        return BootErrorKind::Mismatch as i32;
    }
    // SAFETY: the caller's struct is ours.
    let args = unsafe { &*args };
    // SAFETY: never null by contract, and the caller waits for us.
    let error = unsafe { &mut *args.error };
    guarded(error, || {
        if args.vtable_size != vtable_size() {
            let text = format!(
                "the caller has room for a vtable of {} bytes, this plug-in's has {}: build both from one version of \
                 rushmem",
                args.vtable_size,
                vtable_size()
            );
            return Err(BootError::new(BootErrorKind::Mismatch, text));
        }
        let limits = Limits { call: from_ms(args.timeout_ms), init: from_ms(args.init_timeout_ms) };
        let made = export(make(args.comm, limits)?);
        // SAFETY: the caller has room for one, by the size just compared.
        unsafe { vtable.write(made) };
        Ok(())
    })
}

fn guarded(error: &mut RawError, f: impl FnOnce() -> Result<()>) -> i32 {
    let outcome = catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let text = format!("the bootstrap panicked: {}", panic_text(panic));
        Err(BootError::new(BootErrorKind::Internal, text))
    });
    match outcome {
        Ok(()) => OK,
        Err(e) => {
            error.set(e.rank, &e.message);
            e.kind as i32
        }
    }
}

fn panic_text(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| s.to_string());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    // Dropping a payload may run anybody's code, and panic again.
    std::mem::forget(panic);
    text.unwrap_or_else(|| "no text".to_owned())
}

/// One call of the vtable: `f` gets the bootstrap, its failure or panic lands in `error`.
///
/// # Safety
/// `ctx` came from [`export`] and was not destroyed; `error` is valid for writing.
unsafe fn with(ctx: *mut c_void, error: *mut RawError, f: impl FnOnce(&dyn Bootstrap) -> Result<()>) -> i32 {
    // SAFETY: the caller's promise.
    let (exported, error) = unsafe { (&*ctx.cast::<Exported>(), &mut *error) };
    guarded(error, || f(exported.inner.as_ref()))
}

/// `bytes` per rank, times the ranks.
fn total(bytes: usize, b: &dyn Bootstrap) -> Result<usize> {
    let n = b.n_ranks();
    bytes.checked_mul(n as usize).filter(|&t| t <= isize::MAX as usize).ok_or_else(|| {
        BootError::new(
            BootErrorKind::InvalidArgument,
            format!("{bytes} bytes for each of {n} ranks overflow"),
        )
    })
}

unsafe fn bytes_in<'a>(data: *const u8, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller of the vtable gave len readable bytes.
    unsafe { std::slice::from_raw_parts(data, len) }
}

unsafe fn bytes_out<'a>(data: *mut u8, len: usize) -> &'a mut [u8] {
    if len == 0 {
        return &mut [];
    }
    // SAFETY: the caller of the vtable gave len writable bytes that nobody else uses meanwhile.
    unsafe { std::slice::from_raw_parts_mut(data, len) }
}

unsafe extern "C" fn allgather(
    ctx: *mut c_void,
    input: *const u8,
    bytes: usize,
    out: *mut u8,
    error: *mut RawError,
) -> i32 {
    // SAFETY: the vtable's contract.
    unsafe { with(ctx, error, |b| b.allgather(bytes_in(input, bytes), bytes_out(out, total(bytes, b)?))) }
}

unsafe extern "C" fn alltoall(
    ctx: *mut c_void,
    input: *const u8,
    bytes: usize,
    out: *mut u8,
    error: *mut RawError,
) -> i32 {
    // SAFETY: the vtable's contract.
    unsafe {
        with(ctx, error, |b| {
            let all = total(bytes, b)?;
            b.alltoall(bytes_in(input, all), bytes_out(out, all))
        })
    }
}

unsafe extern "C" fn barrier(ctx: *mut c_void, error: *mut RawError) -> i32 {
    // SAFETY: the vtable's contract.
    unsafe { with(ctx, error, |b| b.barrier()) }
}

unsafe extern "C" fn broadcast(
    ctx: *mut c_void,
    buf: *mut u8,
    bytes: usize,
    root: u32,
    error: *mut RawError,
) -> i32 {
    // SAFETY: the vtable's contract.
    unsafe { with(ctx, error, |b| b.broadcast(bytes_out(buf, bytes), root)) }
}

unsafe extern "C" fn death(ctx: *mut c_void, what: *mut RawError) -> i32 {
    let mut found = None;
    // SAFETY: the vtable's contract.
    let code = unsafe {
        with(ctx, what, |b| {
            found = b.death();
            Ok(())
        })
    };
    match found {
        Some(death) if code == OK => {
            // SAFETY: valid for writing by contract; the borrow inside `with` has ended.
            unsafe { &mut *what }.set(Some(death.rank), &death.what);
            1
        }
        _ => 0,
    }
}

unsafe extern "C" fn abort(ctx: *mut c_void, why: *const c_char) {
    let mut nowhere = RawError::empty();
    // SAFETY: the vtable's contract; a panic in here has nobody to be told.
    unsafe {
        with(ctx, &mut nowhere, |b| {
            b.abort(&CStr::from_ptr(why).to_string_lossy());
            Ok(())
        });
    }
}

unsafe extern "C" fn finalize(ctx: *mut c_void, error: *mut RawError) -> i32 {
    // SAFETY: the vtable's contract.
    unsafe { with(ctx, error, |b| b.finalize()) }
}

unsafe extern "C" fn destroy(ctx: *mut c_void) {
    // SAFETY: came from Box::into_raw in `export`, and this is the last call.
    let exported = unsafe { Box::from_raw(ctx.cast::<Exported>()) };
    let mut nowhere = RawError::empty();
    guarded(&mut nowhere, || {
        drop(exported);
        Ok(())
    });
}
