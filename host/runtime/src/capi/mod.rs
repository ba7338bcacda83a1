//! The C ABI: thin functions that check their arguments, call the runtime, and turn errors into codes.
//!
//! No panic crosses: `guard` catches it and reports a defect. A handle is never freed, only emptied, so a
//! stale one is an error and not a crash, as is a pointer that never was one ([`handles`](crate::handles)).

mod at_exit;
pub mod atomic;
pub mod collective;
pub mod context;
pub mod doctor;
pub mod gpu;
pub mod heap;
pub mod info;
pub mod kernel;
pub mod order;
pub mod rma;
pub mod signal;
pub mod stream;
pub mod strided;
pub mod team;
pub mod team_stream;
pub mod test;
pub mod wait;
pub mod world;

use std::any::Any;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::error::{err, set_last, Error, Result};
use crate::fork;
use crate::handles::Cell;
use crate::world::World;
use rushmem_abi::c::{rushmem_world_t, RUSHMEM_ERR_FORKED, RUSHMEM_ERR_INTERNAL, RUSHMEM_OK};

/// The functions are what `rushmem-abi` says of them, by which clients call them.
macro_rules! check_types {
    ($($family:ident { $(fn $name:ident = $symbol:ident ( $($arg:ty),* $(,)? ) -> $ret:ty;)* })*) => {
        const _: () = {
            use std::os::raw::{c_char, c_void};

            use rushmem_abi::c::*;

            $($(let _: unsafe extern "C" fn($($arg),*) -> $ret = $family::$symbol;)*)*
        };
    };
}
rushmem_abi::functions!(check_types);
rushmem_abi::functions_for_c!(check_types);

/// Runs the body of an ABI function: the code of its result, the text kept for `rushmem_last_error`. In a
/// child of fork it runs nothing. Inlined, so that a body whose operation is a constant keeps its arguments
/// in registers, and of the checks what that operation needs.
#[inline(always)]
pub(crate) fn guard(f: impl FnOnce() -> Result<()>) -> i32 {
    if fork::is_child() {
        // No log line and no text of its own: both take locks, which threads that the child does not have may
        // hold.
        return RUSHMEM_ERR_FORKED;
    }
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(())) => RUSHMEM_OK,
        Ok(Err(e)) => fail(&e),
        Err(panic) => panicked(&*panic),
    }
}

#[cold]
#[inline(never)]
fn panicked(panic: &(dyn Any + Send)) -> i32 {
    let text = panic.downcast_ref::<&str>().map(|s| s.to_string());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    fail(&Error::new(RUSHMEM_ERR_INTERNAL, format!("a defect in rushmem, please report it: {text}")))
}

#[cold]
fn fail(e: &Error) -> i32 {
    log::debug!("error {}: {}", e.code, e.message);
    set_last(&e.message);
    e.code
}

/// The world behind a handle, like [`world`], for a function whose first call in the process is logged at
/// debug level. The Rust API and kernels use mapped memory without such a call, so the log does not show it.
macro_rules! called {
    ($w:expr, $what:literal) => {
        called!($w, $what, -1)
    };
    ($w:expr, $what:literal, $pe:expr) => {{
        static TOLD: std::sync::Once = std::sync::Once::new();
        let found = world($w)?;
        if log::max_level() >= log::LevelFilter::Debug {
            TOLD.call_once(|| $crate::capi::first_use(found, $what, $pe));
        }
        found
    }};
}
use called;

#[cold]
fn first_use(w: &World, what: &str, pe: i32) {
    let who = w.health().who();
    match w.peer(pe) {
        Ok(peer) => {
            log::debug!("{who}: first {what}: PE {pe} is reached by {}", peer.transport.to_string_lossy())
        }
        Err(_) => log::debug!("{who}: first {what}"),
    }
}

/// What a `rushmem_world_t *` points at; empty once the world is finalised.
type WorldHandle = Cell<AtomicPtr<World>>;

const MARK: u64 = u64::from_le_bytes(*b"rushmemW");

/// Takes the world out of its handle, once.
pub(crate) fn empty(w: *mut rushmem_world_t) -> Option<Box<World>> {
    // SAFETY: only `handle` makes cells of this mark.
    let cell = unsafe { WorldHandle::find(w.cast(), MARK) }?;
    let world = cell.content.swap(null_mut(), Ordering::AcqRel);
    // SAFETY: the box made in `handle`, taken once.
    (!world.is_null()).then(|| unsafe { Box::from_raw(world) })
}

/// Wraps a world for C. The few bytes of the handle itself are never freed.
pub(crate) fn handle(world: World) -> Result<*mut rushmem_world_t> {
    let cell = Cell::make(MARK, AtomicPtr::default())?;
    cell.content.store(Box::into_raw(Box::new(world)), Ordering::Release);
    let handle = cell.as_raw();
    at_exit::note(handle);
    Ok(handle)
}

/// The world behind a handle; any other pointer is an error.
///
/// # Safety
/// Nobody finalises the world during the call.
#[inline(always)]
pub(crate) unsafe fn world<'a>(w: *mut rushmem_world_t) -> Result<&'a World> {
    // SAFETY: only `handle` makes cells of this mark.
    let found = unsafe { WorldHandle::find(w.cast(), MARK) }
        // SAFETY: the pointer is a live box's until `take` empties the handle.
        .and_then(|h| unsafe { h.content.load(Ordering::Acquire).as_ref() });
    found.ok_or_else(|| {
        err!(BAD_HANDLE, "not a world: the handle is null, was finalised, or was never made by rushmem_init")
    })
}

/// Takes the world out of its handle, which is stale from then on.
///
/// # Safety
/// Nobody finalises the world during the call.
pub(crate) unsafe fn take(w: *mut rushmem_world_t) -> Result<Box<World>> {
    // SAFETY: the caller lets nobody finalise the world during the call.
    unsafe { world(w)? };
    at_exit::forget(w);
    team::forget(w);
    empty(w).ok_or_else(|| err!(BAD_HANDLE, "the world was finalised by another thread"))
}

/// Refuses a null out-parameter.
pub(crate) fn check_out<T>(p: *mut T, what: &str) -> Result<*mut T> {
    if p.is_null() {
        return Err(err!(INVALID_ARGUMENT, "{what}, where the result goes, is null"));
    }
    Ok(p)
}

/// Writes an out-parameter.
///
/// # Safety
/// `out` is null or valid for a write.
pub(crate) unsafe fn write_out<T>(out: *mut T, value: T, name: &str) -> Result<()> {
    if out.is_null() {
        return Err(err!(INVALID_ARGUMENT, "{name} is null"));
    }
    // SAFETY: checked and per contract.
    unsafe { out.write(value) };
    Ok(())
}
