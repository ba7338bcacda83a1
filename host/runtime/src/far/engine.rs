//! The engine: what is asked of PEs whose memory is not mapped, by this PE's host, streams and kernels alike, and what they
//! ask of this one. It never blocks; whoever waits [turns](Engine::turn) it.
//!
//! Small things are records in numbered [messages](super::message), carried out by the target's engine in their order; bulk is
//! the transport's one-sided copies, in no order. Order between the two is made here, for each peer by itself
//! ([`super::peer`]): a fence, and a signal behind its data, wait for the network's word that the copies have arrived.

use std::sync::Arc;
use std::time::{Duration, Instant};

use slab::Slab;

use super::local::{Answer, Flow, Local};
use super::message::{self, Record, NO_REPLY, PRELUDE};
use super::peer::{Held, Op, Peer, Settle, Wanted};
use super::posts::Posts;
use super::ring::DeviceRing;
use super::segments::Segments;
use super::transport::{Event, Token, Transport, MESSAGE};
use crate::error::{err, Error, Result};
use crate::health::Health;
use crate::node::control::Control;

/// Up to so many bytes travel in a message rather than by a one-sided copy.
pub(crate) const INLINE: usize = 512;
/// How long the reason of a PE's end may take to be heard of, when its connection has broken.
const HEARSAY: Duration = Duration::from_millis(500);
/// Most bytes of data in one record.
const RECORD: usize = MESSAGE - PRELUDE - 64;

/// Who hears that an operation is over here: its source is free, or its answer has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    /// Nobody.
    Nothing,
    /// A waiter of the host: a number of [`Engine::waiter`].
    Wake(usize),
    /// A thread of a kernel: a reply slot of the device ring.
    Ring(u64),
    /// An operation of several parts: a number in `joins`.
    Join(usize),
}

/// An operation of several parts.
#[derive(Debug)]
struct Join {
    left: usize,
    done: Done,
}

/// What the transport is doing for this PE.
#[derive(Debug)]
enum Flight {
    /// A copy's source or destination is in use. `op`: the operation is over then.
    Copy { pe: usize, op: Option<u64>, done: Done },
    /// A flush of so many copies.
    Flush { pe: usize, puts: u64 },
    /// A flush that a signal waits for; the record is sent then.
    Announce { pe: usize, op: u64, signal: Vec<u8> },
}

/// An answer that is awaited.
#[derive(Debug)]
enum Awaited {
    Word {
        pe: usize,
        op: u64,
        done: Done,
    },
    /// So many bytes, to be laid down at `dst` in elements of `elem`, `stride` bytes apart.
    Data {
        pe: usize,
        op: u64,
        dst: usize,
        elem: usize,
        stride: isize,
        left: usize,
        done: Done,
    },
    /// So many changes are carried out.
    Ack {
        pe: usize,
        changes: u64,
    },
}

