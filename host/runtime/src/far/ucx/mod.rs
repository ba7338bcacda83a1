//! UCX as the transport: one context and one worker for each PE, connections made when they are first used.
//!
//! One thread at a time uses the worker (`UCS_THREAD_MODE_SERIALIZED`): whoever holds the engine. Completions, messages and
//! failures come as callbacks out of `ucp_worker_progress` and the calls themselves; they only note what has happened in
//! [`Inbox`], and [`Transport::progress`] hands it on.
//!
//! Endpoints are made with error handling by peer, so that the end of a PE is an event and not the end of the process.

mod inbox;

use std::collections::HashMap;
use std::ffi::{c_void, CString};
use std::mem::zeroed;
use std::os::fd::RawFd;
use std::ptr::{null, null_mut};

use ucx_sys::*;

use crate::error::{err, Result};
use crate::far::gpu::direct::{can_register, Way};
use crate::far::transport::{BulkId, Event, Memory, Token, Transport, MESSAGE};
use inbox::{on_lost, on_message, on_received, sent, Announced, Inbox, Lost, Ticket};

/// The number of our active messages.
const AM_ID: u32 = 1;
/// Progress is made at most so many times before the engine looks at what came of it.
const ROUNDS: usize = 16;
/// Buffers kept for messages.
const SPARE: usize = 256;

/// A connection.
struct Endpoint {
    address: Vec<u8>,
    ep: Option<ucp_ep_h>,
    /// For the error handler.
    lost: Box<Lost>,
    /// Keys to its segments, as they came and as this connection has unpacked them.
    keys: HashMap<u32, (Vec<u8>, Option<ucp_rkey_h>)>,
}

/// The transport.
pub(crate) struct Ucx {
    ucp: &'static Ucp,
    context: ucp_context_h,
    worker: ucp_worker_h,
    fd: RawFd,
    inbox: *mut Inbox,
    peers: Vec<Endpoint>,
    segments: HashMap<u32, ucp_mem_h>,
    way: Way,
    /// Whether it reaches GPU memory, once that has been tried.
    gpus: Option<bool>,
}

// SAFETY: UCX objects may be used by any thread, one at a time; the inbox is reached from calls on them alone.
unsafe impl Send for Ucx {}

fn check(ucp: &Ucp, what: &str, status: ucs_status_t) -> Result<()> {
    if status == UCS_OK {
        return Ok(());
    }
    Err(err!(IO, "UCX: {what}: {}", ucp.status_text(status)))
}

impl Ucx {
    /// For one PE of a job of `n`; `way`: how it is to reach GPU memory.
    pub(crate) fn new(n: usize, way: Way) -> Result<Ucx> {
        let ucp = Ucp::load().map_err(|e| err!(ENVIRONMENT, "{e}"))?;
        let inbox = Box::into_raw(Box::new(Inbox { ucp: Some(ucp), ..Inbox::default() }));
        let mut ucx = Ucx {
            ucp,
            context: null_mut(),
            worker: null_mut(),
            fd: -1,
            inbox,
            peers: Vec::new(),
            segments: HashMap::new(),
            way,
            gpus: None,
        };
        // SAFETY: UCX objects are made in the order of their lives; structures are zeroed, which is valid for each of them,
        // and have the fields that their masks name.
        unsafe {
            let mut config = null_mut();
            check(
                ucp,
                "reading its configuration (UCX_*)",
                ucp.ucp_config_read(null(), null(), &mut config),
            )?;
            let mut params: ucp_params_t = zeroed();
            params.field_mask =
                (UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS | UCP_PARAM_FIELD_NAME).into();
            params.features = (UCP_FEATURE_RMA | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP).into();
            params.estimated_num_eps = n;
            let name = CString::new("rushmem").expect("no NUL");
            params.name = name.as_ptr();
            let status = ucp.ucp_init(&params, config, &mut ucx.context);
            ucp.ucp_config_release(config);
            check(ucp, "finding the network's devices (UCX_TLS, UCX_NET_DEVICES)", status)?;
            let mut params: ucp_worker_params_t = zeroed();
            params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE.into();
            params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
            check(ucp, "making a worker", ucp.ucp_worker_create(ucx.context, &params, &mut ucx.worker))?;
            let mut handler: ucp_am_handler_param_t = zeroed();
            handler.field_mask = (UCP_AM_HANDLER_PARAM_FIELD_ID
                | UCP_AM_HANDLER_PARAM_FIELD_CB
                | UCP_AM_HANDLER_PARAM_FIELD_ARG)
                .into();
            handler.id = AM_ID;
            handler.cb = Some(on_message);
            handler.arg = inbox.cast();
            check(ucp, "taking messages", ucp.ucp_worker_set_am_recv_handler(ucx.worker, &handler))?;
            let status = ucp.ucp_worker_get_efd(ucx.worker, &mut ucx.fd);
            if status != UCS_OK {
                log::debug!("UCX cannot wake this PE ({}): it will look by itself", ucp.status_text(status));
                ucx.fd = -1;
            }
        }
        Ok(ucx)
    }

