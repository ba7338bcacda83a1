//! The wire: numbered messages to and from each peer. It promises that what a PE sends to another is handed
//! out there once, in the order in which it was sent, whatever the network does on the way.
//!
//! Records share a message until it is full, or until the engine's next turn sends it. A message that comes
//! ahead of its turn is kept.

pub(crate) mod message;

use std::collections::BTreeMap;

use crate::error::{err, Result};
use crate::net::transport::{Transport, MESSAGE};
use message::{Record, PRELUDE};

/// Most bytes of data in one record.
pub(in crate::net) const RECORD: usize = MESSAGE - PRELUDE - 64;
/// More messages than any transport lets come ahead of their turn.
const MOST_AHEAD: u64 = 1 << 20;

/// The messages to and from one peer.
#[derive(Debug, Default)]
pub(in crate::net) struct PeerMessages {
    /// The message being filled; empty: none is.
    out: Vec<u8>,
    /// Its number, once it is sent.
    next_out: u64,
    /// The number that comes next from there.
    next_in: u64,
    /// Messages that came too early.
    early: BTreeMap<u64, Vec<u8>>,
}

/// All peers.
#[derive(Debug)]
pub(in crate::net) struct Wire {
    me: u32,
    peers: Vec<PeerMessages>,
    /// Peers to look at in the next turn: there is a message to send, or an operation that waits for its
    /// turn.
    active: Vec<usize>,
    is_active: Vec<bool>,
}

impl Wire {
    pub(in crate::net) fn new(me: usize, n: usize) -> Wire {
        let peers = (0..n).map(|_| PeerMessages::default()).collect();
        Wire { me: me as u32, peers, active: Vec::new(), is_active: vec![false; n] }
    }

    /// For tests: all that decides what may still happen.
    #[cfg(test)]
    pub(in crate::net) fn peers(&self) -> &[PeerMessages] {
        &self.peers
    }

    /// `pe` is looked at in the next turn.
    #[inline]
    pub(in crate::net) fn activate(&mut self, pe: usize) {
        if !std::mem::replace(&mut self.is_active[pe], true) {
            self.active.push(pe);
        }
    }

    /// The peers to look at now.
    pub(in crate::net) fn take_active(&mut self) -> Vec<usize> {
        for pe in &self.active {
            self.is_active[*pe] = false;
        }
        std::mem::take(&mut self.active)
    }

    pub(in crate::net) fn has_active(&self) -> bool {
        !self.active.is_empty()
    }

    /// Puts a record into the message for `pe`.
    #[inline]
    pub(in crate::net) fn emit(
        &mut self,
        network: &mut dyn Transport,
        pe: usize,
        record: &Record<'_>,
    ) -> Result<()> {
        self.room(network, pe, record.encoded())?;
        record.encode(&mut self.peers[pe].out);
        Ok(())
    }

    /// Puts encoded records into the message for `pe`.
    pub(in crate::net) fn append(
        &mut self,
        network: &mut dyn Transport,
        pe: usize,
        records: &[u8],
    ) -> Result<()> {
        self.room(network, pe, records.len())?;
        self.peers[pe].out.extend_from_slice(records);
        Ok(())
    }

    /// The message for `pe` has room for so many bytes more.
    #[inline]
    fn room(&mut self, network: &mut dyn Transport, pe: usize, bytes: usize) -> Result<()> {
        if self.peers[pe].out.len() + bytes > MESSAGE {
            self.send(network, pe)?;
        }
        if self.peers[pe].out.is_empty() {
            let mut out = network.buffer();
            message::begin(&mut out, self.me);
            self.peers[pe].out = out;
            self.activate(pe);
        }
        Ok(())
    }

    /// Sends the message for `pe`. True where there was one.
    pub(in crate::net) fn send(&mut self, network: &mut dyn Transport, pe: usize) -> Result<bool> {
        let peer = &mut self.peers[pe];
        if peer.out.is_empty() {
            return Ok(false);
        }
        let mut out = std::mem::take(&mut peer.out);
        message::number(&mut out, peer.next_out);
        peer.next_out += 1;
        network.send(pe, out)?;
        Ok(true)
    }

