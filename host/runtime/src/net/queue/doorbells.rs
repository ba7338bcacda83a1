//! Who rings a card's doorbell registers: kernels themselves, where their device reaches them, or the proxy
//! thread (`RUSHMEM_DOORBELL`). A kernel that rings by the proxy writes what it would write to the register
//! into memory, which the proxy thread looks at.

use std::collections::HashMap;
use std::sync::atomic::{fence, AtomicU64, Ordering};
use std::sync::Arc;

use super::card::OpenQueue;
use super::layout::LINE;
use super::Queues;
use crate::config::Ringer;
use crate::error::Result;
use crate::gpu::pinned::Registered;
use crate::gpu::Cuda;

/// A register is within one of these, which is mapped whole.
const PAGE: usize = 4096;

/// The registers of kernels' queues.
pub(super) struct Doorbells {
    /// By queue: where a kernel's device has the card's own register; `None`: in our memory.
    pub(super) of_kernels: Vec<Option<u64>>,
    /// By queue: the card's own register, for what kernels have written to memory.
    forwarded: Vec<Option<*mut u64>>,
    /// Registers as the GPU has them.
    _mapped: Vec<Registered>,
    /// Why kernels do not ring them.
    why: Option<String>,
}

impl Doorbells {
    /// Of the queues that a card has opened for kernels of the CPU or of `gpu`.
    pub(super) fn new(ringer: Ringer, gpu: Option<&Arc<Cuda>>, open: &[OpenQueue]) -> Result<Doorbells> {
        let registers: Vec<Option<*mut u64>> = open.iter().map(|queue| queue.bell).collect();
        let by_kernels = |of_kernels, mapped| Doorbells {
            of_kernels,
            forwarded: vec![None; open.len()],
            _mapped: mapped,
            why: None,
        };
        let by_proxy = |why| Doorbells {
            of_kernels: vec![None; open.len()],
            forwarded: registers.clone(),
            _mapped: Vec::new(),
            why: Some(why),
        };
        let own = registers.iter().any(Option::is_some);
        match gpu {
            _ if own && ringer == Ringer::Proxy => Ok(by_proxy("RUSHMEM_DOORBELL=proxy".to_owned())),
            Some(cuda) if own => match map(cuda, &registers) {
                Ok((of_kernels, mapped)) => Ok(by_kernels(of_kernels, mapped)),
                Err(e) if ringer == Ringer::Kernels => Err(e.context(
                    "RUSHMEM_DOORBELL=kernel (`auto` lets the proxy thread ring where kernels cannot)",
                )),
                Err(e) => Ok(by_proxy(e.message)),
            },
            // A card's own register is at one address for the host and for kernels on the CPU.
            _ => Ok(by_kernels(registers.iter().map(|r| r.map(|at| at as u64)).collect(), Vec::new())),
        }
    }

    /// For people, behind what the card says of itself.
    pub(super) fn about(&self) -> String {
        self.why.as_ref().map_or_else(String::new, |why| format!("; the proxy thread rings for them: {why}"))
    }
}

/// The registers' addresses for kernels of a GPU, and what keeps them. Some may be one register, and some may
/// share a page.
#[allow(clippy::type_complexity)]
fn map(cuda: &Arc<Cuda>, registers: &[Option<*mut u64>]) -> Result<(Vec<Option<u64>>, Vec<Registered>)> {
    let mut pages: HashMap<usize, usize> = HashMap::new();
    let mut mapped = Vec::new();
    let mut of_kernels = Vec::with_capacity(registers.len());
    for register in registers {
        let Some(at) = register.map(|register| register as usize) else {
            of_kernels.push(None);
            continue;
        };
        let page = at & !(PAGE - 1);
        let base = match pages.get(&page) {
            Some(base) => *base,
            None => {
                // SAFETY: the register's page, which the card keeps mapped; it goes after this.
                let registered = unsafe { Registered::registers(cuda, page, PAGE) }?;
                let base = registered.device_address();
                mapped.push(registered);
                pages.insert(page, base);
                base
            }
        };
        of_kernels.push(Some((base + at % PAGE) as u64));
    }
    Ok((of_kernels, mapped))
}

impl Queues {
    /// Rings for kernels that cannot themselves. True where there was something.
    pub(in crate::net) fn ring_for_kernels(&self) -> bool {
        let mut rang = false;
        if self.bells.why.is_none() {
            return rang;
        }
        for (queue, register) in self.bells.forwarded.iter().enumerate() {
            let Some(register) = register else { continue };
            let memory = self.word(self.layout.record(queue) + LINE, 0);
            if memory.load(Ordering::Relaxed) == 0 {
                continue;
            }
            // What the kernel wrote before it comes before the register, which is not cached.
            let value = memory.swap(0, Ordering::Acquire);
            fence(Ordering::SeqCst);
            // SAFETY: the card's register, which is there as long as the card.
            unsafe { AtomicU64::from_ptr(*register) }.store(value, Ordering::Release);
            rang = true;
        }
        rang
    }

    /// The kernels' queues, and the card's own register of one.
    #[cfg(test)]
    pub(in crate::net) fn kernels_header(&self) -> usize {
        self.device.base()
    }

    #[cfg(test)]
    pub(in crate::net) fn register_of(&self, queue: usize) -> *mut u64 {
        self.bell(queue).as_ptr()
    }
}