/// A quiet under way: the peers that are not settled yet.
#[derive(Debug)]
struct Quiet {
    peers: Vec<(usize, Option<Settle>)>,
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
    pub(super) segments: Segments,
    local: Local,
    flights: Slab<Flight>,
    awaited: Slab<Awaited>,
    waiters: Slab<Option<Result<u64>>>,
    joins: Slab<Join>,
    quiets: Slab<Quiet>,
    /// Peers with something in `out` or `held`, or with messages to carry out.
    busy: Vec<usize>,
    is_busy: Vec<bool>,
    events: Vec<Event>,
    /// Replies for kernels, by their numbers in `posts`.
    ring_replies: Vec<(u64, u64)>,
    posts: Option<Box<Posts>>,
    control: Option<Arc<Control>>,
    /// Arrivals that came before there was a control segment to note them in: PE, number, kinds, words.
    early: Vec<(usize, u64, u8, u8, [u64; 4])>,
    health: Arc<Health>,
    failed: Option<Error>,
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
        local: Local,
    ) -> Engine {
        let n = names.len();
        Engine {
            me,
            transport,
            names,
            leaders,
            peers: (0..n).map(|_| Peer::default()).collect(),
            segments: Segments::default(),
            local,
            flights: Slab::new(),
            awaited: Slab::new(),
            waiters: Slab::new(),
            joins: Slab::new(),
            quiets: Slab::new(),
            busy: Vec::new(),
            is_busy: vec![false; n],
            events: Vec::new(),
            ring_replies: Vec::new(),
            posts: None,
            control: None,
            early: Vec::new(),
            health,
            failed: None,
            suspicion: None,
            doomed: Vec::new(),
        }
    }

    /// Whether kernels may have posted something, for which no bell rings.
    pub(super) fn takes_posts(&self) -> bool {
        self.posts.is_some()
    }

    /// Kernels post to `ring` from now on; the PE's heap starts at `base` and its stride is that long.
    pub(super) fn set_ring(&mut self, ring: DeviceRing, base: usize, stride: usize) {
        self.posts = Some(Box::new(Posts::new(ring, base, stride)));
    }

    pub(super) fn n_pes(&self) -> usize {
        self.peers.len()
    }

    /// Tells that an operation is over here.
    pub(super) fn tell(&mut self, done: Done) {
        self.fire(done, Ok(0));
    }

    /// Takes what kernels have posted, and answers them.
    fn serve_kernels(&mut self) -> Result<bool> {
        let Some(mut posts) = self.posts.take() else { return Ok(false) };
        let taken = if self.transport.congested() { Ok(false) } else { posts.take(self) };
        posts.answer(&mut self.ring_replies);
        self.posts = Some(posts);
        taken
    }

    pub(super) fn transport(&mut self) -> &mut dyn Transport {
        &mut *self.transport
    }

    /// Arrivals in collective calls are noted here.
    pub(crate) fn set_control(&mut self, control: Arc<Control>) {
        for (pe, number, kind, previous, words) in self.early.drain(..) {
            control.arrive_for(pe, number, kind, previous, &words);
        }
        self.control = Some(control);
    }

    // ---- waiters ----

    /// A number under which the host waits.
    pub(crate) fn waiter(&mut self) -> usize {
        self.waiters.insert(None)
    }

    /// What came for it, once; the number is free then.
    pub(crate) fn take(&mut self, waiter: usize) -> Option<Result<u64>> {
        self.waiters[waiter].is_some().then(|| self.waiters.remove(waiter).expect("just looked"))
    }

    fn fire(&mut self, done: Done, result: Result<u64>) {
        match done {
            Done::Nothing => {}
            Done::Wake(waiter) => self.waiters[waiter] = Some(result),
            // A kernel learns of a failure by the broken job.
            Done::Ring(slot) => {
                if let Ok(value) = result {
                    self.ring_replies.push((slot, value));
                }
            }
            Done::Join(join) => {
                let last = {
                    let join = &mut self.joins[join];
                    join.left -= 1;
                    join.left == 0 || result.is_err()
                };
                if last && self.joins[join].left == 0 {
                    let done = self.joins.remove(join).done;
                    self.fire(done, result);
                } else if last {
                    // The first failure tells; what is left finds nobody.
                    let done = std::mem::replace(&mut self.joins[join].done, Done::Nothing);
                    self.fire(done, result);
                }
            }
        }
    }

    // ---- operations: each starts now, or is held back by a fence ----

    /// Sends a record of at most [`RECORD`] bytes of data; `changes`: it changes memory and is not answered by itself.
    #[inline]
    pub(crate) fn record(&mut self, pe: usize, record: &Record<'_>, changes: bool) -> Result<()> {
        if self.peers[pe].held.is_empty() {
            if changes {
                self.peers[pe].changes += 1;
            }
            return self.emit(pe, record);
        }
        let mut bytes = Vec::with_capacity(record.encoded());
        record.encode(&mut bytes);
        self.peers[pe].held.push_back(Held::Op(Op::Records { bytes, changes }));
        Ok(())
    }

    /// Puts a record into the message for `pe`.
    #[inline]
    fn emit(&mut self, pe: usize, record: &Record<'_>) -> Result<()> {
        self.room(pe, record.encoded())?;
        record.encode(&mut self.peers[pe].out);
        Ok(())
    }

    /// The message for `pe` has room for so many bytes more.
    #[inline]
    fn room(&mut self, pe: usize, bytes: usize) -> Result<()> {
        if self.peers[pe].out.len() + bytes > MESSAGE {
            self.post(pe)?;
        }
        if self.peers[pe].out.is_empty() {
            let mut out = self.transport.buffer();
            message::begin(&mut out, self.me as u32);
            self.peers[pe].out = out;
            self.note_busy(pe);
        }
        Ok(())
    }

    #[inline]
    fn note_busy(&mut self, pe: usize) {
        if !std::mem::replace(&mut self.is_busy[pe], true) {
            self.busy.push(pe);
        }
    }

    /// Sends the message for `pe`, if there is one.
    fn post(&mut self, pe: usize) -> Result<()> {
        let peer = &mut self.peers[pe];
        if peer.out.is_empty() {
            return Ok(());
        }
        let mut out = std::mem::take(&mut peer.out);
        message::number(&mut out, peer.next_out);
        peer.next_out += 1;
        self.transport.send(pe, out)
    }

    /// Copies `bytes` at `src` to `offset` on `pe`; `done` when the source is free.
    ///
    /// # Safety
    /// The source is valid until then.
    pub(crate) unsafe fn put(
        &mut self,
        pe: usize,
        offset: u64,
        src: usize,
        bytes: usize,
        done: Done,
    ) -> Result<()> {
        self.submit(pe, Op::Put { offset, src, bytes, done })
    }

    /// The same, with a signal behind it.
    ///
    /// # Safety
    /// As for [`Engine::put`].
    pub(crate) unsafe fn put_signal(
        &mut self,
        pe: usize,
        offset: u64,
        src: usize,
        bytes: usize,
        signal: &Record<'_>,
        done: Done,
    ) -> Result<()> {
        let mut record = Vec::with_capacity(signal.encoded());
        signal.encode(&mut record);
        self.submit(pe, Op::PutSignal { offset, src, bytes, signal: record, done })
    }

    /// Copies `bytes` from `offset` on `pe` to `dst`.
    ///
    /// # Safety
    /// The destination is valid until then.
    pub(crate) unsafe fn get(
        &mut self,
        pe: usize,
        offset: u64,
        dst: usize,
        bytes: usize,
        done: Done,
    ) -> Result<()> {
        self.submit(pe, Op::Get { offset, dst, bytes, done })
    }

    /// An atomic update; `done` hears the old value, if it is anybody. `update` is a number of `word::Update`.
    #[allow(clippy::too_many_arguments)] // the operation has that many
    pub(crate) fn atomic(
        &mut self,
        pe: usize,
        op: u8,
        width: u8,
        offset: u64,
        value: u64,
        compare: u64,
        done: Done,
    ) -> Result<()> {
        let fetches = done != Done::Nothing;
        let reply = if fetches { self.await_word(pe, done) } else { NO_REPLY };
        self.record(pe, &Record::Atomic { op, width, offset, value, compare, reply }, !fetches)
    }

    /// Reads a word of `pe`.
    pub(crate) fn load(&mut self, pe: usize, width: u8, offset: u64, done: Done) -> Result<()> {
        let reply = self.await_word(pe, done);
        self.record(pe, &Record::Load { width, offset, reply }, false)
    }

    fn await_word(&mut self, pe: usize, done: Done) -> u64 {
        let op = self.peers[pe].begin();
        self.awaited.insert(Awaited::Word { pe, op, done }) as u64
    }

    /// Strided put: elements `near_stride` bytes apart to elements `far_stride` bytes apart. The source is free on return.
    ///
    /// # Safety
    /// Every element of the source is valid host memory.
    pub(crate) unsafe fn put_rows(&mut self, pe: usize, offset: u64, src: usize, rows: Rows) -> Result<()> {
        let Rows { elem, near_stride, far_stride, n } = rows;
        let each = (RECORD / elem).max(1);
        let mut packed = Vec::with_capacity(each.min(n) * elem);
        let mut first = 0;
        while first < n {
            let count = each.min(n - first);
            let far = offset.wrapping_add_signed((first as isize * far_stride) as i64);
            packed.clear();
            for i in first..first + count {
                // SAFETY: an element of the source.
                packed.extend_from_slice(unsafe {
                    std::slice::from_raw_parts(src.wrapping_add_signed(i as isize * near_stride) as *const u8, elem)
                });
            }
            if elem > RECORD {
                // One element, in pieces.
                for (i, piece) in packed.chunks(RECORD).enumerate() {
                    self.record(pe, &Record::Data { offset: far + (i * RECORD) as u64, data: piece }, true)?;
                }
            } else {
                let record =
                    Record::Rows { offset: far, stride: far_stride as u64, elem: elem as u64, data: &packed };
                self.record(pe, &record, true)?;
            }
            first += count;
        }
        Ok(())
    }

    /// Strided get.
    ///
    /// # Safety
    /// Every element of the destination is valid host memory until it is done.
    pub(crate) unsafe fn get_rows(
        &mut self,
        pe: usize,
        offset: u64,
        dst: usize,
        rows: Rows,
        done: Done,
    ) -> Result<()> {
        let Rows { elem, near_stride, far_stride, n } = rows;
        let op = self.peers[pe].begin();
        let left = elem * n;
        let reply =
            self.awaited.insert(Awaited::Data { pe, op, dst, elem, stride: near_stride, left, done }) as u64;
        let record =
            Record::FetchRows { offset, stride: far_stride as u64, elem: elem as u64, n: n as u64, reply };
        self.record(pe, &record, false)
    }

    fn submit(&mut self, pe: usize, op: Op) -> Result<()> {
        let peer = &mut self.peers[pe];
        let puts = matches!(op, Op::Put { .. } | Op::PutSignal { .. });
        if peer.held.is_empty() {
            if !(puts && peer.acked < peer.fenced) {
                return self.start(pe, op);
            }
            // What a fence put before this copy is not carried out yet.
            let point = peer.now();
            peer.held.push_back(Held::Fence(point));
        }
        self.peers[pe].held.push_back(Held::Op(op));
        self.note_busy(pe);
        Ok(())
    }

    fn start(&mut self, pe: usize, op: Op) -> Result<()> {
        match op {
            Op::Records { bytes, changes } => {
                if changes {
                    self.peers[pe].changes += 1;
                }
                self.room(pe, bytes.len())?;
                self.peers[pe].out.extend_from_slice(&bytes);
                Ok(())
            }
            Op::Put { offset, src, bytes, done } => self.start_put(pe, offset, src, bytes, done),
            Op::PutSignal { offset, src, bytes, signal, done } => {
                let copies = self.peers[pe].puts;
                self.start_put(pe, offset, src, bytes, done)?;
                if self.peers[pe].puts == copies {
                    // All of it went by messages, which keep their order.
                    self.peers[pe].changes += 1;
                    self.room(pe, signal.len())?;
                    self.peers[pe].out.extend_from_slice(&signal);
                    return Ok(());
                }
                let op = self.peers[pe].begin();
                self.flush(pe, Flight::Announce { pe, op, signal })
            }
            Op::Get { offset, dst, bytes, done } => self.start_get(pe, offset, dst, bytes, done),
        }
    }

    /// Starts a flush of the copies so far.
    fn flush(&mut self, pe: usize, flight: Flight) -> Result<()> {
        let peer = &mut self.peers[pe];
        if matches!(flight, Flight::Flush { .. }) {
            peer.flush_asked = peer.flush_asked.max(peer.puts);
        }
        let token = self.flights.insert(flight) as Token;
        if self.transport.flush(pe, token)? {
            self.landed(token, Ok(()))?;
        }
        Ok(())
    }

    fn start_put(&mut self, pe: usize, offset: u64, src: usize, bytes: usize, done: Done) -> Result<()> {
        let (mut at, mut left) = (0, bytes);
        let mut parts = Vec::new();
        while left > 0 {
            let part = self
                .segments
                .part(offset + at as u64, left, pe)
                .ok_or_else(|| self.nowhere(offset, bytes, pe))?;
            parts.push((at, part));
            (at, left) = (at + part.bytes, left - part.bytes);
        }
        let done = self.join(parts.len(), done);
        if parts.is_empty() {
            self.fire(done, Ok(0));
        }
        for (at, part) in parts {
            if !part.reachable || part.bytes <= INLINE {
                self.put_records(pe, offset + at as u64, src + at, part.bytes)?;
                self.fire(done, Ok(0));
                continue;
            }
            let token = self.flights.insert(Flight::Copy { pe, op: None, done }) as Token;
            self.peers[pe].puts += 1;
            // SAFETY: the caller of `put` vouches for the source.
            let free = unsafe {
                self.transport.put(pe, part.id, part.remote, (src + at) as *const u8, part.bytes, token)
            }?;
            if free {
                self.landed(token, Ok(()))?;
            }
        }
        Ok(())
    }

    /// Bytes in messages. The source is free on return.
    fn put_records(&mut self, pe: usize, offset: u64, src: usize, bytes: usize) -> Result<()> {
        let mut at = 0;
        while at < bytes {
            let piece = RECORD.min(bytes - at);
            // SAFETY: the caller of `put` vouches for the source.
            let data = unsafe { std::slice::from_raw_parts((src + at) as *const u8, piece) };
            self.peers[pe].changes += 1;
            self.emit(pe, &Record::Data { offset: offset + at as u64, data })?;
            at += piece;
        }
        Ok(())
    }

    fn start_get(&mut self, pe: usize, offset: u64, dst: usize, bytes: usize, done: Done) -> Result<()> {
        let (mut at, mut left) = (0, bytes);
        let mut parts = Vec::new();
        while left > 0 {
            let part = self
                .segments
                .part(offset + at as u64, left, pe)
                .ok_or_else(|| self.nowhere(offset, bytes, pe))?;
            parts.push((at, part));
            (at, left) = (at + part.bytes, left - part.bytes);
        }
        let done = self.join(parts.len(), done);
        if parts.is_empty() {
            self.fire(done, Ok(0));
        }
        for (at, part) in parts {
            let op = self.peers[pe].begin();
            if !part.reachable || part.bytes <= INLINE {
                let elem = part.bytes;
                let awaited =
                    Awaited::Data { pe, op, dst: dst + at, elem, stride: elem as isize, left: part.bytes, done };
                let reply = self.awaited.insert(awaited) as u64;
                let record = Record::Fetch { offset: offset + at as u64, bytes: part.bytes as u64, reply };
                self.emit(pe, &record)?;
                continue;
            }
            let token = self.flights.insert(Flight::Copy { pe, op: Some(op), done }) as Token;
            // SAFETY: the caller of `get` vouches for the destination.
            let here = unsafe {
                self.transport.get(pe, part.id, part.remote, (dst + at) as *mut u8, part.bytes, token)
            }?;
            if here {
                self.landed(token, Ok(()))?;
            }
        }
        Ok(())
    }

    fn join(&mut self, parts: usize, done: Done) -> Done {
        match (parts, done) {
            (0 | 1, _) | (_, Done::Nothing) => done,
            _ => Done::Join(self.joins.insert(Join { left: parts, done })),
        }
    }

    fn nowhere(&self, offset: u64, bytes: usize, pe: usize) -> Error {
        err!(
            INTERNAL,
            "{bytes} bytes at offset {offset:#x} of {} belong to no memory that was registered",
            self.names[pe]
        )
    }

    // ---- order ----

    /// What is asked of `pe` from here on happens after what was asked before.
    fn fence_one(&mut self, pe: usize) {
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
        for pe in 0..self.peers.len() {
            self.fence_one(pe);
        }
    }

    /// `done` when all that was asked so far has been carried out everywhere.
    pub(crate) fn quiet(&mut self, done: Done) -> Result<()> {
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
    fn quieten(&mut self, quiet: usize) -> Result<()> {
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
            self.fire(done, Ok(0));
        } else {
            self.quiets[quiet].peers = peers;
        }
        Ok(())
    }

    /// Asks the network, or the target, how far it is.
    fn ask(&mut self, pe: usize, wanted: Wanted) -> Result<()> {
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
    fn release(&mut self, pe: usize) -> Result<()> {
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

    // ---- collective calls ----

    /// This PE has entered a collective call: the other nodes hear of it.
    pub(crate) fn arrive(&mut self, number: u64, kind: u8, previous: u8, words: [u64; 4]) -> Result<()> {
        for i in 0..self.leaders.len() {
            let pe = self.leaders[i];
            self.emit(pe, &Record::Arrive { number, kind, previous, words })?;
            self.post(pe)?;
        }
        Ok(())
    }

    // ---- turning ----

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

    fn try_turn(&mut self) -> Result<bool> {
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
        let mut answers = std::mem::take(&mut self.local.answers);
        self.local.poll()?;
        std::mem::swap(&mut answers, &mut self.local.answers);
        for (Answer { pe, reply }, value) in answers.drain(..) {
            self.emit(pe, &Record::Reply { reply, value })?;
        }
        if !self.quiets.is_empty() {
            for quiet in self.quiets.iter().map(|(key, _)| key).collect::<Vec<_>>() {
                self.quieten(quiet)?;
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
            if !self.peers[pe].held.is_empty() {
                self.release(pe)?;
            }
            sent |= !self.peers[pe].out.is_empty();
            self.post(pe)?;
            if !self.peers[pe].held.is_empty() {
                self.note_busy(pe);
            }
        }
        Ok(sent)
    }

    fn event(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Message(message) => self.incoming(message),
            Event::Done(token) => self.landed(token, Ok(())),
            Event::Failed(token, e) => self.landed(token, Err(e)),
            Event::Lost(pe, e) => {
                self.suspect(pe, &e);
                Ok(())
            }
            Event::Bulk { .. } => Err(err!(INTERNAL, "a large message that nobody has asked for")),
        }
    }

    /// Something in flight has come to its end.
    fn landed(&mut self, token: Token, result: Result<()>) -> Result<()> {
        let flight = self.flights.remove(token as usize);
        if let Err(e) = &result {
            let (Flight::Copy { pe, .. } | Flight::Flush { pe, .. } | Flight::Announce { pe, .. }) = flight;
            self.suspect(pe, e);
        }
        match flight {
            Flight::Copy { pe, op, done } => {
                if let Some(op) = op {
                    self.peers[pe].over(op);
                }
                match result {
                    Ok(()) => self.fire(done, Ok(0)),
                    Err(_) => self.doomed.push(done),
                }
            }
            Flight::Flush { pe, puts } => {
                if result.is_ok() {
                    self.peers[pe].flushed = self.peers[pe].flushed.max(puts);
                }
            }
            Flight::Announce { pe, op, signal } => {
                if result.is_ok() {
                    self.peers[pe].changes += 1;
                    self.room(pe, signal.len())?;
                    self.peers[pe].out.extend_from_slice(&signal);
                    self.peers[pe].over(op);
                }
            }
        }
        Ok(())
    }

    /// The network has lost a PE. Why that one ended others may know better, and tell within a moment.
    fn suspect(&mut self, pe: usize, e: &Error) {
        let who = self.names.get(pe).map_or("a PE that does not exist", String::as_str);
        let why = format!("{who} cannot be reached any more: {}", e.message);
        self.suspicion.get_or_insert_with(|| (Instant::now(), why));
    }

    /// Acts on a loss once its reason is known, or nobody knows any.
    fn judge(&mut self) {
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

    /// A message has come in: it is carried out when its turn has come.
    fn incoming(&mut self, message: Vec<u8>) -> Result<()> {
        let (from, number) = message::prelude(&message)?;
        let Some(peer) = self.peers.get_mut(from) else {
            return Err(err!(INTERNAL, "a message of PE {from}, which does not exist"));
        };
        if number != peer.next_in {
            peer.early.insert(number, message);
            return Ok(());
        }
        let mut next = Some(message);
        while let Some(message) = next {
            self.peers[from].next_in += 1;
            self.carry_out(from, &message)?;
            self.transport.recycle(message);
            let peer = &mut self.peers[from];
            next = peer.early.remove(&peer.next_in);
        }
        Ok(())
    }

    fn carry_out(&mut self, from: usize, message: &[u8]) -> Result<()> {
        let mut at = PRELUDE;
        while let Some(record) = Record::decode(message, &mut at)? {
            self.obey(from, &record).map_err(|e| e.context(format_args!("asked by {}", self.names[from])))?;
        }
        Ok(())
    }

    /// This PE's own memory at an offset that another PE named.
    fn own(&self, offset: u64, bytes: usize) -> Result<usize> {
        self.segments.own(offset, bytes).ok_or_else(|| {
            err!(BAD_ADDRESS, "{bytes} bytes at offset {offset:#x} are not in this PE's symmetric memory")
        })
    }

    fn obey(&mut self, from: usize, record: &Record<'_>) -> Result<()> {
        match *record {
            Record::Word { width, offset, value } => {
                let at = self.own(offset, width.into())?;
                self.local.store(at, width, value)?;
            }
            Record::Data { offset, data } => {
                let at = self.own(offset, data.len())?;
                self.local.write(at, data)?;
            }
            Record::Rows { offset, stride, elem, data } => {
                let (stride, elem) = (stride as i64, elem as usize);
                for (i, row) in data.chunks_exact(elem.max(1)).enumerate() {
                    let at = self.own(offset.wrapping_add_signed(i as i64 * stride), elem)?;
                    self.local.write(at, row)?;
                }
            }
            Record::Atomic { op, width, offset, value, compare, reply } => {
                let at = self.own(offset, width.into())?;
                let answer = (reply != NO_REPLY).then_some(Answer { pe: from, reply });
                if let Flow::Now(old) = self.local.update(at, width, op, value, compare, answer)? {
                    if answer.is_some() {
                        self.emit(from, &Record::Reply { reply, value: old })?;
                    }
                }
            }
            Record::Signal { add, offset, value } => {
                let at = self.own(offset, 8)?;
                self.local.signal(at, add, value)?;
            }
            Record::Load { width, offset, reply } => {
                let at = self.own(offset, width.into())?;
                let answer = Answer { pe: from, reply };
                if let Flow::Now(value) = self.local.load(at, width, answer)? {
                    self.emit(from, &Record::Reply { reply, value })?;
                }
            }
            Record::Fetch { offset, bytes, reply } => {
                self.answer_rows(
                    from,
                    offset,
                    Rows { elem: bytes as usize, near_stride: 0, far_stride: 0, n: 1 },
                    reply,
                )?;
            }
            Record::FetchRows { offset, stride, elem, n, reply } => {
                let rows =
                    Rows { elem: elem as usize, near_stride: 0, far_stride: stride as isize, n: n as usize };
                self.answer_rows(from, offset, rows, reply)?;
            }
            Record::Reply { reply, value } => self.answered(reply, value)?,
            Record::ReplyData { reply, at, data } => self.answered_data(reply, at as usize, data)?,
            Record::Flush { reply } => {
                if let Flow::Now(_) = self.local.settle(Answer { pe: from, reply })? {
                    self.emit(from, &Record::Reply { reply, value: 0 })?;
                }
            }
            Record::Arrive { number, kind, previous, words } => match &self.control {
                Some(control) => control.arrive_for(from, number, kind, previous, &words),
                None => self.early.push((from, number, kind, previous, words)),
            },
            Record::Bulk { .. } => return Err(err!(INTERNAL, "a large message that nobody has asked for")),
        }
        Ok(())
    }

    /// Sends what was asked for, packed, in pieces.
    fn answer_rows(&mut self, to: usize, offset: u64, rows: Rows, reply: u64) -> Result<()> {
        let Rows { elem, far_stride, n, .. } = rows;
        let each = (RECORD / elem.max(1)).max(1);
        let mut packed = Vec::with_capacity(RECORD);
        let (mut first, mut sent) = (0, 0);
        while first < n {
            let count = if elem > RECORD { 1 } else { each.min(n - first) };
            packed.clear();
            for i in first..first + count {
                let at = self.own(offset.wrapping_add_signed((i as isize * far_stride) as i64), elem)?;
                self.local.read(at, elem, &mut packed)?;
            }
            for piece in packed.chunks(RECORD) {
                self.emit(to, &Record::ReplyData { reply, at: sent as u64, data: piece })?;
                sent += piece.len();
            }
            first += count;
        }
        Ok(())
    }

    fn answered(&mut self, reply: u64, value: u64) -> Result<()> {
        let awaited = self.awaited.try_remove(reply as usize);
        match awaited.ok_or_else(|| err!(INTERNAL, "an answer that nobody waits for"))? {
            Awaited::Word { pe, op, done } => {
                self.peers[pe].over(op);
                self.fire(done, Ok(value));
            }
            Awaited::Ack { pe, changes } => {
                let peer = &mut self.peers[pe];
                peer.acked = peer.acked.max(changes);
            }
            Awaited::Data { .. } => return Err(err!(INTERNAL, "a word as the answer to a get")),
        }
        Ok(())
    }

    fn answered_data(&mut self, reply: u64, at: usize, data: &[u8]) -> Result<()> {
        let key = reply as usize;
        let Some(Awaited::Data { pe, op, dst, elem, stride, left, done }) = self.awaited.get_mut(key) else {
            return Err(err!(INTERNAL, "data that nobody waits for"));
        };
        if data.len() > *left || *elem == 0 {
            return Err(err!(INTERNAL, "more data than was asked for"));
        }
        // Pieces may begin and end inside an element.
        let mut done_bytes = 0;
        while done_bytes < data.len() {
            let (row, inside) = ((at + done_bytes) / *elem, (at + done_bytes) % *elem);
            let bytes = (*elem - inside).min(data.len() - done_bytes);
            let to = dst.wrapping_add_signed(row as isize * *stride) + inside;
            self.local.deliver(to, &data[done_bytes..done_bytes + bytes])?;
            done_bytes += bytes;
        }
        *left -= data.len();
        if *left == 0 {
            let (pe, op, done) = (*pe, *op, *done);
            self.awaited.remove(key);
            self.peers[pe].over(op);
            self.fire(done, Ok(0));
        }
        Ok(())
    }

    /// The engine itself cannot go on: everything that waits ends.
    pub(super) fn fail(&mut self, e: Error) {
        if self.failed.is_none() {
            self.health.break_job(format!("the network of {} failed: {}", self.names[self.me], e.message));
            self.failed = Some(e);
        }
    }

    /// True while the transport may still touch memory of callers.
    pub(super) fn in_flight(&self) -> bool {
        self.flights.iter().any(|(_, flight)| matches!(flight, Flight::Copy { .. }))
    }
}
