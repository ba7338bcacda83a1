//! The fast path: loads and stores straight through the mapping of a near PE's heap, without a call.
//!
//! A near PE's copy of an address is a fixed distance away. The near PEs around this one that are numbered
//! one after the other (`rushmem_view_t`), which are all in most jobs, take one comparison and one
//! multiplication ([`Near`]). Everything else goes to the runtime, which knows the other near PEs of a host
//! whose numbers go otherwise, and words the errors: a call that came back here for an address would cost
//! every loop its registers.
//!
//! **Races.** A peer may write the same bytes at the same time; that peer is usually another process, but may
//! be another thread of this one. Single words (1, 2, 4 or 8 aligned bytes) are therefore relaxed atomics,
//! which a race cannot tear. Bulk copies are byte copies by `memmove` in a function that is never inlined:
//! the compiler sees opaque code over memory of which no Rust reference ever exists (lib.rs, "Safety"), so it
//! can conclude nothing from the absence of races; what a racing copy reads may mix old and new bytes, and
//! every element type accepts every bit pattern (`Symmetric`). That is the guarantee that C's shared-memory
//! libraries live by, and the most that the machine can give for a bulk transfer.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, AtomicU8, Ordering};

use rushmem_abi::c::rushmem_view_t;

use crate::{forked, Pe};

/// Puts and gets up to this many bytes may be unrolled into words instead of a call.
pub(crate) const SMALL: usize = 64;

/// How to reach near PEs' copies: what `rushmem_view_t` says, turned so that one multiplication does it.
/// Every view of symmetric memory carries a copy, so that a loop over it keeps these numbers in registers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Near {
    /// First PE of the run of near ones, and their number.
    first: u32,
    count: u32,
    /// From this PE's copy to that of `first`.
    delta: u64,
    /// From one PE's copy to the next one's.
    stride: u64,
}

impl Near {
    pub(crate) fn new(view: &rushmem_view_t) -> Near {
        let back = i64::from(view.near_first) - i64::from(view.my_pe);
        Near {
            first: view.near_first as u32,
            count: view.near_count as u32,
            delta: (back as u64).wrapping_mul(view.stride),
            stride: view.stride,
        }
    }

    /// Where `pe`'s copy of this PE's `address` is, when it is mapped here; `None` in a child of fork.
    #[inline(always)]
    pub(crate) fn at<T>(&self, address: *mut T, pe: Pe) -> Option<*mut T> {
        let slot = pe.number().wrapping_sub(self.first);
        if slot < self.count && !forked::is_child() {
            let distance = self.delta.wrapping_add(u64::from(slot).wrapping_mul(self.stride));
            Some(address.wrapping_byte_add(distance as usize))
        } else {
            None
        }
    }
}

/// Whether a `T` at `at`, which is aligned for a `T`, is aligned to its size. For most types no test is left
/// of it.
#[inline(always)]
fn is_word_aligned<T>(at: *mut T) -> bool {
    align_of::<T>() >= size_of::<T>() || (at as usize) % size_of::<T>() == 0
}

/// Stores one value of 1, 2, 4 or 8 bytes as one relaxed atomic; false where size or alignment forbid.
///
/// # Safety
/// `to` is mapped and writable for a `T`, and aligned for it; `T` has no padding.
#[inline(always)]
pub(crate) unsafe fn store_word<T: Copy>(to: *mut T, value: T) -> bool {
    let size = size_of::<T>();
    if !is_word_aligned(to) {
        return false;
    }
    // SAFETY: `to` is valid and aligned (just checked), and each transmute keeps the size (just matched).
    unsafe {
        match size {
            1 => AtomicU8::from_ptr(to.cast()).store(std::mem::transmute_copy(&value), Ordering::Relaxed),
            2 => AtomicU16::from_ptr(to.cast()).store(std::mem::transmute_copy(&value), Ordering::Relaxed),
            4 => AtomicU32::from_ptr(to.cast()).store(std::mem::transmute_copy(&value), Ordering::Relaxed),
            8 => AtomicU64::from_ptr(to.cast()).store(std::mem::transmute_copy(&value), Ordering::Relaxed),
            _ => return false,
        }
    }
    true
}

/// Loads one value of 1, 2, 4 or 8 bytes as one relaxed atomic; `None` where size or alignment forbid.
///
/// # Safety
/// `from` is mapped and readable for a `T`, and aligned for it; every bit pattern is a `T`.
#[inline(always)]
pub(crate) unsafe fn load_word<T: Copy>(from: *mut T) -> Option<T> {
    let size = size_of::<T>();
    if !is_word_aligned(from) {
        return None;
    }
    // SAFETY: `from` is valid and aligned (just checked), and each transmute keeps the size (just matched).
    unsafe {
        Some(match size {
            1 => std::mem::transmute_copy(&AtomicU8::from_ptr(from.cast()).load(Ordering::Relaxed)),
            2 => std::mem::transmute_copy(&AtomicU16::from_ptr(from.cast()).load(Ordering::Relaxed)),
            4 => std::mem::transmute_copy(&AtomicU32::from_ptr(from.cast()).load(Ordering::Relaxed)),
            8 => std::mem::transmute_copy(&AtomicU64::from_ptr(from.cast()).load(Ordering::Relaxed)),
            _ => return None,
        })
    }
}

