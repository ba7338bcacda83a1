//! A stranger, for tests: a process with a UCX of its own that speaks to a PE's worker, and has no key. All
//! that it has to know is the port at which that worker listens. (Tests of other crates take this file in,
//! too, and [`listening`](super::listening).)

use std::ffi::c_void;
use std::mem::zeroed;
use std::net::Ipv4Addr;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use ucx_sys::*;

use super::listening::listening;

/// A message on its way: what UCX reads until it is out.
struct Sent {
    request: *mut c_void,
    _header: Box<[u8]>,
    _data: Box<[u8]>,
}

pub(crate) struct Stranger {
    ucp: &'static Ucp,
    context: ucp_context_h,
    worker: ucp_worker_h,
    ep: ucp_ep_h,
    sent: Vec<Sent>,
    /// For puts: memory of its own, and the key to it.
    own: Option<(Box<u64>, ucp_mem_h, ucp_rkey_h)>,
}

/// UCX reports the end of a connection instead of ending the process.
extern "C" fn on_end(_arg: *mut c_void, _ep: ucp_ep_h, _status: ucs_status_t) {}

impl Stranger {
    /// A stranger that knows only a port of this host's loopback interface: it takes its own address, and
    /// puts that port there.
    pub(crate) fn at_port(ucp: &'static Ucp, port: u16) -> Stranger {
        let before = listening(std::process::id());
        let mut stranger = Stranger::new(ucp);
        let ports = listening(std::process::id());
        let mut address = stranger.address();
        let place = |(_, own): &(Ipv4Addr, u16)| address.windows(2).position(|two| two == own.to_be_bytes());
        let at = ports.difference(&before).find_map(place).expect("an address with the worker's own port");
        address[at..at + 2].copy_from_slice(&port.to_be_bytes());
        stranger.connect(&address);
        stranger
    }

    fn new(ucp: &'static Ucp) -> Stranger {
        let (context, worker, ep) = (null_mut(), null_mut(), null_mut());
        let mut stranger = Stranger { ucp, context, worker, ep, sent: Vec::new(), own: None };
        // SAFETY: UCX objects are made in the order of their lives, of structures that are zeroed but for
        // what their masks name.
        unsafe {
            let mut config = null_mut();
            assert_eq!(ucp.ucp_config_read(std::ptr::null(), std::ptr::null(), &mut config), UCS_OK);
            for (name, value) in [(c"TLS", c"tcp"), (c"NET_DEVICES", c"lo")] {
                assert_eq!(ucp.ucp_config_modify(config, name.as_ptr(), value.as_ptr()), UCS_OK);
            }
            let mut params: ucp_params_t = zeroed();
            params.field_mask = UCP_PARAM_FIELD_FEATURES.into();
            params.features = (UCP_FEATURE_AM | UCP_FEATURE_RMA).into();
            assert_eq!(ucp.ucp_init(&params, config, &mut stranger.context), UCS_OK);
            ucp.ucp_config_release(config);
            let mut params: ucp_worker_params_t = zeroed();
            params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE.into();
            params.thread_mode = UCS_THREAD_MODE_SINGLE;
            assert_eq!(ucp.ucp_worker_create(stranger.context, &params, &mut stranger.worker), UCS_OK);
        }
        stranger
    }

    fn address(&self) -> Vec<u8> {
        let (mut address, mut length) = (null_mut(), 0);
        // SAFETY: a live worker; the address is copied before it is released.
        unsafe {
            assert_eq!(self.ucp.ucp_worker_get_address(self.worker, &mut address, &mut length), UCS_OK);
            let copy = std::slice::from_raw_parts(address.cast::<u8>(), length).to_vec();
            self.ucp.ucp_worker_release_address(self.worker, address);
            copy
        }
    }

    fn connect(&mut self, address: &[u8]) {
        // SAFETY: the address has the shape of a worker's.
        unsafe {
            let mut params: ucp_ep_params_t = zeroed();
            params.field_mask = (UCP_EP_PARAM_FIELD_REMOTE_ADDRESS
                | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE
                | UCP_EP_PARAM_FIELD_ERR_HANDLER)
                .into();
            params.address = address.as_ptr().cast();
            params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
            params.err_handler.cb = Some(on_end);
            assert_eq!(self.ucp.ucp_ep_create(self.worker, &params, &mut self.ep), UCS_OK);
        }
    }

