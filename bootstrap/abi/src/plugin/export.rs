//! A bootstrap seen as a vtable: what a plug-in in Rust hands out. The C functions here check nothing that
//! the caller promised, catch every panic, and turn failures into codes and texts.

use std::any::Any;
use std::ffi::{c_char, c_void, CStr, CString};
use std::mem::size_of;
use std::panic::{catch_unwind, AssertUnwindSafe};

use crate::ffi::{BootstrapVtable, PluginArgs, RawError, OK};
use crate::{BootError, BootErrorKind, Bootstrap, Result, ABI_VERSION};

use super::{c_text, from_ms, vtable_size, Limits};

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

/// The body of a Rust plug-in's entry point: checks what the caller speaks, calls `make` with the
/// communicator and the limits, and exports its result.
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
    // SAFETY: the caller gives the pointer that `export` made, not destroyed yet, and an error that can be
    // written.
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

/// # Safety
/// `len` bytes at `data` can be read as long as the result lives.
unsafe fn bytes_in<'a>(data: *const u8, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller of the vtable gave len readable bytes.
    unsafe { std::slice::from_raw_parts(data, len) }
}

/// # Safety
/// `len` bytes at `data` can be written as long as the result lives, and nobody else uses them.
unsafe fn bytes_out<'a>(data: *mut u8, len: usize) -> &'a mut [u8] {
    if len == 0 {
        return &mut [];
    }
    // SAFETY: the caller of the vtable gave len writable bytes that nobody else uses meanwhile.
    unsafe { std::slice::from_raw_parts_mut(data, len) }
}

/// # Safety
/// Here and below: the arguments are what the vtable's contract asks of its caller.
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
    // SAFETY: the vtable's contract; nobody could report a panic in here.
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
