//! The GPU's engine, which carries out the host's operations on GPU memory: one stream of high priority, on
//! which copy engines move bulk, the GPU's front end writes single words, and small service kernels do what
//! needs a processor.
//!
//! The stream keeps everything in order, so a fence has nothing to do and quiet is its end. Copies and words
//! need no SM and so reach a GPU that is full of waiting kernels; an atomic update does need one, and a host
//! call that waits for it says so when it lasts. A word that is put, a signal that is set and an atomic that
//! fetches nothing are not waited for.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use super::stream::pageable::{Direction, Pageable, PageableCopy};
use super::{Executor, Form};
use crate::error::Result;
use crate::gpu::copy::Strided as Rows;
use crate::gpu::memop::MemOp;
use crate::gpu::pinned::PinnedBox;
use crate::gpu::stream::{Priority, Stream};
use crate::gpu::Cuda;
use crate::health::Health;
use crate::kernel::service::Service;
use crate::op::atomic::AtomicWord;
use crate::op::movement::Movement;
use crate::op::rma::Contiguous;
use crate::op::signal::SignalOp;
use crate::op::strided::{Elements, Strides};
use crate::op::Op;
use crate::word::Update;

/// The executor of one PE.
pub(crate) struct GpuEngine {
    cuda: Arc<Cuda>,
    health: Arc<Health>,
    stream: Stream,
    service: Arc<Service>,
    pageable: Pageable,
    /// Pinned buffers that nobody uses at the moment.
    spare: Mutex<Vec<PinnedBox<[u64]>>>,
}

impl GpuEngine {
    /// For the PE whose GPU is `cuda`; `service` knows the PE's state.
    pub(crate) fn new(cuda: &Arc<Cuda>, health: &Arc<Health>, service: Arc<Service>) -> Result<GpuEngine> {
        Ok(GpuEngine {
            cuda: Arc::clone(cuda),
            health: Arc::clone(health),
            stream: Stream::new(cuda, Priority::High)?,
            service,
            pageable: Pageable::new(cuda, health)?,
            spare: Mutex::default(),
        })
    }

    /// The service kernels.
    pub(crate) fn service(&self) -> &Arc<Service> {
        &self.service
    }

    /// Its stream.
    #[cfg(test)]
    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
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

    /// Copies, and returns when it is done.
    ///
    /// # Safety
    /// Both sides are valid for `bytes`, and not pageable memory; they do not overlap.
    unsafe fn copy(&self, dst: usize, src: usize, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the caller vouches for both sides; the copy is waited for.
        unsafe { self.stream.copy(dst, src, bytes) }.map_err(|e| self.explain(e))?;
        self.quiet()
    }

    /// Whether CUDA knows what is at `at`, so that it may be memory that the host cannot touch.
    pub(crate) fn knows(&self, at: usize) -> Result<bool> {
        Ok(self.cuda.place_of(at)?.is_some())
    }

    /// Copies between any memory of this PE's, and returns when it is done.
    ///
    /// # Safety
    /// Both sides are valid for `bytes`; they do not overlap.
    pub(crate) unsafe fn copy_own(&self, dst: usize, src: usize, bytes: usize) -> Result<()> {
        let (direction, gpu, host) = if self.knows(dst)? {
            (Direction::IntoGpu, dst, src)
        } else if self.knows(src)? {
            (Direction::OutOfGpu, src, dst)
        } else {
            // SAFETY: the caller vouches for both sides, which are ordinary memory.
            unsafe { crate::word::copy(dst as *mut u8, src as *const u8, bytes) };
            return Ok(());
        };
        let whole = |at| Rows { at, stride: bytes };
        let copy = PageableCopy { direction, gpu: whole(gpu), host: whole(host), size: bytes, count: 1 };
        // SAFETY: the caller vouches for both sides; the copy is waited for.
        unsafe { self.start_transfer(&copy) }.map_err(|e| self.explain(e))?;
        self.quiet()
    }

