//! How long a piece of a copy is: what UCX sends over TCP in one go.
//!
//! By default that is 8 KiB, and each such piece costs a call of the system: half of what TCP can carry on
//! one host. UCX takes more if its setting `TCP_TX_SEG_SIZE` says so (receivers take 64 KiB by default). A
//! piece that does not fit would be sent out of the source itself, which a connection that breaks turns into
//! the end of the process (see [`connect`](super::connect)).

use std::ffi::CStr;

use ucx_sys::{ucp_config_t, Ucp, UCS_OK};

/// With its head it fits UCX's own 8 KiB, for TCP and shared memory alike.
const SHORT: usize = 8064;
/// The same for 64 KiB.
const LONG: usize = 60 << 10;
const LONG_SEGMENT: &CStr = c"64k";

/// Asks UCX for long segments, before its context is made; how long pieces can be then.
///
/// # Safety
/// The configuration is one that `ucp_config_read` made.
pub(super) unsafe fn agree(ucp: &Ucp, config: *mut ucp_config_t) -> usize {
    let setting = |name: &str| std::env::var(name).ok();
    // Who sets it has a reason; and what no transport uses, UCX warns of.
    if setting("UCX_TCP_TX_SEG_SIZE").is_some() || !takes_tcp(setting("UCX_TLS").as_deref()) {
        return SHORT;
    }
    let version = ucp.version();
    let name = if (version.0, version.1) < (1, 17) { c"TX_SEG_SIZE" } else { c"TCP_TX_SEG_SIZE" };
    // SAFETY: the caller's configuration; the texts are read before the call returns.
    let status = unsafe { ucp.ucp_config_modify(config, name.as_ptr(), LONG_SEGMENT.as_ptr()) };
    if status == UCS_OK {
        LONG
    } else {
        SHORT
    }
}

/// Whether `UCX_TLS` leaves TCP in.
fn takes_tcp(tls: Option<&str>) -> bool {
    let Some(tls) = tls.map(str::trim) else { return true };
    let (names, left_out) = match tls.strip_prefix('^') {
        Some(names) => (names, true),
        None => (tls, false),
    };
    let named = names.split(',').any(|name| matches!(name.trim(), "tcp" | "all"));
    named != left_out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_is_there_unless_it_is_left_out() {
        for (tls, there) in [
            (None, true),
            (Some("all"), true),
            (Some("tcp"), true),
            (Some("self, tcp"), true),
            (Some("sm,rc"), false),
            (Some("^tcp"), false),
            (Some("^ib,sm"), true),
        ] {
            assert_eq!(takes_tcp(tls), there, "{tls:?}");
        }
    }
}
