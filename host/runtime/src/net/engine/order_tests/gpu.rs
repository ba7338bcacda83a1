//! A GPU of which the test chooses the next step: the next copy or store into its memory, the next copy out
//! of it, the next update. Until its step a copy has read nothing and written nothing.
//!
//! Its memory is at addresses that nobody can touch ([`Arena`]): an engine that takes it for the host's ends
//! the test by a signal.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::error::Result;
use crate::net::gpu::chunks::{Chunk, Chunks, Course, LARGE, LARGE_CHUNKS, SMALL, SMALL_CHUNKS};
use crate::net::gpu::mailbox::AtomicRequest;
use crate::net::gpu::mover::Mover;
use crate::net::gpu::staging::Ticket;
use crate::net::memory::span::Span;
use crate::net::transport::stand_in::Device;
use crate::testing::atomics::updated;

/// Which of a GPU's three queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Track {
    Into,
    OutOf,
    Updates,
}

/// A copy or store that has been started.
#[derive(Debug)]
enum Work {
    Copy { span: Span, offset: usize, chunk: usize, len: usize },
    Store { at: usize, bits: u64, bytes: usize },
}

/// What mover and test share.
#[derive(Debug)]
pub(super) struct Gpu {
    memory: Device,
    into: VecDeque<Work>,
    out_of: VecDeque<Work>,
    /// Work that has been started, and that has ended.
    started: [u64; 2],
    ended: [u64; 2],
    posts: VecDeque<AtomicRequest>,
    posted: u64,
    /// The GPU knows of so many.
    rung: u64,
    updated: u64,
    /// Old words, for `completed`.
    results: VecDeque<u64>,
    told: u64,
}

impl Gpu {
    pub(super) fn new(memory: Device) -> Arc<Mutex<Gpu>> {
        Arc::new(Mutex::new(Gpu {
            memory,
            into: VecDeque::new(),
            out_of: VecDeque::new(),
            started: [0; 2],
            ended: [0; 2],
            posts: VecDeque::new(),
            posted: 0,
            rung: 0,
            updated: 0,
            results: VecDeque::new(),
            told: 0,
        }))
    }

    /// What may happen next.
    pub(super) fn steps(&self) -> impl Iterator<Item = Track> {
        let may = [!self.into.is_empty(), !self.out_of.is_empty(), self.updated < self.rung];
        [Track::Into, Track::OutOf, Track::Updates]
            .into_iter()
            .zip(may)
            .filter_map(|(t, may)| may.then_some(t))
    }

    pub(super) fn take(&mut self, track: Track) {
        match track {
            Track::Updates => {
                let AtomicRequest { op, bytes, at, value, compare, .. } =
                    self.posts.pop_front().expect("there is one");
                let mut old = [0; 8];
                self.copy(self.memory.contents_of(at), old.as_mut_ptr() as usize, bytes);
                let old = u64::from_le_bytes(old);
                let new = updated(op, bytes, old, value, compare).to_le_bytes();
                self.copy(new.as_ptr() as usize, self.memory.contents_of(at), bytes);
                self.updated += 1;
                self.results.push_back(old);
            }
            Track::Into | Track::OutOf => {
                let into = track == Track::Into;
                let queue = if into { &mut self.into } else { &mut self.out_of };
                let work = queue.pop_front().expect("there is one");
                self.ended[usize::from(into)] += 1;
                self.carry_out(&work, into);
            }
        }
    }

    fn carry_out(&self, work: &Work, into: bool) {
        match *work {
            Work::Store { at, bits, bytes } => {
                self.copy(bits.to_le_bytes().as_ptr() as usize, self.memory.contents_of(at), bytes);
            }
            Work::Copy { span, offset, chunk, len } => {
                for piece in span.pieces(offset, len) {
                    for i in 0..piece.count {
                        let there = self.memory.contents_of(piece.memory.at + i * piece.memory.stride);
                        let packed = chunk + piece.packed + i * piece.elem;
                        let (from, to) = if into { (packed, there) } else { (there, packed) };
                        self.copy(from, to, piece.elem);
                    }
                }
            }
        }
    }

    fn copy(&self, from: usize, to: usize, bytes: usize) {
        // SAFETY: memory of the test's, or of chunks, that lives as long as the run.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) };
    }

    fn start(&mut self, work: Work, into: bool) -> Ticket {
        if into { &mut self.into } else { &mut self.out_of }.push_back(work);
        let started = &mut self.started[usize::from(into)];
        *started += 1;
        Ticket { into, number: *started }
    }
}

/// The engine's side.
pub(super) struct GpuMover {
    gpu: Arc<Mutex<Gpu>>,
    chunks: Chunks,
    /// Chunks that are kept from the engine.
    _taken: Vec<Chunk>,
}

