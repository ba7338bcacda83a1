//! How PEs that do not map this PE's memory learn of it. The network does that; memory only says what there
//! is, so that it needs to know of no network.

use crate::error::Result;

/// What memory is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backed {
    Host,
    /// One allocation of a GPU.
    GpuPiece,
    /// One or several of them.
    GpuPieces,
}

/// The way to PEs that do not map each other's memory.
pub(crate) trait RemoteMemory: Send + Sync {
    /// Collective over the job: `bytes` at `offset` of everybody's stride, this PE's own at `own`, can be
    /// reached from now on.
    ///
    /// # Safety
    /// The memory stays until [`RemoteMemory::remove`], or until the last reference to `self` is dropped.
    unsafe fn add(&self, offset: usize, bytes: usize, own: usize, kind: Backed) -> Result<()>;

    /// The opposite, once no PE uses it any more.
    fn remove(&self, offset: usize, bytes: usize);
}
