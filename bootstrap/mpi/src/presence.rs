//! Which ranks came, so that a timeout can name those that did not.
//!
//! MPI does not say who is missing from a collective. So a rank that has waited for a while announces itself
//! to all others once, in a small message; when its limit passes, the ranks that have not announced
//! themselves never came. In a call that goes well no such message is sent. What was sent is counted and
//! received before leaving in good order, so that the communicator is freed with nothing in flight.

use std::time::{Duration, Instant};

use mpi_sys::{self as ffi, MPI_Request};
use rushmem_bootstrap_abi::Result;

use crate::comm::Comm;
use crate::session::{check, Handle};

/// Tag of these messages, the only point-to-point ones on the communicator.
const TAG: i32 = 1;
/// With more ranks, announcing to all costs more than the names are worth.
const MOST_RANKS: u32 = 1024;
/// How long a rank listens before it accuses.
const LISTEN: Duration = Duration::from_millis(100);

/// What this rank has announced and seen.
pub(crate) struct Presence {
    /// By rank: the number of the last call that it is known to have entered; calls count from 1.
    seen: Vec<u64>,
    /// How many calls this rank has announced to the others.
    announced: u64,
    last_announced: u64,
    received: u64,
    sends: Vec<(Handle<*mut u64>, Vec<Handle<MPI_Request>>)>,
}

impl Presence {
    pub(crate) fn new(n_ranks: u32) -> Self {
        Presence {
            seen: vec![0; n_ranks as usize],
            announced: 0,
            last_announced: 0,
            received: 0,
            sends: Vec::new(),
        }
    }

    /// How long a call with `limit` may last before its ranks tell each other.
    pub(crate) fn patience(limit: Option<Duration>) -> Option<Duration> {
        limit.map(|limit| (limit / 4).min(Duration::from_secs(1)))
    }

    /// How many calls this rank has announced to every other rank.
    pub(crate) fn announced(&self) -> u64 {
        self.announced
    }

    /// Tells every other rank that this one has entered call `call`; once for each call.
    pub(crate) fn tell(&mut self, comm: &Comm, call: u64) -> Result<()> {
        if self.last_announced == call || comm.n_ranks > MOST_RANKS {
            return Ok(());
        }
        self.last_announced = call;
        self.announced += 1;
        // Leaked until `settle` sees the sends complete.
        let word = Handle::new(Box::into_raw(Box::new(call)));
        let (handle, me, n) = (comm.handle, comm.rank, comm.n_ranks);
        let requests = comm.session.call(move || {
            let mut requests = Vec::new();
            for rank in (0..n).filter(|&r| r != me) {
                // SAFETY: a constant of the C shim.
                let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
                // SAFETY: our communicator; the word lives until the request is complete.
                let code = unsafe {
                    let (from, byte) = (word.get().cast(), crate::comm::byte());
                    ffi::MPI_Isend(from, 8, byte, rank as i32, TAG, handle.get(), &mut request)
                };
                check(code, "MPI_Isend")?;
                requests.push(Handle::new(request));
            }
            Ok(requests)
        })?;
        self.sends.push((word, requests));
        Ok(())
    }

    /// Receives what has arrived; false if nothing had.
    fn receive(&mut self, comm: &Comm) -> Result<bool> {
        let handle = comm.handle;
        let seen = comm.session.call(move || {
            let mut seen = Vec::new();
            loop {
                let mut flag = 0;
                let mut status = std::mem::MaybeUninit::<ffi::MPI_Status>::zeroed();
                let mut call = 0u64;
                // SAFETY: our communicator, and buffers that outlive these calls, which are complete on
                // return.
                unsafe {
                    let any = ffi::RSMPI_ANY_SOURCE;
                    check(
                        ffi::MPI_Iprobe(any, TAG, handle.get(), &mut flag, status.as_mut_ptr()),
                        "MPI_Iprobe",
                    )?;
                    if flag == 0 {
                        return Ok(seen);
                    }
                    let from = status.assume_init().MPI_SOURCE;
                    let (to, byte, ignore) =
                        ((&raw mut call).cast(), crate::comm::byte(), ffi::RSMPI_STATUS_IGNORE);
                    check(ffi::MPI_Recv(to, 8, byte, from, TAG, handle.get(), ignore), "MPI_Recv")?;
                    seen.push((from as usize, call));
                }
            }
        })?;
        self.received += seen.len() as u64;
        for (rank, call) in &seen {
            self.seen[*rank] = self.seen[*rank].max(*call);
        }
        Ok(!seen.is_empty())
    }

    /// The other ranks that are not known to have entered call `call`, after listening for a moment; `None`
    /// in jobs too large for announcements.
    pub(crate) fn missing(&mut self, comm: &Comm, call: u64) -> Option<Vec<u32>> {
        if comm.n_ranks > MOST_RANKS {
            return None;
        }
        let begin = Instant::now();
        while begin.elapsed() < LISTEN {
            if !self.receive(comm).ok()? {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        Some((0..comm.n_ranks).filter(|&r| r != comm.rank && self.seen[r as usize] < call).collect())
    }

    /// Receives all that the others sent (`expected` messages in all) and completes what was sent; false if
    /// the limit passed first.
    pub(crate) fn settle(&mut self, comm: &Comm, expected: u64, limit: Option<Duration>) -> Result<bool> {
        let begin = Instant::now();
        loop {
            self.receive(comm)?;
            self.complete_sends(comm)?;
            if self.sends.is_empty() && self.received >= expected {
                return Ok(true);
            }
            if limit.is_some_and(|limit| begin.elapsed() >= limit) {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn complete_sends(&mut self, comm: &Comm) -> Result<()> {
        while let Some((word, requests)) = self.sends.last_mut() {
            while let Some(request) = requests.last().copied() {
                let done = comm.session.call(move || {
                    let (mut request, mut flag) = (request.get(), 0);
                    // SAFETY: a live request, forgotten once it is complete. A request that is not keeps its
                    // handle.
                    let code = unsafe { ffi::MPI_Test(&mut request, &mut flag, ffi::RSMPI_STATUS_IGNORE) };
                    check(code, "MPI_Test")?;
                    Ok(flag != 0)
                })?;
                if !done {
                    return Ok(());
                }
                requests.pop();
            }
            // SAFETY: from Box::into_raw in `tell`, and every send of it is complete.
            drop(unsafe { Box::from_raw(word.get()) });
            self.sends.pop();
        }
        Ok(())
    }
}
