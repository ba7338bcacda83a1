//! put and get, beside what does the same without rushmem: a plain store or load through the mapping for a word,
//! `memcpy` between the same two buffers for more.

use std::hint::black_box;

use rushmem::SymRef;

use super::pair::{compared, pattern, verify, Pair, Unit};
use crate::args::HostArgs;
use crate::job::Result;
use crate::report::{Limit, Row};
use crate::stats::{calibrate, interleave};

/// Words that the small operations walk over, so that they do not all hit one address: a few cache lines.
const WALK: usize = 64;

/// Puts of every size.
pub(super) fn put(pair: &Pair, args: &HostArgs, rows: &mut Vec<Row>) -> Result<()> {
    for &bytes in &args.sizes {
        if bytes == 8 {
            put_word(pair, args, rows)?;
        } else {
            bulk(pair, args, rows, Direction::Put, bytes as usize)?;
        }
    }
    Ok(())
}

/// Gets of every size.
pub(super) fn get(pair: &Pair, args: &HostArgs, rows: &mut Vec<Row>) -> Result<()> {
    for &bytes in &args.sizes {
        if bytes == 8 {
            get_word(pair, args, rows)?;
        } else {
            bulk(pair, args, rows, Direction::Get, bytes as usize)?;
        }
    }
    Ok(())
}

/// One word after another, by `put` of a slice of one and by `p`. Back to back, so the figure is the cost of issuing.
fn put_word(pair: &Pair, args: &HostArgs, rows: &mut Vec<Row>) -> Result<()> {
    let memory = pair.world.alloc::<u64>(WALK)?;
    if pair.measures() {
        let (other, raw) = (pair.other(), pair.mapped(&memory)?);
        let mut plain = |n| {
            for i in 0..n {
                // SAFETY: inside the mapped allocation, which nobody else touches until it is freed below.
                unsafe { raw.add(i as usize % WALK).write_volatile(i) };
            }
            Ok(())
        };
        let n = calibrate(args.batch_ns(), &mut plain)?;
        let word = memory.slice(1..2)?;
        let by_put = |n| {
            for i in 0..n {
                word.put(&[i], other)?;
            }
            Ok(())
        };
        let same_word = |n| {
            for i in 0..n {
                // SAFETY: as above.
                unsafe { raw.add(1).write_volatile(i) };
            }
            Ok(())
        };
        let by_p = |n| {
            for i in 0..n {
                memory.p(i as usize % WALK, i, other)?;
            }
            Ok(())
        };
        let samples = args.samples as usize;
        let puts = interleave(samples, n, by_put, same_word)?;
        let ps = interleave(samples, n, by_p, plain)?;
        for (name, taken) in [("put", puts), ("p", ps)] {
            let row = compared(name, Some(8), Unit::Ns, taken, "plain store")?;
            rows.push(row.limit(Limit::Ratio(2.0)));
        }
        check_words(pair, &memory)?;
    }
    Ok(memory.free()?)
}

/// One word after another, by `get` into a slice of one and by `g`; each word that arrives is used.
fn get_word(pair: &Pair, args: &HostArgs, rows: &mut Vec<Row>) -> Result<()> {
    let memory = pair.world.alloc::<u64>(WALK)?;
    if pair.measures() {
        let (other, raw) = (pair.other(), pair.mapped(&memory)?);
        let mut plain = |n| {
            for i in 0..n {
                // SAFETY: inside the mapped allocation, which nobody else touches until it is freed below.
                black_box(unsafe { raw.add(i as usize % WALK).read_volatile() });
            }
            Ok(())
        };
        let n = calibrate(args.batch_ns(), &mut plain)?;
        let word = memory.slice(1..2)?;
        let by_get = |n| {
            for _ in 0..n {
                let mut value = [0];
                word.get(&mut value, other)?;
                black_box(value);
            }
            Ok(())
        };
        let same_word = |n| {
            for _ in 0..n {
                // SAFETY: as above.
                black_box(unsafe { raw.add(1).read_volatile() });
            }
            Ok(())
        };
        let by_g = |n| {
            for i in 0..n {
                black_box(memory.g(i as usize % WALK, other)?);
            }
            Ok(())
        };
        let samples = args.samples as usize;
        let gets = interleave(samples, n, by_get, same_word)?;
        let gs = interleave(samples, n, by_g, plain)?;
        for (name, taken) in [("get", gets), ("g", gs)] {
            rows.push(compared(name, Some(8), Unit::Ns, taken, "plain load")?);
        }
        check_words(pair, &memory)?;
    }
    Ok(memory.free()?)
}

