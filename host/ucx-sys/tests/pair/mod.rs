//! A context with two workers, an endpoint from the first to the second, and one of each operation between
//! them.
//!
//! One thread drives both workers: over tcp a put, a get and an atomic are carried out by the *target's*
//! progress.

use std::ffi::{c_void, CString};
use std::mem::zeroed;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};
use ucx_sys::*;

/// More than an eager message and than the tcp transport's segments: UCX has to cut it up.
const BYTES: usize = 300_001;
const AM_ID: u32 = 7;

struct Pair {
    ucp: &'static Ucp,
    tls: &'static str,
    workers: [ucp_worker_h; 2],
}

/// What the handler of active messages saw.
#[derive(Default)]
struct Received {
    header: Vec<u8>,
    data: Vec<u8>,
    from_endpoint: bool,
}

impl Pair {
    fn must(&self, what: &str, status: ucs_status_t) {
        assert_eq!(status, UCS_OK, "{}: {what}: {}", self.tls, self.ucp.status_text(status));
    }

    /// Drives both workers until `done` says so.
    fn drive(&self, what: &str, mut done: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !done() {
            for worker in self.workers {
                // SAFETY: both live until the end of `exercise`, and this thread alone uses them.
                unsafe { self.ucp.ucp_worker_progress(worker) };
            }
            assert!(Instant::now() < end, "{}: {what}: not done after 20 s", self.tls);
        }
    }

    /// Waits for what an `_nbx` function returned, and frees it where it is a request.
    fn finish(&self, what: &str, pointer: ucs_status_ptr_t) {
        if UCS_PTR_IS_PTR(pointer) {
            let mut status = UCS_INPROGRESS;
            self.drive(what, || {
                // SAFETY: a request that has not been freed.
                status = unsafe { self.ucp.ucp_request_check_status(pointer) };
                status != UCS_INPROGRESS
            });
            // SAFETY: complete, and not used again.
            unsafe { self.ucp.ucp_request_free(pointer) };
            self.must(what, status);
        } else {
            self.must(what, UCS_PTR_STATUS(pointer));
        }
    }
}

