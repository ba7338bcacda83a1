//! The mailbox: atomic updates of words of this PE's GPU, asked for by far PEs and carried out by a thread of
//! that GPU, so that they are atomic with its own threads and with its NVLink peers
//! (`device/include/rushmem/abi_mailbox.h`).
//!
//! Requests lie in pinned memory. They reach the GPU in two ways. Its front end stores the number of requests
//! into the *bell*, which waiting threads poll; and a service kernel is launched, for a GPU on which no
//! thread waits. The two are on different streams, so that a kernel for which a full GPU has no room holds up
//! no bell. One such kernel at a time is enough: requests that come after it are found by the bell, or by the
//! next kernel, which is launched when this one has ended. The later of the two ways finds nothing to do.
//!
//! A GPU full of threads that spin by themselves, not in a wait of the library's, answers when one of them
//! ends.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::gpu::memop::MemOp;
use crate::gpu::pinned::PinnedBox;
use crate::gpu::plain::Plain;
use crate::gpu::stream::{Priority, Stream};
use crate::gpu::Cuda;
use crate::kernel::service::Service;
use rushmem_abi::device::{MailboxQueue as Queue, MailboxRequest, RawMailbox};

pub(crate) use rushmem_abi::device::{WordKind, RUSHMEM_MAILBOX_SLOTS as SLOTS};

/// Looks for results between two at whether the GPU is well.
const LOOKS: u32 = 1024;

/// How long the last service kernel may take to end.
const PATIENCE: Duration = Duration::from_millis(200);

/// An update of one word of this PE's GPU memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AtomicRequest {
    /// `RUSHMEM_ATOMIC_*`.
    pub(crate) op: i32,
    pub(crate) kind: WordKind,
    /// Bytes of the word.
    pub(crate) bytes: usize,
    /// Its address, as this GPU maps it; aligned.
    pub(crate) at: usize,
    /// Bit patterns.
    pub(crate) value: u64,
    pub(crate) compare: u64,
}

impl AtomicRequest {
    fn what(&self) -> u64 {
        MailboxRequest::what(self.op, self.kind, self.bytes)
    }
}

const _: () = assert!(SLOTS.is_power_of_two());

/// The host's bookkeeping of a queue. Requests are numbered from 0.
#[derive(Debug, Default)]
struct Ledger {
    /// Requests given a number; those from `written` on wait in `waiting` for a slot.
    posted: u64,
    /// Requests in the queue.
    written: u64,
    /// Requests whose result has been handed out, so that their slot is free.
    taken: u64,
    waiting: VecDeque<AtomicRequest>,
}

impl Ledger {
    fn post(&mut self, queue: &Queue, request: &AtomicRequest) -> u64 {
        self.waiting.push_back(*request);
        self.fill(queue);
        self.posted += 1;
        self.posted - 1
    }

    /// Writes what fits.
    fn fill(&mut self, queue: &Queue) {
        while self.written - self.taken < SLOTS as u64 {
            let Some(request) = self.waiting.pop_front() else { return };
            let slot = &queue.requests[self.written as usize % SLOTS];
            slot.address.store(request.at as u64, Ordering::Relaxed);
            slot.value.store(request.value, Ordering::Relaxed);
            slot.compare.store(request.compare, Ordering::Relaxed);
            slot.what.store(request.what(), Ordering::Relaxed);
            self.written += 1;
        }
    }

    /// Hands out the results that have come.
    fn take(&mut self, queue: &Queue, each: &mut dyn FnMut(u64, u64)) {
        let done = queue.done.load(Ordering::Acquire);
        while self.taken < done {
            let result = queue.results[self.taken as usize % SLOTS].load(Ordering::Relaxed);
            self.taken += 1;
            each(self.taken - 1, result);
        }
        self.fill(queue);
    }
}

/// The mailbox of one PE's GPU. Used by one thread.
pub(crate) struct Mailbox {
    cuda: Arc<Cuda>,
    ledger: Ledger,
    /// What the bell says.
    rung: u64,
    /// Up to where the last kernel looks.
    served: u64,
    /// Looks for results that found some missing.
    looks: u32,
    bell: Stream,
    server: Stream,
    // The streams' work uses these two: see `drop`.
    words: Option<Plain>,
    queue: Option<PinnedBox<Queue>>,
}

