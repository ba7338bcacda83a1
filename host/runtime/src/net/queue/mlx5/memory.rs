//! Memory that requests may name: the host's by its address; a GPU's as a dma-buf, or by its address where
//! NVIDIA's module nvidia-peermem tells the card's driver of its pages.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use super::device::OpenCard;
use super::library::MemoryRegion;
use crate::error::{err, Error, Result};
use crate::net::queue::card::{AccessRights, RegionKeys};
use crate::net::transport::Memory;
use crate::os::page_size;

/// Gives a descriptor of GPU memory: of its address and bytes, whole pages.
pub(in crate::net) type DmaBufs = Box<dyn Fn(usize, usize) -> Result<OwnedFd> + Send>;

/// `IBV_ACCESS_LOCAL_WRITE`, `REMOTE_WRITE`, `REMOTE_READ` and `REMOTE_ATOMIC`. Not `RELAXED_ORDERING`: the
/// order that `impl/net/queue.h` argues rests on WRITEs that arrive in order.
fn access(rights: AccessRights) -> u32 {
    let AccessRights { local_write, remote_write, remote_read, words } = rights;
    let bit = |has: bool, bit: u32| if has { bit } else { 0 };
    bit(local_write, 1) | bit(remote_write, 2) | bit(remote_read, 4) | bit(words, 8)
}

pub(super) struct RegisteredMemory {
    device: Arc<OpenCard>,
    region: *mut MemoryRegion,
}

// SAFETY: a handle that any thread may use.
unsafe impl Send for RegisteredMemory {}

impl RegisteredMemory {
    /// # Safety
    /// The memory stays as long as this.
    pub(super) unsafe fn new(
        device: &Arc<OpenCard>,
        gpu: Option<&DmaBufs>,
        memory: Memory,
        named: u64,
        rights: AccessRights,
    ) -> Result<RegisteredMemory> {
        let access = access(rights);
        let region = if memory.gpu {
            // SAFETY: the caller's memory stays.
            unsafe { gpu_region(device, gpu, memory, named, access) }?
        } else {
            // SAFETY: the caller's memory stays.
            unsafe { region(device, memory, named, access) }.map_err(|why| {
                let Memory { address, bytes, .. } = memory;
                err!(
                    ENVIRONMENT,
                    "{}: registering {bytes} bytes at {address:#x} failed: {why} (ulimit -l must let the symmetric heap be \
                     pinned)",
                    device.who()
                )
            })?
        };
        Ok(RegisteredMemory { device: Arc::clone(device), region })
    }

    pub(super) fn keys(&self) -> RegionKeys {
        // SAFETY: the region that was made.
        unsafe { RegionKeys { local: (*self.region).lkey, remote: (*self.region).rkey } }
    }
}

/// By its address; else the system's reason.
///
/// # Safety
/// The memory stays as long as the region.
unsafe fn region(
    device: &OpenCard,
    memory: Memory,
    named: u64,
    access: u32,
) -> std::io::Result<*mut MemoryRegion> {
    let OpenCard { verbs, pd, .. } = device;
    // SAFETY: the caller's memory stays.
    let region =
        unsafe { (verbs.ibv_reg_mr_iova2)(*pd, memory.address as *mut _, memory.bytes, named, access) };
    if region.is_null() {
        return Err(std::io::Error::last_os_error());
    }
    Ok(region)
}

/// # Safety
/// The memory stays as long as the region.
unsafe fn gpu_region(
    device: &OpenCard,
    gpu: Option<&DmaBufs>,
    memory: Memory,
    named: u64,
    access: u32,
) -> Result<*mut MemoryRegion> {
    let Memory { address, bytes, .. } = memory;
    let Some(dma_bufs) = gpu else {
        return Err(err!(INTERNAL, "{}: memory of a GPU, and no GPU was named to the card", device.who()));
    };
    // Whole pages around it. The card's driver wants name and offset to be alike within a page.
    let page = page_size();
    let first = address & !(page - 1);
    let offset = (address - first) as u64;
    let whole = (address + bytes).next_multiple_of(page) - first;
    let by_descriptor = dma_bufs(first, whole).and_then(|buffer| {
        let OpenCard { verbs, pd, .. } = device;
        let fd = buffer.as_raw_fd();
        // SAFETY: the caller's memory stays; the descriptor is open, and the driver keeps what it needs of
        // it.
        let region = unsafe { (verbs.ibv_reg_dmabuf_mr)(*pd, offset, bytes, named, fd, access as i32) };
        if region.is_null() {
            return Err(Error::os("giving it to the card's driver"));
        }
        Ok(region)
    });
    let by_descriptor = match by_descriptor {
        Ok(region) => return Ok(region),
        Err(e) => e.message,
    };
    // SAFETY: the caller's memory stays.
    unsafe { region(device, memory, named, access) }.map_err(|why| {
        err!(
            ENVIRONMENT,
            "{}: registering {bytes} bytes of GPU memory at {address:#x} failed. As a dma-buf: {by_descriptor}. By \
             nvidia-peermem: {why} (`modprobe nvidia-peermem` where it is missing)",
            device.who()
        )
    })
}

impl Drop for RegisteredMemory {
    fn drop(&mut self) {
        // SAFETY: the region that was made.
        if unsafe { (self.device.verbs.ibv_dereg_mr)(self.region) } != 0 {
            let why = std::io::Error::last_os_error();
            log::warn!("{}: memory is still registered: {why}", self.device.who());
        }
    }
}
