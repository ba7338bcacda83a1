//! What can be measured: one table, a row for each measure. The command line, the plan, the kernels' names,
//! the probes, the check of what arrived and the figure that is shown all come out of it; a new measure is a
//! new row, and code only where the host itself does the work (`from_host.rs`).

use serde::{Deserialize, Serialize};

use super::kernels::Family::{self, Atomic, Bandwidth, Latency, Local, Pingpong, Sync};
use super::scope::Scope::{self, Block, Graph, Grid, GridParts, Host, Stream, Thread, Warp};

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum What {
    PutLatency,
    GetLatency,
    PLatency,
    GLatency,
    SignalLatency,
    AtomicLatency,
    SignalPingpong,
    PutSignalPingpong,
    PutPingpong,
    PPingpong,
    AtomicPingpong,
    PackedPingpong,
    PutBw,
    GetBw,
    PBw,
    GBw,
    Rate,
    AtomicBw,
    Sync,
    Barrier,
    TeamSync,
    TeamBarrier,
    Reduce,
    Reducescatter,
    Broadcast,
    Fcollect,
    Alltoall,
    Wait,
    // Initiated by the host.
    HostPut,
    HostGet,
    HostP,
    HostPutSignal,
    HostSignalPingpong,
    HostBarrier,
    HostPutBw,
    HostGetBw,
    StreamReduce,
    StreamReducescatter,
    StreamBroadcast,
    StreamFcollect,
    StreamAlltoall,
    StreamTeamBarrier,
}

/// Which PEs run the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// PE 0; PE 1 has the memory.
    First,
    /// PE 0 and PE 1.
    Pair,
    /// All.
    All,
}

/// What becomes of the time of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    /// Microseconds.
    Us,
    /// Nanoseconds.
    Ns,
    /// Bytes of it in a nanosecond.
    Bandwidth,
    /// Millions of messages of 8 bytes in a second.
    Rate,
}

/// What does the same beside it without rushmem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    /// Nothing.
    None,
    /// A kernel of bare instructions, at every scope and size.
    Kernel,
    /// The same for 8 bytes by one thread.
    OneWord,
    /// The same for blocks, whose threads share the words out; in narrower scopes that is another access
    /// altogether.
    OfBlocks,
    /// The driver's own copy, on a stream and in a graph.
    Copy,
    /// An empty kernel in the same launch, likewise.
    Empty,
}

/// What arrives, and where.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arrives {
    /// The other PE's data.
    Pattern,
    /// A word for each index.
    Words(fn(salt: u64, i: u64, rounds: u64) -> u64),
    /// What the atomic operation leaves of a word.
    OfOperation,
    /// Nothing that is looked at.
    Nothing,
}

/// Sizes as powers of two: first, last, step.
pub(super) type Powers = (u32, u32, usize);

/// Sizes that are measured where none is chosen: those of the peer's test of the same, narrower only where
/// one operation would take milliseconds, as a thread's alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) gpu: Powers,
    /// One scope that has others on GPUs.
    pub(super) gpu_scope: Option<(Scope, Powers)>,
    pub(super) cpu: Powers,
}

/// What there is to know of a measure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measure {
    pub(super) what: What,
    /// On the command line.
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    /// The kernel's name, without scope or operation.
    pub(super) kernel: &'static str,
    /// For people; empty where the operation says it all.
    pub(super) label: &'static str,
    /// Where its kernels are.
    pub(super) family: Family,
    /// Who runs its kernel.
    pub(super) part: Part,
    pub(super) figure: Figure,
    /// None where its size is no choice.
    pub(super) sizes: Option<Sizes>,
    /// Whether blocks and threads are a choice, and whether both PEs may do it at once.
    pub(super) grid: bool,
    /// Whether it moves whole words of 8 bytes.
    pub(super) words: bool,
    /// Whether the destination may be off.
    pub(super) shift: bool,
    /// Whether it may go through shared memory.
    pub(super) stage: bool,
    /// The scopes that it has.
    pub(super) scopes: &'static [Scope],
    /// The operations that it has several of; none where it is one itself.
    pub(super) operations: &'static [&'static str],
    pub(super) probe: Probe,
    pub(super) arrives: Arrives,
    /// Whether the PE that calls is the one at which data arrives.
    pub(super) gets: bool,
}