    /// The connection to `pe`, made now if it is not there yet.
    fn endpoint(&mut self, pe: usize) -> Result<ucp_ep_h> {
        let peer = &mut self.peers[pe];
        if let Some(ep) = peer.ep {
            return Ok(ep);
        }
        let mut ep = null_mut();
        // SAFETY: the address is a worker's; the handler's argument lives as long as the endpoint.
        unsafe {
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
        }
        peer.ep = Some(ep);
        Ok(ep)
    }

    fn key(&mut self, pe: usize, id: u32) -> Result<(ucp_ep_h, ucp_rkey_h)> {
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

    fn ticket(&self, token: Option<Token>, buffer: Vec<u8>) -> *mut Ticket {
        Box::into_raw(Box::new(Ticket { inbox: self.inbox, token, buffer }))
    }

    /// What a call has returned: done, or in flight, in which case the ticket is the callback's. What fails at once, on a
    /// connection that is lost already, fails as if it had been in flight: the engine knows whom to ask why. Only a
    /// message has nobody who waits for it, so that its failure is the caller's.
    ///
    /// # Safety
    /// `ticket` was passed to the call and is not used again.
    unsafe fn started(
        &self,
        what: &str,
        request: ucs_status_ptr_t,
        ticket: *mut Ticket,
    ) -> Result<Option<Box<Ticket>>> {
        if UCS_PTR_IS_PTR(request) {
            return Ok(None);
        }
        // SAFETY: no callback comes for what is over at once.
        let ticket = unsafe { Box::from_raw(ticket) };
        match check(self.ucp, what, UCS_PTR_RAW_STATUS(request)) {
            Ok(()) => Ok(Some(ticket)),
            Err(e) if ticket.token.is_none() => Err(e),
            Err(e) => {
                // SAFETY: nobody else has the inbox now.
                unsafe { (*self.inbox).done(*ticket, Err(e)) };
                Ok(None)
            }
        }
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
            let copy = std::slice::from_raw_parts(address.cast::<u8>(), length).to_vec();
            self.ucp.ucp_worker_release_address(self.worker, address);
            Ok(copy)
        }
    }

    fn learn_addresses(&mut self, addresses: Vec<Vec<u8>>) {
        let inbox = self.inbox;
        self.peers = addresses
            .into_iter()
            .enumerate()
            .map(|(pe, address)| Endpoint {
                address,
                ep: None,
                lost: Box::new(Lost { inbox, pe }),
                keys: HashMap::new(),
            })
            .collect();
    }

    unsafe fn register(&mut self, id: u32, memory: Memory) -> Result<Vec<u8>> {
        if memory.gpu && !self.reaches(memory)? {
            return Ok(Vec::new());
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
            let key = std::slice::from_raw_parts(packed.cast::<u8>(), length).to_vec();
            ucp.ucp_rkey_buffer_release(packed);
            self.segments.insert(id, handle);
            Ok(key)
        }
    }

