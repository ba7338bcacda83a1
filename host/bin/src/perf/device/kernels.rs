//! The kernels: text that the tool carries, one source for each family of measures, put together with what
//! all share. The runtime compiles it for whatever device the PEs have. A run compiles the families that it
//! measures, and each collective is one: NVRTC takes long for their kernels.

use rushmem::Source;

/// Measures whose kernels are one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Family {
    Latency,
    Pingpong,
    Bandwidth,
    Atomic,
    Sync,
    Reduce,
    Reducescatter,
    Broadcast,
    Fcollect,
    Alltoall,
    Local,
    /// Of collectives on streams, beside them.
    Bare,
    /// The same inside kernels.
    BareInside,
}

const COMMON: &str = include_str!("kernels/common.cuh");
const COPY: &str = include_str!("kernels/copy.cuh");
const COLLECTIVE: &str = include_str!("kernels/collective.cuh");
const BARE: &str = include_str!("kernels/bare.cuh");
/// What bare collectives inside kernels need besides: what the library's have, and their forms.
const INSIDE: &str = concat!(
    include_str!("kernels/collective.cuh"),
    include_str!("kernels/bare.cuh"),
    include_str!("kernels/bare_forms.cuh"),
);

impl Family {
    /// Its source.
    pub(super) fn source(self) -> Source {
        let (name, needs, text) = match self {
            Family::Latency => ("perf-latency.cu", COPY, include_str!("kernels/latency.cu")),
            Family::Pingpong => ("perf-pingpong.cu", COPY, include_str!("kernels/pingpong.cu")),
            Family::Bandwidth => ("perf-bandwidth.cu", COPY, include_str!("kernels/bandwidth.cu")),
            Family::Atomic => ("perf-atomic.cu", "", include_str!("kernels/atomic.cu")),
            Family::Sync => ("perf-sync.cu", "", include_str!("kernels/sync.cu")),
            Family::Reduce => ("perf-reduce.cu", COLLECTIVE, include_str!("kernels/reduce.cu")),
            Family::Reducescatter => {
                ("perf-reducescatter.cu", COLLECTIVE, include_str!("kernels/reducescatter.cu"))
            }
            Family::Broadcast => ("perf-broadcast.cu", COLLECTIVE, include_str!("kernels/broadcast.cu")),
            Family::Fcollect => ("perf-fcollect.cu", COLLECTIVE, include_str!("kernels/fcollect.cu")),
            Family::Alltoall => ("perf-alltoall.cu", COLLECTIVE, include_str!("kernels/alltoall.cu")),
            Family::Local => ("perf-local.cu", "", include_str!("kernels/local.cu")),
            Family::Bare => ("perf-bare.cu", BARE, include_str!("kernels/bare.cu")),
            Family::BareInside => ("perf-bare-inside.cu", INSIDE, include_str!("kernels/bare_inside.cu")),
        };
        Source::text([COMMON, needs, text].concat()).name(name)
    }

    /// Whether its kernels are those of a collective that moves data, at every scope.
    pub(super) fn is_collective(self) -> bool {
        use Family::{Alltoall, Broadcast, Fcollect, Reduce, Reducescatter};
        matches!(self, Reduce | Reducescatter | Broadcast | Fcollect | Alltoall)
    }
}

/// Words of a job's control lines: `LINE` words a line, see `common.cuh`.
pub(super) const LINE: usize = 16;
/// Where the ping-pongs' rounds are counted.
pub(super) const PING: usize = LINE;
/// What waits and tests look at.
pub(super) const PONG: usize = 2 * LINE;
/// The first of a word for each PE, behind which a line for each counts arrivals.
pub(super) const CHECK: usize = 3 * LINE;
/// Words of the stamps before the first.
pub(super) const HEAD: usize = 2;

/// Bytes that both PEs have for bare collectives: `PACKETS` and two times `PACKETS_APART` in `bare.cuh`.
pub(super) const BARE_ROOM: usize = (256 << 10) + (4 << 20);

/// A kernel's arguments: `job` in `common.cuh`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Job {
    pub(super) to: *mut u8,
    pub(super) from: *mut u8,
    pub(super) words: *mut u64,
    pub(super) stamps: *mut u64,
    pub(super) bytes: u64,
    pub(super) salt: u64,
    pub(super) step: u64,
    pub(super) iterations: u32,
    pub(super) batches: u32,
    pub(super) warm_up: u32,
    pub(super) peer: i32,
    pub(super) both: u32,
    pub(super) op: u32,
    pub(super) places: u32,
    pub(super) room: *mut u64,
}
