//! The order of one PE's operations on one other PE: what a fence, a signal and a quiet stand for.
//!
//! There are two ways to a peer. Messages are carried out in the order of their numbers. One-sided copies
//! have no order at all. An operation goes through four states:
//!
//! - *held back*: it waits in the queue behind a fence. Nothing of it has happened and it has no number.
//! - *started*: its messages are written and its copies are with the network. If more is to follow (an
//!   answer, a chunk of GPU memory, the signal behind a copy) it is *open* under a number until that has been
//!   sent or has come.
//! - *complete here*: its source is free, or its result has come. Only the caller needs to know this.
//! - *settled*: it is in the peer's memory. `puts` copies have been started and `flushed` of them have
//!   arrived, as the network says; `changes` messages that change memory have been sent and `acked` of them
//!   are carried out, as the peer says.
//!
//! **The rules.**
//!
//! 1. While the queue is not empty, nothing starts but the operation at its front. So the queue keeps the
//!    order of the calls.
//! 2. An operation takes its number when it starts, never while it is held back.
//! 3. An open operation counts what it sends (`puts`, `changes`) before it closes.
//! 4. A fence or a quiet in the queue takes its [`Point`] when it comes to the front.
//!
//! **The argument.** By 1 and 2, when a fence comes to the front, the operations that have a number are
//! exactly those asked for before it. By 3, once the open ones among them have closed, `puts` and `changes`
//! cover all that they send. So the point is settled when, and only when, everything before the fence is in
//! the peer's memory, and nothing behind the fence has started by then. That is the fence's promise
//! (OpenSHMEM 1.5, section 9.11), and a quiet's for what is before it.
//!
//! A point taken earlier, when the fence is asked for, misses what waits in front of it. A point taken at the
//! front with operations numbered while they are held back waits for itself. Rules 2 and 4 exclude both.
//!
//! **It always ends.** A fence at the front waits for started operations alone. These end by what the network
//! and the peer do: flushes, acknowledgements and answers are never held back.
//!
//! **What needs no waiting.** If only messages are under way, a fence leaves a mark, `fenced`: later messages
//! keep their order by themselves, and only a later one-sided copy has to wait. A signal behind its own copy
//! waits for that copy's flush, and no other operation waits with it.
//!
//! `engine/order_tests` runs small programs in every order of the network's events against this text.

use std::collections::{BTreeSet, VecDeque};

/// Something in the queue.
#[derive(Debug)]
pub(in crate::net) enum Held<T> {
    /// Nothing behind it starts before all in front of it is settled. The point is known once it has come to
    /// the front.
    Fence(Option<Point>),
    /// This quiet waits for what is in front of it.
    Quiet(usize),
    Op(T),
}

/// What has been started up to some moment.
#[derive(Debug, Clone, Copy)]
pub(in crate::net) struct Point {
    /// Operations numbered below are over.
    ops: u64,
    /// So many copies have arrived.
    puts: u64,
    /// So many changes are carried out; known once the operations are over, for they may yet send some.
    changes: Option<u64>,
}

/// What has to be asked for before a point can be settled.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(in crate::net) struct Wanted {
    /// The network's word that copies have arrived.
    pub(in crate::net) flush: bool,
    /// The peer's word that messages are carried out.
    pub(in crate::net) ack: bool,
}

/// What may happen next.
#[derive(Debug)]
pub(in crate::net) enum Next<T> {
    /// Nothing is held back.
    Nothing,
    /// This operation starts.
    Start(T),
    /// The quiet waits for this point.
    Quiet(usize, Point),
    /// A fence waits; this is to be asked for.
    Wait(Wanted),
}

/// The order of operations `T` on one peer.
#[derive(Debug)]
pub(in crate::net) struct Order<T> {
    queue: VecDeque<Held<T>>,
    /// Numbers of operations that are open.
    open: BTreeSet<u64>,
    next_op: u64,
    puts: u64,
    flush_asked: u64,
    flushed: u64,
    changes: u64,
    ack_asked: u64,
    acked: u64,
    /// Copies wait until so many changes are carried out: a fence lies between.
    fenced: u64,
}

impl<T> Default for Order<T> {
    fn default() -> Self {
        Order {
            queue: VecDeque::new(),
            open: BTreeSet::new(),
            next_op: 0,
            puts: 0,
            flush_asked: 0,
            flushed: 0,
            changes: 0,
            ack_asked: 0,
            acked: 0,
            fenced: 0,
        }
    }
}

impl<T> Order<T> {
    /// Opens an operation that has started, until [`Order::close`].
    pub(in crate::net) fn begin(&mut self) -> u64 {
        let op = self.next_op;
        self.next_op += 1;
        self.open.insert(op);
        op
    }

    /// The operation sends nothing any more, and its answer has come.
    pub(in crate::net) fn close(&mut self, op: u64) {
        self.open.remove(&op);
    }

    /// A message that changes the peer's memory has been written.
    #[inline]
    pub(in crate::net) fn changed(&mut self) {
        self.changes += 1;
    }

    /// A one-sided copy to the peer has been started.
    pub(in crate::net) fn copying(&mut self) {
        self.puts += 1;
    }

    /// One-sided copies started so far.
    pub(in crate::net) fn copies(&self) -> u64 {
        self.puts
    }

    /// The network has been asked about all copies so far; how many that is.
    pub(in crate::net) fn asks_flush(&mut self) -> u64 {
        self.flush_asked = self.puts;
        self.puts
    }

    /// So many copies have arrived.
    pub(in crate::net) fn flushed(&mut self, puts: u64) {
        self.flushed = self.flushed.max(puts);
    }

    /// The peer has been asked about all changes so far; how many that is.
    pub(in crate::net) fn asks_ack(&mut self) -> u64 {
        self.ack_asked = self.changes;
        self.changes
    }

