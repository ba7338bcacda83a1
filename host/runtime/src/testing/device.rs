//! Kernels without a world: compiled for the CPU device, and the state that tells them of a job that a test
//! has made up.

use std::ptr::{null, null_mut};
use std::time::Duration;

use rushmem_device_cpu::{Compiler, Limits, Module, Optimization};

use crate::kernel::headers::DEVICE_HEADERS;
use crate::team::slots::Slots;
use rushmem_abi::device::{RawState, RUSHMEM_DEVICE_ABI_VERSION, RUSHMEM_NEAR_UNIT};

/// The longest that one launch may take on a loaded machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Compiles kernels for the CPU device.
pub(crate) fn compile(name: &str, source: &str) -> Module {
    let dir = tempfile::tempdir().unwrap();
    let compiler = Compiler {
        cxx: std::env::var_os("RUSHMEM_CXX").filter(|cxx| !cxx.is_empty()).map(Into::into),
        cache_dir: Some(dir.path().to_owned()),
        options: Vec::new(),
        headers: DEVICE_HEADERS,
        optimization: Optimization::from_env().unwrap(),
        limits: Limits::default(),
        check: rushmem_device_cpu::check::Mode::OFF,
        trace: false,
    };
    compiler.compile(name, source).unwrap()
}

/// What kernels of PE `me` of `n` read: heaps `stride` apart, its own at `base`, where the lines and counts
/// of syncs are first. All are near where a multiplication serves that; else the caller says by a table
/// which. Waits are bounded, and reported to nobody.
pub(crate) fn state(me: usize, n: usize, base: usize, stride: usize) -> RawState {
    let far_enough = stride as u64 % RUSHMEM_NEAR_UNIT == 0;
    RawState {
        version: RUSHMEM_DEVICE_ABI_VERSION,
        bytes: size_of::<RawState>() as u32,
        my_pe: me as i32,
        n_pes: n as i32,
        near_first: if far_enough { 0 } else { me as i32 },
        near_count: if far_enough { n as i32 } else { 1 },
        heap_base: base as u64,
        stride: stride as u64,
        broken: null(),
        sync_lines: base as *mut _,
        sync_epoch: (base + n * 128) as *mut u64,
        stall_ns: 0,
        wait_limit_ns: LIMIT.as_nanos() as u64,
        stalls: null_mut(),
        failure: null_mut(),
        trap_delay_ns: 0,
        ring: null_mut(),
        mailbox: null_mut(),
        near_apart: if far_enough { stride as u64 } else { 0 },
        step_first: 0,
        step_count: 0,
        step_inverse: 0,
        step_shift: 0,
        near_table: null(),
        world: Slots { n, sets: 0, packets: 4, first: 4, wide: 0, hosts: false }.world_team(
            me as i32,
            0,
            base,
            Some(stride as u64),
        ),
        teams: null(),
        queues: null_mut(),
    }
}
