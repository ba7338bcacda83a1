//! What other PEs ask for, carried out on this PE's host memory: by plain copies, and by the same atomic
//! instructions that its own threads and its node mates use, so that all of them are atomic with one another.

use std::sync::atomic::{fence, Ordering};

use crate::error::{err, Result};
use crate::net::wire::message::FLOAT_ADD;
use crate::word::{Update, Word};

/// A word of `width` bytes, whole where it is aligned.
///
/// # Safety
/// `at` is valid for it.
pub(crate) unsafe fn store(at: usize, width: u8, value: u64) -> Result<()> {
    // SAFETY: the caller gives memory that is valid for it.
    unsafe {
        match width {
            1 => store_as::<u8>(at, value),
            2 => store_as::<u16>(at, value),
            4 => store_as::<u32>(at, value),
            8 => store_as::<u64>(at, value),
            _ => return Err(bad_width(width)),
        }
    }
    Ok(())
}

/// # Safety
/// As for [`store`].
unsafe fn store_as<W: Word>(at: usize, value: u64) {
    let value = W::from_bits(value);
    // SAFETY: the caller's memory is valid for the word; the value is one of the same width.
    unsafe { crate::word::copy_word::<W>(at as *mut u8, (&raw const value).cast()) };
}

/// The word of `width` bytes, up to 8, zero-extended.
///
/// # Safety
/// `at` is valid for it.
pub(crate) unsafe fn load(at: usize, width: u8) -> Result<u64> {
    // SAFETY: the caller gives memory that is valid for it.
    unsafe {
        Ok(match width {
            1 => load_as::<u8>(at),
            2 => load_as::<u16>(at),
            4 => load_as::<u32>(at),
            8 => load_as::<u64>(at),
            3 | 5..=7 => {
                let mut value = 0u64;
                std::ptr::copy(at as *const u8, (&raw mut value).cast(), width.into());
                value
            }
            _ => return Err(bad_width(width)),
        })
    }
}

/// # Safety
/// As for [`load`].
unsafe fn load_as<W: Word>(at: usize) -> u64 {
    let mut value = W::from_bits(0);
    // SAFETY: the caller's memory is valid for the word; the value is one of the same width.
    unsafe { crate::word::copy_word::<W>((&raw mut value).cast(), at as *const u8) };
    value.bits()
}

/// Bytes, those of an aligned word in one piece.
///
/// # Safety
/// Both sides are valid for `bytes`.
pub(crate) unsafe fn copy(dst: usize, src: usize, bytes: usize) {
    // SAFETY: the caller gives memory that is valid for it.
    unsafe { crate::word::copy(dst as *mut u8, src as *const u8, bytes) };
}

/// Appends bytes to `out`.
///
/// # Safety
/// `at` is valid for `bytes`.
pub(crate) unsafe fn read(at: usize, bytes: usize, out: &mut Vec<u8>) {
    let begin = out.len();
    out.resize(begin + bytes, 0);
    // SAFETY: the caller's memory is valid; the vector has just grown by as much.
    unsafe { copy(out[begin..].as_mut_ptr() as usize, at, bytes) };
}

/// An atomic as a message names it: an update's number, or [`FLOAT_ADD`]; the old value.
///
/// # Safety
/// `at` is valid for the word.
pub(crate) unsafe fn atomic(at: usize, width: u8, op: u8, value: u64, compare: u64) -> Result<u64> {
    if op == FLOAT_ADD {
        // SAFETY: the caller gives memory that is valid for it.
        return unsafe { add_float(at, width, value) };
    }
    let known = Update::from_number(op).ok_or_else(|| err!(INTERNAL, "another PE asked for atomic {op}"))?;
    // SAFETY: the caller gives memory that is valid for it.
    unsafe { update(at, width, known, value, compare) }
}

/// An atomic update (`RUSHMEM_ATOMIC_*`); the old value.
///
/// # Safety
/// `at` is valid for the word.
unsafe fn update(at: usize, width: u8, update: Update, value: u64, compare: u64) -> Result<u64> {
    if at % usize::from(width.max(1)) != 0 {
        return Err(err!(INVALID_ARGUMENT, "an atomic on a word at {at:#x} that is not aligned"));
    }
    // SAFETY: the caller's memory is valid for the word, and aligned.
    unsafe {
        Ok(match width {
            4 => u32::update(at as *mut u8, update, value as u32, compare as u32).bits(),
            8 => u64::update(at as *mut u8, update, value, compare).bits(),
            _ => return Err(bad_width(width)),
        })
    }
}

/// Adds to a floating-point word; the old value.
///
/// # Safety
/// `at` is valid for the word.
unsafe fn add_float(at: usize, width: u8, value: u64) -> Result<u64> {
    // SAFETY: the caller gives memory that is valid for it.
    let mut old = unsafe { load(at, width) }?;
    loop {
        let new = match width {
            4 => u64::from((f32::from_bits(old as u32) + f32::from_bits(value as u32)).to_bits()),
            _ => (f64::from_bits(old) + f64::from_bits(value)).to_bits(),
        };
        // SAFETY: the caller gives memory that is valid for it.
        let found = unsafe { update(at, width, Update::CompareSwap, new, old) }?;
        if found == old {
            return Ok(old);
        }
        old = found;
    }
}

/// Everything before is visible to a thread that sees the word change.
///
/// # Safety
/// `at` is valid for an aligned word of 8 bytes.
pub(crate) unsafe fn signal(at: usize, add: bool, value: u64) -> Result<()> {
    // What the network wrote came before the event that this thread has seen.
    fence(Ordering::Release);
    // SAFETY: the caller gives memory that is valid for it.
    unsafe { update(at, 8, if add { Update::Add } else { Update::Set }, value, 0) }.map(drop)
}

fn bad_width(width: u8) -> crate::error::Error {
    err!(INTERNAL, "another PE asked for a word of {width} bytes")
}
