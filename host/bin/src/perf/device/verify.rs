//! Is what a kernel moved what it should have moved? Looked at once for each figure, after the timed batches:
//! wrong data is an error and no figure.

use rushmem::SymRef;

use super::bench::{Bench, Rounds, GUARD};
use super::from_host::{self, Doer};
use super::kernels::{Family, HEAD, PING};
use super::measure::{Arrives, Part, What};
use super::pattern::word;
use super::spec::{Spec, PROBE};
use crate::job::{Failure, Result};

/// The word that arrives for each index; none where it is the other PE's data, or nothing.
fn words(spec: &Spec) -> Option<fn(salt: u64, i: u64, rounds: u64) -> u64> {
    match spec.what.row().arrives {
        Arrives::Words(of) => Some(of),
        Arrives::OfOperation => Some(atomic(spec.operation.as_deref().unwrap_or_default())),
        Arrives::Pattern | Arrives::Nothing => None,
    }
}

/// The word that an atomic operation leaves after so many rounds; see `atomic.cu`.
fn atomic(operation: &str) -> fn(u64, u64, u64) -> u64 {
    match operation {
        "inc" | "fetch_inc" | "compare_swap" => |_, _, rounds| rounds,
        "add" | "fetch_add" => |salt, _, rounds| salt.wrapping_mul(rounds),
        "and" | "fetch_and" => |_, _, rounds| if rounds < 64 { u64::MAX << rounds } else { 0 },
        "or" | "fetch_or" => |_, _, rounds| if rounds < 64 { (1 << rounds) - 1 } else { u64::MAX },
        "xor" | "fetch_xor" => |salt, _, rounds| if rounds % 2 == 1 { salt } else { 0 },
        "set" | "swap" => |salt, i, _| salt.wrapping_add(i),
        _ => |salt, _, _| salt,
    }
}

/// What a word holds before an atomic operation's first round, if not zero.
fn before(spec: &Spec, salt: u64) -> u64 {
    match spec.operation.as_deref() {
        Some("and" | "fetch_and") => u64::MAX,
        Some("fetch") => salt,
        _ => 0,
    }
}

/// Whether data arrives at this PE.
fn is_target(bench: &Bench<'_>, spec: &Spec) -> bool {
    let me = bench.world.my_pe().number();
    match spec.what.part(spec.both) {
        Part::First => me == u32::from(!spec.what.row().gets),
        Part::Pair => me < 2,
        Part::All => false,
    }
}

/// Makes what arrives recognisable: the target's memory holds something else before. Local.
pub(super) fn prepare(bench: &Bench<'_>, spec: &Spec) -> Result<()> {
    if !is_target(bench, spec) {
        return Ok(());
    }
    let end = spec.shift as usize + spec.target_bytes() as usize + GUARD;
    let memory = bench.to.slice(..end)?;
    match before(spec, bench.salt()) {
        0 => memory.fill(0)?,
        value => {
            let words = value.to_ne_bytes().repeat(spec.bytes as usize / 8);
            memory.slice(spec.bytes as usize..)?.fill(0)?;
            memory.write(&words)?;
        }
    }
    Ok(())
}

/// Where the last round's data was read, and where it is.
fn last(spec: &Spec, rounds: Rounds) -> (usize, usize) {
    let (source, target) = spec.places_of(rounds.total() - 1);
    (source as usize, target as usize)
}

/// For the test that wrong data is an error: makes wrong what `verify` is about to look at, on the PE that
/// does. Local.
pub(super) fn spoil(bench: &Bench<'_>, spec: &Spec, rounds: Rounds) -> Result<()> {
    let flip = |words: SymRef<'_, u64>| -> Result<()> {
        let word = words.to_vec()?[0];
        Ok(words.write(&[word ^ 1 << 8])?)
    };
    if spec.what.is_from_host() && from_host::spoil(bench, spec)? {
        return Ok(());
    }
    if matches!(spec.what.row().arrives, Arrives::Nothing) {
        let ran = bench.runs(spec.what.part(spec.both));
        return match spec.what.row().family {
            _ if !ran => Ok(()),
            Family::Pingpong => flip(bench.words.slice(PING..PING + 1)?),
            // What the kernel itself found.
            _ => flip(bench.stamps.slice(0..1)?),
        };
    }
    if is_target(bench, spec) {
        let middle = last(spec, rounds).1 + spec.shift as usize + spec.bytes as usize / 2;
        let byte = bench.to.slice(middle..middle + 1)?;
        byte.write(&[byte.to_vec()?[0] ^ 1])?;
    }
    Ok(())
}

