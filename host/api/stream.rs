//! Streams: queues of work on this PE's device, and handles that tell when work on them has ended.
//!
//! What is on one stream happens in order; different streams run beside one another. On a GPU a stream is
//! CUDA's, and any of the caller's own can be used; on the CPU it is a queue with a thread.
//!
//! Operations in a stream's turn are methods of [`Stream`], and of symmetric memory, where they end in `_on`;
//! they stand beside their namesakes. They return at once; arguments are checked when the call is made, and
//! an error means that nothing was put on the stream. [`Stream::synchronize`] or an [`Event`] reports what
//! goes wrong later. A transfer between symmetric memory on both sides is safe: that memory lives as long as
//! the world, which waits for its streams. Private memory must outlive the transfer, which the borrow checker
//! cannot see: those forms are `unsafe`.
//!
//! On a GPU all of them can be captured into a CUDA graph. Addresses are recorded then, and what is at them
//! is read each time the graph is launched; there CUDA's own rules for copies of pageable host memory (an
//! ordinary slice) hold. Outside of graphs such copies go through pinned buffers of ours, and no call waits
//! for its stream. A copy that a program then makes by CUDA itself, from pageable memory that a get on the
//! stream fills, may read that memory at once: synchronise the stream first.

use std::ffi::c_void;
use std::fmt;

use rushmem_abi::c::rushmem_event_t;

use crate::{Error, ErrorCode, Result, World};

impl World {
    /// The stream on which kernels run that are given none.
    pub fn default_stream(&self) -> Stream<'_> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: a live handle and a place for the answer. Null, which stays where it fails, means the same
        // stream.
        unsafe { (self.runtime().stream_default)(self.as_raw(), &mut raw) };
        Stream { world: self, raw }
    }

    /// A new stream, which lives until [`Stream::destroy`] or the end of the world. On a GPU it does not wait
    /// for CUDA's legacy default stream.
    ///
    /// GPU streams share a few hardware queues (`CUDA_DEVICE_MAX_CONNECTIONS`): with more streams than those,
    /// one that waits may hold up another.
    pub fn stream(&self) -> Result<Stream<'_>> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: a live handle and a place for the answer.
        self.check(unsafe { (self.runtime().stream_create)(self.as_raw(), &mut raw) })?;
        Ok(Stream { world: self, raw })
    }

    /// A stream of the world's pool, the next one with each call: for transfers that a thread of the CPU
    /// drives. The pool has `RUSHMEM_STREAMS` streams (4), made when they are first given out.
    ///
    /// ```no_run
    /// # fn main() -> rushmem::Result<()> {
    /// let world = rushmem::World::init()?;
    /// let (inbox, outbox) = (world.alloc::<f32>(1 << 20)?, world.alloc::<f32>(1 << 20)?);
    /// let transfers = world.pool_stream()?;
    /// transfers.put(&inbox, &outbox, world.right())?;
    /// let done = transfers.record()?;
    /// while !done.is_done()? {
    ///     // something else
    /// }
    /// done.wait()?;
    /// # world.finalize() }
    /// ```
    pub fn pool_stream(&self) -> Result<Stream<'_>> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: a live handle and a place for the answer.
        self.check(unsafe { (self.runtime().stream_pool)(self.as_raw(), &mut raw) })?;
        Ok(Stream { world: self, raw })
    }

    /// A stream of the caller's own: on a GPU a `cudaStream_t` or `CUstream` (null is the world's default
    /// stream, not CUDA's); on the CPU one whose [`as_raw`](Stream::as_raw) this is.
    ///
    /// # Safety
    /// It is a stream of the primary context of this PE's GPU and outlives the value; what rushmem puts on it
    /// has ended before the world does, which waits for its own streams only.
    pub unsafe fn stream_from_raw(&self, raw: *mut c_void) -> Stream<'_> {
        Stream { world: self, raw }
    }
}

/// A queue of work on this PE's device. Operations on it are methods, as in `stream.put(&dst, &src, pe)`;
/// kernels are launched on one by [`Kernel::launch_on`](crate::Kernel::launch_on). A world that ends waits
/// for what is on its streams.
pub struct Stream<'w> {
    world: &'w World,
    raw: *mut c_void,
}

