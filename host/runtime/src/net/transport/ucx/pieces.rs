//! Copies by rushmem's own messages, for networks that cannot copy by themselves ([`carrier`](super::carrier)
//! says why not by UCX's). A copy goes in pieces that travel as eager messages out of the source itself, so
//! many bytes at a time to each PE, and the receiver's callback lays each one in its place. What a get asks
//! for, and a large message, come back the same way.
//!
//! Puts and flushes to a PE wait in one line, answers in another; the two take turns. A flush is a question:
//! are all pieces up to that number in their place? Where a PE dies, UCX fails what was on its way, and
//! nothing else happens.

use std::collections::{HashMap, VecDeque};

use slab::Slab;

use super::credit::Queued;
use super::inbox::{Landing, Payload, Sent};
use super::wire::Head;
use super::Ucx;
use crate::error::{err, Error, Result};
use crate::net::transport::{Event, Token};

/// Bytes that may be on their way to one PE; UCX keeps a request for each piece.
pub(super) const WINDOW: usize = 1 << 20;
/// More copies than this under way are congestion.
const MANY: usize = 4096;

/// Where the pieces go.
#[derive(Debug, Clone, Copy)]
pub(super) enum Destination {
    Segment { id: u32, address: u64 },
    Landing(u64),
}

/// What the end completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Completes {
    /// The call that starts it, which is still running.
    Caller,
    Nobody,
    Token(Token),
}

/// A copy going out.
#[derive(Debug)]
pub(super) struct OutgoingCopy {
    pub(super) goal: Destination,
    pub(super) src: usize,
    pub(super) bytes: usize,
    /// So many have been given to UCX.
    pub(super) at: usize,
    /// Pieces that UCX has not let go of.
    pub(super) flying: usize,
    pub(super) completes: Completes,
    pub(super) failed: Option<Error>,
}

impl OutgoingCopy {
    fn is_over(&self) -> bool {
        self.at == self.bytes && self.flying == 0
    }

    /// Nothing more of it is sent.
    pub(super) fn stop(&mut self, why: &Error) {
        self.at = self.bytes;
        self.failed.get_or_insert_with(|| why.clone());
    }
}

/// In the line of puts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Item {
    Copy(usize),
    Flush(Token),
}

/// What goes to one PE.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) puts: VecDeque<Item>,
    pub(super) answers: VecDeque<usize>,
    pub(super) answers_next: bool,
    /// Bytes on their way.
    pub(super) flying: usize,
    /// Pieces of puts so far; so many are known to be in their place.
    pub(super) pieces: u64,
    pub(super) flushed: u64,
    /// Flushes without an answer yet, and how many pieces each of them covers.
    pub(super) asked: HashMap<Token, u64>,
}

/// A large message that has been announced.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) pe: usize,
    pub(super) data: usize,
    pub(super) bytes: usize,
    pub(super) token: Token,
}

/// All of it.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// Bytes of one.
    pub(super) each: usize,
    pub(super) lines: Vec<Line>,
    pub(super) copies: Slab<OutgoingCopy>,
    pub(super) offers: HashMap<u64, Offer>,
    pub(super) next_offer: u64,
    /// Flushes of others that cannot be answered yet: PE, count, token.
    pub(super) flush_requests: Vec<(usize, u64, Token)>,
}

impl Pieces {
    /// To `n` PEs, of `each` bytes.
    pub(super) fn new(n: usize, each: usize) -> Pieces {
        Pieces { each, lines: (0..n).map(|_| Line::default()).collect(), ..Pieces::default() }
    }

    #[cfg(test)]
    pub(super) fn each(&self) -> usize {
        self.each
    }

    pub(super) fn are_many(&self) -> bool {
        self.copies.len() > MANY
    }

