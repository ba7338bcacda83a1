//! Moves between the members' memory, where it is symmetric: near by copies of this thread, far by the
//! network, which works while this PE goes on. A round before says that all members are there and where their
//! arrays lie; one behind says that all of it has come.

use super::Session;
use crate::error::Result;
use crate::exec::{order, run, Form};
use crate::op::Op;
use crate::word::copy_past_caches;

/// Where the heap offset of an array stands in the words of the first round.
pub(super) const DST: usize = 2;
pub(super) const SRC: usize = 3;

/// Copies of so many bytes go past the caches, which do not hold what all members move.
pub(super) const PAST_CACHES: usize = 4 << 20;

impl Session<'_> {
    /// The heap offset that member `i` has said in that word of the last round.
    pub(super) fn offset(&self, i: usize, word: usize) -> u64 {
        self.call.words(i)[word]
    }

    /// Those of all members, where all arrays are symmetric.
    pub(super) fn offsets(&self, word: usize) -> Option<Vec<u64>> {
        let offset = |i| Some(self.offset(i, word)).filter(|offset| *offset != super::PRIVATE);
        (0..self.n).map(offset).collect()
    }

    /// Whether any member has that bit in word 1 of the last round.
    pub(super) fn any(&self, bit: u64) -> bool {
        (0..self.n).any(|i| self.call.words(i)[1] & bit != 0)
    }

    /// Whether all have.
    pub(super) fn all(&self, bit: u64) -> bool {
        (0..self.n).all(|i| self.call.words(i)[1] & bit != 0)
    }

    /// This PE's address of a place in the heap, by which the operations of this PE name any member's.
    pub(super) fn place(&self, offset: u64) -> usize {
        self.world.symmetric.base() + offset as usize
    }

    /// Where member `i`'s memory at an offset is mapped here, for this thread to touch.
    pub(super) fn near(&self, i: usize, offset: u64) -> Option<*mut u8> {
        if self.is_apart() {
            return None;
        }
        let distance = self.world.near.distance(self.pe(i))?;
        Some(self.place(offset).wrapping_add(distance as usize) as *mut u8)
    }

    /// Begins a copy of `bytes` at `src` to that offset of member `to`.
    ///
    /// # Safety
    /// The source is valid until the next quiet.
    pub(super) unsafe fn push(&self, to: usize, offset: u64, src: *const u8, bytes: usize) -> Result<()> {
        if let Some(there) = self.near(to, offset).filter(|_| bytes >= PAST_CACHES) {
            // SAFETY: the caller vouches for the source, the member for its own array: they are apart.
            unsafe { copy_past_caches(there, src, bytes) };
            return Ok(());
        }
        let op = Op::put(self.place(offset), src as usize, bytes);
        // SAFETY: the caller vouches for the source.
        unsafe { run(self.world, op, self.pe(to), Form::Nbi) }.map(drop)
    }

    /// Begins a copy of `bytes` at that offset of member `from` to `dst`.
    ///
    /// # Safety
    /// The destination is valid, and nobody else's, until the next quiet.
    pub(super) unsafe fn pull(&self, from: usize, offset: u64, dst: *mut u8, bytes: usize) -> Result<()> {
        if let Some(there) = self.near(from, offset).filter(|_| bytes >= PAST_CACHES) {
            // SAFETY: the caller vouches for the destination, the member for its own array: they are apart.
            unsafe { copy_past_caches(dst, there, bytes) };
            return Ok(());
        }
        let op = Op::get(dst as usize, self.place(offset), bytes);
        // SAFETY: the caller vouches for the destination.
        unsafe { run(self.world, op, self.pe(from), Form::Nbi) }.map(drop)
    }

    /// What has been begun is over.
    pub(super) fn quiet(&self) -> Result<()> {
        order::quiet_of(self.world, Some(self.world.contexts.entered()))
    }

    /// The last round of a call that has moved data directly: every member's part is over.
    pub(super) fn finish(&mut self, mine: Result<()>) -> Result<()> {
        // Where one move fails, others may be on their way: nothing moves when the call returns.
        let over = self.quiet();
        self.settle(mine.and(over), [0; 4], 0)
    }

    /// The other members, each its own way round, so that they do not all turn to one at a time.
    pub(super) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (me, n) = (self.me, self.n);
        (1..n).map(move |s| (me + s) % n)
    }
}