    /// Puts a copy between symmetric memory and the caller's on the stream. Pageable memory of the caller's
    /// is read or written before this returns.
    ///
    /// # Safety
    /// Every element of both sides is valid until the copy is done; no two overlap.
    unsafe fn start_transfer(&self, copy: &PageableCopy) -> Result<()> {
        let PageableCopy { direction, gpu, host, size, count } = *copy;
        if self.cuda.place_of(host.at)?.is_none() {
            // SAFETY: the caller vouches for both sides.
            return unsafe { self.pageable.copy_in_call(&self.stream, copy, &|| self.quiet()) };
        }
        let (dst, src) = match direction {
            Direction::IntoGpu => (gpu, host),
            Direction::OutOfGpu => (host, gpu),
        };
        // SAFETY: the caller vouches for both sides.
        unsafe { self.stream.copy_strided(dst, src, size, count) }
    }

    /// Copies between symmetric memory and the caller's, in the given form.
    ///
    /// # Safety
    /// Both sides are valid for what moves, as long as the form says; they do not overlap.
    unsafe fn transfer(&self, direction: Direction, data: Movement, form: Form) -> Result<()> {
        // SAFETY: the caller vouches for both sides.
        unsafe {
            match data {
                Movement::Bytes(t) => self.transfer_bytes(direction, t, form),
                Movement::Elements(t) => self.transfer_elements(direction, t),
            }
        }
    }

    /// # Safety
    /// As for [`GpuEngine::transfer`].
    unsafe fn transfer_bytes(&self, direction: Direction, t: Contiguous, form: Form) -> Result<()> {
        if t.bytes == 0 {
            return Ok(());
        }
        let whole = |at| Rows { at, stride: t.bytes };
        let (gpu, host) = (whole(t.remote), whole(t.local.at));
        // SAFETY: the caller vouches for both sides.
        unsafe { self.start_transfer(&PageableCopy { direction, gpu, host, size: t.bytes, count: 1 }) }
            .map_err(|e| self.explain(e))?;
        match form {
            Form::Blocking => self.quiet(),
            Form::Nbi => Ok(()),
        }
    }

    /// Returns when it is done.
    ///
    /// # Safety
    /// Every element of both sides is valid; no two overlap.
    unsafe fn transfer_elements(&self, direction: Direction, t: Elements) -> Result<()> {
        let (gpu, host) = match direction {
            Direction::IntoGpu => rows(t.remote, t.local.at, &t.strides),
            Direction::OutOfGpu => {
                let (host, gpu) = rows(t.local.at, t.remote, &t.strides);
                (gpu, host)
            }
        };
        let (size, count) = (t.strides.elem, t.strides.n);
        // SAFETY: the caller vouches for both sides; the copy is waited for.
        unsafe { self.start_transfer(&PageableCopy { direction, gpu, host, size, count }) }
            .map_err(|e| self.explain(e))?;
        self.quiet()
    }

    /// Writes the low `bytes` (1, 2, 4 or 8) of `bits` in one piece where `at` is aligned; not waited for.
    ///
    /// # Safety
    /// `at` is valid GPU memory for the word.
    unsafe fn store(&self, at: usize, bits: u64, bytes: usize) -> Result<()> {
        let Some(op) = MemOp::store(at, bits, bytes) else {
            let words = self.scratch(1)?;
            words.set(bits.to_le());
            // SAFETY: the caller vouches for the word, and the copy of the scratch is waited for.
            return unsafe { self.copy(at, words.address(), bytes) };
        };
        // SAFETY: the caller vouches for the word.
        unsafe { self.stream.words(&[op]) }.map_err(|e| self.explain(e))
    }

    /// Reads `bytes` (1, 2, 4 or 8) at `at`, zero-extended.
    ///
    /// # Safety
    /// `at` is valid GPU memory for the word.
    pub(crate) unsafe fn load(&self, at: usize, bytes: usize) -> Result<u64> {
        let words = self.scratch(1)?;
        words.set(0);
        // SAFETY: the caller vouches for the word, and the scratch holds one.
        unsafe { self.copy(words.address(), at, bytes) }?;
        Ok(words.get())
    }

