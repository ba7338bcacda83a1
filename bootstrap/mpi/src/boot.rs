//! The collectives of [`Bootstrap`] over MPI.
//!
//! Every call begins with an allgather of a small header (which call, how many bytes, which root). Through it
//! every call waits for all ranks, ranks that disagree are found before any data moves, and a missing rank is
//! named. The data follows in pieces, so that counts stay within an `int` and the copies that MPI may keep
//! after a timeout stay small.

use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mpi_sys as ffi;
use rushmem_bootstrap_abi::plugin::Limits;
use rushmem_bootstrap_abi::{BootError, BootErrorKind, Bootstrap, Result};

use crate::comm::{byte, Comm};
use crate::presence::Presence;
use crate::session::Session;

/// A piece holds at most about this many bytes over all ranks, however large the blobs.
const PIECE_BYTES: usize = 16 << 20;
/// A piece holds at least this much of one rank's block.
const LEAST_PIECE: usize = 4096;
/// A header: three words.
const HEADER_BYTES: usize = 24;
/// An error names at most this many ranks.
const MOST_NAMES: usize = 16;

/// The bootstrap.
pub(crate) struct MpiBootstrap {
    rank: u32,
    n_ranks: u32,
    limit: Option<Duration>,
    comm: Comm,
    state: Mutex<State>,
}

/// What one call at a time may use.
struct State {
    /// Number of the last call; calls count from 1.
    calls: u64,
    presence: Presence,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    op: u64,
    bytes: u64,
    root: u64,
}

/// The calls, as headers and messages name them.
const OPS: [&str; 5] = ["allgather", "alltoall", "barrier", "broadcast", "finalize"];
const ALLGATHER: u64 = 0;
const ALLTOALL: u64 = 1;
const BARRIER: u64 = 2;
const BROADCAST: u64 = 3;
const FINALIZE: u64 = 4;

impl Header {
    fn name(&self) -> &'static str {
        OPS.get(self.op as usize).copied().unwrap_or("an unknown call")
    }

    fn describe(&self) -> String {
        match self.op {
            ALLGATHER | ALLTOALL => format!("{} of {} bytes", self.name(), self.bytes),
            BROADCAST => format!("broadcast of {} bytes from rank {}", self.bytes, self.root),
            _ => self.name().to_owned(),
        }
    }

    fn encode(&self) -> Vec<u8> {
        [self.op, self.bytes, self.root].iter().flat_map(|w| w.to_ne_bytes()).collect()
    }

    fn decode(bytes: &[u8]) -> Header {
        let word = |i: usize| u64::from_ne_bytes(bytes[8 * i..][..8].try_into().expect("eight bytes"));
        Header { op: word(0), bytes: word(1), root: word(2) }
    }
}

fn invalid<T>(text: String) -> Result<T> {
    Err(BootError::new(BootErrorKind::InvalidArgument, text))
}

fn seconds(limit: Option<Duration>) -> f64 {
    limit.unwrap_or_default().as_secs_f64()
}

