//! What the engine keeps of each other PE: messages on their way out and in, what is in flight, and what a fence holds back.
//!
//! To one peer there are two ways, and neither waits for the other: messages, carried out in the order of their numbers, and
//! one-sided copies, in no order at all. Three counters say how far each is: `changes` of records that change memory,
//! answered by the target (`acked`); `puts` of copies, flushed by the network (`flushed`); and `open`, operations that
//! will still send something, or whose answer is still to come. What is *settled* up to a point can be told from them alone,
//! and that is all that fence and quiet need.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::engine::{Done, Rows};

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
    /// Records, encoded; true where they change memory.
    Records { bytes: Vec<u8>, changes: bool },
    /// A copy to the peer, announced by a signal if there is one: the record, encoded.
    Put { copy: Transfer, signal: Option<Vec<u8>> },
    /// A strided copy to the peer.
    PutRows { offset: u64, src: usize, rows: Rows, done: Done },
    /// A copy from the peer.
    Get(Transfer),
}

/// Something in the queue of what is held back.
#[derive(Debug)]
pub(crate) enum Held {
    /// Nothing behind it starts before this is settled.
    Fence(Settle),
    /// A quiet waits for what is before it.
    Mark(usize),
    Op(Op),
}

/// A point in a peer's operations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settle {
    /// Operations numbered below are over.
    ops: u64,
    /// So many copies are flushed.
    puts: u64,
    /// So many changes are carried out; known once the operations are over, for they may yet send some.
    changes: Option<u64>,
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
    pub(crate) held: VecDeque<Held>,
    /// Operations that are not over, by number.
    pub(crate) open: BTreeSet<u64>,
    pub(crate) next_op: u64,
    pub(crate) puts: u64,
    pub(crate) flush_asked: u64,
    pub(crate) flushed: u64,
    pub(crate) changes: u64,
    pub(crate) ack_asked: u64,
    pub(crate) acked: u64,
    /// Copies to it wait until so many changes are carried out: a fence lies between.
    pub(crate) fenced: u64,
}

impl Peer {
    /// Begins an operation that is over when [`Peer::over`] says so.
    pub(crate) fn begin(&mut self) -> u64 {
        let op = self.next_op;
        self.next_op += 1;
        self.open.insert(op);
        op
    }

    pub(crate) fn over(&mut self, op: u64) {
        self.open.remove(&op);
    }

    /// The point that has been reached now.
    pub(crate) fn now(&self) -> Settle {
        Settle { ops: self.next_op, puts: self.puts, changes: None }
    }

    /// Nothing is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        self.held.is_empty()
            && self.open.is_empty()
            && self.flushed == self.puts
            && self.acked == self.changes
    }

    /// Whether `point` is settled; what to ask the network and the target for is left in `wanted`.
    pub(crate) fn settled(&self, point: &mut Settle, wanted: &mut Wanted) -> bool {
        if self.flushed < point.puts && self.flush_asked < point.puts {
            wanted.flush = true;
        }
        if self.open.first().is_some_and(|first| *first < point.ops) {
            return false;
        }
        let changes = *point.changes.get_or_insert(self.changes);
        if self.acked < changes && self.ack_asked < changes {
            wanted.ack = true;
        }
        self.flushed >= point.puts && self.acked >= changes
    }
}

/// What has to be asked for.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) flush: bool,
    pub(crate) ack: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_settled_when_all_before_it_is_and_nothing_else_matters() {
        let mut p = Peer::default();
        assert!(p.is_quiet());
        p.puts = 3;
        p.changes = 5;
        let op = p.begin();
        let mut point = p.now();
        p.puts = 4;
        p.changes = 6;
        let later = p.begin();
        let mut wanted = Wanted::default();
        assert!(!p.settled(&mut point, &mut wanted));
        assert!(wanted.flush && !wanted.ack, "changes may still come of the open operation");
        p.changes = 7;
        p.over(op);
        let mut wanted = Wanted::default();
        assert!(!p.settled(&mut point, &mut wanted) && wanted.ack);
        (p.flushed, p.acked) = (3, 7);
        assert!(p.settled(&mut point, &mut Wanted::default()));
        assert!(!p.is_quiet());
        p.over(later);
        p.flushed = 4;
        assert!(p.is_quiet());
    }
}
