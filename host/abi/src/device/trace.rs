//! `abi_trace.h`: what kernels on a GPU write of their calls in a traced run.

/// Records of the ring; a power of two.
pub const RUSHMEM_TRACE_SLOTS: usize = 65536;
/// Words of a record.
pub const RUSHMEM_TRACE_WORDS: usize = 8;

/// A call begins.
pub const RUSHMEM_TRACE_BEGIN: u64 = 0;
/// The call is collective, and in which phase.
pub const RUSHMEM_TRACE_ROUND: u64 = 1;
/// A call ends.
pub const RUSHMEM_TRACE_END: u64 = 2;

/// A put, get, atomic operation or signal.
pub const RUSHMEM_TRACE_RMA: u64 = 0;
/// One that is complete at the next quiet.
pub const RUSHMEM_TRACE_NBI: u64 = 1;
/// A fence or quiet.
pub const RUSHMEM_TRACE_ORDER: u64 = 2;
/// A wait for a word.
pub const RUSHMEM_TRACE_WAIT: u64 = 3;
/// A collective call.
pub const RUSHMEM_TRACE_COLLECTIVE: u64 = 4;

/// `rushmem_trace_ring`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs, reason = "the header says what each is")]
pub struct TraceRing {
    pub records: u64,
    pub claimed: u64,
    pub blocks: u64,
    pub module: u64,
}
