//! Ordering and synchronisation (OpenSHMEM 1.5, sections 9.9 and 9.11), at once and in a stream's turn.

use crate::stream::Stream;
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

/// Forms in a stream's turn.
impl World {
    /// Orders the operations on the stream before the fence, on each PE, before those behind it. To PEs whose
    /// memory is mapped the stream's own order does that already.
    pub fn fence_on(&self, stream: &Stream<'_>) -> Result<()> {
        let raw = stream.of(self)?;
        // SAFETY: a live handle and a stream of its world.
        self.check(unsafe { (self.runtime().fence_on_stream)(self.as_raw(), raw) })
    }

    /// Completes the operations on the stream before it at their PEs, before what is behind it begins. To PEs
    /// whose memory is mapped the stream's own order does that already.
    pub fn quiet_on(&self, stream: &Stream<'_>) -> Result<()> {
        let raw = stream.of(self)?;
        // SAFETY: a live handle and a stream of its world.
        self.check(unsafe { (self.runtime().quiet_on_stream)(self.as_raw(), raw) })
    }

    /// Holds the stream back until every PE has come to its own call, on a stream or in a kernel
    /// (`rushmem::sync_all`). Collective. A PE has one such call under way at a time, in kernels and on all
    /// its streams together. The host's [`sync_all`](World::sync_all) is another matter and does not meet it.
    ///
    /// # Errors
    /// The death of a PE and `RUSHMEM_WAIT_TIMEOUT` make the stream's work fail.
    pub fn sync_all_on(&self, stream: &Stream<'_>) -> Result<()> {
        let raw = stream.of(self)?;
        // SAFETY: a live handle and a stream of its world.
        self.check(unsafe { (self.runtime().sync_all_on_stream)(self.as_raw(), raw) })
    }

    /// [`quiet_on`](World::quiet_on), then [`sync_all_on`](World::sync_all_on): what any PE had on its stream
    /// before, every PE sees behind it. Collective.
    pub fn barrier_all_on(&self, stream: &Stream<'_>) -> Result<()> {
        let raw = stream.of(self)?;
        // SAFETY: a live handle and a stream of its world.
        self.check(unsafe { (self.runtime().barrier_all_on_stream)(self.as_raw(), raw) })
    }
}

/// The same as methods of the stream.
impl Stream<'_> {
    /// [`World::fence_on`] this stream.
    pub fn fence(&self) -> Result<()> {
        self.world().fence_on(self)
    }

    /// [`World::quiet_on`] this stream.
    pub fn quiet(&self) -> Result<()> {
        self.world().quiet_on(self)
    }

    /// [`World::sync_all_on`] this stream. Collective.
    pub fn sync_all(&self) -> Result<()> {
        self.world().sync_all_on(self)
    }

    /// [`World::barrier_all_on`] this stream. Collective.
    pub fn barrier_all(&self) -> Result<()> {
        self.world().barrier_all_on(self)
    }
}
