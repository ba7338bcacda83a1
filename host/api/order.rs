//! Ordering and synchronisation (OpenSHMEM 1.5, sections 9.11 and 9.12).

use crate::{Result, World};

impl World {
    /// Orders this PE's puts, atomics and signals to each PE: those before it are seen before those after it.
    /// Completes nothing. Local.
    pub fn fence(&self) -> Result<()> {
        // SAFETY: a live handle.
        self.check(unsafe { (self.runtime().fence)(self.as_raw()) })
    }

    /// Waits until every put, atomic and signal that this PE's host issued, the non-blocking ones included,
    /// is complete and visible to every PE. Local.
    pub fn quiet(&self) -> Result<()> {
        // SAFETY: a live handle.
        self.check(unsafe { (self.runtime().quiet)(self.as_raw()) })
    }

    /// Returns once every PE has entered. Collective. It orders no remote updates; see
    /// [`World::barrier_all`].
    ///
    /// # Errors
    /// [`PeerDead`](crate::ErrorCode::PeerDead) names a PE that died, [`Timeout`](crate::ErrorCode::Timeout)
    /// the PEs that did not come within `RUSHMEM_TIMEOUT`.
    pub fn sync_all(&self) -> Result<()> {
        // SAFETY: a live handle.
        self.check(unsafe { (self.runtime().sync_all)(self.as_raw()) })
    }

    /// [`World::quiet`], then [`World::sync_all`]: what any PE put before it, every PE sees after it.
    /// Collective. Errors as for `sync_all`.
    pub fn barrier_all(&self) -> Result<()> {
        // SAFETY: a live handle.
        self.check(unsafe { (self.runtime().barrier_all)(self.as_raw()) })
    }
}
