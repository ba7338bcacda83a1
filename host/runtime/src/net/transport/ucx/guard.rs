//! Which messages are accepted: those that a PE of the job has sealed for this one, under a number that has
//! not come before. Everything else is dropped and counted. It is no reason to end the job, because any
//! process that reaches UCX's port can send it.
//!
//! A message that is accepted and makes no sense is an error: the PEs do not run the same library.

use std::fmt;

use super::keys::{Keys, PairKeys, PUBLIC};
use super::seal::{SealKind, Tag, TAG};
use super::window::{ReplayWindow, Seen, AHEAD};
use super::wire::{HEAD, SEALED};
use crate::error::Result;
use crate::net::transport::BULK_HEAD;
use crate::net::wire::message::{self, PRELUDE};

/// Behind a message of the engine's: its number, and the tag.
pub(super) const TRAILER: usize = 8 + TAG;
/// A receiver reports what has arrived each time that so many numbers are used up.
const REPORT_EVERY: u64 = AHEAD / 4;

/// Why something is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No PE of this job has sealed it for this one.
    Forged,
    /// It has come before.
    Replayed,
    /// Its number is too high for an honest PE.
    TooFar,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Forged => "its tag is wrong",
            Refusal::Replayed => "it came before",
            Refusal::TooFar => "its number is too high",
        })
    }
}

/// How much has been dropped.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dropped {
    pub(super) forged: u64,
    pub(super) replayed: u64,
    pub(super) too_far: u64,
}

impl Dropped {
    pub(super) fn total(&self) -> u64 {
        self.forged + self.replayed + self.too_far
    }
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Dropped { forged, replayed, too_far } = self;
        write!(f, "{forged} with a wrong tag, {replayed} repeated, {too_far} with too high a number")
    }
}

/// What is known of one PE.
#[derive(Default)]
struct Guard {
    /// Made when something goes there, or is said to come from there.
    shared: Option<Box<PairKeys>>,
    /// Messages sent, and so many of them that are known to have come in.
    sent: u64,
    arrived: u64,
    window: ReplayWindow,
    /// It has been sent word that so many of its own have come in.
    acknowledged: u64,
}

/// The guards of all PEs.
pub(super) struct Guards {
    keys: Keys,
    peers: Vec<Guard>,
    pub(super) dropped: Dropped,
    /// PEs that are to be sent word how far they are.
    pub(super) owed: Vec<usize>,
}

impl Guards {
    pub(super) fn new(keys: Keys) -> Guards {
        Guards { keys, peers: Vec::new(), dropped: Dropped::default(), owed: Vec::new() }
    }

    pub(super) fn public(&self) -> [u8; PUBLIC] {
        self.keys.public()
    }

    /// The public keys of all PEs.
    pub(super) fn learn(&mut self, public: Vec<[u8; PUBLIC]>) {
        self.peers = public.iter().map(|_| Guard::default()).collect();
        self.keys.learn(public);
    }

    fn shared(&mut self, pe: usize) -> Result<&PairKeys> {
        let shared = &mut self.peers[pe].shared;
        if shared.is_none() {
            *shared = Some(Box::new(self.keys.share(pe)?));
        }
        Ok(shared.as_deref().expect("just made"))
    }

    // ---- what goes out ----

    /// Whether one message more to `pe` has a number.
    pub(super) fn has_number(&self, pe: usize) -> bool {
        let guard = &self.peers[pe];
        guard.sent - guard.arrived < AHEAD
    }

    /// The number of the next message to `pe`.
    fn number(&mut self, pe: usize) -> u64 {
        let guard = &mut self.peers[pe];
        guard.sent += 1;
        guard.sent - 1
    }

    /// Numbers and seals a message of the engine's.
    pub(super) fn seal_message(&mut self, pe: usize, message: &mut Vec<u8>) -> Result<()> {
        let number = self.number(pe);
        message.extend_from_slice(&number.to_le_bytes());
        let tag = self.shared(pe)?.out.tag(SealKind::Message, &[message]);
        message.extend_from_slice(&tag);
        Ok(())
    }

    /// The head of a large message of `bytes` that UCX carries, numbered and sealed. (The data is UCX's.)
    pub(super) fn seal_bulk(
        &mut self,
        pe: usize,
        me: usize,
        head: &[u8; BULK_HEAD],
        bytes: usize,
    ) -> Result<[u8; SEALED]> {
        let number = self.number(pe);
        let mut sealed = [0; SEALED];
        sealed[..BULK_HEAD].copy_from_slice(head);
        sealed[BULK_HEAD..HEAD].copy_from_slice(&(me as u64).to_le_bytes());
        sealed[HEAD..SEALED - TAG].copy_from_slice(&number.to_le_bytes());
        let parts: [&[u8]; 2] = [&sealed[..SEALED - TAG], &(bytes as u64).to_le_bytes()];
        let tag = self.shared(pe)?.out.tag(SealKind::Bulk, &parts);
        sealed[SEALED - TAG..].copy_from_slice(&tag);
        Ok(sealed)
    }

