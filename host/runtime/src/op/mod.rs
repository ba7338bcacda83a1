//! What is asked for: one value for one operation ([`Op`]), which is checked once ([`Op::check`]).
//!
//! A family of operations has a file: rma, strided, atomic, signal, wait. Puts and gets of all forms are one
//! operation each, of a [`Movement`], and so is what is made of them. An operation is made of addresses as
//! the caller gave them. The check looks at all of it (the PE, the ranges, alignment, that the job is whole)
//! before the first byte is written, and puts in place of each symmetric address the one by which the memory
//! is reached. What passes is a [`Checked`] operation, and [`crate::exec`] carries it out.
//!
//! This module knows no world: it asks for addresses through [`Reach`].

pub(crate) mod atomic;
pub(crate) mod movement;
pub(crate) mod rma;
pub(crate) mod signal;
pub(crate) mod strided;
pub(crate) mod team_call;
#[cfg(test)]
mod tests;
pub(crate) mod wait;
pub(crate) mod waitset;

use crate::error::{err, Error, Result};
use atomic::AtomicWord;
use movement::Movement;
use signal::Signal;

/// One operation on the memory of one PE.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Op {
    /// Bytes of this PE's go to the other one.
    Put(Movement),
    /// Bytes of the other PE's come here.
    Get(Movement),
    /// The low `bytes` (1, 2, 4 or 8) of `bits` are written, in one piece where `at` is aligned.
    P { at: usize, bits: u64, bytes: usize },
    /// A word of `bytes` (1, 2, 4 or 8) is read, in one piece where `at` is aligned.
    G { at: usize, bytes: usize },
    /// One word is read or updated.
    Atomic(AtomicWord),
    /// A signal word is updated.
    Signal(Signal),
    /// [`Op::Put`], and behind it the signal that announces all of it.
    PutSignal(Movement, Signal),
}

/// How the memory of a PE is reached, and so who carries an operation on it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reached {
    /// Host memory, mapped here: ordinary loads and stores reach it.
    Host,
    /// Host memory, mapped here, of a run whose operations are noted: checked, or traced.
    Noted,
    /// GPU memory, mapped for this PE's GPU.
    Gpu,
    /// Memory that is not mapped here: the network reaches it. Its addresses are offsets in the PE's stride.
    Net,
}

/// What a check asks of the world.
pub(crate) trait Reach {
    /// Where PE `pe`'s copy of `[at, at + bytes)` is reached, and how. Checks the PE, the range, and that the
    /// job is whole.
    fn reach(&self, at: usize, bytes: usize, pe: i32) -> Result<(usize, Reached)>;

    /// Where this PE itself has the range.
    fn own(&self, at: usize, bytes: usize) -> Result<usize>;

    /// The same of any memory of this PE's: `None` where it is not symmetric.
    fn own_if_symmetric(&self, at: usize, bytes: usize) -> Option<usize>;
}

/// The local side of a transfer: any memory of this PE's, its symmetric memory included.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Local {
    /// Where it is.
    pub(crate) at: usize,
    /// It is known to be symmetric, so that kernels of this PE's GPU reach it there. Looked up for streams of
    /// a GPU alone.
    pub(crate) symmetric: bool,
}

impl Local {
    /// As the caller gave it.
    #[inline(always)]
    pub(crate) fn given(at: usize) -> Local {
        Local { at, symmetric: false }
    }
}

/// An operation that has been checked: its symmetric addresses are those by which the memory is reached. Made
/// by [`Op::check`] alone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Checked {
    op: Op,
    way: Reached,
}

impl Checked {
    /// The operation, and how its memory is reached.
    #[inline(always)]
    pub(crate) fn into_parts(self) -> (Op, Reached) {
        (self.op, self.way)
    }
}

