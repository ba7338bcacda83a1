//! barrier_all and sync_all of two PEs, beside the least that two processes can do to meet: each stores a
//! number into the other's memory and spins until its own arrives. The bare exchange checks nothing (no dead
//! peer, no time limit, no stall report), which is what the factor allowed between the two pays for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::pair::{compared, pattern, verify, Pair, Unit};
use crate::args::HostArgs;
use crate::job::Result;
use crate::report::{Limit, Row};
use crate::stats::interleave;

/// Polls before a spinner lets others run; a barrier that never yields would stall a machine with fewer
/// cores.
const SPINS: u32 = 20_000;

/// Two processes meet, by two words in memory that both have mapped.
pub(super) struct Flags<'a> {
    mine: &'a AtomicU64,
    theirs: &'a AtomicU64,
    round: u64,
}

impl<'a> Flags<'a> {
    /// # Safety
    /// Both point at words in shared memory that live for `'a` and are only used as atomics. `mine` here is
    /// `theirs` in the other process.
    pub(super) unsafe fn new(mine: *mut u64, theirs: *mut u64) -> Flags<'a> {
        // SAFETY: by the caller's word.
        unsafe { Flags { mine: AtomicU64::from_ptr(mine), theirs: AtomicU64::from_ptr(theirs), round: 0 } }
    }

    /// Returns once the other has called it as often.
    pub(super) fn exchange(&mut self) {
        self.round += 1;
        self.theirs.store(self.round, Ordering::Release);
        self.listen();
    }

    /// The other half of a round trip: waits for the other's `exchange`, then answers it.
    pub(super) fn answer(&mut self) {
        self.round += 1;
        self.listen();
        self.theirs.store(self.round, Ordering::Release);
    }

    fn listen(&self) {
        let mut polls = 0;
        while self.mine.load(Ordering::Acquire) < self.round {
            polls += 1;
            if polls % SPINS == 0 {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

/// Do both meet there? In each round one is late, and what it has stored before it comes is seen behind it.
pub(super) fn check(pair: &Pair, name: &str, meet: &dyn Fn() -> Result<()>) -> Result<()> {
    let (world, me) = (&pair.world, pair.world.my_pe());
    let word = world.alloc::<u64>(1)?;
    for (round, sent) in pattern(8, 0xba44).enumerate() {
        if round % 2 == me.index() {
            std::thread::sleep(Duration::from_millis(1));
        }
        word.p(0, sent, pair.other())?;
        // A barrier would do so itself, a sync does not.
        world.quiet()?;
        meet()?;
        pair.spoil(&word, me)?;
        verify(name, word.to_vec()? == [sent])?;
        // Nobody stores the next round's before both have looked.
        meet()?;
    }
    Ok(word.free()?)
}

pub(super) fn measure(pair: &Pair, args: &HostArgs, rows: &mut Vec<Row>) -> Result<()> {
    // An allocation is aligned to a cache line and each PE has its own copy, so the two flags share none.
    let memory = pair.world.alloc::<u64>(1)?;
    let mine = memory.as_ptr();
    // SAFETY: one aligned word on each PE; freed after the last use below, and nothing else touches it.
    let mut flags = unsafe { Flags::new(mine, pair.mapped(&memory, pair.other())?) };
    let rounds = u64::from(args.batch);
    type Meet<'a> = &'a dyn Fn() -> rushmem::Result<()>;
    let operations: [(&str, Option<Limit>, Meet<'_>); 2] = [
        ("barrier_all", Some(Limit::Ratio(3.0)), &|| pair.world.barrier_all()),
        ("sync_all", None, &|| pair.world.sync_all()),
    ];
    for (name, limit, meet) in operations {
        // Both PEs run the same rounds.
        let ours = |n| {
            for _ in 0..n {
                meet()?;
            }
            Ok(())
        };
        let bare = |n| {
            for _ in 0..n {
                flags.exchange();
            }
            Ok(())
        };
        let taken = interleave(args.samples as usize, rounds, ours, bare)?;
        check(pair, name, &|| Ok(meet()?))?;
        if pair.measures() {
            let row = compared(name, None, Unit::Ns, taken, "bare exchange of flags")?;
            rows.push(Row { limit, ..row });
        }
    }
    Ok(memory.free()?)
}
