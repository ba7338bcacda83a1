//! Connections to other PEs, made when they are first used, and what is sent over them.

use std::collections::{HashMap, VecDeque};
use std::mem::zeroed;
use std::ptr::{null, null_mut};

use ucx_sys::*;

use super::callbacks::{on_lost, sent};
use super::carrier::{one_sided, transports};
use super::credit::Queued;
use super::inbox::{Lost, Payload, UserData};
use super::meeting::Handshake;
use super::status::check;
use super::wire::{Head, SEALED};
use super::{Ucx, AM_ID, COPY_ID};
use crate::config::Carrier;
use crate::error::{err, Result};
use crate::net::transport::{Event, Token, BULK_HEAD};

/// Looks at a connection that is being closed.
const PATIENCE: usize = 10_000;

/// A connection.
pub(super) struct Endpoint {
    pub(super) address: Vec<u8>,
    pub(super) ep: Option<ucp_ep_h>,
    /// None is made any more.
    is_closed: bool,
    /// UCX copies over it.
    by_network: bool,
    /// It has put something since the connection was made.
    pub(super) has_put: bool,
    /// Until it has been met.
    pub(super) meeting: Option<Handshake>,
    /// What waits for a number ([`credit`](super::credit)).
    pub(super) held: VecDeque<Queued>,
    /// For the error handler.
    lost: Box<Lost>,
    /// Keys to its segments, as they came and as this connection has unpacked them.
    pub(super) keys: HashMap<u32, (Vec<u8>, Option<ucp_rkey_h>)>,
}

impl Endpoint {
    pub(super) fn new(address: Vec<u8>, lost: Lost) -> Endpoint {
        let lost = Box::new(lost);
        Endpoint {
            address,
            ep: None,
            is_closed: false,
            by_network: false,
            has_put: false,
            meeting: None,
            held: VecDeque::new(),
            lost,
            keys: HashMap::new(),
        }
    }
}

impl Ucx {
    /// The connection to `pe`, made now if it is not there yet.
    pub(super) fn endpoint(&mut self, pe: usize) -> Result<ucp_ep_h> {
        let peer = &mut self.peers[pe];
        if let Some(ep) = peer.ep {
            return Ok(ep);
        }
        if peer.is_closed {
            return Err(err!(IO, "the connection with PE {pe} was closed"));
        }
        if peer.address.is_empty() {
            return Err(err!(INTERNAL, "PE {pe} has made no address known"));
        }
        let mut ep = null_mut();
        // SAFETY: the address is a worker's; the handler's argument lives as long as the endpoint.
        let names = unsafe {
            let mut params: ucp_ep_params_t = zeroed();
            params.field_mask = (UCP_EP_PARAM_FIELD_REMOTE_ADDRESS
                | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE
                | UCP_EP_PARAM_FIELD_ERR_HANDLER)
                .into();
            params.address = peer.address.as_ptr().cast();
            params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
            params.err_handler.cb = Some(on_lost);
            params.err_handler.arg = (&raw mut *peer.lost).cast();
            check(self.ucp, "connecting", self.ucp.ucp_ep_create(self.worker, &params, &mut ep))?;
            transports(self.ucp, ep)
        };
        peer.by_network = match self.carrier {
            Carrier::Auto => self.rma && one_sided(&names),
            Carrier::Ucx => true,
            Carrier::Messages => false,
        };
        let how = if peer.by_network { "one-sided" } else { "in messages" };
        log::debug!("UCX connects with PE {pe} by {}; copies go {how}", names.join(", "));
        peer.ep = Some(ep);
        peer.has_put = false;
        // Networks that copy by themselves are connected in another way.
        if self.meets && !one_sided(&names) {
            self.begin_meeting(pe);
        }
        Ok(ep)
    }

    /// Connects to `pe` if need be. False where that cannot be, because its host is gone: then the operation
    /// fails as if it had been in flight, and the engine finds out why.
    pub(super) fn connects(&mut self, pe: usize, token: Token) -> bool {
        let Err(e) = self.endpoint(pe) else { return true };
        let inbox = self.inbox();
        inbox.lose(pe, e.clone());
        inbox.events.push(Event::Failed(token, e));
        false
    }

