//! What a CPU stream's thread does for each operation: the same as the host's own forms, later.

use std::sync::atomic::{fence, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use super::Work;
use crate::error::{err, Result};
use crate::health::Health;
use crate::kernel::stream::Job;
use crate::net::{Far, Place};
use crate::ops::signal::update_word;
use crate::ops::waitset::{Expected, WaitSet};
use crate::topology::near::Near;
use crate::word::{copy, copy_word, Word};
use crate::world::World;
use rushmem_abi::device::{RawState, SyncLine};

/// The job that carries out `work`.
pub(super) fn job(w: &World, what: &str, work: Work) -> Job {
    let state = w.kernels().state().raw();
    let shop = Shop {
        health: Arc::clone(w.health()),
        limit: w.config().wait_timeout,
        sync: Sync::new(state, Arc::clone(w.near())),
        far: w.far().cloned(),
    };
    let what = format!("{what} on a stream");
    let name = what.clone();
    Job { what, run: Box::new(move || shop.run(work).map_err(|e| e.context(name))) }
}

/// What the work needs of its world.
struct Shop {
    health: Arc<Health>,
    limit: Option<Duration>,
    sync: Sync,
    far: Option<Arc<Far>>,
}

impl Shop {
    fn far(&self) -> Result<&Arc<Far>> {
        self.far.as_ref().ok_or_else(|| err!(INTERNAL, "a far operation in a world without a network"))
    }

    fn run(&self, work: Work) -> Result<()> {
        // SAFETY, for each: `enqueue`'s caller vouches that the addresses are valid until the work is done.
        match work {
            // SAFETY: as above.
            Work::Copy { dst, src, bytes, .. } => unsafe { copy(dst as *mut u8, src as *const u8, bytes) },
            // SAFETY: as above.
            Work::CopyStrided { dst, src, shape, .. } => unsafe {
                shape.copy(dst as *mut u8, src as *const u8);
            },
            // SAFETY: as above.
            Work::Store { at, bits, bytes } => unsafe {
                match bytes {
                    1 => store::<u8>(at, bits),
                    2 => store::<u16>(at, bits),
                    4 => store::<u32>(at, bits),
                    _ => store::<u64>(at, bits),
                }
            },
            Work::PutSignal { dst, src, bytes, sig, op, .. } => {
                // SAFETY: as above.
                unsafe {
                    copy(dst as *mut u8, src as *const u8, bytes);
                    update_word(sig as *mut u8, op);
                }
            }
            // SAFETY: as above.
            Work::Signal { sig, op } => unsafe { update_word(sig as *mut u8, op) },
            Work::Wait { at, offset, kind, cmp, value } => {
                let place = |address: usize| match offset {
                    Some(offset) => format!("heap offset {offset:#x} (address {address:#x})"),
                    None => format!("address {address:#x}"),
                };
                let word = at as *const u8;
                // SAFETY: as above; an aligned word, and no other arrays.
                let set = unsafe { WaitSet::new(kind, word, 1, std::ptr::null(), cmp, Expected::One(value)) };
                let report = || format!("waits for {}", set.describe(0, &place));
                self.health.wait(self.limit, &report, &mut || set.holds(0))?;
                fence(Ordering::Acquire);
            }
            // SAFETY: as above.
            Work::Far(errand) => unsafe { errand.run(self.far()?)? },
            Work::Fence => {
                fence(Ordering::SeqCst);
                self.far.as_ref().map_or(Ok(()), |far| far.fence())?;
            }
            Work::Quiet => {
                self.far.as_ref().map_or(Ok(()), |far| far.quiet())?;
                fence(Ordering::SeqCst);
            }
            Work::Sync => self.sync.all(&self.health, self.limit, self.far.as_ref())?,
        }
        Ok(())
    }
}

/// # Safety
/// `at` is valid for a write of the word.
unsafe fn store<W: Word>(at: usize, bits: u64) {
    let value = W::from_bits(bits);
    // SAFETY: per contract, and a word of our own.
    unsafe { copy_word::<W>(at as *mut u8, (&raw const value).cast()) }
}

/// The device's sync of all PEs (`sync.h`), in which streams and kernels may meet: one line at every PE for each PE, which
/// tells how often that one has come.
struct Sync {
    me: i32,
    n: i32,
    near: Arc<Near>,
    base: usize,
    lines: usize,
    epochs: usize,
}

impl Sync {
    fn new(state: &RawState, near: Arc<Near>) -> Sync {
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

    fn all(&self, health: &Health, limit: Option<Duration>, far: Option<&Arc<Far>>) -> Result<()> {
        // SAFETY: this PE's own words, which one sync at a time uses; one at least.
        let counts = |i: usize| unsafe { AtomicU64::from_ptr((self.epochs as *mut u64).add(i)) };
        let epoch = counts(0).load(Ordering::Relaxed) + 1;
        (1..self.n as usize).for_each(|i| counts(i - 1).store(epoch, Ordering::Relaxed));
        let others = || (0..self.n).filter(|pe| *pe != self.me);
        fence(Ordering::SeqCst);
        for pe in others() {
            if let Some(distance) = self.near.distance(pe) {
                self.line(self.me, distance).store(epoch, Ordering::Relaxed);
                continue;
            }
            let far = far.ok_or_else(|| err!(INTERNAL, "PE {pe} is neither mapped nor on a network"))?;
            let line = self.lines + self.me as usize * size_of::<SyncLine>() - self.base;
            Place { far, pe: pe as usize, offset: line as u64 }.store(epoch, 8)?;
        }
        for pe in others() {
            let seen = || self.line(pe, 0).load(Ordering::Relaxed);
            let report = || {
                format!("waits for PE {pe} to come to sync {epoch} on its stream or in its kernel; it has come to {}", seen())
            };
            health.wait(limit, &report, &mut || seen() >= epoch)?;
        }
        fence(Ordering::SeqCst);
        Ok(())
    }
}
