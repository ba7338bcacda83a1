//! Runs a kernel to its end: block 0 on the caller's OS thread, the other blocks on pooled ones, under the
//! watch.

use std::ffi::c_void;
use std::sync::atomic::AtomicU32;
use std::sync::Arc;

use crate::block;
use crate::code::{Arguments, Code};
use crate::launch::{Launch, LaunchConfig, Reports};
use crate::limits::Limits;
use crate::outcome::RunError;
use crate::pool::{self, RunsBlocks};
use crate::watch::Watched;

impl RunsBlocks for Launch {
    fn run(&self, index: u64) {
        self.run_from(index, block::run);
    }
}

/// See `Kernel::run` for the contract.
pub(crate) fn run(
    code: Code,
    limits: Limits,
    config: &LaunchConfig,
    args: Arguments,
    state: *const c_void,
    stop: &AtomicU32,
    reports: &Reports,
) -> Result<(), RunError> {
    let launch = Arc::new(Launch::begin(code, limits, config, args, state, stop, reports)?);
    let _watched = Watched::new();
    pool::start(&launch, 1..launch.workers).map_err(|error| {
        RunError::Refused(format!(
            "no OS thread for each of {} blocks ({error}); launch a smaller grid",
            launch.workers
        ))
    })?;
    launch.run(0);
    launch.end()
}
