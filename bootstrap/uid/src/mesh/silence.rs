//! How a host that vanishes (power, network) is noticed: no end of a connection ever arrives from it.
//!
//! Keep-alive probes make its kernel say something every second or so, whatever its processes do, and
//! `TCP_INFO` says how long ago that was; the I/O thread looks. Neither of the kernel's own limits would do:
//! its keep-alive is put off while data is unacknowledged (then retransmission decides, after 15 minutes),
//! and `TCP_USER_TIMEOUT` ends the connection with a process that is merely stopped, once its receive buffer
//! is full.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use nix::libc;
use socket2::{SockRef, TcpKeepalive};

/// A limit on a host's silence.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Silence {
    limit: Duration,
}

impl Silence {
    /// By `limit` after a host's last sign of life all ranks are to know; less than 2 s cannot be kept, as
    /// the kernel counts whole seconds between probes.
    pub(crate) fn new(limit: Duration) -> Silence {
        Silence { limit: limit.max(Duration::from_secs(2)) }
    }

    /// Lets the kernel probe the other side of `stream`.
    pub(crate) fn probe(self, stream: &impl AsFd) -> io::Result<()> {
        let every = self.probe_every();
        // The kernel's own verdict, where nobody looks (a stopped process): never before ours.
        let tries = (self.limit.as_secs() / every.as_secs() + 2) as u32;
        let probes = TcpKeepalive::new().with_time(every).with_interval(every).with_retries(tries);
        SockRef::from(stream).set_tcp_keepalive(&probes)
    }

    /// Between two probes: short, so that one that is lost says nothing.
    fn probe_every(self) -> Duration {
        Duration::from_secs((self.limit.as_secs() / 10).max(1))
    }

    /// How long nothing may come: a part of the limit is for looking, and for the report to reach all.
    pub(crate) fn allowed(self) -> Duration {
        self.limit * 4 / 5
    }

    /// Between two looks.
    pub(crate) fn pause(self) -> Duration {
        self.limit / 20
    }

    /// What is wrong with a host that said nothing for [`Silence::allowed`].
    pub(crate) fn verdict(self) -> String {
        format!(
            "its kernel has not answered for {:.1} s, so it is down, or cut off from this host \
             (RUSHMEM_PEER_TIMEOUT is {:.1} s)",
            self.allowed().as_secs_f64(),
            self.limit.as_secs_f64()
        )
    }
}

/// How long the other side's kernel has owed an answer.
#[derive(Debug, Default)]
pub(crate) struct PeerClock {
    /// Since when a question about room for more data is known to be open.
    asked: Option<Instant>,
}

impl PeerClock {
    /// How long ago the other side last said anything that it was asked for: to data, or to a probe.
    pub(crate) fn silent_for(&mut self, stream: &impl AsFd) -> io::Result<Duration> {
        // SAFETY: an all-zero tcp_info is a valid value of that plain C struct.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
        let mut queued: libc::c_int = 0;
        // SAFETY: an open socket, and places for the answers, of the size that goes with each question.
        let ok = unsafe {
            let (fd, to) = (stream.as_fd().as_raw_fd(), (&raw mut info).cast());
            libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, to, &mut len) == 0
                && libc::ioctl(fd, libc::TIOCOUTQ, &raw mut queued) == 0
        };
        if !ok {
            return Err(io::Error::last_os_error());
        }
        let last = Duration::from_millis(info.tcpi_last_data_recv.min(info.tcpi_last_ack_recv).into());
        // Data waits because the other side has said that it has no room: a process that does not read. Then
        // the kernel asks rarely, and ever more rarely (RFC 9293, 3.8.6.1), so only a question that stays
        // open means anything.
        let no_room = info.tcpi_unacked == 0 && queued > 0;
        if !no_room {
            self.asked = None;
            return Ok(last);
        }
        if info.tcpi_probes == 0 {
            self.asked = None;
            return Ok(Duration::ZERO);
        }
        Ok(last.min(self.asked.get_or_insert_with(Instant::now).elapsed()))
    }
}

/// Whether an error of a socket says that the other host does not answer, rather than its process.
pub(crate) fn is_silence(e: &io::Error) -> bool {
    use io::ErrorKind::*;
    matches!(e.kind(), TimedOut | HostUnreachable | NetworkUnreachable | NetworkDown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn probes_are_answers_though_nobody_reads() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let mut stream =
            TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        let silence = Silence::new(Duration::from_secs(1));
        silence.probe(&stream).expect("the kernel probes");
        stream.set_nonblocking(true).expect("non-blocking");
        // Until nobody takes any more, and then nobody reads: the other side says that it has no room, but it
        // says so.
        while stream.write(&[0; 65536]).is_ok() {}
        let mut clock = PeerClock::default();
        for _ in 0..50 {
            let silent = clock.silent_for(&stream).expect("the kernel knows");
            assert!(silent < silence.allowed(), "{silent:?}");
            std::thread::sleep(silence.pause());
        }
    }

    #[test]
    fn there_is_time_to_look_and_to_tell() {
        for limit in [0, 2, 10, 60, 86400].map(Duration::from_secs) {
            let s = Silence::new(limit);
            assert!(s.allowed() + 2 * s.pause() < s.limit && s.limit >= limit);
            assert!(s.allowed() > s.probe_every() + s.pause(), "{limit:?}");
        }
    }
}
