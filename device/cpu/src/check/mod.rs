//! Checked runs (`RUSHMEM_CHECK`): kernels are compiled with the compiler's own hooks of the thread
//! sanitizer, which this module answers.
//!
//! **Strands.** Whatever runs in program order is a strand ([`clock`]): each CUDA thread of each launch, a
//! PE's host, each stream. Threads of a program's host are one strand for each PE: what they do among
//! themselves (mutexes, joins) is not seen, and taken as ordered.
//!
//! **Clocks and edges.** C++'s rules ([`actor`]): a release hands a strand's clock to a word, an acquire
//! takes it up, fences do both for relaxed accesses; a relaxed access alone orders nothing. Device headers
//! are written in these terms, and so their signals, waits, barriers and collectives carry clocks by
//! themselves, by the very accesses that they are made of. `__syncthreads`, warp operations, launches,
//! streams and events join clocks directly. Operations that the host or the network carries out are noted
//! where they are asked for ([`host`], `impl/net/ring.h`).
//!
//! **Far and nbi.** An operation that may happen later than its call is an access of another track of its
//! strand. A quiet (of far puts: a fence, too) completes what it knows of; until then nothing follows it, not
//! even its own thread.
//!
//! **Accesses.** For each 8 bytes the last four accesses are kept ([`segment`]): who, which bytes, when, from
//! which line. An access that conflicts with one of them that it does not know of is a race. Forgotten are
//! accesses that a newer one follows, first; so a race may be missed where many strands read the same 8
//! bytes, and none is reported that is not one.
//!
//! **Memory.** Symmetric memory is known by PE and offset, however it is mapped, and the tables are shared
//! memory of the host's PEs, so that races between processes are found. Shared memory and a module's
//! variables are the PE's own. Stacks, and private memory of the host, are not looked at. Nor are the
//! library's own words in a heap, but for the clocks that they carry.
//!
//! **Cost.** About 20 ns for each access of a kernel and 16 bytes of shadow for each byte that is touched,
//! times four. Without `RUSHMEM_CHECK` kernels are compiled as ever, and the scheduler asks a null pointer at
//! barriers.

mod actor;
mod block;
mod clock;
pub(crate) mod hooks;
mod host;
pub mod report;
mod segment;
mod world;

use std::sync::{Arc, OnceLock};

pub(crate) use block::{CheckedBlock, CheckedLaunch, CheckedThread};
pub use host::{Notes, Place, When};
pub use world::{Chain, Entered, Memory, Point, Windows, World};

/// What a run checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mode {
    /// Data races.
    pub races: bool,
}

impl Mode {
    /// Nothing.
    pub const OFF: Mode = Mode { races: false };
    /// Data races.
    pub const RACES: Mode = Mode { races: true };

    /// What `RUSHMEM_CHECK` says; a text where it says nothing that is known.
    pub fn from_text(text: &str) -> Result<Mode, String> {
        match text {
            "" | "0" => Ok(Mode::OFF),
            "races" => Ok(Mode::RACES),
            other => Err(format!("RUSHMEM_CHECK={other} is none of: races, 0")),
        }
    }

    /// The same as a number, for comparisons.
    pub fn bits(self) -> u64 {
        self.races.into()
    }

    /// Whether anything is checked.
    pub fn is_on(self) -> bool {
        self != Mode::OFF
    }
}

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
            Some(World::new(-1, Windows::default(), memory.ok()?))
        });
        let world = world.as_ref()?;
        Some(OWN.with(|own| Arc::clone(own.get_or_init(|| Chain::new(world, "launches")))))
    })
}
