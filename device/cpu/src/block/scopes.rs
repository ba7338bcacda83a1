//! Calls of a block or of a warp that not all of it make together, in a run that is checked: barriers at
//! different lines, and barriers and warp operations that threads have skipped by exiting.

use super::Block;
use crate::context::ThreadContext;
use crate::waiting::{named, text};

impl Block<'_> {
    /// The threads have met at a barrier: all that are left of the block.
    pub(super) fn met(&mut self, threads: &[u32], contexts: *mut ThreadContext) {
        if !self.looks_at_scopes() {
            return;
        }
        // SAFETY: entries of the block's thread table, whose threads are all suspended.
        let all: Vec<ThreadContext> = threads.iter().map(|i| unsafe { *contexts.add(*i as usize) }).collect();
        let Some(first) = all.first() else { return };
        let here = |one: &&ThreadContext| (one.line, text(one.file)) == (first.line, text(first.file));
        let (together, others) = all.iter().partition::<Vec<&ThreadContext>, _>(here);
        let gone = self.launch.threads - all.len();
        let what = text(first.what);
        if let Some(other) = others.first() {
            let at = self.launch.code.place(&self.probe(other.linear, contexts));
            let at = at.at.unwrap_or_else(|| format!("{}:{}", text(other.file), other.line));
            let (here, there) = (named(&together), named(&others));
            let said = format!("{here} in {what}, while {there} wait in {} at {at}", text(other.what));
            self.misused(first.linear, said, contexts);
        } else if gone > 0 {
            let s = if gone == 1 { " has" } else { "s have" };
            let said =
                format!("{} in {what}, which {gone} thread{s} skipped: exited before", named(&together));
            self.misused(first.linear, said, contexts);
        }
    }

    /// Lanes of the warp whose first thread is `first` have met under a mask.
    pub(super) fn met_in_warp(&mut self, first: u32, lanes: u32, mask: u32, contexts: *mut ThreadContext) {
        let count = self.launch.threads as u32 - first;
        // Lanes past the end of the block are nobody.
        let there = if count >= 32 { u32::MAX } else { (1 << count) - 1 };
        let absent = mask & there & !lanes;
        if absent == 0 || lanes == 0 || !self.looks_at_scopes() {
            return;
        }
        let thread = first + lanes.trailing_zeros();
        // SAFETY: the table's entry of one of the block's threads, which is suspended.
        let what = text(unsafe { (*contexts.add(thread as usize)).what });
        let said = format!("{what} with mask {mask:#010x}, whose lanes {absent:#010x} have exited");
        self.misused(thread, said, contexts);
    }

    fn looks_at_scopes(&self) -> bool {
        self.check.is_some() && self.launch.code.check.memory
    }

    fn misused(&mut self, thread: u32, said: String, contexts: *mut ThreadContext) {
        // SAFETY: the table's entry of one of the block's threads, which is suspended.
        let line = unsafe { (*contexts.add(thread as usize)).line };
        if self.check.as_mut().is_some_and(|check| check.is_first_at(line)) {
            let counters = self.probe(thread, contexts);
            if let Some(check) = &mut self.check {
                check.misused(thread as usize, counters, said);
            }
        }
    }
}
