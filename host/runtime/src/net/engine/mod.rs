//! The engine: what is asked of PEs whose memory is not mapped, by this PE's host, streams and kernels alike, and what they
//! ask of this one. It never blocks; whoever waits [turns](Engine::turn) it.
//!
//! Small things are records in numbered [messages](crate::net::wire::message), carried out by the target's engine in their order; bulk is
//! the transport's one-sided copies, in no order. Order between the two is made here, for each peer by itself
//! ([`crate::net::peer`]): a fence, and a signal behind its data, wait for the network's word that the copies have arrived.

mod done;
mod order;
#[cfg(test)]
mod order_tests;
mod outbox;
mod serve;
mod start;
mod turn;

use std::sync::Arc;
use std::time::{Duration, Instant};

use slab::Slab;

use crate::error::{Error, Result};
use crate::health::Health;
use crate::net::gpu::chunks::Chunk;
use crate::net::gpu::traffic::Traffic;
use crate::net::memory::segments::Segments;
use crate::net::memory::span::Span;
use crate::net::ordering::order::Point;
use crate::net::peer::Peer;
use crate::net::proxy::posts::Posts;
use crate::net::proxy::ring::DeviceRing;
use crate::net::proxy::submissions::Then;
use crate::net::transport::{Event, Token, Transport, MESSAGE};
use crate::net::wire::message::{Record, PRELUDE};
use crate::node::control::{Arrival, Control};
use done::Join;

pub(crate) use done::Done;

/// Up to so many bytes travel in a message rather than by a one-sided copy.
pub(crate) const INLINE: usize = 512;
/// How long the reason of a PE's end may take to be heard of, when its connection has broken.
const HEARSAY: Duration = Duration::from_millis(500);
/// Most bytes of data in one record.
pub(in crate::net) const RECORD: usize = MESSAGE - PRELUDE - 64;

/// What the transport is doing for this PE.
#[derive(Debug)]
pub(in crate::net) enum Flight {
    /// A copy's source or destination is in use. `op`: the operation is over then.
    Copy { pe: usize, op: Option<u64>, done: Done },
    /// A flush of so many copies.
    Flush { pe: usize, puts: u64 },
    /// A chunk is being sent.
    Chunk { pe: usize, chunk: Chunk },
    /// The data of a large message is on its way into a chunk.
    Receive { from: usize, number: u64, chunk: Chunk },
    /// Part of an answer is on its way into a chunk.
    Answer { reply: usize, at: usize, bytes: usize, chunk: Chunk },
    /// Part of an answer is on its way to its place.
    Straight { reply: usize, bytes: usize },
    /// A flush that a signal waits for; the record is sent then.
    Announce { pe: usize, op: u64, signal: Vec<u8> },
}

/// An answer that is awaited. `op` is the operation's number once it has started: [`crate::net::ordering::order`].
#[derive(Debug)]
pub(in crate::net) enum Awaited {
    Word {
        pe: usize,
        op: Option<u64>,
        done: Done,
    },
    /// Bytes, to be laid down at `dst`; so many are still to come.
    Data {
        pe: usize,
        op: Option<u64>,
        dst: Span,
        left: usize,
        /// The host cannot write there.
        gpu: bool,
        done: Done,
    },
    /// So many changes are carried out.
    Ack {
        pe: usize,
        changes: u64,
    },
}

impl Awaited {
    /// Whose answer it is.
    fn pe(&self) -> usize {
        match *self {
            Awaited::Word { pe, .. } | Awaited::Data { pe, .. } | Awaited::Ack { pe, .. } => pe,
        }
    }
}

/// A quiet under way: the peers that are not settled yet.
#[derive(Debug)]
pub(in crate::net) struct Quiet {
    peers: Vec<(usize, Option<Point>)>,
    done: Done,
}

/// The shape of a strided transfer, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) elem: usize,
    pub(crate) near_stride: isize,
    pub(crate) far_stride: isize,
    pub(crate) n: usize,
}

/// The engine of one PE.
pub(crate) struct Engine {
    me: usize,
    transport: Box<dyn Transport>,
    /// Who each PE is, for texts.
    names: Vec<String>,
    /// The leaders of the other nodes, who pass arrivals on to theirs.
    leaders: Vec<usize>,
    peers: Vec<Peer>,
    pub(in crate::net) segments: Segments,
    flights: Slab<Flight>,
    awaited: Slab<Awaited>,
    waiters: Slab<Option<Result<u64>>>,
    joins: Slab<Join>,
    letters: Slab<Then>,
    quiets: Slab<Quiet>,
    /// Operations, fences and quiets that are held back, over all peers.
    held: usize,
    /// Peers with something in `out`, or with something held back.
    busy: Vec<usize>,
    is_busy: Vec<bool>,
    events: Vec<Event>,
    /// Replies for kernels, by their numbers in `posts`.
    ring_replies: Vec<(u64, u64)>,
    posts: Option<Box<Posts>>,
    /// There are kernels that may post.
    posting: bool,
    /// Where heaps are in GPU memory: what moves it.
    pub(in crate::net) traffic: Option<Box<Traffic>>,
    control: Option<Arc<Control>>,
    /// Arrivals of PEs that came before there was a control segment to note them in.
    early: Vec<(usize, Arrival)>,
    health: Arc<Health>,
    /// Why the network thinks that a PE is gone, and since when; and who waits for what that PE will not do any more.
    suspicion: Option<(Instant, String)>,
    doomed: Vec<Done>,
}

