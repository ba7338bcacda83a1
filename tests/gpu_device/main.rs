//! Kernels of several PEs where it is hardest: litmus tests of a million rounds, devices full of waiting
//! kernels, eight PEs on one GPU, PEs each with a GPU, heaps past 4 GiB, PEs killed while the others wait in
//! kernels, code loaded twice.
//!
//! What makes sense on the CPU device runs there too, in small; what needs GPUs, or more of them or of their
//! memory than there is, says SKIP and why. Run them one at a time: they look at how much of a GPU is in use.

mod big;
mod binary;
mod calls;
mod clusters;
mod each;
mod kill;
mod lanes;
mod many;
mod memory;
mod occupied;
mod twice;
mod wide;

use std::time::Duration;

use rushmem::testing::{self, Exit};
use rushmem::{ByValue, ErrorCode, Launch, Pe, SymSlice, World};
use rushmem_test_support::api_common::bench::{kernels, made_quickly, Bench, BLOCK, SCOPES, THREAD, WARP};
use rushmem_test_support::api_common::place::{all_mapped, gpus, on_gpus, rounds, skip};
use rushmem_test_support::api_common::{at_counts, both, seed, seeded, Rng};

/// Patience with whatever a PE has to say.
const LIMIT: Duration = Duration::from_secs(30);

/// `RUSHMEM_DEVICE` for PEs that are to share one.
fn one_device() -> String {
    let wish = std::env::var("RUSHMEM_DEVICE").unwrap_or_default();
    match (on_gpus(), wish.starts_with("cuda:")) {
        (true, true) => wish,
        (true, false) => "cuda:0".into(),
        (false, _) => "cpu".into(),
    }
}