    /// The memory goes: nobody is sent any more of it.
    pub(super) fn forget(&mut self, address: usize, bytes: usize) {
        let gone = err!(IO, "the memory is gone");
        for (_, copy) in &mut self.copies {
            if copy.completes == Completes::Nobody && (address..address + bytes).contains(&copy.src) {
                copy.stop(&gone);
            }
        }
    }
}

impl Ucx {
    /// Starts a put. True: the source is free already.
    pub(super) fn put_pieces(
        &mut self,
        pe: usize,
        goal: Destination,
        src: usize,
        bytes: usize,
        token: Token,
    ) -> Result<bool> {
        let key = self.queue(pe, goal, src, bytes, Completes::Caller);
        self.pump(pe);
        let copy = &mut self.pieces.copies[key];
        if !copy.is_over() {
            copy.completes = Completes::Token(token);
            return Ok(false);
        }
        match self.pieces.copies.remove(key).failed {
            None => Ok(true),
            Some(e) => {
                self.push_event(Event::Failed(token, e));
                Ok(false)
            }
        }
    }

    /// Asks `pe` for bytes of its segment.
    pub(super) fn get_pieces(
        &mut self,
        pe: usize,
        id: u32,
        address: u64,
        dst: usize,
        bytes: usize,
        token: Token,
    ) {
        let landing = self.landing(pe, dst, bytes, token);
        self.ask(pe, Head::Get { segment: id, address, bytes: bytes as u64, landing }, Vec::new());
    }

    /// Announces a large message.
    pub(super) fn offer(&mut self, pe: usize, head: Vec<u8>, data: usize, bytes: usize, token: Token) {
        let id = self.pieces.next_offer;
        self.pieces.next_offer += 1;
        if bytes > 0 {
            self.pieces.offers.insert(id, Offer { pe, data, bytes, token });
        }
        self.ask(pe, Head::Offer { id, bytes: bytes as u64 }, head);
    }

    /// Takes what `pe` has announced.
    pub(super) fn fetch_offer(&mut self, pe: usize, id: u64, dst: usize, bytes: usize, token: Token) {
        let landing = self.landing(pe, dst, bytes, token);
        self.ask(pe, Head::Want { id, landing }, Vec::new());
    }

    /// Asks `pe` to say when all puts so far are in their place. False: they are.
    pub(super) fn flush_pieces(&mut self, pe: usize, token: Token) -> bool {
        let line = &mut self.pieces.lines[pe];
        if line.puts.is_empty() && line.pieces == line.flushed {
            return false;
        }
        line.puts.push_back(Item::Flush(token));
        self.pump(pe);
        true
    }

    pub(super) fn push_event(&mut self, event: Event) {
        self.inbox().events.push(event);
    }

    fn landing(&mut self, pe: usize, dst: usize, bytes: usize, token: Token) -> u64 {
        self.inbox().land(Landing { pe, dst, bytes, left: bytes, token })
    }

    /// Sends a message of this family that is nobody's operation: where it cannot be sent, the PE is lost.
    pub(super) fn ask(&mut self, pe: usize, head: Head, data: Vec<u8>) {
        if !self.may_send(pe) {
            return self.peers[pe].held.push_back(Queued::Word(head, data));
        }
        if let Err(e) = self.send_copy(pe, head, Payload::Word(data)) {
            self.inbox().lose(pe, e);
        }
    }

    pub(super) fn queue(
        &mut self,
        pe: usize,
        goal: Destination,
        src: usize,
        bytes: usize,
        completes: Completes,
    ) -> usize {
        let copy = OutgoingCopy { goal, src, bytes, at: 0, flying: 0, completes, failed: None };
        let key = self.pieces.copies.insert(copy);
        let line = &mut self.pieces.lines[pe];
        match goal {
            Destination::Segment { .. } => line.puts.push_back(Item::Copy(key)),
            Destination::Landing(_) => line.answers.push_back(key),
        }
        key
    }

