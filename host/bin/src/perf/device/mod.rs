//! Operations started by kernels, and those put on streams: a job of PEs makes the figures of a plan, one after the other, on
//! whatever device the PEs have. The kernels are text in this program, so that the same ones run on a GPU and on the CPU.

pub(crate) mod args;
mod bench;
mod job;
mod kernels;
pub(crate) mod pe;
mod plan;
mod spec;
mod verify;

use std::process::ExitCode;

use rushmem::{doctor, World};

use crate::environment::Environment;
use crate::job::{inside, Failure, Result};
use crate::report::{Report, Row};
use args::{Common, DeviceArgs};
use job::Outcome;
use plan::{Machine, Plan};
use spec::Spec;

/// `rushmem-perf device …`.
pub(crate) fn run(args: &DeviceArgs) -> Result<ExitCode> {
    let environment = Environment::here().with_gpus();
    let machine = machine()?;
    let plans = plan::from_options(args, machine);
    measure_and_show("device", &args.common, environment, machine, plans)
}

/// The device that the PEs will have, and how many of it.
fn machine() -> Result<Machine> {
    let kind = match doctor::job()?.device {
        Ok((kind, _)) => kind,
        Err(why) => return Err(Failure::new(why)),
    };
    let gpus = if kind == "cuda" { rushmem::gpus()?.len() as u32 } else { 0 };
    Ok(Machine { gpus })
}

/// Runs the plans, each in a job of so many PEs, and reports what came of them.
fn measure_and_show(
    front: &str,
    common: &Common,
    environment: Environment,
    machine: Machine,
    plans: Vec<(u32, Vec<Spec>)>,
) -> Result<ExitCode> {
    let mut outcome = Outcome::default();
    if inside() {
        match in_this_job(common, machine, plans)? {
            Some(found) => outcome = found,
            // Another PE reports.
            None => return Ok(ExitCode::SUCCESS),
        }
    } else {
        let total = plans.iter().map(|(_, specs)| specs.len()).sum();
        let mut progress = job::Progress::new(total);
        for (pes, specs) in plans {
            let plan = Plan::new(common, machine, pes, specs);
            let failed = job::run(pes, &plan, &mut progress, &mut outcome).err();
            // What the other jobs find is worth having.
            outcome.failures.extend(failed.map(|failure| format!("the job of {pes} PEs: {failure}")));
        }
        progress.finish();
    }
    show(front, common, environment, machine, outcome)
}

/// Under a launcher: whatever of the plans its PEs can do. PE 0 gets the outcome.
fn in_this_job(common: &Common, machine: Machine, plans: Vec<(u32, Vec<Spec>)>) -> Result<Option<Outcome>> {
    let world = World::init()?;
    let specs = plans.into_iter().map(|(_, specs)| specs).fold(Vec::new(), |mut all: Vec<Spec>, specs| {
        let new: Vec<Spec> = specs.into_iter().filter(|spec| !all.contains(spec)).collect();
        all.extend(new);
        all
    });
    let plan = Plan::new(common, machine, world.n_pes(), specs);
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
    outcome: Outcome,
) -> Result<ExitCode> {
    let rows: Vec<Row> = outcome.rows;
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
    let code = report.show(common.json.as_deref(), common.csv.as_deref(), common.check)?;
    if outcome.failures.is_empty() {
        Ok(code)
    } else {
        Err(Failure::new(outcome.failures.join("\n  ")))
    }
}
