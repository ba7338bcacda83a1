//! `rushmem-perf`: what rushmem costs, measured beside what the machine itself can do, so that anyone can see
//! how much of the machine is left to the program. One folder for each place that operations start from
//! (`host/`), one file in it for each family of operations; `startup/` is about what comes before the first
//! of them, `far/` about PEs that are reached over a network, `mixed/` about what those cost the others,
//! `shmem/` about C programs of OpenSHMEM, `moe/` about mixture-of-experts exchanges.
//! Sampling, statistics and reports are shared.

mod args;
mod cli;
mod device;
mod environment;
mod far;
mod gpu;
mod host;
mod job;
mod lines;
mod mixed;
mod moe;
mod peer;
mod plot;
mod plot_record;
mod progress;
mod report;
mod shmem;
mod spread;
mod startup;
mod stats;
mod summary;
mod table;
mod text;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Host(args) => host::run(&args),
        Command::Device(args) => device::run(&args),
        Command::Stream(args) => device::run_stream(&args),
        Command::PlanPe(args) => device::pe::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Far(args) => far::run(&args),
        Command::FarPe(args) => far::pe::run(&args).map(|()| ExitCode::SUCCESS),
        Command::FarDevicePe(args) => far::device_pe::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Mixed(args) => mixed::run(&args),
        Command::MixedPe(args) => mixed::pe::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Moe(args) => moe::run(&args),
        Command::MoePe(args) => moe::pe::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Startup(args) => startup::run(&args),
        Command::StartupPe(args) => startup::pe::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Shmem(args) => shmem::run(&args),
        Command::ShmemPe(args) => shmem::pe::run(&args).map(|()| ExitCode::SUCCESS),
        Command::CollectivePe(args) => host::collective::pe::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Summary(args) => summary::run(&args),
        Command::Plot(args) => plot_record::run(&args),
        Command::Ready => host::startup::ready().map(|()| ExitCode::SUCCESS),
    };
    outcome.unwrap_or_else(|failure| {
        eprintln!("rushmem-perf: {failure}");
        ExitCode::FAILURE
    })
}
