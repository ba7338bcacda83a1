//! The options of `rushmem-perf`'s commands, and what they choose from. `device` has its own, which come of
//! its table of measures.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Measures of `rushmem-perf host`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Measure {
    /// Every one of them.
    All,
    /// put against plain stores and memcpy.
    Put,
    /// get against plain loads and memcpy.
    Get,
    /// Round trip of an 8-byte put between two PEs that wait for each other's.
    Pingpong,
    /// Atomic operations against the processor's own.
    Atomic,
    /// barrier_all and sync_all against a bare exchange of flags.
    Barrier,
    /// The same as a C program calls it, against the Rust API.
    CAbi,
    /// From exec to ready: 4 PEs, and 64.
    Startup,
    /// Collectives of 2 and 4 PEs, against those of Open MPI and MPICH.
    Collective,
}

impl Measure {
    /// `all` spelled out, each measure once, in their own order.
    pub(crate) fn expand(chosen: &[Measure]) -> Vec<Measure> {
        let everything = chosen.is_empty() || chosen.contains(&Measure::All);
        let wanted = |measure: &Measure| *measure != Measure::All && (everything || chosen.contains(measure));
        Measure::value_variants().iter().copied().filter(wanted).collect()
    }

    /// Whether it runs inside a job of PEs, or starts jobs of its own.
    pub(crate) fn needs_job(self) -> bool {
        !matches!(self, Measure::All | Measure::Startup | Measure::Collective)
    }

    /// As on the command line.
    pub(crate) fn word(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Where figures go, and what they are set beside.
#[derive(Args, Debug, Clone)]
pub(crate) struct Output {
    /// Sets the figures of a file beside ours: NVSHMEM's, NCCL's, OpenSHMEM's or the machine's limits as in
    /// the project's baseline files (CSV), or an earlier record of this tool (JSON) or its summary (CSV); or
    /// of all such CSV files of a folder. May be given several times.
    #[arg(long, value_name = "FILE")]
    pub(crate) compare: Vec<PathBuf>,

    /// Also writes everything as JSON to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Also writes the rows as CSV to this file, behind lines that say where they were made.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,

    /// Ends with exit code 1 when a figure misses its limit.
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Args, Debug, Clone)]
pub(crate) struct HostArgs {
    /// Measures to run; all of them when none is named.
    #[arg(value_enum)]
    pub(crate) measures: Vec<Measure>,

    /// Timed samples of each figure; a sample is the mean of one batch of operations.
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) samples: u32,

    /// How long one batch should take, in microseconds (barriers and ping-pongs: that many rounds).
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) batch: u32,

    /// Jobs started for each figure of the start-up measure.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) starts: u32,

    /// Sizes of put and get, in bytes.
    #[arg(long, value_delimiter = ',', default_value = "8,64,1024,65536,1048576",
          value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub(crate) sizes: Vec<u64>,

    #[command(flatten)]
    pub(crate) output: Output,

    /// Sizes of collectives, in bytes: of the array of allreduce and broadcast, of all blocks of alltoall and
    /// allgather.
    #[arg(long, value_delimiter = ',', default_value = "8,64,1024,16384,65536,1048576,16777216",
          value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub(crate) collective_sizes: Vec<u64>,

    /// A PE of a job that rushmem-perf started itself leaves its rows here instead of showing them.
    #[arg(long, hide = true, value_name = "FILE")]
    pub(crate) rows: Option<PathBuf>,

    /// Makes arrived data wrong before it is looked at: for the test that this is an error.
    #[arg(long, hide = true)]
    pub(crate) corrupt: bool,
}

impl HostArgs {
    /// The length of a batch in nanoseconds.
    pub(crate) fn batch_ns(&self) -> f64 {
        f64::from(self.batch) * 1e3
    }
}

/// One PE of the collective measure of `host`.
#[derive(Args, Debug, Clone)]
pub(crate) struct CollectivePeArgs {
    #[arg(long)]
    pub(crate) samples: u32,

    #[arg(long, value_delimiter = ',')]
    pub(crate) sizes: Vec<u64>,

    #[arg(long)]
    pub(crate) corrupt: bool,
}

