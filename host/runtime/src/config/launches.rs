//! How wide a collective on a stream is launched: one table, by collective and size, which `rushmem-info
//! --collectives` prints and `RUSHMEM_COLLECTIVES` overrides.
//!
//! Only the width is chosen here. The protocol is chosen by the collectives themselves
//! (`device/include/rushmem`), from values that all members share, because streams and kernels with the same
//! number of blocks meet. Small calls go by packets, data and flag in one store, as long as the team has
//! packets for them; those of middling size by wide packets, of 120 bytes of data, where NVLink connects all
//! GPUs. Larger ones, between members that map each other, load and store the arrays between two meetings.

use crate::error::{err, Result};
use rushmem_abi::collective::COLLECTIVES as TABLE;

/// Threads of a block, at most: the bounds that `device/src/collectives.cu` is compiled with.
const MOST_THREADS: u32 = 512;
/// Blocks, at most. Nothing would be won by more, and fewer fit on any GPU.
const MOST_BLOCKS: u32 = 1024;

/// A launch, from one size on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LaunchStep {
    /// From this many bytes on. They are those of the larger array of a PE: what a reduction has, what
    /// fcollect receives, what alltoall and reducescatter send; 0 where the host does not know.
    pub(crate) from: u64,
    pub(crate) blocks: u32,
    pub(crate) threads: u32,
    pub(crate) origin: LaunchOrigin,
}

/// Where a step's numbers come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LaunchOrigin {
    /// From nowhere yet: what the same collective in kernels, and the machine's limits, suggest.
    Estimated,
    /// By `rushmem-perf stream`, between GPUs that NVLink connects.
    Measured,
    /// From `RUSHMEM_COLLECTIVES`.
    Given,
}

impl LaunchOrigin {
    /// For people.
    pub(crate) fn text(self) -> &'static str {
        match self {
            LaunchOrigin::Estimated => "estimated",
            LaunchOrigin::Measured => "measured",
            LaunchOrigin::Given => "RUSHMEM_COLLECTIVES",
        }
    }
}

impl LaunchStep {
    /// No launch.
    pub(crate) const NONE: LaunchStep = step(0, 0, 0);

    /// Its blocks that a multiprocessor surely takes. The kernels' bounds give a thread no more registers
    /// than a block of [`MOST_THREADS`] may have, and registers are dealt out to warps. No GPU takes fewer
    /// than 16 blocks (CUDA C++ Programming Guide, technical specifications by compute capability).
    fn on_a_multiprocessor(&self) -> u64 {
        u64::from(MOST_THREADS / 32 / self.threads.div_ceil(32).max(1)).min(16)
    }
}

/// Which way the data of a collective takes, for people. The choice is made in the device's headers, and
/// what is large stands in `impl/coll/limits.h`.
pub(crate) fn algorithm(collective: &str) -> &'static str {
    match collective {
        "" => "",
        "sync" | "barrier" => "a store to each member",
        "inscan" | "exscan" => "packets",
        "reduce" => "packets to all; larger: wide packets; large: each member combines its share, which it reads, or \
                     of two members is sent, and writes it to all",
        "reducescatter" => "packets; larger: wide packets; large: each member reads and combines its own block",
        "broadcast" => "packets; larger: wide packets; large: the root writes to all, or a part to each, which passes it on",
        "alltoall" | "fcollect" => "packets; larger: wide packets; large: stores into the members' arrays",
        _ => "packets; large: stores into the members' arrays",
    }
}

/// The collectives, by the names of their functions.
pub(crate) const COLLECTIVES: [&str; TABLE.len()] = {
    let mut names = [""; TABLE.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = TABLE[at].name;
        at += 1;
    }
    names
};

const fn step(from: u64, blocks: u32, threads: u32) -> LaunchStep {
    LaunchStep { from, blocks, threads, origin: LaunchOrigin::Estimated }
}

const fn measured(from: u64, blocks: u32, threads: u32) -> LaunchStep {
    LaunchStep { origin: LaunchOrigin::Measured, ..step(from, blocks, threads) }
}