/// Looks, on every PE, at what this PE can see. Collective where the host is to meet others, else local.
pub(super) fn verify(bench: &Bench<'_>, spec: &Spec, name: &str, rounds: Rounds) -> Result<()> {
    let part = spec.what.part(spec.both);
    let wrong = |what: String| {
        let me = bench.world.my_pe();
        Err(Failure::new(format!("{name}, {} bytes: {what} at {me}: its figures mean nothing", spec.bytes)))
    };
    if spec.what.is_from_host() {
        let doer = if name.starts_with(PROBE) { Doer::Driver } else { Doer::Library };
        from_host::told(bench, spec, doer, rounds)?;
    }
    if bench.runs(part) {
        let head = bench.stamps.slice(..HEAD)?.to_vec()?;
        if head[0] != 0 {
            return wrong(format!("the kernel saw {} wrong values", head[0]));
        }
        if spec.what == What::Wait && head[1] != rounds.total() {
            return wrong(format!("{} of {} were satisfied", head[1], rounds.total()));
        }
        if spec.what.row().family == Family::Pingpong {
            let seen = bench.words.slice(PING..PING + 1)?.to_vec()?[0];
            if seen != rounds.total() {
                return wrong(format!("{seen} of {} rounds were counted", rounds.total()));
            }
        }
    }
    if !is_target(bench, spec) {
        return Ok(());
    }
    let (begin, n) = (spec.shift as usize, spec.bytes as usize);
    let (source, last) = last(spec, rounds);
    let beside = |range: std::ops::Range<usize>| {
        Ok::<bool, Failure>(bench.to.slice(range)?.to_vec()?.iter().any(|&byte| byte != 0))
    };
    if beside(last..last + begin)? || beside(last + begin + n..last + begin + n + GUARD)? {
        return wrong("something was written beside the destination".into());
    }
    let (salt, other) = (bench.salt(), bench.peer());
    if matches!(spec.what.row().arrives, Arrives::Nothing) {
        return Ok(());
    }
    let expected = |i| match words(spec) {
        Some(of) => of(salt, i, rounds.total()),
        None => word(bench.seed, other, (source / 8) as u64 + i),
    };
    for range in looked_at(n, bench.seed) {
        let seen = bench.to.slice(last + begin + range.start..last + begin + range.end)?.to_vec()?;
        for (i, bytes) in seen.chunks(8).enumerate() {
            let i = range.start / 8 + i;
            let right = expected(i as u64).to_ne_bytes();
            if *bytes != right[..bytes.len()] {
                return wrong(format!("byte {} is wrong: {bytes:02x?} for {right:02x?}", 8 * i));
            }
        }
    }
    Ok(())
}

/// What is looked at of `n` bytes: all, or of more than `WHOLE` pieces at random, both ends and the middle:
/// the copy to the host takes longer than the measurement.
fn looked_at(n: usize, seed: u64) -> Vec<std::ops::Range<usize>> {
    const WHOLE: usize = 16 << 20;
    const PIECE: usize = 1 << 20;
    if n <= WHOLE {
        return std::iter::once(0..n).collect();
    }
    let places = n / PIECE;
    let random = (0..8).map(|k| (word(seed, rushmem::Pe::new(k), places as u64) % places as u64) as usize);
    let pieces =
        [0, places / 2, places - 1].into_iter().chain(random).map(|place| place * PIECE..(place + 1) * PIECE);
    pieces.chain(std::iter::once(places * PIECE..n)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_large_data_are_looked_at() {
        assert_eq!(looked_at(16 << 20, 7), std::iter::once(0..16 << 20).collect::<Vec<_>>());
        let n = (40 << 20) + 24;
        let pieces = looked_at(n, 7);
        assert!(pieces.iter().any(|piece| piece.start == 0) && pieces.iter().any(|piece| piece.end == n));
        assert!(pieces.iter().all(|piece| piece.end <= n && piece.start % 8 == 0));
        assert_ne!(pieces, looked_at(n, 8), "elsewhere in each run");
    }

    #[test]
    fn bits_are_set_and_cleared_one_a_round() {
        let (mut ones, mut zeros) = (0_u64, u64::MAX);
        for round in 0..130_u64 {
            assert_eq!((atomic("or")(9, 0, round), atomic("fetch_and")(9, 0, round)), (ones, zeros));
            ones |= 1 << (round & 63);
            zeros &= !(1 << (round & 63));
        }
    }
}
