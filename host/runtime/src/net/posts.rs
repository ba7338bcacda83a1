//! What kernels have posted to the device ring, handed to the engine: the same operations as the host's, with addresses that
//! nobody has checked yet.

use slab::Slab;

use super::engine::{Done, Engine, Rows};
use super::message::{Record, FLOAT_ADD};
use super::ring::{Descriptor, DeviceRing, Op, ReplyTo};
use crate::error::{err, Error, Result};
use crate::word::Update;
use rushmem_abi::device::RUSHMEM_RING_FLOAT;
use rushmem_abi::table::Atomic;

/// Descriptors taken at one time: they share messages, and then others have their turn.
const BATCH: usize = 256;

/// The ring, and who waits for what.
pub(super) struct Posts {
    ring: DeviceRing,
    taken: Vec<Descriptor>,
    waiting: Slab<ReplyTo>,
    /// The first post since it was last asked for that could not be: the kernel's mistake, of which nobody else has to know.
    pub(super) refused: Option<Error>,
    /// This PE's heap, and the bytes of its stride.
    base: u64,
    stride: u64,
}

impl Posts {
    pub(super) fn new(ring: DeviceRing, base: usize, stride: usize) -> Posts {
        let (base, stride) = (base as u64, stride as u64);
        Posts { ring, taken: Vec::with_capacity(BATCH), waiting: Slab::new(), refused: None, base, stride }
    }

    /// Answers what has been waited for.
    pub(super) fn answer(&mut self, replies: &mut Vec<(u64, u64)>) {
        for (key, value) in replies.drain(..) {
            if let Some(to) = self.waiting.try_remove(key as usize) {
                self.ring.reply(to, value);
            }
        }
    }

    /// Takes what has been posted and starts it. True where there was anything.
    pub(super) fn take(&mut self, engine: &mut Engine) -> Result<bool> {
        let mut taken = std::mem::take(&mut self.taken);
        taken.clear();
        self.ring.take(&mut taken, BATCH);
        let some = !taken.is_empty();
        let started = taken.iter().try_for_each(|d| match self.check(engine, d) {
            Ok(()) => self
                .start(engine, d)
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

    /// An error where the PE does not exist, or its memory there.
    fn check(&self, engine: &Engine, d: &Descriptor) -> Result<()> {
        let Some(op) = d.op().filter(|op| !matches!(op, Op::Fence | Op::Quiet)) else { return Ok(()) };
        if d.pe as usize >= engine.n_pes() {
            return Err(err!(BAD_PE, "PE {} does not exist", d.pe));
        }
        let exists = |at: u64, bytes: u64| {
            let found = self.offset(at).ok().and_then(|offset| engine.segments.own(offset, bytes as usize));
            found.map(drop).ok_or_else(|| {
                err!(
                    BAD_ADDRESS,
                    "PE {} has nothing at its copy of address {at:#x}: it is none of symmetric memory",
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

    fn start(&mut self, engine: &mut Engine, d: &Descriptor) -> Result<()> {
        let pe = d.pe as usize;
        let op = d.op().ok_or_else(|| err!(INTERNAL, "operation {} is unknown", d.op))?;
        let done = d.reply_to().map_or(Done::Nothing, |to| Done::Ring(self.waiting.insert(to) as u64));
        let (src, dst, bytes) = (d.src as usize, d.dst as usize, d.bytes as usize);
        let add = d.sub != 0;
        match op {
            // SAFETY: a kernel vouches for its addresses, as for those of plain loads and stores.
            Op::Put => unsafe { engine.put(pe, self.offset(d.dst)?, src, bytes, done) },
            Op::PutInline => self.put_inline(engine, pe, d),
            // SAFETY: as above.
            Op::Get => unsafe { engine.get(pe, self.offset(d.src)?, dst, bytes, done) },
            Op::G => engine.load(pe, d.width, self.offset(d.src)?, done),
            Op::Iput => {
                let rows = strided(d, d.value, d.sig);
                // SAFETY: as above.
                unsafe { engine.put_rows(pe, self.offset(d.dst)?, src, rows, done) }
            }
            Op::Iget => {
                let rows = strided(d, d.sig, d.value);
                // SAFETY: as above.
                unsafe { engine.get_rows(pe, self.offset(d.src)?, dst, rows, done) }
            }
            Op::Atomic => {
                let offset = self.offset(d.dst)?;
                let update = Atomic::of(d.sub.into()).map(|row| row.update);
                let update = update.ok_or_else(|| err!(INTERNAL, "atomic {} is unknown", d.sub))?;
                let float = d.flags & RUSHMEM_RING_FLOAT != 0 && update == Update::Add;
                let number = if float { FLOAT_ADD } else { update as u8 };
                engine.atomic(pe, number, d.width, offset, d.value, d.sig, done)
            }
            Op::Signal => {
                let record = Record::Signal { add, offset: self.offset(d.sig)?, value: d.value };
                engine.record(pe, &record)
            }
            Op::PutSignal => {
                let signal = Record::Signal { add, offset: self.offset(d.sig)?, value: d.value };
                // SAFETY: as above.
                unsafe { engine.put_signal(pe, self.offset(d.dst)?, src, bytes, &signal, done) }
            }
            Op::PutSignalInline => {
                self.put_inline(engine, pe, d)?;
                let signal = Record::Signal { add, offset: self.offset(d.sig)?, value: d.value };
                engine.record(pe, &signal)
            }
            Op::Fence => {
                engine.fence();
                Ok(())
            }
            Op::Quiet => engine.quiet(done),
        }
    }

    fn put_inline(&self, engine: &mut Engine, pe: usize, d: &Descriptor) -> Result<()> {
        let offset = self.offset(d.dst)?;
        let data = d.inline();
        let width = usize::from(d.width).min(data.len());
        let record = match width {
            1 | 2 | 4 | 8 => Record::Word { width: d.width, offset, value: d.src },
            _ => Record::Data { offset, data: &data[..width] },
        };
        engine.record(pe, &record)
    }

    /// Takes what is there by now, however congested the network is: kernels that run may post on, but no more than fits the ring
    /// is waited for.
    pub(super) fn take_present(&mut self, engine: &mut Engine) -> Result<()> {
        for _ in 0..=self.ring.slots() / BATCH {
            if !self.take(engine)? {
                break;
            }
        }
        Ok(())
    }

    /// No kernel runs: takes the last of what they posted, however congested the network is (it is no more than fits the ring), and
    /// gives back what their threads had claimed for answers. True where no answer is still to come.
    pub(super) fn reclaim(&mut self, engine: &mut Engine) -> Result<bool> {
        while self.take(engine)? {}
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
pub(super) fn fuzz(d: &Descriptor) {
    let (put, get) = (strided(d, d.value, d.sig), strided(d, d.sig, d.value));
    assert_eq!((put.elem, put.near_stride), (get.elem, get.far_stride));
    let _ = Atomic::of(d.sub.into());
}
