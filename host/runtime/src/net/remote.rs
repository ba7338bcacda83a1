//! The network's side of [`RemoteMemory`]: makes memory reachable for PEs that do not map it.

use super::{meeting, Far};
use crate::error::Result;
use crate::memory::remote::{Backed, RemoteMemory};

impl RemoteMemory for Far {
    unsafe fn add(&self, offset: usize, bytes: usize, own: usize, kind: Backed) -> Result<()> {
        // SAFETY: the memory stays until `remove`, as this function's contract says.
        unsafe { meeting::add(&self.shared, &*self.boot, offset, bytes, own, kind) }
    }

    fn remove(&self, offset: usize, bytes: usize) {
        let mut engine = self.shared.lock();
        for id in engine.segments().remove(offset, bytes) {
            engine.transport().forget(id);
            if let Some(queues) = engine.queues() {
                queues.forget(id);
            }
        }
    }
}
