//! A queue to a PE: a register to ring, a collapsed completion queue and a reliable connection's pair, in
//! memory that the card knows.

use std::sync::Arc;

use super::commands::{self, Path, QueueParts};
use super::device::OpenCard;
use super::library::{Pointer, Uar};
use crate::config::PacketClass;
use crate::error::Result;

/// `IBV_ACCESS_LOCAL_WRITE`.
const LOCAL_WRITE: u32 = 1;
/// `MLX5DV_UAR_ALLOC_TYPE_NC`: a CPU's stores to the register go out at once. Combined ones would wait for an
/// instruction that kernels do not have.
const NOT_CACHED: u32 = 1;

/// Memory of queues.
pub(super) struct Umem {
    device: Arc<OpenCard>,
    handle: *mut u32,
    start: usize,
}

// SAFETY: a handle that any thread may use.
unsafe impl Send for Umem {}

impl Umem {
    /// # Safety
    /// The memory outlives this.
    pub(super) unsafe fn new(device: &Arc<OpenCard>, start: *mut u8, bytes: usize) -> Result<Umem> {
        // SAFETY: the caller's memory, which stays.
        let handle =
            unsafe { (device.verbs.mlx5dv_devx_umem_reg)(device.context, start.cast(), bytes, LOCAL_WRITE) };
        if handle.is_null() {
            let what = format!("registering {bytes} bytes of queues");
            return Err(device
                .failed(&what, "ulimit -l must let memory be pinned; RUSHMEM_QUEUE_SLOTS and RUSHMEM_QUEUE_CONTEXTS make it less"));
        }
        Ok(Umem { device: Arc::clone(device), handle, start: start as usize })
    }

    pub(super) fn number(&self) -> u32 {
        // SAFETY: `mlx5dv_devx_umem` begins with its number.
        unsafe { *self.handle }
    }

    fn offset<T>(&self, at: *mut T) -> u64 {
        (at as usize - self.start) as u64
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: the handle of this memory, which nothing of the card uses any more.
        if unsafe { (self.device.verbs.mlx5dv_devx_umem_dereg)(self.handle) } != 0 {
            let why = std::io::Error::last_os_error();
            log::warn!("{}: memory of queues is still registered: {why}", self.device.who());
        }
    }
}

/// Where a queue lies.
pub(super) struct QueuePlace {
    pub(super) slots: *mut u8,
    pub(super) count: usize,
    pub(super) completions: *mut u64,
    pub(super) record: *mut u32,
    pub(super) cq_record: *mut u32,
}

pub(super) struct CardPair {
    device: Arc<OpenCard>,
    peer: usize,
    uar: *mut Uar,
    cq: Pointer,
    qp: Pointer,
    pub(super) number: u32,
}

// SAFETY: handles that any thread may use.
unsafe impl Send for CardPair {}

impl CardPair {
    pub(super) fn new(umem: &Umem, place: &QueuePlace, peer: usize) -> Result<CardPair> {
        let device = Arc::clone(&umem.device);
        // SAFETY: an open device.
        let uar = unsafe { (device.verbs.mlx5dv_devx_alloc_uar)(device.context, NOT_CACHED) };
        let null = std::ptr::null_mut();
        // Dropped, and so freed, where something is refused.
        let mut pair = CardPair { device, peer, uar, cq: null, qp: null, number: 0 };
        if uar.is_null() {
            let what = format!("allocating a doorbell register for the queue to PE {peer}");
            return Err(pair.device.failed(
                &what,
                "fewer PEs for each device, a smaller RUSHMEM_QUEUE_CONTEXTS, or Linux 5.7 or newer",
            ));
        }
        let parts = QueueParts {
            umem: umem.number(),
            slots: umem.offset(place.slots),
            log_slots: place.count.ilog2().into(),
            completions: umem.offset(place.completions),
            record: umem.offset(place.record),
            cq_record: umem.offset(place.cq_record),
            // SAFETY: the register that was allocated.
            uar: unsafe { (*uar).page },
        };
        let what = pair.what();
        let (cq, cq_number) = pair.device.create(&commands::create_cq(&parts, pair.device.eq), &what)?;
        pair.cq = cq;
        let (qp, number) =
            pair.device.create(&commands::create_qp(&parts, pair.device.pdn, cq_number), &what)?;
        (pair.qp, pair.number) = (qp, number);
        Ok(pair)
    }

    fn what(&self) -> String {
        format!("the queue to PE {}", self.peer)
    }

    pub(super) fn register(&self) -> *mut u64 {
        // SAFETY: the register that was allocated.
        unsafe { (*self.uar).register }
    }

    /// From reset to where it sends and receives. `psn`: the first number of this side's packets, and of the
    /// peer's.
    pub(super) fn connect(
        &self,
        path: (&Path, PacketClass),
        mtu: u8,
        peer: u32,
        psn: [u32; 2],
    ) -> Result<()> {
        let port = self.device.port;
        let steps = [
            commands::init(self.number, port, self.device.atomics),
            commands::rtr(self.number, port, mtu, path, peer, psn[1]),
            commands::rts(self.number, psn[0]),
        ];
        for step in steps {
            // SAFETY: the pair that was made.
            unsafe { self.device.modify(self.qp, &step, &self.what()) }?;
        }
        Ok(())
    }
}

impl Drop for CardPair {
    fn drop(&mut self) {
        let verbs = self.device.verbs;
        for (object, name) in [(self.qp, "pair"), (self.cq, "completion queue")] {
            // SAFETY: an object that was made here; the pair goes before its completion queue.
            if !object.is_null() && unsafe { (verbs.mlx5dv_devx_obj_destroy)(object) } != 0 {
                let why = std::io::Error::last_os_error();
                log::warn!("{}: the {name} of {} was not freed: {why}", self.device.who(), self.what());
            }
        }
        if !self.uar.is_null() {
            // SAFETY: the register, which nothing of the card uses any more.
            unsafe { (verbs.mlx5dv_devx_free_uar)(self.uar) };
        }
    }
}
