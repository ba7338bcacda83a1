//! Operations started by kernels, and those put on streams: a job of PEs makes the figures of a plan, one
//! after the other, on whatever device the PEs have. The kernels are text in this program, so that the same
//! ones run on a GPU and on the CPU.

pub(crate) mod args;
mod bare;
mod bench;
mod collectives;
mod curves;
pub(crate) mod driver;
mod fit;
mod from_host;
mod job;
mod kernels;
mod measure;
mod pattern;
pub(crate) mod pe;
mod plan;
mod scope;
mod spec;
mod targets;
mod verify;

use std::process::ExitCode;

use rushmem::{doctor, World};

use crate::environment::Environment;
use crate::job::{inside, Failure, Result};
use crate::peer::Peers;
use crate::plot;
use crate::progress::Progress;
use crate::report::{Report, Row};
use crate::spread::Spread;
use args::{Common, DeviceArgs, DeviceMeasure, StreamArgs};
use job::Outcome;
use plan::{Machine, Plan};
use spec::Spec;

/// `rushmem-perf device …`.
pub(crate) fn run(args: &DeviceArgs) -> Result<ExitCode> {
    let environment = Environment::here().with_gpus();
    // A file that cannot be read is said before minutes of measuring, not after.
    let peers = Peers::read(&args.common.output.compare)?;
    let chosen = fit::device(args)?;
    let machine = machine()?;
    if !args.measures.iter().any(|measure| measure.is_set()) {
        let outcome = measure(&args.common, machine, plan::from_options(args, &chosen, machine))?;
        return show("device", &args.common, environment, machine, &peers, outcome);
    }
    if inside() || args.measures.len() > 1 {
        return Err(Failure::new(
            "targets and curves stand alone and start jobs of their own: no launcher, no other measure",
        ));
    }
    if args.measures.contains(&DeviceMeasure::Curves) {
        let outcome = twice(&args.common, machine, &peers)?;
        print!("{}", curves::worst(&outcome.rows));
        return show("device", &args.common, environment, machine, &Peers::default(), Some(outcome));
    }
    let mut outcome = measure(&args.common, machine, targets::plans(machine))?;
    if let Some(outcome) = &mut outcome {
        targets::relate(&mut outcome.rows);
        if machine.is_gpu() {
            targets::start_up(outcome);
        }
    }
    show("device", &args.common, environment, machine, &peers, outcome)
}

/// The curves, and in a second job those rows that are over in the first, of each the better.
fn twice(common: &Common, machine: Machine, peers: &Peers) -> Result<Outcome> {
    let run = |specs: Vec<Spec>| {
        let outcome = measure(common, machine, vec![(2, specs)])?;
        let mut outcome = outcome.ok_or_else(|| Failure::new("another PE has the figures"))?;
        outcome.rows.iter_mut().for_each(|row| peers.set(row));
        curves::without_caches(&mut outcome.rows);
        Ok::<Outcome, Failure>(outcome)
    };
    let specs = curves::specs(machine);
    let mut first = run(specs.clone())?;
    let again = curves::again(&specs, &first.rows);
    if again.is_empty() || !first.failures.is_empty() {
        return Ok(first);
    }
    let second = run(again)?;
    first.rows = curves::better(first.rows, second.rows);
    first.failures.extend(second.failures);
    Ok(first)
}

/// `rushmem-perf stream …`.
pub(crate) fn run_stream(args: &StreamArgs) -> Result<ExitCode> {
    let environment = Environment::here().with_gpus();
    let peers = Peers::read(&args.common.output.compare)?;
    let chosen = fit::stream(args)?;
    let machine = machine()?;
    let outcome = measure(&args.common, machine, plan::from_host(args, &chosen, machine))?;
    show("stream", &args.common, environment, machine, &peers, outcome)
}

/// The device that the PEs will have, and how many of it.
pub(crate) fn machine() -> Result<Machine> {
    let kind = match doctor::job()?.device {
        Ok((kind, _)) => kind,
        Err(why) => return Err(Failure::new(why)),
    };
    let gpus = if kind == "cuda" { rushmem::gpus()?.len() as u32 } else { 0 };
    Ok(Machine { gpus })
}

/// Runs the plans, each in a job of so many PEs; under a launcher in the one that there is, and then only PE
/// 0 has an outcome.
fn measure(common: &Common, machine: Machine, plans: Vec<(u32, Vec<Spec>)>) -> Result<Option<Outcome>> {
    if inside() {
        return in_this_job(common, machine, plans);
    }
    let mut outcome = Outcome::default();
    let total = plans.iter().map(|(_, specs)| specs.len()).sum();
    let progress = Progress::new(total);
    for (pes, specs) in plans {
        let plan = Plan::new(common, machine, pes, specs);
        let failed = job::run(Spread::over(pes, machine.gpus), &plan, &progress, &mut outcome).err();
        // What the other jobs find is worth having.
        outcome.failures.extend(failed.map(|failure| format!("the job of {pes} PEs: {failure}")));
    }
    Ok(Some(outcome))
}

/// Under a launcher: whatever of the plans its PEs can do. PE 0 gets the outcome.
fn in_this_job(common: &Common, machine: Machine, plans: Vec<(u32, Vec<Spec>)>) -> Result<Option<Outcome>> {
    let world = World::init()?;
    let specs = plans.into_iter().map(|(_, specs)| specs).fold(Vec::new(), |mut all: Vec<Spec>, specs| {
        let new: Vec<Spec> = specs.into_iter().filter(|spec| !all.contains(spec)).collect();
        all.extend(new);
        all
    });
    let plan = Plan::new(common, machine, world.n_pes(), specs).by_turns();
    let mut outcome = Outcome::default();
    let about = pe::measure(&world, &plan, |row| {
        outcome.rows.push(row);
        Ok(())
    })?;
    outcome.abouts.push((world.n_pes(), about));
    let first = world.my_pe().number() == 0;
    world.finalize()?;
    Ok(first.then_some(outcome))
}

fn show(
    front: &str,
    common: &Common,
    environment: Environment,
    machine: Machine,
    peers: &Peers,
    outcome: Option<Outcome>,
) -> Result<ExitCode> {
    // Another PE reports.
    let Some(outcome) = outcome else { return Ok(ExitCode::SUCCESS) };
    let mut rows: Vec<Row> = outcome.rows;
    rows.iter_mut().for_each(|row| peers.set(row));
    let plan = Plan::new(common, machine, 2, Vec::new());
    let report = Report {
        schema: 1,
        tool: format!("rushmem-perf {} {front}", env!("CARGO_PKG_VERSION")),
        environment,
        parameters: serde_json::json!({
            "samples": plan.samples, "iterations": plan.iterations, "warm_up": plan.warm_up,
            "budget_ms": plan.budget_ms, "gpus": machine.gpus,
            "jobs": outcome.abouts.iter().map(|(pes, about)| serde_json::json!({ "pes": pes, "about": about }))
                .collect::<Vec<_>>(),
            "failures": outcome.failures,
        }),
        rows,
    };
    if let Some(file) = &common.plot {
        crate::report::write(file, &plot::svg(&report)?)?;
    }
    let code = report.show(&common.output)?;
    if outcome.failures.is_empty() {
        Ok(code)
    } else {
        Err(Failure::new(outcome.failures.join("\n  ")))
    }
}
