//! Machine words in shared memory: the one place where a raw address becomes an atomic access.
//!
//! An operation cares about the width of its word, hardly ever about its sign, so four unsigned types carry
//! all element types; signed and floating-point values travel as bit patterns.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, AtomicU8, Ordering};

pub(crate) use rushmem_abi::table::Update;

/// An unsigned word that hardware reads, writes and updates in one piece.
///
/// # Safety
/// Here and below: `p` is aligned to the word and valid for reads and writes of it, and nobody holds a
/// reference to it.
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

/// Copies `bytes` that nobody reads soon, by stores that go past the caches where the processor has such: a
/// line is then not read only to be written over. What is stored after it is seen after it.
///
/// # Safety
/// Both sides are valid for `bytes`, and do not overlap.
pub(crate) unsafe fn copy_past_caches(dst: *mut u8, src: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
        const LINE: usize = 64;
        let head = dst.align_offset(LINE).min(bytes);
        let lines = (bytes - head) / LINE * LINE;
        // SAFETY: parts of both sides, which the caller vouches for; the destination's lines are aligned.
        // Every x86-64 processor has these instructions.
        unsafe {
            std::ptr::copy_nonoverlapping(src, dst, head);
            let (mut to, mut from) = (dst.add(head).cast::<__m128i>(), src.add(head).cast::<__m128i>());
            for _ in 0..lines / LINE {
                let line: [__m128i; 4] = std::array::from_fn(|i| _mm_loadu_si128(from.add(i)));
                (0..4).for_each(|i| _mm_stream_si128(to.add(i), line[i]));
                (to, from) = (to.add(4), from.add(4));
            }
            let done = head + lines;
            std::ptr::copy_nonoverlapping(src.add(done), dst.add(done), bytes - done);
            _mm_sfence();
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller vouches for both sides.
    unsafe {
        std::ptr::copy_nonoverlapping(src, dst, bytes)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_past_the_caches_copies_all_and_no_more() {
        let from: Vec<u8> = (0..1000u32).map(|i| (i * 7) as u8 | 1).collect();
        for (at, shift, bytes) in
            (0..70).flat_map(|at| [(at, at % 13, 0), (at, at % 7, 63), (at, 1, 64 + 3 * at), (at, 0, 900)])
        {
            let mut to = vec![0u8; 1100];
            // SAFETY: both are that long.
            unsafe { copy_past_caches(to.as_mut_ptr().add(at), from.as_ptr().add(shift), bytes) };
            assert_eq!(to[at..at + bytes], from[shift..shift + bytes]);
            assert!(to[..at].iter().chain(&to[at + bytes..]).all(|byte| *byte == 0), "{at} {bytes}");
        }
    }
}
