//! UCX as the transport: one context and one worker for each PE, connections made when they are first used.
//!
//! One thread at a time uses the worker (`UCS_THREAD_MODE_SERIALIZED`): whoever holds the engine. Completions, messages and
//! failures come as callbacks out of `ucp_worker_progress` and the calls themselves; they only note what has happened in
//! [`Inbox`], and [`Transport::progress`] hands it on.
//!
//! Endpoints are made with error handling by peer, so that the end of a PE is an event and not the end of the process. For the same
//! reason UCX copies one-sided on networks alone that can do it by themselves ([`carrier`]); elsewhere [`pieces`] does, and PEs
//! [meet](meeting) before they speak.
//!
//! Whoever reaches UCX's port can send messages. So each one is sealed under a [key](keys) of the two PEs and
//! [looked at](guard) before it is obeyed, and UCX is given no more to do than is needed: it [listens](listen)
//! where the job is, and takes one-sided copies, which name any address of the process, on networks alone
//! whose cards do them.

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
mod open;
mod piece;
mod pieces;
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
use std::ffi::c_void;
use std::mem::zeroed;
use std::os::fd::RawFd;
use std::ptr::null_mut;

use ucx_sys::*;

use crate::config::{Carrier, Way};
use crate::error::{err, Result};
use crate::net::gpu::direct::can_register;
use crate::net::transport::{BulkId, Event, Memory, Remote, Token, Transport, BULK_HEAD};
use callbacks::{on_received, sent};
use connect::Endpoint;
use credit::Held;
use inbox::{Announced, Inbox, Lost, What};
use keys::PUBLIC;
use meeting::Later;
use pieces::{Goal, Pieces};
use status::check;
use window::Window;

/// The numbers of our active messages: the engine's, and those about copies.
const AM_ID: u32 = 1;
const COPY_ID: u32 = 2;
/// Progress is made at most so many times before the engine looks at what came of it.
const ROUNDS: usize = 16;
/// Buffers kept for messages.
const SPARE: usize = 256;
/// Keys to memory that UCX copies to and from begin with the one; to memory that only messages reach there is
/// none.
const BY_UCX: u8 = 1;
const BY_MESSAGES: u8 = 0;
/// More messages than this on their way out are congestion.
const MOST_MESSAGES: usize = 512;

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
    way: Way,
    /// Whether it reaches GPU memory, once that has been tried.
    gpus: Option<bool>,
    /// Whether PEs meet first, and those that are being met.
    meets: bool,
    meetings: Vec<usize>,
}

// SAFETY: UCX objects may be used by any thread, one at a time; the inbox is reached from calls on them alone.
unsafe impl Send for Ucx {}

impl Ucx {
    /// What callbacks have left.
    fn inbox(&mut self) -> &mut Inbox {
        // SAFETY: callbacks come out of calls of UCX alone, which nobody makes with this in hand.
        unsafe { &mut *self.inbox }
    }

    /// Whether it can register a GPU's memory; the first of it is tried.
    fn reaches(&mut self, memory: Memory) -> Result<bool> {
        if !memory.single {
            return Ok(false);
        }
        if self.gpus.is_none() {
            // SAFETY: the context is this value's, which the caller has to itself.
            let able = || unsafe { can_register(self.ucp, self.context, memory.address, memory.bytes) };
            self.gpus = Some(self.way.by_ucx(able)?);
        }
        Ok(self.gpus == Some(true))
    }
}

