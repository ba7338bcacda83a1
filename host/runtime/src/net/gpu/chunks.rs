//! Chunks of pinned memory, which a PE's transfers share, and who may have the last of them.
//!
//! A chunk whose data *leaves* this PE comes back when the target has received it. The target receives what was put in the order in which
//! it was asked, behind the gets that it has to *answer*. Two PEs that put much and get from each other would wait for ever if puts could
//! take all chunks, so some are kept: what leaves may wait for answers and for what arrives; an answer waits only for what arrives at the
//! PE that asked; and what *arrives* goes on into the GPU and waits for nobody.
//!
//! [`LARGE`] × [`LARGE_CHUNKS`] (8 MiB) are pinned at the start, and 512 KiB of [`SMALL`] ones, for transfers that would waste a large
//! one. Later is too late: to pin takes a lock of the driver's that a thread may hold as long as a stream waits ([`super::staging`]).

use crate::error::Result;

/// Bytes of a chunk for bulk: some 10 us of a copy engine, 50 of 100 Gbit/s; a start costs 2.
pub(crate) const LARGE: usize = 512 << 10;
/// How many of them.
pub(crate) const LARGE_CHUNKS: usize = 16;
/// Bytes of a chunk for little.
pub(crate) const SMALL: usize = 8 << 10;
/// How many of them; all are one allocation.
pub(crate) const SMALL_CHUNKS: usize = 64;
/// How many of each are for what arrives alone.
pub(crate) const KEPT_LARGE: usize = 4;
pub(crate) const KEPT_SMALL: usize = 16;
/// How many of each more are not for puts.
pub(crate) const ANSWER_LARGE: usize = 2;
pub(crate) const ANSWER_SMALL: usize = 8;

/// A piece of pinned memory. Whoever has it uses it alone, and hands it to [`Chunks::give_back`] in the end; one that is dropped
/// is missing until all go.
#[derive(Debug)]
#[must_use]
pub(crate) struct Chunk {
    at: usize,
    pub(super) device: usize,
    bytes: usize,
}

impl Chunk {
    /// Where the host and the network find it.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.at as *mut u8
    }

    /// Its length in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// What a chunk is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Course {
    /// Data of a put that leaves, and whatever else may have to wait for another PE, or for its turn.
    Leaving,
    /// Data that another PE has asked for.
    Answering,
    /// Data that goes into this GPU as soon as it is here.
    Arriving,
}

/// The chunks that nobody has.
#[derive(Debug)]
pub(crate) struct Chunks {
    small: Vec<Chunk>,
    large: Vec<Chunk>,
}

impl Chunks {
    /// All of them, free. `pin` gives memory: its addresses for the host and for the GPU.
    pub(crate) fn new(mut pin: impl FnMut(usize) -> Result<(usize, usize)>) -> Result<Chunks> {
        let memory = pin(SMALL * SMALL_CHUNKS)?;
        let small = (0..SMALL_CHUNKS).map(|i| piece(memory, i, SMALL)).collect();
        let memory = pin(LARGE * LARGE_CHUNKS)?;
        let large = (0..LARGE_CHUNKS).map(|i| piece(memory, i, LARGE)).collect();
        Ok(Chunks { small, large })
    }

    /// A chunk for (the next part of) a transfer of `bytes`; `None` while all that it may have are in use.
    pub(crate) fn take(&mut self, bytes: usize, course: Course) -> Option<Chunk> {
        let (kept_small, kept_large) = match course {
            Course::Leaving => (KEPT_SMALL + ANSWER_SMALL, KEPT_LARGE + ANSWER_LARGE),
            Course::Answering => (KEPT_SMALL, KEPT_LARGE),
            Course::Arriving => (0, 0),
        };
        if bytes <= SMALL && self.small.len() > kept_small {
            return self.small.pop();
        }
        if self.large.len() <= kept_large {
            return None;
        }
        self.large.pop()
    }

    /// Takes a chunk back, which no copy and no network transfer uses any more.
    pub(crate) fn give_back(&mut self, chunk: Chunk) {
        if chunk.bytes == SMALL { &mut self.small } else { &mut self.large }.push(chunk);
    }
}

fn piece((at, device): (usize, usize), i: usize, bytes: usize) -> Chunk {
    Chunk { at: at + i * bytes, device: device + i * bytes, bytes }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// All chunks; every allocation lies somewhere else.
    fn pinned() -> Chunks {
        static NEXT: AtomicUsize = AtomicUsize::new(1 << 40);
        Chunks::new(|bytes| {
            let at = NEXT.fetch_add(bytes, Ordering::Relaxed);
            Ok((at, at + 1))
        })
        .unwrap()
    }

    /// All that `course` may have, of transfers of `bytes`.
    fn all(chunks: &mut Chunks, bytes: usize, course: Course) -> Vec<Chunk> {
        std::iter::from_fn(|| chunks.take(bytes, course)).collect()
    }

    #[test]
    fn what_leaves_cannot_take_what_is_kept_for_answers_and_arrivals() {
        for bytes in [LARGE, SMALL + 1, usize::MAX] {
            let mut chunks = pinned();
            let leaving = all(&mut chunks, bytes, Course::Leaving);
            let answering = all(&mut chunks, bytes, Course::Answering);
            let arriving = all(&mut chunks, bytes, Course::Arriving);
            let left = LARGE_CHUNKS - KEPT_LARGE - ANSWER_LARGE;
            assert_eq!((leaving.len(), answering.len(), arriving.len()), (left, ANSWER_LARGE, KEPT_LARGE));
            let taken = leaving.iter().chain(&answering).chain(&arriving);
            assert!(taken.into_iter().all(|chunk| chunk.bytes() == LARGE));
            // What comes back is kept for those who may not wait.
            for chunk in arriving {
                chunks.give_back(chunk);
                assert!(all(&mut chunks, bytes, Course::Answering).is_empty());
            }
            for chunk in answering {
                chunks.give_back(chunk);
                assert!(all(&mut chunks, bytes, Course::Leaving).is_empty());
            }
            leaving.into_iter().take(1).for_each(|chunk| chunks.give_back(chunk));
            assert_eq!(all(&mut chunks, bytes, Course::Leaving).len(), 1);
        }
    }

    #[test]
    fn little_may_have_a_large_one_and_keeps_to_the_same_rule() {
        let mut chunks = pinned();
        let leaving = all(&mut chunks, 1, Course::Leaving);
        let (kept_small, kept_large) = (KEPT_SMALL + ANSWER_SMALL, KEPT_LARGE + ANSWER_LARGE);
        assert_eq!(leaving.len(), SMALL_CHUNKS - kept_small + LARGE_CHUNKS - kept_large);
        let answering = all(&mut chunks, 1, Course::Answering);
        assert_eq!(answering.len(), ANSWER_SMALL + ANSWER_LARGE);
        let large = all(&mut chunks, LARGE, Course::Arriving);
        let small = all(&mut chunks, SMALL, Course::Arriving);
        assert_eq!((large.len(), small.len()), (KEPT_LARGE, KEPT_SMALL));
        let taken = leaving.iter().chain(&answering).chain(&large).chain(&small);
        let mut places: Vec<_> = taken.map(|chunk| (chunk.at, chunk.bytes)).collect();
        places.sort_unstable();
        assert!(places.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "chunks overlap");
    }
}