/// # Safety
/// UCX calls it, with the argument that was set for it.
unsafe extern "C" fn on_message(
    arg: *mut c_void,
    header: *const c_void,
    header_length: usize,
    data: *mut c_void,
    length: usize,
    param: *const ucp_am_recv_param_t,
) -> ucs_status_t {
    // SAFETY: `arg` is the Received of `exercise`, used by this thread alone; header and data are valid for
    // their lengths during the call, as is `param`.
    unsafe {
        let received = &mut *arg.cast::<Received>();
        received.header = std::slice::from_raw_parts(header.cast::<u8>(), header_length).to_vec();
        received.data = std::slice::from_raw_parts(data.cast::<u8>(), length).to_vec();
        received.from_endpoint = (*param).recv_attr & u64::from(UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0
            && !(*param).reply_ep.is_null();
    }
    UCS_OK
}

fn random(bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    getrandom::fill(&mut data).expect("randomness");
    data
}

/// Every operation once, over the transports `tls`; panics at the first thing wrong.
pub(crate) fn exercise(ucp: &'static Ucp, tls: &'static str) {
    // SAFETY: one thread uses UCX objects in the order of their lives, as UCX's manual has it; structures are
    // zeroed, which is valid for each of them, and have the fields that their masks name.
    unsafe {
        let mut pair = Pair { ucp, tls, workers: [null_mut(); 2] };

        let mut config = null_mut();
        pair.must("ucp_config_read", ucp.ucp_config_read(null(), null(), &mut config));
        let (name, value) = (c"TLS", CString::new(tls).expect("no NUL"));
        pair.must("ucp_config_modify", ucp.ucp_config_modify(config, name.as_ptr(), value.as_ptr()));
        let mut params: ucp_params_t = zeroed();
        params.field_mask = (UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS).into();
        params.features = (UCP_FEATURE_RMA | UCP_FEATURE_AMO64 | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP).into();
        params.estimated_num_eps = 2;
        let mut context = null_mut();
        pair.must("ucp_init", ucp.ucp_init(&params, config, &mut context));
        ucp.ucp_config_release(config);
        let mut attr: ucp_context_attr_t = zeroed();
        attr.field_mask = (UCP_ATTR_FIELD_REQUEST_SIZE | UCP_ATTR_FIELD_MEMORY_TYPES).into();
        pair.must("ucp_context_query", ucp.ucp_context_query(context, &mut attr));
        assert!(attr.request_size > 0 && attr.memory_types & (1 << UCS_MEMORY_TYPE_HOST) != 0);

        for worker in &mut pair.workers {
            let mut params: ucp_worker_params_t = zeroed();
            params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE.into();
            params.thread_mode = UCS_THREAD_MODE_SINGLE;
            assert_eq!(ucp.ucp_worker_create(context, &params, worker), UCS_OK);
        }
        let [near, far] = pair.workers;

        let mut received = Received::default();
        let mut handler: ucp_am_handler_param_t = zeroed();
        handler.field_mask =
            (UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG)
                .into();
        handler.id = AM_ID;
        handler.cb = Some(on_message);
        let received_at = &raw mut received;
        handler.arg = received_at.cast();
        pair.must("ucp_worker_set_am_recv_handler", ucp.ucp_worker_set_am_recv_handler(far, &handler));

        // Endpoint by address.
        let (mut address, mut length) = (null_mut(), 0);
        pair.must("ucp_worker_get_address", ucp.ucp_worker_get_address(far, &mut address, &mut length));
        assert!(length > 0);
        let mut params: ucp_ep_params_t = zeroed();
        params.field_mask = (UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE).into();
        params.address = address;
        params.err_mode = UCP_ERR_HANDLING_MODE_NONE;
        let mut ep = null_mut();
        pair.must("ucp_ep_create", ucp.ucp_ep_create(near, &params, &mut ep));
        ucp.ucp_worker_release_address(far, address);

        // The far side's memory, and the near side's key to it. The last word is for the atomics.
        let mut heap = vec![0_u64; BYTES.div_ceil(8) + 1];
        let heap_bytes = heap.len() * 8;
        let base = heap.as_mut_ptr();
        let mut params: ucp_mem_map_params_t = zeroed();
        params.field_mask = (UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH).into();
        params.address = base.cast();
        params.length = heap_bytes;
        let mut memory = null_mut();
        pair.must("ucp_mem_map", ucp.ucp_mem_map(context, &params, &mut memory));
        let mut attr: ucp_mem_attr_t = zeroed();
        attr.field_mask = (UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH).into();
        pair.must("ucp_mem_query", ucp.ucp_mem_query(memory, &mut attr));
        // UCX rounds the registration out to pages.
        assert!(attr.address as usize <= base as usize);
        assert!(attr.address as usize + attr.length >= base as usize + heap_bytes);
        let (mut packed, mut length) = (null_mut(), 0);
        pair.must("ucp_rkey_pack", ucp.ucp_rkey_pack(context, memory, &mut packed, &mut length));
        let key = std::slice::from_raw_parts(packed.cast::<u8>(), length).to_vec();
        ucp.ucp_rkey_buffer_release(packed);
        let mut rkey = null_mut();
        pair.must("ucp_ep_rkey_unpack", ucp.ucp_ep_rkey_unpack(ep, key.as_ptr().cast(), &mut rkey));

        let none: ucp_request_param_t = zeroed();
        let remote = base as u64;

        // Put, flush, and the bytes are there; what lies behind them is not touched.
        let sent = random(BYTES);
        pair.finish("ucp_put_nbx", ucp.ucp_put_nbx(ep, sent.as_ptr().cast(), BYTES, remote, rkey, &none));
        pair.finish("ucp_ep_flush_nbx", ucp.ucp_ep_flush_nbx(ep, &none));
        assert!(std::slice::from_raw_parts(base.cast::<u8>(), BYTES) == sent, "{tls}: the put's bytes");
        assert!(std::slice::from_raw_parts(base.cast::<u8>(), heap_bytes)[BYTES..]
            .iter()
            .all(|&byte| byte == 0));

        // Get, with an odd offset.
        let mut got = vec![0_u8; BYTES - 13];
        let request = ucp.ucp_get_nbx(ep, got.as_mut_ptr().cast(), got.len(), remote + 13, rkey, &none);
        pair.finish("ucp_get_nbx", request);
        assert!(got == sent[13..], "{tls}: the get's bytes");

        // Fetching add and compare-and-swap of 8 bytes.
        let word = base.add(heap.len() - 1);
        let first = u64::from_ne_bytes(random(8).try_into().expect("8 bytes"));
        word.write_volatile(first);
        let at = word as u64;
        let (mut reply, operand) = (0_u64, 0x1_0000_0001_u64);
        let mut fetch: ucp_request_param_t = zeroed();
        fetch.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER;
        fetch.datatype = ucp_dt_make_contig(8);
        fetch.reply_buffer = (&raw mut reply).cast();
        let operand_at = (&raw const operand).cast();
        let request = ucp.ucp_atomic_op_nbx(ep, UCP_ATOMIC_OP_ADD, operand_at, 1, at, rkey, &fetch);
        pair.finish("ucp_atomic_op_nbx add", request);
        let sum = first.wrapping_add(operand);
        assert_eq!(
            ((&raw const reply).read_volatile(), word.read_volatile()),
            (first, sum),
            "{tls}: fetch-add"
        );
        (&raw mut reply).write_volatile(42);
        let request =
            ucp.ucp_atomic_op_nbx(ep, UCP_ATOMIC_OP_CSWAP, (&raw const sum).cast(), 1, at, rkey, &fetch);
        pair.finish("ucp_atomic_op_nbx cswap", request);
        assert_eq!(
            ((&raw const reply).read_volatile(), word.read_volatile()),
            (sum, 42),
            "{tls}: compare-and-swap"
        );

        // An active message with a header and a way to answer.
        let (header, data) = (random(16), random(1000));
        let mut eager: ucp_request_param_t = zeroed();
        eager.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        eager.flags = UCP_AM_SEND_FLAG_REPLY | UCP_AM_SEND_FLAG_EAGER;
        let (head, body) = (header.as_ptr().cast(), data.as_ptr().cast());
        let request = ucp.ucp_am_send_nbx(ep, AM_ID, head, header.len(), body, data.len(), &eager);
        pair.finish("ucp_am_send_nbx", request);
        pair.drive("the message's arrival", || !(*received_at).data.is_empty());
        assert!((*received_at).header == header && (*received_at).data == data, "{tls}: the message's bytes");
        assert!((*received_at).from_endpoint, "{tls}: the message's way back");

        // A worker armed and signalled has something to read.
        let mut fd = -1;
        pair.must("ucp_worker_get_efd", ucp.ucp_worker_get_efd(near, &mut fd));
        pair.drive("ucp_worker_arm", || match ucp.ucp_worker_arm(near) {
            UCS_ERR_BUSY => false,
            status => {
                pair.must("ucp_worker_arm", status);
                true
            }
        });
        pair.must("ucp_worker_signal", ucp.ucp_worker_signal(near));
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        assert_eq!(libc::poll(&mut poll, 1, 10_000), 1, "{tls}: a signalled worker's descriptor");

        pair.finish("ucp_worker_flush_nbx", ucp.ucp_worker_flush_nbx(near, &none));
        ucp.ucp_rkey_destroy(rkey);
        pair.finish("ucp_ep_close_nbx", ucp.ucp_ep_close_nbx(ep, &none));
        for worker in pair.workers {
            ucp.ucp_worker_destroy(worker);
        }
        pair.must("ucp_mem_unmap", ucp.ucp_mem_unmap(context, memory));
        ucp.ucp_cleanup(context);
    }
}