impl GpuMover {
    /// With chunks in `memory`, [`GpuMover::CHUNKS`] bytes. Where they are `scarce`, what leaves has one of
    /// each kind.
    pub(super) fn new(gpu: &Arc<Mutex<Gpu>>, memory: usize, scarce: bool) -> GpuMover {
        let mut next = memory;
        let chunks = Chunks::new(|bytes| {
            next += bytes;
            Ok((next - bytes, next - bytes))
        });
        let mut chunks = chunks.expect("no error above");
        let mut taken: Vec<Chunk> = Vec::new();
        if scarce {
            taken.extend(std::iter::from_fn(|| chunks.take(1, Course::Leaving)));
            for bytes in [SMALL, LARGE] {
                let one = taken.iter().position(|chunk| chunk.bytes() == bytes).expect("there are some");
                chunks.give_back(taken.swap_remove(one));
            }
        }
        GpuMover { gpu: Arc::clone(gpu), chunks, _taken: taken }
    }

    /// Bytes of all chunks.
    pub(super) const CHUNKS: usize = SMALL * SMALL_CHUNKS + LARGE * LARGE_CHUNKS;

    fn gpu(&self) -> MutexGuard<'_, Gpu> {
        self.gpu.lock().expect("no test goes on after a panic")
    }
}

impl Mover for GpuMover {
    fn on_gpu(&self, at: usize) -> Result<bool> {
        Ok(self.gpu().memory.has(at))
    }

    fn try_chunk(&mut self, bytes: usize, course: Course) -> Option<Chunk> {
        self.chunks.take(bytes, course)
    }

    fn give_back(&mut self, chunk: Chunk) {
        self.chunks.give_back(chunk);
    }

    unsafe fn copy_in(&mut self, dst: &Span, offset: usize, chunk: &Chunk, len: usize) -> Result<Ticket> {
        let work = Work::Copy { span: *dst, offset, chunk: chunk.as_ptr() as usize, len };
        Ok(self.gpu().start(work, true))
    }

    unsafe fn copy_out(&mut self, chunk: &Chunk, src: &Span, offset: usize, len: usize) -> Result<Ticket> {
        let work = Work::Copy { span: *src, offset, chunk: chunk.as_ptr() as usize, len };
        Ok(self.gpu().start(work, false))
    }

    unsafe fn store(&mut self, at: usize, bits: u64, bytes: usize) -> Result<Option<Ticket>> {
        Ok(Some(self.gpu().start(Work::Store { at, bits, bytes }, true)))
    }

    fn done(&mut self, ticket: Ticket) -> Result<bool> {
        Ok(self.gpu().ended[usize::from(ticket.into)] >= ticket.number)
    }

    unsafe fn post(&mut self, request: &AtomicRequest) -> u64 {
        let mut gpu = self.gpu();
        gpu.posts.push_back(*request);
        gpu.posted += 1;
        gpu.posted - 1
    }

    fn ring(&mut self) -> Result<()> {
        let mut gpu = self.gpu();
        gpu.rung = gpu.posted;
        Ok(())
    }

    fn completed(&mut self, each: &mut dyn FnMut(u64, u64)) -> Result<()> {
        loop {
            let mut gpu = self.gpu();
            let Some(old) = gpu.results.pop_front() else { return Ok(()) };
            gpu.told += 1;
            let number = gpu.told - 1;
            drop(gpu);
            each(number, old);
        }
    }

    fn subject(&self) -> String {
        "the model's GPU".into()
    }
}

/// Memory of both engines of a run: once, at addresses that stay, because runs are compared by what engines
/// say of themselves. Twice as many addresses as bytes: the second half stands for the first where that is a
/// GPU's, and nobody can touch it.
pub(super) struct Arena {
    base: usize,
    bytes: usize,
}

impl Arena {
    pub(super) fn new(bytes: usize) -> Arena {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh mapping, of which half becomes memory.
        let base = unsafe {
            let base = libc::mmap(std::ptr::null_mut(), 2 * bytes, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(base, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(base, bytes, libc::PROT_READ | libc::PROT_WRITE), 0);
            base as usize
        };
        Arena { base, bytes }
    }

    /// Where the memory begins.
    pub(super) fn base(&self) -> usize {
        self.base
    }

    /// The second half.
    pub(super) fn device(&self) -> Device {
        Device { at: self.base + self.bytes, bytes: self.bytes, contents: self.base }
    }

    /// Zeros again.
    pub(super) fn clear(&self) {
        // SAFETY: the arena's own, anonymous memory, of which nothing is borrowed between two runs.
        let code = unsafe { libc::madvise(self.base as *mut _, self.bytes, libc::MADV_DONTNEED) };
        assert_eq!(code, 0);
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping made above.
        unsafe { libc::munmap(self.base as *mut _, 2 * self.bytes) };
    }
}