/// No data.
const MEETING: &[LaunchStep] = &[measured(0, 1, 32)];
/// A warp where each word of a call has a thread of it, then as many threads as there are words, in several
/// blocks where one would be busy for longer than several take to start; by wide packets about two warps for
/// three rows of them; and few again where arrays are loaded and stored. As measured between two GPUs:
/// docs/performance.md.
const SIZED: &[LaunchStep] = &[
    measured(0, 1, 32),
    measured(512, 1, 128),
    measured(2 << 10, 1, 512),
    measured(8 << 10, 64, 128),
    measured(192 << 10, 128, 128),
    measured(768 << 10, 128, 256),
    measured((2 << 20) + 1, 64, 128),
    measured(12 << 20, 128, 128),
];
/// Of what sends all of its array to each member.
const TO_ALL: &[LaunchStep] = &[
    measured(0, 1, 32),
    measured(512, 1, 128),
    measured(2 << 10, 1, 512),
    measured(8 << 10, 64, 128),
    measured((64 << 10) + 1, 128, 128),
    measured(768 << 10, 128, 256),
    measured((1 << 20) + 1, 64, 128),
    measured(12 << 20, 128, 128),
];
/// One way.
const ONE_WAY: &[LaunchStep] = &[
    measured(0, 1, 32),
    measured(512, 1, 128),
    measured(2 << 10, 1, 512),
    measured(8 << 10, 64, 128),
    measured((64 << 10) + 1, 128, 128),
    measured(768 << 10, 128, 256),
    measured((1 << 20) + 1, 64, 128),
    measured(8 << 20, 128, 128),
];
/// Sizes that members tell each other.
const UNSIZED: &[LaunchStep] = &[step(0, 1, 512)];
/// On the CPU a block is one thread of the system's, and more threads of CUDA's would share it.
const ON_CPU: &[LaunchStep] = &[step(0, 1, 1)];

fn default_steps(collective: &str, gpu: bool) -> &'static [LaunchStep] {
    match collective {
        _ if !gpu => ON_CPU,
        "sync" | "barrier" => MEETING,
        "collect" | "alltoallv" => UNSIZED,
        "reduce" => TO_ALL,
        "broadcast" => ONE_WAY,
        _ => SIZED,
    }
}

/// The launches in force.
#[derive(Debug, Clone, Default)]
pub(crate) struct Launches {
    /// Steps that the settings give, by the collective's name: in place of all of its default ones.
    given: Vec<(&'static str, Vec<LaunchStep>)>,
}

impl Launches {
    /// Reads `RUSHMEM_COLLECTIVES`: `reduce=1x256,64K:8x512;alltoall=1x64` launches a reduce as one block of
    /// 256 threads, from 64 KiB on as 8 blocks of 512, and every alltoall as one block of 64.
    pub(crate) fn parse(text: &str) -> Result<Launches> {
        let bad = |why: &str| {
            err!(
                ENVIRONMENT,
                "RUSHMEM_COLLECTIVES={text}: {why}; expected as in reduce=1x256,64K:8x512;alltoall=1x64, blocks x \
                 threads from a size on"
            )
        };
        let mut given: Vec<(&'static str, Vec<LaunchStep>)> = Vec::new();
        for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, steps) = part.split_once('=').ok_or_else(|| bad(&format!("`{part}` has no =")))?;
            let collective = COLLECTIVES.iter().find(|known| **known == name.trim()).copied();
            let collective = collective
                .ok_or_else(|| bad(&format!("`{}` is none of {}", name.trim(), COLLECTIVES.join(", "))))?;
            let mut list: Vec<LaunchStep> = Vec::new();
            for step in steps.split(',').map(str::trim) {
                let (from, shape) = step.split_once(':').unwrap_or(("0", step));
                let from = size(from).ok_or_else(|| bad(&format!("`{from}` is no size")))?;
                let shape = shape.split_once('x');
                let shape = shape.and_then(|(b, t)| Some((b.trim().parse().ok()?, t.trim().parse().ok()?)));
                let (blocks, threads) = shape
                    .filter(|(b, t)| (1..=MOST_BLOCKS).contains(b) && (1..=MOST_THREADS).contains(t))
                    .ok_or_else(|| {
                        let most = format!("1x1 to {MOST_BLOCKS}x{MOST_THREADS}");
                        bad(&format!("`{step}` is no launch of {most}"))
                    })?;
                if list.last().is_some_and(|last| last.from >= from) || (list.is_empty() && from != 0) {
                    return Err(bad(&format!("the sizes of {collective} do not begin at 0 and grow")));
                }
                list.push(LaunchStep { from, blocks, threads, origin: LaunchOrigin::Given });
            }
            if given.iter().any(|(known, _)| *known == collective) {
                return Err(bad(&format!("{collective} is there twice")));
            }
            given.push((collective, list));
        }
        Ok(Launches { given })
    }

    /// The steps of a collective.
    pub(crate) fn steps(&self, collective: &str, gpu: bool) -> &[LaunchStep] {
        let given = self.given.iter().find(|(name, _)| *name == collective);
        given.map_or_else(|| default_steps(collective, gpu), |(_, steps)| steps)
    }