impl Mailbox {
    /// An empty mailbox for the PE whose GPU is `cuda`.
    pub(crate) fn new(cuda: &Arc<Cuda>) -> Result<Mailbox> {
        let queue = PinnedBox::new(cuda, Queue::default())?;
        let mut contents = [0; size_of::<RawMailbox>()];
        let at = std::mem::offset_of!(RawMailbox, queue);
        contents[at..at + 8].copy_from_slice(&(queue.device_address() as u64).to_le_bytes());
        Ok(Mailbox {
            cuda: Arc::clone(cuda),
            ledger: Ledger::default(),
            rung: 0,
            served: 0,
            looks: 0,
            bell: Stream::new(cuda, Priority::High)?,
            server: Stream::new(cuda, Priority::High)?,
            words: Some(Plain::holding(cuda, &contents)?),
            queue: Some(queue),
        })
    }

    /// What the device state's `mailbox` is to be. Kernels that know it must have ended when this is dropped.
    pub(crate) fn device_address(&self) -> usize {
        self.words.as_ref().map_or(0, Plain::base)
    }

    /// Takes a request and gives its number: 0, 1, … The GPU knows of it after [`Mailbox::ring`], so that one
    /// ring serves many. They are carried out in order, each after everything that the thread knew to be done
    /// when it rang.
    ///
    /// # Safety
    /// The word is aligned GPU memory that stays valid until the request is completed.
    pub(crate) unsafe fn post(&mut self, request: &AtomicRequest) -> u64 {
        let queue = self.queue.as_ref().expect("there until drop");
        self.ledger.post(queue, request)
    }

    /// Lets the GPU know of what has been posted; nothing where it knows. `service` is this PE's. Does not
    /// wait.
    pub(crate) fn ring(&mut self, service: &Service) -> Result<()> {
        let upto = self.ledger.written;
        if upto != self.rung {
            // The GPU sees what this thread wrote before it sees what this thread hands to the driver, which
            // flushes.
            std::sync::atomic::fence(Ordering::SeqCst);
            let op = MemOp::Write64 { at: self.device_address(), value: upto };
            // SAFETY: the mailbox's first word, which lives until the stream is done (`drop`).
            unsafe { self.bell.words(&[op]) }.map_err(|e| self.explain(e))?;
            self.rung = upto;
        }
        if upto != self.served && self.server.query().map_err(|e| self.explain(e))? {
            // SAFETY: the mailbox lives until the stream is done (`drop`).
            unsafe { service.mailbox(&self.server, self.device_address(), upto) }
                .map_err(|e| self.explain(e))?;
            self.served = upto;
        }
        Ok(())
    }

    /// Hands out number and result (what was in the word before, for every operation) of each request that
    /// has been carried out since the last call, in order, then rings for what found no place before. To be
    /// called often; does not wait.
    pub(crate) fn completed(&mut self, service: &Service, each: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let queue = self.queue.as_ref().expect("there until drop");
        self.ledger.take(queue, each);
        if self.in_flight() == 0 {
            return Ok(());
        }
        self.looks = self.looks.wrapping_add(1);
        if self.looks % LOOKS == 0 {
            // Nothing else would show that the context is lost.
            self.server.query().map_err(|e| self.explain(e))?;
        }
        self.ring(service)
    }

    /// Requests that have been posted and are not completed.
    pub(crate) fn in_flight(&self) -> u64 {
        self.ledger.posted - self.ledger.taken
    }

    fn explain(&self, e: Error) -> Error {
        e.context(format_args!("far PEs' updates of words of {}", self.cuda))
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        // Kernels have ended, so a service kernel that had no room has it now, and finds nothing to do. One
        // that runs all the same keeps the memory, which goes with the process; a lost context runs nothing.
        let until = Instant::now() + PATIENCE;
        let busy = |stream: &Stream| matches!(stream.query(), Ok(false));
        while busy(&self.bell) || busy(&self.server) {
            if Instant::now() > until {
                std::mem::forget(self.words.take());
                std::mem::forget(self.queue.take());
                return;
            }
            std::thread::sleep(Duration::from_micros(20));
        }
    }
}

#[cfg(test)]
#[path = "mailbox_tests.rs"]
mod tests;
