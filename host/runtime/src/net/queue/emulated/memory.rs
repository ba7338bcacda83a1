//! Memory that was registered with the software card: host memory, or a GPU's, which copy engines reach.

use std::collections::HashMap;
use std::sync::atomic::{fence, Ordering};
use std::sync::Arc;

use crate::error::Result;
use crate::gpu::stream::{Priority, Stream};
use crate::gpu::Cuda;
use crate::net::queue::card::AccessRights;
use crate::net::transport::Memory;

/// A registered piece.
#[derive(Debug, Clone, Copy)]
struct CardRegion {
    /// The address by which requests name its first byte.
    named: u64,
    memory: Memory,
    rights: AccessRights,
}

/// What a request does to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// This card's own request reads it, or puts an answer there.
    LocalRead,
    LocalWrite,
    /// The peer's.
    RemoteRead,
    RemoteWrite,
    Update,
}

impl Access {
    /// What a key is for that allows it.
    fn name(self) -> &'static str {
        match self {
            Access::LocalRead => "reading",
            Access::LocalWrite => "answers",
            Access::RemoteRead => "a peer's READs",
            Access::RemoteWrite => "a peer's WRITEs",
            Access::Update => "atomics",
        }
    }

    fn allowed(self, rights: AccessRights) -> bool {
        match self {
            Access::LocalRead => true,
            Access::LocalWrite => rights.local_write,
            Access::RemoteRead => rights.remote_read,
            Access::RemoteWrite => rights.remote_write,
            Access::Update => rights.words,
        }
    }
}

/// All of them, by key.
pub(super) struct Regions {
    all: HashMap<u32, CardRegion>,
    /// Where some are a GPU's.
    gpu: Option<Stream>,
}

/// What an atomic does.
#[derive(Debug, Clone, Copy)]
pub(super) enum WordChange {
    Add(u64),
    Swap { value: u64, compare: u64 },
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

    pub(super) fn insert(&mut self, key: u32, named: u64, memory: Memory, rights: AccessRights) {
        self.all.insert(key, CardRegion { named, memory, rights });
    }

    pub(super) fn remove(&mut self, key: u32) {
        self.all.remove(&key);
    }

    pub(super) fn has(&self, key: u32) -> bool {
        self.all.contains_key(&key)
    }

    /// Where the named bytes are, or why they are nowhere, or not for that.
    pub(super) fn find(
        &self,
        key: u32,
        address: u64,
        bytes: usize,
        access: Access,
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
        if !access.allowed(region.rights) {
            return Err(format!("key {key:#010x} is none for {}", access.name()));
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

    /// Updates an aligned word of 8 bytes; what it was. Atomic with this card's other updates, as its one
    /// thread makes them, and with nothing else: a card's are not. `late`: time passes between the load and
    /// the store.
    pub(super) fn update(&self, at: CardPlace, change: WordChange, late: bool) -> Result<u64> {
        let mut bytes = [0; 8];
        self.read(at, &mut bytes)?;
        let old = u64::from_le_bytes(bytes);
        let new = match change {
            WordChange::Add(value) => old.wrapping_add(value),
            WordChange::Swap { value, compare } if old == compare => value,
            WordChange::Swap { .. } => old,
        };
        if late {
            std::thread::yield_now();
        }
        self.write(at, &new.to_le_bytes())?;
        Ok(old)
    }
}