    /// Sends an active message. `eager`: with its data; else UCX may let the receiver fetch that.
    pub(crate) fn send(&mut self, id: u32, header: &[u8], data: &[u8], eager: bool) {
        let (header, data): (Box<[u8]>, Box<[u8]>) = (header.into(), data.into());
        // SAFETY: a live endpoint; header and data are kept until the message is out.
        unsafe {
            let mut param: ucp_request_param_t = zeroed();
            param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
            param.flags = if eager { UCP_AM_SEND_FLAG_EAGER } else { UCP_AM_SEND_FLAG_RNDV };
            let (head, body) = (header.as_ptr().cast(), data.as_ptr().cast());
            let request = self.ucp.ucp_am_send_nbx(self.ep, id, head, header.len(), body, data.len(), &param);
            if UCS_PTR_IS_PTR(request) {
                self.sent.push(Sent { request, _header: header, _data: data });
            }
        }
        self.progress();
    }

    /// Puts to an address of the other process as UCX does it where the network has no puts of its own, with
    /// a key that names nothing of the other's: over TCP nobody looks at it.
    pub(crate) fn put(&mut self, address: u64, data: &[u8]) {
        let data: Box<[u8]> = data.into();
        // SAFETY: a live endpoint; the data is kept until the put is out, memory and key until the end.
        unsafe {
            let key = self.key();
            let mut param: ucp_request_param_t = zeroed();
            param.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
            let source = data.as_ptr().cast();
            let request = self.ucp.ucp_put_nbx(self.ep, source, data.len(), address, key, &param);
            if UCS_PTR_IS_PTR(request) {
                self.sent.push(Sent { request, _header: Box::default(), _data: data });
            }
        }
        self.progress();
    }

    /// A key that UCX takes, for which no other PE is needed.
    ///
    /// # Safety
    /// The worker is alive.
    unsafe fn key(&mut self) -> ucp_rkey_h {
        if let Some((_, _, key)) = &self.own {
            return *key;
        }
        let (ucp, mut memory) = (self.ucp, Box::new(0u64));
        // SAFETY: the memory stays until it is unmapped; the packed key until it is released.
        unsafe {
            let mut params: ucp_mem_map_params_t = zeroed();
            params.field_mask = (UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH).into();
            params.address = (&raw mut *memory).cast();
            params.length = 8;
            let (mut handle, mut packed, mut length, mut key) = (null_mut(), null_mut(), 0, null_mut());
            assert_eq!(ucp.ucp_mem_map(self.context, &params, &mut handle), UCS_OK);
            assert_eq!(ucp.ucp_rkey_pack(self.context, handle, &mut packed, &mut length), UCS_OK);
            assert_eq!(ucp.ucp_ep_rkey_unpack(self.ep, packed, &mut key), UCS_OK);
            ucp.ucp_rkey_buffer_release(packed);
            self.own = Some((memory, handle, key));
            key
        }
    }

    pub(crate) fn progress(&mut self) {
        // SAFETY: a live worker; requests are freed once, when they are over.
        unsafe {
            while self.ucp.ucp_worker_progress(self.worker) != 0 {}
            let ucp = self.ucp;
            self.sent.retain(|sent| {
                let over = ucp.ucp_request_check_status(sent.request) != UCS_INPROGRESS;
                if over {
                    ucp.ucp_request_free(sent.request);
                }
                !over
            });
        }
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        // SAFETY: in the reverse order of their making; messages that are not out are given up with the
        // endpoint, before their memory.
        unsafe {
            if !self.ep.is_null() {
                let mut param: ucp_request_param_t = zeroed();
                param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
                param.flags = UCP_EP_CLOSE_FLAG_FORCE;
                let request = self.ucp.ucp_ep_close_nbx(self.ep, &param);
                if UCS_PTR_IS_PTR(request) {
                    let end = Instant::now() + Duration::from_secs(2);
                    while self.ucp.ucp_request_check_status(request) == UCS_INPROGRESS && Instant::now() < end
                    {
                        self.ucp.ucp_worker_progress(self.worker);
                    }
                    self.ucp.ucp_request_free(request);
                }
            }
            self.progress();
            if let Some((_, _, key)) = &self.own {
                self.ucp.ucp_rkey_destroy(*key);
            }
            self.ucp.ucp_worker_destroy(self.worker);
            if let Some((_, handle, _)) = &self.own {
                self.ucp.ucp_mem_unmap(self.context, *handle);
            }
            self.ucp.ucp_cleanup(self.context);
        }
    }
}
