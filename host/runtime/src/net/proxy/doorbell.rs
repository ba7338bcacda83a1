//! The doorbell, which wakes the proxy thread: a descriptor of the network's, and one that this process
//! writes to.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::error::{Error, Result};

/// The two descriptors.
pub(in crate::net) struct Doorbell {
    own: OwnedFd,
    network: Option<RawFd>,
}

impl Doorbell {
    /// With the network's descriptor, where it has one.
    pub(in crate::net) fn new(network: Option<RawFd>) -> Result<Doorbell> {
        // SAFETY: a plain system call.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(Error::os("eventfd"));
        }
        // SAFETY: the descriptor is new.
        Ok(Doorbell { own: unsafe { OwnedFd::from_raw_fd(fd) }, network })
    }

    /// Wakes the thread.
    pub(in crate::net) fn ring(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight bytes to an open eventfd.
        unsafe { libc::write(self.own.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Whether the network rings, too.
    pub(in crate::net) fn hears_network(&self) -> bool {
        self.network.is_some()
    }

    /// Sleeps until it rings, and no longer than `time`.
    pub(super) fn sleep(&self, time: Duration) {
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
