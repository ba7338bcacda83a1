//! What a kernel and its scheduler share of a block and of a CUDA thread, as `rushmem_cpu/hooks.h` lays it
//! out. As there, what belongs to the scheduler and to the checker is only an address: they alone know what
//! is behind it.

use std::ffi::{c_char, c_void};
use std::sync::atomic::AtomicU64;

/// What a suspended CUDA thread waits for (`rushmem_cpu_request`).
pub(crate) const SPIN: u32 = 0;
pub(crate) const BARRIER: u32 = 1;
pub(crate) const WARP: u32 = 2;
pub(crate) const EXIT: u32 = 3;
pub(crate) const TICK: u32 = 4;
pub(crate) const PREEMPT: u32 = 5;

/// Bits of `woke`.
pub(crate) const WOKE: u32 = 1;
pub(crate) const STALLED: u32 = 2;

/// `rushmem_cpu_block`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct BlockContext {
    pub(crate) grid_dim: [u32; 3],
    pub(crate) block_dim: [u32; 3],
    pub(crate) block_idx: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) shared: *mut c_void,
    pub(crate) state: *const c_void,
    pub(crate) grid_barrier: *const AtomicU64,
}

/// `rushmem_cpu_thread`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ThreadContext {
    pub(crate) block: *const BlockContext,
    pub(crate) thread_idx: [u32; 3],
    pub(crate) linear: u32,
    pub(crate) ticks: u32,
    pub(crate) request: u32,
    pub(crate) mask: u32,
    pub(crate) woke: u32,
    pub(crate) result: u32,
    pub(crate) value: u64,
    pub(crate) values: *const u64,
    pub(crate) what: *const c_char,
    pub(crate) file: *const c_char,
    pub(crate) line: u32,
    pub(crate) vote: u32,
    pub(crate) seen_at: *const c_void,
    pub(crate) seen: u64,
    /// The scheduler's own: its `Fiber`.
    pub(crate) scheduler: *const c_void,
    /// The checker's own, its `CheckedThread`; null where the launch is not checked.
    pub(crate) check: *mut c_void,
}