/// The largest size of atomic operations' bandwidths.
pub(super) const MOST_ATOMIC: u64 = 64 << 10;
pub(super) const MOST_ATOMIC_ON_CPU: u64 = 8 << 10;

const ATOMICS: &[&str] = &[
    "inc",
    "fetch_inc",
    "add",
    "fetch_add",
    "and",
    "fetch_and",
    "or",
    "fetch_or",
    "xor",
    "fetch_xor",
    "set",
    "fetch",
    "swap",
    "compare_swap",
];
const WAITS: &[&str] = &["wait", "test_true", "test_false", "signal_fetch", "signal_wait"];

const fn sizes(gpu: Powers, cpu: Powers) -> Option<Sizes> {
    Some(Sizes { gpu, gpu_scope: None, cpu })
}

const fn sizes_but(gpu: Powers, scope: Scope, there: Powers, cpu: Powers) -> Option<Sizes> {
    Some(Sizes { gpu, gpu_scope: Some((scope, there)), cpu })
}

const FEW: Powers = (3, 13, 5);
const LARGE: Powers = (12, 20, 4);
/// The word that p writes.
const P: Arrives = Arrives::Words(|salt, i, _| salt.wrapping_add(i));

// What rows of a kind have in common.
const LATENCIES: Measure = Measure {
    what: What::PutLatency,
    name: "",
    help: "",
    kernel: "",
    label: "",
    family: Latency,
    part: Part::First,
    figure: Figure::Us,
    sizes: None,
    grid: false,
    words: false,
    shift: false,
    stage: false,
    scopes: &[Thread, Warp, Block],
    operations: &[],
    probe: Probe::None,
    arrives: Arrives::Nothing,
    gets: false,
};
const PINGPONGS: Measure =
    Measure { family: Pingpong, part: Part::Pair, probe: Probe::Kernel, scopes: &[Thread], ..LATENCIES };
const BANDWIDTHS: Measure = Measure {
    family: Bandwidth,
    figure: Figure::Bandwidth,
    grid: true,
    sizes: sizes((10, 25, 1), LARGE),
    scopes: &[Block, Warp, Thread],
    arrives: Arrives::Pattern,
    ..LATENCIES
};
const SYNCS: Measure = Measure { family: Sync, part: Part::All, probe: Probe::Kernel, ..LATENCIES };
const COLLECTIVES: Measure = Measure {
    part: Part::All,
    sizes: sizes_but((3, 20, 1), Thread, (3, 11, 1), FEW),
    words: true,
    scopes: &[Thread, Warp, Block, Grid, GridParts],
    ..LATENCIES
};
const CALLS: Measure = Measure {
    family: Local,
    sizes: sizes((3, 20, 1), FEW),
    scopes: &[Stream, Graph, Host],
    arrives: Arrives::Pattern,
    ..LATENCIES
};
const CALLS_BW: Measure = Measure {
    figure: Figure::Bandwidth,
    sizes: sizes_but((4, 28, 4), Stream, (3, 28, 1), LARGE),
    probe: Probe::Copy,
    ..CALLS
};

const CALLS_OF_TEAMS: Measure = Measure {
    part: Part::All,
    sizes: sizes((3, 24, 3), FEW),
    words: true,
    scopes: &[Stream, Graph],
    probe: Probe::Empty,
    arrives: Arrives::Nothing,
    ..CALLS
};

