//! What the engine asks of UCX: each operation goes to UCX itself or to [`pieces`](super::pieces), after the
//! PE has been met and while there is credit.

use std::os::fd::RawFd;
use std::ptr::null_mut;

use ucx_sys::*;

use super::callbacks::{on_received, sent};
use super::connect::Endpoint;
use super::credit::Queued;
use super::inbox::{Announced, Lost, Payload};
use super::keys::PUBLIC;
use super::meeting::Deferred;
use super::pieces::Destination;
use super::status::check;
use super::window::ReplayWindow;
use super::Ucx;
use crate::error::{err, Result};
use crate::net::transport::{BulkId, Event, Memory, Remote, Token, Transport, BULK_HEAD};

/// Progress is made at most so many times before the engine looks at what came of it.
const ROUNDS: usize = 16;
/// More messages than this on their way out are congestion.
const MOST_MESSAGES: usize = 512;

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
            let own = [&(*self.inbox).guards.public()[..], address_bytes].concat();
            self.ucp.ucp_worker_release_address(self.worker, address);
            Ok(own)
        }
    }

    fn learn_addresses(&mut self, addresses: Vec<Vec<u8>>) {
        // What is too short to be one makes an address to which nobody can connect.
        let (public, addresses): (Vec<[u8; PUBLIC]>, Vec<Vec<u8>>) = addresses
            .into_iter()
            .map(|own| own.split_first_chunk().map_or_else(Default::default, |(key, at)| (*key, at.to_vec())))
            .unzip();
        let inbox = self.inbox();
        inbox.arrivals = addresses.iter().map(|_| ReplayWindow::default()).collect();
        inbox.guards.learn(public);
        let inbox = self.inbox;
        let addresses = addresses.into_iter().enumerate();
        self.peers = addresses.map(|(pe, address)| Endpoint::new(address, Lost { inbox, pe })).collect();
    }

    unsafe fn register(&mut self, id: u32, memory: Memory) -> Result<Vec<u8>> {
        // SAFETY: the caller keeps the memory until the segment is forgotten.
        unsafe { self.register_memory(id, memory) }
    }

    fn learn_keys(&mut self, id: u32, keys: Vec<Vec<u8>>) {
        self.keep_keys(id, keys);
    }

    fn forget(&mut self, id: u32) {
        self.forget_memory(id);
    }

    unsafe fn put(&mut self, to: Remote, src: *const u8, bytes: usize, token: Token) -> Result<bool> {
        let Remote { pe, segment, address } = to;
        if !self.connects(pe, token) {
            return Ok(false);
        }
        if let Some(later) = self.deferred(pe) {
            later.push_back(Deferred::Put { to, src, bytes, token });
            return Ok(false);
        }
        if !self.by_network(pe, Some(segment))? {
            return self.put_pieces(
                pe,
                Destination::Segment { id: segment, address },
                src as usize,
                bytes,
                token,
            );
        }
        let (ep, key) = self.key(pe, segment)?;
        self.peers[pe].has_put = true;
        let user = self.user_data(Payload::Operation(token));
        // SAFETY: a live endpoint and its key; the caller vouches for the source.
        unsafe {
            let request = self.ucp.ucp_put_nbx(ep, src.cast(), bytes, address, key, &sent(user));
            self.started("put", request, user).map(|done| done.is_some())
        }
    }

    unsafe fn get(&mut self, from: Remote, dst: *mut u8, bytes: usize, token: Token) -> Result<bool> {
        let Remote { pe, segment, address } = from;
        if !self.connects(pe, token) {
            return Ok(false);
        }
        if let Some(later) = self.deferred(pe) {
            later.push_back(Deferred::Get { from, dst, bytes, token });
            return Ok(false);
        }
        if !self.by_network(pe, Some(segment))? {
            self.get_pieces(pe, segment, address, dst as usize, bytes, token);
            return Ok(false);
        }
        let (ep, key) = self.key(pe, segment)?;
        let user = self.user_data(Payload::Operation(token));
        // SAFETY: a live endpoint and its key; the caller keeps the destination valid.
        unsafe {
            let request = self.ucp.ucp_get_nbx(ep, dst.cast(), bytes, address, key, &sent(user));
            self.started("get", request, user).map(|done| done.is_some())
        }
    }

    fn send(&mut self, pe: usize, message: Vec<u8>) -> Result<()> {
        if let Err(e) = self.endpoint(pe) {
            self.inbox().lose(pe, e);
            return Ok(());
        }
        if let Some(later) = self.deferred(pe) {
            later.push_back(Deferred::Message(message));
            return Ok(());
        }
        self.inbox().sending += 1;
        if self.may_send(pe) {
            self.send_counted(pe, message);
        } else {
            self.peers[pe].held.push_back(Queued::Message(message));
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
        if let Some(later) = self.deferred(pe) {
            later.push_back(Deferred::Bulk { head, data, bytes, token });
            return Ok(false);
        }
        if !self.by_network(pe, None)? {
            self.offer(pe, head.to_vec(), data as usize, bytes, token);
            // Nobody asks for nothing.
            return Ok(bytes == 0);
        }
        if !self.may_send(pe) {
            self.peers[pe].held.push_back(Queued::Bulk { head, data, bytes, token });
            return Ok(false);
        }
        // SAFETY: the caller keeps the data valid until its token is done.
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
                self.fetch_offer(pe, id, dst as usize, bytes, token);
                Ok(false)
            }
            Announced::Descriptor(descriptor, length) => {
                let user = self.user_data(Payload::Operation(token));
                let mut param = sent(user);
                param.cb.recv_am = Some(on_received);
                // SAFETY: a descriptor that its handler kept; the caller vouches for the destination.
                unsafe {
                    let request =
                        self.ucp.ucp_am_recv_data_nbx(self.worker, descriptor, dst.cast(), length, &param);
                    self.started("receiving data", request, user).map(|done| done.is_some())
                }
            }
        }
    }

    fn flush(&mut self, pe: usize, token: Token) -> Result<bool> {
        if let Some(later) = self.deferred(pe) {
            if later.is_empty() {
                return Ok(true);
            }
            later.push_back(Deferred::Flush(token));
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
        self.act_on_callbacks();
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
        // SAFETY: callbacks come out of calls of UCX alone, of which none runs.
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
        self.act_on_callbacks();
    }
}
