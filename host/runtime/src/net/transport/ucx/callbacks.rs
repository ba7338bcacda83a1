//! What UCX calls: each callback notes in the [`Inbox`] what has happened, and no more.

use std::ffi::c_void;
use std::mem::zeroed;

use ucx_sys::*;

use super::guard::Refusal;
use super::inbox::{Announced, Inbox, Lost, UserData};

pub(super) fn sent(user: *mut UserData) -> ucp_request_param_t {
    // SAFETY: zeroes are valid for it.
    let mut param: ucp_request_param_t = unsafe { zeroed() };
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.cb.send = Some(on_sent);
    param.user_data = user.cast();
    param
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

/// What UCX hands over.
///
/// # Safety
/// Valid for `length` bytes, unless that is 0, for as long as the callback runs.
unsafe fn bytes<'a>(at: *const c_void, length: usize) -> &'a [u8] {
    match length {
        0 => &[],
        // SAFETY: UCX's own arguments of a callback, valid while that runs.
        _ => unsafe { std::slice::from_raw_parts(at.cast::<u8>(), length) },
    }
}

/// Whether the data is still at the sender, for UCX to fetch.
///
/// # Safety
/// The parameter of a callback.
unsafe fn is_fetched(param: *const ucp_am_recv_param_t) -> bool {
    // SAFETY: UCX's own arguments of a callback, valid while that runs.
    unsafe { (*param).recv_attr & u64::from(UCP_AM_RECV_ATTR_FLAG_RNDV) != 0 }
}

/// A put, a get, a flush or a message is over.
///
/// # Safety
/// Here and below: UCX calls it from `ucp_worker_progress`, with the argument that was set for it.
pub(super) unsafe extern "C" fn on_sent(request: *mut c_void, status: ucs_status_t, user: *mut c_void) {
    // SAFETY: the user made for this request; the inbox lives as long as the worker, and nobody else has it
    // now.
    unsafe {
        let user = Box::from_raw(user.cast::<UserData>());
        let inbox = &mut *user.inbox;
        let result = if status == UCS_OK { Ok(()) } else { Err(inbox.text(status)) };
        if let Some(ucp) = inbox.ucp {
            ucp.ucp_request_free(request);
        }
        inbox.done(*user, result);
    }
}

/// The data of a large message is here.
pub(super) unsafe extern "C" fn on_received(
    request: *mut c_void,
    status: ucs_status_t,
    _length: usize,
    user: *mut c_void,
) {
    // SAFETY: the arguments are those of `on_sent`, with a request that is over.
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
        let fetched = is_fetched(param);
        let header = bytes(header, header_length);
        if header.is_empty() && !fetched {
            inbox.take_message(bytes(data, length));
            return UCS_OK;
        }
        let announced = match fetched {
            true => Announced::Descriptor(data, length),
            false => Announced::Bytes(Vec::new()),
        };
        if !inbox.take_bulk(header, length, announced, bytes(data, if fetched { 0 } else { length })) {
            return UCS_OK;
        }
        // What is kept stays until it is received.
        if fetched {
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
    param: *const ucp_am_recv_param_t,
) -> ucs_status_t {
    // SAFETY: UCX passes the inbox that the handler was set with, and a header and data of the lengths given.
    // Segments stay until they are forgotten, landings until they are abandoned.
    unsafe {
        let inbox = &mut *arg.cast::<Inbox>();
        if is_fetched(param) {
            // No PE sends such a thing: `data` is a descriptor of UCX's.
            inbox.guards.refuse(Refusal::Forged);
        } else {
            inbox.take_copy(bytes(header, header_length), bytes(data, length));
        }
    }
    UCS_OK
}