// SAFETY: the C ABI takes a stream from any thread, and so does CUDA.
unsafe impl Send for Stream<'_> {}
// SAFETY: the C ABI takes a stream from several threads at once, and so does CUDA.
unsafe impl Sync for Stream<'_> {}

impl<'w> Stream<'w> {
    /// Waits for all its work.
    ///
    /// # Errors
    /// The first failure since the last call: a PE died while a kernel or an operation waited for it
    /// ([`PeerDead`](ErrorCode::PeerDead)), a time limit passed, a kernel trapped. What is behind a failure
    /// does not run.
    pub fn synchronize(&self) -> Result<()> {
        let world = self.world;
        // SAFETY: a live handle, and a stream that lives: the value's maker promised that.
        world.check(unsafe { (world.runtime().stream_synchronize)(world.as_raw(), self.raw) })
    }

    /// A handle that tells when all that the stream has been given so far has ended.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorCode::Unsupported) while the stream is being captured into a graph.
    pub fn record(&self) -> Result<Event<'w>> {
        let (world, mut raw) = (self.world, std::ptr::null_mut());
        // SAFETY: a live handle, a stream that lives, and a place for the answer.
        world.check(unsafe { (world.runtime().event_record)(world.as_raw(), self.raw, &mut raw) })?;
        Ok(Event { world, raw })
    }

    /// Ends a stream that [`World::stream`] made, at once: what is on it still runs to its end.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorCode::InvalidArgument) for the default stream and those of the pool,
    /// [`BadHandle`](ErrorCode::BadHandle) for a caller's own.
    pub fn destroy(self) -> Result<()> {
        let world = self.world;
        // SAFETY: a live handle; the runtime knows its own streams, and `self` is consumed.
        world.check(unsafe { (world.runtime().stream_destroy)(world.as_raw(), self.raw) })
    }

    /// What the C ABI calls it; on a GPU the `CUstream`, for other libraries.
    pub fn as_raw(&self) -> *mut c_void {
        self.raw
    }

    /// The world that it belongs to.
    pub fn world(&self) -> &'w World {
        self.world
    }

    /// The raw stream, for an operation of `world`.
    pub(crate) fn of(&self, world: &World) -> Result<*mut c_void> {
        if std::ptr::eq(self.world, world) {
            return Ok(self.raw);
        }
        Err(Error::new(
            ErrorCode::InvalidArgument,
            "the stream belongs to another world than the memory or kernel",
        ))
    }
}

impl fmt::Debug for Stream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:p} of {})", self.raw, self.world.my_pe())
    }
}

/// A point in a stream's work, made by [`Stream::record`]. Dropping it waits for nothing.
pub struct Event<'w> {
    world: &'w World,
    raw: *mut rushmem_event_t,
}

// SAFETY: the C ABI takes an event from any thread.
unsafe impl Send for Event<'_> {}
// SAFETY: the C ABI takes an event from several threads at once.
unsafe impl Sync for Event<'_> {}

impl Event<'_> {
    /// Whether the work has ended. Errors as for [`wait`](Event::wait).
    pub fn is_done(&self) -> Result<bool> {
        let mut done = 0;
        // SAFETY: an event that was not freed, and a place for the answer.
        self.world.check(unsafe { (self.world.runtime().event_test)(self.raw, &mut done) })?;
        Ok(done != 0)
    }

    /// Waits until the work has ended.
    ///
    /// # Errors
    /// A failure of the work, as [`Stream::synchronize`] tells it; it stays for that one to tell too.
    pub fn wait(self) -> Result<()> {
        // SAFETY: an event that was not freed.
        self.world.check(unsafe { (self.world.runtime().event_wait)(self.raw) })
    }
}

impl Drop for Event<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `Stream::record`, and freed once. It only fails for a world that is broken in
        // itself.
        let _ = unsafe { (self.world.runtime().event_free)(self.raw) };
    }
}

impl fmt::Debug for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({:p} of {})", self.raw, self.world.my_pe())
    }
}
