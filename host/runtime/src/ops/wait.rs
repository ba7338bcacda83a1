//! wait_until and test with their all, any, some and vector forms (OpenSHMEM 1.5, section 9.10).
//!
//! Polls are relaxed loads; the one acquire fence comes after success. Waiting goes through `Health::wait`, so a
//! stall is reported, a time limit holds, and the death of a PE ends it. A test that finds nothing in a broken
//! job is an error too, because a loop around it would never end.

use super::check_aligned;
use super::engine::Snapshot;
use super::waitset::{comparison, Cmp, Expected, Integer, WaitSet};
use crate::error::{err, Result};
use crate::world::World;
use std::cell::Cell;
use std::ops::Deref;
use std::sync::atomic::{fence, Ordering};
use std::time::Duration;

/// Unmet words that a report shows one by one.
const SHOWN: usize = 4;

/// A wait set and, where its words are a GPU's, the copy of them that the host looks at.
pub(crate) struct Watched<'a> {
    set: WaitSet,
    copy: Option<Snapshot<'a>>,
}

impl Deref for Watched<'_> {
    type Target = WaitSet;

    fn deref(&self) -> &WaitSet {
        &self.set
    }
}

impl<'a> Watched<'a> {
    /// The set of `n` words at `words`.
    ///
    /// # Safety
    /// The words are aligned, live symmetric memory of this PE; the other arrays are valid for `n` as long as the set is
    /// used.
    unsafe fn new(
        w: &'a World,
        kind: Integer,
        words: usize,
        n: usize,
        status: *const i32,
        cmp: Cmp,
        expected: Expected,
    ) -> Result<Watched<'a>> {
        let copy = match w.engine() {
            Some(engine) if n > 0 => Some(engine.snapshot(words, n * kind.bytes())?),
            _ => None,
        };
        let at = copy.as_ref().map_or(words as *const u8, Snapshot::as_ptr);
        // SAFETY: per contract; a copy is as long as the words and lives in the same struct as the set.
        let set = unsafe { WaitSet::new(kind, at, n, status, cmp, expected) }.copied_from(words);
        let watched = Watched { set, copy };
        watched.refresh()?;
        Ok(watched)
    }

    /// Looks at the words anew.
    fn refresh(&self) -> Result<()> {
        self.copy.as_ref().map_or(Ok(()), Snapshot::refresh)
    }
}

/// The arguments that wait and test have in common, as the C ABI takes them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    /// One of `RUSHMEM_INT32` to `RUSHMEM_UINT64`.
    pub(crate) kind: i32,
    /// The first word, in this PE's symmetric memory.
    pub(crate) ivars: usize,
    /// Number of words.
    pub(crate) n: usize,
    /// Non-zero excludes a word; null excludes none.
    pub(crate) status: *const i32,
    /// One of `RUSHMEM_CMP_*`.
    pub(crate) cmp: i32,
    /// What to compare with.
    pub(crate) expected: Expected,
}

impl Words {
    /// Checks everything that can be checked.
    ///
    /// # Safety
    /// The arrays are valid for `n` elements while the set is used.
    pub(crate) unsafe fn check<'a>(&self, w: &'a World) -> Result<Watched<'a>> {
        let kind = Integer::from_code(self.kind)?;
        let cmp = comparison(self.cmp)?;
        let n = self.n;
        let bytes = n.checked_mul(kind.bytes()).filter(|b| *b <= isize::MAX as usize).ok_or_else(|| {
            err!(INVALID_ARGUMENT, "{n} words of {} bytes are more than an address space", kind.bytes())
        })?;
        if n > 0 && self.ivars == 0 {
            return Err(err!(INVALID_ARGUMENT, "the address of the {n} words to wait on is null"));
        }
        if n > 0 && matches!(self.expected, Expected::Each(p) if p.is_null()) {
            return Err(err!(INVALID_ARGUMENT, "the array of {n} values to compare with is null"));
        }
        let words = if n == 0 { kind.bytes() } else { w.check_local(self.ivars, bytes)? };
        check_aligned("the word to wait on", words, kind.bytes())?;
        // SAFETY: `check_local` vouches for the words, the caller for the other arrays.
        unsafe { Watched::new(w, kind, words, n, self.status, cmp, self.expected) }
    }
}

/// Waits until every member has compared as asked. Each has to do so once, not all at one moment.
pub(crate) fn until_all(w: &World, set: &Watched<'_>, timeout_ns: u64) -> Result<()> {
    let mut met = 0;
    wait(w, set, timeout_ns, &|| report(w, set, "all"), &mut || {
        met = set.first_unmet(met);
        met == set.len()
    })
}

