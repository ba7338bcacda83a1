//! The options of `rushmem-perf device` and `rushmem-perf stream`.

use std::path::PathBuf;
use std::sync::LazyLock;

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};

use super::measure::What;
use super::scope::Scope;
use crate::args::{Output, SpreadArgs};

/// Measures of `rushmem-perf device`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceMeasure {
    /// Every one of them, `targets` and `curves` aside.
    All,
    /// What the project promises.
    Targets,
    /// Every size of point-to-point operations, beside peer and bare instructions.
    Curves,
    /// One row of the table.
    One(What),
}

impl ValueEnum for DeviceMeasure {
    fn value_variants<'a>() -> &'a [Self] {
        static ALL: LazyLock<Vec<DeviceMeasure>> = LazyLock::new(|| {
            let words = [DeviceMeasure::All, DeviceMeasure::Targets, DeviceMeasure::Curves];
            words.into_iter().chain(What::all(false).map(DeviceMeasure::One)).collect()
        });
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, help) = match self {
            DeviceMeasure::All => ("all", "Every one of them, `targets` and `curves` aside"),
            DeviceMeasure::Targets => ("targets", TARGETS),
            DeviceMeasure::Curves => ("curves", CURVES),
            DeviceMeasure::One(what) => (what.row().name, what.row().help),
        };
        Some(PossibleValue::new(name).help(help))
    }
}

impl DeviceMeasure {
    /// Whether it is a set of rows, each with its own size and launch.
    pub(super) fn is_set(self) -> bool {
        matches!(self, DeviceMeasure::Targets | DeviceMeasure::Curves)
    }

    /// What is measured; none for words that stand for several.
    pub(super) fn what(self) -> Option<What> {
        match self {
            DeviceMeasure::One(what) => Some(what),
            _ => None,
        }
    }
}

const TARGETS: &str =
    "What the project promises, row by row, each with its own parameters; starts jobs of 2 PEs and, \
    where there are as many GPUs, of 8";

const CURVES: &str =
    "Point-to-point operations of two PEs at every size, scope and number of blocks, twice; with \
    --check none may be behind the peer (--compare) or further than 1.1 from bare instructions";

/// How measures are made and shown, no matter whether the host or a kernel initiates them.
#[derive(Args, Debug, Clone)]
pub(crate) struct Common {
    /// Sizes in bytes, multiples of 4; each measure has its own where none is given.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub(crate) sizes: Vec<u64>,

    /// Operations in a batch, at most: a batch that would take long has fewer (see --budget). A sample is the
    /// mean of one batch. 200 on GPUs, as NVSHMEM's tests, 50 on the CPU device.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub(crate) iterations: Option<u32>,

    /// Operations before the first timed batch.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(..=1 << 20))]
    pub(crate) warm_up: u32,

    /// Timed batches of each figure. 20 on GPUs, 7 on the CPU device.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) samples: Option<u32>,

    /// Milliseconds that the timed batches of a figure may take together; batches get fewer operations for
    /// it, down to one. 400 on GPUs, 60 on the CPU device.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) budget: Option<u32>,

    /// Makes what arrived for this figure of each job (from 0) wrong before it is looked at: for the test
    /// that this is an error.
    #[arg(long, hide = true)]
    pub(crate) corrupt: Option<usize>,

    /// Draws latencies and bandwidths over size to this SVG file, with what they are compared with.
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Args, Debug, Clone)]
pub(crate) struct DeviceArgs {
    /// Measures to run; all but `targets` and `curves` when none is named.
    #[arg(value_enum)]
    pub(crate) measures: Vec<DeviceMeasure>,

    /// Who takes part in one operation. All three where it matters when none is given.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) scope: Vec<Scope>,

    /// Blocks of bandwidths; several are measured one after the other. 4 on GPUs (g: 8), 2 on the CPU device.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub(crate) blocks: Vec<u32>,

    /// Threads of a block: in bandwidths, and in whatever a block does together. 1024 on GPUs, 64 on the CPU
    /// device.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: Option<u32>,

    /// Bandwidths in both directions at once; the figure is their sum.
    #[arg(long)]
    pub(crate) both: bool,

    /// Bytes by which the destination is off the source's alignment.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..16))]
    pub(crate) shift: u32,

    /// Bytes of each block's shared memory through which put and get go, shared out among those that call
    /// them; 0: none. Whole words only: other sizes go without.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=227 * 1024))]
    pub(crate) stage: u32,

    /// PEs of sync and barrier; several numbers are measured one after the other. Everything else takes two.
    /// 2, and 8 where there are as many GPUs.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(2..=64))]
    pub(crate) pes: Vec<u32>,

    /// No probes: what the bare instructions do is not measured beside ours.
    #[arg(long)]
    pub(crate) no_probes: bool,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// Measures of `rushmem-perf stream`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamMeasure {
    /// Every one of them.
    All,
    /// One row of the table.
    One(What),
}

impl ValueEnum for StreamMeasure {
    fn value_variants<'a>() -> &'a [Self] {
        static ALL: LazyLock<Vec<StreamMeasure>> = LazyLock::new(|| {
            [StreamMeasure::All].into_iter().chain(What::all(true).map(StreamMeasure::One)).collect()
        });
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, help) = match self {
            StreamMeasure::All => ("all", "Every one of them"),
            StreamMeasure::One(what) => (what.row().name, what.row().help),
        };
        Some(PossibleValue::new(name).help(help))
    }
}

impl StreamMeasure {
    /// What is measured; none for all.
    pub(super) fn what(self) -> Option<What> {
        match self {
            StreamMeasure::One(what) => Some(what),
            StreamMeasure::All => None,
        }
    }
}

/// Who does what the host calls for.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// A stream, in its turn.
    Stream,
    /// A CUDA graph of a batch of operations.
    Graph,
    /// The host itself.
    Host,
}

impl By {
    pub(super) fn scope(self) -> Scope {
        match self {
            By::Stream => Scope::Stream,
            By::Graph => Scope::Graph,
            By::Host => Scope::Host,
        }
    }
}

#[derive(Args, Debug, Clone)]
pub(crate) struct StreamArgs {
    /// Measures to run; all when none is named.
    #[arg(value_enum)]
    pub(crate) measures: Vec<StreamMeasure>,

    /// By whom. All that there are when none is given: on the CPU device there are no graphs.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) by: Vec<By>,

    /// PEs of barrier; several numbers are measured one after the other. Everything else takes two.
    /// 2, and 8 where there are as many GPUs.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(2..=64))]
    pub(crate) pes: Vec<u32>,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// One PE of a job of `device` or `stream`.
#[derive(Args, Debug, Clone)]
pub(crate) struct PlanArgs {
    /// The job's own folder: where its plan is, and where PE 0 leaves the figures.
    #[arg(long)]
    pub(crate) folder: PathBuf,

    #[command(flatten)]
    pub(crate) spread: SpreadArgs,
}
