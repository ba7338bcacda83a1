//! Checked runs (`RUSHMEM_CHECK`): kernels are compiled with the compiler's own hooks of the thread
//! sanitizer, which this module answers.
//!
//! **Strands.** Whatever runs in program order is a strand ([`clock`]): each CUDA thread of each launch, a
//! PE's host, each stream. Threads of a program's host are one strand for each PE: what they do among
//! themselves (mutexes, joins) is not seen, and taken as ordered.
//!
//! **Clocks and edges.** C++'s rules ([`actor`]): a release hands a strand's clock to a word, an acquire
//! takes it up, fences do both for relaxed accesses; a relaxed access alone orders nothing. A kernel's start
//! and end are fences of its threads. Device headers are written in these terms, and so their signals, waits,
//! barriers and collectives carry clocks by themselves, by the very accesses that they are made of; a
//! packet's are relaxed. Each operation counts in its scope ([`scope`]). `__syncthreads`, warp operations,
//! launches, streams and events join clocks directly. A kernel that is launched early begins behind what the
//! one before it on its stream began behind, and each thread comes behind that one by `await_stream()`; its
//! threads are strands of another chain than those. Operations that the host or the network carries out are
//! noted where they are asked for ([`host`], `impl/net/ring.h`).
//!
//! **Far and nbi.** An operation that may happen later than its call is an access of another track of its
//! strand. A quiet (of far puts: a fence, too) completes what it knows of; until then nothing follows it, not
//! even its own thread, nor another nbi operation or far put of it.
//!
//! **Accesses.** For each 8 bytes the last four accesses are kept ([`segment`]): who, which bytes, when, from
//! which line. An access that conflicts with one of them that it does not know of is a race. Forgotten are
//! accesses that a newer one follows, first; so a race may be missed where many strands read the same 8
//! bytes, and none is reported that is not one. A word that was written in one piece may be read plainly by
//! all that know of an atomic read of it, a wait: such a read is kept as long as the write.
//!
//! **Memory.** Symmetric memory is known by PE and offset, however it is mapped, and the tables are shared
//! memory of the host's PEs, so that races between processes are found. Shared memory and a module's
//! variables are the PE's own. Stacks, and private memory of the host, are not looked at. Nor are the
//! library's own words in a heap, but for the clocks that they carry.
//!
//! **Allocations, shared memory, scopes** (`RUSHMEM_CHECK=1`). Symmetric memory is looked up among the
//! allocations of this PE, whose layout is every PE's ([`allocations`]). Of shared memory it is known how
//! much the launch gave and what the block has written ([`shared`]). `alloc` promises zeros, so symmetric
//! memory counts as written from the start. Clocks run as for races; of the conflicts only those of a buffer
//! that an nbi operation still uses are reported.
//!
//! **Cost.** About 20 ns for each access of a kernel and 16 bytes of shadow for each byte that is touched,
//! times four. Without `RUSHMEM_CHECK` kernels are compiled as ever, and the scheduler asks a null pointer at
//! barriers.

mod actor;
mod allocations;
mod block;
mod calls;
mod clock;
mod fault;
pub mod findings;
pub(crate) mod hooks;
mod host;
mod launch;
mod report;
mod scope;
mod segment;
mod shared;
mod variables;
mod world;

use std::sync::{Arc, OnceLock};

pub use crate::check_mode::Mode;
pub(crate) use block::CheckedBlock;
pub use host::{Location, Notes, TeamRounds, When};
pub(crate) use launch::CheckedLaunch;
pub(crate) use shared::GUARD;
pub use world::{Chain, Entered, Memory, Point, Windows, World};

/// The chain of launches that belong to no world: one for each thread that launches.
pub(crate) fn chain_of_this_thread() -> Option<Arc<Chain>> {
    static WORLD: OnceLock<Option<Arc<World>>> = OnceLock::new();
    thread_local! {
        static OWN: OnceLock<Arc<Chain>> = const { OnceLock::new() };
    }
    Chain::of_this_thread().or_else(|| {
        let world = WORLD.get_or_init(|| {
            let memory = Memory::create();
            let memory = memory
                .inspect_err(|error| log::warn!("nothing is checked: no memory for the checker: {error}"));
            Some(World::new(-1, Windows::default(), memory.ok()?, Mode::OFF))
        });
        let world = world.as_ref()?;
        let own = OWN.try_with(|own| Arc::clone(own.get_or_init(|| Chain::new(world, "launches"))));
        // In an exit handler the thread has none of its own any more.
        Some(own.unwrap_or_else(|_| Chain::new(world, "launches")))
    })
}