/// Untimed: what is put arrives, what is got is what is there.
fn check_words(pair: &Pair, memory: &SymRef<'_, u64>) -> Result<()> {
    let other = pair.other();
    let sent: Vec<u64> = pattern(WALK, 0x5bd1).collect();
    for (i, value) in sent.iter().enumerate() {
        if i % 2 == 0 {
            memory.slice(i..)?.put(&[*value], other)?;
        } else {
            memory.p(i, *value, other)?;
        }
    }
    pair.world.quiet()?;
    let mut got = vec![0; WALK];
    memory.get(&mut got, other)?;
    let one_by_one: Vec<u64> = (0..WALK).map(|i| memory.g(i, other)).collect::<rushmem::Result<_>>()?;
    verify("put and get of words", got == sent && one_by_one == sent)
}

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    Put,
    Get,
}

/// More than a word: the same two buffers, by rushmem and by `memcpy` in turn.
fn bulk(pair: &Pair, args: &HostArgs, rows: &mut Vec<Row>, direction: Direction, bytes: usize) -> Result<()> {
    let memory = pair.world.alloc_aligned::<u8>(bytes, 4096)?;
    if pair.measures() {
        let (other, raw) = (pair.other(), pair.mapped(&memory)?);
        let words = pattern(bytes.div_ceil(8), bytes as u64);
        let mut own: Vec<u8> = words.flat_map(u64::to_ne_bytes).take(bytes).collect();
        let local = own.as_mut_ptr();
        let (name, to, from) = match direction {
            Direction::Put => ("put", raw, local),
            Direction::Get => ("get", local, raw),
        };
        let mut memcpy = |n| {
            for _ in 0..n {
                // SAFETY: both are `bytes` long, and apart: one is this process's vector, the other the other PE's
                // heap. Whatever else uses them here ends before this begins.
                unsafe { libc::memcpy(black_box(to).cast(), black_box(from).cast(), black_box(bytes)) };
            }
            Ok(())
        };
        let n = calibrate(args.batch_ns(), &mut memcpy)?;
        let ours = |n| {
            for _ in 0..n {
                // SAFETY: the vector's own memory, all of it, which nothing else uses during the call.
                let own = unsafe { std::slice::from_raw_parts_mut(black_box(local), black_box(bytes)) };
                match direction {
                    Direction::Put => memory.put(own, other)?,
                    Direction::Get => memory.get(own, other)?,
                }
            }
            Ok(())
        };
        let taken = interleave(args.samples as usize, n, ours, memcpy)?;
        let unit = if bytes > 4096 { Unit::Us } else { Unit::Ns };
        let row = compared(name, Some(bytes as u64), unit, taken, "memcpy, same buffers")?;
        // The promise is about 1 MiB; from there on the copy is all there is.
        let promised = direction == Direction::Put && bytes >= 1 << 20;
        rows.push(if promised { row.limit(Limit::Ratio(1.1)) } else { row });

        // Untimed, with other data than before.
        let sent: Vec<u8> = own.iter().map(|byte| byte ^ 0xa5).collect();
        memory.put(&sent, other)?;
        pair.world.quiet()?;
        memory.get(&mut own, other)?;
        verify(&format!("{name} of {bytes} bytes"), own == sent)?;
    }
    Ok(memory.free()?)
}
