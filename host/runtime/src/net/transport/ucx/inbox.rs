//! What UCX's callbacks note, for the transport to hand on.

use std::collections::HashMap;
use std::ffi::c_void;

use ucx_sys::*;

use super::guard::{Guards, Refusal, TRAILER};
use super::window::{ReplayWindow, Seen};
use super::wire::{Head, HEAD, SEALED};
use super::{status, SPARE};
use crate::error::{err, Error, Result};
use crate::net::transport::{BulkId, Event, Token, BULK_HEAD, MESSAGE};

/// Buffers kept for pieces: as many as are on their way to a PE, of the long ones.
const SPARE_PIECES: usize = 18;

/// What callbacks leave. They have it by raw pointer; nobody holds a reference while UCX is called.
pub(super) struct Inbox {
    /// Which messages are accepted.
    pub(super) guards: Guards,
    pub(super) events: Vec<Event>,
    pub(super) spare: Vec<Vec<u8>>,
    /// Buffers for pieces.
    pub(super) spare_pieces: Vec<Vec<u8>>,
    /// Messages on their way out.
    pub(super) sending: usize,
    /// Data that has been announced and not taken.
    pub(super) bulk: HashMap<u64, Announced>,
    pub(super) next_bulk: u64,
    pub(super) ucp: Option<&'static Ucp>,
    /// This PE's memory that others may name, by segment: address and bytes; none where it is a GPU's.
    pub(super) memory: HashMap<u32, (usize, usize)>,
    /// The pieces of each PE's puts that are in their place.
    pub(super) arrivals: Vec<ReplayWindow>,
    /// Where what this PE has asked for goes.
    pub(super) landings: HashMap<u64, Landing>,
    pub(super) next_landing: u64,
    /// For [`pieces`](super::pieces): pieces that UCX has let go of, words of other PEs, PEs that are lost.
    pub(super) sent: Vec<Sent>,
    pub(super) words: Vec<(usize, Head)>,
    pub(super) lost: Vec<(usize, Error)>,
}

pub(super) enum Announced {
    /// UCX fetches it: its descriptor, and how many bytes.
    Descriptor(*mut c_void, usize),
    /// It came at once.
    Bytes(Vec<u8>),
    /// To be asked for, by the number that it has at its PE.
    Offer { pe: usize, id: u64, bytes: usize },
}

/// Memory that waits for another PE's data.
#[derive(Debug)]
pub(super) struct Landing {
    pub(super) pe: usize,
    pub(super) dst: usize,
    pub(super) bytes: usize,
    pub(super) left: usize,
    pub(super) token: Token,
}

/// A piece that UCX has let go of.
pub(super) struct Sent {
    pub(super) pe: usize,
    pub(super) copy: usize,
    pub(super) bytes: usize,
    pub(super) result: Result<()>,
}

/// What is in flight.
pub(super) enum Payload {
    /// A message of the engine's, in its buffer.
    Message(Vec<u8>),
    /// What the engine calls so.
    Operation(Token),
    /// A piece of a copy: what its tag is of, whatever becomes of the source meanwhile.
    Piece { pe: usize, copy: usize, data: Vec<u8> },
    /// A word about copies, with its data.
    Word(Vec<u8>),
}

/// Something in flight: what its callback needs.
pub(super) struct UserData {
    pub(super) inbox: *mut Inbox,
    pub(super) payload: Payload,
    /// The message's head, if it has one: UCX reads it until the message is out.
    pub(super) head: [u8; SEALED],
}

pub(super) struct Lost {
    pub(super) inbox: *mut Inbox,
    pub(super) pe: usize,
}

impl Inbox {
    pub(super) fn new(ucp: Option<&'static Ucp>, guards: Guards) -> Inbox {
        Inbox {
            guards,
            events: Vec::new(),
            spare: Vec::new(),
            spare_pieces: Vec::new(),
            sending: 0,
            bulk: HashMap::new(),
            next_bulk: 0,
            ucp,
            memory: HashMap::new(),
            arrivals: Vec::new(),
            landings: HashMap::new(),
            next_landing: 0,
            sent: Vec::new(),
            words: Vec::new(),
            lost: Vec::new(),
        }
    }

