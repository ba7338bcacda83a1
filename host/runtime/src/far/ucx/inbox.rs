//! What UCX's callbacks note, for the transport to hand on.

use std::collections::{BTreeSet, HashMap};
use std::ffi::c_void;
use std::mem::zeroed;

use ucx_sys::*;

use super::wire::{Head, HEAD};
use super::SPARE;
use crate::error::{err, Error, Result};
use crate::far::transport::{BulkId, Event, Token, BULK_HEAD, MESSAGE};

/// What callbacks leave. They have it by raw pointer; nobody holds a reference while UCX is called.
#[derive(Default)]
pub(super) struct Inbox {
    pub(super) events: Vec<Event>,
    pub(super) spare: Vec<Vec<u8>>,
    /// Messages on their way out.
    pub(super) sending: usize,
    /// Data that has been announced and not taken.
    pub(super) bulk: HashMap<u64, Announced>,
    pub(super) next_bulk: u64,
    pub(super) ucp: Option<&'static Ucp>,
    /// This PE's memory that others may name, by segment: address and bytes; none where it is a GPU's.
    pub(super) memory: HashMap<u32, (usize, usize)>,
    /// How far each PE's pieces have come.
    pub(super) arrivals: Vec<Arrivals>,
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

/// The pieces of one PE's puts that are in their place: all below `next`, and some later ones.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    pub(super) next: u64,
    early: BTreeSet<u64>,
}

impl Arrivals {
    fn note(&mut self, number: u64) {
        if number != self.next {
            self.early.insert(number);
            return;
        }
        self.next += 1;
        while self.early.remove(&self.next) {
            self.next += 1;
        }
    }
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
    pub(super) stream: usize,
    pub(super) bytes: usize,
    pub(super) result: Result<()>,
}

/// What is in flight.
pub(super) enum What {
    /// A message of the engine's, in its buffer.
    Message(Vec<u8>),
    /// What the engine calls so.
    Operation(Token),
    /// A piece of a copy.
    Piece { pe: usize, stream: usize, bytes: usize },
    /// A word about copies, with its data.
    Word(Vec<u8>),
}

/// Something in flight: what its callback needs.
pub(super) struct Ticket {
    pub(super) inbox: *mut Inbox,
    pub(super) what: What,
    /// The message's head, if it has one: UCX reads it until the message is out.
    pub(super) head: [u8; HEAD],
}

const _: () = assert!(BULK_HEAD <= HEAD);

pub(super) struct Lost {
    pub(super) inbox: *mut Inbox,
    pub(super) pe: usize,
}

pub(super) fn sent(ticket: *mut Ticket) -> ucp_request_param_t {
    // SAFETY: zeroes are valid for it.
    let mut param: ucp_request_param_t = unsafe { zeroed() };
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.cb.send = Some(on_sent);
    param.user_data = ticket.cast();
    param
}

impl Inbox {
    pub(super) fn recycle(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < SPARE && buffer.capacity() >= MESSAGE {
            self.spare.push(buffer);
        }
    }