    /// Whether UCX copies to and from `pe`: a segment of a GPU it alone can reach.
    pub(super) fn by_network(&mut self, pe: usize, segment: Option<u32>) -> Result<bool> {
        self.endpoint(pe)?;
        let gpu = segment.and_then(|id| self.segments.get(&id)).is_some_and(|(_, gpu)| *gpu);
        let peer = &self.peers[pe];
        // What it copies in messages has no key.
        let has_key = segment.is_none_or(|id| peer.keys.contains_key(&id));
        Ok(has_key && (gpu || peer.by_network))
    }

    pub(super) fn key(&mut self, pe: usize, id: u32) -> Result<(ucp_ep_h, ucp_rkey_h)> {
        let ep = self.endpoint(pe)?;
        let ucp = self.ucp;
        let (packed, key) = self.peers[pe]
            .keys
            .get_mut(&id)
            .ok_or_else(|| err!(INTERNAL, "no key to segment {id} of PE {pe}"))?;
        if let Some(key) = *key {
            return Ok((ep, key));
        }
        let mut unpacked = null_mut();
        // SAFETY: a key as it was packed.
        let status = unsafe { ucp.ucp_ep_rkey_unpack(ep, packed.as_ptr().cast(), &mut unpacked) };
        check(ucp, "unpacking a key", status)?;
        *key = Some(unpacked);
        Ok((ep, unpacked))
    }

    pub(super) fn user_data(&self, payload: Payload) -> *mut UserData {
        Box::into_raw(Box::new(UserData { inbox: self.inbox, payload, head: [0; SEALED] }))
    }

