//! Ordering: which operations wait, and what for. It promises what fence and quiet promise (OpenSHMEM 1.5,
//! section 9.11); the argument is in [`order`], which is about one lane: the operations of one context on one
//! peer. Here are all lanes, and the quiets, which wait for several.
//!
//! Lanes to one peer share its connection, its messages' numbers and its flushes, and nothing else: each has
//! its own queue, and counts what it has sent itself. What the network or the peer says of all that was sent
//! holds of each lane's part.

mod lane;
mod order;

pub(crate) use lane::Lane;
pub(in crate::net) use order::{Next, Order, Point, Wanted};

use std::collections::BTreeMap;

use slab::Slab;

use crate::net::completion::Done;
use crate::net::request::Request;

/// Operations and fences that may wait, over all peers, before a caller has to.
const MOST_HELD: usize = 16 << 10;

/// A quiet under way: the lanes that are not settled yet, and what each has to reach.
#[derive(Debug)]
struct Quiet {
    lanes: Vec<(Lane, Option<Point>)>,
    done: Done,
}

/// The order on all peers.
#[derive(Debug)]
pub(in crate::net) struct Ordering {
    /// The default context's lanes.
    peers: Vec<Order<Request>>,
    /// Those of other contexts that have, or had, something under way.
    others: BTreeMap<Lane, Order<Request>>,
    quiets: Slab<Quiet>,
    /// Operations, fences and quiets that are held back, over all lanes.
    held: usize,
}

impl Ordering {
    pub(in crate::net) fn new(n: usize) -> Ordering {
        Ordering {
            peers: (0..n).map(|_| Order::default()).collect(),
            others: BTreeMap::new(),
            quiets: Slab::new(),
            held: 0,
        }
    }

    pub(in crate::net) fn n_pes(&self) -> usize {
        self.peers.len()
    }

    /// What has been started and has ended on a lane.
    #[inline]
    pub(in crate::net) fn lane(&mut self, lane: Lane) -> &mut Order<Request> {
        if lane.is_default() {
            return &mut self.peers[lane.pe];
        }
        self.others.entry(lane).or_default()
    }

    /// The lanes to `pe` on which something waits for its turn.
    pub(in crate::net) fn holding(&self, pe: usize) -> Vec<Lane> {
        if self.held == 0 {
            return Vec::new();
        }
        let default = (Lane::to(pe), &self.peers[pe]);
        let others = self.others.range(Lane::all_to(pe)).map(|(lane, order)| (*lane, order));
        let holding = std::iter::once(default).chain(others).filter(|(_, order)| order.held() > 0);
        holding.map(|(lane, _)| lane).collect()
    }

    pub(in crate::net) fn is_full(&self) -> bool {
        self.held > MOST_HELD
    }

    /// Nothing that was asked so far is under way, in the context or in all.
    pub(in crate::net) fn is_quiet(&self, context: Option<u64>) -> bool {
        self.orders(context).all(|(_, order)| order.is_quiet())
    }

    /// The lanes of a context, or all.
    fn orders(&self, context: Option<u64>) -> impl Iterator<Item = (Lane, &Order<Request>)> {
        let defaults = self.peers.iter().enumerate().map(|(pe, order)| (Lane::to(pe), order));
        let others = self.others.iter().map(|(lane, order)| (*lane, order));
        defaults.chain(others).filter(move |(lane, _)| context.is_none_or(|context| context == lane.context))
    }

    /// A context has ended. Its lanes stay where something is still under way, as in a broken job.
    pub(in crate::net) fn forget(&mut self, context: u64) {
        self.others.retain(|lane, order| lane.context != context || !order.is_quiet());
    }

    /// Whether an operation may start on a lane now. `copies`: it may use one-sided copies to the peer.
    #[inline]
    pub(in crate::net) fn may_start(&mut self, lane: Lane, copies: bool) -> bool {
        let order = self.lane(lane);
        let before = order.held();
        let may = order.may_start(copies);
        if !may {
            // It may have put a fence into the queue.
            let more = order.held() - before;
            self.held += more;
        }
        may
    }

    /// Puts an operation behind what is held back already.
    pub(in crate::net) fn hold(&mut self, lane: Lane, request: Request) {
        self.lane(lane).hold(request);
        self.held += 1;
    }

    /// What is asked on the lane from here on happens after what was asked before. True where something has
    /// to wait for that.
    pub(in crate::net) fn fence(&mut self, lane: Lane) -> bool {
        let waits = self.lane(lane).fence();
        self.held += usize::from(waits);
        waits
    }

    /// What of a lane's queue need not wait any longer.
    pub(in crate::net) fn next(&mut self, lane: Lane) -> Next<Request> {
        let order = self.lane(lane);
        let before = order.held();
        let next = order.next();
        let less = before - order.held();
        self.held -= less;
        next
    }

    /// The lanes of a context, or all, on which something is under way.
    pub(in crate::net) fn busy(&self, context: Option<u64>) -> Vec<Lane> {
        self.orders(context).filter(|(_, order)| !order.is_quiet()).map(|(lane, _)| lane).collect()
    }

    /// Begins a quiet of a context, or of all, which completes `done`; its number. `waits_for` is called with
    /// each peer that it waits for.
    pub(in crate::net) fn begin_quiet(
        &mut self,
        context: Option<u64>,
        done: Done,
        mut waits_for: impl FnMut(usize),
    ) -> usize {
        let quiet = self.quiets.insert(Quiet { lanes: Vec::new(), done });
        for lane in self.busy(context) {
            let point = self.lane(lane).quiet(quiet);
            self.held += usize::from(point.is_none());
            self.quiets[quiet].lanes.push((lane, point));
            waits_for(lane.pe);
        }
        quiet
    }

    /// The quiet has come to the front of a lane's queue: it waits for this point.
    pub(in crate::net) fn place_quiet(&mut self, quiet: usize, lane: Lane, point: Point) {
        for (of, waits) in &mut self.quiets[quiet].lanes {
            if *of == lane {
                *waits = Some(point);
            }
        }
    }

    /// Looks how far a quiet is; `Some`: it is over. What has to be asked for goes into `wanted`.
    pub(in crate::net) fn advance_quiet(
        &mut self,
        quiet: usize,
        wanted: &mut Vec<(Lane, Wanted)>,
    ) -> Option<Done> {
        let Ordering { peers, others, quiets, .. } = self;
        let waiting = &mut quiets[quiet].lanes;
        waiting.retain_mut(|(lane, point)| {
            let Some(point) = point else { return true };
            let order = if lane.is_default() { Some(&peers[lane.pe]) } else { others.get(lane) };
            let mut wants = Wanted::default();
            if order.is_none_or(|order| order.settled(point, &mut wants)) {
                return false;
            }
            if wants != Wanted::default() {
                wanted.push((*lane, wants));
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
