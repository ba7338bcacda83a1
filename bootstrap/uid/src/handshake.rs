//! Who are you? Three frames, the same on every connection of a job, as state machines that do no waiting of
//! their own:
//!
//! 1. initiator: `HELLO`  magic, version, purpose, nonce
//! 2. acceptor: `CHALLENGE` nonce, acceptor's proof
//! 3. initiator: `PROOF` initiator's proof over the body, body (what it wants: join as a rank, connect as a rank)
//!
//! The acceptor proves first, so an initiator that tries several ports tells its own job from another's without
//! giving anything away.

use rushmem_bootstrap_abi::Result;

use crate::auth::{random, Purpose, Role, Token};
use crate::conn::{Broken, Conn, Frame};
use crate::wire::{Reader, Writer};

const MAGIC: u32 = u32::from_le_bytes(*b"rmUi");
const VERSION: u16 = 2;

const HELLO: u8 = 1;
const CHALLENGE: u8 = 2;
const PROOF: u8 = 3;

fn unexpected(kind: u8, wanted: &str) -> Broken {
    Broken::Malformed(format!("a frame of kind {kind} where {wanted} should be"))
}

/// The dialling side.
pub(crate) struct Initiator {
    purpose: Purpose,
    nonce: [u8; 32],
    theirs: [u8; 32],
}

impl Initiator {
    pub(crate) fn new(purpose: Purpose) -> Result<Initiator> {
        Ok(Initiator { purpose, nonce: random()?, theirs: [0; 32] })
    }

    /// Sends `HELLO`.
    pub(crate) fn hello(&self, conn: &mut Conn) -> std::result::Result<(), Broken> {
        let body = Writer::default().u32(MAGIC).u16(VERSION).u8(self.purpose as u8).bytes(&self.nonce);
        conn.send(HELLO, &body.0)
    }

    /// Checks `CHALLENGE`.
    pub(crate) fn check(&mut self, token: &Token, (kind, body): &Frame) -> std::result::Result<(), Broken> {
        if *kind != CHALLENGE {
            return Err(unexpected(*kind, "a challenge"));
        }
        let mut r = Reader(body);
        self.theirs = r.array()?;
        let proof = r.array()?;
        r.end()?;
        if !token.holds(&proof, Role::Acceptor, self.purpose, [&self.nonce, &self.theirs], b"") {
            return Err(Broken::Malformed(
                "it belongs to another job (it does not hold this job's token)".into(),
            ));
        }
        Ok(())
    }

    /// Sends `PROOF` with what this side wants.
    pub(crate) fn prove(
        &self,
        conn: &mut Conn,
        token: &Token,
        body: &[u8],
    ) -> std::result::Result<(), Broken> {
        let proof = token.prove(Role::Initiator, self.purpose, [&self.nonce, &self.theirs], body);
        conn.trust();
        conn.send(PROOF, &Writer::default().bytes(&proof).bytes(body).0)
    }
}

/// The listening side.
pub(crate) struct Acceptor {
    purpose: Purpose,
    nonces: Option<([u8; 32], [u8; 32])>,
}

impl Acceptor {
    pub(crate) fn new(purpose: Purpose) -> Acceptor {
        Acceptor { purpose, nonces: None }
    }

    /// Whether the other side has said a proper `HELLO` (others' ports are tried by jobs that look for their own,
    /// so an end right after that is nothing to warn of).
    pub(crate) fn greeted(&self) -> bool {
        self.nonces.is_some()
    }

    /// Takes one frame; `Some(body)` once the other side has proved to belong to the job.
    pub(crate) fn take(
        &mut self,
        conn: &mut Conn,
        token: &Token,
        (kind, body): Frame,
    ) -> std::result::Result<Option<Vec<u8>>, Broken> {
        let mut r = Reader(&body);
        match (&self.nonces, kind) {
            (None, HELLO) => {
                if r.u32()? != MAGIC {
                    return Err(Broken::Malformed("wrong magic number".into()));
                }
                let version = r.u16()?;
                if version != VERSION {
                    return Err(Broken::Malformed(format!(
                        "protocol version {version}, this side has {VERSION}"
                    )));
                }
                if r.u8()? != self.purpose as u8 {
                    return Err(Broken::Malformed(format!(
                        "a hello that is not for {}",
                        self.purpose.name()
                    )));
                }
                let theirs = r.array()?;
                r.end()?;
                let mine = random().map_err(|e| Broken::Io(std::io::Error::other(e.message)))?;
                let proof = token.prove(Role::Acceptor, self.purpose, [&theirs, &mine], b"");
                self.nonces = Some((theirs, mine));
                conn.send(CHALLENGE, &Writer::default().bytes(&mine).bytes(&proof).0)?;
                Ok(None)
            }
            (None, kind) => Err(unexpected(kind, "a hello")),
            (Some((theirs, mine)), PROOF) => {
                let proof = r.array()?;
                if !token.holds(&proof, Role::Initiator, self.purpose, [theirs, mine], r.0) {
                    return Err(Broken::Malformed("it does not hold this job's token".into()));
                }
                conn.trust();
                Ok(Some(r.0.to_vec()))
            }
            (Some(_), kind) => Err(unexpected(kind, "a proof")),
        }
    }
}
