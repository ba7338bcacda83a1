//! Chunks of pinned memory, which a PE's transfers share, and which transfer may take the last of them.
//!
//! A chunk is free again when another PE has done something, and that PE may need a chunk for it. So there are three ranks, and each keeps
//! some chunks that the ranks below cannot take ([`Course`]). A put's chunk waits until the target's lane has come to the put; in front of it
//! in that lane may stand a get, which needs a chunk to *answer*. An answer's chunk waits until the PE that asked has a chunk for what
//! *arrives*. What arrives goes on into the GPU and waits for no PE. A rank waits for higher ranks only, so no circle of PEs can form.
//!
//! [`LARGE`] × [`LARGE_CHUNKS`] (9 MiB) are pinned one by one when they are needed, and once 512 KiB of [`SMALL`] ones, for transfers that
//! would waste a large one. Nothing before the first transfer.

use crate::error::Result;

/// Bytes of a chunk for bulk: some 10 us of a copy engine, 50 of 100 Gbit/s; a start costs 2.
pub(crate) const LARGE: usize = 512 << 10;
/// How many of them.
pub(crate) const LARGE_CHUNKS: usize = 18;
/// Bytes of a chunk for little.
pub(crate) const SMALL: usize = 8 << 10;
/// How many of them; all are one allocation.
pub(crate) const SMALL_CHUNKS: usize = 64;
/// How many of each are for what arrives alone.
pub(crate) const KEPT_LARGE: usize = 4;
pub(crate) const KEPT_SMALL: usize = 16;
/// How many more are for what arrives and for answers alone.
const KEPT_LARGE_TO_ANSWER: usize = 2;
const KEPT_SMALL_TO_ANSWER: usize = 8;

/// A piece of pinned memory. Its owner uses it alone, and hands it to [`Chunks::give_back`] in the end; one that is dropped
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

/// What a chunk is for, from the lowest rank to the highest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Course {
    /// Data of a put, and data of another PE's put that is received before its turn.
    Leaving,
    /// What another PE asked for: it stands at the front of that PE's lane.
    Answering,
    /// Data that goes into this GPU as soon as it is here.
    Arriving,
}

/// The chunks that nobody has.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    small: Vec<Chunk>,
    large: Vec<Chunk>,
    has_small: bool,
    larges: usize,
}

impl Chunks {
    /// A chunk for (the next part of) a transfer of `bytes`; `None` while all that it may have are in use. `pin` gives memory: its
    /// addresses for the host and for the GPU.
    pub(crate) fn take(
        &mut self,
        bytes: usize,
        course: Course,
        mut pin: impl FnMut(usize) -> Result<(usize, usize)>,
    ) -> Result<Option<Chunk>> {
        let kept = |arriving: usize, answering: usize| match course {
            Course::Leaving => arriving + answering,
            Course::Answering => arriving,
            Course::Arriving => 0,
        };
        if bytes <= SMALL {
            if !self.has_small {
                let memory = pin(SMALL * SMALL_CHUNKS)?;
                self.small.extend((0..SMALL_CHUNKS).map(|i| piece(memory, i, SMALL)));
                self.has_small = true;
            }
            if self.small.len() > kept(KEPT_SMALL, KEPT_SMALL_TO_ANSWER) {
                return Ok(self.small.pop());
            }
        }
        if self.large.len() + (LARGE_CHUNKS - self.larges) <= kept(KEPT_LARGE, KEPT_LARGE_TO_ANSWER) {
            return Ok(None);
        }
        if self.large.is_empty() {
            let memory = pin(LARGE)?;
            self.large.push(piece(memory, 0, LARGE));
            self.larges += 1;
        }
        Ok(self.large.pop())
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

    /// All that `course` may have, of transfers of `bytes`. Every allocation lies somewhere else.
    fn all(chunks: &mut Chunks, bytes: usize, course: Course) -> Vec<Chunk> {
        static NEXT: AtomicUsize = AtomicUsize::new(1 << 40);
        let mut pin = |bytes: usize| {
            let at = NEXT.fetch_add(bytes, Ordering::Relaxed);
            Ok((at, at + 1))
        };
        std::iter::from_fn(|| chunks.take(bytes, course, &mut pin).unwrap()).collect()
    }

    /// Two PEs whose puts to each other hold all chunks that puts may have, and at the front of either lane a get: its answer needs a
    /// chunk, or neither goes on. And two PEs whose answers hold all that answers may have: what arrives needs one.
    #[test]
    fn a_rank_cannot_take_what_is_kept_for_the_ranks_above() {
        for bytes in [LARGE, SMALL + 1, usize::MAX] {
            let mut chunks = Chunks::default();
            let leaving = all(&mut chunks, bytes, Course::Leaving);
            let answering = all(&mut chunks, bytes, Course::Answering);
            let arriving = all(&mut chunks, bytes, Course::Arriving);
            assert_eq!(leaving.len(), LARGE_CHUNKS - KEPT_LARGE - KEPT_LARGE_TO_ANSWER);
            assert_eq!((answering.len(), arriving.len()), (KEPT_LARGE_TO_ANSWER, KEPT_LARGE));
            assert!(leaving.iter().chain(&arriving).all(|chunk| chunk.bytes() == LARGE));
            // One of what arrived comes back: it is kept, too. One of what left is not: there are enough then.
            for chunk in arriving {
                chunks.give_back(chunk);
                assert!(all(&mut chunks, bytes, Course::Leaving).is_empty());
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
        let mut chunks = Chunks::default();
        let leaving = all(&mut chunks, 1, Course::Leaving);
        let kept = KEPT_SMALL + KEPT_SMALL_TO_ANSWER + KEPT_LARGE + KEPT_LARGE_TO_ANSWER;
        assert_eq!(leaving.len(), SMALL_CHUNKS + LARGE_CHUNKS - kept);
        let answering = all(&mut chunks, 1, Course::Answering);
        assert_eq!(answering.len(), KEPT_SMALL_TO_ANSWER + KEPT_LARGE_TO_ANSWER);
        let large = all(&mut chunks, LARGE, Course::Arriving);
        let small = all(&mut chunks, SMALL, Course::Arriving);
        assert_eq!((large.len(), small.len()), (KEPT_LARGE, KEPT_SMALL));
        let mut places: Vec<_> = leaving
            .iter()
            .chain(&answering)
            .chain(&large)
            .chain(&small)
            .map(|chunk| (chunk.at, chunk.bytes))
            .collect();
        places.sort_unstable();
        assert!(places.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "chunks overlap");
    }
}
