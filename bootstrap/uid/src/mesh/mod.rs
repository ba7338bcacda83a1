//! The connections of one rank with its neighbours (`rank ± 2^k`) and what runs over them: data of
//! collectives, reports of deaths and of disagreements, passed on from neighbour to neighbour, each once.
//!
//! An idle link stays idle: no heartbeats. A killed process' sockets are closed by its kernel, which every
//! neighbour sees at once; a host that vanishes is noticed by its kernel's silence (`silence`).

pub(crate) mod exchange;
pub(crate) mod frame;
mod io;
pub(crate) mod silence;
pub(crate) mod state;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::eventfd::{EfdFlags, EventFd};
use rushmem_bootstrap_abi::{BootError, Result};

use crate::connect::Connected;
use crate::net;
use silence::Silence;
use state::State;

/// What the callers of one rank and its I/O thread share.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Something changed that a caller may wait for.
    changed: Condvar,
    /// Wakes the I/O thread.
    wake: EventFd,
    /// Mirrors `state.death.is_some()`, without the lock.
    dead: AtomicBool,
    silenced: AtomicBool,
    me: u32,
    n_ranks: u32,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while holding the lock leaves plain data; going on beats taking the whole process down.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Wakes the callers after a change.
    fn publish(&self, state: &State) {
        if state.death.is_some() {
            self.dead.store(true, Ordering::Release);
        }
        self.changed.notify_all();
    }

    /// How long a leaving rank may take: in a broken job no answer is worth a wait.
    fn farewell(&self, state: &State, usual: Duration) -> Duration {
        if state.death.is_some() {
            usual.min(Duration::from_millis(300))
        } else {
            usual
        }
    }

    /// All last words are with the kernel.
    fn said_goodbye(&self) {
        self.silenced.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    fn wake_io(&self) {
        let _ = self.wake.write(1); // fails only when the counter is full, and then it is awake
    }
}

/// One rank's part of the mesh.
pub(crate) struct Mesh {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Mesh {
    /// Takes over the links and starts the I/O thread (none for a job of one rank). Hosts may be silent for
    /// `silence`, which was set on the links.
    pub(crate) fn start(
        me: u32,
        n_ranks: u32,
        links: Vec<Connected>,
        silence: Option<Duration>,
    ) -> Result<Mesh> {
        let failed = |e: std::io::Error| {
            if net::is_short_of_files(&e) {
                return net::short_of_files(me);
            }
            net::no_thread(format_args!("rank {me} cannot start its I/O thread"), &e)
        };
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = EventFd::from_flags(flags).map_err(|e| failed(e.into()))?;
        let mut streams = Vec::new();
        let mut parts = Vec::new();
        for link in links {
            let stream = Arc::new(link.stream);
            streams.push(stream.clone());
            parts.push((link.rank, link.name, link.remote_host, stream));
        }
        let silence = silence.map(Silence::new).filter(|_| parts.iter().any(|p| p.2.is_some()));
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new(me, n_ranks, parts)),
            changed: Condvar::new(),
            wake,
            dead: AtomicBool::new(false),
            silenced: AtomicBool::new(false),
            me,
            n_ranks,
        });
        let thread = if streams.is_empty() {
            None
        } else {
            let shared = shared.clone();
            let thread = std::thread::Builder::new().name("rushmem-uid-io".into()).stack_size(512 * 1024);
            Some(thread.spawn(move || io::run(shared, streams, silence)).map_err(failed)?)
        };
        Ok(Mesh { shared, thread: Mutex::new(thread) })
    }

    /// The first death reported, with those on the same host that have come to be known since.
    pub(crate) fn death(&self) -> Option<BootError> {
        if !self.shared.dead.load(Ordering::Acquire) {
            return None;
        }
        let state = self.shared.lock();
        let mut death = state.death.clone()?;
        for also in &state.with_it {
            death.message = format!("{}; {also}", death.message);
        }
        Some(death)
    }

    /// Tells the others of a death that this rank knows of from elsewhere.
    pub(crate) fn report(&self, death: BootError) {
        let mut state = self.shared.lock();
        if !state.leaving {
            state.break_job(0, death);
            self.shared.publish(&state);
            self.shared.wake_io();
        }
    }

    /// Tells the others that the job is broken by this rank.
    pub(crate) fn announce(&self, error: BootError) {
        let mut state = self.shared.lock();
        state.leaving = true; // from here on the ends of neighbours are expected
        let from = state.ended + 1;
        state.break_job(from, error);
        self.shared.publish(&state);
    }

    /// Says goodbye and waits, up to `limit`, until the kernel has it; the I/O thread then ends by itself.
    pub(crate) fn leave(&self, limit: Duration) {
        let until = Instant::now() + limit;
        let mut state = self.shared.lock();
        state.leave();
        self.shared.wake_io();
        let threaded = self.thread.lock().unwrap_or_else(|e| e.into_inner()).is_some();
        while threaded && !self.shared.silenced.load(Ordering::Acquire) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = match self.shared.changed.wait_timeout(state, left) {
                Ok((state, _)) => state,
                Err(e) => e.into_inner().0,
            };
        }
    }

    /// Waits for the I/O thread, which ends soon after [`Mesh::leave`].
    pub(crate) fn join(&self) {
        let thread = self.thread.lock().unwrap_or_else(|e| e.into_inner()).take();
        if let Some(thread) = thread {
            let _ = thread.join(); // a panic in there has been printed
        }
    }
}