    /// A buffer for a message and what goes behind it.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_else(|| Vec::with_capacity(MESSAGE + TRAILER))
    }

    pub(super) fn recycle(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < SPARE && buffer.capacity() >= MESSAGE + TRAILER {
            self.spare.push(buffer);
        }
    }

    pub(super) fn done(&mut self, user: UserData, result: Result<()>) {
        match (user.payload, result) {
            (Payload::Operation(token), Ok(())) => self.events.push(Event::Done(token)),
            (Payload::Operation(token), Err(e)) => self.events.push(Event::Failed(token, e)),
            // A message that cannot be sent: the endpoint's error handler reports it.
            (Payload::Message(buffer), _) => {
                self.sending -= 1;
                self.recycle(buffer);
            }
            (Payload::Word(_), _) => {}
            (Payload::Piece { pe, copy, data }, result) => {
                let bytes = data.len();
                self.recycle_piece(data);
                self.sent.push(Sent { pe, copy, bytes, result });
            }
        }
    }

    /// The buffer of a piece is free.
    pub(super) fn recycle_piece(&mut self, buffer: Vec<u8>) {
        if self.spare_pieces.len() < SPARE_PIECES {
            self.spare_pieces.push(buffer);
        }
    }

    /// The connection to `pe` is gone.
    pub(super) fn lose(&mut self, pe: usize, e: Error) {
        self.events.push(Event::Lost(pe, e.clone()));
        self.lost.push((pe, e));
    }

    /// Waits for data of `pe`, under a number that comes once.
    pub(super) fn land(&mut self, landing: Landing) -> u64 {
        self.next_landing += 1;
        self.landings.insert(self.next_landing, landing);
        self.next_landing
    }

    /// Nothing more of `pe` is awaited; the tokens of what was.
    pub(super) fn abandon(&mut self, pe: usize) -> Vec<Token> {
        let mut tokens = Vec::new();
        self.landings.retain(|_, landing| {
            if landing.pe == pe {
                tokens.push(landing.token);
            }
            landing.pe != pe
        });
        tokens
    }

    /// An error unless the bytes are this PE's and others may name them.
    pub(super) fn holds(&self, segment: u32, address: u64, bytes: usize) -> Result<()> {
        let inside = |&(start, length): &(usize, usize)| {
            let offset = address.checked_sub(start as u64);
            offset.is_some_and(|offset| offset <= length as u64 && bytes as u64 <= length as u64 - offset)
        };
        if self.memory.get(&segment).is_some_and(inside) {
            return Ok(());
        }
        Err(err!(
            INTERNAL,
            "it names {bytes} bytes at {address:#x} of segment {segment}, which are not there"
        ))
    }

    /// A message of an engine, with its trailer. It is copied before it is looked at: what UCX hands over may
    /// lie in memory that its sender can still write.
    pub(super) fn take_message(&mut self, sealed: &[u8]) {
        if sealed.len() > MESSAGE + TRAILER {
            self.guards.refuse(Refusal::Forged);
            return;
        }
        let mut buffer = self.buffer();
        buffer.clear();
        buffer.extend_from_slice(sealed);
        match self.guards.open_message(&buffer) {
            Ok((_, bytes)) => {
                buffer.truncate(bytes);
                self.events.push(Event::Message(buffer));
            }
            Err(_) => self.recycle(buffer),
        }
    }

    /// A large message that UCX carries: its head, and the data if that came at once. False: it is dropped.
    pub(super) fn take_bulk(
        &mut self,
        sealed: &[u8],
        bytes: usize,
        mut announced: Announced,
        data: &[u8],
    ) -> bool {
        if self.guards.open_bulk(sealed, bytes).is_err() {
            return false;
        }
        if let Announced::Bytes(own) = &mut announced {
            own.extend_from_slice(data);
        }
        let head = sealed[..BULK_HEAD].to_vec();
        let data = self.announce(announced);
        self.events.push(Event::Bulk { head, bytes, data });
        true
    }

    /// A message about copies, as it came.
    ///
    /// # Safety
    /// Segments and landings are valid memory.
    pub(super) unsafe fn take_copy(&mut self, sealed: &[u8], data: &[u8]) {
        let Ok(from) = self.guards.open_copy(sealed, data, Head::sender) else { return };
        let done = match Head::decode(&sealed[..HEAD]) {
            // SAFETY: segments and landings are valid memory, says the caller.
            Some((_, head)) => unsafe { self.take_in(from, head, data) },
            None => Err(err!(
                INTERNAL,
                "a message about copies cannot be read: do all PEs run the same librushmem_host.so?"
            )),
        };
        if let Err(e) = done {
            self.lose(from, e);
        }
    }

    /// A message about copies.
    ///
    /// # Safety
    /// Segments and landings are valid memory.
    unsafe fn take_in(&mut self, from: usize, head: Head, data: &[u8]) -> Result<()> {
        match head {
            Head::Put { number, segment, address } => {
                self.holds(segment, address, data.len())?;
                if self.arrivals[from].take(number) != Seen::First {
                    return Err(err!(
                        INTERNAL,
                        "it sends a piece of the number {number} twice, or too early"
                    ));
                }
                // SAFETY: inside the segment, as just seen.
                unsafe { crate::word::copy(address as usize as *mut u8, data.as_ptr(), data.len()) };
            }
            Head::Piece { landing: id, at } => {
                // What has been given up may still come.
                let Some(landing) = self.landings.get_mut(&id).filter(|l| l.pe == from) else {
                    return Ok(());
                };
                let room = landing.bytes.saturating_sub(at as usize).min(landing.left);
                if data.len() > room {
                    return Err(err!(INTERNAL, "it sends more data than was asked for"));
                }
                // SAFETY: inside the landing, as just seen.
                unsafe {
                    crate::word::copy((landing.dst + at as usize) as *mut u8, data.as_ptr(), data.len())
                };
                landing.left -= data.len();
                if landing.left == 0 {
                    let token = landing.token;
                    self.landings.remove(&id);
                    self.events.push(Event::Done(token));
                }
            }
            Head::Offer { id, bytes } => {
                let bytes = bytes as usize;
                let data_id = self.announce(Announced::Offer { pe: from, id, bytes });
                self.events.push(Event::Bulk { head: data.to_vec(), bytes, data: data_id });
            }
            word => self.words.push((from, word)),
        }
        Ok(())
    }

    fn announce(&mut self, data: Announced) -> BulkId {
        let id = self.next_bulk;
        self.next_bulk += 1;
        self.bulk.insert(id, data);
        BulkId(id)
    }

    pub(super) fn text(&self, status: ucs_status_t) -> Error {
        let text = self.ucp.map_or_else(String::new, |ucp| status::text(ucp, status));
        err!(IO, "UCX: {text}")
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::Keys;
    use super::*;

    #[test]
    fn what_is_not_there_is_not_touched() {
        let mut memory = vec![0u8; 100];
        let at = memory.as_mut_ptr() as usize;
        let mut inbox = Inbox::new(None, Guards::new(Keys::new(0).unwrap()));
        inbox.arrivals = vec![ReplayWindow::default(), ReplayWindow::default()];
        inbox.memory.insert(3, (at, 100));
        let put = |segment, address: usize| Head::Put { number: 0, segment, address: address as u64 };
        // SAFETY: the memory is there.
        unsafe {
            inbox.take_in(1, put(3, at + 98), &[1, 2]).unwrap();
            // A piece that has come is no second one.
            inbox.take_in(1, put(3, at + 98), &[9, 9]).unwrap_err();
            for (head, data) in [
                (put(3, at + 99), &[9, 9][..]),
                (put(3, at - 1), &[9]),
                (put(2, at), &[9]),
                (put(3, usize::MAX), &[9, 9]),
            ] {
                inbox.take_in(1, head, data).unwrap_err();
            }
            // A landing takes what its PE sends, once, and as much as was asked for.
            let landing = inbox.land(Landing { pe: 1, dst: at, bytes: 4, left: 4, token: 7 });
            inbox.take_in(0, Head::Piece { landing, at: 0 }, &[9]).unwrap();
            inbox.take_in(1, Head::Piece { landing, at: 3 }, &[9, 9]).unwrap_err();
            inbox.take_in(1, Head::Piece { landing, at: 1 }, &[4, 5, 6]).unwrap();
            assert!(inbox.events.is_empty());
            inbox.take_in(1, Head::Piece { landing, at: 0 }, &[3]).unwrap();
            assert!(matches!(inbox.events[..], [Event::Done(7)]));
            inbox.take_in(1, Head::Piece { landing, at: 0 }, &[9]).unwrap();
        }
        assert_eq!((&memory[..5], &memory[98..]), (&[3, 4, 5, 6, 0][..], &[1, 2][..]));
        assert_eq!(inbox.arrivals[1].next, 1);
    }
}
