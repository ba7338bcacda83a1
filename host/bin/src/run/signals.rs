//! Signals as something to wait for, together with a deadline.
//!
//! They are blocked and read from a signalfd, so that the supervisor is one thread without handlers. Where a
//! signal comes from matters: what the terminal sends it has sent to the whole process group already.

use std::os::fd::AsFd;
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// What is forwarded to PEs.
const FORWARDED: [Signal; 6] =
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2];

/// A signal that was sent to this process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrived {
    pub(crate) signal: Signal,
    /// The kernel sent it on the terminal's behalf, so every process of the group has it.
    pub(crate) from_terminal: bool,
}

/// The blocked signals and where to read them.
pub(crate) struct Signals {
    fd: SignalFd,
    before: SigSet,
}

fn ours() -> SigSet {
    FORWARDED.into_iter().chain([Signal::SIGCHLD]).collect()
}

impl Signals {
    /// Blocks them in this thread and in those that it starts from now on.
    pub(crate) fn block() -> nix::Result<Signals> {
        let before = SigSet::thread_get_mask()?;
        ours().thread_block()?;
        let fd = SignalFd::with_flags(&ours(), SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Signals { fd, before })
    }

    /// The mask as it was, for PEs.
    pub(crate) fn before(&self) -> SigSet {
        self.before
    }

    /// Lets them act on this process again.
    pub(crate) fn restore(&self) {
        // Fails only for an invalid mask.
        let _ = self.before.thread_set_mask();
    }

    /// Sleeps until a signal comes or `until` has passed; the signals but SIGCHLD, which only wakes.
    pub(crate) fn wait(&self, until: Option<Instant>) -> nix::Result<Vec<Arrived>> {
        let timeout = match until {
            None => PollTimeout::NONE,
            Some(at) => {
                // Rounded up, so that it has passed when this returns.
                let ms = at.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000);
                PollTimeout::try_from(ms.min(1000 * 3600)).unwrap_or(PollTimeout::MAX)
            }
        };
        match poll(&mut [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(e),
        }
        let mut arrived = Vec::new();
        while let Some(info) = self.fd.read_signal()? {
            let signal = i32::try_from(info.ssi_signo).ok().and_then(|n| Signal::try_from(n).ok());
            if let Some(signal) = signal.filter(|s| *s != Signal::SIGCHLD) {
                arrived.push(Arrived { signal, from_terminal: info.ssi_code == libc::SI_KERNEL });
            }
        }
        Ok(arrived)
    }
}
