//! Atomic operations on the other PE's memory, beside the processor's own on the same word: on x86-64
//! `fetch_add` against a plain `lock xadd`.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use super::pair::{compared, verify, Pair, Samples, Unit};
use crate::args::HostArgs;
use crate::job::Result;
use crate::report::{Limit, Row};
use crate::stats::{calibrate, interleave};

/// On its own cache line, untouched by the other PE: the cost of the operation, not of contention.
pub(super) fn measure(pair: &Pair, args: &HostArgs, rows: &mut Vec<Row>) -> Result<()> {
    let memory = pair.world.alloc::<u64>(1)?;
    if pair.measures() {
        let word = memory.at(0, pair.other());
        // SAFETY: mapped and aligned, and lives until the allocation is freed below; only atomics touch it.
        let plain = unsafe { AtomicU64::from_ptr(pair.mapped(&memory, pair.other())?) };
        let both = Ordering::AcqRel;

        let fetch_add = sample(args, || word.fetch_add(3), || plain.fetch_add(3, both))?;
        let swap = sample(args, || word.swap(5), || plain.swap(5, both))?;
        let plain_swap = || plain.compare_exchange(5, 5, both, Ordering::Acquire).unwrap_or_else(|old| old);
        let compare_swap = sample(args, || word.compare_swap(5, 5), plain_swap)?;
        for (name, limit, taken) in [
            ("fetch_add", Some(Limit::Ratio(2.0)), fetch_add),
            ("swap", None, swap),
            ("compare_swap", None, compare_swap),
        ] {
            let row = compared(name, Some(8), Unit::Ns, taken, "the processor's own")?;
            rows.push(Row { limit, ..row });
        }

        // Untimed.
        word.set(40)?;
        let old = word.fetch_add(2)?;
        pair.spoil(&memory, pair.other())?;
        verify("fetch_add", old == 40 && plain.load(Ordering::SeqCst) == 42)?;
        verify("swap", word.swap(7)? == 42 && plain.load(Ordering::SeqCst) == 7)?;
        // The first finds what it expects, the second does not.
        let old = [word.compare_swap(7, 9)?, word.compare_swap(7, 11)?];
        verify("compare_swap", old == [7, 9] && plain.load(Ordering::SeqCst) == 9)?;
    }
    Ok(memory.free()?)
}

fn sample(
    args: &HostArgs,
    ours: impl Fn() -> rushmem::Result<u64>,
    plain: impl Fn() -> u64,
) -> Result<Samples> {
    // What comes back is summed up: handing each value to `black_box` would put a store before the next
    // locked instruction, which then waits for it.
    let mut plain = |n| {
        black_box((0..n).fold(0, |sum: u64, _| sum.wrapping_add(plain())));
        Ok(())
    };
    let n = calibrate(args.batch_ns(), &mut plain)?;
    let ours = |n| {
        let mut sum = 0u64;
        for _ in 0..n {
            sum = sum.wrapping_add(ours()?);
        }
        black_box(sum);
        Ok(())
    };
    interleave(args.samples as usize, n, ours, plain)
}