    /// Sends what may be on its way to `pe`.
    pub(super) fn pump(&mut self, pe: usize) {
        loop {
            if self.pieces.lines[pe].flying >= WINDOW || !self.may_send(pe) {
                return;
            }
            let line = &mut self.pieces.lines[pe];
            line.answers_next = !line.answers_next;
            let answer = if line.answers_next || line.puts.is_empty() { line.answers.front() } else { None };
            match (answer, line.puts.front()) {
                (Some(&key), _) => {
                    if self.next_piece(pe, key) {
                        self.pieces.lines[pe].answers.pop_front();
                        self.end(key);
                    }
                }
                (None, Some(&Item::Copy(key))) => {
                    if self.next_piece(pe, key) {
                        self.pieces.lines[pe].puts.pop_front();
                        self.end(key);
                    }
                }
                (None, Some(&Item::Flush(token))) => {
                    line.puts.pop_front();
                    let count = line.pieces;
                    line.asked.insert(token, count);
                    self.ask(pe, Head::Flush { count, token }, Vec::new());
                }
                (None, None) => return,
            }
        }
    }

    /// Sends the next piece of a copy. True: there is none behind it.
    fn next_piece(&mut self, pe: usize, key: usize) -> bool {
        let Pieces { each, lines, copies, .. } = &mut self.pieces;
        let (line, copy) = (&mut lines[pe], &mut copies[key]);
        let (at, bytes) = (copy.at, (*each).min(copy.bytes - copy.at));
        if bytes == 0 {
            return true;
        }
        let head = match copy.goal {
            Destination::Segment { id, address } => {
                line.pieces += 1;
                Head::Put { number: line.pieces - 1, segment: id, address: address + at as u64 }
            }
            Destination::Landing(landing) => Head::Piece { landing, at: at as u64 },
        };
        copy.at += bytes;
        let source = copy.src + at;
        // A tag is of what does not change any more: others may write to the source meanwhile.
        let mut data = self.inbox().spare_pieces.pop().unwrap_or_default();
        data.clear();
        data.reserve(bytes);
        // SAFETY: the source is valid until the copy is over, as its completes vouches, and the buffer has
        // room.
        unsafe {
            crate::word::copy(data.as_mut_ptr(), source as *const u8, bytes);
            data.set_len(bytes);
        }
        let sent = self.send_copy(pe, head, Payload::Piece { pe, copy: key, data });
        let copy = &mut self.pieces.copies[key];
        match sent {
            Ok(true) => {}
            Ok(false) => {
                copy.flying += 1;
                self.pieces.lines[pe].flying += bytes;
            }
            Err(e) => copy.stop(&e),
        }
        copy.at == copy.bytes
    }

    /// Completes a copy that is over.
    pub(super) fn end(&mut self, key: usize) {
        let copy = &self.pieces.copies[key];
        if !copy.is_over() || copy.completes == Completes::Caller {
            return;
        }
        let copy = self.pieces.copies.remove(key);
        match (copy.completes, copy.failed) {
            (Completes::Token(token), None) => self.push_event(Event::Done(token)),
            (Completes::Token(token), Some(e)) => self.push_event(Event::Failed(token, e)),
            _ => {}
        }
    }

    /// UCX has let go of a piece.
    pub(super) fn landed(&mut self, Sent { pe, copy, bytes, result }: Sent) {
        self.pieces.lines[pe].flying -= bytes;
        let of = &mut self.pieces.copies[copy];
        of.flying -= 1;
        let ended = of.at == of.bytes;
        if let Err(e) = result {
            of.stop(&e);
        }
        if !ended && of.at == of.bytes {
            self.unqueue(pe, copy);
        }
        self.end(copy);
        self.pump(pe);
    }

    fn unqueue(&mut self, pe: usize, key: usize) {
        let line = &mut self.pieces.lines[pe];
        line.puts.retain(|item| *item != Item::Copy(key));
        line.answers.retain(|answer| *answer != key);
    }
}
