//! What kernels have posted to the device ring, handed to the engine: the same operations as the host's, with
//! addresses that nobody has checked yet.

use std::time::{Duration, Instant};

use slab::Slab;

use crate::error::{err, Error, Result};
use crate::net::completion::Done;
use crate::net::engine::operations::Operations;
use crate::net::ordering::Lane;
use crate::net::proxy::ring::{Descriptor, DeviceRing, Op, ReplyTo};
use crate::net::request::Rows;
use crate::net::wire::message::{Record, FLOAT_ADD};
use crate::word::Update;
use rushmem_abi::device::RUSHMEM_RING_FLOAT;
use rushmem_abi::table::Atomic;

/// Descriptors taken at one time: they share messages, and then others have their turn.
const BATCH: usize = 256;

/// The ring, and which posts wait for an answer.
pub(in crate::net) struct Posts {
    ring: DeviceRing,
    /// There are kernels that may post.
    pub(in crate::net) expected: bool,
    taken: Vec<Descriptor>,
    waiting: Slab<ReplyTo>,
    /// The first post since it was last asked for that could not be: the kernel's mistake, of which nobody
    /// else has to know.
    pub(in crate::net) refused: Option<Error>,
    /// While the ring is full and nothing is taken: since when, and when that is reported next.
    full: Option<(Instant, Duration)>,
    /// This PE's heap, and the bytes of its stride.
    base: u64,
    stride: u64,
}

impl Posts {
    pub(in crate::net) fn new(ring: DeviceRing, base: usize, stride: usize) -> Posts {
        let (base, stride) = (base as u64, stride as u64);
        Posts {
            ring,
            expected: false,
            taken: Vec::with_capacity(BATCH),
            waiting: Slab::new(),
            refused: None,
            full: None,
            base,
            stride,
        }
    }

    /// Answers what has been waited for.
    pub(in crate::net) fn answer(&mut self, replies: &mut Vec<(u64, u64)>) {
        for (key, value) in replies.drain(..) {
            if let Some(to) = self.waiting.try_remove(key as usize) {
                self.ring.reply(to, value);
            }
        }
    }

    /// Takes what has been posted and starts it. True where there was anything.
    pub(in crate::net) fn take(&mut self, operations: &mut Operations) -> Result<bool> {
        let mut taken = std::mem::take(&mut self.taken);
        taken.clear();
        self.ring.take(&mut taken, BATCH);
        let some = !taken.is_empty();
        self.full = None;
        let started = taken.iter().try_for_each(|d| match self.check(operations, d) {
            Ok(()) => self
                .start(operations, d)
                .map_err(|e| e.context(format_args!("{} that a kernel posted", d.what()))),
            Err(e) => {
                self.refuse(d, e);
                Ok(())
            }
        });
        self.taken = taken;
        started?;
        Ok(some)
    }

    /// Too much is under way for more to be taken. Where the ring has been full for `first`, and again when
    /// that time has doubled: for how long. By this a GPU's kernel that waits for room to post a word is
    /// reported; all others report themselves.
    pub(in crate::net) fn full_for(&mut self, first: Option<Duration>) -> Option<Duration> {
        let first = first.filter(|_| self.ring.is_full())?;
        let (since, next) = self.full.get_or_insert((Instant::now(), first));
        let lasted = since.elapsed();
        let due = lasted >= *next;
        if due {
            *next = lasted * 2;
        }
        due.then_some(lasted)
    }

    /// Whether kernels on a GPU post.
    pub(in crate::net) fn are_of_gpu(&self) -> bool {
        self.ring.is_on_gpu()
    }

    /// An error where the PE does not exist, or its memory there.
    fn check(&self, operations: &Operations, d: &Descriptor) -> Result<()> {
        let Some(op) = d.op().filter(|op| !matches!(op, Op::Fence | Op::Quiet)) else { return Ok(()) };
        if d.pe as usize >= operations.core.ordering.n_pes() {
            return Err(err!(BAD_PE, "PE {} does not exist", d.pe));
        }
        let exists = |at: u64, bytes: u64| {
            let found =
                self.offset(at).ok().and_then(|offset| operations.core.segments.own(offset, bytes as usize));
            found.map(drop).ok_or_else(|| {
                err!(
                    BAD_ADDRESS,
                    "address {at:#x}, of which PE {} should have a copy, is not symmetric memory",
                    d.pe
                )
            })
        };
        let rows = |first: u64, stride: u64| {
            let last = first
                .wrapping_add(d.bytes.saturating_sub(1).wrapping_mul(stride.wrapping_mul(d.element.into())));
            exists(first, d.element.into()).and_then(|()| exists(last, d.element.into()))
        };
        let width = u64::from(d.width);
        match op {
            Op::Put => exists(d.dst, d.bytes),
            Op::Get => exists(d.src, d.bytes),
            Op::PutInline | Op::Atomic => exists(d.dst, width),
            Op::G => exists(d.src, width),
            Op::Iput => rows(d.dst, d.sig),
            Op::Iget => rows(d.src, d.value),
            Op::Signal => exists(d.sig, 8),
            Op::PutSignal => exists(d.dst, d.bytes).and_then(|()| exists(d.sig, 8)),
            Op::PutSignalInline => exists(d.dst, width).and_then(|()| exists(d.sig, 8)),
            Op::Fence | Op::Quiet => Ok(()),
        }
    }

