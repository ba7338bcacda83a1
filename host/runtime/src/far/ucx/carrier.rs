//! Who carries copies between PEs: the network itself, one-sided, where it is one that can; else rushmem, by [messages](super::pieces).
//!
//! UCX has one-sided copies on every network, but where a network has none of its own (TCP, shared memory) UCX makes them up of
//! messages and answers, and ends the process when such an answer meets a connection that has just broken: `ucp_put_handler` and
//! `ucp_get_req_handler` start a request that nobody owns, and `ucp_request_send` knows no other end of that than `ucs_fatal`
//! (1.13 to 1.22). A PE that dies would take others along. So they are used on networks alone that need no such answers.

use std::ffi::{c_char, CStr};
use std::mem::{size_of, zeroed};

use ucx_sys::*;

use crate::error::{err, Result};

/// Who is to carry copies (`RUSHMEM_FAR_COPIES`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Carrier {
    /// The network where it can, else rushmem.
    #[default]
    Auto,
    /// UCX, on any network: for tests, and for networks that rushmem does not know to be able.
    Ucx,
    /// Rushmem's own messages.
    Messages,
}

impl Carrier {
    /// What `RUSHMEM_FAR_COPIES` says.
    pub(crate) fn parse(text: &str) -> Result<Carrier> {
        match text.trim().to_ascii_lowercase().as_str() {
            "auto" => Ok(Carrier::Auto),
            "ucx" => Ok(Carrier::Ucx),
            "messages" => Ok(Carrier::Messages),
            _ => Err(err!(ENVIRONMENT, "RUSHMEM_FAR_COPIES={text}: expected auto, ucx or messages")),
        }
    }
}

/// `ucp_transport_entry_t`, since UCX 1.14.
#[repr(C)]
struct Entry {
    transport: *const c_char,
    device: *const c_char,
}

/// `ucp_ep_attr_t` since 1.14: what 1.13 knows, and `ucp_transports_t` behind it.
#[repr(C)]
struct Attributes {
    known: ucp_ep_attr_t,
    entries: *mut Entry,
    count: u32,
    entry_size: usize,
}

/// `UCP_EP_ATTR_FIELD_TRANSPORTS`.
const TRANSPORTS: u64 = 1 << 3;
/// Most that are asked for: more than UCX gives a connection.
const MOST: usize = 64;

/// The transports that a connection uses; none where UCX is too old to say.
///
/// # Safety
/// The endpoint is alive.
pub(super) unsafe fn transports(ucp: &Ucp, ep: ucp_ep_h) -> Vec<String> {
    let version = ucp.version();
    if (version.0, version.1) < (1, 14) {
        return Vec::new();
    }
    let mut entries: Vec<Entry> =
        (0..MOST).map(|_| Entry { transport: std::ptr::null(), device: std::ptr::null() }).collect();
    // SAFETY: zeroes are valid for it, and the mask names the field that 1.14 added; names are UCX's own, and live as it does.
    unsafe {
        let mut attributes: Attributes = zeroed();
        attributes.known.field_mask = TRANSPORTS;
        attributes.entries = entries.as_mut_ptr();
        attributes.count = MOST as u32;
        attributes.entry_size = size_of::<Entry>();
        if ucp.ucp_ep_query(ep, (&raw mut attributes).cast()) != UCS_OK {
            return Vec::new();
        }
        let count = (attributes.count as usize).min(MOST);
        let names = entries[..count].iter().filter(|entry| !entry.transport.is_null());
        names.map(|entry| CStr::from_ptr(entry.transport).to_string_lossy().into_owned()).collect()
    }
}

/// Whether one of them copies by itself: reliable connections and dynamically connected ones of InfiniBand and RoCE.
pub(super) fn one_sided(transports: &[String]) -> bool {
    transports.iter().any(|name| name.starts_with("rc_") || name.starts_with("dc_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rdma_networks_copy_by_themselves_and_others_do_not() {
        let names = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for (text, able) in [
            ("", false),
            ("tcp tcp", false),
            ("posix cma tcp", false),
            ("self rc_mlx5", true),
            ("dc_mlx5", true),
        ] {
            assert_eq!(one_sided(&names(text)), able, "{text}");
        }
        assert_eq!(Carrier::parse(" Messages ").unwrap(), Carrier::Messages);
    }

    #[test]
    fn the_field_that_1_14_added_comes_last() {
        assert_eq!(std::mem::offset_of!(Attributes, entries), size_of::<ucp_ep_attr_t>());
    }
}
