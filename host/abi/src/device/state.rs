//! `abi.h`: the struct by which a kernel knows who and where it is, and what a kernel tells the host: stalls,
//! failures.

use std::os::raw::c_void;

/// Version of the device state. A module that was compiled for another one is refused.
pub const RUSHMEM_DEVICE_ABI_VERSION: u32 = 4;

/// In the table of near PEs' distances: of a PE that is not near.
pub const RUSHMEM_NOT_NEAR: u64 = 1;

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
    pub pad: [u64; 15],
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
}
