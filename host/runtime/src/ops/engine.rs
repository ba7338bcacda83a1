//! What carries out the host's operations on GPU memory: one stream of high priority, on which copy engines move bulk, the
//! GPU's front end writes single words, and small service kernels do what needs a processor.
//!
//! The stream keeps everything in order, so a fence has nothing to do and quiet is its end. Copies and words need no SM
//! and so reach a GPU that is full of waiting kernels; an atomic update does need one, and a host call that waits for it
//! says so when it lasts. A word that is put, a signal that is set and an atomic that fetches nothing are not waited for.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Result;
use crate::gpu::copy::Strided as Rows;
use crate::gpu::memop::MemOp;
use crate::gpu::pinned::PinnedBox;
use crate::gpu::stream::{Priority, Stream};
use crate::gpu::Cuda;
use crate::health::Health;
use crate::kernel::service::{Service, Task};
use crate::ops::on_stream::pageable::Pageable;

/// The executor of one PE.
pub(crate) struct Engine {
    cuda: Arc<Cuda>,
    health: Arc<Health>,
    stream: Stream,
    service: Arc<Service>,
    pageable: Pageable,
    /// Pinned buffers that nobody uses at the moment.
    spare: Mutex<Vec<PinnedBox<[u64]>>>,
}

impl Engine {
    /// For the PE whose GPU is `cuda`; `service` knows the PE's state.
    pub(crate) fn new(cuda: &Arc<Cuda>, health: &Arc<Health>, service: Arc<Service>) -> Result<Engine> {
        Ok(Engine {
            cuda: Arc::clone(cuda),
            health: Arc::clone(health),
            stream: Stream::new(cuda, Priority::High)?,
            service,
            pageable: Pageable::new(cuda, health),
            spare: Mutex::default(),
        })
    }

    /// The service kernels.
    pub(crate) fn service(&self) -> &Arc<Service> {
        &self.service
    }

    /// What copies between streams and pageable memory.
    pub(crate) fn pageable(&self) -> &Pageable {
        &self.pageable
    }

    /// Waits until everything so far is done.
    pub(crate) fn quiet(&self) -> Result<()> {
        let report = || {
            "for its own operations on GPU memory to complete (does an atomic wait for a free SM?)".to_owned()
        };
        self.stream.synchronize(&self.health, None, &report).map_err(|e| self.explain(e))
    }

    /// A lost context says nothing by itself: the job's own reason comes first.
    fn explain(&self, e: crate::error::Error) -> crate::error::Error {
        match self.health.check() {
            Ok(()) => e.context(format_args!("{}: {}", self.health.who(), self.cuda)),
            Err(why) => why,
        }
    }

    /// Starts a copy.
    ///
    /// # Safety
    /// Both sides are valid for `bytes` until the copy is done; they do not overlap.
    pub(crate) unsafe fn start_copy(&self, dst: usize, src: usize, bytes: usize) -> Result<()> {
        // SAFETY: passed on.
        unsafe { self.stream.copy(dst, src, bytes) }.map_err(|e| self.explain(e))
    }

    /// Copies, and returns when it is done.
    ///
    /// # Safety
    /// Both sides are valid for `bytes`; they do not overlap.
    pub(crate) unsafe fn copy(&self, dst: usize, src: usize, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: passed on; waited for.
        unsafe { self.start_copy(dst, src, bytes) }?;
        self.quiet()
    }

    /// Copies `n` elements of `elem` bytes at distances in bytes, and returns when it is done.
    ///
    /// # Safety
    /// Every element of both sides is valid; no two overlap.
    pub(crate) unsafe fn copy_strided(
        &self,
        (dst, dst_stride): (usize, usize),
        (src, src_stride): (usize, usize),
        elem: usize,
        n: usize,
    ) -> Result<()> {
        let (dst, src) = (Rows { at: dst, stride: dst_stride }, Rows { at: src, stride: src_stride });
        // SAFETY: passed on; waited for.
        unsafe { self.stream.copy_strided(dst, src, elem, n) }.map_err(|e| self.explain(e))?;
        self.quiet()
    }

    /// Writes the low `bytes` (1, 2, 4 or 8) of `bits` in one piece where `at` is aligned; not waited for.
    ///
    /// # Safety
    /// `at` is valid GPU memory for the word.
    pub(crate) unsafe fn store(&self, at: usize, bits: u64, bytes: usize) -> Result<()> {
        let Some(op) = MemOp::store(at, bits, bytes) else {
            let local = bits.to_le_bytes();
            // SAFETY: passed on. The word is read before the call returns or, at the latest, before quiet does.
            return unsafe { self.copy(at, local.as_ptr() as usize, bytes) };
        };
        // SAFETY: passed on.
        unsafe { self.stream.words(&[op]) }.map_err(|e| self.explain(e))
    }

