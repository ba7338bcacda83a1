//! `abi.h`: the struct by which a kernel knows who and where it is, and what a kernel tells the host: stalls,
//! failures.

use std::os::raw::c_void;

/// Version of the device state. A module that was compiled for another one is refused.
pub const RUSHMEM_DEVICE_ABI_VERSION: u32 = 12;

/// In the table of near PEs' distances: of a PE that is not near.
pub const RUSHMEM_NOT_NEAR: u64 = 1;
/// `RawState::near_apart` is a multiple of this, 4 GiB, so that kernels multiply 32 bits.
pub const RUSHMEM_NEAR_UNIT: u64 = 4294967296;

/// Records of stalls that a PE's kernels have between them.
pub const RUSHMEM_STALL_RECORDS: usize = 8;
/// What a record's `cmp` is where it is none of `RUSHMEM_CMP_*`: a sync.
pub const RUSHMEM_STALL_SYNC: i32 = -1;
/// A wait for the answer to an operation on a PE that is not mapped.
pub const RUSHMEM_STALL_ANSWER: i32 = -2;
/// A wait for room in the device ring.
pub const RUSHMEM_STALL_ROOM: i32 = -3;
/// A record of an address that is none, rather than of a stall.
pub const RUSHMEM_STALL_ADDRESS: i32 = -4;
/// A wait for a member of a team to come to a collective.
pub const RUSHMEM_STALL_COLLECTIVE: i32 = -5;
/// A record of a member that makes another collective.
pub const RUSHMEM_STALL_MISMATCH: i32 = -6;
/// A record of a slot set that is in use.
pub const RUSHMEM_STALL_BUSY: i32 = -7;
/// A wait for the blocks of a launch to come to a collective of all of them.
pub const RUSHMEM_STALL_GRID: i32 = -8;
/// A wait for a request in a card's queue.
pub const RUSHMEM_STALL_QUEUE: i32 = -9;
/// A record of a request in a card's queue that failed.
pub const RUSHMEM_STALL_REFUSED: i32 = -10;
/// A record of symmetric memory that the cards have not taken.
pub const RUSHMEM_STALL_UNREACHED: i32 = -11;

/// Collectives, in tags and reports: sync and barrier.
pub const RUSHMEM_COLLECTIVE_SYNC: u32 = 1;
/// `broadcast`.
pub const RUSHMEM_COLLECTIVE_BROADCAST: u32 = 2;
/// `fcollect`.
pub const RUSHMEM_COLLECTIVE_FCOLLECT: u32 = 3;
/// `alltoall`.
pub const RUSHMEM_COLLECTIVE_ALLTOALL: u32 = 4;
/// `reduce`.
pub const RUSHMEM_COLLECTIVE_REDUCE: u32 = 5;
/// `reducescatter`.
pub const RUSHMEM_COLLECTIVE_REDUCESCATTER: u32 = 6;
/// `inscan` and `exscan`.
pub const RUSHMEM_COLLECTIVE_SCAN: u32 = 7;
/// `collect`.
pub const RUSHMEM_COLLECTIVE_COLLECT: u32 = 8;
/// `alltoallv`.
pub const RUSHMEM_COLLECTIVE_ALLTOALLV: u32 = 9;
/// `alltoalls`.
pub const RUSHMEM_COLLECTIVE_ALLTOALLS: u32 = 10;

/// `sync_grid`, of no team.
pub const RUSHMEM_COLLECTIVE_SYNC_GRID: u32 = 11;

/// The name of a collective in a record's `width`.
pub fn collective_name(code: u32) -> &'static str {
    match code {
        RUSHMEM_COLLECTIVE_SYNC => "sync",
        RUSHMEM_COLLECTIVE_BROADCAST => "broadcast",
        RUSHMEM_COLLECTIVE_FCOLLECT => "fcollect",
        RUSHMEM_COLLECTIVE_ALLTOALL => "alltoall",
        RUSHMEM_COLLECTIVE_REDUCE => "reduce",
        RUSHMEM_COLLECTIVE_REDUCESCATTER => "reducescatter",
        RUSHMEM_COLLECTIVE_SCAN => "scan",
        RUSHMEM_COLLECTIVE_COLLECT => "collect",
        RUSHMEM_COLLECTIVE_ALLTOALLV => "alltoallv",
        RUSHMEM_COLLECTIVE_ALLTOALLS => "alltoalls",
        RUSHMEM_COLLECTIVE_SYNC_GRID => "sync_grid",
        _ => "collective",
    }
}