    /// Words are read and set without a kernel; everything else takes one, and is waited for where it
    /// fetches.
    ///
    /// # Safety
    /// The word is valid GPU memory, and aligned.
    unsafe fn atomic(&self, a: AtomicWord) -> Result<u64> {
        match a.op.update() {
            // SAFETY: the caller vouches for the word.
            Update::Fetch => return unsafe { self.load(a.at, a.bytes) },
            // SAFETY: the caller vouches for the word.
            Update::Set => return unsafe { self.store(a.at, a.value, a.bytes) }.map(|()| a.value),
            _ => {}
        }
        let words = if a.op.fetches() { Some(self.scratch(1)?) } else { None };
        let result = words.as_ref().map_or(0, Scratch::address);
        // SAFETY: the caller vouches for the word; the scratch lives until the kernel is done.
        unsafe { self.service.atomic(&self.stream, &a, result) }.map_err(|e| self.explain(e))?;
        let Some(words) = words else { return Ok(0) };
        if let Err(e) = self.quiet() {
            // The kernel may yet write to it.
            std::mem::forget(words);
            return Err(e);
        }
        Ok(words.get())
    }

    /// Updates the signal word at `at`, after everything before it; not waited for.
    ///
    /// # Safety
    /// `at` is valid GPU memory for the word, and aligned.
    unsafe fn signal(&self, at: usize, op: SignalOp) -> Result<()> {
        // SAFETY: the caller vouches for the word.
        unsafe { signal_on(&self.service, &self.stream, at, op) }.map_err(|e| self.explain(e))
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

impl Executor for GpuEngine {
    unsafe fn run(&self, op: Op, form: Form) -> Result<u64> {
        // SAFETY: the check vouches for the other PE's side of each operation, the caller for this one's.
        unsafe {
            match op {
                Op::Put(data) => self.transfer(Direction::IntoGpu, data, form)?,
                Op::Get(data) => self.transfer(Direction::OutOfGpu, data, form)?,
                Op::P { at, bits, bytes } => self.store(at, bits, bytes)?,
                Op::G { at, bytes } => return self.load(at, bytes),
                Op::Atomic(a) => return self.atomic(a),
                Op::Signal(s) => self.signal(s.at, s.op)?,
                // The update comes behind the copy, on the same stream.
                Op::PutSignal(data, s) => {
                    self.transfer(Direction::IntoGpu, data, form)?;
                    self.signal(s.at, s.op)?;
                }
            }
        }
        Ok(0)
    }
}

/// Both sides of a strided copy, with strides in bytes.
pub(super) fn rows(dst: usize, src: usize, strides: &Strides) -> (Rows, Rows) {
    let step = |stride: isize| strides.step(stride) as usize;
    let (to, from) = (step(strides.dst_stride), step(strides.src_stride));
    (Rows { at: dst, stride: to }, Rows { at: src, stride: from })
}

/// Puts a signal's update on a stream, after everything before it.
///
/// # Safety
/// `at` is valid GPU memory for the word, and aligned, until it is done.
pub(super) unsafe fn signal_on(service: &Service, stream: &Stream, at: usize, op: SignalOp) -> Result<()> {
    match op {
        // SAFETY: the caller vouches for the word.
        SignalOp::Add(_) => unsafe { service.signal(stream, at, op) },
        // The front end fences the whole system before it writes, and needs no SM.
        // SAFETY: the caller vouches for the word.
        SignalOp::Set(value) => unsafe { stream.words(&[MemOp::Write64 { at, value }]) },
    }
}

/// A pinned buffer, given back when it goes.
struct Scratch<'a> {
    engine: &'a GpuEngine,
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
        // SAFETY: the first word of the buffer, which nobody else uses.
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
        // SAFETY: live symmetric memory, as the snapshot's maker has checked; the buffer is as long.
        unsafe { self.words.engine.copy(self.words.address(), self.from, self.bytes) }
    }
}