    /// The step for so many bytes, with no more blocks than fit: `multiprocessors` is what the GPU of every
    /// PE has at least. What the settings give is alone there. Beside one of the table's launches there is
    /// room for another of them: each has half of what fits, and leaves a multiprocessor free, as blocks are
    /// dealt out to all of them in turn, and one of more threads may need a whole one.
    pub(crate) fn of(&self, collective: &str, bytes: u64, gpu: bool, multiprocessors: u64) -> LaunchStep {
        let steps = self.steps(collective, gpu);
        // The first begins at 0.
        let mut step = steps.iter().rev().find(|step| step.from <= bytes).copied().unwrap_or(step(0, 1, 32));
        if gpu {
            let fit = multiprocessors * step.on_a_multiprocessor();
            let given = step.origin == LaunchOrigin::Given;
            let most = if given { fit } else { (fit / 2).min(multiprocessors.saturating_sub(1)) };
            step.blocks = u64::from(step.blocks).min(most).max(1) as u32;
        }
        step
    }
}

/// `65536`, `64K`, `1M`.
fn size(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_uppercase();
    let (number, shift) = match text.strip_suffix(['K', 'M', 'G']) {
        Some(number) if text.ends_with('K') => (number, 10),
        Some(number) if text.ends_with('M') => (number, 20),
        Some(number) => (number, 30),
        None => (text.as_str(), 0),
    };
    number.trim().parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::code;

    #[test]
    fn every_collective_has_steps_from_nothing_on_that_grow() {
        for collective in COLLECTIVES {
            for gpu in [false, true] {
                let steps = default_steps(collective, gpu);
                assert_eq!(steps[0].from, 0);
                assert!(steps.windows(2).all(|two| two[0].from < two[1].from), "{collective}: {steps:?}");
                let fits =
                    |s: &LaunchStep| s.blocks <= MOST_BLOCKS && (1..=MOST_THREADS).contains(&s.threads);
                assert!(steps.iter().all(fits), "{collective}: {steps:?}");
            }
        }
    }

    #[test]
    fn the_setting_replaces_a_collective_s_steps() {
        let launches = Launches::parse(" reduce = 1x256, 64K:8x512, 1M:64x512 ; alltoall=2x64;").unwrap();
        for (collective, bytes, expected) in [
            ("reduce", 0, (1, 256)),
            ("reduce", 65535, (1, 256)),
            ("reduce", 65536, (8, 512)),
            ("reduce", u64::MAX, (64, 512)),
            ("alltoall", 7, (2, 64)),
            ("sync", 0, (1, 1)),
        ] {
            let step = launches.of(collective, bytes, false, 0);
            assert_eq!((step.blocks, step.threads), expected, "{collective} of {bytes} bytes");
        }
        let step = launches.of("fcollect", 1 << 30, true, 132);
        assert_eq!((step.blocks, step.threads, step.origin), (128, 128, LaunchOrigin::Measured));
        assert_eq!(launches.of("reduce", 1, true, 132).origin, LaunchOrigin::Given);
    }

    #[test]
    fn no_more_blocks_than_fit_on_every_pe_s_gpu() {
        let launches = Launches::parse("reduce=100x512").unwrap();
        // 512 threads fit once on a multiprocessor, and the 256 of the table's step twice.
        let multiprocessors = [(132, 100, 128), (66, 66, 65), (33, 33, 32), (2, 2, 1), (1, 1, 1), (0, 1, 1)];
        for (gpu, given, own) in multiprocessors {
            assert_eq!(launches.of("reduce", 1 << 20, true, gpu).blocks, given);
            assert_eq!(launches.of("alltoall", 1 << 20, true, gpu).blocks, own);
        }
        let of_33 = [(1, 528), (32, 528), (33, 264), (128, 132), (129, 99), (256, 66), (257, 33), (512, 33)];
        for (threads, blocks) in of_33 {
            let launches = Launches::parse(&format!("reduce=1024x{threads}")).unwrap();
            assert_eq!(launches.of("reduce", 0, true, 33).blocks, blocks, "of {threads} threads on 33");
        }
    }

    #[test]
    fn what_is_no_table_is_refused_with_a_text() {
        for (text, why) in [
            ("reduce", "has no ="),
            ("gather=1x1", "`gather` is none of sync, barrier"),
            ("reduce=1", "is no launch"),
            ("reduce=0x32", "is no launch"),
            ("reduce=1x1024", "is no launch"),
            ("reduce=2000x32", "is no launch"),
            ("reduce=some:1x32", "`some` is no size"),
            ("reduce=1K:1x32", "do not begin at 0"),
            ("reduce=1x32,1K:1x64,1K:1x64", "do not begin at 0 and grow"),
            ("reduce=1x32;reduce=1x64", "twice"),
            ("reduce=1x32,99999999999G:1x64", "is no size"),
        ] {
            let e = Launches::parse(text).unwrap_err();
            assert!(e.code == code::ENVIRONMENT && e.message.contains(why), "{text}: {e}");
        }
    }
}
