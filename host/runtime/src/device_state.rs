//! The host's half of `rushmem/abi.h`: the one struct that a kernel reads to know who and where it is, and
//! the records in which its waits tell that they are stalled. `rushmem-abi` has the layout.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ops::Deref;
use std::sync::atomic::{fence, AtomicU32, Ordering};
use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::gpu::pinned::{PinnedBox, Registered};
use crate::gpu::Cuda;
use crate::health::Health;
use crate::topology::near::{Near, NearForm};
use crate::verbs::syndrome_name;
use rushmem_abi::device::*;
use rushmem_abi::table::Comparison;

/// What a world tells its kernels. All pointers outlive every kernel of the world.
pub(crate) struct DeviceFacts<'a> {
    pub(crate) my_pe: i32,
    pub(crate) n_pes: i32,
    /// The PEs whose memory is mapped.
    pub(crate) near: &'a Near,
    /// Where the device finds the table of their distances, if they need one.
    pub(crate) near_table: usize,
    pub(crate) heap_base: usize,
    pub(crate) stride: usize,
    /// `n_pes` lines at the same heap offset on every PE.
    pub(crate) sync_lines: usize,
    /// This PE's own counts of syncs: a word for each PE.
    pub(crate) sync_epoch: usize,
    /// Report a wait after this long.
    pub(crate) stall_report: Option<Duration>,
    /// End a wait after this long.
    pub(crate) wait_limit: Option<Duration>,
    /// How long a kernel goes on once the job is broken, or a wait at its limit.
    pub(crate) trap_delay: Duration,
    /// Where the device finds the ring to PEs that are not mapped; 0: there are none.
    pub(crate) ring: usize,
    /// Where it finds what others ask its threads to do; 0: nothing.
    pub(crate) mailbox: usize,
    /// All PEs, as a team.
    pub(crate) world: RawTeam,
    /// Where the device finds the teams that have numbers.
    pub(crate) teams: usize,
    /// Where the device finds the card's queues, which kernels write; 0: there are none.
    pub(crate) queues: usize,
}

/// `RUSHMEM_FAILURE_WORDS` words, written by one 16-byte store.
#[derive(Default)]
#[repr(C, align(16))]
struct Failure([AtomicU32; RUSHMEM_FAILURE_WORDS]);

/// Host memory that the PE's device can reach.
enum DeviceShared<T> {
    Plain(Box<T>),
    Pinned(PinnedBox<T>),
}

impl<T> DeviceShared<T> {
    fn new(value: T, gpu: Option<&Arc<Cuda>>) -> Result<Self> {
        Ok(match gpu {
            None => DeviceShared::Plain(Box::new(value)),
            Some(cuda) => DeviceShared::Pinned(PinnedBox::new(cuda, value)?),
        })
    }

    /// Where the device finds it.
    fn device_address(&self) -> usize {
        match self {
            DeviceShared::Plain(at) => std::ptr::from_ref(&**at) as usize,
            DeviceShared::Pinned(at) => at.device_address(),
        }
    }
}

impl<T> Deref for DeviceShared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            DeviceShared::Plain(at) => at,
            DeviceShared::Pinned(at) => at,
        }
    }
}

/// A world's device state: the struct that kernels see, with the host memory that it points at.
pub(crate) struct DeviceState {
    raw: Box<RawState>,
    stalls: DeviceShared<UnsafeCell<[StallRecord; RUSHMEM_STALL_RECORDS]>>,
    /// Written by devices that cannot end a launch by themselves.
    failure: DeviceShared<Failure>,
    /// Keeps the broken word reachable for a GPU.
    _broken: Option<Registered>,
    /// Keeps the broken word.
    _health: Arc<Health>,
}

// SAFETY: `raw` is constant, `failure` atomic, and the records change hands by their atomic `state` words.
unsafe impl Send for DeviceState {}
// SAFETY: `raw` is constant, `failure` atomic, and the records change hands by their atomic `state` words.
unsafe impl Sync for DeviceState {}