    /// The head of a message about copies, sealed with its data. `counts`: it takes a number.
    pub(super) fn seal_copy(
        &mut self,
        pe: usize,
        head: &[u8; HEAD],
        data: &[u8],
        counts: bool,
    ) -> Result<[u8; SEALED]> {
        let number = if counts { self.number(pe) } else { 0 };
        let mut sealed = [0; SEALED];
        sealed[..HEAD].copy_from_slice(head);
        sealed[HEAD..SEALED - TAG].copy_from_slice(&number.to_le_bytes());
        let tag = self.shared(pe)?.out.tag(SealKind::Copy, &[&sealed[..SEALED - TAG], data]);
        sealed[SEALED - TAG..].copy_from_slice(&tag);
        Ok(sealed)
    }

    /// The last message to `pe` has not gone out, and another one will have its number.
    pub(super) fn take_back(&mut self, pe: usize) {
        self.peers[pe].sent -= 1;
    }

    /// `pe` says that the first `count` messages have come in. False: so many were never sent.
    pub(super) fn has_arrived(&mut self, pe: usize, count: u64) -> bool {
        let guard = &mut self.peers[pe];
        guard.arrived = guard.arrived.max(count.min(guard.sent));
        count <= guard.sent
    }

    /// How many messages of `pe` have come in, to be acknowledged.
    pub(super) fn acknowledge(&mut self, pe: usize) -> u64 {
        let guard = &mut self.peers[pe];
        guard.acknowledged = guard.window.next;
        guard.acknowledged
    }

    // ---- what comes in ----

    /// A message of the engine's: its sender, and how long it is without the trailer.
    pub(super) fn open_message(&mut self, message: &[u8]) -> std::result::Result<(usize, usize), Refusal> {
        if message.len() < PRELUDE + TRAILER {
            return Err(self.refuse(Refusal::Forged));
        }
        let (sealed, tag) = message.split_at(message.len() - TAG);
        let (text, number) = sealed.split_at(sealed.len() - 8);
        let from = message::sender(text);
        self.verify(from, SealKind::Message, &[sealed], tag)?;
        self.count(from, number)?;
        Ok((from, text.len()))
    }

    /// The head of a large message of `bytes`: its sender.
    pub(super) fn open_bulk(&mut self, sealed: &[u8], bytes: usize) -> std::result::Result<usize, Refusal> {
        let (head, tag) = self.split(sealed)?;
        let from = word(&head[BULK_HEAD..]);
        self.verify(from, SealKind::Bulk, &[head, &(bytes as u64).to_le_bytes()], tag)?;
        self.count(from, &head[HEAD..])?;
        Ok(from)
    }

    /// A message about copies: its sender. `counts` says of a head whether it takes a number.
    pub(super) fn open_copy(
        &mut self,
        sealed: &[u8],
        data: &[u8],
        sender: impl Fn(&[u8; HEAD]) -> (usize, bool),
    ) -> std::result::Result<usize, Refusal> {
        let (head, tag) = self.split(sealed)?;
        let (from, counts) = sender(head[..HEAD].try_into().expect("a head's length"));
        self.verify(from, SealKind::Copy, &[head, data], tag)?;
        if counts {
            self.count(from, &head[HEAD..])?;
        }
        Ok(from)
    }

    fn split<'a>(&mut self, sealed: &'a [u8]) -> std::result::Result<(&'a [u8], &'a [u8]), Refusal> {
        if sealed.len() != SEALED {
            return Err(self.refuse(Refusal::Forged));
        }
        Ok(sealed.split_at(SEALED - TAG))
    }

    fn verify(
        &mut self,
        from: usize,
        kind: SealKind,
        parts: &[&[u8]],
        tag: &[u8],
    ) -> std::result::Result<(), Refusal> {
        let tag: &Tag = tag.try_into().expect("a tag's length");
        let known = from < self.keys.len();
        let holds = known && self.shared(from).is_ok_and(|shared| shared.back.holds(kind, parts, tag));
        if holds {
            Ok(())
        } else {
            Err(self.refuse(Refusal::Forged))
        }
    }

    fn count(&mut self, from: usize, number: &[u8]) -> std::result::Result<(), Refusal> {
        let guard = &mut self.peers[from];
        let before = guard.window.next;
        match guard.window.take(word(number) as u64) {
            Seen::First => {}
            Seen::Again => return Err(self.refuse(Refusal::Replayed)),
            Seen::TooFar => return Err(self.refuse(Refusal::TooFar)),
        }
        // Once for each time that it gets so far.
        if before - guard.acknowledged < REPORT_EVERY
            && guard.window.next - guard.acknowledged >= REPORT_EVERY
        {
            self.owed.push(from);
        }
        Ok(())
    }

    /// Counts what is dropped, and says so the first time.
    pub(super) fn refuse(&mut self, why: Refusal) -> Refusal {
        let first = self.dropped.total() == 0;
        let count = match why {
            Refusal::Forged => &mut self.dropped.forged,
            Refusal::Replayed => &mut self.dropped.replayed,
            Refusal::TooFar => &mut self.dropped.too_far,
        };
        *count += 1;
        if first {
            log::warn!(
                "a message that no PE of this job has sent to this one came in at UCX's port and was dropped \
                 ({why}): strangers reach that port; UCX_NET_DEVICES or a firewall keep them away \
                 (SECURITY.md). More are dropped and counted (RUSHMEM_LOG=debug)"
            );
        }
        let total = self.dropped.total();
        if total.is_power_of_two() {
            log::debug!("messages of strangers that were dropped so far: {}", self.dropped);
        }
        why
    }
}

fn word(bytes: &[u8]) -> usize {
    u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize
}
