//! What is asked of a peer, in the form in which it can wait behind a fence.

use crate::net::completion::Done;

/// The shape of a strided transfer, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) elem: usize,
    pub(crate) near_stride: isize,
    pub(crate) far_stride: isize,
    pub(crate) n: usize,
}

/// A copy of bytes between an address of this PE's and an offset of the peer's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transfer {
    pub(crate) near: usize,
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
    /// Completes when this PE's side is free again, or filled.
    pub(crate) done: Done,
}

/// An operation that a fence may hold back.
#[derive(Debug)]
pub(crate) enum Request {
    /// Records that change memory, encoded.
    Records(Vec<u8>),
    /// A record, encoded, whose answer is awaited under that number. It is open from its start until the
    /// answer has come.
    Ask { record: Vec<u8>, reply: u64 },
    /// A copy to the peer, announced by a signal if there is one: the record, encoded.
    Put { copy: Transfer, signal: Option<Vec<u8>> },
    /// A strided copy to the peer.
    PutRows { offset: u64, src: usize, rows: Rows, done: Done },
    /// A copy from the peer.
    Get(Transfer),
}
