//! A launch under the checker: it begins behind what its chain has done, and the chain goes on behind it. One
//! that may start early begins behind what the kernel before it began behind; each of its threads comes
//! behind that kernel by `await_stream()`.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use super::actor::Spot;
use super::clock::{Clock, Strand};
use super::world::{Chain, LastKernel, World, GRIDS};
use crate::code::Code;
use crate::lock::lock;

/// A launch under way.
pub(crate) struct CheckedLaunch {
    pub(super) chain: Arc<Chain>,
    /// The chain whose strands its threads are.
    pub(super) threads: u32,
    pub(super) code: Code,
    pub(super) start: u32,
    /// What its threads begin behind.
    pub(super) known: Arc<Clock>,
    /// All before it on its chain.
    pub(super) all: Arc<Clock>,
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
    pub(crate) fn begin(
        chain: Arc<Chain>,
        code: &Code,
        grid: [u32; 3],
        block: [u32; 3],
        early: bool,
    ) -> CheckedLaunch {
        let (start, all, known, threads) = {
            let mut state = chain.state();
            let all = Arc::new(state.actor.publish());
            let (known, threads) = match state.kernel.take() {
                Some(last) if early => (last.behind, chain.other(&mut state, last.threads)),
                _ => (Arc::clone(&all), chain.number),
            };
            state.kernel = Some(LastKernel { behind: Arc::clone(&all), threads });
            (state.actor.clock, all, known, threads)
        };
        CheckedLaunch {
            threads,
            code: code.clone(),
            start,
            ended: Mutex::new(((*all).clone(), start)),
            known,
            all,
            data: crate::signals::data_of(code.slot as usize),
            grid: [grid[0], grid[1]],
            block: [block[0], block[1]],
            chain,
        }
    }

    /// All blocks have ended: the chain goes on behind them.
    pub(crate) fn end(&self) {
        let (mut known, last) = std::mem::take(&mut *lock(&self.ended));
        known.raise(Strand::chain(self.threads), last);
        let mut state = self.chain.state();
        state.actor.clock = state.actor.clock.max(last) + 1;
        state.actor.known = Arc::new(known);
    }

    /// The word that carries clocks from block to block as they meet for that time. Blocks are never two
    /// times apart, so two words do; and for all launches, as they come one after the other: what an earlier
    /// one has left there is known to the next.
    pub(super) fn grid_word(&self, time: u64) -> Spot {
        Spot { space: GRIDS, at: 2 * self.threads as usize + time as usize % 2 }
    }

    /// Whose launch it is.
    pub(super) fn world(&self) -> &Arc<World> {
        &self.chain.world
    }
}
