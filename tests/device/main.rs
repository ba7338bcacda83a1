//! The device library, tested by the kernels in tests/kernels: one source for every kind of device. Most
//! kernels check themselves and leave a report (tests/kernels/check.h), which `Bench` reads; what a kernel
//! leaves behind in symmetric memory is checked here. Each test runs at several PE counts, as processes and
//! as threads of one. Under a sanitizer they run in brief (api_common/place.rs).

use rushmem_test_support::api_common;

mod atomics;
mod card_words;
mod collective_faults;
mod collectives;
mod early;
mod faults;
mod features;
mod groups;
mod held;
mod order;
mod packed;
mod queue;
mod queue_choice;
mod queue_contexts;
mod relays;
mod rma;
mod staged;
mod stores_alone;
mod storm;
mod waits;

use api_common::bench::{kernels, made_quickly, with_queues, Bench, BLOCK, SCOPES, THREAD, WARP};
use api_common::place::{all_mapped, is_brief, litmus_rounds, long_rounds, on_gpus, processes, rounds, skip};
use api_common::way::way_to;
use api_common::{at_counts, longer, Rng};
use rushmem::{ByValue, KernelArgs, Launch, SymSlice, Team, World};

/// Threads of a block worth trying: one alone, whole warps, and a last warp that is not full.
const BLOCK_SIZES: [u32; 3] = [1, 64, 70];

/// PE counts at which costly tests run; the cheap ones take [`api_common::at_all_counts`].
fn at_few_counts(f: impl Fn(&World, &mut Rng) + Sync) {
    at_counts(&[1, 2, 3], f);
}
