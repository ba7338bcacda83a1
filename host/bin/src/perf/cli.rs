//! The command line of `rushmem-perf`: every command, with its options.

use clap::{Parser, Subcommand};

use crate::args::*;
use crate::device::args::{DeviceArgs, PlanArgs, StreamArgs};

/// Measures rushmem beside what the machine itself can do, and shows both.
///
/// Run alone it starts the PEs that it needs with the rushmem-run beside it; under a launcher it measures
/// with the PEs of that job.
#[derive(Parser, Debug)]
#[command(name = "rushmem-perf", version)]
pub(crate) struct Cli {
    /// What to measure.
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Operations called from the host, on heaps in host memory.
    Host(HostArgs),
    /// Operations started by kernels, on GPUs or on the CPU device: latency, bandwidth, rates,
    /// synchronisation.
    Device(DeviceArgs),
    /// Operations that the host calls for: on streams, in CUDA graphs, and by itself, on GPUs or on the CPU
    /// device.
    Stream(StreamArgs),
    /// One PE of a job of `device` or `stream`.
    #[command(hide = true)]
    PlanPe(PlanArgs),
    /// Operations on PEs that are reached over a network, beside ucx_perftest of the same UCX.
    Far(FarArgs),
    /// One PE of a job of `far`.
    #[command(hide = true)]
    FarPe(FarPeArgs),
    /// One PE of a job of `far --device`.
    #[command(hide = true)]
    FarDevicePe(FarDevicePeArgs),
    /// Operations between near PEs, on the CPU device, in a job by themselves and in one that has far PEs
    /// too.
    Mixed(MixedArgs),
    /// One PE of a job of `mixed`.
    #[command(hide = true)]
    MixedPe(PeArgs),
    /// Mixture-of-experts exchanges: dispatch and combine, on GPUs in CUDA graphs, or on the CPU device.
    Moe(MoeArgs),
    /// One PE of a job of `moe`.
    #[command(hide = true)]
    MoePe(MoePeArgs),
    /// Starting: time and memory, step by step, beyond what CUDA takes itself; on a GPU where there is one.
    Startup(StartupArgs),
    /// One PE of a job of `startup`.
    #[command(hide = true)]
    StartupPe(StartupPeArgs),
    /// C programs of OpenSHMEM on rushmem, beside the same programs on Open MPI's OpenSHMEM.
    Shmem(ShmemArgs),
    /// One PE of the Rust API's part of `shmem`.
    #[command(hide = true)]
    ShmemPe(ShmemPeArgs),
    /// One PE of the collective measure of `host`.
    #[command(hide = true)]
    CollectivePe(CollectivePeArgs),
    /// Prints records (JSON) in short, as CSV, for git: of a curve its ends, its middle and what misses its
    /// limit.
    Summary(SummaryArgs),
    /// Draws a record (JSON), or some operations of it, as `--plot` draws what was measured.
    Plot(PlotArgs),
    /// One PE of the start-up measure of `host`: starts, says when it was ready, ends.
    #[command(hide = true)]
    Ready,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
