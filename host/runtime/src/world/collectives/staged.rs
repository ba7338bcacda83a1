//! Collectives through the rounds themselves: in each of them every member carries a piece of its data, which
//! the others read. For data of any memory, near and far. Two rounds' pieces have rooms of their own, so a
//! member that is ahead by one does not disturb those that still read.

use super::Session;
use crate::error::Result;

impl Session<'_> {
    /// What the last round has carried of member `i`, as `whole` bytes at most.
    #[inline]
    pub(super) fn carried(&self, i: usize, whole: usize) -> *const u8 {
        self.call.carried(i, whole)
    }

    /// The same of a round of [`Session::staged`].
    pub(super) fn piece_of(&self, i: usize) -> *const u8 {
        self.call.carried(i, usize::MAX)
    }

    /// The end of a call whose last round carried data: that was still there when it was read.
    pub(super) fn done(&self) -> Result<()> {
        self.call.check_kept().and_then(|()| self.write_back()).map_err(|e| e.context(self.what()))
    }

    /// Moves a stream of `total` bytes in pieces of `piece` at most. `fill(at, to, bytes)` puts this member's
    /// bytes from `at` on at `to`, and says how many they are; `take(at, bytes)` takes what all have
    /// carried.
    pub(super) fn staged(
        &mut self,
        total: usize,
        piece: usize,
        mut fill: impl FnMut(usize, *mut u8, usize) -> usize,
        mut take: impl FnMut(&Self, usize, usize),
    ) -> Result<()> {
        let mut at = 0;
        while at < total {
            let bytes = piece.min(total - at);
            let carried = fill(at, self.call.carried_here(usize::MAX), bytes);
            self.call.round_with(self.kind, [0; 4], carried, usize::MAX)?;
            take(self, at, bytes);
            at += bytes;
        }
        self.done()
    }

    /// Bytes of a piece where a member carries one for each member.
    pub(super) fn piece_of_each(&self) -> usize {
        // Whole elements of any type that is reduced.
        (self.call.room() / self.n) & !15
    }
}