#[derive(Args, Debug, Clone)]
pub(crate) struct ShmemArgs {
    /// Timed samples of each figure; a sample is the mean of one batch of operations. Large sizes get fewer.
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) samples: u32,

    /// Sizes of put and get, in bytes.
    #[arg(long, value_delimiter = ',', default_value = "8,64,1024,8192,65536,1048576,4194304",
          value_parser = clap::value_parser!(u64).range(1..=1 << 26))]
    pub(crate) sizes: Vec<u64>,

    /// Sizes of collectives, in bytes, at least 8 for each PE: of the array of broadcast and reduce, of all
    /// blocks of alltoall and fcollect.
    #[arg(long, value_delimiter = ',', default_value = "32,1024,65536,1048576",
          value_parser = clap::value_parser!(u64).range(8..=1 << 26))]
    pub(crate) collective_sizes: Vec<u64>,

    /// Numbers of PEs of the collectives; puts, gets and atomics are measured between two.
    #[arg(long, value_delimiter = ',', default_value = "2,4",
          value_parser = clap::value_parser!(u32).range(2..=64))]
    pub(crate) pes: Vec<u32>,

    #[command(flatten)]
    pub(crate) output: Output,

    /// Makes arrived data wrong before it is looked at: for the test that this is an error.
    #[arg(long, hide = true)]
    pub(crate) corrupt: bool,
}

/// One PE of the Rust API's part of `shmem`.
#[derive(Args, Debug, Clone)]
pub(crate) struct ShmemPeArgs {
    #[arg(long)]
    pub(crate) samples: u32,
}

/// What `rushmem-perf far` measures.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    /// Bandwidth of puts of 1 MiB.
    Bandwidth,
    /// Latency of an 8-byte put.
    Latency,
    /// Latency of fetch_add on 8 bytes.
    FetchAdd,
    /// Rate of 8-byte puts by a kernel on the CPU device.
    Rate,
}

#[derive(Args, Debug, Clone)]
pub(crate) struct FarArgs {
    /// What to measure; everything when nothing is named.
    #[arg(value_enum)]
    pub(crate) figures: Vec<Figure>,

    /// Jobs, and runs of ucx_perftest, for each figure; they take turns.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) samples: u32,

    /// The transports that UCX may use (UCX_TLS).
    #[arg(long, default_value = "tcp")]
    pub(crate) tls: String,

    /// The network interface that UCX is to use (UCX_NET_DEVICES).
    #[arg(long, default_value = "lo")]
    pub(crate) interface: String,

    /// Measures between the memories of two devices that are not mapped, and nothing else unless it is named.
    /// Without this it is measured where nothing is named and there are GPUs.
    #[arg(long)]
    pub(crate) device: bool,

    /// As --device, of which it measures nothing but what a kernel's posts cost: by the proxy's ring, and by
    /// the queue of a software card.
    #[arg(long)]
    pub(crate) posts: bool,

    /// A UCX that was built with CUDA, file or folder: `--device` goes through it too (RUSHMEM_UCX_LIB).
    #[arg(long, value_name = "PATH")]
    pub(crate) ucx_cuda: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) output: Output,

    /// Makes arrived data wrong before it is looked at: for the test that this is an error.
    #[arg(long, hide = true)]
    pub(crate) corrupt: bool,
}

/// Arguments of a PE of a job that this tool starts.
#[derive(Args, Debug, Clone)]
pub(crate) struct PeArgs {
    /// The job's own folder, where PE 0 leaves what it found.
    #[arg(long)]
    pub(crate) folder: PathBuf,

    /// Of the data, another in each run.
    #[arg(long)]
    pub(crate) salt: u64,

    /// Makes arrived data wrong before it is looked at.
    #[arg(long)]
    pub(crate) corrupt: bool,
}

/// How the PEs of a job are spread over processes, for one of these.
#[derive(Args, Debug, Clone)]
pub(crate) struct SpreadArgs {
    /// This process is all PEs of the job: so many, each a thread.
    #[arg(long)]
    pub(crate) threads: Option<u32>,
}

#[derive(Args, Debug, Clone)]
pub(crate) struct MoePeArgs {
    #[command(flatten)]
    pub(crate) pe: PeArgs,

    #[command(flatten)]
    pub(crate) spread: SpreadArgs,
}

#[derive(Args, Debug, Clone)]
pub(crate) struct MixedArgs {
    /// Jobs of each kind; they take turns.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) samples: u32,

    #[command(flatten)]
    pub(crate) output: Output,

    /// Makes arrived data wrong before it is looked at: for the test that this is an error.
    #[arg(long, hide = true)]
    pub(crate) corrupt: bool,
}

/// Where received tokens lie.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum MoeLayout {
    /// Each expert's tokens.
    ExpertMajor,
    /// Each source's tokens, once.
    RankMajor,
    /// The experts' tokens one behind the other.
    Flat,
}

