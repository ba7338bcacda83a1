//! A non-blocking connection that carries small length-prefixed frames: everything up to the mesh's own
//! frames goes over it. A frame is its body's length (u32), a kind (u8), the body; a length past the
//! connection's bound ends the connection before a byte of it is stored.

use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, PollTimeout};
use rushmem_bootstrap_abi::fork::close_in_children;
use socket2::Socket;

use crate::endpoint;
use crate::wire::Malformed;

/// The version of what both sides say, from the first frame of the handshake on. 3: the initiator proves
/// first, and says which job it looks for.
pub(crate) const VERSION: u16 = 3;
/// The largest frame of a peer that has not proved to belong to the job.
pub(crate) const MAX_STRANGER: usize = 1024;
/// The bound on frames of the rendezvous afterwards.
pub(crate) const MAX_MEMBER: usize = 64 * 1024;

const HEADER: usize = 5;

/// Why a connection is of no more use.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The other side closed it.
    Closed,
    /// The operating system says so.
    Io(std::io::Error),
    /// The other side does not speak this protocol.
    Malformed(String),
    /// It is a rushmem that speaks another version of it.
    Version(u16),
    /// It is of another job, as it says itself.
    OtherJob,
    /// It will not talk to this side, and says why.
    Refused(String),
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Broken::Closed => f.write_str("the other side closed the connection"),
            Broken::Io(e) => write!(f, "{e}"),
            Broken::Malformed(what) => write!(f, "not rushmem's protocol: {what}"),
            Broken::Version(theirs) => {
                let (age, mine) = (if *theirs < VERSION { "an older" } else { "a newer" }, VERSION);
                write!(
                    f,
                    "it is {age} rushmem (protocol version {theirs}, this side has {mine}): run one version \
                     on all ranks"
                )
            }
            Broken::OtherJob => f.write_str("it looks for another job"),
            Broken::Refused(why) => write!(f, "it refused: {}", why.escape_debug()),
        }
    }
}

impl From<std::io::Error> for Broken {
    fn from(e: std::io::Error) -> Self {
        Broken::Io(e)
    }
}

impl From<Malformed> for Broken {
    fn from(e: Malformed) -> Self {
        Broken::Malformed(e.0)
    }
}

/// A frame: kind and body.
pub(crate) type Frame = (u8, Vec<u8>);

/// See the top of the file.
pub(crate) struct Conn {
    stream: Socket,
    input: Vec<u8>,
    output: Vec<u8>,
    max_body: usize,
    ended: bool,
}

impl Conn {
    /// Takes over `stream`; frames are bounded as from a stranger until [`Conn::trust`].
    pub(crate) fn new(stream: Socket) -> std::io::Result<Conn> {
        close_in_children(&stream);
        stream.set_nonblocking(true)?;
        let _ = stream.set_tcp_nodelay(true); // local sockets have no delay to switch off
        Ok(Conn { stream, input: Vec::new(), output: Vec::new(), max_body: MAX_STRANGER, ended: false })
    }

    /// The other side has proved itself: longer frames are allowed.
    pub(crate) fn trust(&mut self) {
        self.max_body = MAX_MEMBER;
    }

    pub(crate) fn stream(&self) -> &Socket {
        &self.stream
    }

    /// The socket alone; no frame may be under way.
    pub(crate) fn into_stream(self) -> Socket {
        debug_assert!(self.input.is_empty() && self.output.is_empty());
        self.stream
    }

    /// The other side, for messages.
    pub(crate) fn peer(&self) -> String {
        endpoint::peer_name(&self.stream)
    }

    /// Queues a frame and sends what the socket takes now.
    pub(crate) fn send(&mut self, kind: u8, body: &[u8]) -> Result<(), Broken> {
        self.output.extend((body.len() as u32).to_le_bytes());
        self.output.push(kind);
        self.output.extend(body);
        self.flush()
    }

    /// Sends what the socket takes now.
    pub(crate) fn flush(&mut self) -> Result<(), Broken> {
        let mut sent = 0;
        let result = loop {
            if sent == self.output.len() {
                break Ok(());
            }
            match endpoint::send(&self.stream, &self.output[sent..]) {
                Ok(0) => break Err(Broken::Closed),
                Ok(n) => sent += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => break Err(e.into()),
            }
        };
        self.output.drain(..sent);
        result
    }

    /// Whether frames wait for the socket to take them.
    pub(crate) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// The next whole frame, if one is here. `Err` once the connection is of no use *and* every whole frame
    /// has been handed out: a message sent just before closing still arrives.
    pub(crate) fn receive(&mut self) -> Result<Option<Frame>, Broken> {
        loop {
            if let Some(frame) = self.parse()? {
                return Ok(Some(frame));
            }
            if self.ended {
                return Err(Broken::Closed);
            }
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer) {
                Ok(0) => self.ended = true,
                Ok(n) => self.input.extend(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn parse(&mut self) -> Result<Option<Frame>, Broken> {
        let Some(header) = self.input.first_chunk::<HEADER>() else { return Ok(None) };
        let len = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = header[4];
        if len > self.max_body {
            return Err(Broken::Malformed(format!(
                "a frame of {len} bytes where at most {} are allowed",
                self.max_body
            )));
        }
        if self.input.len() < HEADER + len {
            return Ok(None);
        }
        let body = self.input[HEADER..HEADER + len].to_vec();
        #[cfg(any(test, feature = "fuzzing"))]
        if self.max_body == MAX_STRANGER {
            crate::seeds::record(3, kind, &self.input[..HEADER + len]);
            crate::seeds::record(4, kind, &self.input[..HEADER + len]);
        }
        self.input.drain(..HEADER + len);
        Ok(Some((kind, body)))
    }

    /// What to poll this connection for.
    pub(crate) fn interest(&self) -> PollFlags {
        if self.has_output() {
            PollFlags::POLLIN | PollFlags::POLLOUT
        } else {
            PollFlags::POLLIN
        }
    }

    /// Blocks until a frame is here or `deadline` passes (`None`).
    pub(crate) fn wait_frame(&mut self, deadline: Instant) -> Result<Option<Frame>, Broken> {
        loop {
            if let Some(frame) = self.receive()? {
                return Ok(Some(frame));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            poll(&mut [PollFd::new(self.stream.as_fd(), self.interest())], Some(deadline))?;
            self.flush()?;
        }
    }

    /// Blocks until everything is sent or `deadline` passes; whether it was sent.
    pub(crate) fn wait_sent(&mut self, deadline: Instant) -> Result<bool, Broken> {
        while self.has_output() {
            if Instant::now() >= deadline {
                return Ok(false);
            }
            poll(&mut [PollFd::new(self.stream.as_fd(), PollFlags::POLLOUT)], Some(deadline))?;
            self.flush()?;
        }
        Ok(true)
    }
}

impl AsFd for Conn {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Waits for one of `fds` or for `deadline` (rounded up to a millisecond); a signal counts as a wake-up.
pub(crate) fn poll(fds: &mut [PollFd<'_>], deadline: Option<Instant>) -> std::io::Result<()> {
    let timeout = match deadline {
        None => PollTimeout::NONE,
        Some(at) => {
            let left = at.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000);
            PollTimeout::try_from(left.min(1_000_000) as i32).unwrap_or(PollTimeout::MAX)
        }
    };
    match nix::poll::poll(fds, timeout) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