/// Copies into shared memory: words where the copy is small and whole words, else `memmove`.
///
/// # Safety
/// `from` is readable and `to` is mapped and writable for `bytes` bytes.
#[inline(always)]
pub(crate) unsafe fn copy_in(to: *mut u8, from: *const u8, bytes: usize) {
    if bytes <= SMALL && (to as usize | bytes) & 7 == 0 {
        let (to, from) = (to.cast::<u64>(), from.cast::<u64>());
        for i in 0..bytes / 8 {
            // SAFETY: inside both ranges; `to` is aligned (just checked), `from` is read unaligned.
            unsafe { AtomicU64::from_ptr(to.add(i)).store(from.add(i).read_unaligned(), Ordering::Relaxed) };
        }
    } else {
        // SAFETY: by the caller's word.
        unsafe { copy(to, from, bytes) }
    }
}

/// Copies out of shared memory: words where the copy is small and whole words, else `memmove`.
///
/// # Safety
/// `from` is mapped and readable and `to` is writable for `bytes` bytes.
#[inline(always)]
pub(crate) unsafe fn copy_out(to: *mut u8, from: *mut u8, bytes: usize) {
    if bytes <= SMALL && (from as usize | bytes) & 7 == 0 {
        let (to, from) = (to.cast::<u64>(), from.cast::<u64>());
        for i in 0..bytes / 8 {
            // SAFETY: inside both ranges; `from` is aligned (just checked), `to` is written unaligned.
            unsafe { to.add(i).write_unaligned(AtomicU64::from_ptr(from.add(i)).load(Ordering::Relaxed)) };
        }
    } else {
        // SAFETY: by the caller's word.
        unsafe { copy(to, from, bytes) }
    }
}

/// The bulk copy. Never inlined: see the module's paragraph on races.
///
/// # Safety
/// `from` is readable and `to` is writable for `bytes` bytes.
#[inline(never)]
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: by the caller's word; `memmove` allows the ranges to overlap (a put to oneself).
    unsafe { std::ptr::copy(from, to, bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> rushmem_view_t {
        rushmem_view_t {
            my_pe: 5,
            n_pes: 12,
            near_first: 4,
            near_count: 4,
            heap_base: 0x10_0000,
            stride: 0x1000,
            broken: std::ptr::null(),
            device: rushmem_abi::c::RUSHMEM_DEVICE_CPU,
            gpu: -1,
        }
    }

    #[test]
    fn near_addresses_are_affine_and_stop_at_the_ends_of_the_run() {
        let at = |pe| Near::new(&view()).at(0x10_0010 as *mut u8, Pe::new(pe)).map(|p| p as usize);
        assert_eq!(at(3), None);
        assert_eq!(at(4), Some(0x0f_f010));
        assert_eq!(at(5), Some(0x10_0010));
        assert_eq!(at(7), Some(0x10_2010));
        assert_eq!(at(8), None);
        assert_eq!(at(u32::MAX), None);
        assert_eq!(at(1 << 31), None);
    }

    #[test]
    fn words_refuse_odd_sizes_and_addresses() {
        let mut memory = [0u64; 4];
        let base = memory.as_mut_ptr().cast::<u8>();
        // SAFETY: every address is inside `memory`, aligned for its type, with room for the value behind it.
        unsafe {
            assert!(store_word(base.add(8).cast(), 0x0102_0304_0506_0708_u64));
            assert!(!store_word(base.cast(), [1u8; 3]));
            assert!(!store_word(base.add(1).cast(), [1u8; 2]));
            assert!(store_word(base.add(2).cast(), [9u8, 8]));
            assert_eq!(load_word::<u64>(base.add(8).cast()), Some(0x0102_0304_0506_0708));
            assert_eq!(load_word::<[u8; 2]>(base.add(2).cast()), Some([9, 8]));
            assert_eq!(load_word::<[u16; 2]>(base.add(2).cast()), None);
            assert_eq!(load_word::<[u64; 2]>(base.cast()), None);
        }
    }

    #[test]
    fn small_and_bulk_copies_agree_at_every_size_and_alignment() {
        let source: Vec<u8> = (0..512u32).map(|i| (i * 37 + 11) as u8).collect();
        for bytes in (0..=SMALL + 17).chain([200, 256]) {
            for offset in [0, 1, 4, 8] {
                let mut into = [0u64; 64];
                let mut back = [0u8; 512];
                let to = into.as_mut_ptr().cast::<u8>().wrapping_add(offset);
                // SAFETY: 264 bytes at most, inside 512.
                unsafe {
                    copy_in(to, source.as_ptr().add(3), bytes);
                    copy_out(back.as_mut_ptr().add(5), to, bytes);
                }
                assert_eq!(back[5..5 + bytes], source[3..3 + bytes], "{bytes} bytes at offset {offset}");
                assert!(back[5 + bytes..].iter().all(|b| *b == 0));
            }
        }
    }
}
