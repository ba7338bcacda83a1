//! Operations on mapped host memory: loads, stores and copies of this thread, complete here and there when
//! they return, so that the nbi forms are the blocking ones.
//!
//! Bulk goes through the C library's `memmove`, which is what `memcpy` is on the machines we know: it picks
//! the widest and, past the caches, the non-temporal stores, and fences those itself. Single words go as
//! single words, so that a word put is seen whole.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Executor, Form};
use crate::error::Result;
use crate::op::atomic::AtomicWord;
use crate::op::movement::Movement;
use crate::op::signal::SignalOp;
use crate::op::Op;
use crate::word::{copy, copy_word, Word};

/// The executor: the thread that calls.
pub(crate) struct MappedHost;

impl Executor for MappedHost {
    #[inline(always)]
    unsafe fn run(&self, op: Op, _form: Form) -> Result<u64> {
        // SAFETY: the check vouches for the other PE's side of each operation, the caller for this one's.
        unsafe {
            match op {
                Op::Put(data) => put(data),
                Op::Get(Movement::Bytes(t)) => copy(t.local.at as *mut u8, t.remote as *const u8, t.bytes),
                Op::Get(Movement::Elements(s)) => {
                    s.strides.copy(s.local.at as *mut u8, s.remote as *const u8);
                }
                Op::P { at, bits, bytes } => match bytes {
                    1 => store::<u8>(at, bits),
                    2 => store::<u16>(at, bits),
                    4 => store::<u32>(at, bits),
                    _ => store::<u64>(at, bits),
                },
                Op::G { at, bytes } => {
                    return Ok(match bytes {
                        1 => load::<u8>(at),
                        2 => load::<u16>(at),
                        4 => load::<u32>(at),
                        _ => load::<u64>(at),
                    })
                }
                Op::Atomic(a) => {
                    return Ok(match a.bytes {
                        4 => update::<u32>(a),
                        _ => update::<u64>(a),
                    })
                }
                Op::Signal(s) => signal(s.at, s.op),
                Op::PutSignal(data, s) => {
                    put(data);
                    signal(s.at, s.op);
                }
            }
        }
        Ok(0)
    }
}

/// # Safety
/// Both sides are valid for what moves.
#[inline(always)]
unsafe fn put(data: Movement) {
    // SAFETY: the caller vouches for both sides.
    unsafe {
        match data {
            Movement::Bytes(t) => copy(t.remote as *mut u8, t.local.at as *const u8, t.bytes),
            Movement::Elements(s) => s.strides.copy(s.remote as *mut u8, s.local.at as *const u8),
        }
    }
}

/// # Safety
/// `at` is valid for a write of the word.
#[inline(always)]
unsafe fn store<W: Word>(at: usize, bits: u64) {
    let value = W::from_bits(bits);
    // SAFETY: the caller vouches for the word there; the other is ours.
    unsafe { copy_word::<W>(at as *mut u8, (&raw const value).cast()) }
}

/// # Safety
/// `at` is valid for a read of the word.
#[inline(always)]
unsafe fn load<W: Word>(at: usize) -> u64 {
    let mut value = W::from_bits(0);
    // SAFETY: the caller vouches for the word there; the other is ours.
    unsafe { copy_word::<W>((&raw mut value).cast(), at as *const u8) };
    value.bits()
}

/// # Safety
/// The word is valid, aligned, and shared with nobody who holds a reference to it.
#[inline(always)]
unsafe fn update<W: Word>(a: AtomicWord) -> u64 {
    // SAFETY: the caller vouches for the word.
    unsafe { W::update(a.at as *mut u8, a.op.update(), W::from_bits(a.value), W::from_bits(a.compare)) }
        .bits()
}

/// Updates a signal word, releasing what this thread wrote before.
///
/// # Safety
/// The word is valid and aligned, and nobody holds a reference to it.
#[inline(always)]
unsafe fn signal(at: usize, op: SignalOp) {
    // SAFETY: the caller vouches for the word.
    let word = unsafe { AtomicU64::from_ptr(at as *mut u64) };
    match op {
        SignalOp::Set(value) => word.store(value, Ordering::Release),
        SignalOp::Add(value) => {
            word.fetch_add(value, Ordering::Release);
        }
    }
}
