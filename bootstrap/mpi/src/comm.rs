//! A communicator of our own, and nonblocking calls on it that are waited for with a limit.
//!
//! The communicator is duplicated so that our messages never meet the user's. MPI has no timeouts, and a
//! collective that was started cannot be taken back, so a wait that gives up leaves its buffers to MPI: they
//! are never freed, and the communicator counts as lost.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mpi_sys::{self as ffi, MPI_Comm, MPI_Datatype, MPI_Request};
use rushmem_bootstrap_abi::{BootError, BootErrorKind, Result};

use crate::session::{check, give_up, Handle, Session};

/// Naps between polls grow up to this.
const LONGEST_NAP: Duration = Duration::from_millis(1);
/// So many polls come before the first nap.
const POLLS_BEFORE_NAPPING: u32 = 64;

/// A duplicated communicator.
pub(crate) struct Comm {
    pub(crate) session: Session,
    pub(crate) handle: Handle<MPI_Comm>,
    pub(crate) rank: u32,
    pub(crate) n_ranks: u32,
    /// Set when ranks are out of step: nothing more may be started, and the communicator is not freed.
    lost: AtomicBool,
}

/// The datatype of everything here.
pub(crate) fn byte() -> MPI_Datatype {
    // SAFETY: a constant of the C shim.
    unsafe { ffi::RSMPI_UINT8_T }
}

impl Comm {
    /// Duplicates the communicator that `comm` points to, or `MPI_COMM_WORLD` if it is null.
    ///
    /// # Safety
    /// `comm` is null or points to a communicator of this MPI.
    pub(crate) unsafe fn duplicate(
        session: Session,
        comm: *const c_void,
        limit: Option<Duration>,
    ) -> Result<Comm> {
        let from = if comm.is_null() {
            // SAFETY: a constant of the C shim.
            unsafe { ffi::RSMPI_COMM_WORLD }
        } else {
            // SAFETY: not null, so the caller gives a communicator of this MPI.
            unsafe { comm.cast::<MPI_Comm>().read() }
        };
        // SAFETY: a constant of the C shim.
        if from == unsafe { ffi::RSMPI_COMM_NULL } {
            let text = "the communicator given is MPI_COMM_NULL";
            return Err(BootError::new(BootErrorKind::InvalidArgument, text));
        }
        let from = Handle::new(from);
        // MPI writes the new handle when the request completes, so it must not lie on this stack.
        // SAFETY: a constant of the C shim.
        let slot = Box::leak(Box::new(unsafe { ffi::RSMPI_COMM_NULL }));
        let slot_at = Handle::new(&raw mut *slot);
        let request = session.call(move || {
            let mut inter = 0;
            // SAFETY: a communicator by the caller's promise, MPI is up.
            check(unsafe { ffi::MPI_Comm_test_inter(from.get(), &mut inter) }, "MPI_Comm_test_inter")?;
            if inter != 0 {
                let text = "the communicator given is an inter-communicator; merge it first";
                return Err(BootError::new(BootErrorKind::InvalidArgument, text));
            }
            // SAFETY: a constant of the C shim.
            let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
            // SAFETY: the slot lives until freed below, after the request completed.
            let code = unsafe { ffi::MPI_Comm_idup(from.get(), slot_at.get(), &mut request) };
            check(code, "MPI_Comm_idup")?;
            Ok(Handle::new(request))
        })?;
        let never = AtomicBool::new(false);
        if !poll(&session, request, limit, &never, &mut |_| Ok(()))? {
            give_up();
            let text = format!(
                "duplicating the communicator did not end within {:.1} s: some of its ranks never came (MPI cannot say \
                 which)",
                limit.unwrap_or_default().as_secs_f64()
            );
            return Err(BootError::new(BootErrorKind::Timeout, text));
        }
        // SAFETY: leaked above, and the request that wrote to it is complete.
        let handle = Handle::new(*unsafe { Box::from_raw(slot_at.get()) });
        let (rank, n_ranks) = session.call(move || {
            let (mut rank, mut size) = (0, 0);
            // SAFETY: our own communicator.
            unsafe {
                ffi::MPI_Comm_set_errhandler(handle.get(), ffi::RSMPI_ERRORS_RETURN);
                check(ffi::MPI_Comm_rank(handle.get(), &mut rank), "MPI_Comm_rank")?;
                check(ffi::MPI_Comm_size(handle.get(), &mut size), "MPI_Comm_size")?;
            }
            Ok((rank as u32, size as u32))
        })?;
        Ok(Comm { session, handle, rank, n_ranks, lost: AtomicBool::new(false) })
    }

