//! What a put or a get moves: one value, whatever its form. All that an executor does with a put of one form
//! it does with every operation that is made of puts, such as a put with a signal.

use super::rma::Contiguous;
use super::strided::{Elements, Strides};
use super::{Local, Op, Reach, Reached};
use crate::error::Result;

/// Bytes on their way between this PE's memory and another one's. Which side is the source is for the
/// operation to say.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Movement {
    /// One range of bytes.
    Bytes(Contiguous),
    /// Elements at distances.
    Elements(Elements),
}

/// What the operations with a movement of one form are called.
pub(crate) struct Names {
    pub(crate) put: &'static str,
    pub(crate) get: &'static str,
    pub(crate) put_signal: &'static str,
    /// In a sentence.
    pub(crate) put_to: &'static str,
    pub(crate) get_from: &'static str,
}

impl Op {
    /// Copies `bytes` from private `src` to symmetric `dst`.
    #[inline(always)]
    pub(crate) fn put(dst: usize, src: usize, bytes: usize) -> Op {
        Op::Put(Movement::bytes(dst, src, bytes))
    }

    /// Copies `bytes` from symmetric `src` to private `dst`.
    #[inline(always)]
    pub(crate) fn get(dst: usize, src: usize, bytes: usize) -> Op {
        Op::Get(Movement::bytes(src, dst, bytes))
    }

    /// Copies elements of private `src` to elements of symmetric `dst`.
    #[inline(always)]
    pub(crate) fn iput(dst: usize, src: usize, strides: Strides) -> Op {
        Op::Put(Movement::elements(dst, src, strides))
    }

    /// Copies elements of symmetric `src` to elements of private `dst`.
    #[inline(always)]
    pub(crate) fn iget(dst: usize, src: usize, strides: Strides) -> Op {
        Op::Get(Movement::elements(src, dst, strides))
    }
}

impl Movement {
    /// `bytes` between `remote` on the other PE and `local` on this one.
    #[inline(always)]
    pub(crate) fn bytes(remote: usize, local: usize, bytes: usize) -> Movement {
        Movement::Bytes(Contiguous { remote, local: Local::given(local), bytes })
    }

    /// Elements between `remote` on the other PE and `local` on this one.
    #[inline(always)]
    pub(crate) fn elements(remote: usize, local: usize, strides: Strides) -> Movement {
        Movement::Elements(Elements { remote, local: Local::given(local), strides })
    }

    #[inline(always)]
    pub(super) fn check_put(self, on: &impl Reach, pe: i32) -> Result<(Movement, Reached)> {
        Ok(match self {
            Movement::Bytes(bytes) => {
                let (bytes, way) = bytes.check(on, pe, "the source")?;
                (Movement::Bytes(bytes), way)
            }
            Movement::Elements(elements) => {
                let (elements, way) = elements.check_put(on, pe)?;
                (Movement::Elements(elements), way)
            }
        })
    }

    #[inline(always)]
    pub(super) fn check_get(self, on: &impl Reach, pe: i32) -> Result<(Movement, Reached)> {
        Ok(match self {
            Movement::Bytes(bytes) => {
                let (bytes, way) = bytes.check(on, pe, "the destination")?;
                (Movement::Bytes(bytes), way)
            }
            Movement::Elements(elements) => {
                let (elements, way) = elements.check_get(on, pe)?;
                (Movement::Elements(elements), way)
            }
        })
    }

    /// Whether nothing moves.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Movement::Bytes(bytes) => bytes.bytes == 0,
            Movement::Elements(elements) => elements.strides.n == 0,
        }
    }

    /// How many bytes move.
    pub(crate) fn size(&self) -> usize {
        match self {
            Movement::Bytes(bytes) => bytes.bytes,
            Movement::Elements(Elements { strides, .. }) => strides.n * strides.elem,
        }
    }

    /// Where the other PE's side begins.
    pub(crate) fn remote(&self) -> usize {
        match self {
            Movement::Bytes(bytes) => bytes.remote,
            Movement::Elements(elements) => elements.remote,
        }
    }

    /// This PE's side.
    pub(crate) fn local(&self) -> Local {
        match self {
            Movement::Bytes(bytes) => bytes.local,
            Movement::Elements(elements) => elements.local,
        }
    }

    /// The same, to be changed.
    pub(super) fn local_mut(&mut self) -> &mut Local {
        match self {
            Movement::Bytes(bytes) => &mut bytes.local,
            Movement::Elements(elements) => &mut elements.local,
        }
    }

    /// Bytes from the first one that is read to the last one. Of a movement that has been checked.
    pub(super) fn source_extent(&self) -> usize {
        match self {
            Movement::Bytes(bytes) => bytes.bytes,
            Movement::Elements(Elements { strides, .. }) => {
                strides.extent("source", strides.src_stride).unwrap_or(0)
            }
        }
    }

    /// The same of those that are written.
    pub(super) fn destination_extent(&self) -> usize {
        match self {
            Movement::Bytes(bytes) => bytes.bytes,
            Movement::Elements(Elements { strides, .. }) => {
                strides.extent("destination", strides.dst_stride).unwrap_or(0)
            }
        }
    }

    /// Hands the ranges that are read to `take`, where the source begins at `first`.
    pub(crate) fn each_read(&self, first: usize, mut take: impl FnMut(usize, usize)) {
        match self {
            Movement::Bytes(bytes) => take(first, bytes.bytes),
            Movement::Elements(Elements { strides, .. }) => {
                strides.parts(strides.src_stride).for_each(|(offset, bytes)| take(first + offset, bytes));
            }
        }
    }

    /// The same of those that are written, where the destination begins at `first`.
    pub(crate) fn each_written(&self, first: usize, mut take: impl FnMut(usize, usize)) {
        match self {
            Movement::Bytes(bytes) => take(first, bytes.bytes),
            Movement::Elements(Elements { strides, .. }) => {
                strides.parts(strides.dst_stride).for_each(|(offset, bytes)| take(first + offset, bytes));
            }
        }
    }

    /// Its operations' names.
    pub(crate) fn names(&self) -> &'static Names {
        match self {
            Movement::Bytes(_) => &Names {
                put: "put",
                get: "get",
                put_signal: "put_signal",
                put_to: "a put to",
                get_from: "a get from",
            },
            Movement::Elements(_) => &Names {
                put: "iput",
                get: "iget",
                put_signal: "iput_signal",
                put_to: "a strided put to",
                get_from: "a strided get from",
            },
        }
    }
}