/// What dispatch makes of tokens of bf16.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum MoePayload {
    /// fp8 e4m3 with a scale for each 128 columns.
    Fp8,
    /// Nothing.
    Bf16,
}

#[derive(Args, Debug, Clone)]
pub(crate) struct MoeArgs {
    /// PEs, which are the ranks of the exchange.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) pes: u32,

    /// Tokens of each rank. Without this, layout and payload: those sizes of which something is promised.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) tokens: Vec<u32>,

    /// Columns of a token.
    #[arg(long, default_value_t = 7168)]
    pub(crate) hidden: u32,

    /// Experts of all ranks.
    #[arg(long, default_value_t = 256)]
    pub(crate) experts: u32,

    /// Experts of a token.
    #[arg(long, default_value_t = 8)]
    pub(crate) top_k: u32,

    /// Where received tokens lie.
    #[arg(long, value_enum)]
    pub(crate) layout: Option<MoeLayout>,

    /// What dispatch makes of tokens.
    #[arg(long, value_enum)]
    pub(crate) payload: Option<MoePayload>,

    /// Blocks of each launch.
    #[arg(long)]
    pub(crate) blocks: Option<u32>,

    /// Threads of a block.
    #[arg(long)]
    pub(crate) threads: Option<u32>,

    /// Tokens of a source up to which data and flag are one store.
    #[arg(long)]
    pub(crate) few: Option<u32>,

    /// Sums travel as bf16, not as f32.
    #[arg(long)]
    pub(crate) rounded: bool,

    #[command(flatten)]
    pub(crate) output: Output,

    /// Makes a result wrong before it is looked at: for the test that this is an error.
    #[arg(long, hide = true)]
    pub(crate) corrupt: bool,
}

#[derive(Args, Debug, Clone)]
pub(crate) struct FarDevicePeArgs {
    /// Samples of each figure.
    #[arg(long)]
    pub(crate) samples: u32,

    /// Nothing but what posts cost.
    #[arg(long)]
    pub(crate) posts: bool,

    #[command(flatten)]
    pub(crate) pe: PeArgs,
}

#[derive(Args, Debug, Clone)]
pub(crate) struct FarPeArgs {
    /// What to measure.
    #[arg(value_enum)]
    pub(crate) figures: Vec<Figure>,

    #[command(flatten)]
    pub(crate) pe: PeArgs,
}

#[derive(Args, Debug, Clone)]
pub(crate) struct StartupArgs {
    /// PEs of a job, all on this machine; several numbers are measured one after the other. Those that
    /// promises are about when none is given: 8 on GPUs, 4 on the CPU device.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) pes: Vec<u32>,

    /// Jobs started for each number of PEs, besides a first one that is not counted.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) samples: u32,

    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Args, Debug, Clone)]
pub(crate) struct StartupPeArgs {
    /// The job's own folder: where its PEs meet, and where PE 0 leaves the figures.
    #[arg(long)]
    pub(crate) folder: PathBuf,

    /// When rushmem-run was started, in nanoseconds of the monotonic clock.
    #[arg(long)]
    pub(crate) exec: u64,
}

#[derive(Args, Debug, Clone)]
pub(crate) struct PlotArgs {
    /// A file that `--json` has written.
    pub(crate) record: PathBuf,
    /// The file for the plot, an SVG.
    pub(crate) plot: PathBuf,
    /// Draws this operation alone, by its name in the record; again for each further one.
    #[arg(long, value_name = "OPERATION")]
    pub(crate) only: Vec<String>,
    /// Draws these scopes alone: `thread`, `warp`, `block`, `stream`, `graph`.
    #[arg(long, value_delimiter = ',')]
    pub(crate) scope: Vec<String>,
}

#[derive(Args, Debug, Clone)]
pub(crate) struct SummaryArgs {
    /// Files that `--json` has written.
    #[arg(required = true)]
    pub(crate) records: Vec<PathBuf>,

    /// All figures.
    #[arg(long)]
    pub(crate) all: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_and_all_mean_everything_once() {
        let everything = Measure::expand(&[]);
        assert_eq!(everything, Measure::expand(&[Measure::Put, Measure::All, Measure::Put]));
        assert!(everything.contains(&Measure::Startup) && !everything.contains(&Measure::All));
        assert_eq!(
            Measure::expand(&[Measure::Get, Measure::Put, Measure::Get]),
            [Measure::Put, Measure::Get]
        );
    }
}
