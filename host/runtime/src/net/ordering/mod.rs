//! Ordering: which operations wait, and what for. It promises what fence and quiet promise (OpenSHMEM 1.5,
//! section 9.11); the argument is in [`order`], which is about one peer. Here are all peers, and the quiets,
//! which wait for several.

mod order;

pub(in crate::net) use order::{Next, Order, Point, Wanted};

use slab::Slab;

use crate::net::completion::Done;
use crate::net::request::Request;

/// Operations and fences that may wait, over all peers, before a caller has to.
const MOST_HELD: usize = 16 << 10;

/// A quiet under way: the peers that are not settled yet, and what each has to reach.
#[derive(Debug)]
struct Quiet {
    peers: Vec<(usize, Option<Point>)>,
    done: Done,
}

/// The order on all peers.
#[derive(Debug)]
pub(in crate::net) struct Ordering {
    peers: Vec<Order<Request>>,
    quiets: Slab<Quiet>,
    /// Operations, fences and quiets that are held back, over all peers.
    held: usize,
}

impl Ordering {
    pub(in crate::net) fn new(n: usize) -> Ordering {
        Ordering { peers: (0..n).map(|_| Order::default()).collect(), quiets: Slab::new(), held: 0 }
    }

    pub(in crate::net) fn n_pes(&self) -> usize {
        self.peers.len()
    }

    /// What has been started and has ended on `pe`.
    #[inline]
    pub(in crate::net) fn peer(&mut self, pe: usize) -> &mut Order<Request> {
        &mut self.peers[pe]
    }

    /// Whether something waits for its turn on `pe`.
    pub(in crate::net) fn holds(&self, pe: usize) -> bool {
        self.peers[pe].held() > 0
    }

    pub(in crate::net) fn is_full(&self) -> bool {
        self.held > MOST_HELD
    }

    /// Nothing that was asked so far is under way.
    pub(in crate::net) fn is_quiet(&self) -> bool {
        self.peers.iter().all(Order::is_quiet)
    }

    /// Whether an operation on `pe` may start now. `copies`: it may use one-sided copies to the peer.
    #[inline]
    pub(in crate::net) fn may_start(&mut self, pe: usize, copies: bool) -> bool {
        let before = self.peers[pe].held();
        let may = self.peers[pe].may_start(copies);
        if !may {
            // It may have put a fence into the queue.
            self.held += self.peers[pe].held() - before;
        }
        may
    }

    /// Puts an operation behind what is held back already.
    pub(in crate::net) fn hold(&mut self, pe: usize, request: Request) {
        self.peers[pe].hold(request);
        self.held += 1;
    }

    /// What is asked of `pe` from here on happens after what was asked before. True where something has to
    /// wait for that.
    pub(in crate::net) fn fence(&mut self, pe: usize) -> bool {
        let waits = self.peers[pe].fence();
        self.held += usize::from(waits);
        waits
    }

    /// What of `pe`'s queue need not wait any longer.
    pub(in crate::net) fn next(&mut self, pe: usize) -> Next<Request> {
        let before = self.peers[pe].held();
        let next = self.peers[pe].next();
        self.held -= before - self.peers[pe].held();
        next
    }

    /// Begins a quiet, which completes `done`; its number. `waits_for` is called with each peer that it waits
    /// for.
    pub(in crate::net) fn begin_quiet(&mut self, done: Done, mut waits_for: impl FnMut(usize)) -> usize {
        let quiet = self.quiets.insert(Quiet { peers: Vec::new(), done });
        for (pe, order) in self.peers.iter_mut().enumerate().filter(|(_, order)| !order.is_quiet()) {
            let point = order.quiet(quiet);
            self.held += usize::from(point.is_none());
            self.quiets[quiet].peers.push((pe, point));
            waits_for(pe);
        }
        quiet
    }

    /// The quiet has come to the front of `pe`'s queue: it waits for this point.
    pub(in crate::net) fn place_quiet(&mut self, quiet: usize, pe: usize, point: Point) {
        for (of, waits) in &mut self.quiets[quiet].peers {
            if *of == pe {
                *waits = Some(point);
            }
        }
    }

    /// Looks how far a quiet is; `Some`: it is over. What has to be asked for goes into `wanted`.
    pub(in crate::net) fn advance_quiet(
        &mut self,
        quiet: usize,
        wanted: &mut Vec<(usize, Wanted)>,
    ) -> Option<Done> {
        let Ordering { peers, quiets, .. } = self;
        let waiting = &mut quiets[quiet].peers;
        waiting.retain_mut(|(pe, point)| {
            let Some(point) = point else { return true };
            let mut wants = Wanted::default();
            if peers[*pe].settled(point, &mut wants) {
                return false;
            }
            if wants != Wanted::default() {
                wanted.push((*pe, wants));
            }
            true
        });
        if waiting.is_empty() {
            return Some(quiets.remove(quiet).done);
        }
        None
    }

    pub(in crate::net) fn quiets(&self) -> Vec<usize> {
        self.quiets.iter().map(|(key, _)| key).collect()
    }

    pub(in crate::net) fn has_quiets(&self) -> bool {
        !self.quiets.is_empty()
    }

    /// For tests: what is held back is counted.
    #[cfg(test)]
    pub(in crate::net) fn held(&self) -> usize {
        self.held
    }
}