impl Engine {
    pub(crate) fn new(
        me: usize,
        transport: Box<dyn Transport>,
        names: Vec<String>,
        leaders: Vec<usize>,
        health: Arc<Health>,
    ) -> Engine {
        let n = names.len();
        Engine {
            me,
            transport,
            names,
            leaders,
            peers: (0..n).map(|_| Peer::default()).collect(),
            segments: Segments::default(),
            flights: Slab::new(),
            awaited: Slab::new(),
            waiters: Slab::new(),
            joins: Slab::new(),
            letters: Slab::new(),
            quiets: Slab::new(),
            held: 0,
            busy: Vec::new(),
            is_busy: vec![false; n],
            events: Vec::new(),
            ring_replies: Vec::new(),
            posts: None,
            posting: false,
            traffic: None,
            control: None,
            early: Vec::new(),
            health,
            suspicion: None,
            doomed: Vec::new(),
        }
    }

    /// No kernel runs: what threads had of the ring is free again, once all that they posted is answered. True then.
    pub(in crate::net) fn reclaim(&mut self) -> bool {
        let Some(mut posts) = self.posts.take() else { return true };
        posts.answer(&mut self.ring_replies);
        let free = posts.reclaim(self);
        self.posts = Some(posts);
        free.unwrap_or_else(|e| {
            self.fail(e);
            true
        })
    }

    /// Heaps are in GPU memory.
    pub(in crate::net) fn set_traffic(&mut self, traffic: Traffic) {
        self.traffic = Some(Box::new(traffic));
    }

    pub(in crate::net) fn me(&self) -> usize {
        self.me
    }

    /// Begins an operation on `pe` that is over when [`Engine::end_op`] says so.
    pub(in crate::net) fn begin_op(&mut self, pe: usize) -> u64 {
        self.peers[pe].order.begin()
    }

    pub(in crate::net) fn end_op(&mut self, pe: usize, op: u64) {
        self.peers[pe].order.close(op);
    }

    /// A number under which the transport carries something.
    pub(in crate::net) fn fly(&mut self, flight: Flight) -> Token {
        self.flights.insert(flight) as Token
    }

    pub(in crate::net) fn end_flight(&mut self, token: Token) -> Flight {
        self.flights.remove(token as usize)
    }

    /// Where an answer's data goes; `None`: nobody waits for it.
    pub(in crate::net) fn awaited_span(&self, reply: usize) -> Option<Span> {
        match self.awaited.get(reply) {
            Some(&Awaited::Data { dst, .. }) => Some(dst),
            _ => None,
        }
    }

    pub(in crate::net) fn awaited_on_gpu(&self, reply: usize) -> bool {
        matches!(self.awaited.get(reply), Some(Awaited::Data { gpu: true, .. }))
    }

    /// Whether kernels may have posted something, for which no bell rings.
    pub(in crate::net) fn takes_posts(&self) -> bool {
        self.posting
    }

    pub(in crate::net) fn expect_posts(&mut self) {
        self.posting = true;
    }

    /// Kernels post to `ring` from now on; the PE's heap starts at `base` and its stride is that long.
    pub(in crate::net) fn set_ring(&mut self, ring: DeviceRing, base: usize, stride: usize) {
        self.posts = Some(Box::new(Posts::new(ring, base, stride)));
    }

    pub(in crate::net) fn n_pes(&self) -> usize {
        self.peers.len()
    }

    /// Takes what kernels have posted, and answers them.
    pub(in crate::net) fn serve_kernels(&mut self) -> Result<bool> {
        let Some(mut posts) = self.posts.take() else { return Ok(false) };
        let taken = if self.congested() { Ok(false) } else { posts.take(self) };
        posts.answer(&mut self.ring_replies);
        self.posts = Some(posts);
        taken
    }

    /// Whoever fences or waits for all on the host speaks for kernels that have ended, too, as he does where PEs are mapped: what they
    /// have posted starts before. Within a post of a kernel's own this is nothing.
    pub(in crate::net) fn start_posts(&mut self) {
        let Some(mut posts) = self.posts.take() else { return };
        let started = posts.take_present(self);
        self.posts = Some(posts);
        if let Err(e) = started {
            self.fail(e);
        }
    }

    /// What kernels have posted and could not be done, once.
    pub(in crate::net) fn take_refused(&mut self) -> Option<Error> {
        self.posts.as_mut().and_then(|posts| posts.refused.take())
    }

    pub(in crate::net) fn transport(&mut self) -> &mut dyn Transport {
        &mut *self.transport
    }

    /// Arrivals in collective calls are noted here.
    pub(crate) fn set_control(&mut self, control: Arc<Control>) {
        for (pe, arrival) in self.early.drain(..) {
            control.arrive_for(pe, &arrival);
        }
        self.control = Some(control);
    }

    /// This PE has entered a collective call: the other nodes hear of it.
    pub(crate) fn arrive(&mut self, arrival: Arrival) -> Result<()> {
        for i in 0..self.leaders.len() {
            let pe = self.leaders[i];
            self.emit(pe, &Record::Arrive(arrival))?;
            self.post(pe)?;
        }
        Ok(())
    }
}