/// Why a kernel gave up: the job is broken.
pub const RUSHMEM_DEVICE_FAIL_BROKEN: u32 = 1;
/// A wait reached its limit.
pub const RUSHMEM_DEVICE_FAIL_TIMEOUT: u32 = 2;
/// A PE that does not exist was addressed.
pub const RUSHMEM_DEVICE_FAIL_BAD_PE: u32 = 3;
/// A PE that is not mapped was addressed, and no network leads there.
pub const RUSHMEM_DEVICE_FAIL_UNMAPPED: u32 = 4;
/// An address was not symmetric.
pub const RUSHMEM_DEVICE_FAIL_BAD_ADDRESS: u32 = 5;
/// A collective was given no team of its world, or a slot set that the team lacks.
pub const RUSHMEM_DEVICE_FAIL_TEAM: u32 = 6;
/// The members of a team made different collectives.
pub const RUSHMEM_DEVICE_FAIL_MISMATCH: u32 = 7;
/// A collective was begun in a slot set that another one was using.
pub const RUSHMEM_DEVICE_FAIL_BUSY: u32 = 8;
/// The card refused a request.
pub const RUSHMEM_DEVICE_FAIL_QUEUE: u32 = 9;
/// Blocks were to meet in a launch whose blocks take turns.
pub const RUSHMEM_DEVICE_FAIL_TURNS: u32 = 10;
/// A word that the cards of this job update, in a kernel without queues, or in memory that they have not
/// taken.
pub const RUSHMEM_DEVICE_FAIL_CARD_WORD: u32 = 11;
/// Words of what a kernel that gives up writes, in one store.
pub const RUSHMEM_FAILURE_WORDS: usize = 4;

/// `rushmem_stall_record`: a wait that has lasted too long.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the header says what each is")]
pub struct StallRecord {
    pub state: u32,
    pub cmp: i32,
    pub from_pe: i32,
    pub width: u32,
    pub address: u64,
    pub expected: u64,
    pub seen: u64,
    pub waited_ns: u64,
    pub block: [u32; 3],
    pub thread: [u32; 3],
    pub reserved: u64,
}

/// `rushmem_sync_line`: a PE's arrivals at the device's sync.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "the header says what each is")]
pub struct SyncLine {
    pub epoch: u64,
    pub said: [u64; 3],
    pub pad: [u64; 12],
}

/// Entries of the table in which kernels find teams by number.
pub const RUSHMEM_NUMBERED_TEAMS: usize = 64;

/// Phases of a slot set whose packets have places of their own.
pub const RUSHMEM_TEAM_PHASES: usize = 4;

/// Phases of a slot set whose wide packets have places of their own.
pub const RUSHMEM_TEAM_WIDE: usize = 2;

/// `busy` of a slot set that a collective uses.
pub const RUSHMEM_TEAM_BUSY: u64 = u64::MAX;

/// `rushmem_team`: what a PE knows of a team that it is a member of.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the header says what each is")]
pub struct RawTeam {
    pub my_pe: i32,
    pub n_pes: i32,
    pub start: i32,
    pub stride: i32,
    pub table: *const i32,
    pub slots: u64,
    pub slot_bytes: u64,
    pub slot_sets: u32,
    pub packets: u32,
    pub id: u32,
    pub all_near: u32,
    pub heap_base: u64,
    pub first_bytes: u64,
    pub next_packets: u32,
    pub wide: u32,
    pub right: u64,
    pub pair_bytes: u32,
    pub packed_rows: u32,
}

impl RawTeam {
    /// The same team, whose first slot set is number `set` of this one, as kernels have it (`team::on`). The
    /// first set may be larger than the others.
    pub fn on(&self, set: u32) -> RawTeam {
        let Some(behind) = set.checked_sub(1) else { return *self };
        RawTeam {
            slots: self.slots + self.first_bytes + u64::from(behind) * self.slot_bytes,
            slot_sets: self.slot_sets - set,
            first_bytes: self.slot_bytes,
            packets: self.next_packets,
            wide: 0,
            pair_bytes: if self.pair_bytes == 0 { 0 } else { 8 * self.next_packets },
            ..*self
        }
    }
}

/// `rushmem_team_slots`: how a slot set begins.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "the header says what each is")]
pub struct TeamSlots {
    pub ended: u64,
    pub pad_ended: [u64; 15],
    pub busy: u64,
    pub alone: u64,
    pub grid: [u64; 2],
    pub current: u64,
    pub arrived: u64,
    pub pad: [u64; 10],
}

/// `rushmem_device_state`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the header says what each is")]
pub struct RawState {
    pub version: u32,
    pub bytes: u32,
    pub my_pe: i32,
    pub n_pes: i32,
    pub near_first: i32,
    pub near_count: i32,
    pub heap_base: u64,
    pub stride: u64,
    pub broken: *const u32,
    pub sync_lines: *mut SyncLine,
    pub sync_epoch: *mut u64,
    pub stall_ns: u64,
    pub wait_limit_ns: u64,
    pub stalls: *mut StallRecord,
    pub failure: *mut u32,
    pub trap_delay_ns: u64,
    pub ring: *mut c_void,
    pub mailbox: *mut c_void,
    pub near_apart: u64,
    pub step_first: i32,
    pub step_count: u32,
    pub step_inverse: u32,
    pub step_shift: u32,
    pub near_table: *const u64,
    pub world: RawTeam,
    pub teams: *const RawTeam,
    pub queues: *mut c_void,
}
