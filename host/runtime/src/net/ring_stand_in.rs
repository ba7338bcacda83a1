//! What stands in for the proxy in the ring's kernel tests. It reaches other PEs' heaps directly, but as badly as it may: what it has
//! taken it carries out late, in pieces and in any order that FENCE and QUIET leave.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use super::rig::HEAP;
use super::{Descriptor, DeviceRing, Op};
use crate::testing::atomics::updated;
use crate::testing::device::LIMIT;
use crate::testing::random::Random;
use rushmem_abi::c::*;
use rushmem_abi::device::RUSHMEM_RING_FLOAT;

/// An operation that was taken and is not complete.
struct Open {
    d: Descriptor,
    /// Only those of the lowest epoch go on.
    epoch: u64,
    /// Data on its way.
    data: Option<Vec<u8>>,
}

/// What carries out a PE's descriptors.
pub(super) struct StandIn<'j> {
    me: usize,
    heaps: &'j [usize],
    ring: &'j mut DeviceRing,
    open: Vec<Open>,
    epoch: u64,
    random: Random,
}

impl<'j> StandIn<'j> {
    pub(super) fn new(
        me: usize,
        heaps: &'j [usize],
        ring: &'j mut DeviceRing,
        random: Random,
    ) -> StandIn<'j> {
        StandIn { me, heaps, ring, open: Vec::new(), epoch: 0, random }
    }

    /// Until `done`, and all that was posted is carried out.
    pub(super) fn run(mut self, done: &AtomicBool) {
        let start = Instant::now();
        loop {
            let over = done.load(Ordering::Acquire);
            let taken = self.take();
            for _ in 0..self.random.below(6) {
                self.step();
            }
            if self.open.is_empty() && taken == 0 {
                if over {
                    return;
                }
                std::thread::yield_now();
            }
            assert!(start.elapsed() < 4 * LIMIT, "operations that never end");
        }
    }

    fn take(&mut self) -> usize {
        let mut taken = Vec::new();
        let most = self.random.below(7);
        let n = self.ring.take(&mut taken, most);
        assert!(n == taken.len() && n <= most);
        for d in taken {
            let op = d.op().expect("an operation");
            if op == Op::Fence {
                self.epoch += 1;
                continue;
            }
            // A quiet waits for all before it, and nothing waits for the quiet.
            self.open.push(Open { d, epoch: self.epoch, data: None });
        }
        n
    }

    /// Where PE `pe` has what this PE names by its own address.
    fn there(&self, address: u64, pe: i32) -> usize {
        let offset = (address as usize).wrapping_sub(self.heaps[self.me]);
        assert!(offset < HEAP, "{address:#x} is not symmetric");
        self.heaps[pe as usize] + offset
    }

    /// One piece of work on one of the operations whose turn it is.
    fn step(&mut self) {
        let Some(epoch) = self.open.iter().map(|open| open.epoch).min() else { return };
        let oldest = self.open.iter().map(|open| open.d.ticket).min();
        let may = |Open { d, epoch: of, .. }: &Open| {
            *of == epoch && (d.op() != Some(Op::Quiet) || Some(d.ticket) == oldest)
        };
        let ready: Vec<usize> = (0..self.open.len()).filter(|i| may(&self.open[*i])).collect();
        let at = ready[self.random.below(ready.len())];
        let Open { d, data, .. } = &mut self.open[at];
        let (d, data) = (*d, data.take());
        match self.advance(&d, data) {
            Some(data) => self.open[at].data = Some(data),
            None => {
                self.open.swap_remove(at);
            }
        }
    }

    fn answer(&self, d: &Descriptor, value: u64) {
        if let Some(to) = d.reply_to() {
            self.ring.reply(to, value);
        }
    }

    /// The next step of an operation; the data that it has in hand then, or none when it is complete.
    fn advance(&self, d: &Descriptor, data: Option<Vec<u8>>) -> Option<Vec<u8>> {
        let (n, element) = (d.bytes as usize, d.element as usize);
        match (d.op().unwrap(), data) {
            (Op::Put | Op::PutSignal, None) => {
                let data = read(d.src as usize, n);
                self.answer(d, 0);
                return Some(data);
            }
            (Op::Put, Some(data)) => write(self.there(d.dst, d.pe), &data),
            (Op::PutSignal, Some(data)) => {
                write(self.there(d.dst, d.pe), &data);
                self.signal(d)
            }
            (Op::PutInline, _) => {
                assert!((1..=32).contains(&d.width));
                write(self.there(d.dst, d.pe), &d.inline()[..usize::from(d.width)])
            }
            (Op::PutSignalInline, _) => {
                assert!((1..=8).contains(&d.width));
                write(self.there(d.dst, d.pe), &d.inline()[..usize::from(d.width)]);
                self.signal(d)
            }
            (Op::Signal, _) => self.signal(d),
            (Op::Get, None) => return Some(read(self.there(d.src, d.pe), n)),
            (Op::Get, Some(data)) => {
                write(d.dst as usize, &data);
                self.answer(d, 0)
            }
            (Op::G, _) => {
                assert!((1..=8).contains(&d.width) && d.reply_to().is_some());
                self.answer(d, load(self.there(d.src, d.pe), d.width))
            }
            (Op::Iput, None) => {
                let data = gather(d.src as usize, d.value, n, element);
                self.answer(d, 0);
                return Some(data);
            }
            (Op::Iput, Some(data)) => scatter(self.there(d.dst, d.pe), d.sig, element, &data),
            (Op::Iget, None) => return Some(gather(self.there(d.src, d.pe), d.value, n, element)),
            (Op::Iget, Some(data)) => {
                scatter(d.dst as usize, d.sig, element, &data);
                self.answer(d, 0)
            }
            (Op::Atomic, _) => {
                let before = update(self.there(d.dst, d.pe), d);
                assert_eq!(d.reply_to().is_some(), matches!(i32::from(d.sub), 0 | 2 | 3 | 5 | 7 | 9 | 11));
                self.answer(d, before)
            }
            (Op::Quiet, _) => self.answer(d, 0),
            (Op::Fence, _) => unreachable!("a fence is no operation"),
        }
        None
    }

    fn signal(&self, d: &Descriptor) {
        let at = word(self.there(d.sig, d.pe));
        match i32::from(d.sub) {
            RUSHMEM_SIGNAL_ADD => drop(at.fetch_add(d.value, Ordering::Release)),
            _ => at.store(d.value, Ordering::Release),
        }
    }
}

