//! This PE's own memory as the engine sees it: host memory, where everything is done at once.

use super::message::FLOAT_ADD;
use super::target;
use crate::error::{err, Result};
use crate::word::Update;

/// Whom an answer goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) pe: usize,
    pub(crate) reply: u64,
}

/// The memory.
#[derive(Debug, Default)]
pub(crate) struct Local;

// Every address below has been checked against this PE's segments by the engine, or is a caller's own buffer; segments go only
// when no PE uses them any more.
impl Local {
    pub(super) fn store(&self, at: usize, width: u8, value: u64) -> Result<()> {
        // SAFETY: as said above.
        unsafe { target::store(at, width, value) }
    }

    pub(super) fn write(&self, at: usize, data: &[u8]) -> Result<()> {
        // SAFETY: as said above; `data` is a message's.
        unsafe { target::copy(at, data.as_ptr() as usize, data.len()) };
        Ok(())
    }

    pub(super) fn update(&self, at: usize, width: u8, op: u8, value: u64, compare: u64) -> Result<u64> {
        if op == FLOAT_ADD {
            // SAFETY: as said above.
            return unsafe { target::add_float(at, width, value) };
        }
        let update =
            Update::from_number(op).ok_or_else(|| err!(INTERNAL, "another PE asked for atomic {op}"))?;
        // SAFETY: as said above.
        unsafe { target::update(at, width, update, value, compare) }
    }

    pub(super) fn signal(&self, at: usize, add: bool, value: u64) -> Result<()> {
        // SAFETY: as said above.
        unsafe { target::signal(at, add, value) }
    }

    pub(super) fn load(&self, at: usize, width: u8) -> Result<u64> {
        // SAFETY: as said above.
        unsafe { target::load(at, width) }
    }

    pub(super) fn read(&self, at: usize, bytes: usize, out: &mut Vec<u8>) -> Result<()> {
        let begin = out.len();
        out.resize(begin + bytes, 0);
        // SAFETY: as said above; the vector has just grown by as much.
        unsafe { target::copy(out[begin..].as_mut_ptr() as usize, at, bytes) };
        Ok(())
    }

    /// An answer's data goes where the caller wanted it.
    pub(super) fn deliver(&self, at: usize, data: &[u8]) -> Result<()> {
        self.write(at, data)
    }
}
