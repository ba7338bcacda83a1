//! Who are you? Four frames, the same on every connection of a job, as state machines that do no waiting of
//! their own:
//!
//! 1. initiator: `HELLO`  magic, version, purpose, the job's public name, nonce
//! 2. acceptor: `CHALLENGE` nonce (or `REFUSED` version, why, and the end)
//! 3. initiator: `PROOF` proof over both nonces and the body, body (what it wants, where that is said at
//!    once)
//! 4. acceptor: `ANSWER` proof over the same
//!
//! What a stranger learns. If it *dials* a listener: a random number. Nothing that depends on the token
//! leaves the acceptor before the other side has shown that it holds the token, so anyone who can reach the
//! port can only guess keys one connection at a time. If it *listens* where ranks of the job dial (a port
//! held, an address taken): the name, which is public, and a proof, from which a key of 32 random bytes
//! cannot be found, and which makes each guess at a secret that a person chose cost an Argon2id (`stretch`).
//! It cannot answer it, so it learns nothing that is said after it: not the ranks, not where they listen. An
//! earlier version let the acceptor prove first, which gave anybody who could dial such a proof. Relaying the
//! four frames between an initiator and the acceptor makes a connection between those two, as a router does;
//! one who does that can read and alter what follows, which is outside the model (`auth`).
//!
//! The job's name in `HELLO` lets a rank that goes through several ports tell another job's without proving
//! anything to it. Versions are in the first frame of all, and both sides name the other's.

use rushmem_bootstrap_abi::Result;

use crate::auth::{random, Key, Purpose, Role, JOB_BYTES};
use crate::conn::{Broken, Conn, Frame, VERSION};
use crate::wire::{Reader, Writer};

const MAGIC: u32 = u32::from_le_bytes(*b"rmUi");

const HELLO: u8 = 1;
const CHALLENGE: u8 = 2;
const PROOF: u8 = 3;
const REFUSED: u8 = 4;
const ANSWER: u8 = 5;

fn unexpected(kind: u8, wanted: &str) -> Broken {
    Broken::Malformed(format!("a frame of kind {kind} where {wanted} should be"))
}

/// The answer to a rank that looks for its job at another job's port.
const OTHER_JOB: &str = "another job meets here";
const WRONG_TOKEN: &str = "it does not hold this job's token (its secret, RUSHMEM_JOB_SECRET, may differ)";

/// The dialling side.
pub(crate) struct Initiator {
    purpose: Purpose,
    body: Vec<u8>,
    nonce: [u8; 32],
    theirs: Option<[u8; 32]>,
}

impl Initiator {
    /// `body` goes with the proof.
    pub(crate) fn new(purpose: Purpose, body: Vec<u8>) -> Result<Initiator> {
        Ok(Initiator { purpose, body, nonce: random()?, theirs: None })
    }

    /// Sends `HELLO`.
    pub(crate) fn hello(&self, conn: &mut Conn, key: &Key) -> std::result::Result<(), Broken> {
        let body = Writer::default().u32(MAGIC).u16(VERSION).u8(self.purpose as u8);
        conn.send(HELLO, &body.bytes(&key.job).bytes(&self.nonce).0)
    }

    /// Takes one frame; true once the other side has proved to belong to the job.
    pub(crate) fn take(
        &mut self,
        conn: &mut Conn,
        key: &Key,
        (kind, body): &Frame,
    ) -> std::result::Result<bool, Broken> {
        let mut r = Reader(body);
        match (self.theirs, *kind) {
            (_, REFUSED) => {
                let (version, why) = (r.u16()?, r.text()?);
                Err(if version == VERSION { Broken::Refused(why) } else { Broken::Version(version) })
            }
            (None, CHALLENGE) => {
                let theirs = r.array()?;
                r.end()?;
                let nonces = [&self.nonce, &theirs];
                let proof = key.prove(Role::Initiator, self.purpose, nonces, &self.body);
                conn.send(PROOF, &Writer::default().bytes(&proof).bytes(&self.body).0)?;
                self.theirs = Some(theirs);
                Ok(false)
            }
            (Some(theirs), ANSWER) => {
                let proof = r.array()?;
                r.end()?;
                let nonces = [&self.nonce, &theirs];
                if !key.holds(&proof, Role::Acceptor, self.purpose, nonces, &self.body) {
                    return Err(Broken::Malformed(WRONG_TOKEN.into()));
                }
                conn.trust();
                Ok(true)
            }
            (None, kind) => Err(unexpected(kind, "a challenge")),
            (Some(_), kind) => Err(unexpected(kind, "an answer")),
        }
    }

    /// What an end of the connection means, here and now.
    pub(crate) fn ended(&self, e: Broken) -> Broken {
        match (e, self.theirs) {
            // This version says why it refuses; those before it did not know this hello.
            (Broken::Closed, None) => Broken::Malformed(format!(
                "it closed the connection at this side's hello (protocol version {VERSION}): an older \
                 rushmem, or something else"
            )),
            (e, _) => e,
        }
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

    /// Whether the other side has said a proper `HELLO`.
    pub(crate) fn greeted(&self) -> bool {
        self.nonces.is_some()
    }

    /// Takes one frame; `Some(body)` once the other side has proved to belong to the job, and has its answer.
    pub(crate) fn take(
        &mut self,
        conn: &mut Conn,
        key: &Key,
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
                    refuse(conn, "");
                    return Err(Broken::Version(version));
                }
                if r.u8()? != self.purpose as u8 {
                    return Err(Broken::Malformed(format!(
                        "a hello that is not for {}",
                        self.purpose.name()
                    )));
                }
                let (job, theirs) = (r.array::<JOB_BYTES>()?, r.array()?);
                r.end()?;
                if job != key.job {
                    refuse(conn, OTHER_JOB);
                    return Err(Broken::OtherJob);
                }
                let mine = random().map_err(|e| Broken::Io(std::io::Error::other(e.message)))?;
                self.nonces = Some((theirs, mine));
                conn.send(CHALLENGE, &mine)?;
                Ok(None)
            }
            (None, kind) => Err(unexpected(kind, "a hello")),
            (Some((theirs, mine)), PROOF) => {
                let (proof, nonces) = (r.array()?, [theirs, mine]);
                if !key.holds(&proof, Role::Initiator, self.purpose, nonces, r.0) {
                    refuse(conn, WRONG_TOKEN);
                    return Err(Broken::Malformed(WRONG_TOKEN.into()));
                }
                conn.trust();
                conn.send(ANSWER, &key.prove(Role::Acceptor, self.purpose, nonces, r.0))?;
                Ok(Some(r.0.to_vec()))
            }
            (Some(_), kind) => Err(unexpected(kind, "a proof")),
        }
    }
}

/// Says why before closing; it is no loss if that does not arrive.
fn refuse(conn: &mut Conn, why: &str) {
    let _ = conn.send(REFUSED, &Writer::default().u16(VERSION).text(why).0);
}

#[cfg(test)]
mod tests;
