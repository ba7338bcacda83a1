//! One PE: its environment, its standard streams, and its end tied to ours.

use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use nix::sys::prctl;
use nix::sys::resource::{getrlimit, setrlimit, Resource};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{getpid, getppid, Pid};

use crate::args::Args;
use crate::Failure;

/// Descriptors that the launcher needs besides those of PEs.
const OWN_DESCRIPTORS: u64 = 64;

/// Starts PE `pe`. Call it from the main thread only: PEs die with the *thread* that started them.
pub(crate) fn spawn(
    args: &Args,
    pe: u32,
    uid: &str,
    mask: SigSet,
    files: (u64, u64),
) -> Result<Child, Failure> {
    let mut command = Command::new(&args.program[0]);
    command
        .args(&args.program[1..])
        .env("RUSHMEM_PE", pe.to_string())
        .env("RUSHMEM_NPES", args.n.to_string())
        .env("RUSHMEM_LOCAL_PE", pe.to_string())
        .env("RUSHMEM_LOCAL_NPES", args.n.to_string())
        .env("RUSHMEM_UID", uid)
        .envs(args.env.iter().map(|(k, v)| (k, v)))
        .stdin(if pe == 0 { Stdio::inherit() } else { Stdio::null() });
    if args.tag_output {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    let launcher = getpid();
    // SAFETY: only async-signal-safe system calls, no allocation.
    unsafe { command.pre_exec(move || Ok(tie(launcher, mask, files)?)) };
    command.spawn().map_err(|e| cannot_start(args, pe, &e))
}

/// In the child, before the program: it is killed when the launcher dies, however that happens.
fn tie(launcher: Pid, mask: SigSet, (soft, hard): (u64, u64)) -> nix::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // The launcher may have died before the line above; then nobody would tell.
    if getppid() != launcher {
        return Err(nix::errno::Errno::ECHILD);
    }
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard)?;
    mask.thread_set_mask()
}

fn cannot_start(args: &Args, pe: u32, error: &io::Error) -> Failure {
    let program = args.program[0].to_string_lossy();
    match error.kind() {
        ErrorKind::NotFound => {
            let place = if args.program[0].as_encoded_bytes().contains(&b'/') { "" } else { " in PATH" };
            let text = format!("cannot find the program {program}{place} (or the interpreter that it names)");
            Failure { code: 127, text }
        }
        ErrorKind::PermissionDenied => Failure {
            code: 126,
            text: format!("may not execute {program}: {error}; is it a program, and chmod +x?"),
        },
        _ if error.raw_os_error() == Some(libc::ENOEXEC) => {
            Failure { code: 126, text: format!("cannot execute {program}: {error}") }
        }
        _ => Failure::own(format!("cannot start PE {pe} of {}: {program}: {error}", args.n)),
    }
}

/// Makes room for the pipes of all PEs; returns the limits (soft, hard) as they were, which PEs get.
pub(crate) fn make_room(args: &Args) -> Result<(u64, u64), Failure> {
    let failed = |e: nix::Error| Failure::own(format!("cannot handle the limit of open files: {e}"));
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(failed)?;
    // The rendezvous has a socket for each PE, a tagged PE two pipes.
    let need = OWN_DESCRIPTORS + u64::from(args.n) * if args.tag_output { 3 } else { 1 };
    if need > soft {
        if need > hard {
            let text =
                format!("{} PEs need {need} open files, {hard} are allowed: raise `ulimit -n`", args.n);
            return Err(Failure::own(text));
        }
        setrlimit(Resource::RLIMIT_NOFILE, need, hard).map_err(failed)?;
    }
    Ok((soft, hard))
}
