//! Round trips: PE 0 puts a word and waits for PE 1's answer, which PE 1 puts once it has seen the word.
//! Unlike the back-to-back figures this is the time until the other PE has *seen* a put. `p` with wait_until,
//! and put_signal with a wait on the signal, each beside bare flags through the same mapping.

use rushmem::{Cmp, SignalOp};

use super::barrier::Flags;
use super::pair::{compared, verify, Pair, Unit};
use crate::args::HostArgs;
use crate::job::Result;
use crate::report::Row;
use crate::stats::interleave;

pub(super) fn measure(pair: &Pair, args: &HostArgs, rows: &mut Vec<Row>) -> Result<()> {
    let (world, other, first) = (&pair.world, pair.other(), pair.measures());
    let flag = world.alloc::<u64>(1)?;
    let data = world.alloc::<u64>(1)?;
    let signal = world.signal()?;
    let bare = world.alloc::<u64>(1)?;
    // SAFETY: one aligned word on each PE; freed after the last use below, and nothing else touches it.
    let mut flags = unsafe { Flags::new(bare.as_ptr(), pair.mapped(&bare, other)?) };
    let mut plain = |n| {
        for _ in 0..n {
            if first {
                flags.exchange();
            } else {
                flags.answer();
            }
        }
        Ok(())
    };
    let (samples, rounds) = (args.samples as usize, u64::from(args.batch));

    let mut round = 0;
    let by_word = |n| {
        for _ in 0..n {
            round += 1;
            if first {
                flag.p(0, round, other)?;
            }
            flag.wait_until(0, Cmp::Ge, round)?;
            if !first {
                flag.p(0, round, other)?;
            }
        }
        Ok(())
    };
    let words = interleave(samples, rounds, by_word, &mut plain)?;
    pair.spoil(&flag, world.my_pe())?;
    verify("p", flag.to_vec()? == [round])?;

    let mut last = 0;
    let by_signal = |n| {
        for _ in 0..n {
            last += 1;
            if first {
                data.put_signal(&[last], &signal, SignalOp::Set, last, other)?;
            }
            signal.wait_until(Cmp::Ge, last)?;
            if !first {
                data.put_signal(&[last], &signal, SignalOp::Set, last, other)?;
            }
        }
        Ok(())
    };
    let signals = interleave(samples, rounds, by_signal, plain)?;
    pair.spoil(&data, world.my_pe())?;
    verify("put_signal", data.to_vec()? == [last] && signal.fetch()? == last)?;

    if first {
        for (name, taken) in [("p ping-pong", words), ("put_signal ping-pong", signals)] {
            rows.push(compared(name, Some(8), Unit::Ns, taken, "bare flags, there and back")?);
        }
    }
    bare.free()?;
    signal.free()?;
    data.free()?;
    Ok(flag.free()?)
}
