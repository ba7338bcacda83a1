//! Host memory that the device reaches, and both sides write by protocol: the ring, the card's queues.

use std::cell::UnsafeCell;
use std::sync::Arc;

use rushmem_abi::device::RingLine as Line;

use crate::error::Result;
use crate::gpu::pinned::PinnedBox;
use crate::gpu::Cuda;

/// Lines of 128 bytes, zeroed at first.
pub(in crate::net) enum HostMemory {
    Plain(Box<[UnsafeCell<Line>]>),
    Pinned(PinnedBox<[Line]>),
}

impl HostMemory {
    /// For the CPU device, or pinned for `gpu`.
    pub(in crate::net) fn new(gpu: Option<&Arc<Cuda>>, lines: usize) -> Result<HostMemory> {
        Ok(match gpu {
            None => HostMemory::Plain((0..lines).map(|_| UnsafeCell::new(Line::ZERO)).collect()),
            Some(cuda) => HostMemory::Pinned(PinnedBox::filled(cuda, lines, Line::ZERO)?),
        })
    }

    pub(in crate::net) fn host(&self) -> *mut Line {
        match self {
            HostMemory::Plain(lines) => UnsafeCell::raw_get(lines.as_ptr()),
            HostMemory::Pinned(lines) => lines.as_ptr().cast(),
        }
    }

    pub(in crate::net) fn device_address(&self) -> u64 {
        match self {
            HostMemory::Plain(_) => self.host() as u64,
            HostMemory::Pinned(lines) => lines.device_address() as u64,
        }
    }
}
