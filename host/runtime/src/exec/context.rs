//! Contexts: a fence and a quiet of one say nothing of another's operations, nor wait for them.
//!
//! A thread *enters* a context, and its operations of the host on PEs that are not mapped are in it until it
//! enters another one. So the operations themselves have no argument more, and those on mapped PEs, which are
//! over when they return, cost nothing more. Streams' and kernels' operations are in the default context.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::order;
use super::Home;
use crate::error::{err, Result};
use crate::net::Lane;

thread_local! {
    /// The world whose context this thread has entered, and the context.
    static ENTERED: Cell<(u64, u64)> = const { Cell::new((0, Lane::DEFAULT)) };
}

/// A world's contexts but the default one. Numbers are given out once, so that a stale one is known.
#[derive(Debug)]
pub(crate) struct Contexts {
    /// Of the world.
    id: u64,
    live: Mutex<BTreeSet<u64>>,
}

impl Contexts {
    pub(crate) fn new() -> Contexts {
        Contexts { id: number(), live: Mutex::default() }
    }

    /// The context that this thread has entered.
    pub(crate) fn entered(&self) -> u64 {
        let (world, context) = ENTERED.get();
        if world == self.id {
            context
        } else {
            Lane::DEFAULT
        }
    }

    fn check(&self, context: u64) -> Result<()> {
        if context == Lane::DEFAULT || self.with(|live| live.contains(&context)) {
            return Ok(());
        }
        Err(err!(BAD_HANDLE, "{context} is no context: it was destroyed, or never made"))
    }

    fn with<T>(&self, what: impl FnOnce(&mut BTreeSet<u64>) -> T) -> T {
        what(&mut self.live.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One that was never given out before.
fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(Lane::DEFAULT + 1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Makes a context.
pub(crate) fn create(w: &impl Home) -> u64 {
    let made = number();
    w.contexts().with(|live| live.insert(made));
    made
}

/// This thread's operations are in the context from here on.
pub(crate) fn enter(w: &impl Home, context: u64) -> Result<()> {
    w.contexts().check(context)?;
    ENTERED.set((w.contexts().id, context));
    Ok(())
}

/// Orders the context's operations.
pub(crate) fn fence(w: &impl Home, context: u64) -> Result<()> {
    w.contexts().check(context)?;
    order::fence(w, context)
}

/// Completes the context's operations.
pub(crate) fn quiet(w: &impl Home, context: u64) -> Result<()> {
    w.contexts().check(context)?;
    order::quiet_of(w, Some(context))
}

/// Completes the context's operations, and ends it.
pub(crate) fn destroy(w: &impl Home, context: u64) -> Result<()> {
    if context == Lane::DEFAULT {
        return Err(err!(BAD_HANDLE, "the default context is not destroyed"));
    }
    quiet(w, context)?;
    if !w.contexts().with(|live| live.remove(&context)) {
        return Err(err!(BAD_HANDLE, "another thread has destroyed context {context}"));
    }
    if let Some(far) = w.far() {
        far.forget_context(context);
    }
    Ok(())
}
