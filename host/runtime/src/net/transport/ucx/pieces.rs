//! Copies by rushmem's own messages, for networks that cannot copy by themselves ([`carrier`](super::carrier) says why not by
//! UCX's). A copy goes in pieces that travel as eager messages out of the source itself, so many bytes at a time to each PE, and the
//! receiver's callback lays each one in its place. What a get asks for, and a large message, come back the same way.
//!
//! Puts and flushes to a PE wait in one line, answers in another; the two take turns. A flush is a question: are all pieces up to
//! that number in their place? Whoever dies is answered for by UCX: what was on its way fails, and nothing else happens.

use std::collections::{HashMap, VecDeque};

use slab::Slab;

use super::credit::Held;
use super::inbox::{Landing, Sent, What};
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
pub(super) enum Goal {
    Segment { id: u32, address: u64 },
    Landing(u64),
}

/// Who hears of the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// The call that starts it, which is still running.
    Caller,
    Nobody,
    Token(Token),
}

/// A copy going out.
#[derive(Debug)]
struct Stream {
    goal: Goal,
    src: usize,
    bytes: usize,
    /// So many have been given to UCX.
    at: usize,
    /// Pieces that UCX has not let go of.
    flying: usize,
    owner: Owner,
    failed: Option<Error>,
}

impl Stream {
    fn is_over(&self) -> bool {
        self.at == self.bytes && self.flying == 0
    }

    /// Nothing more of it is sent.
    fn stop(&mut self, why: &Error) {
        self.at = self.bytes;
        self.failed.get_or_insert_with(|| why.clone());
    }
}

/// In the line of puts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Item {
    Stream(usize),
    Flush(Token),
}

/// What goes to one PE.
#[derive(Debug, Default)]
struct Line {
    puts: VecDeque<Item>,
    answers: VecDeque<usize>,
    answers_next: bool,
    /// Bytes on their way.
    flying: usize,
    /// Pieces of puts so far; so many are known to be in their place.
    pieces: u64,
    flushed: u64,
    /// Flushes without an answer yet, and how many pieces they speak for.
    asked: HashMap<Token, u64>,
}

/// A large message that has been announced.
#[derive(Debug)]
struct Offer {
    pe: usize,
    data: usize,
    bytes: usize,
    token: Token,
}

/// All of it.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// Bytes of one.
    each: usize,
    lines: Vec<Line>,
    streams: Slab<Stream>,
    offers: HashMap<u64, Offer>,
    next_offer: u64,
    /// Flushes of others that cannot be answered yet: PE, count, token.
    questions: Vec<(usize, u64, Token)>,
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
        self.streams.len() > MANY
    }

    /// The memory goes: nobody is sent any more of it.
    pub(super) fn forget(&mut self, address: usize, bytes: usize) {
        let gone = err!(IO, "the memory is gone");
        for (_, stream) in &mut self.streams {
            if stream.owner == Owner::Nobody && (address..address + bytes).contains(&stream.src) {
                stream.stop(&gone);
            }
        }
    }
}

