//! The thread that drives the engine when nobody waits: it answers other PEs and carries out what kernels have posted, while the
//! host computes.
//!
//! While other threads drive, it naps; while there is work, it goes on; after a while without any it sleeps on the network's
//! descriptor. A thread that has waited for long naps itself, and looks at the engine now and then only: that is no driving.

pub(in crate::net) mod posts;
pub(crate) mod ring;
pub(in crate::net) mod submissions;

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::net::Shared;

/// How long it goes on looking after the last work.
const LOOK: Duration = Duration::from_micros(50);
/// While others drive: each time it wakes it takes a core from them, where cores are few. It is late by as much when they stop.
const DRIVEN: Duration = Duration::from_micros(150);
/// Between looks for what rings no bell.
const NAP: Duration = Duration::from_micros(100);
/// Turns in the time of a nap that a thread which naps itself may make; one that drives makes a hundred.
const NOW_AND_THEN: u64 = 24;
/// The longest sleep: a missed wake-up costs no more.
const SLEEP: Duration = Duration::from_millis(20);

/// What wakes the thread: the network, or this process.
pub(in crate::net) struct Bell {
    own: OwnedFd,
    network: Option<RawFd>,
}

impl Bell {
    pub(in crate::net) fn new(network: Option<RawFd>) -> Result<Bell> {
        // SAFETY: a plain system call.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(Error::os("eventfd"));
        }
        // SAFETY: the descriptor is new.
        Ok(Bell { own: unsafe { OwnedFd::from_raw_fd(fd) }, network })
    }

    pub(in crate::net) fn ring(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight bytes to an open eventfd.
        unsafe { libc::write(self.own.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    fn sleep(&self, time: Duration) {
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds = [entry(self.own.as_raw_fd()), entry(self.network.unwrap_or(-1))];
        let time = libc::timespec { tv_sec: time.as_secs() as _, tv_nsec: time.subsec_nanos() as _ };
        // SAFETY: an array of pollfd with its length; an entry of -1 is left out.
        unsafe { libc::ppoll(fds.as_mut_ptr(), 2, &time, std::ptr::null()) };
        if fds[0].revents != 0 {
            let mut count = [0u8; 8];
            // SAFETY: eight bytes of an open eventfd.
            unsafe { libc::read(self.own.as_raw_fd(), count.as_mut_ptr().cast(), 8) };
        }
    }
}

/// The thread's life.
pub(in crate::net) fn run(shared: &Shared) {
    // The system lengthens naps by 50 us otherwise; a refusal costs no more than that.
    // SAFETY: changes this thread alone.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1000 as libc::c_ulong) };
    let turns = || shared.driven.load(Ordering::Relaxed);
    // The turns of others are counted from here on.
    let mut window = (Instant::now(), turns());
    let mut last_work = Instant::now();
    while !shared.stop.load(Ordering::Acquire) {
        let now = turns();
        if now.wrapping_sub(window.1) > NOW_AND_THEN {
            window = (Instant::now(), now);
            std::thread::sleep(DRIVEN);
            continue;
        }
        if window.0.elapsed() > NAP {
            window = (Instant::now(), now);
        }
        let (worked, posts) = {
            let mut engine = shared.lock();
            (shared.turn(&mut engine), engine.takes_posts())
        };
        if worked {
            last_work = Instant::now();
            continue;
        }
        let idle = last_work.elapsed();
        if idle < LOOK {
            std::thread::yield_now();
            continue;
        }
        // Kernels post without a bell; and a network without a descriptor rings none.
        let most =
            if posts || shared.bell.network.is_none() { NAP.max(idle / 64).min(NAP * 5) } else { SLEEP };
        if shared.lock().transport().arm() {
            shared.bell.sleep(most);
            window = (Instant::now(), turns());
        }
    }
}
