//! How many messages are on their way to a PE: no more than its receiver keeps numbers for
//! ([`window`](super::window)). What has no number yet waits here, in its order. Each PE says how far the
//! other one's messages have come whenever a quarter of the numbers is used up, in words that take no number
//! themselves, so that two PEs that send each other much never wait for each other.

use super::inbox::Payload;
use super::wire::Head;
use super::Ucx;
use crate::error::err;
use crate::net::transport::{Event, Token, BULK_HEAD};

/// What waits for a number.
pub(super) enum Queued {
    Message(Vec<u8>),
    Word(Head, Vec<u8>),
    Bulk { head: [u8; BULK_HEAD], data: *const u8, bytes: usize, token: Token },
}

impl Ucx {
    /// Whether a message to `pe` may go now.
    pub(super) fn may_send(&mut self, pe: usize) -> bool {
        self.peers[pe].held.is_empty() && self.inbox().guards.has_number(pe)
    }

    /// Sends a message of the engine's, which is counted among those on their way: where it cannot be sent,
    /// the PE is lost.
    pub(super) fn send_counted(&mut self, pe: usize, message: Vec<u8>) {
        let sent = self.send_message(pe, message);
        let inbox = self.inbox();
        match sent {
            Ok(Some(user)) => inbox.done(*user, Ok(())),
            Ok(None) => {}
            Err(e) => {
                inbox.sending -= 1;
                inbox.lose(pe, e);
            }
        }
    }

    /// Sends PEs word how far their messages have come.
    pub(super) fn grant_credit(&mut self) {
        for pe in std::mem::take(&mut self.inbox().guards.owed) {
            let count = self.inbox().guards.acknowledge(pe);
            if let Err(e) = self.send_copy(pe, Head::Seen { count }, Payload::Word(Vec::new())) {
                self.inbox().lose(pe, e);
            }
        }
    }

    /// `pe` says how far this PE's messages have come: what has waited for numbers goes.
    pub(super) fn take_credit(&mut self, pe: usize, count: u64) {
        if !self.inbox().guards.has_arrived(pe, count) {
            return self.inbox().lose(pe, err!(INTERNAL, "it has seen more messages than were sent to it"));
        }
        while self.inbox().guards.has_number(pe) {
            match self.peers[pe].held.pop_front() {
                None => break,
                Some(Queued::Message(message)) => self.send_counted(pe, message),
                Some(Queued::Word(head, data)) => {
                    if let Err(e) = self.send_copy(pe, head, Payload::Word(data)) {
                        self.inbox().lose(pe, e);
                    }
                }
                Some(Queued::Bulk { head, data, bytes, token }) => {
                    // SAFETY: the caller of `send_bulk` keeps the data until its token is done.
                    match unsafe { self.send_bulk_now(pe, &head, data, bytes, token) } {
                        Ok(true) => self.push_event(Event::Done(token)),
                        Ok(false) => {}
                        Err(e) => self.push_event(Event::Failed(token, e)),
                    }
                }
            }
        }
        self.pump(pe);
    }

    /// Nothing goes to `pe` any more; the tokens of what waited.
    pub(super) fn drop_held(&mut self, pe: usize) -> Vec<Token> {
        let mut tokens = Vec::new();
        for held in std::mem::take(&mut self.peers[pe].held) {
            match held {
                Queued::Message(buffer) => {
                    let inbox = self.inbox();
                    inbox.sending -= 1;
                    inbox.recycle(buffer);
                }
                Queued::Word(..) => {}
                Queued::Bulk { token, .. } => tokens.push(token),
            }
        }
        tokens
    }
}
