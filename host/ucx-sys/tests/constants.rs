//! The macros written by hand and the constants made by bindgen, against UCX's headers as a reader finds them
//! there. Sizes and offsets of structures are checked where they are made: `src/bindings.rs` asserts them at
//! compile time.

use std::ffi::c_void;
use ucx_sys::*;

#[test]
fn statuses_travel_in_pointers() {
    for status in (UCS_ERR_LAST..0).chain([UCS_OK]) {
        let pointer = UCS_STATUS_PTR(status);
        assert_eq!(UCS_PTR_STATUS(pointer), status);
        assert_eq!(UCS_PTR_RAW_STATUS(pointer), status);
        assert_eq!(UCS_PTR_IS_ERR(pointer), status < 0, "{status}");
        assert!(!UCS_PTR_IS_PTR(pointer), "{status}");
        assert_eq!(UCS_STATUS_IS_ERR(status), status < 0);
    }
    assert!(UCS_STATUS_PTR(UCS_OK).is_null());
    let here = 0_u64;
    for request in [
        std::ptr::dangling_mut::<u8>().cast(),
        (&raw const here).cast_mut().cast(),
        usize::MAX.wrapping_sub(100) as *mut c_void,
    ] {
        assert!(UCS_PTR_IS_PTR(request) && !UCS_PTR_IS_ERR(request));
        assert_eq!(UCS_PTR_STATUS(request), UCS_INPROGRESS);
    }
}

#[test]
fn a_status_is_one_byte() {
    // `typedef enum {...} UCS_S_PACKED ucs_status_t`: a callback that took four would read its neighbour's
    // bytes.
    assert_eq!(size_of::<ucs_status_t>(), 1);
}

#[test]
fn failures_have_ranges() {
    assert!(UCS_IS_ENDPOINT_ERROR(UCS_ERR_ENDPOINT_TIMEOUT) && !UCS_IS_LINK_ERROR(UCS_ERR_ENDPOINT_TIMEOUT));
    assert!(
        UCS_IS_LINK_ERROR(-40)
            && UCS_IS_LINK_ERROR(-59)
            && !UCS_IS_LINK_ERROR(-60)
            && !UCS_IS_LINK_ERROR(-39)
    );
    assert!(!UCS_IS_ENDPOINT_ERROR(UCS_ERR_CONNECTION_RESET));
}

#[test]
fn datatypes_and_versions() {
    assert_eq!([1, 4, 8].map(ucp_dt_make_contig), [0x8, 0x20, 0x40]);
    assert_eq!(ucp_dt_make_iov(), 2);
    assert_eq!(UCP_API_VERSION, 0x010d_0000);
}

#[test]
fn feature_bits() {
    let all = [
        UCP_FEATURE_TAG,
        UCP_FEATURE_RMA,
        UCP_FEATURE_AMO32,
        UCP_FEATURE_AMO64,
        UCP_FEATURE_WAKEUP,
        UCP_FEATURE_STREAM,
        UCP_FEATURE_AM,
    ];
    assert_eq!(all, std::array::from_fn(|bit| 1 << bit));
}

#[test]
fn every_listed_function_is_bound_and_no_other() {
    let bindings = include_str!("../src/bindings.rs");
    let mut bound: Vec<&str> = bindings
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("pub unsafe fn "))
        .filter_map(|rest| rest.split(['(', '<']).next())
        .filter(|name| name.starts_with("uc"))
        .collect();
    let mut listed = FUNCTIONS.to_vec();
    bound.sort_unstable();
    listed.sort_unstable();
    assert_eq!(bound, listed);
}
