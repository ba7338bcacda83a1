//! What the engine keeps of each other PE: messages on their way out and in, and the [order](crate::net::ordering::order) of operations.

use std::collections::BTreeMap;

use crate::net::engine::{Done, Rows};
use crate::net::ordering::order::Order;

/// A copy of bytes between an address of this PE's and an offset of the peer's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transfer {
    pub(crate) near: usize,
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
    /// Who hears that this PE's side is free again, or filled.
    pub(crate) done: Done,
}

/// An operation that a fence may hold back.
#[derive(Debug)]
pub(crate) enum Op {
    /// Records that change memory, encoded.
    Records(Vec<u8>),
    /// A record, encoded, whose answer is awaited under that number. It is open from its start until the answer has come.
    Ask { record: Vec<u8>, reply: u64 },
    /// A copy to the peer, announced by a signal if there is one: the record, encoded.
    Put { copy: Transfer, signal: Option<Vec<u8>> },
    /// A strided copy to the peer.
    PutRows { offset: u64, src: usize, rows: Rows, done: Done },
    /// A copy from the peer.
    Get(Transfer),
}

/// One other PE.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    /// The message being filled; empty: none is.
    pub(crate) out: Vec<u8>,
    /// Its number, once it is sent.
    pub(crate) next_out: u64,
    /// The number that comes next from there.
    pub(crate) next_in: u64,
    /// Messages that came too early.
    pub(crate) early: BTreeMap<u64, Vec<u8>>,
    pub(crate) order: Order<Op>,
}