impl MpiBootstrap {
    /// Joins the other ranks of `comm` (null: `MPI_COMM_WORLD`). Collective.
    ///
    /// # Safety
    /// `comm` is null or points to a communicator of this MPI.
    pub(crate) unsafe fn start(comm: *const c_void, limits: Limits) -> Result<MpiBootstrap> {
        let session = Session::start(!comm.is_null(), limits.init)?;
        // SAFETY: the caller gives null or a communicator of this MPI.
        let comm = unsafe { Comm::duplicate(session, comm, limits.init)? };
        let (rank, n_ranks) = (comm.rank, comm.n_ranks);
        log_debug(&comm);
        let state = Mutex::new(State { calls: 0, presence: Presence::new(n_ranks) });
        Ok(MpiBootstrap { rank, n_ranks, limit: limits.call, comm, state })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic in the middle of a call has lost the communicator, which the next call notices.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until every rank has entered this call and compares what they think it is.
    fn meet(&self, state: &mut State, header: Header) -> Result<()> {
        state.calls += 1;
        let call = state.calls;
        let mut all = vec![0; HEADER_BYTES * self.n_ranks as usize];
        let patience = Presence::patience(self.limit);
        let presence = &mut state.presence;
        let mut idle = |waited: Duration| match patience {
            Some(patience) if waited >= patience => presence.tell(&self.comm, call),
            _ => Ok(()),
        };
        let count = HEADER_BYTES as i32;
        let came = self.comm.collective(
            "MPI_Iallgather",
            header.encode(),
            &mut all,
            self.limit,
            &mut idle,
            // SAFETY: `collective` hands live buffers of the sizes given above.
            move |comm, from, to, request| unsafe {
                ffi::MPI_Iallgather(from, count, byte(), to, count, byte(), comm, request)
            },
        )?;
        if !came {
            return Err(self.never_came(state, header, call));
        }
        for (rank, theirs) in all.chunks_exact(HEADER_BYTES).enumerate() {
            let theirs = Header::decode(theirs);
            if theirs != header {
                let text = format!(
                    "ranks disagree: rank {rank} calls {}, rank {} calls {}",
                    theirs.describe(),
                    self.rank,
                    header.describe()
                );
                return Err(BootError::new(BootErrorKind::Mismatch, text).with_rank(rank as u32));
            }
        }
        Ok(())
    }

    fn never_came(&self, state: &mut State, header: Header, call: u64) -> BootError {
        let missing = state.presence.missing(&self.comm, call).unwrap_or_default();
        let names: Vec<String> = missing.iter().take(MOST_NAMES).map(u32::to_string).collect();
        let more = missing.len().saturating_sub(MOST_NAMES);
        let who = match (missing.len(), more) {
            (0, _) => "a rank that MPI cannot name".to_owned(),
            (1, _) => format!("rank {}", names[0]),
            (_, 0) => format!("ranks {}", names.join(", ")),
            _ => format!("ranks {} and {more} more", names.join(", ")),
        };
        let text = format!(
            "{}: {who} of {} never came within {:.1} s; look there for what went wrong",
            header.describe(),
            self.n_ranks,
            seconds(self.limit)
        );
        let error = BootError::new(BootErrorKind::Timeout, text);
        match missing.first() {
            Some(&rank) => error.with_rank(rank),
            None => error,
        }
    }

    /// One collective on the data, once all ranks have come.
    fn data(
        &self,
        what: &'static str,
        send: Vec<u8>,
        recv: &mut Vec<u8>,
        start: impl FnOnce(ffi::MPI_Comm, *const c_void, *mut c_void, *mut ffi::MPI_Request) -> i32 + Send,
    ) -> Result<()> {
        if self.comm.collective(what, send, recv, self.limit, &mut |_| Ok(()), start)? {
            return Ok(());
        }
        let text = format!(
            "{what}: every rank came, but the data did not within {:.1} s: a rank died or is stuck",
            seconds(self.limit)
        );
        Err(BootError::new(BootErrorKind::Timeout, text))
    }

    /// The pieces, as (offset, length), of a block of `bytes` of which `copies` travel at once.
    fn pieces(bytes: usize, copies: usize) -> impl Iterator<Item = (usize, usize)> {
        let piece = (PIECE_BYTES / copies).max(LEAST_PIECE);
        (0..bytes).step_by(piece).map(move |at| (at, piece.min(bytes - at)))
    }
}

impl Bootstrap for MpiBootstrap {
    fn name(&self) -> &str {
        "mpi"
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn n_ranks(&self) -> u32 {
        self.n_ranks
    }

    fn allgather(&self, input: &[u8], out: &mut [u8]) -> Result<()> {
        let (bytes, n) = (input.len(), self.n_ranks as usize);
        if Some(out.len()) != bytes.checked_mul(n) {
            return invalid(format!(
                "allgather of {bytes} bytes on {n} ranks: the output has {} bytes",
                out.len()
            ));
        }
        let mut state = self.state();
        self.meet(&mut state, Header { op: ALLGATHER, bytes: bytes as u64, root: 0 })?;
        for (at, len) in Self::pieces(bytes, n) {
            let mut recv = vec![0; len * n];
            let count = len as i32;
            let start = move |comm, from, to, request: *mut _| {
                // SAFETY: `collective` hands live buffers of `len` and `len * n` bytes.
                unsafe { ffi::MPI_Iallgather(from, count, byte(), to, count, byte(), comm, request) }
            };
            self.data("MPI_Iallgather", input[at..at + len].to_vec(), &mut recv, start)?;
            for (block, piece) in out.chunks_exact_mut(bytes).zip(recv.chunks_exact(len)) {
                block[at..at + len].copy_from_slice(piece);
            }
        }
        Ok(())
    }

    fn alltoall(&self, input: &[u8], out: &mut [u8]) -> Result<()> {
        let n = self.n_ranks as usize;
        if input.len() != out.len() || input.len() % n != 0 {
            let (i, o) = (input.len(), out.len());
            return invalid(format!(
                "alltoall of {i} to {o} bytes: both must hold a block for each of {n} ranks"
            ));
        }
        let bytes = input.len() / n;
        let mut state = self.state();
        self.meet(&mut state, Header { op: ALLTOALL, bytes: bytes as u64, root: 0 })?;
        for (at, len) in Self::pieces(bytes, n) {
            let send = input.chunks_exact(bytes).flat_map(|block| &block[at..at + len]).copied().collect();
            let mut recv = vec![0; len * n];
            let count = len as i32;
            let start = move |comm, from, to, request: *mut _| {
                // SAFETY: `collective` hands live buffers of `len * n` bytes each.
                unsafe { ffi::MPI_Ialltoall(from, count, byte(), to, count, byte(), comm, request) }
            };
            self.data("MPI_Ialltoall", send, &mut recv, start)?;
            for (block, piece) in out.chunks_exact_mut(bytes).zip(recv.chunks_exact(len)) {
                block[at..at + len].copy_from_slice(piece);
            }
        }
        Ok(())
    }

    fn barrier(&self) -> Result<()> {
        let mut state = self.state();
        self.meet(&mut state, Header { op: BARRIER, bytes: 0, root: 0 })
    }

    fn broadcast(&self, buf: &mut [u8], root: u32) -> Result<()> {
        if root >= self.n_ranks {
            return invalid(format!("broadcast from rank {root}: there are ranks 0 to {}", self.n_ranks - 1));
        }
        let mut state = self.state();
        self.meet(&mut state, Header { op: BROADCAST, bytes: buf.len() as u64, root: root.into() })?;
        for (at, len) in Self::pieces(buf.len(), 1) {
            let mut piece = buf[at..at + len].to_vec();
            let start = move |comm, _from, to, request: *mut _| {
                // SAFETY: `collective` hands a live buffer of `len` bytes.
                unsafe { ffi::MPI_Ibcast(to, len as i32, byte(), root as i32, comm, request) }
            };
            self.data("MPI_Ibcast", Vec::new(), &mut piece, start)?;
            buf[at..at + len].copy_from_slice(&piece);
        }
        Ok(())
    }

    /// Only keeps this rank from waiting for the others any more: MPI's own way to tell them, `MPI_Abort`,
    /// would end this process on the spot. mpirun ends the job when a process leaves without `MPI_Finalize`.
    fn abort(&self, _why: &str) {
        self.comm.lose();
    }

    fn finalize(&self) -> Result<()> {
        let mut state = self.state();
        self.meet(&mut state, Header { op: FINALIZE, bytes: 0, root: 0 })?;
        // All ranks are here, so none announces itself any more and the counts are final.
        let announced = state.presence.announced();
        let mut all = vec![0; 8 * self.n_ranks as usize];
        // SAFETY: `collective` hands live buffers of 8 and 8 * n bytes.
        let start = |comm, from, to, request: *mut _| unsafe {
            ffi::MPI_Iallgather(from, 8, byte(), to, 8, byte(), comm, request)
        };
        self.data("MPI_Iallgather", announced.to_ne_bytes().to_vec(), &mut all, start)?;
        let sum: u64 =
            all.chunks_exact(8).map(|w| u64::from_ne_bytes(w.try_into().expect("eight bytes"))).sum();
        if state.presence.settle(&self.comm, sum - announced, self.limit)? {
            return Ok(());
        }
        self.comm.lose();
        let text = "finalize: messages that other ranks sent did not arrive: a rank died or is stuck";
        Err(BootError::new(BootErrorKind::Timeout, text))
    }
}

/// One line on stderr when `RUSHMEM_LOG` asks for it; the runtime's logger does not reach into a plug-in.
fn log_debug(comm: &Comm) {
    if !std::env::var("RUSHMEM_LOG")
        .is_ok_and(|v| matches!(v.to_ascii_lowercase().as_str(), "debug" | "trace"))
    {
        return;
    }
    let mut version = vec![0u8; ffi::MPI_MAX_LIBRARY_VERSION_STRING as usize + 1];
    let mut len = 0;
    // SAFETY: the buffer has the size that MPI demands; any thread may ask at any time.
    unsafe { ffi::MPI_Get_library_version(version.as_mut_ptr().cast(), &mut len) };
    version.truncate(usize::try_from(len).unwrap_or(0));
    let version = String::from_utf8_lossy(&version);
    eprintln!(
        "rushmem [debug] MPI bootstrap: rank {} of {}, {}, initialised by {}, {}",
        comm.rank,
        comm.n_ranks,
        comm.session.level_name(),
        if comm.session.is_ours() { "rushmem" } else { "the program" },
        version.lines().next().unwrap_or_default().trim()
    );
}
