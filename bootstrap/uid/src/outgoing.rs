//! One connection that this rank makes, from dialling until both sides have proved to belong to the job,
//! without waiting.

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};

use nix::poll::PollFlags;
use socket2::Socket;

use crate::auth::{Key, Purpose};
use crate::conn::{Broken, Conn};
use crate::endpoint::{self, Address};
use crate::handshake::Initiator;

enum State {
    Connecting(Socket),
    Proving(Conn, Initiator),
    Over,
}

/// See the top of the file.
pub(crate) struct Outgoing {
    state: State,
    initiator: Option<Initiator>,
    /// The other side took the connection.
    pub(crate) connected: bool,
}

impl Outgoing {
    /// Dials; `body` goes with the proof.
    pub(crate) fn start(to: Address, purpose: Purpose, body: Vec<u8>) -> Result<Outgoing, Broken> {
        let initiator = Initiator::new(purpose, body).map_err(|e| std::io::Error::other(e.message))?;
        let state = State::Connecting(to.dial()?);
        Ok(Outgoing { state, initiator: Some(initiator), connected: false })
    }

    /// Goes as far as it can without waiting; the connection once both have proved.
    pub(crate) fn advance(&mut self, key: &Key) -> Result<Option<Conn>, Broken> {
        loop {
            match std::mem::replace(&mut self.state, State::Over) {
                State::Connecting(socket) => match endpoint::dialled(&socket) {
                    Ok(()) => {
                        self.connected = true;
                        let mut conn = Conn::new(socket)?;
                        let initiator =
                            self.initiator.take().expect("it is kept until there is a connection");
                        initiator.hello(&mut conn, key)?;
                        self.state = State::Proving(conn, initiator);
                    }
                    Err(e) if e.kind() == ErrorKind::NotConnected => {
                        self.state = State::Connecting(socket);
                        return Ok(None);
                    }
                    Err(e) => return Err(e.into()),
                },
                State::Proving(mut conn, mut initiator) => {
                    conn.flush()?;
                    let frame = conn.receive().map_err(|e| initiator.ended(e))?;
                    let proved = match &frame {
                        Some(frame) => initiator.take(&mut conn, key, frame)?,
                        None => false,
                    };
                    if proved {
                        return Ok(Some(conn));
                    }
                    self.state = State::Proving(conn, initiator);
                    if frame.is_none() {
                        return Ok(None);
                    }
                }
                State::Over => return Err(Broken::Closed),
            }
        }
    }

    /// What to wait for; nothing once it is over.
    pub(crate) fn poll(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        match &self.state {
            State::Connecting(socket) => Some((socket.as_fd(), PollFlags::POLLOUT)),
            State::Proving(conn, _) => Some((conn.as_fd(), conn.interest())),
            State::Over => None,
        }
    }
}