    /// What a call has returned: done, or in flight, in which case the user is the callback's. What fails at
    /// once, on a connection that is lost already, fails as if it had been in flight: the engine finds out
    /// why. Messages and pieces have nobody who waits for them, so that their failure is the caller's.
    ///
    /// # Safety
    /// `user` was passed to the call and is not used again.
    pub(super) unsafe fn started(
        &mut self,
        what: &str,
        request: ucs_status_ptr_t,
        user: *mut UserData,
    ) -> Result<Option<Box<UserData>>> {
        if UCS_PTR_IS_PTR(request) {
            return Ok(None);
        }
        // SAFETY: no callback comes for what is over at once.
        let user = unsafe { Box::from_raw(user) };
        match check(self.ucp, what, UCS_PTR_RAW_STATUS(request)) {
            Ok(()) => Ok(Some(user)),
            Err(e) if matches!(user.payload, Payload::Operation(..)) => {
                self.inbox().done(*user, Err(e));
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Sends a message of the engine's, for which there is a number.
    pub(super) fn send_message(&mut self, pe: usize, mut message: Vec<u8>) -> Result<Option<Box<UserData>>> {
        let ep = self.endpoint(pe)?;
        self.inbox().guards.seal_message(pe, &mut message)?;
        let (data, length) = (message.as_ptr(), message.len());
        let user = self.user_data(Payload::Message(message));
        let param = eager(user);
        // SAFETY: a live endpoint; the user data keeps the buffer, whose bytes stay where they are.
        unsafe {
            let request = self.ucp.ucp_am_send_nbx(ep, AM_ID, null(), 0, data.cast(), length, &param);
            self.started("sending a message", request, user)
        }
    }

    /// Sends a large message of the engine's as UCX does it.
    ///
    /// # Safety
    /// The data is valid until the token is done.
    pub(super) unsafe fn send_bulk_now(
        &mut self,
        pe: usize,
        head: &[u8; BULK_HEAD],
        data: *const u8,
        bytes: usize,
        token: Token,
    ) -> Result<bool> {
        let ep = self.endpoint(pe)?;
        let me = self.me;
        let sealed = self.inbox().guards.seal_bulk(pe, me, head, bytes)?;
        let user = self.user_data(Payload::Operation(token));
        let param = sent(user);
        // SAFETY: the user data keeps the head, the caller the data.
        unsafe {
            (*user).head = sealed;
            let header = (&raw const (*user).head).cast();
            let request = self.ucp.ucp_am_send_nbx(ep, AM_ID, header, SEALED, data.cast(), bytes, &param);
            self.started("sending data", request, user).map(|done| done.is_some())
        }
    }

    /// Sends a message about copies, with the data that `payload` keeps; there is a number for it. True: UCX
    /// has let go of it.
    pub(super) fn send_copy(&mut self, pe: usize, head: Head, payload: Payload) -> Result<bool> {
        let ep = self.endpoint(pe)?;
        let own: &[u8] = match &payload {
            Payload::Word(own) | Payload::Piece { data: own, .. } => own,
            Payload::Message(_) | Payload::Operation(_) => &[],
        };
        let (data, bytes, plain) = (own.as_ptr(), own.len(), head.encode(self.me));
        let sealed = self.inbox().guards.seal_copy(pe, &plain, own, head.counts())?;
        let user = self.user_data(payload);
        let mut param = eager(user);
        if head == Head::Open {
            // What is not sent at once makes UCX connect its endpoints first.
            param.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
        }
        // SAFETY: a live endpoint; the user data keeps head and data.
        unsafe {
            (*user).head = sealed;
            let header = (&raw const (*user).head).cast();
            let request = self.ucp.ucp_am_send_nbx(ep, COPY_ID, header, SEALED, data.cast(), bytes, &param);
            self.started("copying", request, user).map(|done| done.is_some())
        }
    }

    /// Completes when all that UCX has put to `pe` is there. True: it is.
    pub(super) fn flush_network(&mut self, pe: usize, token: Token) -> Result<bool> {
        if !self.peers[pe].has_put {
            return Ok(true);
        }
        if !self.connects(pe, token) {
            return Ok(false);
        }
        let ep = self.endpoint(pe)?;
        let user = self.user_data(Payload::Operation(token));
        // SAFETY: a live endpoint.
        unsafe {
            let request = self.ucp.ucp_ep_flush_nbx(ep, &sent(user));
            self.started("flush", request, user).map(|done| done.is_some())
        }
    }

    /// Closes the connection to `pe`: what is in flight on it completes with an error, and what is asked from
    /// now on fails. A new connection would be answered by a PE that does not know yet that the job is
    /// broken; where this one ends before the answer is out, UCX 1.13 ends that PE
    /// ([`meeting`](super::meeting)).
    pub(super) fn close(&mut self, pe: usize) {
        let peer = &mut self.peers[pe];
        peer.is_closed = true;
        let Some(ep) = peer.ep.take() else { return };
        for (_, key) in peer.keys.values_mut() {
            if let Some(key) = key.take() {
                // SAFETY: unpacked by this endpoint, used no more.
                unsafe { self.ucp.ucp_rkey_destroy(key) };
            }
        }
        // SAFETY: a live endpoint, not used again.
        unsafe {
            let mut param: ucp_request_param_t = zeroed();
            param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
            param.flags = UCP_EP_CLOSE_FLAG_FORCE;
            let request = self.ucp.ucp_ep_close_nbx(ep, &param);
            if UCS_PTR_IS_PTR(request) {
                for _ in 0..PATIENCE {
                    if self.ucp.ucp_request_check_status(request) != UCS_INPROGRESS {
                        break;
                    }
                    self.ucp.ucp_worker_progress(self.worker);
                }
                self.ucp.ucp_request_free(request);
            }
        }
    }
}

/// A message that never waits for the receiver to fetch it, and that UCX copies where the network does not
/// take it at once. (Over TCP it must not keep the source instead: 1.13 to 1.22 report the end of such a send
/// twice where the connection breaks in its middle, in `uct_tcp_ep_sendv`, and that ends the process.)
fn eager(user: *mut UserData) -> ucp_request_param_t {
    let mut param = sent(user);
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FLAG_FAST_CMPL;
    param.flags = UCP_AM_SEND_FLAG_EAGER;
    param
}