    pub(super) fn done(&mut self, ticket: Ticket, result: Result<()>) {
        match (ticket.what, result) {
            (What::Operation(token), Ok(())) => self.events.push(Event::Done(token)),
            (What::Operation(token), Err(e)) => self.events.push(Event::Failed(token, e)),
            // A message that cannot be sent: the endpoint's error handler tells.
            (What::Message(buffer), _) => {
                self.sending -= 1;
                self.recycle(buffer);
            }
            (What::Word(_), _) => {}
            (What::Piece { pe, stream, bytes }, result) => self.sent.push(Sent { pe, stream, bytes, result }),
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

    /// A message about copies.
    ///
    /// # Safety
    /// Segments and landings are valid memory.
    unsafe fn take_in(&mut self, from: usize, head: Head, data: &[u8]) -> Result<()> {
        match head {
            Head::Put { number, segment, address } => {
                self.holds(segment, address, data.len())?;
                // SAFETY: inside the segment, as just seen.
                unsafe { crate::word::copy(address as usize as *mut u8, data.as_ptr(), data.len()) };
                self.arrivals[from].note(number);
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
        let text = self.ucp.map_or_else(String::new, |ucp| ucp.status_text(status));
        err!(IO, "UCX: {text}")
    }
}

/// A callback for messages.
pub(super) type AmHandler = unsafe extern "C" fn(
    *mut c_void,
    *const c_void,
    usize,
    *mut c_void,
    usize,
    *const ucp_am_recv_param_t,
) -> ucs_status_t;

/// A put, a get, a flush or a message is over.
pub(super) unsafe extern "C" fn on_sent(request: *mut c_void, status: ucs_status_t, user: *mut c_void) {
    // SAFETY: the ticket made for this request; the inbox lives as long as the worker, and nobody else has it now.
    unsafe {
        let ticket = Box::from_raw(user.cast::<Ticket>());
        let inbox = &mut *ticket.inbox;
        let result = if status == UCS_OK { Ok(()) } else { Err(inbox.text(status)) };
        if let Some(ucp) = inbox.ucp {
            ucp.ucp_request_free(request);
        }
        inbox.done(*ticket, result);
    }
}

/// The data of a large message is here.
pub(super) unsafe extern "C" fn on_received(
    request: *mut c_void,
    status: ucs_status_t,
    _length: usize,
    user: *mut c_void,
) {
    // SAFETY: as for `on_sent`.
    unsafe { on_sent(request, status, user) };
}

/// A connection is lost.
pub(super) unsafe extern "C" fn on_lost(arg: *mut c_void, _ep: ucp_ep_h, status: ucs_status_t) {
    // SAFETY: the argument given with the endpoint, which lives as long.
    unsafe {
        let lost = &*arg.cast::<Lost>();
        let inbox = &mut *lost.inbox;
        let error = inbox.text(status);
        inbox.lose(lost.pe, error);
    }
}

/// A message has come.
pub(super) unsafe extern "C" fn on_message(
    arg: *mut c_void,
    header: *const c_void,
    header_length: usize,
    data: *mut c_void,
    length: usize,
    param: *const ucp_am_recv_param_t,
) -> ucs_status_t {
    // SAFETY: the inbox, which nobody else has now; header and data are valid for their lengths.
    unsafe {
        let inbox = &mut *arg.cast::<Inbox>();
        let announced = (*param).recv_attr & u64::from(UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
        if header_length == 0 && !announced {
            let mut buffer = inbox.spare.pop().unwrap_or_else(|| Vec::with_capacity(MESSAGE));
            buffer.clear();
            buffer.extend_from_slice(std::slice::from_raw_parts(data.cast::<u8>(), length));
            inbox.events.push(Event::Message(buffer));
            return UCS_OK;
        }
        let head = std::slice::from_raw_parts(header.cast::<u8>(), header_length).to_vec();
        let kept = if announced {
            Announced::Descriptor(data, length)
        } else {
            Announced::Bytes(std::slice::from_raw_parts(data.cast::<u8>(), length).to_vec())
        };
        let data = inbox.announce(kept);
        inbox.events.push(Event::Bulk { head, bytes: length, data });
        // What is kept stays until it is received.
        if announced {
            UCS_INPROGRESS
        } else {
            UCS_OK
        }
    }
}

/// A message about copies has come.
pub(super) unsafe extern "C" fn on_copy(
    arg: *mut c_void,
    header: *const c_void,
    header_length: usize,
    data: *mut c_void,
    length: usize,
    _param: *const ucp_am_recv_param_t,
) -> ucs_status_t {
    // SAFETY: as for `on_message`; segments stay until they are forgotten, landings until they are abandoned.
    unsafe {
        let inbox = &mut *arg.cast::<Inbox>();
        let bytes = |at: *const c_void, length| match length {
            0 => &[],
            _ => std::slice::from_raw_parts(at.cast::<u8>(), length),
        };
        #[cfg(any(test, feature = "fuzzing"))]
        crate::fuzzing::record(
            "far_pieces",
            bytes(header, header_length).first().copied().unwrap_or(0).into(),
            bytes(header, header_length),
        );
        match Head::decode(bytes(header, header_length)) {
            Some((from, head)) if from < inbox.arrivals.len() => {
                if let Err(e) = inbox.take_in(from, head, bytes(data, length)) {
                    inbox.lose(from, e);
                }
            }
            _ => log::error!(
                "a message about copies cannot be read: do all PEs run the same librushmem_host.so?"
            ),
        }
    }
    UCS_OK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_count_in_any_order() {
        let mut arrivals = Arrivals::default();
        for (number, next) in [(0, 1), (3, 1), (2, 1), (1, 4), (4, 5), (6, 5), (5, 7)] {
            arrivals.note(number);
            assert_eq!(arrivals.next, next, "after {number}");
        }
    }

    #[test]
    fn what_is_not_there_is_not_touched() {
        let mut memory = vec![0u8; 100];
        let at = memory.as_mut_ptr() as usize;
        let mut inbox =
            Inbox { arrivals: vec![Arrivals::default(), Arrivals::default()], ..Inbox::default() };
        inbox.memory.insert(3, (at, 100));
        let put = |segment, address: usize| Head::Put { number: 0, segment, address: address as u64 };
        // SAFETY: the memory is there.
        unsafe {
            inbox.take_in(1, put(3, at + 98), &[1, 2]).unwrap();
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