/// The table, in the order of [`What`], in which measures are made, too.
#[rustfmt::skip] // a row is a paragraph
static TABLE: [Measure; 42] = [
    Measure { what: What::PutLatency, name: "put-latency", help: "put and quiet, one after another",
        kernel: "put_latency", label: "put + quiet", sizes: sizes((3, 20, 1), FEW), shift: true, stage: true,
        probe: Probe::Kernel, arrives: Arrives::Pattern, ..LATENCIES },
    Measure { what: What::GetLatency, name: "get-latency", help: "get, one after another",
        kernel: "get_latency", label: "get", sizes: sizes((3, 20, 1), FEW), shift: true, stage: true,
        probe: Probe::Kernel, arrives: Arrives::Pattern, gets: true, ..LATENCIES },
    Measure { what: What::PLatency, name: "p-latency", help: "p of 8-byte words, and quiet",
        kernel: "p_latency", label: "p + quiet", sizes: sizes_but((3, 22, 1), Thread, (3, 16, 1), FEW),
        words: true, probe: Probe::Kernel, arrives: P, ..LATENCIES },
    Measure { what: What::GLatency, name: "g-latency", help: "g of 8-byte words",
        kernel: "g_latency", label: "g", sizes: sizes_but((3, 22, 1), Thread, (3, 16, 1), FEW),
        words: true, probe: Probe::Kernel, arrives: Arrives::Pattern, gets: true, ..LATENCIES },
    Measure { what: What::SignalLatency, name: "signal-latency", help: "A signal and quiet, one after another",
        kernel: "signal_latency", label: "signal + quiet", scopes: &[Thread],
        probe: Probe::Kernel, arrives: Arrives::Words(|_, _, rounds| rounds), ..LATENCIES },
    Measure { what: What::AtomicLatency, name: "atomic-latency",
        help: "Every atomic operation and, where it fetches nothing, quiet, one after another",
        kernel: "atomic_latency", family: Atomic, scopes: &[Thread], operations: ATOMICS,
        probe: Probe::Kernel, arrives: Arrives::OfOperation, ..LATENCIES },

    Measure { what: What::SignalPingpong, name: "signal-pingpong", help: "A signal there and back",
        kernel: "signal_pingpong", label: "signal ping-pong", ..PINGPONGS },
    Measure { what: What::PutSignalPingpong, name: "put-signal-pingpong", help: "put_signal there and back",
        kernel: "put_signal_pingpong", label: "put_signal ping-pong", sizes: sizes((3, 16, 1), FEW), shift: true,
        scopes: &[Thread, Warp, Block], arrives: Arrives::Pattern, ..PINGPONGS },
    Measure { what: What::PutPingpong, name: "put-pingpong", help: "put, quiet and p there and back",
        kernel: "put_pingpong", label: "put + quiet ping-pong", sizes: sizes((3, 16, 1), FEW), shift: true,
        scopes: &[Thread, Warp, Block], probe: Probe::None, arrives: Arrives::Pattern, ..PINGPONGS },
    Measure { what: What::PPingpong, name: "p-pingpong", help: "p, quiet and p there and back",
        kernel: "p_pingpong", label: "p + quiet ping-pong", sizes: sizes((3, 16, 1), FEW), words: true,
        scopes: &[Thread, Warp, Block], probe: Probe::OneWord, arrives: P, ..PINGPONGS },
    Measure { what: What::AtomicPingpong, name: "atomic-pingpong", help: "An atomic increment there and back",
        kernel: "atomic_pingpong", label: "atomic inc ping-pong", ..PINGPONGS },
    Measure { what: What::PackedPingpong, name: "packed-pingpong",
        help: "Data and its flag in one store, there and back",
        kernel: "packed_pingpong", label: "packed ping-pong", sizes: sizes((3, 12, 1), FEW),
        scopes: &[Thread, Warp, Block], probe: Probe::OneWord, arrives: Arrives::Pattern, ..PINGPONGS },

    Measure { what: What::PutBw, name: "put-bw", help: "Bandwidth of put", kernel: "put_bw", label: "put bandwidth",
        shift: true, stage: true, probe: Probe::Kernel, ..BANDWIDTHS },
    Measure { what: What::GetBw, name: "get-bw", help: "Bandwidth of get", kernel: "get_bw", label: "get bandwidth",
        shift: true, stage: true, probe: Probe::Kernel, gets: true, ..BANDWIDTHS },
    Measure { what: What::PBw, name: "p-bw", help: "Bandwidth of p", kernel: "p_bw", label: "p bandwidth",
        words: true, probe: Probe::OfBlocks, arrives: P, ..BANDWIDTHS },
    Measure { what: What::GBw, name: "g-bw", help: "Bandwidth of g", kernel: "g_bw", label: "g bandwidth",
        words: true, sizes: sizes((10, 24, 1), LARGE), probe: Probe::OfBlocks, gets: true, ..BANDWIDTHS },
    Measure { what: What::Rate, name: "rate", help: "Messages of 8 bytes in a second, put by threads",
        kernel: "put_bw", label: "put rate", figure: Figure::Rate, sizes: None, scopes: &[Thread], ..BANDWIDTHS },
    Measure { what: What::AtomicBw, name: "atomic-bw", help: "Bandwidth of every atomic operation, a word a thread",
        kernel: "atomic_bw", label: "bandwidth", family: Atomic, words: true, scopes: &[Block], operations: ATOMICS,
        sizes: sizes((3, MOST_ATOMIC.ilog2(), 1), (3, MOST_ATOMIC_ON_CPU.ilog2(), 5)),
        probe: Probe::Kernel, arrives: Arrives::OfOperation, ..BANDWIDTHS },

    Measure { what: What::Sync, name: "sync", help: "sync_all of all PEs", kernel: "sync", label: "sync_all", ..SYNCS },
    Measure { what: What::Barrier, name: "barrier", help: "barrier_all of all PEs", kernel: "barrier",
        label: "barrier_all", ..SYNCS },
    Measure { what: What::TeamSync, name: "team-sync", help: "sync of the team of all PEs", kernel: "team_sync",
        label: "team sync", ..SYNCS },
    Measure { what: What::TeamBarrier, name: "team-barrier", help: "barrier of the team of all PEs",
        kernel: "team_barrier", label: "team barrier", ..SYNCS },
    Measure { what: What::Reduce, name: "reduce", help: "Sum of f32 of all PEs, on all", kernel: "reduce",
        label: "reduce", family: Family::Reduce, ..COLLECTIVES },
    Measure { what: What::Reducescatter, name: "reducescatter", help: "Sum of f32 of all PEs, a block each",
        kernel: "reducescatter", label: "reducescatter", family: Family::Reducescatter, ..COLLECTIVES },
    Measure { what: What::Broadcast, name: "broadcast", help: "A PE's array to all, each PE's in turn",
        kernel: "broadcast", label: "broadcast", family: Family::Broadcast, ..COLLECTIVES },
    Measure { what: What::Fcollect, name: "fcollect", help: "Every PE's array to all; sizes are what one receives",
        kernel: "fcollect", label: "fcollect", family: Family::Fcollect, ..COLLECTIVES },
    Measure { what: What::Alltoall, name: "alltoall", help: "A block from each PE to each; sizes are a PE's blocks together",
        kernel: "alltoall", label: "alltoall", family: Family::Alltoall, ..COLLECTIVES },
    Measure { what: What::Wait, name: "wait", help: "Waits and tests that have nothing to wait for", kernel: "local",
        family: Local, figure: Figure::Ns, scopes: &[Thread], operations: WAITS, ..LATENCIES },

    Measure { what: What::HostPut, name: "put", help: "put and quiet, one after another", kernel: "host_put",
        label: "put + quiet", probe: Probe::Copy, ..CALLS },
    Measure { what: What::HostGet, name: "get", help: "get and quiet, one after another", kernel: "host_get",
        label: "get + quiet", probe: Probe::Copy, gets: true, ..CALLS },
    Measure { what: What::HostP, name: "p", help: "p of one word and quiet", kernel: "host_p", label: "p + quiet",
        sizes: None, arrives: Arrives::Nothing, ..CALLS },
    Measure { what: What::HostPutSignal, name: "put-signal", help: "put_signal, one after another",
        kernel: "host_put_signal", label: "put_signal", ..CALLS },
    Measure { what: What::HostSignalPingpong, name: "signal-pingpong", help: "A signal there and back",
        kernel: "host_signal_pingpong", label: "signal ping-pong", part: Part::Pair, sizes: None,
        scopes: &[Stream, Host], arrives: Arrives::Nothing, ..CALLS },
    Measure { what: What::HostBarrier, name: "barrier", help: "barrier_all of all PEs", kernel: "host_barrier",
        label: "barrier_all", part: Part::All, sizes: None, scopes: &[Stream, Host], arrives: Arrives::Nothing,
        ..CALLS },
    Measure { what: What::HostPutBw, name: "put-bw", help: "Bandwidth of put", kernel: "host_put_bw",
        label: "put bandwidth", ..CALLS_BW },
    Measure { what: What::HostGetBw, name: "get-bw", help: "Bandwidth of get", kernel: "host_get_bw",
        label: "get bandwidth", gets: true, ..CALLS_BW },
    Measure { what: What::StreamReduce, name: "reduce", help: "Sum of f32 of all PEs, on all", kernel: "stream_reduce",
        label: "reduce", ..CALLS_OF_TEAMS },
    Measure { what: What::StreamReducescatter, name: "reducescatter", help: "Sum of f32 of all PEs, a block each",
        kernel: "stream_reducescatter", label: "reducescatter", ..CALLS_OF_TEAMS },
    Measure { what: What::StreamBroadcast, name: "broadcast", help: "A PE's array to all, each PE's in turn",
        kernel: "stream_broadcast", label: "broadcast", ..CALLS_OF_TEAMS },
    Measure { what: What::StreamFcollect, name: "fcollect", help: "Every PE's array to all; sizes are what one receives",
        kernel: "stream_fcollect", label: "fcollect", ..CALLS_OF_TEAMS },
    Measure { what: What::StreamAlltoall, name: "alltoall",
        help: "A block from each PE to each; sizes are a PE's blocks together", kernel: "stream_alltoall",
        label: "alltoall", ..CALLS_OF_TEAMS },
    Measure { what: What::StreamTeamBarrier, name: "team-barrier", help: "barrier of the team of all PEs",
        kernel: "stream_team_barrier", label: "team barrier", sizes: None, ..CALLS_OF_TEAMS },
];

