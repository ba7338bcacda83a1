//! Machine words in shared memory: the one place where a raw address becomes an atomic access.
//!
//! An operation cares about the width of its word, hardly ever about its sign, so four unsigned types carry
//! all element types; signed and floating-point values travel as bit patterns.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, AtomicU8, Ordering};

pub(crate) use rushmem_abi::table::Update;

/// An unsigned word that hardware reads, writes and updates in one piece.
///
/// The unsafe methods want `p` aligned to the word, valid for reads and writes of it, and shared with nobody
/// who holds a reference to it.
pub(crate) trait Word: Copy {
    /// Truncates a bit pattern to this width.
    fn from_bits(bits: u64) -> Self;
    /// The bit pattern, zero-extended.
    fn bits(self) -> u64;
    /// An atomic load.
    unsafe fn load(p: *const u8, order: Ordering) -> Self;
    /// An atomic store.
    unsafe fn store(p: *mut u8, value: Self, order: Ordering);
    /// An atomic update; returns the old value (of `Set`, which has none to give, the new one).
    ///
    /// Loads acquire, stores release, read-modify-writes do both. OpenSHMEM asks for less (relaxed, because
    /// fence and quiet order everything else), but a lock taken by compare-and-swap or a flag polled by fetch
    /// has no call after it that could acquire, and users read the guarded data at once. On x86 the stronger
    /// form is the same instruction; on AArch64 it is another form of it. Sequential consistency would make
    /// `Set` a full fence and buys nothing that quiet does not already give.
    unsafe fn update(p: *mut u8, update: Update, value: Self, compare: Self) -> Self;
}

macro_rules! word {
    ($($int:ty, $atomic:ty;)*) => {$(
        impl Word for $int {
            fn from_bits(bits: u64) -> Self {
                bits as $int
            }

            fn bits(self) -> u64 {
                self.into()
            }

            #[inline]
            unsafe fn load(p: *const u8, order: Ordering) -> Self {
                // SAFETY: the caller vouches for alignment, validity and that all access is raw or atomic.
                unsafe { <$atomic>::from_ptr(p.cast_mut().cast()) }.load(order)
            }

            #[inline]
            unsafe fn store(p: *mut u8, value: Self, order: Ordering) {
                // SAFETY: the caller vouches for alignment, validity and that all access is raw or atomic.
                unsafe { <$atomic>::from_ptr(p.cast()) }.store(value, order)
            }

            #[inline]
            unsafe fn update(p: *mut u8, update: Update, value: Self, compare: Self) -> Self {
                // SAFETY: the caller vouches for alignment, validity and that all access is raw or atomic.
                let word = unsafe { <$atomic>::from_ptr(p.cast()) };
                match update {
                    Update::Fetch => word.load(Ordering::Acquire),
                    Update::Set => {
                        word.store(value, Ordering::Release);
                        value
                    }
                    Update::Swap => word.swap(value, Ordering::AcqRel),
                    Update::CompareSwap => word
                        .compare_exchange(compare, value, Ordering::AcqRel, Ordering::Acquire)
                        .unwrap_or_else(|old| old),
                    Update::Add => word.fetch_add(value, Ordering::AcqRel),
                    Update::And => word.fetch_and(value, Ordering::AcqRel),
                    Update::Or => word.fetch_or(value, Ordering::AcqRel),
                    Update::Xor => word.fetch_xor(value, Ordering::AcqRel),
                }
            }
        }
    )*};
}

word! {
    u8, AtomicU8;
    u16, AtomicU16;
    u32, AtomicU32;
    u64, AtomicU64;
}

/// Moves one word, in one piece where both sides are aligned, else byte by byte in no particular order.
///
/// # Safety
/// Both sides are valid for the word's size. They may overlap.
#[inline(always)]
pub(crate) unsafe fn copy_word<W: Word>(dst: *mut u8, src: *const u8) {
    let bytes = size_of::<W>();
    if (dst as usize | src as usize) % bytes == 0 {
        // SAFETY: aligned as just checked; the caller vouches for the rest.
        unsafe { W::store(dst, W::load(src, Ordering::Relaxed), Ordering::Relaxed) }
    } else {
        // SAFETY: the caller vouches for both sides.
        unsafe { std::ptr::copy(src, dst, bytes) }
    }
}

/// `memmove` that moves an aligned word in one piece.
///
/// # Safety
/// Both sides are valid for `bytes`, unless that is 0. They may overlap.
#[inline(always)]
pub(crate) unsafe fn copy(dst: *mut u8, src: *const u8, bytes: usize) {
    // SAFETY: the caller vouches for both sides.
    unsafe {
        match bytes {
            0 => {}
            1 => copy_word::<u8>(dst, src),
            2 => copy_word::<u16>(dst, src),
            4 => copy_word::<u32>(dst, src),
            8 => copy_word::<u64>(dst, src),
            _ => std::ptr::copy(src, dst, bytes),
        }
    }
}
