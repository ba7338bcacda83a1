//! Who carries copies between PEs: the network itself, one-sided, where it is one that can; else rushmem, by
//! [messages](super::pieces).
//!
//! UCX has one-sided copies on every network, but where a network has none of its own (TCP, shared memory)
//! UCX makes them up of messages and answers, and ends the process when such an answer meets a connection
//! that has just broken: `ucp_put_handler` and `ucp_get_req_handler` start a request that nobody owns, and
//! `ucp_request_send` knows no other end of that than `ucs_fatal` (1.13 to 1.22). A PE that dies would take
//! others along. So they are used on networks alone that need no such answers.

use std::ffi::{c_char, CStr};
use std::mem::{size_of, zeroed};

use ucx_sys::*;

/// `ucp_transport_entry_t`, since UCX 1.14.
#[repr(C)]
struct TransportEntry {
    transport: *const c_char,
    device: *const c_char,
}

/// `ucp_ep_attr_t` since 1.14: what 1.13 knows, and `ucp_transports_t` behind it.
#[repr(C)]
struct Attributes {
    known: ucp_ep_attr_t,
    entries: *mut TransportEntry,
    count: u32,
    entry_size: usize,
}

/// `UCP_EP_ATTR_FIELD_TRANSPORTS`.
const TRANSPORTS: u64 = 1 << 3;
/// Most that are asked for: more than UCX gives a connection.
const MOST: usize = 64;

/// The transports that a connection uses; none where UCX does not say.
///
/// # Safety
/// The endpoint is alive.
pub(super) unsafe fn transports(ucp: &Ucp, ep: ucp_ep_h) -> Vec<String> {
    let version = ucp.version();
    if (version.0, version.1) < (1, 14) {
        // SAFETY: the caller's endpoint is alive.
        return printed_transports(&unsafe { printed(ucp, ep) });
    }
    let mut entries: Vec<TransportEntry> =
        (0..MOST).map(|_| TransportEntry { transport: std::ptr::null(), device: std::ptr::null() }).collect();
    // SAFETY: zeroes are valid for it, and the mask names the field that 1.14 added; names are UCX's own, and
    // live as it does.
    unsafe {
        let mut attributes: Attributes = zeroed();
        attributes.known.field_mask = TRANSPORTS;
        attributes.entries = entries.as_mut_ptr();
        attributes.count = MOST as u32;
        attributes.entry_size = size_of::<TransportEntry>();
        if ucp.ucp_ep_query(ep, (&raw mut attributes).cast()) != UCS_OK {
            return Vec::new();
        }
        let count = (attributes.count as usize).min(MOST);
        let names = entries[..count].iter().filter(|entry| !entry.transport.is_null());
        names.map(|entry| CStr::from_ptr(entry.transport).to_string_lossy().into_owned()).collect()
    }
}

/// What UCX prints about a connection, for people: 1.13 has no other way to list its transports.
///
/// # Safety
/// The endpoint is alive.
unsafe fn printed(ucp: &Ucp, ep: ucp_ep_h) -> String {
    let (mut text, mut length) = (std::ptr::null_mut::<c_char>(), 0);
    // SAFETY: the stream is closed before its text is read, which is `length` bytes then, and the C library's
    // to free.
    unsafe {
        let stream = libc::open_memstream(&mut text, &mut length);
        if stream.is_null() {
            return String::new();
        }
        ucp.ucp_ep_print_info(ep, stream);
        libc::fclose(stream);
        if text.is_null() {
            return String::new();
        }
        let said = String::from_utf8_lossy(std::slice::from_raw_parts(text.cast(), length)).into_owned();
        libc::free(text.cast());
        said
    }
}

/// `#  lane[0]:  3:rc_mlx5/mlx5_0:1.0 md[2] …`: a line for each, with its number and the device behind it.
fn printed_transports(said: &str) -> Vec<String> {
    let name = |line: &str| {
        let (_, lane) = line.split_once("lane[")?;
        let (name, _) = lane.split_once("]:")?.1.split_once('/')?;
        let (number, name) = name.split_once(':')?;
        (number.trim().parse::<u32>().is_ok() && !name.is_empty()).then(|| name.to_owned())
    };
    said.lines().filter_map(name).collect()
}

/// Whether one of them copies by itself: reliable connections and dynamically connected ones of InfiniBand
/// and RoCE.
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
    }

    #[test]
    fn transports_are_found_in_what_is_printed() {
        let said = "#\n# UCP endpoint \n#\n#               peer: <no debug data>\n\
            #                 lane[0]:  3:rc_mlx5/mlx5_0:1.0 md[2]      -> md[2]/ib/sysdev[0] rma_bw#0 am am_bw#0\n\
            #                 lane[1]: 12:tcp/eth0.0 md[1]              -> md[1]/tcp/sysdev[255] keepalive\n#\n\
            #                am_send: 0..<egr/short>..8185..<egr/bcopy>..8192..<rndv>..(inf)\n# put[0]: 0..<short>..\n";
        assert_eq!(printed_transports(said), ["rc_mlx5", "tcp"]);
        assert!(one_sided(&printed_transports(said)));
        assert_eq!(printed_transports("# lane[0]: CM rdmacm\n"), [""; 0]);
    }

    #[test]
    fn the_field_that_1_14_added_comes_last() {
        assert_eq!(std::mem::offset_of!(Attributes, entries), size_of::<ucp_ep_attr_t>());
    }
}
