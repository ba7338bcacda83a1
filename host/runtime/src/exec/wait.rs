//! wait_until and test with their all, any, some and vector forms (OpenSHMEM 1.5, section 9.10).
//!
//! Polls are relaxed loads; the one acquire fence comes after success. Waiting goes through `Health::wait`,
//! so a stall is reported, a time limit holds, and the death of a PE ends it. A test that finds nothing in a
//! broken job is an error too, because a loop around it would never end.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::atomic::{fence, Ordering};
use std::time::Duration;

use rushmem_device_cpu::check::Location;

use super::gpu::Snapshot;
use super::Home;
use crate::error::Result;
use crate::op::check_aligned;
use crate::op::wait::{CheckedWords, Wait, Words};
use crate::op::waitset::{Expected, WaitSet};
use crate::trace::event::About;
use crate::word::Word;

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
    /// Checks the words, and looks at them for the first time.
    ///
    /// # Safety
    /// The arrays of `words` are valid for `n` elements while the set is used.
    pub(crate) unsafe fn new(w: &'a impl Home, words: &Words) -> Result<Watched<'a>> {
        let words = words.check(w)?;
        // SAFETY: the words have been checked; the caller vouches for the other arrays.
        unsafe { Watched::of(w, &words) }
    }

    /// # Safety
    /// The words have been checked; their arrays are valid for `n` elements while the set is used.
    unsafe fn of(w: &'a impl Home, words: &CheckedWords) -> Result<Watched<'a>> {
        let copy = match w.engine() {
            Some(engine) if words.n > 0 => Some(engine.snapshot(words.at, words.n * words.kind.bytes())?),
            _ => None,
        };
        let at = copy.as_ref().map_or(words.at as *const u8, Snapshot::as_ptr);
        let &CheckedWords { kind, n, status, cmp, expected, .. } = words;
        // SAFETY: the caller vouches for words and arrays; a copy is as long as the words and lives in the
        // same struct as the set.
        let set = unsafe { WaitSet::new(kind, at, n, status, cmp, expected) }.copied_from(words.at);
        let watched = Watched { set, copy };
        watched.refresh()?;
        Ok(watched)
    }

    /// Looks at the words anew.
    fn refresh(&self) -> Result<()> {
        self.copy.as_ref().map_or(Ok(()), Snapshot::refresh)
    }
}

/// Waits until every member has compared as asked. Each has to do so once, not all at one moment.
pub(crate) fn until_all(w: &impl Home, set: &Watched<'_>, timeout_ns: u64) -> Result<()> {
    let mut met = 0;
    wait(w, set, timeout_ns, &|| report(w, set, "all"), &mut || {
        met = set.first_unmet(met);
        met == set.len()
    })
}

/// Waits until one member compares as asked and returns its index; `None` when the set has no members.
pub(crate) fn until_any(w: &impl Home, set: &Watched<'_>, timeout_ns: u64) -> Result<Option<usize>> {
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
    w: &impl Home,
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

/// Waits on one signal word and returns the value that compared as asked.
pub(crate) fn until_value(w: &impl Home, wait_for: &Wait) -> Result<u64> {
    let &Wait { at, kind, cmp, value } = wait_for;
    let words =
        CheckedWords { kind, at, n: 1, status: std::ptr::null(), cmp, expected: Expected::One(value) };
    // SAFETY: the word has been checked, and there are no other arrays.
    let set = unsafe { Watched::of(w, &words) }?;
    let mut seen = 0;
    wait(w, &set, 0, &|| report(w, &set, "all"), &mut || {
        seen = set.seen(0);
        cmp.holds(seen, kind.decode(value))
    })?;
    Ok(seen as u64)
}

/// Reads a signal word of this PE, and acquires what it announces.
pub(crate) fn fetch(w: &impl Home, sig: usize) -> Result<u64> {
    check_aligned("the signal", sig, 8)?;
    let word = w.own(sig, 8)?;
    w.health().check()?;
    if let Some(check) = w.check() {
        check.note("signal_fetch", |notes| notes.waits(Location::At(word), 8));
    }
    // SAFETY: `own` vouches for the word, and it is aligned.
    unsafe {
        match w.engine() {
            None => Ok(u64::load(word as *const u8, Ordering::Acquire)),
            Some(engine) => engine.load(word, 8),
        }
    }
}

/// Whether every member compares as asked now; true for a set without members.
pub(crate) fn test_all(w: &impl Home, set: &Watched<'_>) -> Result<bool> {
    let done = set.first_unmet(0) == set.len();
    tested(w, set, done)?;
    Ok(done)
}

/// One member that compares as asked now.
pub(crate) fn test_any(w: &impl Home, set: &Watched<'_>) -> Result<Option<usize>> {
    let found = set.any(fair_start(set.len()));
    tested(w, set, found.is_some() || set.no_members())?;
    Ok(found)
}

/// Gives all members that compare as asked now to `take`.
pub(crate) fn test_some(w: &impl Home, set: &Watched<'_>, take: &mut dyn FnMut(usize)) -> Result<()> {
    let mut found = false;
    for i in set.some() {
        take(i);
        found = true;
    }
    tested(w, set, found || set.no_members())
}

/// The end of a test: acquire on success; on failure the job must still be able to make it come true.
fn tested(w: &impl Home, set: &WaitSet, success: bool) -> Result<()> {
    if success {
        fence(Ordering::Acquire);
        met(w, set);
        return Ok(());
    }
    w.health().check()
}

fn wait(
    w: &impl Home,
    set: &Watched<'_>,
    timeout_ns: u64,
    report: &dyn Fn() -> String,
    done: &mut dyn FnMut() -> bool,
) -> Result<()> {
    let _span = super::traced::call(w, "wait", "wait_until", || About {
        word: (set.len() > 0)
            .then(|| w.offset_of(set.word(set.first_unmet(0).min(set.len() - 1)).0))
            .flatten()
            .map(|at| at as u64),
        ..About::default()
    });
    let limit = match timeout_ns {
        0 => w.wait_limit(),
        ns => Some(Duration::from_nanos(ns)),
    };
    if done() {
        fence(Ordering::Acquire);
        met(w, set);
        return Ok(());
    }
    let mut outcome = Ok(());
    w.health().wait(limit, report, &mut || {
        outcome = set.refresh();
        outcome.is_err() || done()
    })?;
    fence(Ordering::Acquire);
    met(w, set);
    outcome
}

/// What a checked run learns of it.
fn met(w: &impl Home, set: &WaitSet) {
    if let Some(check) = w.check() {
        super::checked::waited(check, set);
    }
}

/// Where `any` begins to look. Multiples of the golden ratio (Weyl's sequence) spread evenly over `0..n`,
/// also along every regular subsequence of calls, so a word that stays satisfied is found in the long run
/// whatever else this thread waits on in between.
fn fair_start(n: usize) -> usize {
    thread_local!(static TURN: Cell<u64> = const { Cell::new(0) });
    let turn = TURN.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    TURN.set(turn);
    ((u128::from(turn) * n as u128) >> 64) as usize
}

/// An address, for texts; `offset` is its place in the heap, if it has one.
pub(super) fn place(address: usize, offset: Option<usize>) -> String {
    match offset {
        Some(offset) => format!("heap offset {offset:#x} (address {address:#x})"),
        None => format!("address {address:#x}"),
    }
}

/// What a stalled or timed out wait says, after who waits and for how long.
fn report(w: &impl Home, set: &WaitSet, need: &str) -> String {
    let place = |address: usize| place(address, w.offset_of(address));
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
