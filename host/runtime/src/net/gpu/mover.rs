//! What the queues have this PE's GPU do for far PEs: data goes through chunks into its memory and out of it,
//! words are stored behind that data, and a thread of the GPU updates words. None of it waits.
//!
//! [`CudaMover`] is the GPU's. The model of the order (`engine/order_tests`) has one of its own, so that it
//! chooses when each step of a GPU happens.

use std::sync::Arc;

use super::chunks::{Chunk, Course};
use super::mailbox::{AtomicRequest, Mailbox};
use super::staging::{Staging, Ticket};
use crate::error::Result;
use crate::gpu::pointer::MemoryType;
use crate::gpu::Cuda;
use crate::kernel::service::Service;
use crate::net::memory::span::Span;

/// One PE's GPU, as the queues use it. What goes into the GPU, copies and stores, is done in the order in
/// which it was started; so is what comes out of it. Updates keep the order of their posts. The three have no
/// order among each other.
pub(crate) trait Mover: Send {
    /// Whether the host cannot touch `at`.
    fn on_gpu(&self, at: usize) -> Result<bool>;

    /// A chunk for (the next part of) a transfer of `bytes`; `None`: ask again.
    fn try_chunk(&mut self, bytes: usize, course: Course) -> Option<Chunk>;

    /// Takes a chunk back, which no copy and no network transfer uses any more.
    fn give_back(&mut self, chunk: Chunk);

    /// Starts a copy of the first `len` bytes of `chunk` to `dst`, there from byte `offset` on.
    ///
    /// # Safety
    /// As for [`Staging::copy_in`].
    unsafe fn copy_in(&mut self, dst: &Span, offset: usize, chunk: &Chunk, len: usize) -> Result<Ticket>;

    /// Starts a copy of `len` bytes of `src`, from byte `offset` on, to the front of `chunk`.
    ///
    /// # Safety
    /// As for [`Staging::copy_out`].
    unsafe fn copy_out(&mut self, chunk: &Chunk, src: &Span, offset: usize, len: usize) -> Result<Ticket>;

    /// Starts the store of the low `bytes` of `bits`; `None`: ask again.
    ///
    /// # Safety
    /// As for [`Staging::store`].
    unsafe fn store(&mut self, at: usize, bits: u64, bytes: usize) -> Result<Option<Ticket>>;

    /// Whether a copy or store is done.
    fn done(&mut self, ticket: Ticket) -> Result<bool>;

    /// Takes an update and gives its number; the GPU knows of it after [`Mover::ring`].
    ///
    /// # Safety
    /// As for [`Mailbox::post`].
    unsafe fn post(&mut self, request: &AtomicRequest) -> u64;

    /// Lets the GPU know of what has been posted.
    fn ring(&mut self) -> Result<()>;

    /// Hands out the number and the old word of each update that has been carried out since the last call.
    fn completed(&mut self, each: &mut dyn FnMut(u64, u64)) -> Result<()>;

    /// What it moves, for texts.
    fn subject(&self) -> String;
}

/// A GPU of CUDA's: copy engines move bulk through [`Staging`], and threads of the GPU find updates in the
/// [`Mailbox`].
pub(crate) struct CudaMover {
    cuda: Arc<Cuda>,
    staging: Staging,
    mailbox: Mailbox,
    service: Arc<Service>,
}

impl CudaMover {
    /// For the PE whose GPU is `cuda`; `service` knows the GPU's device state, which names `mailbox`.
    pub(crate) fn new(cuda: &Arc<Cuda>, mailbox: Mailbox, service: Arc<Service>) -> Result<CudaMover> {
        Ok(CudaMover { cuda: Arc::clone(cuda), staging: Staging::new(cuda)?, mailbox, service })
    }
}

impl Mover for CudaMover {
    fn on_gpu(&self, at: usize) -> Result<bool> {
        Ok(matches!(self.cuda.place_of(at)?, Some(MemoryType::Gpu(_) | MemoryType::Managed)))
    }

    fn try_chunk(&mut self, bytes: usize, course: Course) -> Option<Chunk> {
        self.staging.try_chunk(bytes, course)
    }

    fn give_back(&mut self, chunk: Chunk) {
        self.staging.give_back(chunk);
    }

    unsafe fn copy_in(&mut self, dst: &Span, offset: usize, chunk: &Chunk, len: usize) -> Result<Ticket> {
        // SAFETY: the caller keeps `dst` alive until the ticket is done, as the trait asks.
        unsafe { self.staging.copy_in(dst, offset, chunk, len) }
    }

    unsafe fn copy_out(&mut self, chunk: &Chunk, src: &Span, offset: usize, len: usize) -> Result<Ticket> {
        // SAFETY: the caller keeps `src` alive until the ticket is done, as the trait asks.
        unsafe { self.staging.copy_out(chunk, src, offset, len) }
    }

    unsafe fn store(&mut self, at: usize, bits: u64, bytes: usize) -> Result<Option<Ticket>> {
        // SAFETY: the caller says that `at` is such a word, as the trait asks.
        unsafe { self.staging.store(at, bits, bytes) }
    }

    fn done(&mut self, ticket: Ticket) -> Result<bool> {
        self.staging.done(ticket)
    }

    unsafe fn post(&mut self, request: &AtomicRequest) -> u64 {
        // SAFETY: the caller says that the request's word is aligned memory of this GPU, as the trait asks.
        unsafe { self.mailbox.post(request) }
    }

    fn ring(&mut self) -> Result<()> {
        self.mailbox.ring(&self.service)
    }

    fn completed(&mut self, each: &mut dyn FnMut(u64, u64)) -> Result<()> {
        self.mailbox.completed(&self.service, each)
    }

    fn subject(&self) -> String {
        self.staging.subject()
    }
}