impl What {
    /// All of them whose work the host calls for, or all that kernels do.
    pub(super) fn all(from_host: bool) -> impl Iterator<Item = What> {
        TABLE.iter().map(|row| row.what).filter(move |what| what.is_from_host() == from_host)
    }

    /// What there is to know of it.
    pub(super) fn row(self) -> &'static Measure {
        &TABLE[self as usize]
    }

    /// Who runs its kernel; `both`: in both directions at once.
    pub(super) fn part(self, both: bool) -> Part {
        if both && matches!(self.row().family, Bandwidth | Atomic) {
            Part::Pair
        } else {
            self.row().part
        }
    }

    /// Whether the host calls for it, and no kernel of ours does the work.
    pub(super) fn is_from_host(self) -> bool {
        matches!(self.row().scopes[0], Stream | Graph | Host)
    }

    /// Whether the number of blocks is a choice, at that scope.
    pub(super) fn takes_blocks(self, scope: Scope) -> bool {
        self.row().grid || scope.is_grid()
    }

    /// Whether all PEs take part.
    pub(super) fn is_collective(self) -> bool {
        self.row().part == Part::All
    }

    /// Whether it can move so many bytes.
    pub(super) fn takes(self, bytes: u64) -> bool {
        !self.row().words || bytes % 8 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_says_each_thing_once() {
        for (at, row) in TABLE.iter().enumerate() {
            assert_eq!(row.what as usize, at, "{row:?}");
            // Kernels of one scope are named after their operation.
            assert!(row.operations.is_empty() || row.scopes.len() == 1, "{row:?}");
            assert!(row.shift || !row.stage, "{row:?}");
            let same = |other: &&Measure| {
                other.what.is_from_host() == row.what.is_from_host()
                    && (other.name == row.name || other.label == row.label && row.operations.is_empty())
            };
            assert_eq!(TABLE.iter().filter(same).count(), 1, "{row:?}");
        }
    }
}