impl Ucx {
    /// Starts a put. True: the source is free already.
    pub(super) fn put_pieces(
        &mut self,
        pe: usize,
        goal: Goal,
        src: usize,
        bytes: usize,
        token: Token,
    ) -> Result<bool> {
        let key = self.queue(pe, goal, src, bytes, Owner::Caller);
        self.pump(pe);
        let stream = &mut self.pieces.streams[key];
        if !stream.is_over() {
            stream.owner = Owner::Token(token);
            return Ok(false);
        }
        match self.pieces.streams.remove(key).failed {
            None => Ok(true),
            Some(e) => {
                self.tell(Event::Failed(token, e));
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
    pub(super) fn want(&mut self, pe: usize, id: u64, dst: usize, bytes: usize, token: Token) {
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

    pub(super) fn tell(&mut self, event: Event) {
        self.inbox().events.push(event);
    }

    fn landing(&mut self, pe: usize, dst: usize, bytes: usize, token: Token) -> u64 {
        self.inbox().land(Landing { pe, dst, bytes, left: bytes, token })
    }

    /// Sends a message of this family that is nobody's operation: where it cannot be sent, the PE is lost.
    pub(super) fn ask(&mut self, pe: usize, head: Head, data: Vec<u8>) {
        if !self.goes(pe) {
            return self.peers[pe].held.push_back(Held::Word(head, data));
        }
        if let Err(e) = self.send_copy(pe, head, What::Word(data)) {
            self.inbox().lose(pe, e);
        }
    }

    fn queue(&mut self, pe: usize, goal: Goal, src: usize, bytes: usize, owner: Owner) -> usize {
        let stream = Stream { goal, src, bytes, at: 0, flying: 0, owner, failed: None };
        let key = self.pieces.streams.insert(stream);
        let line = &mut self.pieces.lines[pe];
        match goal {
            Goal::Segment { .. } => line.puts.push_back(Item::Stream(key)),
            Goal::Landing(_) => line.answers.push_back(key),
        }
        key
    }

    /// Sends what may be on its way to `pe`.
    pub(super) fn pump(&mut self, pe: usize) {
        loop {
            if self.pieces.lines[pe].flying >= WINDOW || !self.goes(pe) {
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
                (None, Some(&Item::Stream(key))) => {
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
        let Pieces { each, lines, streams, .. } = &mut self.pieces;
        let (line, stream) = (&mut lines[pe], &mut streams[key]);
        let (at, bytes) = (stream.at, (*each).min(stream.bytes - stream.at));
        if bytes == 0 {
            return true;
        }
        let head = match stream.goal {
            Goal::Segment { id, address } => {
                line.pieces += 1;
                Head::Put { number: line.pieces - 1, segment: id, address: address + at as u64 }
            }
            Goal::Landing(landing) => Head::Piece { landing, at: at as u64 },
        };
        stream.at += bytes;
        let source = stream.src + at;
        // A tag is of what does not change any more: others may write to the source meanwhile.
        let mut data = self.inbox().spare_pieces.pop().unwrap_or_default();
        data.clear();
        data.reserve(bytes);
        // SAFETY: the source is valid until the copy is over, as its owner vouches, and the buffer has room.
        unsafe {
            crate::word::copy(data.as_mut_ptr(), source as *const u8, bytes);
            data.set_len(bytes);
        }
        let sent = self.send_copy(pe, head, What::Piece { pe, stream: key, data });
        let stream = &mut self.pieces.streams[key];
        match sent {
            Ok(true) => {}
            Ok(false) => {
                stream.flying += 1;
                self.pieces.lines[pe].flying += bytes;
            }
            Err(e) => stream.stop(&e),
        }
        stream.at == stream.bytes
    }

    /// Tells whoever waits for it, if a copy is over.
    fn end(&mut self, key: usize) {
        let stream = &self.pieces.streams[key];
        if !stream.is_over() || stream.owner == Owner::Caller {
            return;
        }
        let stream = self.pieces.streams.remove(key);
        match (stream.owner, stream.failed) {
            (Owner::Token(token), None) => self.tell(Event::Done(token)),
            (Owner::Token(token), Some(e)) => self.tell(Event::Failed(token, e)),
            _ => {}
        }
    }

    /// Acts on what callbacks have noted.
    pub(super) fn go_on(&mut self) {
        let waits = !self.pieces.questions.is_empty() || !self.meetings.is_empty();
        let inbox = self.inbox();
        let nothing = inbox.sent.is_empty() && inbox.words.is_empty() && inbox.lost.is_empty();
        if nothing && inbox.guards.owed.is_empty() && !waits {
            return;
        }
        let (sent, words) = (std::mem::take(&mut inbox.sent), std::mem::take(&mut inbox.words));
        let lost = std::mem::take(&mut inbox.lost);
        for sent in sent {
            self.landed(sent);
        }
        for (from, word) in words {
            self.heed(from, word);
        }
        self.answer_questions();
        self.tell_news();
        for (pe, e) in lost {
            self.lose(pe, &e);
        }
        self.go_on_meeting();
    }

    /// UCX has let go of a piece.
    fn landed(&mut self, Sent { pe, stream, bytes, result }: Sent) {
        self.pieces.lines[pe].flying -= bytes;
        let of = &mut self.pieces.streams[stream];
        of.flying -= 1;
        let ended = of.at == of.bytes;
        if let Err(e) = result {
            of.stop(&e);
        }
        if !ended && of.at == of.bytes {
            self.unqueue(pe, stream);
        }
        self.end(stream);
        self.pump(pe);
    }

    fn unqueue(&mut self, pe: usize, key: usize) {
        let line = &mut self.pieces.lines[pe];
        line.puts.retain(|item| *item != Item::Stream(key));
        line.answers.retain(|answer| *answer != key);
    }

    /// Does what another PE asks.
    fn heed(&mut self, from: usize, word: Head) {
        match word {
            Head::Flush { count, token } => self.pieces.questions.push((from, count, token)),
            Head::Flushed { token } => {
                let line = &mut self.pieces.lines[from];
                let Some(count) = line.asked.remove(&token) else { return };
                line.flushed = line.flushed.max(count);
                match self.flush_network(from, token) {
                    Ok(true) => self.tell(Event::Done(token)),
                    Ok(false) => {}
                    Err(e) => self.tell(Event::Failed(token, e)),
                }
            }
            Head::Get { segment, address, bytes, landing } => {
                let bytes = bytes as usize;
                if let Err(e) = self.inbox().holds(segment, address, bytes) {
                    return self.inbox().lose(from, e);
                }
                self.queue(from, Goal::Landing(landing), address as usize, bytes, Owner::Nobody);
                self.pump(from);
            }
            Head::Want { id, landing } => {
                if self.pieces.offers.get(&id).is_none_or(|offer| offer.pe != from) {
                    return;
                }
                let Offer { data, bytes, token, .. } = self.pieces.offers.remove(&id).expect("just seen");
                self.queue(from, Goal::Landing(landing), data, bytes, Owner::Token(token));
                self.pump(from);
            }
            Head::Hello => self.hear(from),
            Head::Open => {
                self.ask(from, Head::Opened, Vec::new());
                self.meet(from);
            }
            Head::Opened => self.meet(from),
            Head::Seen { count } => self.hear_news(from, count),
            // Their callbacks have seen to them.
            Head::Put { .. } | Head::Piece { .. } | Head::Offer { .. } => {}
        }
    }

    /// Tells others which of their flushes are complete.
    fn answer_questions(&mut self) {
        let mut questions = std::mem::take(&mut self.pieces.questions);
        questions.retain(|&(pe, count, token)| {
            if self.inbox().arrivals[pe].next < count {
                return true;
            }
            self.ask(pe, Head::Flushed { token }, Vec::new());
            false
        });
        self.pieces.questions = questions;
    }

    /// Nothing goes to or comes from `pe` any more: what waits for it fails. Pieces that UCX still has come back by themselves.
    pub(super) fn lose(&mut self, pe: usize, why: &Error) {
        self.miss(pe, why);
        let mut tokens = self.inbox().abandon(pe);
        tokens.extend(self.let_go(pe));
        let line = &mut self.pieces.lines[pe];
        tokens.extend(line.asked.drain().map(|(token, _)| token));
        let mut streams = Vec::from(std::mem::take(&mut line.answers));
        for item in std::mem::take(&mut line.puts) {
            match item {
                Item::Flush(token) => tokens.push(token),
                Item::Stream(key) => streams.push(key),
            }
        }
        self.pieces.questions.retain(|(from, ..)| *from != pe);
        self.pieces.offers.retain(|_, offer| {
            if offer.pe == pe {
                tokens.push(offer.token);
            }
            offer.pe != pe
        });
        for token in tokens {
            self.tell(Event::Failed(token, why.clone()));
        }
        for key in streams {
            self.pieces.streams[key].stop(why);
            self.end(key);
        }
    }
}
