//! UCX as the transport: one context and one worker for each PE, connections made when they are first used.
//!
//! One thread at a time uses the worker (`UCS_THREAD_MODE_SERIALIZED`): the thread that holds the engine.
//! Completions, messages and failures come as callbacks out of `ucp_worker_progress` and the calls
//! themselves; they only note what has happened in [`Inbox`], and [`Transport::progress`] hands it on.
//!
//! Endpoints are made with error handling by peer, so that the end of a PE is an event and not the end of the
//! process. For the same reason UCX copies one-sided on networks alone that can do it by themselves
//! ([`carrier`]); elsewhere [`pieces`] does, and PEs [meet](meeting) before they speak.
//!
//! Any process that reaches UCX's port can send messages. So each one is sealed under a [key](keys) of the
//! two PEs, and [verified](guard) before it has any effect. UCX offers no more than the job needs: it
//! [listens](listen) only where the job is, and takes one-sided copies, which may name any address of the
//! process, only from networks whose cards carry them out.

mod callbacks;
pub(crate) mod carrier;
mod connect;
mod credit;
mod guard;
mod inbox;
mod keys;
pub(crate) mod listen;
#[cfg(test)]
mod listening;
mod meeting;
#[cfg(test)]
mod meeting_tests;
mod memory;
mod open;
mod operations;
mod piece;
mod pieces;
mod requests;
mod seal;
mod status;
#[cfg(test)]
mod stranger;
#[cfg(test)]
mod strangers_tests;
#[cfg(test)]
mod tests;
mod window;
mod wire;

use std::collections::HashMap;
use std::os::fd::RawFd;

use ucx_sys::*;

use crate::config::{Carrier, FarGpu};
use crate::net::transport::Transport;
use connect::Endpoint;
use inbox::Inbox;
use pieces::Pieces;

/// The numbers of our active messages: the engine's, and those about copies.
const AM_ID: u32 = 1;
const COPY_ID: u32 = 2;
/// Buffers kept for messages.
const SPARE: usize = 256;

/// The transport.
pub(crate) struct Ucx {
    me: usize,
    ucp: &'static Ucp,
    context: ucp_context_h,
    worker: ucp_worker_h,
    fd: RawFd,
    inbox: *mut Inbox,
    peers: Vec<Endpoint>,
    /// Its own, and whether they are a GPU's, which messages cannot fill.
    segments: HashMap<u32, (ucp_mem_h, bool)>,
    pieces: Pieces,
    carrier: Carrier,
    /// UCX may have to copy one-sided. Where not, it is not asked for that, and does nothing of the kind for
    /// others either.
    rma: bool,
    way: FarGpu,
    /// Whether it reaches GPU memory, once that has been tried.
    gpus: Option<bool>,
    /// Whether PEs meet first, and those that are being met.
    meets: bool,
    meetings: Vec<usize>,
}

// SAFETY: UCX objects may be used by any thread, one at a time; the inbox is reached from calls on them
// alone.
unsafe impl Send for Ucx {}

impl Ucx {
    /// What callbacks have left.
    fn inbox(&mut self) -> &mut Inbox {
        // SAFETY: callbacks come out of calls of UCX alone, which nobody makes with this in hand.
        unsafe { &mut *self.inbox }
    }
}

impl Drop for Ucx {
    fn drop(&mut self) {
        // What still comes in finds no memory.
        let inbox = self.inbox();
        inbox.memory.clear();
        if inbox.guards.dropped.total() > 0 {
            log::info!("messages of strangers that were dropped: {}", inbox.guards.dropped);
        }
        self.cut();
        // SAFETY: in the reverse order of their making; callbacks may come until the worker is gone, and find
        // the inbox.
        unsafe {
            if !self.worker.is_null() {
                self.ucp.ucp_worker_destroy(self.worker);
            }
            for (_, (handle, _)) in self.segments.drain() {
                self.ucp.ucp_mem_unmap(self.context, handle);
            }
            if !self.context.is_null() {
                self.ucp.ucp_cleanup(self.context);
            }
            drop(Box::from_raw(self.inbox));
        }
    }
}

/// A head that is one means the same when it is sent on.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz_head(bytes: &[u8]) {
    for part in crate::seeds::parts(bytes) {
        if let Some((sender, head)) = wire::Head::decode(part) {
            assert_eq!(wire::Head::decode(&head.encode(sender)), Some((sender, head)));
        }
    }
}
