//! The device's sync of all PEs (`sync.h`), as a stream of the CPU does it. Streams and kernels meet in it:
//! each PE has one line for each other PE, which tells how often that one has come.

use std::sync::atomic::{fence, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use rushmem_device_cpu::check::{self, Location};

use crate::error::{err, Result};
use crate::exec::net::FarPe;
use crate::exec::{Executor, Form};
use crate::health::Health;
use crate::net::{Far, Lane};
use crate::op::Op;
use crate::topology::near::Near;
use rushmem_abi::device::{RawState, SyncLine};

/// What the sync needs to know of the world.
pub(super) struct Sync {
    me: i32,
    n: i32,
    near: Arc<Near>,
    base: usize,
    lines: usize,
    epochs: usize,
}

impl Sync {
    pub(super) fn new(state: &RawState, near: Arc<Near>) -> Sync {
        Sync {
            me: state.my_pe,
            n: state.n_pes,
            near,
            base: state.heap_base as usize,
            lines: state.sync_lines as usize,
            epochs: state.sync_epoch as usize,
        }
    }

    /// The count of `of`'s arrivals in the memory of the near PE that is `distance` away.
    fn line(&self, of: i32, distance: u64) -> &AtomicU64 {
        let line = (self.lines + of as usize * size_of::<SyncLine>()).wrapping_add(distance as usize);
        // SAFETY: that PE's heap is mapped, with `n` lines that begin with a word.
        unsafe { AtomicU64::from_ptr(line as *mut u64) }
    }

    /// Returns once every PE has come.
    pub(super) fn all(
        &self,
        health: &Health,
        limit: Option<Duration>,
        far: Option<&Arc<Far>>,
        check: Option<&Arc<check::World>>,
    ) -> Result<()> {
        let line = |pe: i32| self.lines - self.base + pe as usize * size_of::<SyncLine>();
        let others = || (0..self.n).filter(|pe| *pe != self.me);
        if let Some(check) = check {
            check.note("sync_all on a stream", |notes| {
                others().for_each(|pe| notes.signals(Location::Of(pe, line(self.me))));
            });
        }
        // SAFETY: this PE's own words, which one sync at a time uses; one at least.
        let counts = |i: usize| unsafe { AtomicU64::from_ptr((self.epochs as *mut u64).add(i)) };
        let epoch = counts(0).load(Ordering::Relaxed) + 1;
        (1..self.n as usize).for_each(|i| counts(i - 1).store(epoch, Ordering::Relaxed));
        fence(Ordering::SeqCst);
        for pe in others() {
            if let Some(distance) = self.near.distance(pe) {
                self.line(self.me, distance).store(epoch, Ordering::Relaxed);
                continue;
            }
            let far = far.ok_or_else(|| err!(INTERNAL, "PE {pe} is neither mapped nor on a network"))?;
            let line = self.lines + self.me as usize * size_of::<SyncLine>() - self.base;
            let arrival = Op::P { at: line, bits: epoch, bytes: 8 };
            // SAFETY: an offset in the PE's stride, where the lines are; no local memory.
            unsafe { FarPe { far, lane: Lane::to(pe as usize) }.run(arrival, Form::Nbi) }?;
        }
        for pe in others() {
            let seen = || self.line(pe, 0).load(Ordering::Relaxed);
            let report = || {
                let came = seen();
                format!(
                    "waits for PE {pe} to come to sync {epoch} on its stream or in its kernel; it has come to {came}"
                )
            };
            health.wait(limit, &report, &mut || seen() >= epoch)?;
        }
        fence(Ordering::SeqCst);
        if let Some(check) = check {
            check.note("sync_all on a stream", |notes| {
                others().for_each(|pe| notes.waits(Location::Of(self.me, line(pe)), 8));
            });
        }
        Ok(())
    }
}
