//! Bulk between the network and GPU memory, where the network cannot reach that: through chunks of pinned
//! host memory, which the copy engines fill and empty. They need no SM. There is a stream into the GPU and
//! one out of it, of high priority, so that both directions move at once; a caller that keeps a few chunks of
//! one transfer going has the engine copy the next while the network moves this one.
//!
//! Each stream keeps its order, and tickets say how far it has come: a copy is done when its ticket is. A
//! word that is stored comes after every copy into the GPU before it, for a thread that waits for the word.
//!
//! **Everything is made at the start**: events, pinned memory, streams. To make one takes the driver's lock
//! of the context, which a thread of the program may hold as long as a stream waits (a copy between that
//! stream and pageable memory); and the stream may wait for exactly what this moves (docs/gpu-findings.md).

use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::{err, Error, Result};
use crate::gpu::copy::Strided;
use crate::gpu::event::CudaEvent;
use crate::gpu::memop::MemOp;
use crate::gpu::pinned::PinnedBox;
use crate::gpu::stream::{Priority, Stream};
use crate::gpu::Cuda;
use crate::net::gpu::chunks::{Chunk, Chunks, Course, LARGE_CHUNKS, SMALL_CHUNKS};
use crate::net::memory::span::Span;

/// Words on their way that no stream operation can store, each in a place of its own.
const WORDS: usize = 256;
/// Events of a stream: the most that can be on their way.
const EVENTS: usize = 256;
/// Of these, how many are for copies alone, each of which has a chunk.
const KEPT_EVENTS: usize = SMALL_CHUNKS + LARGE_CHUNKS;
/// From how many on a store looks for those that have ended.
const LOOK_FROM: usize = 64;

/// A copy or store on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) struct Ticket {
    pub(in crate::net) into: bool,
    pub(in crate::net) number: u64,
}

/// A stream, and how far it has come. Its work is numbered from 1.
struct Track {
    stream: Stream,
    started: u64,
    ended: u64,
    marks: VecDeque<CudaEvent>,
    spare: Vec<CudaEvent>,
}

impl Track {
    fn new(cuda: &Arc<Cuda>) -> Result<Track> {
        let stream = Stream::new(cuda, Priority::High)?;
        let spare = (0..EVENTS).map(|_| CudaEvent::new(cuda, false)).collect::<Result<_>>()?;
        Ok(Track { stream, started: 0, ended: 0, marks: VecDeque::with_capacity(EVENTS), spare })
    }

    /// Whether something that has no chunk may be put on the stream now.
    fn has_room(&mut self) -> Result<bool> {
        // Nobody may ever ask for these tickets: so where they pile up, each new one looks for two that have
        // ended.
        if self.marks.len() > LOOK_FROM {
            self.has_ended(self.ended + 2)?;
        }
        Ok(self.spare.len() > KEPT_EVENTS)
    }

    /// Marks the end of what has been put on the stream since the last mark.
    fn mark(&mut self) -> Result<u64> {
        let event =
            self.spare.pop().ok_or_else(|| err!(INTERNAL, "more than {EVENTS} copies on their way"))?;
        event.record(&self.stream)?;
        self.marks.push_back(event);
        self.started += 1;
        Ok(self.started)
    }

    /// Whether work number `number` has ended. One question to the driver, or two, where it was not known.
    fn has_ended(&mut self, number: u64) -> Result<bool> {
        while self.ended < number {
            let Some(event) = self.marks.front() else { return Ok(false) };
            if !event.query()? {
                return Ok(false);
            }
            self.spare.extend(self.marks.pop_front());
            self.ended += 1;
        }
        Ok(true)
    }
}

/// The chunks and streams of one PE. Used by one thread; nothing here waits for the GPU.
pub(crate) struct Staging {
    cuda: Arc<Cuda>,
    into: Track,
    out_of: Track,
    chunks: Chunks,
    /// The memory of all chunks.
    blocks: Vec<PinnedBox<[u8]>>,
    /// For words that the front end cannot store, and by which number of the way in each place is free again.
    words: Option<PinnedBox<[u64]>>,
    busy: [u64; WORDS],
    next_word: usize,
}

impl Staging {
    /// For the PE whose GPU is `cuda`.
    pub(crate) fn new(cuda: &Arc<Cuda>) -> Result<Staging> {
        let mut blocks = Vec::new();
        let chunks = Chunks::new(|bytes| {
            let block = PinnedBox::<[u8]>::filled(cuda, bytes, 0)?;
            let at = (block.as_ptr().cast::<u8>() as usize, block.device_address());
            blocks.push(block);
            Ok(at)
        })?;
        Ok(Staging {
            cuda: Arc::clone(cuda),
            into: Track::new(cuda)?,
            out_of: Track::new(cuda)?,
            chunks,
            blocks,
            words: Some(PinnedBox::filled(cuda, WORDS, 0)?),
            busy: [0; WORDS],
            next_word: 0,
        })
    }