    /// Leaves out what cannot be done. A thread that waits for the answer gets one, so that its kernel ends.
    fn refuse(&mut self, d: &Descriptor, e: Error) {
        self.refused.get_or_insert_with(|| e.context(d.what()));
        if let Some(to) = d.reply_to() {
            self.ring.reply(to, 0);
        }
    }

    /// The offset of one of this PE's own symmetric addresses.
    fn offset(&self, at: u64) -> Result<u64> {
        let offset = at.wrapping_sub(self.base);
        if offset < self.stride {
            return Ok(offset);
        }
        Err(err!(BAD_ADDRESS, "{at:#x} is no symmetric address"))
    }

    fn start(&mut self, operations: &mut Operations, d: &Descriptor) -> Result<()> {
        let lane = Lane::to(d.pe as usize);
        let op = d.op().ok_or_else(|| err!(INTERNAL, "operation {} is unknown", d.op))?;
        let done = d.reply_to().map_or(Done::Nothing, |to| Done::Kernel(self.waiting.insert(to) as u64));
        let (src, dst, bytes) = (d.src as usize, d.dst as usize, d.bytes as usize);
        let add = d.sub != 0;
        match op {
            // SAFETY: a kernel keeps what it names valid, as for its own loads and stores.
            Op::Put => unsafe { operations.put(lane, self.offset(d.dst)?, src, bytes, done) },
            Op::PutInline => self.put_inline(operations, lane, d),
            // SAFETY: a kernel keeps what it names valid, as for its own loads and stores.
            Op::Get => unsafe { operations.get(lane, self.offset(d.src)?, dst, bytes, done) },
            Op::G => operations.load(lane, d.width, self.offset(d.src)?, done),
            Op::Iput => {
                let rows = strided(d, d.value, d.sig);
                // SAFETY: a kernel keeps what it names valid, as for its own loads and stores.
                unsafe { operations.put_rows(lane, self.offset(d.dst)?, src, rows, done) }
            }
            Op::Iget => {
                let rows = strided(d, d.sig, d.value);
                // SAFETY: a kernel keeps what it names valid, as for its own loads and stores.
                unsafe { operations.get_rows(lane, self.offset(d.src)?, dst, rows, done) }
            }
            Op::Atomic => {
                let offset = self.offset(d.dst)?;
                let update = Atomic::of(d.sub.into()).map(|row| row.update);
                let update = update.ok_or_else(|| err!(INTERNAL, "atomic {} is unknown", d.sub))?;
                let float = d.flags & RUSHMEM_RING_FLOAT != 0 && update == Update::Add;
                let number = if float { FLOAT_ADD } else { update as u8 };
                operations.atomic(lane, number, d.width, offset, d.value, d.sig, done)
            }
            Op::Signal => {
                let record = Record::Signal { add, offset: self.offset(d.sig)?, value: d.value };
                operations.record(lane, &record)
            }
            Op::PutSignal => {
                let signal = Record::Signal { add, offset: self.offset(d.sig)?, value: d.value };
                // SAFETY: a kernel keeps what it names valid, as for its own loads and stores.
                unsafe { operations.put_signal(lane, self.offset(d.dst)?, src, bytes, &signal, done) }
            }
            Op::PutSignalInline => {
                self.put_inline(operations, lane, d)?;
                let signal = Record::Signal { add, offset: self.offset(d.sig)?, value: d.value };
                operations.record(lane, &signal)
            }
            Op::Fence => {
                operations.fence(Lane::DEFAULT);
                Ok(())
            }
            Op::Quiet => operations.quiet(Some(Lane::DEFAULT), done),
        }
    }

    fn put_inline(&self, operations: &mut Operations, lane: Lane, d: &Descriptor) -> Result<()> {
        let offset = self.offset(d.dst)?;
        let data = d.inline();
        let width = usize::from(d.width).min(data.len());
        let record = match width {
            1 | 2 | 4 | 8 => Record::Word { width: d.width, offset, value: d.src },
            _ => Record::Data { offset, data: &data[..width] },
        };
        operations.record(lane, &record)
    }

    /// Takes what is there by now, however congested the network is: kernels that run may post on, but no
    /// more than fits the ring is waited for.
    pub(in crate::net) fn take_present(&mut self, operations: &mut Operations) -> Result<()> {
        for _ in 0..=self.ring.slots() / BATCH {
            if !self.take(operations)? {
                break;
            }
        }
        Ok(())
    }

    /// No kernel runs: takes the last of what they posted, however congested the network is (it is no more
    /// than fits the ring), and gives back what their threads had claimed for answers. True where no answer
    /// is still to come.
    pub(in crate::net) fn reclaim(&mut self, operations: &mut Operations) -> Result<bool> {
        while self.take(operations)? {}
        self.ring.reclaim();
        Ok(self.waiting.is_empty())
    }
}

/// A strided operation's shape; strides come in elements, signed.
fn strided(d: &Descriptor, near: u64, far: u64) -> Rows {
    let elem = d.element as usize;
    let step = |stride: u64| (stride as i64).wrapping_mul(elem as i64) as isize;
    Rows { elem, near_stride: step(near), far_stride: step(far), n: d.bytes as usize }
}

/// What of a descriptor is computed before anything is touched.
#[cfg(any(test, feature = "fuzzing"))]
pub(in crate::net) fn fuzz(d: &Descriptor) {
    let (put, get) = (strided(d, d.value, d.sig), strided(d, d.sig, d.value));
    assert_eq!((put.elem, put.near_stride), (get.elem, get.far_stride));
    let _ = Atomic::of(d.sub.into());
}
