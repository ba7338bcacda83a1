//! Operations of this PE on its peers: each starts now, or a fence holds it back. The functions here are what
//! the host, streams and kernels may ask for; small things go in records, bulk by the transport or, where
//! that does not reach GPU memory, in chunks.

use super::arrivals::Note;
use super::core::Core;
use super::in_flight::Flight;
use super::INLINE;
use crate::error::Result;
use crate::net::completion::Done;
use crate::net::gpu::traffic::Traffic;
use crate::net::memory::span::Span;
use crate::net::ordering::{Lane, Next};
use crate::net::request::{Request, Rows, Transfer};
use crate::net::wire::encode;
use crate::net::wire::message::{Record, NO_REPLY};

/// What operations need: the core, and where heaps are in GPU memory, what moves that.
pub(crate) struct Operations {
    pub(in crate::net) core: Core,
    pub(in crate::net) gpu: Option<Box<Traffic>>,
    /// Notes arrivals.
    pub(super) note: Note,
    /// Callers have the error of a broken job, and may have freed what they gave: what is held back does not
    /// start any more, and what comes in is dropped.
    pub(super) let_go: bool,
}

impl Operations {
    // ---- what may be asked for ----

    /// Copies `bytes` at `src` to `offset` on `pe`; `done` when the source is free.
    ///
    /// # Safety
    /// The source is valid until then.
    pub(crate) unsafe fn put(
        &mut self,
        lane: Lane,
        offset: u64,
        src: usize,
        bytes: usize,
        done: Done,
    ) -> Result<()> {
        let copy = Transfer { near: src, offset, bytes, done };
        self.submit(lane, Request::Put { copy, signal: None })
    }

    /// The same, with a signal behind it.
    ///
    /// # Safety
    /// As for [`Operations::put`].
    pub(crate) unsafe fn put_signal(
        &mut self,
        lane: Lane,
        offset: u64,
        src: usize,
        bytes: usize,
        signal: &Record<'_>,
        done: Done,
    ) -> Result<()> {
        let copy = Transfer { near: src, offset, bytes, done };
        self.submit(lane, Request::Put { copy, signal: Some(encode(signal)) })
    }

    /// Copies `bytes` from `offset` on `pe` to `dst`.
    ///
    /// # Safety
    /// The destination is valid until `done` completes.
    pub(crate) unsafe fn get(
        &mut self,
        lane: Lane,
        offset: u64,
        dst: usize,
        bytes: usize,
        done: Done,
    ) -> Result<()> {
        self.submit(lane, Request::Get(Transfer { near: dst, offset, bytes, done }))
    }

    /// Strided put: elements `near_stride` bytes apart to elements `far_stride` bytes apart; `done` when the
    /// source is free.
    ///
    /// # Safety
    /// Every element of the source is valid until then.
    pub(crate) unsafe fn put_rows(
        &mut self,
        lane: Lane,
        offset: u64,
        src: usize,
        rows: Rows,
        done: Done,
    ) -> Result<()> {
        self.submit(lane, Request::PutRows { offset, src, rows, done })
    }

    /// Strided get.
    ///
    /// # Safety
    /// Every element of the destination is valid until `done` completes.
    pub(crate) unsafe fn get_rows(
        &mut self,
        lane: Lane,
        offset: u64,
        dst: usize,
        rows: Rows,
        done: Done,
    ) -> Result<()> {
        let Rows { elem, near_stride, far_stride, n } = rows;
        let dst = Span { at: dst, stride: near_stride, elem, count: n };
        let gpu = self.needs_gpu(dst.at)?;
        let reply = self.core.in_flight.await_data(lane, dst, gpu, done);
        let record =
            Record::FetchRows { offset, stride: far_stride as u64, elem: elem as u64, n: n as u64, reply };
        self.ask(lane, &record, reply)
    }

    /// An atomic update; `done` completes with the old value. `op` is a number of `word::Update`, or
    /// [`FLOAT_ADD`](crate::net::wire::message::FLOAT_ADD).
    #[allow(clippy::too_many_arguments, reason = "the operation has that many")]
    pub(crate) fn atomic(
        &mut self,
        lane: Lane,
        op: u8,
        width: u8,
        offset: u64,
        value: u64,
        compare: u64,
        done: Done,
    ) -> Result<()> {
        if done == Done::Nothing {
            return self.record(lane, &Record::Atomic { op, width, offset, value, compare, reply: NO_REPLY });
        }
        let reply = self.core.in_flight.await_word(lane, done);
        self.ask(lane, &Record::Atomic { op, width, offset, value, compare, reply }, reply)
    }

    /// Reads a word of `pe`.
    pub(crate) fn load(&mut self, lane: Lane, width: u8, offset: u64, done: Done) -> Result<()> {
        let reply = self.core.in_flight.await_word(lane, done);
        self.ask(lane, &Record::Load { width, offset, reply }, reply)
    }

    /// Sends a record of at most [`RECORD`](crate::net::wire::RECORD) bytes of data that changes memory and
    /// has no answer.
    #[inline]
    pub(crate) fn record(&mut self, lane: Lane, record: &Record<'_>) -> Result<()> {
        if self.core.ordering.may_start(lane, false) {
            return self.core.emit_counted(lane, record);
        }
        self.hold(lane, Request::Records(encode(record)));
        Ok(())
    }

    /// An operation is over, with no result but that.
    pub(crate) fn complete(&mut self, done: Done) {
        self.core.complete(done);
    }

    /// What is asked in the context from here on happens after what was asked in it before, on each PE.
    pub(in crate::net) fn fence(&mut self, context: u64) {
        for lane in self.core.ordering.busy(Some(context)) {
            if self.core.ordering.fence(lane) {
                self.core.wire.activate(lane.pe);
            }
        }
    }