    /// Reads `bytes` (1, 2, 4 or 8) at `at`, zero-extended.
    ///
    /// # Safety
    /// `at` is valid GPU memory for the word.
    pub(crate) unsafe fn load(&self, at: usize, bytes: usize) -> Result<u64> {
        let words = self.scratch(1)?;
        words.set(0);
        // SAFETY: passed on, and the scratch holds a word.
        unsafe { self.copy(words.address(), at, bytes) }?;
        Ok(words.get())
    }

    /// Carries out atomic operation `op` (`RUSHMEM_ATOMIC_*`) on the 4- or 8-byte word at `at`. Where it `fetches` it is
    /// waited for, and the old value comes back.
    ///
    /// # Safety
    /// `at` is valid GPU memory for the word, and aligned.
    pub(crate) unsafe fn atomic(
        &self,
        op: i32,
        bytes: usize,
        at: usize,
        value: u64,
        compare: u64,
        fetches: bool,
    ) -> Result<u64> {
        let words = if fetches { Some(self.scratch(1)?) } else { None };
        let result = words.as_ref().map_or(0, Scratch::address);
        let task = Task::Atomic { op, bytes, at, value, compare, result };
        // SAFETY: passed on; the scratch lives until the kernel is done.
        unsafe { self.service.start(&task, &self.stream) }.map_err(|e| self.explain(e))?;
        let Some(words) = words else { return Ok(0) };
        if let Err(e) = self.quiet() {
            // The kernel may yet write to it.
            std::mem::forget(words);
            return Err(e);
        }
        Ok(words.get())
    }

    /// Sets or adds to the signal word at `at`, after everything before it; not waited for.
    ///
    /// # Safety
    /// `at` is valid GPU memory for the word, and aligned.
    pub(crate) unsafe fn signal(&self, at: usize, value: u64, add: bool) -> Result<()> {
        // SAFETY: passed on.
        unsafe { signal_on(&self.service, &self.stream, at, value, add) }.map_err(|e| self.explain(e))
    }

    /// A copy in host memory of `bytes` at `from`, to be refreshed.
    pub(crate) fn snapshot(&self, from: usize, bytes: usize) -> Result<Snapshot<'_>> {
        Ok(Snapshot { words: self.scratch(bytes.div_ceil(8))?, from, bytes })
    }

    /// `len` or more words of pinned memory.
    fn scratch(&self, len: usize) -> Result<Scratch<'_>> {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let fitting = spare.iter().position(|buffer| buffer.len() >= len);
        let buffer = fitting.map(|i| spare.swap_remove(i));
        drop(spare);
        let buffer = match buffer {
            Some(buffer) => buffer,
            None => PinnedBox::filled(&self.cuda, len.max(64).next_power_of_two(), 0)?,
        };
        Ok(Scratch { engine: self, buffer: Some(buffer) })
    }
}

/// Puts a signal's update on a stream, after everything before it.
///
/// # Safety
/// `at` is valid GPU memory for the word, and aligned, until it is done.
pub(crate) unsafe fn signal_on(
    service: &Service,
    stream: &Stream,
    at: usize,
    value: u64,
    add: bool,
) -> Result<()> {
    if add {
        // SAFETY: passed on.
        unsafe { service.start(&Task::Signal { at, value, add }, stream) }
    } else {
        // The front end fences the whole system before it writes, and needs no SM.
        // SAFETY: passed on.
        unsafe { stream.words(&[MemOp::Write64 { at, value }]) }
    }
}

/// A pinned buffer, given back when it goes.
struct Scratch<'a> {
    engine: &'a Engine,
    buffer: Option<PinnedBox<[u64]>>,
}

impl Scratch<'_> {
    fn buffer(&self) -> &PinnedBox<[u64]> {
        self.buffer.as_ref().expect("it is taken out by drop alone")
    }

    fn address(&self) -> usize {
        self.buffer().as_ptr().cast::<c_void>() as usize
    }

    fn get(&self) -> u64 {
        // SAFETY: the first word of the buffer; copies into it have been waited for.
        unsafe { self.buffer().as_ptr().cast::<u64>().read_volatile() }
    }

    fn set(&self, value: u64) {
        // SAFETY: as in `get`.
        unsafe { self.buffer().as_ptr().cast::<u64>().write_volatile(value) };
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.engine.spare.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
        }
    }
}

/// Words of GPU memory as they were at the last look.
pub(crate) struct Snapshot<'a> {
    words: Scratch<'a>,
    from: usize,
    bytes: usize,
}

impl Snapshot<'_> {
    /// Where the host finds them.
    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.words.buffer().as_ptr().cast()
    }

    /// Looks again.
    pub(crate) fn refresh(&self) -> Result<()> {
        // SAFETY: live symmetric memory, as whoever made the snapshot has checked; the buffer is as long.
        unsafe { self.words.engine.copy(self.words.address(), self.from, self.bytes) }
    }
}
