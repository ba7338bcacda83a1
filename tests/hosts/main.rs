//! PEs on several hosts, which are network namespaces that the tests make themselves (`namespaces`): the
//! bootstrap alone, worlds under three launchers, hosts that are cut off, and what only looks like it.
//!
//! A PE is this program once more, with the test [`role`] and a role in its environment. What it has to say
//! to the test begins with `@`.

// PEs end themselves here, at once and whatever is on their stack.
#![allow(clippy::disallowed_methods)]

mod bootstrap;
mod launcher;
#[path = "../../host/runtime/src/net/transport/ucx/listening.rs"]
mod listening;
mod mpirun;
mod namespaces;
mod netlink;
use rushmem_test_support::programs;
mod ranks;
mod world;

/// Not a test by itself: what a PE that a test has started does.
#[test]
fn role() {
    let Ok(role) = std::env::var(ranks::ROLE) else { return };
    // Where the test was killed nobody ends its ranks, of which some put for ever.
    // SAFETY: nothing of this process handles the signal, which ends it.
    unsafe { libc::alarm(2 * ranks::LIMIT.as_secs() as u32) };
    match role.split_once(' ') {
        Some(("bootstrap", part)) => bootstrap::play(part),
        Some(("world", part)) => world::play(part),
        _ => panic!("no role {role}"),
    }
}
