//! What a network gives the engine: one-sided copies to registered memory, active messages, and reports of
//! what has completed. Nothing is ordered with anything else, and nothing blocks; order and replies are the
//! [engine](crate::net::engine)'s. `conformance` puts every transport through this contract.

#[cfg(test)]
mod conformance;
pub(in crate::net) mod fake;
#[cfg(any(test, feature = "fuzzing"))]
pub(in crate::net) mod stand_in;
pub(crate) mod ucx;

use std::os::fd::RawFd;

use crate::error::{Error, Result};

/// What the engine calls an operation in flight; it comes back in [`Event::Done`].
pub(crate) type Token = u64;

/// What may have happened since the last look.
#[derive(Debug)]
pub(crate) enum Event {
    /// An active message of some PE, whole.
    Message(Vec<u8>),
    /// A large message: its head, and where its data is. [`Transport::receive`] takes the data, in any order.
    Bulk { head: Vec<u8>, bytes: usize, data: BulkId },
    /// The operation is complete here: the local buffer is free (put, message), filled (get, bulk), or, for a
    /// flush, everything before it has arrived.
    Done(Token),
    /// It is not, and never will be.
    Failed(Token, Error),
    /// Nothing goes to or comes from that PE any more.
    Lost(usize, Error),
}

/// Names the data of a large message that has been announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct BulkId(pub(crate) u64);

/// Most bytes of a message.
pub(crate) const MESSAGE: usize = 4096;
/// Bytes of a large message's head.
pub(crate) const BULK_HEAD: usize = 32;

/// Memory of another PE: an address in one of its segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Remote {
    pub(crate) pe: usize,
    pub(crate) segment: u32,
    pub(crate) address: u64,
}

/// Memory of this PE that others may reach.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) address: usize,
    pub(crate) bytes: usize,
    /// It is a GPU's.
    pub(crate) gpu: bool,
    /// It is one allocation: a GPU's can be registered then.
    pub(crate) single: bool,
}

/// A way to PEs whose memory is not mapped. One thread at a time uses it.
pub(crate) trait Transport: Send {
    /// For logs and `rushmem-info`: `ucx`, `fake`.
    fn name(&self) -> &'static str;

    /// More about it, for people: version, file.
    fn about(&self) -> String;

    /// What other PEs need in order to connect.
    fn address(&self) -> Result<Vec<u8>>;

    /// The addresses of all PEs. Connections are made when they are first used.
    fn learn_addresses(&mut self, addresses: Vec<Vec<u8>>);

    /// Makes `memory` reachable as segment `id`; what others need for that.
    ///
    /// # Safety
    /// The memory stays until [`Transport::forget`].
    unsafe fn register(&mut self, id: u32, memory: Memory) -> Result<Vec<u8>>;

    /// Every PE's key to its segment `id`; an empty one: not reachable.
    fn learn_keys(&mut self, id: u32, keys: Vec<Vec<u8>>);

    /// Segment `id` is not used any more, here or there.
    fn forget(&mut self, id: u32);

    /// Starts a copy to another PE. `Ok(true)`: the source is free already, and no event comes.
    ///
    /// # Safety
    /// `src` is valid for `bytes` until then.
    unsafe fn put(&mut self, to: Remote, src: *const u8, bytes: usize, token: Token) -> Result<bool>;

    /// Starts a copy from another PE. `Ok(true)`: the data is here already, and no event comes.
    ///
    /// # Safety
    /// `dst` is valid for `bytes` until then.
    unsafe fn get(&mut self, from: Remote, dst: *mut u8, bytes: usize, token: Token) -> Result<bool>;

    /// Sends a message of at most [`MESSAGE`] bytes.
    fn send(&mut self, pe: usize, message: Vec<u8>) -> Result<()>;

    /// Sends a large one: a head, and data that is not copied first. `Ok(true)` as for [`Transport::put`].
    ///
    /// # Safety
    /// `data` is valid for `bytes` until the token is done.
    unsafe fn send_bulk(
        &mut self,
        pe: usize,
        head: [u8; BULK_HEAD],
        data: *const u8,
        bytes: usize,
        token: Token,
    ) -> Result<bool>;

    /// Takes the data of a large message. `Ok(true)` as for [`Transport::get`].
    ///
    /// # Safety
    /// `dst` is valid for as many bytes as were announced, until the token is done.
    unsafe fn receive(&mut self, data: BulkId, dst: *mut u8, token: Token) -> Result<bool>;

    /// Completes once all puts to `pe` so far have arrived in its memory. `Ok(true)`: they have.
    fn flush(&mut self, pe: usize, token: Token) -> Result<bool>;

    /// Lets the network do its work and hands over what came of it.
    fn progress(&mut self, events: &mut Vec<Event>);

    /// A descriptor that becomes readable when [`Transport::progress`] has something to do, after
    /// [`Transport::arm`]. Without one, `progress` has to be called now and then.
    fn fd(&self) -> Option<RawFd> {
        None
    }

    /// True where a thread may now sleep on the descriptor.
    fn arm(&mut self) -> bool {
        true
    }

    /// True where so much is on its way out that more had better wait.
    fn congested(&self) -> bool {
        false
    }

    /// Gives a buffer for a message: one that has been sent before, or a new one.
    fn buffer(&mut self) -> Vec<u8>;

    /// Takes a buffer back for later.
    fn recycle(&mut self, _buffer: Vec<u8>) {}

    /// Breaks all connections, so that operations in flight fail instead of lasting. None is made again: what
    /// is asked from then on fails.
    fn cut(&mut self);
}
