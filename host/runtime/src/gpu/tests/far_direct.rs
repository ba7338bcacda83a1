//! Whether a UCX on this machine reaches GPU memory by itself: the answer must be one, whichever UCX it is.

use std::mem::zeroed;
use std::ptr::{null, null_mut};

use ucx_sys::*;

use super::*;
use crate::net::gpu::direct::can_register;

/// A context, and what it says about memory at that place.
fn ask(ucp: &Ucp, at: usize, bytes: usize) -> std::result::Result<(), String> {
    let (mut config, mut context) = (null_mut(), null_mut());
    // SAFETY: made in this order, used by this thread alone, and given back; zeroes are valid, and masks name
    // what is set.
    unsafe {
        assert_eq!(ucp.ucp_config_read(null(), null(), &mut config), UCS_OK);
        let mut params: ucp_params_t = zeroed();
        params.field_mask = UCP_PARAM_FIELD_FEATURES.into();
        params.features = (UCP_FEATURE_RMA | UCP_FEATURE_AM).into();
        let status = ucp.ucp_init(&params, config, &mut context);
        ucp.ucp_config_release(config);
        assert_eq!(status, UCS_OK, "{}", ucp.status_text(status));
        let answer = can_register(ucp, context, at, bytes);
        ucp.ucp_cleanup(context);
        answer
    }
}

#[test]
fn what_ucx_says_of_gpu_memory() {
    let name = "what_ucx_says_of_gpu_memory";
    let ucp = match Ucp::load() {
        Ok(ucp) => ucp,
        Err(e) => {
            eprintln!("SKIP {name}: {e}");
            return;
        }
    };
    let Some(t) = turn(name) else {
        // No GPU: whatever the UCX, the answer is no, and says whose.
        let why = ask(ucp, 0x7000_0000, 4096).unwrap_err();
        assert!(why.contains(&ucp.version().to_string()), "{why}");
        return;
    };
    let grain = Allocation::granularity(&t.cuda).unwrap();
    let range = AddressRange::reserve(&t.cuda, grain, 0).unwrap();
    let allocation = Arc::new(Allocation::create(&t.cuda, grain).unwrap());
    let map = range.map(0, &allocation, &[&t.cuda]).unwrap();
    match ask(ucp, map.base(), grain) {
        Ok(()) => println!("FAR_GPU UCX {} registers memory of {}", ucp.version(), t.cuda),
        Err(why) => {
            assert!(why.contains(&ucp.version().to_string()), "{why}");
            println!("FAR_GPU UCX does not register memory of {}: {why}", t.cuda);
        }
    }
    t.cuda.check().unwrap();
}
