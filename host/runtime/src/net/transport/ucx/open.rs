//! Making UCX's context and worker, with no more open to others than the job needs.

use std::collections::HashMap;
use std::ffi::CString;
use std::mem::zeroed;
use std::ptr::{null, null_mut};

use ucx_sys::*;

use super::callbacks::{on_copy, on_message, AmHandler};
use super::guard::Guards;
use super::inbox::Inbox;
use super::keys::Keys;
use super::listen::{has_rdma, Listen};
use super::pieces::Pieces;
use super::status::check;
use super::{meeting, piece, Ucx, AM_ID, COPY_ID};
use crate::config::Carrier;
use crate::config::FarGpu;
use crate::error::{err, raise_the_limit, Result};

/// Files that UCX opens for its worker, about: with fewer it may end the process by an assertion of its own.
const FILES: u64 = 20;

impl Ucx {
    /// For PE `me` of a job of `n`; `carrier`: who copies; `way`: how GPU memory is to be reached; `listen`:
    /// where the others are.
    pub(crate) fn new(me: usize, n: usize, carrier: Carrier, way: FarGpu, listen: &Listen) -> Result<Ucx> {
        let free = free_descriptors();
        if free < FILES {
            return Err(err!(
                IO,
                "UCX opens {FILES} files, and this PE may open {free}: {}",
                raise_the_limit()
            ));
        }
        let ucp = Ucp::load().map_err(|e| err!(ENVIRONMENT, "{e}"))?;
        let rma = match carrier {
            Carrier::Ucx => true,
            Carrier::Auto => way == FarGpu::Ucx || has_rdma(),
            Carrier::Messages => way == FarGpu::Ucx,
        };
        let inbox = Inbox::new(Some(ucp), Guards::new(Keys::new(me)?));
        let inbox = Box::into_raw(Box::new(inbox));
        let mut ucx = Ucx {
            me,
            ucp,
            context: null_mut(),
            worker: null_mut(),
            fd: -1,
            inbox,
            peers: Vec::new(),
            segments: HashMap::new(),
            pieces: Pieces::default(),
            carrier,
            rma,
            way,
            gpus: None,
            meets: false,
            meetings: Vec::new(),
        };
        // SAFETY: UCX objects are made in the order of their lives; structures are zeroed, which is valid for
        // each of them, and have the fields that their masks name.
        unsafe {
            let mut config = null_mut();
            check(
                ucp,
                "reading its configuration (UCX_*)",
                ucp.ucp_config_read(null(), null(), &mut config),
            )?;
            let piece = piece::agree(ucp, config);
            listen.agree(ucp, config);
            let mut params: ucp_params_t = zeroed();
            params.field_mask =
                (UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS | UCP_PARAM_FIELD_NAME).into();
            let copies = if rma { UCP_FEATURE_RMA } else { 0 };
            params.features = (copies | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP).into();
            params.estimated_num_eps = n;
            let name = CString::new("rushmem").expect("no NUL");
            params.name = name.as_ptr();
            let status = ucp.ucp_init(&params, config, &mut ucx.context);
            ucp.ucp_config_release(config);
            check(ucp, "finding the network's devices (UCX_TLS, UCX_NET_DEVICES)", status)?;
            ucx.pieces = Pieces::new(n, piece);
            ucx.meets = meeting::is_needed(ucp, ucx.context);
            let mut params: ucp_worker_params_t = zeroed();
            params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE.into();
            params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
            check(ucp, "making a worker", ucp.ucp_worker_create(ucx.context, &params, &mut ucx.worker))?;
            for (id, handler) in [(AM_ID, on_message as AmHandler), (COPY_ID, on_copy)] {
                let mut params: ucp_am_handler_param_t = zeroed();
                params.field_mask = (UCP_AM_HANDLER_PARAM_FIELD_ID
                    | UCP_AM_HANDLER_PARAM_FIELD_CB
                    | UCP_AM_HANDLER_PARAM_FIELD_ARG)
                    .into();
                params.id = id;
                params.cb = Some(handler);
                params.arg = inbox.cast();
                check(ucp, "taking messages", ucp.ucp_worker_set_am_recv_handler(ucx.worker, &params))?;
            }
            let status = ucp.ucp_worker_get_efd(ucx.worker, &mut ucx.fd);
            if status != UCS_OK {
                log::debug!("UCX cannot wake this PE ({}): it will look by itself", ucp.status_text(status));
                ucx.fd = -1;
            }
        }
        Ok(ucx)
    }
}

/// How many more files this process may have open.
fn free_descriptors() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a place for the answer.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    match std::fs::read_dir("/proc/self/fd") {
        // One of them is the folder's own.
        Ok(open) => (limit.rlim_cur + 1).saturating_sub(open.count() as u64),
        Err(e) if e.raw_os_error() == Some(libc::EMFILE) => 0,
        Err(_) => limit.rlim_cur,
    }
}
