//! How the PEs of a job are spread over processes: one for each, or, where several share a GPU, one for all.
//! Processes take turns on a GPU, of about 2 ms each (docs/gpu-findings.md), so that latencies would be those
//! of the turns; PEs that are threads of one process share a context, and their kernels run side by side.

use std::path::Path;
use std::process::Command;

use rushmem::{Uid, World};

use crate::args::SpreadArgs;
use crate::job::{self, Failure, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    /// So many PEs, each a process.
    Processes(u32),
    /// So many PEs, each a thread of one process.
    Threads(u32),
}

impl Spread {
    /// Of a job of `pes` PEs on a machine with `gpus` GPUs, 0 where PEs are on the CPU device.
    pub(crate) fn over(pes: u32, gpus: u32) -> Spread {
        match gpus > 0 && pes > gpus {
            true => Spread::Threads(pes),
            false => Spread::Processes(pes),
        }
    }

    pub(crate) fn pes(self) -> u32 {
        match self {
            Spread::Processes(pes) | Spread::Threads(pes) => pes,
        }
    }

    /// The job, each process of which is this program with the subcommand `of_a_pe`. It has a time limit, and
    /// no input; the caller adds further arguments.
    pub(crate) fn command(self, of_a_pe: &str, folder: &Path, limit_s: u32) -> Result<Command> {
        let (processes, threads) = match self {
            Spread::Processes(pes) => (pes, None),
            Spread::Threads(pes) => (1, Some(pes)),
        };
        let mut command = job::command(processes, limit_s)?;
        command.arg(of_a_pe).arg("--folder").arg(folder);
        if let Some(threads) = threads {
            command.args(["--threads", &threads.to_string()]);
        }
        Ok(command)
    }
}

/// Runs `pe` for each PE of this process, in a world of its own. The first failure is the process's.
pub(crate) fn each_pe(spread: &SpreadArgs, pe: impl Fn(&World) -> Result<()> + Sync) -> Result<()> {
    let Some(threads) = spread.threads else {
        let world = World::init()?;
        pe(&world)?;
        return Ok(world.finalize()?);
    };
    let uid = Uid::create()?;
    let of_rank = |rank| {
        let world = World::builder().uid(&uid, rank, threads).init()?;
        pe(&world)?;
        Ok::<(), Failure>(world.finalize()?)
    };
    let of_rank = &of_rank;
    std::thread::scope(|scope| {
        let pes: Vec<_> = (0..threads).map(|rank| scope.spawn(move || of_rank(rank))).collect();
        let ends = pes.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(Failure::new("a PE panicked: its message is above")))
        });
        ends.collect::<Vec<_>>().into_iter().collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pes_that_share_a_gpu_are_threads() {
        assert_eq!(Spread::over(2, 2), Spread::Processes(2));
        assert_eq!(Spread::over(2, 1), Spread::Threads(2));
        assert_eq!(Spread::over(8, 4), Spread::Threads(8));
        assert_eq!(Spread::over(8, 0), Spread::Processes(8), "the CPU device has no turns");
    }
}
