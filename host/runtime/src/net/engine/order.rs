//! Order and completion: fence, quiet, and what is held back meanwhile. What they stand for is in [`crate::net::ordering::order`]; here the engine
//! carries it out for each peer.

use super::{Awaited, Done, Engine, Flight, Quiet};
use crate::error::Result;
use crate::net::ordering::order::{Next, Wanted};
use crate::net::wire::message::Record;

/// Operations and fences that may be held back, over all peers, before a caller has to wait.
const MOST_HELD: usize = 16 << 10;

impl Engine {
    /// What is asked of `pe` from here on happens after what was asked before.
    fn fence_one(&mut self, pe: usize) {
        if self.peers[pe].order.fence() {
            self.held += 1;
            self.note_busy(pe);
        }
    }

    /// The same for every PE.
    pub(crate) fn fence(&mut self) {
        self.start_posts();
        for pe in 0..self.peers.len() {
            self.fence_one(pe);
        }
    }

    /// `done` when all that was asked so far has been carried out everywhere.
    pub(crate) fn quiet(&mut self, done: Done) -> Result<()> {
        self.start_posts();
        let quiet = self.quiets.insert(Quiet { peers: Vec::new(), done });
        for pe in 0..self.peers.len() {
            let order = &mut self.peers[pe].order;
            if order.is_quiet() {
                continue;
            }
            let point = order.quiet(quiet);
            self.held += usize::from(point.is_none());
            self.quiets[quiet].peers.push((pe, point));
            self.note_busy(pe);
        }
        self.advance_quiet(quiet)
    }

    /// Ends a quiet if it is over, and asks for what it needs if not.
    pub(in crate::net) fn advance_quiet(&mut self, quiet: usize) -> Result<()> {
        let mut peers = std::mem::take(&mut self.quiets[quiet].peers);
        let mut asked = Ok(());
        peers.retain_mut(|(pe, point)| {
            let Some(point) = point else { return true };
            let mut wanted = Wanted::default();
            if self.peers[*pe].order.settled(point, &mut wanted) {
                return false;
            }
            asked = std::mem::replace(&mut asked, Ok(())).and_then(|()| self.ask(*pe, wanted));
            true
        });
        asked?;
        if peers.is_empty() {
            let done = self.quiets.remove(quiet).done;
            self.tell(done);
        } else {
            self.quiets[quiet].peers = peers;
        }
        Ok(())
    }

    /// Asks the network, or the target, how far it is.
    fn ask(&mut self, pe: usize, wanted: Wanted) -> Result<()> {
        if wanted.flush {
            let puts = self.peers[pe].order.asks_flush();
            self.flush(pe, Flight::Flush { pe, puts })?;
        }
        if wanted.ack {
            let changes = self.peers[pe].order.asks_ack();
            let reply = self.awaited.insert(Awaited::Ack { pe, changes }) as u64;
            self.emit(pe, &Record::Flush { reply })?;
        }
        Ok(())
    }

    /// Starts what fences hold back no longer.
    pub(in crate::net) fn release(&mut self, pe: usize) -> Result<()> {
        loop {
            let before = self.peers[pe].order.held();
            let next = self.peers[pe].order.next();
            self.held -= before - self.peers[pe].order.held();
            match next {
                Next::Nothing => return Ok(()),
                Next::Start(op) => self.start(pe, op)?,
                Next::Wait(wanted) => return self.ask(pe, wanted),
                Next::Quiet(quiet, point) => {
                    for (of, waits) in &mut self.quiets[quiet].peers {
                        if *of == pe {
                            *waits = Some(point);
                        }
                    }
                }
            }
        }
    }

    /// Nothing that was asked so far is under way.
    pub(in crate::net) fn is_quiet(&self) -> bool {
        self.peers.iter().all(|peer| peer.order.is_quiet())
    }

    /// True where so much is under way or held back that more had better wait.
    pub(in crate::net) fn congested(&self) -> bool {
        self.held > MOST_HELD || self.transport.congested()
    }
}