/// Waits until one member compares as asked and returns its index; `None` when the set has no members.
pub(crate) fn until_any(w: &World, set: &Watched<'_>, timeout_ns: u64) -> Result<Option<usize>> {
    if set.no_members() {
        return Ok(None);
    }
    let start = fair_start(set.len());
    let mut found = None;
    wait(w, set, timeout_ns, &|| report(w, set, "any"), &mut || {
        found = set.any(start);
        found.is_some()
    })?;
    Ok(found)
}

/// Waits until at least one member compares as asked and gives the indices of all that do to `take`.
pub(crate) fn until_some(
    w: &World,
    set: &Watched<'_>,
    timeout_ns: u64,
    take: &mut dyn FnMut(usize),
) -> Result<()> {
    if set.no_members() {
        return Ok(());
    }
    wait(w, set, timeout_ns, &|| report(w, set, "some"), &mut || {
        let mut found = false;
        for i in set.some() {
            take(i);
            found = true;
        }
        found
    })
}

/// Waits on one `u64` word and returns the value that compared as asked.
pub(crate) fn until_value(w: &World, sig: usize, cmp: Cmp, value: u64) -> Result<u64> {
    check_aligned("the signal", sig, 8)?;
    let word = w.check_local(sig, 8)?;
    // SAFETY: `check_local` vouches for the word, it is aligned, and there are no other arrays.
    let set = unsafe { Watched::new(w, Integer::U64, word, 1, std::ptr::null(), cmp, Expected::One(value)) }?;
    let mut seen = 0;
    wait(w, &set, 0, &|| report(w, &set, "all"), &mut || {
        seen = set.seen(0);
        cmp.holds(seen, value.into())
    })?;
    Ok(seen as u64)
}

/// Whether every member compares as asked now; true for a set without members.
pub(crate) fn test_all(w: &World, set: &Watched<'_>) -> Result<bool> {
    let done = set.first_unmet(0) == set.len();
    tested(w, done)?;
    Ok(done)
}

/// One member that compares as asked now.
pub(crate) fn test_any(w: &World, set: &Watched<'_>) -> Result<Option<usize>> {
    let found = set.any(fair_start(set.len()));
    tested(w, found.is_some() || set.no_members())?;
    Ok(found)
}

/// Gives all members that compare as asked now to `take`.
pub(crate) fn test_some(w: &World, set: &Watched<'_>, take: &mut dyn FnMut(usize)) -> Result<()> {
    let mut found = false;
    for i in set.some() {
        take(i);
        found = true;
    }
    tested(w, found || set.no_members())
}

/// The end of a test: acquire on success; on failure the job must still be able to make it come true.
fn tested(w: &World, success: bool) -> Result<()> {
    if success {
        fence(Ordering::Acquire);
        return Ok(());
    }
    w.health().check()
}

fn wait(
    w: &World,
    set: &Watched<'_>,
    timeout_ns: u64,
    report: &dyn Fn() -> String,
    done: &mut dyn FnMut() -> bool,
) -> Result<()> {
    let limit = match timeout_ns {
        0 => w.config().wait_timeout,
        ns => Some(Duration::from_nanos(ns)),
    };
    if done() {
        fence(Ordering::Acquire);
        return Ok(());
    }
    let mut outcome = Ok(());
    w.health().wait(limit, report, &mut || {
        outcome = set.refresh();
        outcome.is_err() || done()
    })?;
    fence(Ordering::Acquire);
    outcome
}

/// Where `any` begins to look. Multiples of the golden ratio (Weyl's sequence) spread evenly over `0..n`, also
/// along every regular subsequence of calls, so a word that stays satisfied is found in the long run whatever
/// else this thread waits on in between.
fn fair_start(n: usize) -> usize {
    thread_local!(static TURN: Cell<u64> = const { Cell::new(0) });
    let turn = TURN.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    TURN.set(turn);
    ((u128::from(turn) * n as u128) >> 64) as usize
}

/// What a stalled or timed out wait says, after who waits and for how long.
fn report(w: &World, set: &WaitSet, need: &str) -> String {
    let place = |address: usize| match w.offset_of(address) {
        Some(offset) => format!("heap offset {offset:#x} (address {address:#x})"),
        None => format!("address {address:#x}"),
    };
    if set.len() == 1 {
        return format!("waits for {}", set.describe(0, &place));
    }
    let members = set.members().count();
    let met = set.some().count();
    let unmet: Vec<String> = set
        .members()
        .filter(|i| !set.holds(*i))
        .take(SHOWN)
        .map(|i| format!("[{i}] {}", set.describe(i, &place)))
        .collect();
    let more = if members.saturating_sub(met) > unmet.len() { "; …" } else { "" };
    format!(
        "waits for {need} of {members} words ({} excluded), {met} satisfied; missing: {}{more}",
        set.len() - members,
        unmet.join("; ")
    )
}
