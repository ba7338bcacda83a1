//! The command that starts our part on a host: ssh, or whatever the user says. This host's part needs
//! neither, unless the user says a command: a host that runs no sshd may still be one of several.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::SigSet;
use nix::unistd::getpid;

use crate::args::Args;
use crate::hosts::Share;
use crate::{spawn, Failure};

/// Nobody is there to be asked for a password, and a host that no longer answers is to be noticed.
const SSH: &str =
    "ssh -o BatchMode=yes -o ConnectTimeout=20 -o ServerAliveInterval=5 -o ServerAliveCountMax=3";

/// How hosts are reached.
pub(crate) struct Launcher {
    /// This program, which is this host's part, too; where the user says no command.
    own: Option<PathBuf>,
    /// For a shell; the words that follow are its `$@`.
    script: String,
    /// The host is the first of them.
    host_is_a_word: bool,
    /// Our part there.
    program: OsString,
}

impl Launcher {
    pub(crate) fn new(args: &Args) -> Result<Launcher, Failure> {
        let here = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("rushmem-run"));
        let program = args.remote_path.clone().unwrap_or_else(|| here.clone()).into_os_string();
        let Some(command) = &args.launch else {
            // ssh hands one text to a shell there.
            let text = program.to_str().ok_or_else(|| {
                Failure::own("the path of rushmem-run is no UTF-8: say another with --remote-path")
            })?;
            let script = format!("{SSH} \"$@\"");
            return Ok(Launcher {
                own: Some(here),
                script,
                host_is_a_word: true,
                program: quoted(text).into(),
            });
        };
        // `{host}` becomes the shell's first word, so that no quoting of the user's is in the way.
        let host_is_a_word = !command.contains("{host}");
        let script = match host_is_a_word {
            true => format!("{command} \"$@\""),
            false => {
                format!("rushmem_host=$1; shift; {} \"$@\"", command.replace("{host}", "${rushmem_host}"))
            }
        };
        Ok(Launcher { own: None, script, host_is_a_word, program })
    }

    /// Whether a share is this host's, so that its PEs meet over local sockets.
    pub(crate) fn is_here(&self, share: &Share) -> bool {
        share.is_loopback() || (self.own.is_some() && share.is_own())
    }

    /// Starts it; its standard streams but the last are pipes. It is in a process group of its own, so that
    /// what the terminal sends to ours (Ctrl-C) does not cut the connection. Call it from the main thread
    /// only: it dies with the thread that started it.
    pub(crate) fn start(&self, share: &Share, mask: SigSet, files: (u64, u64)) -> Result<Child, Failure> {
        let host = &share.host;
        debug_assert!(!host.starts_with('-') || !self.host_is_a_word);
        let mut command = match &self.own {
            Some(own) if self.is_here(share) => Command::new(own),
            _ => {
                let mut shell = Command::new("sh");
                shell.args(["-c", &self.script, "rushmem-run", host]).arg(&self.program);
                shell
            }
        };
        command.arg("--agent");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let launcher = getpid();
        // SAFETY: only async-signal-safe system calls, no allocation.
        unsafe { command.pre_exec(move || Ok(spawn::tie(launcher, mask, files)?)) };
        let program = command.get_program().to_string_lossy().into_owned();
        command.spawn().map_err(|e| Failure::own(format!("cannot start {program} for host {host}: {e}")))
    }
}

/// One word for a shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@%,".contains(c);
    match text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word_for_a_shell() {
        for text in ["/usr/bin/rushmem-run", "/my files/it's here/$HOME/`x`"] {
            let out = Command::new("sh").args(["-c", &format!("printf %s {}", quoted(text))]).output();
            assert_eq!(out.expect("sh runs").stdout, text.as_bytes());
        }
    }
}
