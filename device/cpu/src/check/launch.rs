//! A launch under the checker: it begins behind what its chain has done, and the chain goes on behind it.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use super::clock::{Clock, Strand};
use super::world::{Chain, World};
use crate::code::Code;
use crate::lock::lock;

/// A launch under way.
pub(crate) struct CheckedLaunch {
    pub(super) chain: Arc<Chain>,
    pub(super) code: Code,
    pub(super) start: u32,
    pub(super) known: Arc<Clock>,
    pub(super) data: Range<usize>,
    pub(super) grid: [u32; 2],
    pub(super) block: [u32; 2],
    pub(super) ended: Mutex<(Clock, u32)>,
}

// SAFETY: the code's pointers are read-only and stay valid until the launch has ended, which is after the
// last block; all else is atomics, locks or constant.
unsafe impl Send for CheckedLaunch {}
// SAFETY: as it may be sent, and what changes is behind a lock.
unsafe impl Sync for CheckedLaunch {}

impl CheckedLaunch {
    /// Begins a launch of an instrumented kernel on the chain that the calling thread works for.
    pub(crate) fn begin(chain: Arc<Chain>, code: &Code, grid: [u32; 3], block: [u32; 3]) -> CheckedLaunch {
        let (known, start) = {
            let mut state = chain.state();
            let known = state.actor.publish();
            (known, state.actor.clock)
        };
        CheckedLaunch {
            code: code.clone(),
            start,
            ended: Mutex::new((known.clone(), start)),
            known: Arc::new(known),
            data: crate::signals::data_of(code.slot as usize),
            grid: [grid[0], grid[1]],
            block: [block[0], block[1]],
            chain,
        }
    }

    /// All blocks have ended: the chain goes on behind them.
    pub(crate) fn end(&self) {
        let (mut known, last) = std::mem::take(&mut *lock(&self.ended));
        known.raise(Strand::chain(self.chain.number), last);
        let mut state = self.chain.state();
        state.actor.clock = state.actor.clock.max(last) + 1;
        state.actor.known = Arc::new(known);
    }

    /// Whose launch it is.
    pub(super) fn world(&self) -> &Arc<World> {
        &self.chain.world
    }
}
