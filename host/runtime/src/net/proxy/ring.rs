//! The device ring's host side: its memory, and what the proxy thread does with it.
//! `device/include/rushmem/abi_ring.h` says how kernels post; the protocol itself is the crate
//! `rushmem-ring`, which loom models. Here it gets its memory, pinned where a GPU is to reach it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use rushmem_abi::device::RawRing;
use rushmem_ring::{AtomicU64, Consumer, Reply, Slot, View, WORDS};

pub(crate) use rushmem_abi::device::{Descriptor, ReplyTo, RingLine as Line, RingOp as Op};

use crate::error::{err, Result};
use crate::gpu::driver::cu;
use crate::gpu::Cuda;
use crate::net::memory::reachable::HostMemory;

const _: () = assert!(Descriptor::WORDS == WORDS);

/// More threads than this do not wait for answers at a time: each polls its own, over PCIe.
const MOST_REPLIES: usize = 512;

/// A PE's device ring. One thread at a time takes; any answers.
pub(crate) struct DeviceRing {
    memory: HostMemory,
    slots: usize,
    /// For each reply slot, whether a descriptor that was taken wants it answered.
    unanswered: Box<[AtomicBool]>,
    consumer: Consumer,
    /// Where the device finds its `rushmem_ring`.
    device: usize,
    on_gpu: bool,
}

// SAFETY: the memory is accessed by the protocol only: atomics, and words that belong to one side at a time.
unsafe impl Send for DeviceRing {}
// SAFETY: the protocol lets several threads answer; one takes.
unsafe impl Sync for DeviceRing {}

impl DeviceRing {
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// How much device memory a ring needs at most, whatever its slots.
    pub(crate) const MOST_DEVICE_BYTES: usize = size_of::<RawRing>() + 8 * MOST_REPLIES;

    /// A ring of `slots`, a power of two, for kernels on the CPU or on `gpu`, whose counters are in the
    /// device's own memory at `counters`. They are reset here.
    ///
    /// # Safety
    /// `counters` is memory of the device (for the CPU: of this process), `MOST_DEVICE_BYTES` of it, aligned
    /// to 128, nobody else's as long as the ring and its kernels live. All kernels end before the ring is
    /// dropped.
    pub(crate) unsafe fn new(gpu: Option<&Arc<Cuda>>, counters: usize, slots: usize) -> Result<DeviceRing> {
        if !slots.is_power_of_two() || slots > 1 << 20 || counters == 0 || counters % 128 != 0 {
            return Err(err!(INTERNAL, "a device ring of {slots} slots with its counters at {counters:#x}"));
        }
        let replies = slots.min(MOST_REPLIES);
        let bytes = size_of::<Slot>() * slots + size_of::<Reply>() * replies;
        let lines = bytes.div_ceil(size_of::<Line>()) + 1;
        let memory = HostMemory::new(gpu, lines)?;
        let ring = DeviceRing {
            memory,
            slots,
            unanswered: (0..replies).map(|_| AtomicBool::new(false)).collect(),
            consumer: Consumer::new(),
            device: counters,
            on_gpu: gpu.is_some(),
        };
        // Host memory and its device address differ by a constant.
        let shift = ring.memory.device_address().wrapping_sub(ring.memory.host() as u64);
        let view = ring.view();
        let raw = RawRing {
            slots: (view.slots.as_ptr() as u64).wrapping_add(shift),
            replies: (view.replies.as_ptr() as u64).wrapping_add(shift),
            consumed: (std::ptr::from_ref(view.consumed) as u64).wrapping_add(shift),
            busy: (counters + size_of::<RawRing>()) as u64,
            mask: slots as u64 - 1,
            reply_mask: replies as u64 - 1,
            reserved: [0; 10],
            tail: Line::ZERO,
            consumed_seen: Line::ZERO,
            reply_tail: Line::ZERO,
            fenced: Line::ZERO,
            quieted: Line::ZERO,
        };
        let busy = vec![0u64; replies];
        match gpu {
            // SAFETY: the caller gives the memory, which nobody uses yet.
            None => unsafe {
                (counters as *mut RawRing).write(raw);
                std::ptr::copy_nonoverlapping(busy.as_ptr(), raw.busy as *mut u64, replies);
            },
            Some(cuda) => {
                let _current = cuda.current()?;
                let pieces = [
                    (counters as u64, std::ptr::from_ref(&raw).cast(), size_of::<RawRing>()),
                    (raw.busy, busy.as_ptr().cast::<std::ffi::c_void>(), 8 * replies),
                ];
                for (to, from, bytes) in pieces {
                    // SAFETY: the caller gives the memory; pageable memory has been read when the call
                    // returns.
                    unsafe { cu!(cuMemcpyHtoD_v2(to, from, bytes)) }
                        .map_err(|e| e.context(format_args!("writing the device ring at {counters:#x}")))?;
                }
            }
        }
        Ok(ring)
    }

