//! Two PEs meet before they are asked for anything, where UCX is older than 1.14: until then nothing is given
//! to UCX that it keeps.
//!
//! UCX connects endpoints by messages of its own, a request and a reply, once an operation needs it. The
//! reply of 1.13 may wait in a line where UCX expects none, that of a TCP connection which is still being
//! made or has data to send; if the connection breaks then, or the worker goes, an assertion ends the process
//! (`ucp_request_send_state_ff`, "got REP message"; 1.14 does without it). Debian builds UCX with assertions.
//!
//! So PEs greet each other first, with words that UCX sends at once or not at all and that start no request.
//! A PE that is greeted connects and greets back. Then both TCP connections are up and empty, the PE of the
//! lower number asks for UCX's request, and its reply goes out at once. When that is over, both begin with
//! what has been asked of them meanwhile.

use std::collections::VecDeque;
use std::mem::zeroed;
use std::ptr::null;

use ucx_sys::*;

use super::inbox::Payload;
use super::status::check;
use super::wire::{Head, SEALED};
use super::{Ucx, COPY_ID};
use crate::error::{Error, Result};
use crate::net::transport::{Event, Remote, Token, Transport, BULK_HEAD};

/// How far two PEs have come.
#[derive(Default)]
pub(super) struct Handshake {
    /// This PE has greeted, and was greeted.
    greeted: bool,
    was_greeted: bool,
    /// It has asked for UCX's request.
    asked: bool,
    pub(super) later: VecDeque<Deferred>,
}

/// What is asked of a PE that has not been met.
pub(super) enum Deferred {
    Put { to: Remote, src: *const u8, bytes: usize, token: Token },
    Get { from: Remote, dst: *mut u8, bytes: usize, token: Token },
    Message(Vec<u8>),
    Bulk { head: [u8; BULK_HEAD], data: *const u8, bytes: usize, token: Token },
    Flush(Token),
}

/// Whether this UCX needs it. One that knows GPUs has no words that are sent at once, and is not Debian's.
///
/// # Safety
/// The context is alive.
pub(super) unsafe fn is_needed(ucp: &Ucp, context: ucp_context_h) -> bool {
    let version = ucp.version();
    // SAFETY: zeroes are valid, and the mask names what is asked for.
    unsafe {
        let mut attr: ucp_context_attr_t = zeroed();
        attr.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES.into();
        (version.0, version.1) < (1, 14)
            && ucp.ucp_context_query(context, &mut attr) == UCS_OK
            && attr.memory_types == 1 << UCS_MEMORY_TYPE_HOST
    }
}

impl Ucx {
    /// Where what is asked of `pe` waits, until it has been met.
    pub(super) fn deferred(&mut self, pe: usize) -> Option<&mut VecDeque<Deferred>> {
        self.peers[pe].meeting.as_mut().map(|meeting| &mut meeting.later)
    }

    /// How much waits.
    pub(super) fn waiting(&self) -> usize {
        let later = |pe: &usize| self.peers[*pe].meeting.as_ref().map_or(0, |meeting| meeting.later.len());
        self.meetings.iter().map(later).sum()
    }

    pub(super) fn begin_meeting(&mut self, pe: usize) {
        self.peers[pe].meeting.get_or_insert_default();
        if !self.meetings.contains(&pe) {
            self.meetings.push(pe);
        }
    }

    /// `pe` has said its word.
    pub(super) fn greeted_by(&mut self, pe: usize) {
        if let Err(e) = self.endpoint(pe) {
            return self.inbox().lose(pe, e);
        }
        self.begin_meeting(pe);
        self.peers[pe].meeting.as_mut().expect("just begun").was_greeted = true;
    }

    /// Lets all meetings go on.
    pub(super) fn advance_meetings(&mut self) {
        for pe in std::mem::take(&mut self.meetings) {
            if let Err(e) = self.step(pe) {
                self.inbox().lose(pe, e);
            }
            if self.peers[pe].meeting.is_some() {
                self.meetings.push(pe);
            }
        }
    }

    fn step(&mut self, pe: usize) -> Result<()> {
        let Some(Handshake { greeted, was_greeted, asked, .. }) = self.peers[pe].meeting else {
            return Ok(());
        };
        let greeted = greeted || self.greet(pe)?;
        let asks = greeted && was_greeted && !asked && self.me < pe;
        if asks {
            self.send_copy(pe, Head::Open, Payload::Word(Vec::new()))?;
        }
        if let Some(meeting) = &mut self.peers[pe].meeting {
            (meeting.greeted, meeting.asked) = (greeted, asked || asks);
        }
        Ok(())
    }

    /// Says this PE's word, if UCX can send it now.
    fn greet(&mut self, pe: usize) -> Result<bool> {
        let (ep, plain) = (self.endpoint(pe)?, Head::Hello.encode(self.me));
        let head = self.inbox().guards.seal_copy(pe, &plain, &[], true)?;
        // SAFETY: a live endpoint; what is sent at once or not at all is read before the call returns.
        let status = unsafe {
            let mut param: ucp_request_param_t = zeroed();
            param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL;
            param.flags = UCP_AM_SEND_FLAG_EAGER;
            let sent = self.ucp.ucp_am_send_nbx(ep, COPY_ID, head.as_ptr().cast(), SEALED, null(), 0, &param);
            UCS_PTR_RAW_STATUS(sent)
        };
        if status == UCS_ERR_NO_RESOURCE {
            self.inbox().guards.take_back(pe);
            return Ok(false);
        }
        check(self.ucp, "connecting", status).map(|()| true)
    }

    /// The two have met: what has waited for it begins.
    pub(super) fn end_meeting(&mut self, pe: usize) {
        let Some(meeting) = self.peers[pe].meeting.take() else { return };
        for later in meeting.later {
            // SAFETY: as those vouch who have asked for it.
            let begun = unsafe {
                match later {
                    Deferred::Put { to, src, bytes, token } => (token, self.put(to, src, bytes, token)),
                    Deferred::Get { from, dst, bytes, token } => (token, self.get(from, dst, bytes, token)),
                    Deferred::Bulk { head, data, bytes, token } => {
                        (token, self.send_bulk(pe, head, data, bytes, token))
                    }
                    Deferred::Flush(token) => (token, self.flush(pe, token)),
                    Deferred::Message(message) => {
                        let sent = self.send(pe, message);
                        debug_assert!(sent.is_ok(), "a failure is an event");
                        continue;
                    }
                }
            };
            match begun {
                (token, Ok(true)) => self.push_event(Event::Done(token)),
                (_, Ok(false)) => {}
                (token, Err(e)) => self.push_event(Event::Failed(token, e)),
            }
        }
    }

    /// They never will.
    pub(super) fn cancel_meeting(&mut self, pe: usize, why: &Error) {
        let Some(meeting) = self.peers[pe].meeting.take() else { return };
        for later in meeting.later {
            match later {
                Deferred::Put { token, .. }
                | Deferred::Get { token, .. }
                | Deferred::Bulk { token, .. }
                | Deferred::Flush(token) => self.push_event(Event::Failed(token, why.clone())),
                Deferred::Message(buffer) => self.recycle(buffer),
            }
        }
    }
}
