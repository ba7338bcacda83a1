//! Memory ordering and barriers (OpenSHMEM 1.5, sections 9.9.1 and 9.11).
//!
//! To mapped peers every operation is a load or a store of this thread, so ordering is the processor's: fence
//! keeps earlier operations before later *writes*, quiet before later *reads* too. The writes that a plain
//! release fence would not cover, non-temporal ones of a bulk copy, are fenced by the C library's copy
//! itself.
//!
//! What went to PEs whose memory is not mapped is ordered and completed by the network's engine
//! ([`crate::net`]).
//!
//! On GPU memory all operations of a PE are on one stream: in order by themselves, complete when the stream
//! is idle.

use super::gpu::GpuEngine;
use super::{traced, Home};
use crate::error::Result;
use crate::trace::event::About;
use std::sync::atomic::{fence as cpu_fence, Ordering};

/// Whether all operations are this thread's own loads and stores, and nobody looks on.
#[inline]
fn is_plain(w: &impl Home) -> bool {
    w.trace().is_none() && w.check().is_none() && w.engine().is_none() && w.far().is_none()
}

/// Orders this PE's earlier puts, atomics and signals of a context before its later ones, to each PE.
#[inline]
pub(crate) fn fence(w: &impl Home, context: u64) -> Result<()> {
    if is_plain(w) {
        cpu_fence(Ordering::Release);
        return w.health().check();
    }
    fence_elsewhere(w, context)
}

fn fence_elsewhere(w: &impl Home, context: u64) -> Result<()> {
    let _span = traced::call(w, "order", "fence", About::default);
    if let Some(check) = w.check() {
        check.note("fence", |notes| notes.fence());
    }
    cpu_fence(Ordering::Release);
    if let Some(far) = w.far() {
        far.fence(context)?;
    }
    w.health().check()
}

/// Completes this PE's earlier operations at every PE: those of all contexts. A get after it cannot be served
/// from before it.
#[inline]
pub(crate) fn quiet(w: &impl Home) -> Result<()> {
    quiet_of(w, None)
}

/// The same of one context alone, to PEs that are not mapped.
#[inline]
pub(crate) fn quiet_of(w: &impl Home, context: Option<u64>) -> Result<()> {
    if is_plain(w) {
        cpu_fence(Ordering::SeqCst);
        return w.health().check();
    }
    quiet_elsewhere(w, context)
}

fn quiet_elsewhere(w: &impl Home, context: Option<u64>) -> Result<()> {
    let _span = traced::call(w, "order", "quiet", About::default);
    if let Some(check) = w.check() {
        check.note("quiet", |notes| notes.quiet());
    }
    cpu_fence(Ordering::SeqCst);
    w.engine().map_or(Ok(()), GpuEngine::quiet)?;
    if let Some(far) = w.far() {
        far.quiet(context)?;
        // What other PEs' answers tell has been written before.
        cpu_fence(Ordering::SeqCst);
    }
    w.health().check()
}
