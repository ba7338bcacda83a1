//! Memory of the device: what kernels alone write, and what the host tells them while they run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use super::layout::LINE;
use crate::error::Result;
use crate::gpu::plain::Plain;
use crate::gpu::Cuda;
use crate::net::memory::reachable::HostMemory;

pub(super) enum DeviceMemory {
    Host(HostMemory),
    Gpu(Plain),
}

impl DeviceMemory {
    /// Of the CPU device or of `gpu`, zeroed.
    pub(super) fn new(gpu: Option<&Arc<Cuda>>, lines: usize) -> Result<DeviceMemory> {
        Ok(match gpu {
            None => DeviceMemory::Host(HostMemory::new(None, lines)?),
            Some(cuda) => DeviceMemory::Gpu(Plain::holding(cuda, &vec![0; lines * LINE])?),
        })
    }

    /// Where kernels have it.
    pub(super) fn base(&self) -> usize {
        match self {
            DeviceMemory::Host(memory) => memory.host() as usize,
            DeviceMemory::Gpu(plain) => plain.base(),
        }
    }

    /// Where the host has it, too.
    pub(super) fn host(&self) -> Option<*mut u8> {
        match self {
            DeviceMemory::Host(memory) => Some(memory.host().cast()),
            DeviceMemory::Gpu(_) => None,
        }
    }

    /// Writes words at offsets in bytes, multiples of 8, one after the other, and waits until they are there.
    /// A kernel that reads one meanwhile finds what was there or what comes; one that sees a later part, and
    /// then reads an earlier one, finds that written.
    pub(super) fn write(&self, parts: &[(usize, &[u64])]) -> Result<()> {
        match self {
            DeviceMemory::Host(memory) => {
                for (offset, words) in parts {
                    // SAFETY: places of the layout, atomic to all.
                    unsafe {
                        let first = memory.host().cast::<u8>().add(*offset).cast::<u64>();
                        for (i, word) in words.iter().enumerate() {
                            AtomicU64::from_ptr(first.add(i)).store(*word, Ordering::Release);
                        }
                    }
                }
                Ok(())
            }
            DeviceMemory::Gpu(plain) => {
                let bytes =
                    |words: &[u64]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
                plain.fill(&parts.iter().map(|(at, words)| (*at, bytes(words))).collect::<Vec<_>>())
            }
        }
    }
}
