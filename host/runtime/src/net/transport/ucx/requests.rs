//! What callbacks have noted, acted on: pieces that UCX has let go of, what other PEs ask about copies, and
//! PEs that are lost.

use super::pieces::{Completes, Destination, Item, Offer};
use super::wire::Head;
use super::Ucx;
use crate::error::Error;
use crate::net::transport::Event;

impl Ucx {
    /// Acts on what callbacks have noted.
    pub(super) fn act_on_callbacks(&mut self) {
        let waits = !self.pieces.flush_requests.is_empty() || !self.meetings.is_empty();
        let inbox = self.inbox();
        let nothing = inbox.sent.is_empty() && inbox.words.is_empty() && inbox.lost.is_empty();
        if nothing && inbox.guards.owed.is_empty() && !waits {
            return;
        }
        let (sent, words) = (std::mem::take(&mut inbox.sent), std::mem::take(&mut inbox.words));
        let lost = std::mem::take(&mut inbox.lost);
        for sent in sent {
            self.landed(sent);
        }
        for (from, word) in words {
            self.serve(from, word);
        }
        self.answer_flushes();
        self.grant_credit();
        for (pe, e) in lost {
            self.lose(pe, &e);
        }
        self.advance_meetings();
    }

    /// Does what another PE asks.
    fn serve(&mut self, from: usize, word: Head) {
        match word {
            Head::Flush { count, token } => self.pieces.flush_requests.push((from, count, token)),
            Head::Flushed { token } => {
                let line = &mut self.pieces.lines[from];
                let Some(count) = line.asked.remove(&token) else { return };
                line.flushed = line.flushed.max(count);
                match self.flush_network(from, token) {
                    Ok(true) => self.push_event(Event::Done(token)),
                    Ok(false) => {}
                    Err(e) => self.push_event(Event::Failed(token, e)),
                }
            }
            Head::Get { segment, address, bytes, landing } => {
                let bytes = bytes as usize;
                if let Err(e) = self.inbox().holds(segment, address, bytes) {
                    return self.inbox().lose(from, e);
                }
                self.queue(from, Destination::Landing(landing), address as usize, bytes, Completes::Nobody);
                self.pump(from);
            }
            Head::Want { id, landing } => {
                if self.pieces.offers.get(&id).is_none_or(|offer| offer.pe != from) {
                    return;
                }
                let Offer { data, bytes, token, .. } = self.pieces.offers.remove(&id).expect("just seen");
                self.queue(from, Destination::Landing(landing), data, bytes, Completes::Token(token));
                self.pump(from);
            }
            Head::Hello => self.greeted_by(from),
            Head::Open => {
                self.ask(from, Head::Opened, Vec::new());
                self.end_meeting(from);
            }
            Head::Opened => self.end_meeting(from),
            Head::Seen { count } => self.take_credit(from, count),
            // Their callbacks have seen to them.
            Head::Put { .. } | Head::Piece { .. } | Head::Offer { .. } => {}
        }
    }

    /// Answers the flushes of other PEs that are complete.
    fn answer_flushes(&mut self) {
        let mut flush_requests = std::mem::take(&mut self.pieces.flush_requests);
        flush_requests.retain(|&(pe, count, token)| {
            if self.inbox().arrivals[pe].next < count {
                return true;
            }
            self.ask(pe, Head::Flushed { token }, Vec::new());
            false
        });
        self.pieces.flush_requests = flush_requests;
    }

    /// Nothing goes to or comes from `pe` any more: what waits for it fails. Pieces that UCX still has come
    /// back by themselves.
    pub(super) fn lose(&mut self, pe: usize, why: &Error) {
        self.cancel_meeting(pe, why);
        let mut tokens = self.inbox().abandon(pe);
        tokens.extend(self.drop_held(pe));
        let line = &mut self.pieces.lines[pe];
        tokens.extend(line.asked.drain().map(|(token, _)| token));
        let mut copies = Vec::from(std::mem::take(&mut line.answers));
        for item in std::mem::take(&mut line.puts) {
            match item {
                Item::Flush(token) => tokens.push(token),
                Item::Copy(key) => copies.push(key),
            }
        }
        self.pieces.flush_requests.retain(|(from, ..)| *from != pe);
        self.pieces.offers.retain(|_, offer| {
            if offer.pe == pe {
                tokens.push(offer.token);
            }
            offer.pe != pe
        });
        for token in tokens {
            self.push_event(Event::Failed(token, why.clone()));
        }
        for key in copies {
            self.pieces.copies[key].stop(why);
            self.end(key);
        }
    }
}