    fn learn_keys(&mut self, id: u32, keys: Vec<Vec<u8>>) {
        for (peer, key) in self.peers.iter_mut().zip(keys) {
            if !key.is_empty() {
                peer.keys.insert(id, (key, None));
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
        if let Some(handle) = self.segments.remove(&id) {
            // SAFETY: registered here; no PE uses it any more.
            unsafe { self.ucp.ucp_mem_unmap(self.context, handle) };
        }
    }

    unsafe fn put(
        &mut self,
        pe: usize,
        id: u32,
        remote: u64,
        src: *const u8,
        bytes: usize,
        token: Token,
    ) -> Result<bool> {
        let (ep, key) = self.key(pe, id)?;
        let ticket = self.ticket(Some(token), Vec::new());
        // SAFETY: a live endpoint and its key; the caller vouches for the source.
        unsafe {
            let request = self.ucp.ucp_put_nbx(ep, src.cast(), bytes, remote, key, &sent(ticket));
            self.started("put", request, ticket).map(|done| done.is_some())
        }
    }

    unsafe fn get(
        &mut self,
        pe: usize,
        id: u32,
        remote: u64,
        dst: *mut u8,
        bytes: usize,
        token: Token,
    ) -> Result<bool> {
        let (ep, key) = self.key(pe, id)?;
        let ticket = self.ticket(Some(token), Vec::new());
        // SAFETY: as for `put`.
        unsafe {
            let request = self.ucp.ucp_get_nbx(ep, dst.cast(), bytes, remote, key, &sent(ticket));
            self.started("get", request, ticket).map(|done| done.is_some())
        }
    }

    fn send(&mut self, pe: usize, message: Vec<u8>) -> Result<()> {
        let ep = self.endpoint(pe)?;
        let (data, length) = (message.as_ptr(), message.len());
        let ticket = self.ticket(None, message);
        let mut param = sent(ticket);
        param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
        param.flags = UCP_AM_SEND_FLAG_EAGER;
        // SAFETY: a live endpoint; the ticket keeps the buffer, whose bytes stay where they are.
        unsafe {
            (*self.inbox).sending += 1;
            let request = self.ucp.ucp_am_send_nbx(ep, AM_ID, null(), 0, data.cast(), length, &param);
            match self.started("sending a message", request, ticket) {
                Ok(Some(ticket)) => (*self.inbox).done(*ticket, Ok(())),
                Ok(None) => {}
                Err(e) => {
                    (*self.inbox).sending -= 1;
                    (*self.inbox).events.push(Event::Lost(pe, e));
                }
            }
        }
        Ok(())
    }

    unsafe fn send_bulk(
        &mut self,
        pe: usize,
        head: Vec<u8>,
        data: *const u8,
        bytes: usize,
        token: Token,
    ) -> Result<bool> {
        let ep = self.endpoint(pe)?;
        let (header, header_length) = (head.as_ptr(), head.len());
        let ticket = self.ticket(Some(token), head);
        // SAFETY: the ticket keeps the head, the caller the data.
        unsafe {
            let request = self.ucp.ucp_am_send_nbx(
                ep,
                AM_ID,
                header.cast(),
                header_length,
                data.cast(),
                bytes,
                &sent(ticket),
            );
            self.started("sending data", request, ticket).map(|done| done.is_some())
        }
    }

    unsafe fn receive(&mut self, data: BulkId, dst: *mut u8, token: Token) -> Result<bool> {
        // SAFETY: nobody else has the inbox now.
        let kept = unsafe { (*self.inbox).bulk.remove(&data.0) };
        match kept.ok_or_else(|| err!(INTERNAL, "data that was not announced, or has been taken"))? {
            Announced::Bytes(bytes) => {
                // SAFETY: the caller vouches for the destination.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), dst, bytes.len()) };
                Ok(true)
            }
            Announced::Descriptor(descriptor, length) => {
                let ticket = self.ticket(Some(token), Vec::new());
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
        let ep = self.endpoint(pe)?;
        let ticket = self.ticket(Some(token), Vec::new());
        // SAFETY: a live endpoint.
        unsafe {
            let request = self.ucp.ucp_ep_flush_nbx(ep, &sent(ticket));
            self.started("flush", request, ticket).map(|done| done.is_some())
        }
    }

    fn progress(&mut self, events: &mut Vec<Event>) {
        // SAFETY: a live worker; callbacks are over when it returns.
        unsafe {
            for _ in 0..ROUNDS {
                if self.ucp.ucp_worker_progress(self.worker) == 0 {
                    break;
                }
            }
            events.append(&mut (*self.inbox).events);
        }
    }

    fn fd(&self) -> Option<RawFd> {
        Some(self.fd).filter(|fd| *fd >= 0)
    }

    fn arm(&mut self) -> bool {
        // SAFETY: a live worker.
        unsafe { (*self.inbox).events.is_empty() && self.ucp.ucp_worker_arm(self.worker) == UCS_OK }
    }

    fn congested(&self) -> bool {
        // SAFETY: nobody else has the inbox now.
        unsafe { (*self.inbox).sending > 512 }
    }

    fn buffer(&mut self) -> Vec<u8> {
        // SAFETY: nobody else has the inbox now.
        unsafe { (*self.inbox).spare.pop() }.unwrap_or_else(|| Vec::with_capacity(MESSAGE))
    }

    fn recycle(&mut self, buffer: Vec<u8>) {
        // SAFETY: nobody else has the inbox now.
        unsafe { (*self.inbox).recycle(buffer) };
    }

    fn cut(&mut self) {
        for peer in &mut self.peers {
            let Some(ep) = peer.ep.take() else { continue };
            for (_, key) in peer.keys.values_mut() {
                if let Some(key) = key.take() {
                    // SAFETY: unpacked by this endpoint, used no more.
                    unsafe { self.ucp.ucp_rkey_destroy(key) };
                }
            }
            // SAFETY: a live endpoint, not used again; what is in flight on it completes with an error.
            unsafe {
                let mut param: ucp_request_param_t = zeroed();
                param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
                param.flags = UCP_EP_CLOSE_FLAG_FORCE;
                let request = self.ucp.ucp_ep_close_nbx(ep, &param);
                if UCS_PTR_IS_PTR(request) {
                    for _ in 0..10_000 {
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
}

impl Drop for Ucx {
    fn drop(&mut self) {
        self.cut();
        // SAFETY: in the reverse order of their making; callbacks may come until the worker is gone, and find the inbox.
        unsafe {
            if !self.worker.is_null() {
                self.ucp.ucp_worker_destroy(self.worker);
            }
            for (_, handle) in self.segments.drain() {
                self.ucp.ucp_mem_unmap(self.context, handle);
            }
            if !self.context.is_null() {
                self.ucp.ucp_cleanup(self.context);
            }
            drop(Box::from_raw(self.inbox));
        }
    }
}
