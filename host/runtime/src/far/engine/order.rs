//! Order and completion: fence, quiet, and what is held back meanwhile.

use super::{Awaited, Done, Engine, Flight, Quiet};
use crate::error::Result;
use crate::far::message::Record;
use crate::far::peer::{Held, Wanted};

impl Engine {
    /// What is asked of `pe` from here on happens after what was asked before.
    pub(in crate::far) fn fence_one(&mut self, pe: usize) {
        let peer = &mut self.peers[pe];
        if peer.is_quiet() {
            return;
        }
        if peer.held.is_empty() && peer.open.is_empty() && peer.flushed == peer.puts {
            // Only messages, which keep their order among themselves.
            peer.fenced = peer.changes;
            return;
        }
        if !matches!(peer.held.back(), Some(Held::Fence(_))) {
            let point = peer.now();
            peer.held.push_back(Held::Fence(point));
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
            let peer = &mut self.peers[pe];
            if peer.is_quiet() {
                continue;
            }
            let point = if peer.held.is_empty() {
                Some(peer.now())
            } else {
                peer.held.push_back(Held::Mark(quiet));
                None
            };
            self.quiets[quiet].peers.push((pe, point));
            self.note_busy(pe);
        }
        self.quieten(quiet)
    }

    /// One look at a quiet.
    pub(in crate::far) fn quieten(&mut self, quiet: usize) -> Result<()> {
        let mut peers = std::mem::take(&mut self.quiets[quiet].peers);
        let mut asked = Ok(());
        peers.retain_mut(|(pe, point)| {
            let Some(point) = point else { return true };
            let mut wanted = Wanted::default();
            if self.peers[*pe].settled(point, &mut wanted) {
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
    pub(in crate::far) fn ask(&mut self, pe: usize, wanted: Wanted) -> Result<()> {
        if wanted.flush {
            let puts = self.peers[pe].puts;
            self.flush(pe, Flight::Flush { pe, puts })?;
        }
        if wanted.ack {
            let changes = self.peers[pe].changes;
            self.peers[pe].ack_asked = changes;
            let reply = self.awaited.insert(Awaited::Ack { pe, changes }) as u64;
            self.emit(pe, &Record::Flush { reply })?;
        }
        Ok(())
    }

    /// Starts what fences hold back no longer.
    pub(in crate::far) fn release(&mut self, pe: usize) -> Result<()> {
        loop {
            match self.peers[pe].held.pop_front() {
                None => return Ok(()),
                Some(Held::Op(op)) => self.start(pe, op)?,
                Some(Held::Mark(quiet)) => {
                    let point = self.peers[pe].now();
                    for (of, waits) in &mut self.quiets[quiet].peers {
                        if *of == pe {
                            *waits = Some(point);
                        }
                    }
                }
                Some(Held::Fence(mut point)) => {
                    let mut wanted = Wanted::default();
                    if !self.peers[pe].settled(&mut point, &mut wanted) {
                        self.peers[pe].held.push_front(Held::Fence(point));
                        return self.ask(pe, wanted);
                    }
                }
            }
        }
    }
}
