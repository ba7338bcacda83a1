//! One PE: its environment, its standard streams, and its end tied to ours.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use nix::sys::prctl;
use nix::sys::resource::{getrlimit, setrlimit, Resource};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{getpid, getppid, Pid};

use crate::Failure;

/// Descriptors that the launcher needs besides those of PEs.
const OWN_DESCRIPTORS: u64 = 64;

/// What all PEs that this process starts have in common.
pub(crate) struct Recipe<'a> {
    pub(crate) program: &'a [OsString],
    /// PEs of the job.
    pub(crate) n: u32,
    pub(crate) uid: &'a str,
    /// Their mask of signals, and their limits of open files, soft and hard.
    pub(crate) mask: SigSet,
    pub(crate) files: (u64, u64),
}

/// What a PE reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    None,
    /// What this process would.
    Ours,
    /// What this process writes.
    Pipe,
}

impl Recipe<'_> {
    /// Starts PE `pe`, which is `local.0` of `local.1` here; its output goes to pipes where it is `piped`.
    /// Call it from the main thread only: PEs die with the *thread* that started them.
    pub(crate) fn spawn(
        &self,
        pe: u32,
        local: (u32, u32),
        input: Input,
        piped: bool,
        environment: &[(OsString, OsString)],
    ) -> Result<Child, Failure> {
        let mut command = Command::new(&self.program[0]);
        command
            .args(&self.program[1..])
            .envs(environment.iter().map(|(k, v)| (k, v)))
            .env("RUSHMEM_PE", pe.to_string())
            .env("RUSHMEM_NPES", self.n.to_string())
            .env("RUSHMEM_LOCAL_PE", local.0.to_string())
            .env("RUSHMEM_LOCAL_NPES", local.1.to_string())
            .env("RUSHMEM_UID", self.uid)
            .stdin(match input {
                Input::None => Stdio::null(),
                Input::Ours => Stdio::inherit(),
                Input::Pipe => Stdio::piped(),
            });
        if piped {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let (launcher, mask, files) = (getpid(), self.mask, self.files);
        // SAFETY: only async-signal-safe system calls, no allocation.
        unsafe { command.pre_exec(move || Ok(tie(launcher, mask, files)?)) };
        command.spawn().map_err(|e| self.cannot_start(pe, &e))
    }

    fn cannot_start(&self, pe: u32, error: &io::Error) -> Failure {
        let program = self.program[0].to_string_lossy();
        match error.kind() {
            ErrorKind::NotFound => {
                let place = if self.program[0].as_encoded_bytes().contains(&b'/') { "" } else { " in PATH" };
                let text =
                    format!("cannot find the program {program}{place} (or the interpreter that it names)");
                Failure { code: 127, text }
            }
            ErrorKind::PermissionDenied => Failure {
                code: 126,
                text: format!("may not execute {program}: {error}; is it a program, and chmod +x?"),
            },
            _ if error.raw_os_error() == Some(libc::ENOEXEC) => {
                Failure { code: 126, text: format!("cannot execute {program}: {error}") }
            }
            _ => Failure::own(format!("cannot start PE {pe} of {}: {program}: {error}", self.n)),
        }
    }
}

/// In the child, before the program: it is killed when the launcher dies, however that happens.
pub(crate) fn tie(launcher: Pid, mask: SigSet, (soft, hard): (u64, u64)) -> nix::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // The launcher may have died before the line above; then nobody would tell.
    if getppid() != launcher {
        return Err(nix::errno::Errno::ECHILD);
    }
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard)?;
    mask.thread_set_mask()
}

/// Makes room for the pipes of `n` PEs; returns the limits (soft, hard) as they were, which PEs get.
pub(crate) fn make_room(n: u32, piped: bool) -> Result<(u64, u64), Failure> {
    let failed = |e: nix::Error| Failure::own(format!("cannot handle the limit of open files: {e}"));
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(failed)?;
    // The rendezvous has a socket for each PE, its end a descriptor, its output two pipes.
    let need = OWN_DESCRIPTORS + u64::from(n) * if piped { 4 } else { 2 };
    if need > soft {
        if need > hard {
            let text = format!("{n} PEs need {need} open files, {hard} are allowed: raise `ulimit -n`");
            return Err(Failure::own(text));
        }
        setrlimit(Resource::RLIMIT_NOFILE, need, hard).map_err(failed)?;
    }
    Ok((soft, hard))
}
