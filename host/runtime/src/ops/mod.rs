//! The operations of the host: remote memory access, atomics, signals, waits and ordering.
//!
//! Everything here takes a [`World`](crate::world::World) and raw addresses, checks all of it before the first
//! byte is written, and then works on the address that `World::route` gives: by loads and stores where it is host
//! memory, through the [`engine`] where it is a GPU's. The C ABI in [`crate::capi`] is a
//! thin layer over these functions. Memory that a peer may touch at any time is only reached through raw
//! pointers and atomics, never through a reference.

pub(crate) mod atomic;
pub(crate) mod engine;
#[cfg(test)]
mod job_tests;
#[cfg(test)]
mod litmus_tests;
pub(crate) mod on_stream;
pub(crate) mod order;
pub(crate) mod rma;
pub(crate) mod signal;
#[cfg(test)]
mod tests;
pub(crate) mod wait;
#[cfg(test)]
mod wait_tests;
pub(crate) mod waitset;

use crate::error::{err, Result};

/// Checks a private (not necessarily symmetric) buffer as far as that can be known: not null, no wrap-around.
/// A buffer of no bytes may be anything.
fn check_private(what: &str, address: usize, bytes: usize) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    if address == 0 {
        return Err(err!(INVALID_ARGUMENT, "{what} is null, but {bytes} bytes are to be moved"));
    }
    if bytes > isize::MAX as usize || address.checked_add(bytes).is_none() {
        return Err(err!(
            INVALID_ARGUMENT,
            "{what} {address:#x} and a length of {bytes} bytes run past the end of the address space"
        ));
    }
    Ok(())
}

/// Refuses an address that is not a multiple of the size of the word that lies there.
fn check_aligned(what: &str, address: usize, word_bytes: usize) -> Result<()> {
    if address % word_bytes == 0 {
        return Ok(());
    }
    Err(err!(
        INVALID_ARGUMENT,
        "{what} {address:#x} is not aligned to its {word_bytes} bytes: an atomic access to it is not possible"
    ))
}

/// Refuses a null out-parameter.
pub(crate) fn check_out<T>(p: *mut T, what: &str) -> Result<*mut T> {
    if p.is_null() {
        return Err(err!(INVALID_ARGUMENT, "{what}, where the result goes, is null"));
    }
    Ok(p)
}
