//! The life of a job on this host: starts the PEs, waits, and does what their ends mean ([`crate::verdict`]).
//! Whichever way the job ends, nothing that it started is left.

use std::time::Duration;

use nix::unistd::Pid;
use rushmem_bootstrap_uid::RendezvousHandle;

use crate::args::Args;
use crate::crew::{Crew, End};
use crate::output::{Output, Tagged};
use crate::signals::Signals;
use crate::spawn::{Input, Recipe};
use crate::verdict::{Step, Verdict};
use crate::{processes, rendezvous, say, spawn, Failure};

/// Between SIGTERM and SIGKILL.
pub(crate) const TERM_GRACE: Duration = Duration::from_secs(2);
/// How long killed processes may take to go.
pub(crate) const KILL_LIMIT: Duration = Duration::from_secs(10);

/// Runs the job of `n` PEs; its exit code.
pub(crate) fn run(args: &Args, n: u32) -> Result<u8, Failure> {
    let os = |what: &'static str| move |e: nix::Error| Failure::own(format!("cannot {what}: {e}"));
    processes::adopt_orphans().map_err(os("become the reaper of orphans"))?;
    let files = spawn::make_room(n, args.tag_output)?;
    // Before the first thread, so that no thread takes a signal from us.
    let signals = Signals::block().map_err(os("wait for signals"))?;
    let mut verdict = Verdict::new(n as usize, args.grace, TERM_GRACE, args.timeout);
    let (uid, rendezvous) = rendezvous::open(true)?;

    let recipe = Recipe { program: &args.program, n, uid: &uid, mask: signals.before(), files };
    let environment: Vec<_> = args.env.iter().map(|(k, v)| (k.into(), v.into())).collect();
    let mut children = Vec::new();
    for pe in 0..n {
        let input = if pe == 0 { Input::Ours } else { Input::None };
        match recipe.spawn(pe, (pe, n), input, args.tag_output, &environment) {
            Ok(child) => children.push(child),
            Err(failure) => {
                processes::kill_all(KILL_LIMIT, |_, _| ());
                return Err(failure);
            }
        }
    }
    let pids = children.iter().map(|c| Pid::from_raw(c.id() as i32)).collect();
    let numbers: Vec<u32> = (0..n).collect();
    let output = args.tag_output.then(|| Output::start(&mut children, &numbers, Tagged::new(true)));
    let output = output.transpose();
    drop(children);

    let mut crew = Crew::new(pids);
    let watched = match &output {
        Ok(_) => {
            watch(&mut crew, &mut verdict, &signals, |ends, verdict| tell(verdict, ends, n, &rendezvous))
        }
        Err(e) => Err(Failure::own(format!("cannot start a thread for output: {e}"))),
    };
    // Whatever happened, and also when all went well: what PEs left behind goes now.
    let (gone, ends) = crew.kill_all(KILL_LIMIT);
    tell(&mut verdict, ends, n, &rendezvous);
    if !gone {
        say("some processes withstand SIGKILL; leaving them");
    }
    // From here on a signal ends us as it ends any program: a reader of ours may never read on.
    signals.restore();
    if let Ok(Some(output)) = output {
        output.finish();
    }
    watched.map(|()| verdict.code())
}

fn tell(verdict: &mut Verdict, ends: Vec<End>, n: u32, rendezvous: &RendezvousHandle) {
    for End { index, pid, failure } in ends {
        let who = format!("PE {index} (pid {pid})");
        if failure.is_none() {
            rendezvous::ended(rendezvous, index as u32, n, &who);
        }
        verdict.ended(index, &who, failure);
    }
}

/// Until no PE is left, or the rest is to be killed.
fn watch(
    crew: &mut Crew,
    verdict: &mut Verdict,
    signals: &Signals,
    tell: impl Fn(Vec<End>, &mut Verdict),
) -> Result<(), Failure> {
    loop {
        tell(crew.reap(), verdict);
        if !crew.is_alive() {
            return Ok(());
        }
        let until = match verdict.step() {
            Step::Wait(until) => until,
            Step::Terminate => {
                processes::terminate_all();
                continue;
            }
            Step::Kill => return Ok(()),
        };
        let arrived =
            signals.wait(until).map_err(|e| Failure::own(format!("cannot wait for signals: {e}")))?;
        for signal in arrived {
            processes::forward(signal.signal, &crew.pids(), signal.from_terminal);
            if verdict.signalled(signal) {
                processes::terminate_all();
            }
        }
    }
}