    /// Takes a message that has come in: its sender, and the message if its turn has come.
    /// [`Wire::next_early`] has those behind it.
    pub(in crate::net) fn accept(&mut self, message: Vec<u8>) -> Result<Option<(usize, Vec<u8>)>> {
        #[cfg(any(test, feature = "fuzzing"))]
        crate::seeds::record("far_messages", message.get(PRELUDE).copied().unwrap_or(0).into(), &message);
        let (from, number) = message::prelude(&message)?;
        let Some(peer) = self.peers.get_mut(from) else {
            return Err(err!(INTERNAL, "a message of PE {from}, which does not exist"));
        };
        // The transport takes messages from PEs of this job alone, each once and few ahead of their turn:
        // here it is a PE's mistake.
        let ahead = number.checked_sub(peer.next_in).filter(|ahead| *ahead < MOST_AHEAD);
        if ahead.is_none() || peer.early.contains_key(&number) {
            let next = peer.next_in;
            return Err(err!(INTERNAL, "message {number} of PE {from} where {next} comes next"));
        }
        if number != peer.next_in {
            peer.early.insert(number, message);
            return Ok(None);
        }
        peer.next_in += 1;
        Ok(Some((from, message)))
    }

    /// The next message of `from`, if it has come already.
    pub(in crate::net) fn next_early(&mut self, from: usize) -> Option<Vec<u8>> {
        let peer = &mut self.peers[from];
        let message = peer.early.remove(&peer.next_in)?;
        peer.next_in += 1;
        Some(message)
    }
}

/// A record by itself.
pub(in crate::net) fn encode(record: &Record<'_>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(record.encoded());
    record.encode(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::transport::stand_in::{Network, StandIn};

    /// Messages of PE 1 to PE 0, each with a word of its number.
    fn messages(n: u64) -> Vec<Vec<u8>> {
        let message = |i: u64| {
            let mut message = Vec::new();
            message::begin(&mut message, 1);
            Record::Word { width: 8, offset: i, value: i }.encode(&mut message);
            message::number(&mut message, i);
            message
        };
        (0..n).map(message).collect()
    }

    #[test]
    fn messages_are_handed_out_in_their_order() {
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2], [2, 3, 0, 1]] {
            let (mut wire, all) = (Wire::new(0, 2), messages(4));
            let mut out = Vec::new();
            for i in order {
                let Some((from, message)) = wire.accept(all[i].clone()).unwrap() else { continue };
                assert_eq!(from, 1);
                out.push(message);
                out.extend(std::iter::from_fn(|| wire.next_early(1)));
            }
            assert_eq!(out, all, "{order:?}");
        }
    }

    #[test]
    fn what_comes_twice_or_from_nobody_is_an_error() {
        let (mut wire, all) = (Wire::new(0, 2), messages(3));
        assert!(wire.accept(all[2].clone()).unwrap().is_none());
        wire.accept(all[2].clone()).unwrap_err();
        wire.accept(all[0].clone()).unwrap().unwrap();
        wire.accept(all[0].clone()).unwrap_err();
        let mut far_ahead = all[1].clone();
        message::number(&mut far_ahead, MOST_AHEAD + 1);
        wire.accept(far_ahead).unwrap_err();
        Wire::new(0, 1).accept(all[0].clone()).unwrap_err();
    }

    #[test]
    fn records_share_a_message_until_it_is_full() {
        let network = Network::shared(2, false);
        let mut transport = StandIn::new(0, &network);
        let mut wire = Wire::new(0, 2);
        let data = [7; 1000];
        for i in 0..5 {
            wire.emit(&mut transport, 1, &Record::Data { offset: i * 1000, data: &data }).unwrap();
        }
        assert_eq!(
            network.lock().unwrap().waiting(1),
            1,
            "four records of 1000 bytes do not fit one message"
        );
        assert_eq!((wire.has_active(), wire.take_active(), wire.has_active()), (true, vec![1], false));
        assert!(wire.send(&mut transport, 1).unwrap() && !wire.send(&mut transport, 1).unwrap());
        assert_eq!(network.lock().unwrap().waiting(1), 2);
    }
}
