//! What bindgen cannot make: the macros and static inlines of UCX's headers, written by hand.
//!
//! Each says which one it stands for, with the header's own words where it has any. Names are the header's,
//! so that UCX's documentation can be read next to this code.

#![allow(non_snake_case)]

use crate::bindings::*;
use std::ffi::c_void;

/// `UCP_VERSION`: "Construct a UCP version identifier from major and minor version numbers."
/// (`ucp_version.h`)
pub const fn UCP_VERSION(major: u32, minor: u32) -> u32 {
    major << 24 | minor << 16
}

/// `UCP_API_VERSION`: the interface that these bindings speak, 1.13. (`ucp_version.h`)
pub const UCP_API_VERSION: u32 = UCP_VERSION(UCP_API_MAJOR, UCP_API_MINOR);

/// `UCS_STATUS_IS_ERR`: negative statuses are failures; `UCS_OK` and `UCS_INPROGRESS` are none. (`status.h`)
pub const fn UCS_STATUS_IS_ERR(status: ucs_status_t) -> bool {
    status < 0
}

/// `UCS_IS_LINK_ERROR`: "if a link fails it may be sufficient to destroy (and possibly replace) it".
/// (`status.h`)
pub const fn UCS_IS_LINK_ERROR(status: ucs_status_t) -> bool {
    status <= UCS_ERR_FIRST_LINK_FAILURE && status >= UCS_ERR_LAST_LINK_FAILURE
}

/// `UCS_IS_ENDPOINT_ERROR`: "in contrast to an endpoint-level error", which takes the endpoint with it.
/// (`status.h`)
///
/// `UCS_ERR_CONNECTION_RESET`, which a peer's death brings as well, lies outside this range.
pub const fn UCS_IS_ENDPOINT_ERROR(status: ucs_status_t) -> bool {
    status <= UCS_ERR_FIRST_ENDPOINT_FAILURE && status >= UCS_ERR_LAST_ENDPOINT_FAILURE
}

/// Where the addresses end that are statuses in disguise: `UCS_ERR_LAST`, sign-extended to a pointer's width.
const LAST: usize = UCS_ERR_LAST as isize as usize;

/// `UCS_PTR_IS_ERR`: the pointer is an error code (`UCS_ERR_xx`) in disguise. (`status.h`)
///
/// "A pointer can represent one of these values: NULL / UCS_OK, error code pointer (UCS_ERR_xx), valid
/// pointer."
pub fn UCS_PTR_IS_ERR(pointer: ucs_status_ptr_t) -> bool {
    pointer as usize >= LAST
}

/// `UCS_PTR_IS_PTR`: the pointer is a request in flight: not NULL, no error. (`status.h`)
pub fn UCS_PTR_IS_PTR(pointer: ucs_status_ptr_t) -> bool {
    (pointer as usize).wrapping_sub(1) < LAST - 1
}

/// `UCS_PTR_RAW_STATUS`: the status that a pointer which is no request stands for. (`status.h`)
pub fn UCS_PTR_RAW_STATUS(pointer: ucs_status_ptr_t) -> ucs_status_t {
    pointer as isize as ucs_status_t
}

/// `UCS_PTR_STATUS`: `UCS_INPROGRESS` for a request, else the status that the pointer stands for.
/// (`status.h`)
pub fn UCS_PTR_STATUS(pointer: ucs_status_ptr_t) -> ucs_status_t {
    if UCS_PTR_IS_PTR(pointer) {
        UCS_INPROGRESS
    } else {
        UCS_PTR_RAW_STATUS(pointer)
    }
}

/// `UCS_STATUS_PTR`: a status as a pointer, as the `_nbx` functions return it. (`status.h`)
pub fn UCS_STATUS_PTR(status: ucs_status_t) -> ucs_status_ptr_t {
    status as isize as *mut c_void
}

/// `ucp_dt_make_contig`: "an identifier for contiguous datatype that is defined by the size of the basic
/// element". (`ucp.h`)
///
/// `size` is in bytes. Atomics take 4 and 8 and nothing else; 1 is what a request without a datatype means.
pub const fn ucp_dt_make_contig(size: usize) -> ucp_datatype_t {
    (size as ucp_datatype_t) << UCP_DATATYPE_SHIFT | UCP_DATATYPE_CONTIG as ucp_datatype_t
}

/// `ucp_dt_make_iov`: "an identifier for datatype of scatter-gather list with multiple pointers". (`ucp.h`)
pub const fn ucp_dt_make_iov() -> ucp_datatype_t {
    UCP_DATATYPE_IOV as ucp_datatype_t
}

impl Ucp {
    /// `ucp_init`: "discovers the available network interfaces, and initializes the network resources".
    /// (`ucp.h`)
    ///
    /// A static inline there, which passes on the version of the headers: [`UCP_API_MAJOR`] and
    /// [`UCP_API_MINOR`].
    ///
    /// # Safety
    ///
    /// `params` is valid in the fields of its mask, `config` NULL or from `ucp_config_read`, `context`
    /// writable.
    pub unsafe fn ucp_init(
        &self,
        params: *const ucp_params_t,
        config: *const ucp_config_t,
        context: *mut ucp_context_h,
    ) -> ucs_status_t {
        // SAFETY: the caller gives parameters, configuration and context as ucp_init_version asks for them.
        unsafe { self.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, params, config, context) }
    }

    /// What UCX says about a status, in English: `ucs_status_string`.
    pub fn status_text(&self, status: ucs_status_t) -> String {
        // SAFETY: takes any value; answers a text of static life, or, where it does not know the value, one
        // in a buffer of its own that lives on.
        let text = unsafe { self.ucs_status_string(status) };
        if text.is_null() {
            return format!("UCX status {status}");
        }
        // SAFETY: not null, and NUL-terminated by UCX.
        unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}