fn word<'a>(at: usize) -> &'a AtomicU64 {
    // SAFETY: an aligned word of a heap, which kernels access as one.
    unsafe { AtomicU64::from_ptr(at as *mut u64) }
}

fn half<'a>(at: usize) -> &'a AtomicU32 {
    // SAFETY: as above.
    unsafe { AtomicU32::from_ptr(at as *mut u32) }
}

fn read(at: usize, n: usize) -> Vec<u8> {
    // SAFETY: kernels pass memory of theirs.
    (0..n).map(|i| unsafe { (at as *const u8).add(i).read_volatile() }).collect()
}

/// Aligned words in one piece each, as wait loops look at them.
fn write(at: usize, data: &[u8]) {
    let mut done = 0;
    while done < data.len() {
        let (to, left) = (at + done, &data[done..]);
        if to % 8 == 0 && left.len() >= 8 {
            word(to).store(u64::from_le_bytes(left[..8].try_into().unwrap()), Ordering::Release);
            done += 8;
        } else if to % 4 == 0 && left.len() >= 4 {
            half(to).store(u32::from_le_bytes(left[..4].try_into().unwrap()), Ordering::Release);
            done += 4;
        } else {
            // SAFETY: kernels pass memory of theirs, or symmetric addresses.
            unsafe { (to as *mut u8).write_volatile(left[0]) };
            done += 1;
        }
    }
}

fn load(at: usize, width: u8) -> u64 {
    match width {
        8 if at % 8 == 0 => word(at).load(Ordering::Acquire),
        4 if at % 4 == 0 => half(at).load(Ordering::Acquire).into(),
        _ => read(at, width.into()).iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte)),
    }
}

fn gather(at: usize, stride: u64, n: usize, element: usize) -> Vec<u8> {
    (0..n).flat_map(|i| read(at + i * stride as usize * element, element)).collect()
}

fn scatter(at: usize, stride: u64, element: usize, data: &[u8]) {
    for (i, piece) in data.chunks(element).enumerate() {
        write(at + i * stride as usize * element, piece);
    }
}

/// An atomic update of a 4- or 8-byte word; the old value.
fn update(at: usize, d: &Descriptor) -> u64 {
    let new = |old: u64| match i32::from(d.sub) {
        RUSHMEM_ATOMIC_ADD | RUSHMEM_ATOMIC_FETCH_ADD
            if d.flags & RUSHMEM_RING_FLOAT != 0 && d.width == 4 =>
        {
            u64::from((f32::from_bits(old as u32) + f32::from_bits(d.value as u32)).to_bits())
        }
        RUSHMEM_ATOMIC_ADD | RUSHMEM_ATOMIC_FETCH_ADD if d.flags & RUSHMEM_RING_FLOAT != 0 => {
            (f64::from_bits(old) + f64::from_bits(d.value)).to_bits()
        }
        op => updated(op, d.width.into(), old, d.value, d.sig),
    };
    let order = (Ordering::AcqRel, Ordering::Acquire);
    if d.width == 8 {
        word(at).fetch_update(order.0, order.1, |old| Some(new(old))).unwrap()
    } else {
        assert!(d.width == 4 && (d.value | d.sig) >> 32 == 0);
        half(at).fetch_update(order.0, order.1, |old| Some(new(old.into()) as u32)).unwrap().into()
    }
}