    /// From now on nothing works on this communicator; a wait in another thread ends. Never blocks.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
        give_up();
    }

    /// Starts a collective with `start(communicator, send, recv, &mut request)` and waits for it. False when
    /// the limit passed: then the buffers belong to MPI for good and the communicator is lost. `idle` runs
    /// between polls with the time waited so far.
    pub(crate) fn collective(
        &self,
        what: &'static str,
        send: Vec<u8>,
        recv: &mut Vec<u8>,
        limit: Option<Duration>,
        idle: &mut dyn FnMut(Duration) -> Result<()>,
        start: impl FnOnce(MPI_Comm, *const c_void, *mut c_void, *mut MPI_Request) -> i32 + Send,
    ) -> Result<bool> {
        self.check_usable()?;
        let mut send = std::mem::ManuallyDrop::new(send);
        let mut held = std::mem::ManuallyDrop::new(std::mem::take(recv));
        let (from, to) = (Handle::new(send.as_ptr()), Handle::new(held.as_mut_ptr()));
        let comm = self.handle;
        let request = self.session.call(move || {
            // SAFETY: a constant of the C shim.
            let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
            check(start(comm.get(), from.get().cast(), to.get().cast(), &mut request), what)?;
            Ok(Handle::new(request))
        });
        // Whatever fails from here on, ranks are out of step and MPI may still write to the buffers.
        let ended = request.and_then(|r| poll(&self.session, r, limit, &self.lost, idle));
        if matches!(ended, Ok(true)) {
            // SAFETY: the request is complete, so both are ours again; neither is used through its wrapper
            // any more.
            unsafe {
                std::mem::ManuallyDrop::drop(&mut send);
                *recv = std::mem::ManuallyDrop::take(&mut held);
            }
        } else {
            self.lose();
        }
        ended
    }

    fn check_usable(&self) -> Result<()> {
        if self.lost.load(Ordering::Acquire) {
            let text =
                "an earlier call on this MPI bootstrap gave up or was aborted, so it can no longer be used";
            return Err(BootError::new(BootErrorKind::Io, text));
        }
        Ok(())
    }
}

/// Polls `request` until it completes (true) or `limit` passes (false).
pub(crate) fn poll(
    session: &Session,
    request: Handle<MPI_Request>,
    limit: Option<Duration>,
    stop: &AtomicBool,
    idle: &mut dyn FnMut(Duration) -> Result<()>,
) -> Result<bool> {
    let begin = Instant::now();
    let mut request = request.get();
    let mut nap = Duration::from_micros(20);
    let mut polls = 0;
    loop {
        let at = Handle::new(&raw mut request);
        let done = session.call(move || {
            let mut flag = 0;
            // SAFETY: the request is live and this thread of control alone tests it; `at` points into our
            // caller's frame.
            check(unsafe { ffi::MPI_Test(at.get(), &mut flag, ffi::RSMPI_STATUS_IGNORE) }, "MPI_Test")?;
            Ok(flag != 0)
        })?;
        if done {
            return Ok(true);
        }
        let waited = begin.elapsed();
        if limit.is_some_and(|limit| waited >= limit) {
            return Ok(false);
        }
        if stop.load(Ordering::Acquire) {
            return Err(BootError::new(BootErrorKind::Io, "the MPI bootstrap was aborted during a call"));
        }
        idle(waited)?;
        if polls < POLLS_BEFORE_NAPPING {
            polls += 1;
            std::thread::yield_now();
        } else {
            std::thread::sleep(nap);
            nap = (nap * 2).min(LONGEST_NAP);
        }
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        if self.lost.load(Ordering::Acquire) {
            return;
        }
        let handle = self.handle;
        // Fails where MPI was finalised meanwhile; then there is nothing to free.
        let _ = self.session.call(move || {
            let mut comm = handle.get();
            // SAFETY: our own communicator with nothing in flight, freed once.
            check(unsafe { ffi::MPI_Comm_free(&mut comm) }, "MPI_Comm_free")
        });
    }
}