impl Op {
    /// Checks everything that can be checked. Inlined: where the caller's operation is a constant, what is
    /// left of this is that operation's checks.
    #[inline(always)]
    pub(crate) fn check(self, on: &impl Reach, pe: i32) -> Result<Checked> {
        let (op, way) = match self {
            Op::Put(put) => {
                let (put, way) = put.check_put(on, pe)?;
                (Op::Put(put), way)
            }
            Op::Get(get) => {
                let (get, way) = get.check_get(on, pe)?;
                (Op::Get(get), way)
            }
            Op::P { at, bits, bytes } => {
                rma::check_width("p", bytes)?;
                let (at, way) = on.reach(at, bytes, pe)?;
                (Op::P { at, bits, bytes }, way)
            }
            Op::G { at, bytes } => {
                rma::check_width("g", bytes)?;
                let (at, way) = on.reach(at, bytes, pe)?;
                (Op::G { at, bytes }, way)
            }
            Op::Atomic(atomic) => {
                let (atomic, way) = atomic.check(on, pe)?;
                (Op::Atomic(atomic), way)
            }
            Op::Signal(signal) => {
                let (signal, way) = signal.check(on, pe)?;
                (Op::Signal(signal), way)
            }
            Op::PutSignal(put, signal) => {
                let (signal, way) = signal.check(on, pe)?;
                let (put, _) = put.check_put(on, pe)?;
                (Op::PutSignal(put, signal), way)
            }
        };
        Ok(Checked { op, way })
    }

    /// Looks the local side up, if there is one: `find` is given its address and length.
    pub(crate) fn find_local(&mut self, find: impl Fn(usize, usize) -> Option<usize>) {
        let (bytes, moved) = match self {
            Op::Put(put) | Op::PutSignal(put, _) => (put.source_extent(), put),
            Op::Get(get) => (get.destination_extent(), get),
            Op::P { .. } | Op::G { .. } | Op::Atomic(_) | Op::Signal(_) => return,
        };
        if let Some(at) = find(moved.local().at, bytes) {
            *moved.local_mut() = Local { at, symmetric: true };
        }
    }

    /// The same as what it comes to: a put with a signal that has nothing to move is a signal. Host memory is
    /// reached without it, so that a caller's operation stays a constant there.
    pub(crate) fn simplified(self) -> Op {
        match self {
            Op::PutSignal(put, signal) if put.is_empty() => Op::Signal(signal),
            op => op,
        }
    }

    /// Whether nothing is to be done.
    #[inline]
    pub(crate) fn is_nothing(&self) -> bool {
        match self {
            Op::Put(moved) | Op::Get(moved) => moved.is_empty(),
            // A put with a signal that has nothing to move still signals.
            Op::P { .. } | Op::G { .. } | Op::Atomic(_) | Op::Signal(_) | Op::PutSignal(..) => false,
        }
    }

    /// Its name.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Op::Put(put) => put.names().put,
            Op::Get(get) => get.names().get,
            Op::P { .. } => "p",
            Op::G { .. } => "g",
            Op::Atomic(_) => "atomic",
            Op::Signal(_) => "signal_op",
            Op::PutSignal(put, _) => put.names().put_signal,
        }
    }
}

/// Checks a private (not necessarily symmetric) buffer as far as that can be known: not null, no wrap-around.
/// A buffer of no bytes may be anything.
#[inline(always)]
pub(crate) fn check_private(what: &'static str, address: usize, bytes: usize) -> Result<()> {
    // Of an array that is private nothing else is known. No process has addresses behind this one: with page
    // tables of five levels its half ends at 2^56 (Intel SDM 3A, 4.5), with ARM's at 2^52. And no array is
    // longer than what a process has without asking for more: 2^47 bytes, of four levels.
    const END: usize = 1 << 57;
    const LONGEST: usize = 1 << 47;
    let fits = bytes <= LONGEST && address <= END - bytes;
    if bytes == 0 || (address != 0 && fits) {
        return Ok(());
    }
    Err(not_private(what, address, bytes))
}

#[cold]
#[inline(never)]
fn not_private(what: &'static str, address: usize, bytes: usize) -> Error {
    if address == 0 {
        return err!(INVALID_ARGUMENT, "{what} is null, but {bytes} bytes are to be moved");
    }
    err!(
        INVALID_ARGUMENT,
        "{what} {address:#x} and a length of {bytes} bytes run past the end of the address space"
    )
}

/// Refuses an address that is not a multiple of the size of the word that lies there.
#[inline(always)]
pub(crate) fn check_aligned(what: &'static str, address: usize, word_bytes: usize) -> Result<()> {
    if address % word_bytes == 0 {
        return Ok(());
    }
    Err(not_aligned(what, address, word_bytes))
}

#[cold]
#[inline(never)]
fn not_aligned(what: &'static str, address: usize, word_bytes: usize) -> Error {
    err!(
        INVALID_ARGUMENT,
        "{what} {address:#x} is not aligned to its {word_bytes} bytes: an atomic access to it is not possible"
    )
}
