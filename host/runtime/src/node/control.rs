//! The control segment: one `memfd` that all PEs of a node map, through which their host calls meet.
//!
//! Each PE owns one slot that only it writes. A collective call is one round: the PE stores its arrival word
//! (call number and kind) in its own slot, then reads everybody's. One store and `n` loads, no central
//! counter; kinds that differ are an error on every PE, so a mismatched call is reported rather than a hang.
//! A call may carry four words of arguments, which the others read after the round.
//!
//! There is a slot for every PE of the job: those of other nodes are written by this node's leader, as it
//! hears of their arrivals.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::os::Memfd;

/// Which collective call a PE is in. The numbers meet in the arrival word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Call {
    Start = 1,
    BarrierAll,
    SyncAll,
    Alloc,
    Free,
    Register,
    Unregister,
    Finalize,
    /// A later round of a call that is already agreed on.
    Step,
}

impl Call {
    /// The call's name in the C ABI's words.
    pub(crate) fn name(code: u8) -> &'static str {
        match code {
            1 => "start-up",
            2 => "barrier_all",
            3 => "sync_all",
            4 => "alloc",
            5 => "free",
            6 => "register",
            7 => "unregister",
            8 => "finalize",
            9 => "a later step of alloc, free or register",
            _ => "an unknown call",
        }
    }
}

/// What a call carries for the others to compare.
pub(crate) type RoundWords = [u64; 4];

/// A PE has entered a collective call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// Of the call.
    pub(crate) number: u64,
    /// A [`Call`], and that of the call before it.
    pub(crate) kind: u8,
    pub(crate) previous: u8,
    pub(crate) words: RoundWords,
}

/// One PE's slot. The arrival word has its line to itself: everybody polls it.
#[repr(C, align(128))]
struct Slot {
    /// `number << 16 | previous kind << 8 | kind`. Two kinds, because a PE may be one call ahead of a slow
    /// reader.
    arrival: AtomicU64,
    _line: [u64; 15],
    /// Arguments of the even and of the odd calls: a PE gets at most one call ahead.
    words: [[AtomicU64; 4]; 2],
    _rest: [u64; 8],
}

/// The mapped segment.
#[derive(Debug)]
pub(crate) struct Control {
    base: *mut Slot,
    n: usize,
    me: usize,
    fd: OwnedFd,
}

// SAFETY: the mapping is only reached through atomics, and lives until drop.
unsafe impl Send for Control {}
// SAFETY: the mapping is only reached through atomics.
unsafe impl Sync for Control {}

impl Control {
    /// Bytes for the job's `n` PEs.
    fn bytes(n: usize) -> usize {
        n * std::mem::size_of::<Slot>()
    }

    /// Made by the node's leader.
    pub(crate) fn create(n: usize, me: usize) -> Result<Control> {
        Self::map(Memfd::create("rushmem-control", Self::bytes(n))?.into(), n, me)
    }

    /// Mapped by PE `me` from the leader's descriptor.
    pub(crate) fn open(fd: OwnedFd, n: usize, me: usize) -> Result<Control> {
        Self::map(fd, n, me)
    }

    fn map(fd: OwnedFd, n: usize, me: usize) -> Result<Control> {
        // SAFETY: a fresh shared mapping of a memfd of that size, which is sealed against shrinking.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                Self::bytes(n),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(Error::os("mapping the node's control segment"));
        }
        Ok(Control { base: base.cast(), n, me, fd })
    }

    /// The descriptor that the leader hands to the others.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn slot(&self, i: usize) -> &Slot {
        assert!(i < self.n);
        // SAFETY: `i` is in the mapping; the slot is atomics only, for which zeroes are values.
        unsafe { &*self.base.add(i) }
    }

    /// Announces that this PE has entered a call.
    #[inline]
    pub(crate) fn arrive(&self, arrival: &Arrival) {
        self.arrive_for(self.me, arrival);
    }

    /// The same of PE `pe` of another node. Only the leader of this node's PEs calls it, in the order of the
    /// calls.
    #[inline]
    pub(crate) fn arrive_for(&self, pe: usize, arrival: &Arrival) {
        let Arrival { number, kind, previous, words } = arrival;
        let slot = self.slot(pe);
        for (to, from) in slot.words[(number & 1) as usize].iter().zip(words) {
            to.store(*from, Ordering::Relaxed);
        }
        // Release: a PE that sees the arrival sees the arguments above and all earlier puts.
        slot.arrival.store(number << 16 | u64::from(*previous) << 8 | u64::from(*kind), Ordering::Release);
    }

    /// The kind under which slot `i` entered call `number`, once it has.
    #[inline]
    pub(crate) fn arrived(&self, i: usize, number: u64) -> Option<u8> {
        let word = self.slot(i).arrival.load(Ordering::Acquire);
        match (word >> 16).wrapping_sub(number) {
            0 => Some(word as u8),
            1 => Some((word >> 8) as u8),
            _ => None,
        }
    }

    /// The arguments that slot `i` gave to call `number`; only after [`Control::arrived`] said that it came.
    pub(crate) fn words(&self, i: usize, number: u64) -> RoundWords {
        let w = &self.slot(i).words[(number & 1) as usize];
        std::array::from_fn(|k| w[k].load(Ordering::Relaxed))
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`, of that size; no reference outlives `self`.
        unsafe { libc::munmap(self.base.cast(), Self::bytes(self.n)) };
    }
}