    /// What is asked on the lane from here on happens after a strided put just asked for. From host memory
    /// rows are records, which keep their order; from GPU memory they are sent later, so that it takes a
    /// fence.
    pub(crate) fn fence_rows(&mut self, lane: Lane) {
        if self.gpu.is_some() && self.core.ordering.fence(lane) {
            self.core.wire.activate(lane.pe);
        }
    }

    /// `done` when all that was asked so far, in the context or in all, has been carried out everywhere.
    pub(in crate::net) fn quiet(&mut self, context: Option<u64>, done: Done) -> Result<()> {
        let Core { ordering, wire, .. } = &mut self.core;
        let quiet = ordering.begin_quiet(context, done, |pe| wire.activate(pe));
        self.core.advance_quiet(quiet)
    }

    // ---- starting ----

    /// Sends a record that has an answer, which is awaited under `reply`.
    fn ask(&mut self, lane: Lane, record: &Record<'_>, reply: u64) -> Result<()> {
        if self.core.ordering.may_start(lane, false) {
            self.core.open_awaited(lane, reply);
            return self.core.emit(lane.pe, record);
        }
        self.hold(lane, Request::Ask { record: encode(record), reply });
        Ok(())
    }

    fn submit(&mut self, lane: Lane, request: Request) -> Result<()> {
        // Little goes by messages, whatever the network is.
        let copies = matches!(&request, Request::Put { copy, .. } if copy.bytes > INLINE);
        if self.core.ordering.may_start(lane, copies) {
            return self.start(lane, request);
        }
        let request = if self.gpu.is_none() { self.copied(request) } else { request };
        self.hold(lane, request);
        Ok(())
    }

    /// Puts an operation behind what is held back already.
    fn hold(&mut self, lane: Lane, request: Request) {
        self.core.ordering.hold(lane, request);
        self.core.wire.activate(lane.pe);
    }

    /// A put of so little that its caller does not wait until the source is free: it is copied now.
    fn copied(&mut self, request: Request) -> Request {
        let (copy, signal) = match request {
            Request::Put { copy, signal } if (1..=INLINE).contains(&copy.bytes) => (copy, signal),
            other => return other,
        };
        let signal = signal.unwrap_or_default();
        // SAFETY: the put's caller keeps the source valid until it completes.
        let data = unsafe { std::slice::from_raw_parts(copy.near as *const u8, copy.bytes) };
        let record = Record::Data { offset: copy.offset, data };
        let mut records = Vec::with_capacity(record.encoded() + signal.len());
        record.encode(&mut records);
        records.extend_from_slice(&signal);
        self.core.complete(copy.done);
        Request::Records(records)
    }

    fn start(&mut self, lane: Lane, request: Request) -> Result<()> {
        let Operations { core, gpu, .. } = self;
        match request {
            Request::Records(records) => core.append_counted(lane, &records),
            Request::Ask { record, reply } => {
                core.open_awaited(lane, reply);
                core.append(lane.pe, &record)
            }
            Request::PutRows { offset, src, rows, done } => {
                if let Some(gpu) = gpu {
                    if gpu.put_rows(core, lane, offset, src, rows, done)? {
                        return Ok(());
                    }
                }
                core.put_rows(lane, offset, src, rows)?;
                core.complete(done);
                Ok(())
            }
            Request::Put { copy, signal } => {
                if let Some(gpu) = gpu {
                    // What may be GPU memory and does not go by the transport.
                    if copy.bytes <= INLINE || !core.reaches(lane.pe, copy.offset, copy.bytes) {
                        return gpu.put(core, lane, copy, signal);
                    }
                }
                let copies = core.ordering.lane(lane).copies();
                core.put(lane, copy)?;
                let Some(signal) = signal else { return Ok(()) };
                if core.ordering.lane(lane).copies() == copies {
                    // All of it went by messages, which keep their order.
                    return core.append_counted(lane, &signal);
                }
                let op = core.ordering.lane(lane).begin();
                core.flush(lane.pe, Flight::Announce { lane, op, signal })
            }
            Request::Get(copy) => {
                let gpu = self.needs_gpu(copy.near)?;
                self.core.get(lane, copy, gpu)
            }
        }
    }

    /// Whether the host cannot write at `at`.
    fn needs_gpu(&self, at: usize) -> Result<bool> {
        self.gpu.as_ref().map_or(Ok(false), |gpu| gpu.on_gpu(at))
    }

    // ---- going on ----

    /// Starts what fences hold back no longer, and sends what is ready, peer by peer. True where there was
    /// anything to send.
    pub(in crate::net) fn push_out(&mut self) -> Result<bool> {
        if !self.core.wire.has_active() {
            return Ok(false);
        }
        let mut sent = false;
        for pe in self.core.wire.take_active() {
            if !self.let_go {
                self.core.ordering.holding(pe).into_iter().try_for_each(|lane| self.release(lane))?;
            }
            sent |= self.core.send(pe)?;
            if !self.let_go && !self.core.ordering.holding(pe).is_empty() {
                self.core.wire.activate(pe);
            }
        }
        Ok(sent)
    }

    /// Starts what fences hold back no longer.
    fn release(&mut self, lane: Lane) -> Result<()> {
        loop {
            match self.core.ordering.next(lane) {
                Next::Nothing => return Ok(()),
                Next::Start(request) => self.start(lane, request)?,
                Next::Wait(wanted) => return self.core.ask_how_far(lane, wanted),
                Next::Quiet(quiet, point) => self.core.ordering.place_quiet(quiet, lane, point),
            }
        }
    }
}
