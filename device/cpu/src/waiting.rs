//! The text about a block that can never go on: which threads wait where.

use std::collections::BTreeMap;
use std::ffi::{c_char, CStr};
use std::fmt::Write;

use crate::context::{ThreadContext, WARP};
use crate::warp::Warp;

/// Groups reported in one text.
const GROUPS: usize = 8;
/// Threads named in one group.
const THREADS: usize = 4;

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct WaitPlace {
    line: u32,
    file: String,
    what: String,
    mask: Option<u32>,
}

/// `waiting` are the contexts of the threads that have not exited, all of them suspended in a barrier or a
/// warp collective; `total` counts the block's threads.
pub(crate) fn deadlock(waiting: &[ThreadContext], warps: &[Warp], total: usize) -> String {
    let mut places: BTreeMap<WaitPlace, Vec<&ThreadContext>> = BTreeMap::new();
    for thread in waiting {
        let mask = (thread.request == WARP).then_some(thread.mask);
        let place = WaitPlace { line: thread.line, file: text(thread.file), what: text(thread.what), mask };
        places.entry(place).or_default().push(thread);
    }
    let mut out = format!("deadlock: {} of {total} threads wait for each other", waiting.len());
    let gone = total - waiting.len();
    if gone > 0 {
        let _ = write!(out, " ({gone} have exited)");
    }
    for (place, threads) in places.iter().take(GROUPS) {
        let _ = write!(out, "; {} at {}:{} in {}", named(threads), place.file, place.line, place.what);
        if let Some(mask) = place.mask {
            let missing = missing_lanes(threads[0], waiting, warps);
            let _ = write!(out, " with mask {mask:#010x}, missing lanes {missing:#010x}");
        }
    }
    if places.len() > GROUPS {
        let _ = write!(out, "; and {} more places", places.len() - GROUPS);
    }
    out
}

/// The lanes that the exchange `thread` waits in still misses.
pub(crate) fn missing_lanes(thread: &ThreadContext, waiting: &[ThreadContext], warps: &[Warp]) -> u32 {
    let warp = thread.linear / 32;
    let here = |other: &&ThreadContext| {
        other.linear / 32 == warp && other.request == WARP && other.mask == thread.mask
    };
    let arrived = waiting.iter().filter(here).fold(0, |lanes, other| lanes | 1 << (other.linear % 32));
    thread.mask & warps[warp as usize].live() & !arrived
}

pub(crate) fn named(threads: &[&ThreadContext]) -> String {
    let mut out = format!("{} thread{}", threads.len(), if threads.len() == 1 { "" } else { "s" });
    for (i, thread) in threads.iter().take(THREADS).enumerate() {
        let [x, y, z] = thread.thread_idx;
        let _ = write!(out, "{}({x},{y},{z})", if i == 0 { " " } else { ", " });
    }
    if threads.len() > THREADS {
        out += ", …";
    }
    out
}

pub(crate) fn text(literal: *const c_char) -> String {
    // SAFETY: a string literal of the kernel's shared object, which stays loaded during the launch.
    unsafe { CStr::from_ptr(literal) }.to_string_lossy().into_owned()
}
