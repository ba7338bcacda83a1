//! What is in flight: operations that the transport has, each under the [`Token`] that it gives back, and
//! answers of peers that are awaited, each under the number that travels with the request.

use slab::Slab;

use crate::error::{err, Result};
use crate::net::completion::Done;
use crate::net::gpu::chunks::Chunk;
use crate::net::memory::span::Span;
use crate::net::ordering::Lane;
use crate::net::transport::Token;

/// What the transport is doing for this PE.
#[derive(Debug)]
pub(in crate::net) enum Flight {
    /// A copy's source or destination is in use. `op`: the operation is over then.
    Copy { lane: Lane, op: Option<u64>, done: Done },
    /// A flush of so many copies.
    Flush { lane: Lane, puts: u64 },
    /// A flush that a signal waits for; the record is sent then.
    Announce { lane: Lane, op: u64, signal: Vec<u8> },
    /// Part of an answer is on its way to its place.
    Straight { reply: usize, bytes: usize },
    /// A chunk is being sent.
    Chunk { pe: usize, chunk: Chunk },
    /// The data of a large message is on its way into a chunk.
    Receive { from: usize, number: u64, chunk: Chunk },
    /// Part of an answer is on its way into a chunk.
    Answer { reply: usize, at: usize, bytes: usize, chunk: Chunk },
}

/// An answer that is awaited. `op` is the operation's number once it has started: [`crate::net::ordering`].
#[derive(Debug)]
pub(in crate::net) enum Awaited {
    Word {
        lane: Lane,
        op: Option<u64>,
        done: Done,
    },
    /// Bytes, to be laid down at `dst`; so many are still to come.
    Data {
        lane: Lane,
        op: Option<u64>,
        dst: Span,
        left: usize,
        /// The host cannot write there.
        gpu: bool,
        done: Done,
    },
    /// So many changes are carried out.
    Ack {
        lane: Lane,
        changes: u64,
    },
}

/// Both.
#[derive(Debug, Default)]
pub(in crate::net) struct InFlight {
    flights: Slab<Flight>,
    awaited: Slab<Awaited>,
}

impl InFlight {
    /// A token under which the transport carries something.
    pub(in crate::net) fn begin(&mut self, flight: Flight) -> Token {
        self.flights.insert(flight) as Token
    }

    pub(in crate::net) fn end(&mut self, token: Token) -> Flight {
        self.flights.remove(token as usize)
    }

    /// Which peer it is about; `None`: an answer that is not awaited any more.
    pub(in crate::net) fn peer_of(&self, flight: &Flight) -> Option<usize> {
        match flight {
            Flight::Copy { lane, .. } | Flight::Flush { lane, .. } | Flight::Announce { lane, .. } => {
                Some(lane.pe)
            }
            Flight::Chunk { pe, .. } => Some(*pe),
            Flight::Receive { from, .. } => Some(*from),
            Flight::Answer { reply, .. } | Flight::Straight { reply, .. } => {
                self.awaited.get(*reply).map(|awaited| match *awaited {
                    Awaited::Word { lane, .. } | Awaited::Data { lane, .. } | Awaited::Ack { lane, .. } => {
                        lane.pe
                    }
                })
            }
        }
    }

    /// True while the transport may still touch memory of callers.
    pub(in crate::net) fn uses_memory_of_callers(&self) -> bool {
        let callers = |flight: &Flight| matches!(flight, Flight::Copy { .. } | Flight::Straight { .. });
        self.flights.iter().any(|(_, flight)| callers(flight))
    }

    /// A number under which a word of a peer is awaited.
    pub(in crate::net) fn await_word(&mut self, lane: Lane, done: Done) -> u64 {
        self.awaited.insert(Awaited::Word { lane, op: None, done }) as u64
    }

    /// The same for bytes, which go to `dst`; `gpu`: the host cannot write there.
    pub(in crate::net) fn await_data(&mut self, lane: Lane, dst: Span, gpu: bool, done: Done) -> u64 {
        self.awaited.insert(Awaited::Data { lane, op: None, dst, left: dst.bytes(), gpu, done }) as u64
    }

    /// The same for the word that so many changes are carried out.
    pub(in crate::net) fn await_ack(&mut self, lane: Lane, changes: u64) -> u64 {
        self.awaited.insert(Awaited::Ack { lane, changes }) as u64
    }

    /// The operation whose answer is awaited under that number has started; it has this number in the order.
    pub(in crate::net) fn started(&mut self, reply: u64, number: u64) {
        match &mut self.awaited[reply as usize] {
            Awaited::Word { op, .. } | Awaited::Data { op, .. } => *op = Some(number),
            Awaited::Ack { .. } => {}
        }
    }

    /// The answer of one word has come.
    pub(in crate::net) fn answered(&mut self, reply: u64) -> Result<Awaited> {
        self.awaited
            .try_remove(reply as usize)
            .ok_or_else(|| err!(INTERNAL, "a PE sends an answer that is not awaited"))
    }

    /// Where an answer's data goes, and whether only the GPU can write there; `None`: it is not awaited.
    pub(in crate::net) fn destination(&self, reply: usize) -> Option<(Span, bool)> {
        match self.awaited.get(reply) {
            Some(&Awaited::Data { dst, gpu, .. }) => Some((dst, gpu)),
            _ => None,
        }
    }

    /// So many bytes of an answer are in their place. `Some`: it is whole; its lane, its operation's number,
    /// what completes.
    pub(in crate::net) fn arrived(
        &mut self,
        reply: usize,
        bytes: usize,
    ) -> Result<Option<(Lane, Option<u64>, Done)>> {
        let Some(Awaited::Data { lane, op, left, done, .. }) = self.awaited.get_mut(reply) else {
            return Err(not_awaited());
        };
        *left = left.checked_sub(bytes).ok_or_else(too_much)?;
        if *left > 0 {
            return Ok(None);
        }
        let whole = (*lane, *op, *done);
        self.awaited.remove(reply);
        Ok(Some(whole))
    }
}

/// A peer's mistakes.
pub(in crate::net) fn not_awaited() -> crate::error::Error {
    err!(INTERNAL, "a PE sends data that is not awaited")
}

pub(in crate::net) fn too_much() -> crate::error::Error {
    err!(INTERNAL, "a PE sends more data than was asked for")
}
