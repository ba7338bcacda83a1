//! Slurm's variables. A job *step* (`srun`) has ranks; the batch script and an `salloc` shell have many of
//! the same variables but are one process, and must not wait for others.

use rushmem_bootstrap_abi::Result;

use super::vars::{wrong, Vars};
use super::{secret, Launch, Launcher};
use crate::address::MeetingPoint;

const STEP: [&str; 2] = ["SLURM_STEP_ID", "SLURM_STEPID"];
const JOB: [&str; 2] = ["SLURM_JOB_ID", "SLURM_JOBID"];
const TASKS: [&str; 3] = ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"];
const NODES: [&str; 4] = ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURMD_NODENAME"];
const NUMBER_OF_NODES: [&str; 3] = ["SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"];
/// Slurm tells no plain number of tasks on this node.
const NO_VARIABLE: &str = "";
/// Step ids from here on are no steps of tasks: interactive, batch, extern, pending (slurm.h).
const SPECIAL_STEPS: u32 = 0xffff_fffa;

/// The number of a step that has tasks.
fn task_step(vars: &Vars<'_>) -> Option<String> {
    let (_, text) = vars.first(&STEP)?;
    let special = text.parse::<u32>().map_or(true, |n| n >= SPECIAL_STEPS);
    (!special).then_some(text)
}

pub(super) fn detect(vars: &Vars<'_>) -> Result<Option<Launch>> {
    let Some(step) = task_step(vars) else { return Ok(None) };
    let remedy = "start the program with srun";
    let (tasks, _) = vars.first(&TASKS).unwrap_or((TASKS[0], String::new()));
    let ranks = vars.ranks("SLURM_PROCID", tasks, ["SLURM_LOCALID", NO_VARIABLE], remedy)?;
    let missing = |names: &[&str]| wrong(format!("{} is not set in Slurm step {step}: {remedy}", names[0]));
    let (_, job) = vars.first(&JOB).ok_or_else(|| missing(&JOB))?;
    let (name, list) = vars.first(&NODES).ok_or_else(|| missing(&NODES))?;
    let host =
        first_host(&list).ok_or_else(|| wrong(format!("{name}={list} is not a list of hosts: {remedy}")))?;
    let restarts = vars.get("SLURM_RESTART_COUNT").unwrap_or_default();
    let identity = vec!["slurm".into(), job.clone(), step.clone(), ranks.n_ranks.to_string(), restarts];
    let shown = ["SLURM_PROCID", tasks, "SLURM_LOCALID", name];
    let why = format!("Slurm: job {job} step {step} {}, meets on {host}", vars.show(&shown));
    let one_host = one_host(vars, name, &list);
    let meeting =
        MeetingPoint { host, host_from: name, identity, secret: secret::of(vars), taken: None, one_host };
    Ok(Some(Launch { launcher: Launcher::Slurm { ranks, meeting }, why }))
}

/// Whether all tasks of the step are on one node, and what says so. Without the step's own numbers the job's
/// do: it has no fewer nodes than its steps.
fn one_host(vars: &Vars<'_>, name: &str, list: &str) -> Option<String> {
    // The parts of a heterogeneous step have numbers of their own.
    if vars.get("SLURM_HET_SIZE").is_some_and(|n| n != "1") {
        return None;
    }
    match vars.first(&NUMBER_OF_NODES) {
        Some((number, one)) => (one == "1").then(|| format!("{number}=1")),
        None => {
            let one = !list.contains(['[', ',']) && !list.is_empty();
            one.then(|| format!("{name}={list}"))
        }
    }
}

/// Why there is no launcher, with a hint for users inside an allocation.
pub(super) fn why_none(vars: &Vars<'_>) -> String {
    match vars.first(&JOB) {
        Some((_, job)) => format!(
            "no launcher: in Slurm allocation {job} but not in a step of tasks, so a single PE (srun starts several)"
        ),
        None => "no launcher's variables are set, so a single PE".into(),
    }
}

/// The first host of a Slurm host list: `n[01-03,7],gpu5` gives `n01`, `r[1-2]n[3,4]` gives `r1n3`. `None`
/// for what is no such list.
pub fn first_host(list: &str) -> Option<String> {
    let mut host = String::new();
    let mut chars = list.trim().chars();
    while let Some(c) = chars.next() {
        match c {
            ',' => break,
            '[' => {
                // The first number up to ',', '-' or ']', digits (with their leading zeros) only.
                let mut number = String::new();
                let end = chars.by_ref().find(|c| {
                    let digit = c.is_ascii_digit();
                    if digit {
                        number.push(*c);
                    }
                    !digit
                })?;
                if number.is_empty() || !",-]".contains(end) {
                    return None;
                }
                if end != ']' {
                    chars.by_ref().find(|c| *c == ']')?;
                }
                host.push_str(&number);
            }
            c if c.is_ascii_alphanumeric() || "._-:".contains(c) => host.push(c),
            _ => return None,
        }
    }
    (!host.is_empty()).then_some(host)
}
