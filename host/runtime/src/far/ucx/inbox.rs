//! What UCX's callbacks note, for the transport to hand on.

use std::collections::HashMap;
use std::ffi::c_void;
use std::mem::zeroed;

use ucx_sys::*;

use super::SPARE;
use crate::error::{err, Error, Result};
use crate::far::transport::{BulkId, Event, Token, MESSAGE};

/// What callbacks leave. They have it by raw pointer; nobody holds a reference while UCX is called.
#[derive(Default)]
pub(super) struct Inbox {
    pub(super) events: Vec<Event>,
    pub(super) spare: Vec<Vec<u8>>,
    /// Messages on their way out.
    pub(super) sending: usize,
    /// Data that has been announced and not taken: UCX's descriptor, or bytes that came at once.
    pub(super) bulk: HashMap<u64, Announced>,
    pub(super) next_bulk: u64,
    pub(super) ucp: Option<&'static Ucp>,
}

pub(super) enum Announced {
    Descriptor(*mut c_void, usize),
    Bytes(Vec<u8>),
}

/// Something in flight: what its callback needs.
pub(super) struct Ticket {
    pub(super) inbox: *mut Inbox,
    /// `None`: a message, whose buffer this keeps.
    pub(super) token: Option<Token>,
    pub(super) buffer: Vec<u8>,
}

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
        match (ticket.token, result) {
            (Some(token), Ok(())) => self.events.push(Event::Done(token)),
            (Some(token), Err(e)) => self.events.push(Event::Failed(token, e)),
            // A message that cannot be sent: the endpoint's error handler tells.
            (None, _) => {
                self.sending -= 1;
                self.recycle(ticket.buffer);
            }
        }
    }

    pub(super) fn text(&self, status: ucs_status_t) -> Error {
        let text = self.ucp.map_or_else(String::new, |ucp| ucp.status_text(status));
        err!(IO, "UCX: {text}")
    }
}

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
        inbox.events.push(Event::Lost(lost.pe, error));
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
        let id = inbox.next_bulk;
        inbox.next_bulk += 1;
        let kept = if announced {
            Announced::Descriptor(data, length)
        } else {
            Announced::Bytes(std::slice::from_raw_parts(data.cast::<u8>(), length).to_vec())
        };
        inbox.bulk.insert(id, kept);
        inbox.events.push(Event::Bulk { head, bytes: length, data: BulkId(id) });
        // What is kept stays until it is received.
        if announced {
            UCS_INPROGRESS
        } else {
            UCS_OK
        }
    }
}
