//! Turning: whatever can go on goes on, what the network tells is acted on, and a PE that is lost ends what waits for it.

use std::time::Instant;

use super::{Awaited, Engine, Flight, HEARSAY};
use crate::error::{err, Error, Result};
use crate::net::transport::{Event, Token};

impl Engine {
    /// Lets everything go on. True where something happened.
    pub(crate) fn turn(&mut self) -> bool {
        match self.try_turn() {
            Ok(worked) => worked,
            Err(e) => {
                self.fail(e);
                true
            }
        }
    }

    pub(in crate::net) fn try_turn(&mut self) -> Result<bool> {
        if self.suspicion.is_some() {
            self.judge();
        }
        let mut worked = self.serve_kernels()?;
        worked |= self.push_out()?;
        let mut events = std::mem::take(&mut self.events);
        self.transport.progress(&mut events);
        worked |= !events.is_empty();
        for event in events.drain(..) {
            self.event(event)?;
        }
        self.events = events;
        self.run_traffic()?;
        worked |= self.traffic.as_ref().is_some_and(|traffic| traffic.is_busy());
        if !self.quiets.is_empty() {
            for quiet in self.quiets.iter().map(|(key, _)| key).collect::<Vec<_>>() {
                self.advance_quiet(quiet)?;
            }
        }
        worked |= self.push_out()?;
        if let (false, Some(posts)) = (self.ring_replies.is_empty(), &mut self.posts) {
            posts.answer(&mut self.ring_replies);
        }
        Ok(worked)
    }

    /// Sends what is ready to go, peer by peer. True where there was anything.
    pub(crate) fn push_out(&mut self) -> Result<bool> {
        if self.busy.is_empty() {
            return Ok(false);
        }
        let mut sent = false;
        let busy = std::mem::take(&mut self.busy);
        for pe in &busy {
            self.is_busy[*pe] = false;
        }
        for pe in busy {
            if self.peers[pe].order.held() > 0 {
                self.release(pe)?;
            }
            sent |= !self.peers[pe].out.is_empty();
            self.post(pe)?;
            if self.peers[pe].order.held() > 0 {
                self.note_busy(pe);
            }
        }
        Ok(sent)
    }

    pub(in crate::net) fn event(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Message(message) => self.incoming(message),
            Event::Done(token) => self.landed(token, Ok(())),
            Event::Failed(token, e) => self.landed(token, Err(e)),
            Event::Lost(pe, e) => {
                self.suspect(pe, &e);
                Ok(())
            }
            Event::Bulk { head, bytes, data } => {
                let nobody = || err!(INTERNAL, "a large message that nobody has asked for");
                self.traffic.as_mut().ok_or_else(nobody)?.announce(&head, bytes, data)
            }
        }
    }

    /// Something in flight has come to its end.
    pub(in crate::net) fn landed(&mut self, token: Token, result: Result<()>) -> Result<()> {
        let flight = self.flights.remove(token as usize);
        if let Err(e) = &result {
            let pe = match &flight {
                Flight::Copy { pe, .. }
                | Flight::Flush { pe, .. }
                | Flight::Announce { pe, .. }
                | Flight::Chunk { pe, .. } => *pe,
                Flight::Receive { from, .. } => *from,
                Flight::Answer { reply, .. } | Flight::Straight { reply, .. } => {
                    self.awaited.get(*reply).map_or(self.me, Awaited::pe)
                }
            };
            self.suspect(pe, e);
        }
        match flight {
            Flight::Copy { pe, op, done } => {
                if let Some(op) = op {
                    self.peers[pe].order.close(op);
                }
                match result {
                    Ok(()) => self.tell(done),
                    Err(_) => self.doomed.push(done),
                }
            }
            Flight::Flush { pe, puts } => {
                if result.is_ok() {
                    self.peers[pe].order.flushed(puts);
                }
            }
            Flight::Chunk { .. } | Flight::Receive { .. } | Flight::Answer { .. } if result.is_ok() => {
                self.chunk_landed(flight)?;
            }
            Flight::Straight { reply, bytes } if result.is_ok() => self.answered_bytes(reply, bytes)?,
            // What was on its way is lost with its PE.
            Flight::Chunk { .. }
            | Flight::Receive { .. }
            | Flight::Answer { .. }
            | Flight::Straight { .. } => {}
            Flight::Announce { pe, op, signal } => {
                if result.is_ok() {
                    self.encoded(pe, &signal)?;
                    self.peers[pe].order.close(op);
                }
            }
        }
        Ok(())
    }

    /// The network has lost a PE. Why that one ended others may know better, and tell within a moment.
    pub(in crate::net) fn suspect(&mut self, pe: usize, e: &Error) {
        let who = self.names.get(pe).map_or("a PE that does not exist", String::as_str);
        let why = format!("{who} cannot be reached any more: {}", e.message);
        self.suspicion.get_or_insert_with(|| (Instant::now(), why));
    }

    /// Acts on a loss once its reason is known, or nobody knows any.
    pub(in crate::net) fn judge(&mut self) {
        let Some((since, why)) = &self.suspicion else { return };
        if self.health.check().is_ok() && !self.health.is_leaving() && since.elapsed() < HEARSAY {
            return;
        }
        self.health.break_job(why.clone());
        let lost = || err!(PEER_DEAD, "{why}");
        let error = self.health.check().err().unwrap_or_else(lost);
        for done in std::mem::take(&mut self.doomed) {
            self.fire(done, Err(error.clone()));
        }
    }

    /// The engine itself cannot go on: everything that waits ends.
    pub(in crate::net) fn fail(&mut self, e: Error) {
        self.health.break_job(format!("the network of {} failed: {}", self.names[self.me], e.message));
    }

    /// True while the transport may still touch memory of callers.
    pub(in crate::net) fn in_flight(&self) -> bool {
        let callers = |flight: &Flight| matches!(flight, Flight::Copy { .. } | Flight::Straight { .. });
        self.flights.iter().any(|(_, flight)| callers(flight))
    }
}
