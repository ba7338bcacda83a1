//! Where a job meets: a listener and one thread in the process that made the unique ID (a PE, a launcher) or
//! in rank 0 when the job meets at a known address. It lives from the making of the ID until every rank is
//! connected with its neighbours, then its thread and sockets end; a launcher's stands for as long as the
//! job, because its PEs have one ID in their environment for all the worlds that they begin.

mod job;
mod server;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use nix::sys::eventfd::{EfdFlags, EventFd};
use rushmem_bootstrap_abi::{BootError, BootErrorKind, Result};
use socket2::Socket;

use crate::auth::Key;
use crate::endpoint::Address;
use crate::local::LocalName;
use crate::net;
use crate::uid::Uid;

/// Keeps the rendezvous of one job. Dropping it ends the rendezvous: at once when the ranks are not all there
/// (those that came get an error), or after the last messages are out.
#[must_use = "dropping the handle ends the rendezvous"]
#[derive(Debug)]
pub struct RendezvousHandle {
    addr: Address,
    stop: Arc<EventFd>,
    absences: Arc<Absences>,
    joined: Arc<AtomicU32>,
    thread: Option<JoinHandle<()>>,
}

/// What the owner of the handle says meanwhile: ranks that will not come any more.
#[derive(Debug)]
struct Absences {
    absent: Mutex<Vec<(u32, job::Absent)>>,
    said: EventFd,
}

impl Absences {
    fn say(&self, rank: u32, absent: job::Absent) {
        self.absent.lock().unwrap_or_else(PoisonError::into_inner).push((rank, absent));
        let _ = self.said.write(1); // fails only when the counter is full, and then it is awake
    }

    fn take(&self) -> Vec<(u32, job::Absent)> {
        std::mem::take(&mut self.absent.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Uid {
    /// Makes a unique ID and opens its rendezvous in this process. `ifname` as [`crate::interface_from_env`];
    /// `None` takes the first interface that is up and not loopback, else loopback.
    ///
    /// # Errors
    /// `Environment` when `ifname` matches nothing, `Io` when no listener or thread can be made.
    pub fn create(ifname: Option<&str>) -> Result<(Uid, RendezvousHandle)> {
        Uid::make(Address::Net(net::local_address(ifname, None)?), false)
    }

    /// As [`Uid::create`], for launchers: when all ranks are connected the rendezvous waits for them to come
    /// again, so that a program may begin one world after another, until the handle is dropped.
    ///
    /// # Errors
    /// As [`Uid::create`].
    pub fn create_standing(ifname: Option<&str>) -> Result<(Uid, RendezvousHandle)> {
        Uid::make(Address::Net(net::local_address(ifname, None)?), true)
    }

    /// As [`Uid::create_standing`], for a job whose ranks are all on this host, in this network namespace and
    /// of this user: they meet, and stay connected, over local sockets that nobody else can use.
    ///
    /// # Errors
    /// As [`Uid::create`].
    pub fn create_standing_local() -> Result<(Uid, RendezvousHandle)> {
        Uid::make(Address::Local(LocalName::random()?), true)
    }

    fn make(at: Address, standing: bool) -> Result<(Uid, RendezvousHandle)> {
        net::raise_file_limit();
        let (listener, at) = at.listen().map_err(|e| {
            BootError::new(
                BootErrorKind::Io,
                format!(
                    "no rendezvous can listen at {at}: {e}; choose another interface with {}",
                    net::IFNAME_VARIABLE
                ),
            )
        })?;
        let uid = Uid::new(at)?;
        let handle = open(listener, at, uid.key(), standing)?;
        log::debug!("rushmem uid: job {} meets at {}", uid.job(), uid.addr());
        Ok((uid, handle))
    }
}

/// Starts a rendezvous on `listener`; a `standing` one serves world after world.
pub(crate) fn open(listener: Socket, addr: Address, key: Key, standing: bool) -> Result<RendezvousHandle> {
    let failed = |e: std::io::Error| net::no_thread("the rendezvous cannot be set up in this process", &e);
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    let stop = Arc::new(EventFd::from_flags(flags).map_err(|e| failed(e.into()))?);
    let said = EventFd::from_flags(flags).map_err(|e| failed(e.into()))?;
    let absences = Arc::new(Absences { absent: Mutex::new(Vec::new()), said });
    let joined = Arc::new(AtomicU32::new(0));
    let mut server = server::Server::new(listener, addr, key, stop.clone(), absences.clone(), joined.clone())
        .map_err(failed)?;
    server.standing = standing;
    let thread = std::thread::Builder::new()
        .name("rushmem-uid-rdv".into())
        .stack_size(512 * 1024)
        .spawn(move || server.run())
        .map_err(failed)?;
    Ok(RendezvousHandle { addr, stop, absences, joined, thread: Some(thread) })
}

impl RendezvousHandle {
    /// Where it listens.
    pub fn addr(&self) -> Address {
        self.addr
    }

    /// How many ranks have come so far.
    pub fn joined(&self) -> u32 {
        self.joined.load(Ordering::Relaxed)
    }

    /// Rank `rank` of `n` will not come any more: its process has ended, say. Ranks that wait for it, now or
    /// later, fail with `why` instead of waiting until their limit.
    pub fn will_not_come(&self, rank: u32, n: u32, why: String) {
        self.absences.say(rank, job::Absent { n, why });
    }

    /// Whether its work is done (or has failed) and its thread has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(|t| t.is_finished())
    }

    /// Lets it run on by itself: it ends when all ranks are connected, when the job fails, or with the
    /// process.
    pub fn detach(mut self) {
        self.thread = None;
    }
}

impl Drop for RendezvousHandle {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = self.stop.write(1); // fails only when the counter is full, and then it is awake
            let _ = thread.join(); // a panic in there has been printed
        }
    }
}