impl DeviceState {
    /// For kernels on the CPU, or on `gpu`.
    pub(crate) fn new(
        facts: &DeviceFacts<'_>,
        health: &Arc<Health>,
        gpu: Option<&Arc<Cuda>>,
    ) -> Result<Self> {
        let nanos = |limit: Option<Duration>| {
            limit.map_or(0, |limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX).max(1))
        };
        let stalls =
            DeviceShared::new(UnsafeCell::new([StallRecord::default(); RUSHMEM_STALL_RECORDS]), gpu)?;
        let failure = DeviceShared::new(Failure::default(), gpu)?;
        let (page, bytes) = health.broken_page();
        // SAFETY: the page is the word's alone and lives as long as `health`, which is kept beside the
        // registration.
        let registered = gpu.map(|cuda| unsafe { Registered::new(cuda, page, bytes) }).transpose()?;
        let broken = registered.as_ref().map_or(page, Registered::device_address);
        let (steps, table) = match facts.near.shape() {
            NearForm::Run => (None, 0),
            NearForm::Steps(steps) => (Some(steps), 0),
            NearForm::Table(_) => (None, facts.near_table),
        };
        let raw = Box::new(RawState {
            version: RUSHMEM_DEVICE_ABI_VERSION,
            bytes: size_of::<RawState>() as u32,
            my_pe: facts.my_pe,
            n_pes: facts.n_pes,
            near_first: facts.near.run().0,
            near_count: facts.near.run().1,
            heap_base: facts.heap_base as u64,
            stride: facts.stride as u64,
            broken: broken as *const u32,
            sync_lines: facts.sync_lines as *mut SyncLine,
            sync_epoch: facts.sync_epoch as *mut u64,
            stall_ns: nanos(facts.stall_report),
            wait_limit_ns: nanos(facts.wait_limit),
            stalls: stalls.device_address() as *mut StallRecord,
            failure: failure.device_address() as *mut u32,
            trap_delay_ns: facts.trap_delay.as_nanos() as u64,
            ring: facts.ring as *mut c_void,
            mailbox: facts.mailbox as *mut c_void,
            near_apart: facts.near.apart(),
            step_first: steps.map_or(0, |s| s.first),
            step_count: steps.map_or(0, |s| s.count),
            step_inverse: steps.map_or(0, |s| s.inverse),
            step_shift: steps.map_or(0, |s| s.shift),
            near_table: table as *const u64,
            world: facts.world,
            teams: facts.teams as *const RawTeam,
            queues: facts.queues as *mut c_void,
        });
        Ok(DeviceState { raw, stalls, failure, _broken: registered, _health: Arc::clone(health) })
    }

    /// What a kernel of the CPU device is handed.
    pub(crate) fn as_ptr(&self) -> *const c_void {
        std::ptr::from_ref(&*self.raw).cast()
    }

    /// The struct that a GPU's code reads.
    pub(crate) fn raw(&self) -> &RawState {
        &self.raw
    }

    /// Whether a GPU's kernel has reported why it gives up, and nobody has taken that yet.
    pub(crate) fn has_failed(&self) -> bool {
        self.failure.0[0].load(Ordering::Acquire) != 0
    }

    /// Takes what a GPU's kernel reported before it trapped: a code, 0 for nothing, and where in the launch.
    pub(crate) fn take_failure(&self) -> (u32, String) {
        let [code, x, yz, thread] = self.failure.0.each_ref().map(|word| word.swap(0, Ordering::AcqRel));
        let (ty, tz) = (thread >> 10 & 0x3ff, thread >> 20);
        let place =
            format!(" in block ({x},{},{}), thread ({},{ty},{tz})", yz >> 16, yz & 0xffff, thread & 0x3ff);
        (code, place)
    }

    /// A record as a text about what `who` waits for.
    pub(crate) fn describe(&self, who: &str, record: &StallRecord) -> String {
        let (place, what) = (place_of(record), self.waits_for(record));
        match record.cmp {
            RUSHMEM_STALL_ADDRESS | RUSHMEM_STALL_UNREACHED => {
                format!("{who}: a kernel{place} asks for {what}")
            }
            RUSHMEM_STALL_MISMATCH | RUSHMEM_STALL_BUSY | RUSHMEM_STALL_REFUSED => {
                format!("{who}: a kernel{place}: {what}")
            }
            _ => format!("{who}: a kernel{place} has waited {:.1} s {what}", record.waited_ns as f64 / 1e9),
        }
    }

    /// The records made since the last call.
    pub(crate) fn take_stalls(&self) -> Vec<StallRecord> {
        let first: *mut StallRecord = (*self.stalls).get().cast();
        let take = |i: usize| {
            // SAFETY: one of the records, whose state word is only ever accessed atomically.
            let state = unsafe { AtomicU32::from_ptr(&raw mut (*first.add(i)).state) };
            if state.load(Ordering::Acquire) != 2 {
                return None;
            }
            // SAFETY: a ready record is the host's until its state is 0 again.
            let record = unsafe { first.add(i).read() };
            fence(Ordering::AcqRel);
            state.store(0, Ordering::Release);
            Some(record)
        };
        (0..RUSHMEM_STALL_RECORDS).filter_map(take).collect()
    }

    /// What the thread of a record waits for, or asks for.
    pub(crate) fn waits_for(&self, record: &StallRecord) -> String {
        let team = match record.width >> 8 {
            0 => "the world".to_owned(),
            id => format!("team {id}"),
        };
        let collective = collective_name(record.width & 0xff);
        let phases = |word: u64| word >> 16;
        let mask = if record.width == 4 && record.cmp >= 0 { u64::from(u32::MAX) } else { u64::MAX };
        let (expected, seen, pe) = (record.expected & mask, record.seen & mask, record.from_pe);
        match record.cmp {
            RUSHMEM_STALL_SYNC => {
                return format!("for PE {pe} to enter the device's sync number {expected}; it has entered {seen}")
            }
            RUSHMEM_STALL_ANSWER if pe == self.raw.my_pe => {
                return "for its operations on PEs that are not mapped to complete".into()
            }
            RUSHMEM_STALL_ANSWER => return format!("for the answer to its operation on PE {pe}, which is not mapped"),
            RUSHMEM_STALL_ROOM if pe >= 0 => {
                return format!(
                    "for room in the network card's queue to PE {pe}, which is full; the card has completed {} \
                     requests", record.seen
                )
            }
            RUSHMEM_STALL_ROOM => {
                return "for room to post an operation on a PE that is not mapped: what was posted is not taken, or not answered".into()
            }
            RUSHMEM_STALL_COLLECTIVE => {
                let (wanted, came) = (phases(record.expected), phases(record.seen));
                return format!("for PE {pe} to come to a {collective} of {team}, phase {wanted}; it has come to {came}")
            }
            RUSHMEM_STALL_GRID if record.width & 0xff == RUSHMEM_COLLECTIVE_SYNC_GRID => {
                return format!(
                    "for all {expected} blocks of its launch to come to sync_grid(); {seen} have: the others have ended, or \
                     do not make this call"
                )
            }
            RUSHMEM_STALL_GRID => {
                return format!(
                    "for all {expected} blocks of its launch to come to a {collective} of {team} at grid scope; {seen} have: \
                     the others do not run, as only max_blocks do at once, or do not make this call"
                )
            }
            RUSHMEM_STALL_REFUSED => {
                return format!(
                    "the network card refused a request to PE {pe}: {}; {} requests before it are complete",
                    syndrome_name(record.width as u8), record.seen
                )
            }
            RUSHMEM_STALL_QUEUE => {
                return format!(
                    "for the network card to complete request {} to PE {pe}; it has completed {}",
                    record.expected, record.seen
                )
            }
            RUSHMEM_STALL_MISMATCH => {
                return format!(
                    "the members of {team} make different calls: PE {} a {collective}, PE {pe} another collective, or \
                     the same of another size, type, operator or root",
                    self.raw.my_pe
                )
            }
            RUSHMEM_STALL_BUSY if record.seen != RUSHMEM_TEAM_BUSY => {
                return format!(
                    "a {collective} of {team} was begun in a slot set in which calls have ended up to phase {}, and its \
                     block knew of those up to phase {}: a block that makes calls where others have made some acquires \
                     what they did first, by a fence behind the wait for them or a barrier of the grid",
                    record.seen >> 16,
                    record.expected >> 16
                )
            }
            RUSHMEM_STALL_BUSY => {
                return format!(
                    "a {collective} of {team} was begun in a slot set that another collective of this PE is using; \
                     blocks that make collectives at once take a slot set each (team.on)"
                )
            }
            RUSHMEM_STALL_UNREACHED => {
                return format!(
                    "PE {pe}'s copy of the card_word at {:#x}, which is in memory that the network cards have not taken",
                    record.address
                )
            }
            RUSHMEM_STALL_ADDRESS => {
                return format!("PE {pe}'s copy of address {:#x}, which is not symmetric memory", record.address)
            }
            _ => {}
        }
        let place = match record.address.checked_sub(self.raw.heap_base).filter(|at| *at < self.raw.stride) {
            Some(offset) => format!("at heap offset {offset:#x} (address {:#x})", record.address),
            None => format!("at address {:#x}", record.address),
        };
        let sign = Comparison::of(record.cmp).map_or("?", Comparison::sign);
        let from = if pe >= 0 { format!(", which PE {pe} is to write,") } else { String::new() };
        format!(
            "for the {}-byte word {place}{from} to become {sign} {expected} ({expected:#x}); it is {seen} ({seen:#x})",
            record.width
        )
    }
}

/// Where in the launch, as in every text about a failure there.
pub(crate) fn place_of(record: &StallRecord) -> String {
    let ([bx, by, bz], [tx, ty, tz]) = (record.block, record.thread);
    format!(" in block ({bx},{by},{bz}), thread ({tx},{ty},{tz})")
}

#[cfg(test)]
#[path = "device_state_tests.rs"]
pub(crate) mod tests;
