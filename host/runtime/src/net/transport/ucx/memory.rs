//! Memory that other PEs may reach: registered with UCX where it copies, known by its range alone where
//! messages do; and the keys that say which of the two it is.

use std::ffi::c_void;
use std::mem::zeroed;
use std::ptr::null_mut;

use ucx_sys::*;

use super::status::check;
use super::Ucx;
use crate::error::Result;
use crate::net::gpu::direct::can_register;
use crate::net::transport::Memory;

/// Keys to memory that UCX copies to and from begin with the one; to memory that only messages reach there is
/// none.
const BY_UCX: u8 = 1;
const BY_MESSAGES: u8 = 0;

impl Ucx {
    /// Whether UCX can register a GPU's memory; the first of it is tried.
    fn reaches(&mut self, memory: Memory) -> Result<bool> {
        if !memory.single {
            return Ok(false);
        }
        if self.gpus.is_none() {
            // SAFETY: the context is this value's, which the caller has to itself.
            let able = || unsafe { can_register(self.ucp, self.context, memory.address, memory.bytes) };
            self.gpus = Some(self.way.by_ucx(able)?);
        }
        Ok(self.gpus == Some(true))
    }

    /// See [`Transport::register`](crate::net::transport::Transport::register).
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn register_memory(&mut self, id: u32, memory: Memory) -> Result<Vec<u8>> {
        if memory.gpu && !self.reaches(memory)? {
            return Ok(Vec::new());
        }
        if !memory.gpu {
            self.inbox().memory.insert(id, (memory.address, memory.bytes));
            if !self.rma {
                return Ok(vec![BY_MESSAGES]);
            }
        }
        let ucp = self.ucp;
        // SAFETY: the caller keeps the memory until it is forgotten; the key is copied before it is released.
        unsafe {
            let mut params: ucp_mem_map_params_t = zeroed();
            params.field_mask = (UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH).into();
            params.address = memory.address as *mut c_void;
            params.length = memory.bytes;
            if memory.gpu {
                params.field_mask |= u64::from(UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE);
                params.memory_type = UCS_MEMORY_TYPE_CUDA;
            }
            let mut handle = null_mut();
            check(ucp, "registering memory", ucp.ucp_mem_map(self.context, &params, &mut handle))?;
            let (mut packed, mut length) = (null_mut(), 0);
            let status = ucp.ucp_rkey_pack(self.context, handle, &mut packed, &mut length);
            if status != UCS_OK {
                ucp.ucp_mem_unmap(self.context, handle);
                check(ucp, "packing a key", status)?;
            }
            let packed_bytes = std::slice::from_raw_parts(packed.cast::<u8>(), length);
            let key = [&[BY_UCX], packed_bytes].concat();
            ucp.ucp_rkey_buffer_release(packed);
            self.segments.insert(id, (handle, memory.gpu));
            Ok(key)
        }
    }

    pub(super) fn keep_keys(&mut self, id: u32, keys: Vec<Vec<u8>>) {
        for (peer, key) in self.peers.iter_mut().zip(keys) {
            if let Some((&BY_UCX, key)) = key.split_first() {
                peer.keys.insert(id, (key.to_vec(), None));
            }
        }
    }

    pub(super) fn forget_memory(&mut self, id: u32) {
        for peer in &mut self.peers {
            if let Some((_, Some(key))) = peer.keys.remove(&id) {
                // SAFETY: unpacked by this endpoint, used no more.
                unsafe { self.ucp.ucp_rkey_destroy(key) };
            }
        }
        if let Some((address, bytes)) = self.inbox().memory.remove(&id) {
            self.pieces.forget(address, bytes);
        }
        if let Some((handle, _)) = self.segments.remove(&id) {
            // SAFETY: registered here; no PE uses it any more.
            unsafe { self.ucp.ucp_mem_unmap(self.context, handle) };
        }
    }
}