    fn view(&self) -> View<'_> {
        let first = self.memory.host();
        let replies = self.unanswered.len();
        // SAFETY: the memory has room for the three one after the other, and a line of its own for the last;
        // any bits are valid; what both sides write are atomics and cells.
        unsafe {
            let slots = first.cast::<Slot>();
            let after = slots.add(self.slots).cast::<Reply>();
            let end = self.slots * size_of::<Slot>() + replies * size_of::<Reply>();
            let consumed = first.add(end.div_ceil(size_of::<Line>())).cast::<AtomicU64>();
            View {
                slots: std::slice::from_raw_parts(slots, self.slots),
                replies: std::slice::from_raw_parts(after, replies),
                consumed: &*consumed,
            }
        }
    }

    /// What goes into the device state's `ring`.
    pub(crate) fn raw_address(&self) -> usize {
        self.device
    }

    /// Moves what kernels have posted, at most `max` descriptors, to the end of `out`, in the order of their
    /// tickets, and returns how many. Their slots are free then. Everything that a descriptor's thread wrote
    /// before is visible. Never waits.
    pub(crate) fn take(&mut self, out: &mut Vec<Descriptor>, max: usize) -> usize {
        let mut consumer = std::mem::take(&mut self.consumer);
        let taken = consumer.take(&self.view(), max, |words, ticket| {
            let mut descriptor = Descriptor::new(words, ticket);
            #[cfg(any(test, feature = "fuzzing"))]
            crate::seeds::record(
                "ring_descriptors",
                descriptor.op.into(),
                &words.map(u64::to_le_bytes).concat(),
            );
            match descriptor.reply_to().map(|to| self.unanswered.get(to.slot as usize)) {
                Some(Some(unanswered)) => unanswered.store(true, Ordering::Relaxed),
                // A reply slot that is none: memory was overwritten. No `Op`, so that it is refused.
                Some(None) => (descriptor.op, descriptor.flags) = (0, 0),
                None => {}
            }
            out.push(descriptor);
        });
        self.consumer = consumer;
        taken
    }

    /// Whether kernels that post more have to wait.
    pub(crate) fn is_full(&self) -> bool {
        self.consumer.is_full(&self.view())
    }

    /// Whether kernels on a GPU post.
    pub(crate) fn is_on_gpu(&self) -> bool {
        self.on_gpu
    }

    /// Answers a descriptor that was taken, once; what the caller did before is then visible to the kernel.
    pub(crate) fn reply(&self, to: ReplyTo, value: u64) {
        self.unanswered[to.slot as usize].store(false, Ordering::Relaxed);
        self.view().reply(to, value);
    }

    /// Gives back the reply slots of threads that were abandoned with their launch (the CPU device; on a GPU
    /// whatever ends a kernel ends the context). To be called when a launch has failed, no kernel of this PE
    /// runs, and [`Self::take`] finds nothing more: slots with an answer still to come stay claimed until the
    /// next time.
    pub(crate) fn reclaim(&mut self) {
        if self.on_gpu {
            return;
        }
        let busy = (self.device + size_of::<RawRing>()) as *mut u64;
        for (i, unanswered) in self.unanswered.iter().enumerate() {
            if !unanswered.load(Ordering::Relaxed) {
                // SAFETY: one of the ring's own words, atomic to kernels, of which none runs.
                unsafe { AtomicU64::from_ptr(busy.add(i)) }.store(0, Ordering::Release);
            }
        }
    }
}

#[cfg(test)]
#[path = "ring_kernel_tests.rs"]
mod kernel_tests;
#[cfg(test)]
#[path = "ring_rig.rs"]
mod rig;
#[cfg(test)]
#[path = "ring_stand_in.rs"]
mod stand_in;
#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
