//! put and get, beside what does the same without rushmem: a plain store or load through the mapping for a
//! word, `memcpy` between the same two buffers for more.

use std::hint::black_box;
use std::sync::atomic::{fence, Ordering};

use rushmem::{Pe, SymRef};

use super::pair::{compared, pattern, verify, Pair, Unit};
use crate::args::HostArgs;
use crate::job::Result;
use crate::report::{Limit, Row};
use crate::stats::{calibrate, interleave};

/// Words that the small operations walk over, so that they do not all hit one address: a few cache lines.
const WALK: usize = 64;
/// Length of the list of targets, a power of two: 16 KiB, which stays in the first-level cache.
const TARGETS: usize = 1024;

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

/// Where words go: an element and a PE, in no order. A program knows them at run time only, and so do both
/// sides of a comparison here: the reference looks the mapping up by PE, ours computes it. (Told both
/// beforehand, a compiler makes the reference two stores a clock cycle; `always one word` shows that case.)
struct Targets {
    list: Vec<(usize, Pe)>,
    /// What a program without rushmem would keep: where each PE's memory is mapped.
    mapped: Vec<*mut u64>,
}

impl Targets {
    fn new(pair: &Pair, memory: &SymRef<'_, u64>) -> Result<Targets> {
        let list = pattern(TARGETS, 0x7a96).map(|random| (random as usize % WALK, pair.other())).collect();
        let mapped = pair.world.pes().map(|pe| pair.mapped(memory, pe)).collect::<Result<_>>()?;
        Ok(Targets { list, mapped })
    }

    #[inline(always)]
    fn get(&self, turn: u64) -> (usize, Pe) {
        self.list[turn as usize % TARGETS]
    }

    #[inline(always)]
    fn mapped(&self, at: usize, pe: Pe) -> *mut u64 {
        self.mapped[pe.index()].wrapping_add(at)
    }
}

/// Words by `p`, by `put` of a slice of one, and by `put` completed by quiet. Without quiet they follow back
/// to back, so the figure is the cost of issuing.
fn put_word(pair: &Pair, args: &HostArgs, rows: &mut Vec<Row>) -> Result<()> {
    let memory = pair.world.alloc::<u64>(WALK)?;
    if pair.measures() {
        let targets = Targets::new(pair, &memory)?;
        let word = memory.slice(1..2)?;
        // SAFETY (of all stores here): inside the mapped allocation, which nobody else touches until it is
        // freed.
        let mut store = |n| {
            for i in 0..n {
                let (at, pe) = targets.get(i);
                // SAFETY: inside the mapped allocation, which nobody else touches until it is freed.
                unsafe { targets.mapped(at, pe).write_volatile(i) };
            }
            Ok(())
        };
        let store_one = |n| {
            for i in 0..n {
                let (_, pe) = targets.get(i);
                // SAFETY: inside the mapped allocation, which nobody else touches until it is freed.
                unsafe { targets.mapped(1, pe).write_volatile(i) };
            }
            Ok(())
        };
        let store_completed = |n| {
            for i in 0..n {
                let (_, pe) = targets.get(i);
                // SAFETY: inside the mapped allocation, which nobody else touches until it is freed.
                unsafe { targets.mapped(1, pe).write_volatile(i) };
                fence(Ordering::SeqCst);
            }
            Ok(())
        };
        let p = |n| {
            for i in 0..n {
                let (at, pe) = targets.get(i);
                memory.p(at, i, pe)?;
            }
            Ok(())
        };
        // Both told everything beforehand: what is left of the checks when the compiler can take them out of
        // the loop.
        let (fixed, other) = (targets.mapped(1, pair.other()), pair.other());
        let store_fixed = |n| {
            for i in 0..n {
                // SAFETY: inside the mapped allocation, which nobody else touches until it is freed.
                unsafe { fixed.write_volatile(i) };
            }
            Ok(())
        };
        let p_fixed = |n| {
            for i in 0..n {
                memory.p(1, i, other)?;
            }
            Ok(())
        };
        let put = |n| {
            for i in 0..n {
                let (_, pe) = targets.get(i);
                word.put(&[i], pe)?;
            }
            Ok(())
        };
        let put_completed = |n| {
            for i in 0..n {
                let (_, pe) = targets.get(i);
                word.put(&[i], pe)?;
                pair.world.quiet()?;
            }
            Ok(())
        };
        let (samples, n) = (args.samples as usize, calibrate(args.batch_ns(), &mut store)?);
        let puts = interleave(samples, n, put, store_one)?;
        let ps = interleave(samples, n, p, store)?;
        let fixed = interleave(samples, n, p_fixed, store_fixed)?;
        let completed = interleave(samples, (n / 8).max(1), put_completed, store_completed)?;
        let promised = Some(Limit::Ratio(2.0));
        for (name, taken, reference, limit) in [
            ("put", puts, "plain store", promised),
            ("p", ps, "plain store", promised),
            ("put + quiet", completed, "plain store, full fence", promised),
            ("p, always one word", fixed, "plain store, one word", None),
        ] {
            rows.push(Row { limit, ..compared(name, Some(8), Unit::Ns, taken, reference)? });
        }
        check_words(pair, &memory)?;
    }
    Ok(memory.free()?)
}

/// Words by `g` and by `get` into a slice of one; each word that arrives is used.
fn get_word(pair: &Pair, args: &HostArgs, rows: &mut Vec<Row>) -> Result<()> {
    let memory = pair.world.alloc::<u64>(WALK)?;
    if pair.measures() {
        let targets = Targets::new(pair, &memory)?;
        let word = memory.slice(1..2)?;
        let mut load = |n| {
            for i in 0..n {
                let (at, pe) = targets.get(i);
                // SAFETY: inside the mapped allocation, which nobody else touches until it is freed.
                black_box(unsafe { targets.mapped(at, pe).read_volatile() });
            }
            Ok(())
        };
        let load_one = |n| {
            for i in 0..n {
                let (_, pe) = targets.get(i);
                // SAFETY: inside the mapped allocation, which nobody else touches until it is freed.
                black_box(unsafe { targets.mapped(1, pe).read_volatile() });
            }
            Ok(())
        };
        let g = |n| {
            for i in 0..n {
                let (at, pe) = targets.get(i);
                black_box(memory.g(at, pe)?);
            }
            Ok(())
        };
        let get = |n| {
            for i in 0..n {
                let (_, pe) = targets.get(i);
                let mut value = [0];
                word.get(&mut value, pe)?;
                black_box(value[0]);
            }
            Ok(())
        };
        let (samples, n) = (args.samples as usize, calibrate(args.batch_ns(), &mut load)?);
        let gets = interleave(samples, n, get, load_one)?;
        let gs = interleave(samples, n, g, load)?;
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
    pair.spoil(memory, other)?;
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
        let (other, raw) = (pair.other(), pair.mapped(&memory, pair.other())?);
        let words = pattern(bytes.div_ceil(8), bytes as u64);
        let mut own: Vec<u8> = words.flat_map(u64::to_ne_bytes).take(bytes).collect();
        let local = own.as_mut_ptr();
        let (name, to, from) = match direction {
            Direction::Put => ("put", raw, local),
            Direction::Get => ("get", local, raw),
        };
        let mut memcpy = |n| {
            for _ in 0..n {
                // SAFETY: both are `bytes` long, and apart: one is this process's vector, the other the other
                // PE's heap. Whatever else uses them here ends before this begins.
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
        pair.spoil(&memory, other)?;
        memory.get(&mut own, other)?;
        verify(&format!("{name} of {bytes} bytes"), own == sent)?;
    }
    Ok(memory.free()?)
}
