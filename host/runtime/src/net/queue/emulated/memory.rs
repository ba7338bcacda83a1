//! Memory that was registered with the software card: host memory, or a GPU's, which copy engines reach.

use std::collections::HashMap;
use std::sync::atomic::{fence, Ordering};
use std::sync::Arc;

use crate::error::Result;
use crate::gpu::stream::{Priority, Stream};
use crate::gpu::Cuda;
use crate::net::transport::Memory;
use crate::word::{Update, Word};

/// A registered piece.
#[derive(Debug, Clone, Copy)]
struct CardRegion {
    /// The address by which requests name its first byte.
    named: u64,
    memory: Memory,
}

/// All of them, by key.
pub(super) struct Regions {
    all: HashMap<u32, CardRegion>,
    /// Where some are a GPU's.
    gpu: Option<Stream>,
}

/// A place in a registered piece.
#[derive(Debug, Clone, Copy)]
pub(super) struct CardPlace {
    at: usize,
    gpu: bool,
}

impl CardPlace {
    pub(super) fn offset(self, by: usize) -> CardPlace {
        CardPlace { at: self.at + by, ..self }
    }
}

impl Regions {
    pub(super) fn new(cuda: Option<&Arc<Cuda>>) -> Result<Regions> {
        let gpu = cuda.map(|cuda| Stream::new(cuda, Priority::High)).transpose()?;
        Ok(Regions { all: HashMap::new(), gpu })
    }

    pub(super) fn insert(&mut self, key: u32, named: u64, memory: Memory) {
        self.all.insert(key, CardRegion { named, memory });
    }

    pub(super) fn remove(&mut self, key: u32) {
        self.all.remove(&key);
    }

    pub(super) fn has(&self, key: u32) -> bool {
        self.all.contains_key(&key)
    }

    /// Where the named bytes are, or why they are nowhere.
    pub(super) fn find(
        &self,
        key: u32,
        address: u64,
        bytes: usize,
    ) -> std::result::Result<CardPlace, String> {
        let region = self.all.get(&key).ok_or_else(|| format!("key {key:#010x} is none of this card's"))?;
        let inside = address.wrapping_sub(region.named);
        let size = region.memory.bytes as u64;
        if inside > size || bytes as u64 > size - inside {
            return Err(format!(
                "{bytes} bytes at {address:#x} are not in the {size} at {:#x} of key {key:#010x}",
                region.named
            ));
        }
        Ok(CardPlace { at: region.memory.address + inside as usize, gpu: region.memory.gpu })
    }

    /// Copies bytes out.
    pub(super) fn read(&self, from: CardPlace, out: &mut [u8]) -> Result<()> {
        match &self.gpu {
            Some(stream) if from.gpu => {
                // SAFETY: registered memory, which stays until it is forgotten; the copy is waited for.
                unsafe { stream.copy(out.as_mut_ptr() as usize, from.at, out.len()) }?;
                stream.finish()
            }
            _ => {
                fence(Ordering::Acquire);
                // SAFETY: registered memory, which stays until it is forgotten.
                unsafe { crate::word::copy(out.as_mut_ptr(), from.at as *const u8, out.len()) };
                Ok(())
            }
        }
    }

    /// Copies bytes in, after all that was copied before.
    pub(super) fn write(&self, to: CardPlace, data: &[u8]) -> Result<()> {
        match &self.gpu {
            Some(stream) if to.gpu => {
                // SAFETY: registered memory, which stays until it is forgotten; the copy is waited for.
                unsafe { stream.copy(to.at, data.as_ptr() as usize, data.len()) }?;
                stream.finish()
            }
            _ => {
                fence(Ordering::Release);
                // SAFETY: registered memory, which stays until it is forgotten.
                unsafe { crate::word::copy(to.at as *mut u8, data.as_ptr(), data.len()) };
                Ok(())
            }
        }
    }

    /// Updates a word of 8 bytes; what it was. On a GPU's memory atomic with this card's updates alone, as a
    /// card's are.
    pub(super) fn update(&self, at: CardPlace, update: Update, value: u64, compare: u64) -> Result<u64> {
        if at.gpu {
            let mut bytes = [0; 8];
            self.read(at, &mut bytes)?;
            let old = u64::from_le_bytes(bytes);
            let new = match update {
                Update::Add => old.wrapping_add(value),
                _ if old == compare => value,
                _ => old,
            };
            self.write(at, &new.to_le_bytes())?;
            return Ok(old);
        }
        // SAFETY: an aligned word of registered memory, which stays until it is forgotten.
        Ok(unsafe { u64::update(at.at as *mut u8, update, value, compare) })
    }
}
