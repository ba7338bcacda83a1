//! Whether UCX reaches GPU memory by itself: a build with CUDA support (PyPI's `libucx-cu13`, an RDMA host's
//! own), asked by trying.
//!
//! A UCX that cannot is no error: then data goes through [`staging`](super::staging), unless
//! `RUSHMEM_FAR_GPU=ucx` insists. What it registers must be one VMM allocation at a time: of a range of
//! several it would silently register the first (ucx#11283). Atomics go through the
//! [`mailbox`](super::mailbox) in any case: UCX's own, in software, would touch GPU memory with the CPU.

use std::mem::zeroed;
use std::ptr::null_mut;

use ucx_sys::{
    ucp_context_attr_t, ucp_context_h, ucp_mem_map_params_t, Ucp, UCP_ATTR_FIELD_MEMORY_TYPES,
    UCP_MEM_MAP_PARAM_FIELD_ADDRESS, UCP_MEM_MAP_PARAM_FIELD_LENGTH, UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
    UCS_MEMORY_TYPE_CUDA, UCS_OK,
};

use crate::config::FarGpu;
use crate::error::{err, Result};

impl FarGpu {
    /// Whether UCX is to do it. `able` tries, and says why it cannot.
    pub(crate) fn by_ucx(self, able: impl FnOnce() -> std::result::Result<(), String>) -> Result<bool> {
        match self {
            FarGpu::Bounce | FarGpu::Auto => Ok(false),
            FarGpu::Ucx => able().map(|()| true).map_err(|why| {
                err!(
                    UNSUPPORTED,
                    "RUSHMEM_FAR_GPU=ucx: {why}; install a UCX with CUDA (`pip install libucx-cu13`, or \
                     RUSHMEM_UCX_LIB), or leave it at auto, which goes through staging buffers"
                )
            }),
        }
    }
}

/// Whether that context of UCX's can register GPU memory: `bytes` at `at`, one VMM allocation, are registered
/// on trial.
///
/// # Safety
/// The context is alive, and used by nobody else meanwhile; the memory is GPU memory.
pub(crate) unsafe fn can_register(
    ucp: &Ucp,
    context: ucp_context_h,
    at: usize,
    bytes: usize,
) -> std::result::Result<(), String> {
    let version = ucp.version();
    // SAFETY: zeroes are valid, and the mask names what is asked for.
    let (status, types) = unsafe {
        let mut attr: ucp_context_attr_t = zeroed();
        attr.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES.into();
        (ucp.ucp_context_query(context, &mut attr), attr.memory_types)
    };
    if status != UCS_OK {
        return Err(format!("UCX {version} does not say what memory it knows: {}", ucp.status_text(status)));
    }
    if types & (1 << UCS_MEMORY_TYPE_CUDA) == 0 {
        let path = ucp.path();
        return Err(format!(
            "UCX {version} in {} knows no GPU memory: built without CUDA, or UCX_TLS leaves out cuda_copy",
            path.display()
        ));
    }
    // SAFETY: zeroes are valid, the mask names what is set, the memory is as the caller says; what was mapped
    // is unmapped.
    unsafe {
        let mut params: ucp_mem_map_params_t = zeroed();
        params.field_mask = (UCP_MEM_MAP_PARAM_FIELD_ADDRESS
            | UCP_MEM_MAP_PARAM_FIELD_LENGTH
            | UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE)
            .into();
        params.address = at as *mut _;
        params.length = bytes;
        params.memory_type = UCS_MEMORY_TYPE_CUDA;
        let mut handle = null_mut();
        let status = ucp.ucp_mem_map(context, &params, &mut handle);
        if status != UCS_OK {
            return Err(format!("UCX {version} cannot register GPU memory: {}", ucp.status_text(status)));
        }
        ucp.ucp_mem_unmap(context, handle);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::code;

    #[test]
    fn ways() {
        for (text, way) in [("auto", FarGpu::Auto), (" Bounce", FarGpu::Bounce), ("UCX", FarGpu::Ucx)] {
            assert_eq!(FarGpu::parse(text).unwrap(), way);
        }
        let e = FarGpu::parse("rdma").unwrap_err();
        assert!(e.code == code::ENVIRONMENT && e.message.contains("RUSHMEM_FAR_GPU=rdma"), "{e}");
        let (can, cannot) = (|| Ok(()), || Err("no CUDA in it".to_owned()));
        for bounces in [FarGpu::Auto, FarGpu::Bounce] {
            assert!(!bounces.by_ucx(|| panic!("not asked")).unwrap());
        }
        assert!(FarGpu::Ucx.by_ucx(can).unwrap());
        let e = FarGpu::Ucx.by_ucx(cannot).unwrap_err();
        assert!(e.message.contains("no CUDA in it") && e.message.contains("libucx-cu13"), "{e}");
    }
}