impl Transport for Ucx {
    fn name(&self) -> &'static str {
        "ucx"
    }

    fn about(&self) -> String {
        format!("UCX {} ({})", self.ucp.version(), self.ucp.path().display())
    }

    fn address(&self) -> Result<Vec<u8>> {
        let (mut address, mut length) = (null_mut(), 0);
        // SAFETY: a live worker; the address is copied before it is released.
        unsafe {
            check(
                self.ucp,
                "its own address",
                self.ucp.ucp_worker_get_address(self.worker, &mut address, &mut length),
            )?;
            let address_bytes = std::slice::from_raw_parts(address.cast::<u8>(), length);
            // The inbox as in `inbox`.
            let told = [&(*self.inbox).guards.public()[..], address_bytes].concat();
            self.ucp.ucp_worker_release_address(self.worker, address);
            Ok(told)
        }
    }

    fn learn_addresses(&mut self, addresses: Vec<Vec<u8>>) {
        // What is too short to be one makes an address to which nobody can connect.
        let (public, addresses): (Vec<[u8; PUBLIC]>, Vec<Vec<u8>>) = addresses
            .into_iter()
            .map(|told| {
                told.split_first_chunk().map_or_else(Default::default, |(key, at)| (*key, at.to_vec()))
            })
            .unzip();
        let inbox = self.inbox();
        inbox.arrivals = addresses.iter().map(|_| Window::default()).collect();
        inbox.guards.learn(public);
        let inbox = self.inbox;
        let addresses = addresses.into_iter().enumerate();
        self.peers = addresses.map(|(pe, address)| Endpoint::new(address, Lost { inbox, pe })).collect();
    }

    unsafe fn register(&mut self, id: u32, memory: Memory) -> Result<Vec<u8>> {
        if memory.gpu && !self.reaches(memory)? {
            return Ok(Vec::new());
        }
        if !memory.gpu {
            self.inbox().memory.insert(id, (memory.address, memory.bytes));
            if !self.rma {
                return Ok(vec![BY_MESSAGES]);
            }
        }
        let ucp = self.ucp;
        // SAFETY: the caller vouches for the memory; the key is copied before it is released.
        unsafe {
            let mut params: ucp_mem_map_params_t = zeroed();
            params.field_mask = (UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH).into();
            params.address = memory.address as *mut c_void;
            params.length = memory.bytes;
            if memory.gpu {
                params.field_mask |= u64::from(UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE);
                params.memory_type = UCS_MEMORY_TYPE_CUDA;
            }
            let mut handle = null_mut();
            check(ucp, "registering memory", ucp.ucp_mem_map(self.context, &params, &mut handle))?;
            let (mut packed, mut length) = (null_mut(), 0);
            let status = ucp.ucp_rkey_pack(self.context, handle, &mut packed, &mut length);
            if status != UCS_OK {
                ucp.ucp_mem_unmap(self.context, handle);
                check(ucp, "packing a key", status)?;
            }
            let packed_bytes = std::slice::from_raw_parts(packed.cast::<u8>(), length);
            let key = [&[BY_UCX], packed_bytes].concat();
            ucp.ucp_rkey_buffer_release(packed);
            self.segments.insert(id, (handle, memory.gpu));
            Ok(key)
        }
    }

    fn learn_keys(&mut self, id: u32, keys: Vec<Vec<u8>>) {
        for (peer, key) in self.peers.iter_mut().zip(keys) {
            if let Some((&BY_UCX, key)) = key.split_first() {
                peer.keys.insert(id, (key.to_vec(), None));
            }
        }
    }

    fn forget(&mut self, id: u32) {
        for peer in &mut self.peers {
            if let Some((_, Some(key))) = peer.keys.remove(&id) {
                // SAFETY: unpacked by this endpoint, used no more.
                unsafe { self.ucp.ucp_rkey_destroy(key) };
            }
        }
        if let Some((address, bytes)) = self.inbox().memory.remove(&id) {
            self.pieces.forget(address, bytes);
        }
        if let Some((handle, _)) = self.segments.remove(&id) {
            // SAFETY: registered here; no PE uses it any more.
            unsafe { self.ucp.ucp_mem_unmap(self.context, handle) };
        }
    }

    unsafe fn put(&mut self, to: Remote, src: *const u8, bytes: usize, token: Token) -> Result<bool> {
        let Remote { pe, segment, address } = to;
        if !self.connects(pe, token) {
            return Ok(false);
        }
        if let Some(later) = self.until_met(pe) {
            later.push_back(Later::Put { to, src, bytes, token });
            return Ok(false);
        }
        if !self.by_network(pe, Some(segment))? {
            return self.put_pieces(pe, Goal::Segment { id: segment, address }, src as usize, bytes, token);
        }
        let (ep, key) = self.key(pe, segment)?;
        self.peers[pe].has_put = true;
        let ticket = self.ticket(What::Operation(token));
        // SAFETY: a live endpoint and its key; the caller vouches for the source.
        unsafe {
            let request = self.ucp.ucp_put_nbx(ep, src.cast(), bytes, address, key, &sent(ticket));
            self.started("put", request, ticket).map(|done| done.is_some())
        }
    }

    unsafe fn get(&mut self, from: Remote, dst: *mut u8, bytes: usize, token: Token) -> Result<bool> {
        let Remote { pe, segment, address } = from;
        if !self.connects(pe, token) {
            return Ok(false);
        }
        if let Some(later) = self.until_met(pe) {
            later.push_back(Later::Get { from, dst, bytes, token });
            return Ok(false);
        }
        if !self.by_network(pe, Some(segment))? {
            self.get_pieces(pe, segment, address, dst as usize, bytes, token);
            return Ok(false);
        }
        let (ep, key) = self.key(pe, segment)?;
        let ticket = self.ticket(What::Operation(token));
        // SAFETY: as for `put`.
        unsafe {
            let request = self.ucp.ucp_get_nbx(ep, dst.cast(), bytes, address, key, &sent(ticket));
            self.started("get", request, ticket).map(|done| done.is_some())
        }
    }

    fn send(&mut self, pe: usize, message: Vec<u8>) -> Result<()> {
        if let Err(e) = self.endpoint(pe) {
            self.inbox().lose(pe, e);
            return Ok(());
        }
        if let Some(later) = self.until_met(pe) {
            later.push_back(Later::Message(message));
            return Ok(());
        }
        self.inbox().sending += 1;
        if self.goes(pe) {
            self.send_counted(pe, message);
        } else {
            self.peers[pe].held.push_back(Held::Message(message));
        }
        Ok(())
    }

    unsafe fn send_bulk(
        &mut self,
        pe: usize,
        head: [u8; BULK_HEAD],
        data: *const u8,
        bytes: usize,
        token: Token,
    ) -> Result<bool> {
        if !self.connects(pe, token) {
            return Ok(false);
        }
        if let Some(later) = self.until_met(pe) {
            later.push_back(Later::Bulk { head, data, bytes, token });
            return Ok(false);
        }
        if !self.by_network(pe, None)? {
            self.offer(pe, head.to_vec(), data as usize, bytes, token);
            // Nobody asks for nothing.
            return Ok(bytes == 0);
        }
        if !self.goes(pe) {
            self.peers[pe].held.push_back(Held::Bulk { head, data, bytes, token });
            return Ok(false);
        }
        // SAFETY: passed on.
        unsafe { self.send_bulk_now(pe, &head, data, bytes, token) }
    }

    unsafe fn receive(&mut self, data: BulkId, dst: *mut u8, token: Token) -> Result<bool> {
        let kept = self.inbox().bulk.remove(&data.0);
        match kept.ok_or_else(|| err!(INTERNAL, "data that was not announced, or has been taken"))? {
            Announced::Bytes(bytes) => {
                // SAFETY: the caller vouches for the destination.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), dst, bytes.len()) };
                Ok(true)
            }
            Announced::Offer { bytes: 0, .. } => Ok(true),
            Announced::Offer { pe, id, bytes } => {
                self.want(pe, id, dst as usize, bytes, token);
                Ok(false)
            }
            Announced::Descriptor(descriptor, length) => {
                let ticket = self.ticket(What::Operation(token));
                let mut param = sent(ticket);
                param.cb.recv_am = Some(on_received);
                // SAFETY: a descriptor that its handler kept; the caller vouches for the destination.
                unsafe {
                    let request =
                        self.ucp.ucp_am_recv_data_nbx(self.worker, descriptor, dst.cast(), length, &param);
                    self.started("receiving data", request, ticket).map(|done| done.is_some())
                }
            }
        }
    }

    fn flush(&mut self, pe: usize, token: Token) -> Result<bool> {
        if let Some(later) = self.until_met(pe) {
            if later.is_empty() {
                return Ok(true);
            }
            later.push_back(Later::Flush(token));
            return Ok(false);
        }
        // Behind the answer to that comes UCX's own flush.
        if self.flush_pieces(pe, token) {
            return Ok(false);
        }
        self.flush_network(pe, token)
    }

    fn progress(&mut self, events: &mut Vec<Event>) {
        // SAFETY: a live worker; callbacks are over when it returns.
        unsafe {
            for _ in 0..ROUNDS {
                if self.ucp.ucp_worker_progress(self.worker) == 0 {
                    break;
                }
            }
        }
        self.go_on();
        events.append(&mut self.inbox().events);
    }

    fn fd(&self) -> Option<RawFd> {
        Some(self.fd).filter(|fd| *fd >= 0)
    }

    fn arm(&mut self) -> bool {
        // SAFETY: a live worker.
        self.inbox().events.is_empty() && unsafe { self.ucp.ucp_worker_arm(self.worker) } == UCS_OK
    }

    fn congested(&self) -> bool {
        // SAFETY: as in `inbox`.
        self.pieces.are_many() || unsafe { (*self.inbox).sending } + self.waiting() > MOST_MESSAGES
    }

    fn buffer(&mut self) -> Vec<u8> {
        self.inbox().buffer()
    }

    fn recycle(&mut self, buffer: Vec<u8>) {
        self.inbox().recycle(buffer);
    }

    fn cut(&mut self) {
        let why = err!(IO, "UCX: the connection was closed");
        for pe in 0..self.peers.len() {
            self.close(pe);
            self.lose(pe, &why);
        }
        // What others asked meanwhile would make connections anew.
        let inbox = self.inbox();
        inbox.words.clear();
        inbox.guards.owed.clear();
        self.go_on();
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
        // SAFETY: in the reverse order of their making; callbacks may come until the worker is gone, and find the inbox.
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
