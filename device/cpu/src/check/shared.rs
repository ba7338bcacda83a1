//! A block's shared memory: how far it goes, and which of its bytes the block has written. CUDA says nothing
//! of what it holds before.

use std::ops::Range;
use std::sync::Arc;

use super::fault::What;
use super::variables::{find, Accessed};
use crate::lines::Variable;

/// Bytes on either side of dynamic shared memory that belong to nobody.
pub(crate) const GUARD: usize = 4096;

/// The shared memory of one block.
pub(super) struct SharedMemory {
    dynamic: Range<usize>,
    statics: Range<usize>,
    /// Those in `statics`.
    variables: Arc<[Variable]>,
    /// A bit for each byte: of `dynamic`, and of `statics`.
    written: [Vec<u64>; 2],
}

impl SharedMemory {
    /// Dynamic shared memory, with [`GUARD`] bytes around it, and the module's thread-local variables.
    pub(super) fn new(dynamic: Range<usize>, statics: Range<usize>, variables: Arc<[Variable]>) -> Self {
        let written = [&dynamic, &statics].map(|range| vec![0; range.len().div_ceil(64)]);
        SharedMemory { dynamic, statics, variables, written }
    }

    /// Where it is.
    pub(super) fn ranges(&self) -> [&Range<usize>; 2] {
        [&self.dynamic, &self.statics]
    }

    /// Whether an address is in it.
    pub(super) fn has(&self, at: usize) -> bool {
        self.dynamic.contains(&at) || self.statics.contains(&at)
    }

    /// What is wrong with an access, whose bytes are written from now on if it is a write. A read of some
    /// bytes that were written and others that were not is nothing wrong: structs have padding.
    pub(super) fn judge(&mut self, at: usize, bytes: usize, write: bool) -> Option<What> {
        if self.statics.contains(&at) {
            return self.judge_static(at, bytes, write);
        }
        let Range { start, end } = self.dynamic;
        if at + bytes <= start - GUARD || at >= end + GUARD {
            return None;
        }
        if at < start || at + bytes > end {
            let past = if at < start { at as isize - start as isize } else { at as isize - end as isize };
            return Some(What::PastShared { name: None, size: end - start, past });
        }
        self.judge_bytes(0, at - start, bytes, write)
            .then_some(What::Unwritten { name: None, offset: at - start })
    }

    fn judge_static(&mut self, at: usize, bytes: usize, write: bool) -> Option<What> {
        let offset = at - self.statics.start;
        match find(&self.variables, offset, bytes) {
            Accessed::Unknown => None,
            Accessed::Beside(variable, past) => {
                let (name, size) = (Some(variable.name.clone()), variable.range.len());
                Some(What::PastShared { name, size, past })
            }
            Accessed::In(variable) => {
                let (start, name) = (variable.range.start, variable.name.clone());
                let unwritten = self.judge_bytes(1, offset, bytes, write);
                unwritten.then(|| What::Unwritten { name: Some(name), offset: offset - start })
            }
        }
    }

    /// Notes a write; whether a read finds nothing that was written.
    fn judge_bytes(&mut self, which: usize, offset: usize, bytes: usize, write: bool) -> bool {
        let written = &mut self.written[which];
        if write {
            (offset..offset + bytes).for_each(|byte| written[byte / 64] |= 1 << (byte % 64));
        }
        !write && (offset..offset + bytes).all(|byte| written[byte / 64] >> (byte % 64) & 1 == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(range: Range<usize>, name: &str, is_users: bool) -> Variable {
        Variable { range, name: name.into(), is_users }
    }

    #[test]
    fn accesses_are_of_written_bytes_inside() {
        let variables =
            [variable(0..8, "own", false), variable(16..48, "a", true), variable(64..68, "b", true)];
        let mut memory = SharedMemory::new(0x10000..0x10100, 0x20000..0x20044, variables.into());
        let past = |name: Option<&str>, size, past| {
            Some(What::PastShared { name: name.map(str::to_owned), size, past })
        };
        assert_eq!(memory.judge(0x10000, 4, false), Some(What::Unwritten { name: None, offset: 0 }));
        assert_eq!(memory.judge(0x10001, 1, true), None);
        assert_eq!(memory.judge(0x10000, 4, false), None, "padding may be read");
        assert_eq!(memory.judge(0x10004, 4, false), Some(What::Unwritten { name: None, offset: 4 }));
        assert_eq!(memory.judge(0x10100, 4, true), past(None, 256, 0));
        assert_eq!(memory.judge(0x100fe, 4, true), past(None, 256, -2));
        assert_eq!(memory.judge(0x0fffc, 4, true), past(None, 256, -4));
        assert_eq!(memory.judge(0x10100 + GUARD, 4, true), None, "that may be anybody's");
        assert_eq!(memory.judge(0x20000, 8, false), None, "the library's own");
        assert_eq!(
            memory.judge(0x20010, 4, false),
            Some(What::Unwritten { name: Some("a".into()), offset: 0 })
        );
        assert_eq!(memory.judge(0x20010, 32, true), None);
        assert_eq!(memory.judge(0x2002c, 4, false), None);
        assert_eq!(memory.judge(0x20030, 4, false), past(Some("a"), 32, 0));
        assert_eq!(memory.judge(0x20042, 4, true), past(Some("b"), 4, -2));
    }
}