    /// A chunk for (the next part of) a transfer of `bytes`; `None` while all that it may have are in use: go
    /// on with what has them, and ask again.
    pub(crate) fn try_chunk(&mut self, bytes: usize, course: Course) -> Option<Chunk> {
        self.chunks.take(bytes, course)
    }

    /// Takes a chunk back, which no copy and no network transfer uses any more.
    pub(crate) fn give_back(&mut self, chunk: Chunk) {
        self.chunks.give_back(chunk);
    }

    /// Starts the copy of the first `len` bytes of `chunk` to `dst`, there from byte `offset` on (of all
    /// elements one after the other).
    ///
    /// # Safety
    /// `dst` is memory that the GPU reaches, valid until the ticket is done, as long as the chunk is not used
    /// otherwise. Elements do not overlap.
    pub(crate) unsafe fn copy_in(
        &mut self,
        dst: &Span,
        offset: usize,
        chunk: &Chunk,
        len: usize,
    ) -> Result<Ticket> {
        debug_assert!(len <= chunk.bytes());
        for piece in dst.pieces(offset, len) {
            let from = Strided { at: chunk.device + piece.packed, stride: piece.elem };
            // SAFETY: the caller keeps the span valid; the chunk is pinned, and as long.
            unsafe { self.into.stream.copy_strided(piece.memory, from, piece.elem, piece.count) }
                .map_err(|e| self.explain(e))?;
        }
        self.marked(true)
    }

    /// Starts the copy of `len` bytes of `src`, from byte `offset` on (of all elements one after the other),
    /// to the front of `chunk`.
    ///
    /// # Safety
    /// As for [`Staging::copy_in`].
    pub(crate) unsafe fn copy_out(
        &mut self,
        chunk: &Chunk,
        src: &Span,
        offset: usize,
        len: usize,
    ) -> Result<Ticket> {
        debug_assert!(len <= chunk.bytes());
        for piece in src.pieces(offset, len) {
            let to = Strided { at: chunk.device + piece.packed, stride: piece.elem };
            // SAFETY: the caller keeps the span valid; the chunk is pinned, and as long.
            unsafe { self.out_of.stream.copy_strided(to, piece.memory, piece.elem, piece.count) }
                .map_err(|e| self.explain(e))?;
        }
        self.marked(false)
    }

    /// Starts the store of the low `bytes` (1, 2, 4 or 8) of `bits`, in one piece where `at` is aligned,
    /// after everything that went into the GPU before. `None` while too many are on their way: ask again.
    ///
    /// # Safety
    /// `at` is GPU memory, valid for the word until the ticket is done.
    pub(crate) unsafe fn store(&mut self, at: usize, bits: u64, bytes: usize) -> Result<Option<Ticket>> {
        if !self.into.has_room().map_err(|e| self.explain(e))? {
            return Ok(None);
        }
        if let Some(op) = MemOp::store(at, bits, bytes).filter(|_| self.cuda.facts().stream_words) {
            // SAFETY: the caller keeps the word valid.
            unsafe { self.into.stream.words(&[op]) }.map_err(|e| self.explain(e))?;
            return self.marked(true).map(Some);
        }
        let place = self.next_word % WORDS;
        if !self.into.has_ended(self.busy[place]).map_err(|e| self.explain(e))? {
            return Ok(None);
        }
        let words = self.words.as_mut().expect("there until drop");
        // SAFETY: one of the words, which no copy uses any more.
        unsafe { words.as_ptr().cast::<u64>().add(place).write_volatile(bits.to_le()) };
        let from = words.device_address() + 8 * place;
        // SAFETY: the caller keeps the word valid; the place that it comes from is pinned.
        unsafe { self.into.stream.copy(at, from, bytes) }.map_err(|e| self.explain(e))?;
        let ticket = self.marked(true)?;
        self.busy[place] = ticket.number;
        self.next_word += 1;
        Ok(Some(ticket))
    }

    fn marked(&mut self, into: bool) -> Result<Ticket> {
        let track = if into { &mut self.into } else { &mut self.out_of };
        match track.mark() {
            Ok(number) => Ok(Ticket { into, number }),
            Err(e) => Err(self.explain(e)),
        }
    }

    /// Whether a copy or store is done: then the source may be used again, and the destination, GPU memory or
    /// chunk, has what was copied, for everybody. Does not wait.
    pub(crate) fn done(&mut self, ticket: Ticket) -> Result<bool> {
        let track = if ticket.into { &mut self.into } else { &mut self.out_of };
        track.has_ended(ticket.number).map_err(|e| self.explain(e))
    }

    fn explain(&self, e: Error) -> Error {
        e.context(self.subject())
    }

    /// What it moves, for texts.
    pub(crate) fn subject(&self) -> String {
        format!("far PEs' data in memory of {}", self.cuda)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let busy = |track: &Track| matches!(track.stream.query(), Ok(false));
        if busy(&self.into) || busy(&self.out_of) {
            // Copies end by themselves, but not before they are done: their memory then goes with the
            // process.
            std::mem::forget(std::mem::take(&mut self.blocks));
            std::mem::forget(self.words.take());
        }
    }
}