    /// So many changes are carried out.
    pub(in crate::net) fn acked(&mut self, changes: u64) {
        self.acked = self.acked.max(changes);
    }

    /// Operations and fences that are held back.
    pub(in crate::net) fn held(&self) -> usize {
        self.queue.len()
    }

    /// Nothing is under way, and nothing is held back.
    pub(in crate::net) fn is_quiet(&self) -> bool {
        self.queue.is_empty()
            && self.open.is_empty()
            && self.flushed == self.puts
            && self.acked == self.changes
    }

    /// What is asked for from here on happens after what was asked for before. True where something has to
    /// wait for it.
    pub(in crate::net) fn fence(&mut self) -> bool {
        if self.is_quiet() || matches!(self.queue.back(), Some(Held::Fence(_))) {
            return false;
        }
        if self.queue.is_empty() && self.open.is_empty() && self.flushed == self.puts {
            // Only messages, which keep their order among themselves.
            self.fenced = self.changes;
            return false;
        }
        self.queue.push_back(Held::Fence(None));
        true
    }

    /// Whether an operation may start now. `copies`: it may use one-sided copies to the peer.
    pub(in crate::net) fn may_start(&mut self, copies: bool) -> bool {
        if self.queue.is_empty() && copies && self.acked < self.fenced {
            self.queue.push_back(Held::Fence(None));
        }
        self.queue.is_empty()
    }

    /// Holds an operation back that may not start.
    pub(in crate::net) fn hold(&mut self, op: T) {
        self.queue.push_back(Held::Op(op));
    }

    /// The point for which a quiet has to wait; `None` where it is known later, by [`Next::Quiet`].
    pub(in crate::net) fn quiet(&mut self, quiet: usize) -> Option<Point> {
        if self.queue.is_empty() {
            return Some(self.now());
        }
        self.queue.push_back(Held::Quiet(quiet));
        None
    }

    /// Takes the next thing out of the queue that need not wait.
    pub(in crate::net) fn next(&mut self) -> Next<T> {
        loop {
            let now = self.now();
            match self.queue.front_mut() {
                None => return Next::Nothing,
                Some(Held::Fence(point)) => {
                    let mut point = *point.get_or_insert(now);
                    let mut wanted = Wanted::default();
                    let settled = self.settled(&mut point, &mut wanted);
                    if !settled {
                        self.queue[0] = Held::Fence(Some(point));
                        return Next::Wait(wanted);
                    }
                    self.queue.pop_front();
                }
                Some(Held::Quiet(quiet)) => {
                    let quiet = *quiet;
                    self.queue.pop_front();
                    return Next::Quiet(quiet, now);
                }
                Some(Held::Op(_)) => {
                    let Some(Held::Op(op)) = self.queue.pop_front() else { return Next::Nothing };
                    return Next::Start(op);
                }
            }
        }
    }

    /// Whether `point` is settled; what to ask for is left in `wanted`.
    pub(in crate::net) fn settled(&self, point: &mut Point, wanted: &mut Wanted) -> bool {
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

    /// What has been started by now.
    fn now(&self) -> Point {
        Point { ops: self.next_op, puts: self.puts, changes: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_settled_when_all_before_it_is_and_nothing_else_matters() {
        let mut order = Order::<()>::default();
        assert!(order.is_quiet());
        (order.puts, order.changes) = (3, 5);
        let op = order.begin();
        let mut point = order.now();
        (order.puts, order.changes) = (4, 6);
        let later = order.begin();
        let mut wanted = Wanted::default();
        assert!(!order.settled(&mut point, &mut wanted));
        assert!(wanted.flush && !wanted.ack, "changes may still come of the open operation");
        order.changes = 7;
        order.close(op);
        let mut wanted = Wanted::default();
        assert!(!order.settled(&mut point, &mut wanted) && wanted.ack);
        order.flushed(3);
        order.acked(7);
        assert!(order.settled(&mut point, &mut Wanted::default()));
        assert!(!order.is_quiet());
        order.close(later);
        order.flushed(4);
        assert!(order.is_quiet());
    }

    #[test]
    fn a_quiet_takes_its_point_behind_what_is_held_back() {
        let mut order = Order::<char>::default();
        assert!(order.quiet(1).is_some(), "nothing is held back");
        order.copying();
        assert!(order.fence());
        order.hold('b');
        assert!(order.quiet(2).is_none());
        assert!(matches!(order.next(), Next::Wait(_)));
        order.flushed(1);
        assert!(matches!(order.next(), Next::Start('b')));
        order.copying();
        let Next::Quiet(2, mut point) = order.next() else { panic!("the quiet is next") };
        assert!(!order.settled(&mut point, &mut Wanted::default()), "the second copy is under way");
        order.flushed(2);
        assert!(order.settled(&mut point, &mut Wanted::default()));
    }

    #[test]
    fn a_second_fence_covers_what_the_first_one_held_back() {
        let mut order = Order::<char>::default();
        assert!(order.may_start(true));
        order.copying();
        assert!(order.fence());
        assert!(!order.may_start(true));
        order.hold('b');
        assert!(order.fence());
        assert!(!order.may_start(true));
        order.hold('c');
        assert!(matches!(order.next(), Next::Wait(Wanted { flush: true, ack: false })));
        assert_eq!(order.asks_flush(), 1);
        order.flushed(1);
        assert!(matches!(order.next(), Next::Start('b')));
        order.copying();
        // The first copy's flush says nothing of the second copy.
        assert!(matches!(order.next(), Next::Wait(Wanted { flush: true, ack: false })));
        assert_eq!(order.asks_flush(), 2);
        order.flushed(2);
        assert!(matches!(order.next(), Next::Start('c')));
    }
}
