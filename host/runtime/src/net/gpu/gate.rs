//! Gates: words of pinned memory at which streams wait for far operations. The call that a stream makes to
//! the host only submits the operation and returns, because the driver makes one such call at a time for the
//! whole process (docs/gpu-findings.md); what holds the stream back until the operation is over is its gate,
//! which the GPU's front end watches.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Result;
use crate::gpu::memop::MemOp;
use crate::gpu::pinned::PinnedBox;
use crate::gpu::Cuda;

/// Operations on streams that may be under way at a time; what comes on top waits in the call.
const GATES: usize = 512;

/// All gates of a PE.
pub(crate) struct Gates {
    words: PinnedBox<[u64]>,
    /// Those that nobody has, and how often each has been opened, which is what its word says.
    free: Mutex<Vec<(usize, u64)>>,
}

/// One of them, shut. It opens when it is dropped, whatever the reason.
pub(crate) struct Gate {
    gates: Arc<Gates>,
    place: usize,
    /// What its word says once it is open.
    turn: u64,
}

impl Gates {
    pub(crate) fn new(cuda: &Arc<Cuda>) -> Result<Gates> {
        Ok(Gates {
            words: PinnedBox::filled(cuda, GATES, 0)?,
            free: Mutex::new((0..GATES).map(|place| (place, 0)).collect()),
        })
    }

    /// A gate; `None` while all are shut.
    pub(crate) fn take(self: &Arc<Gates>) -> Option<Gate> {
        let (place, opened) = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        Some(Gate { gates: Arc::clone(self), place, turn: opened + 1 })
    }
}

impl Gate {
    /// What holds a stream back until it is open. Its next turn does not shut it for those who still look:
    /// words only grow.
    pub(crate) fn wait(&self) -> MemOp {
        let at = self.gates.words.device_address() + self.place * size_of::<u64>();
        MemOp::Wait64 { at, at_least: self.turn }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // SAFETY: an aligned word of the box, which only atomics and the GPU's front end access.
        let word = unsafe { AtomicU64::from_ptr(self.gates.words.as_ptr().cast::<u64>().add(self.place)) };
        word.store(self.turn, Ordering::Release);
        let mut free = self.gates.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.push((self.place, self.turn));
    }
}
