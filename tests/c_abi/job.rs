//! Runs a C program on several PEs with a time limit: under rushmem-run where cargo has built it, else by
//! setting the same environment ourselves. Nothing outlives the call.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::stage::{use_the_installed_library, Stage};

/// What the PEs printed, with these settings. Panics if one fails or the limit passes.
pub(crate) fn run(
    stage: &Stage,
    program: &Path,
    pes: u32,
    limit: Duration,
    settings: &[(&str, &str)],
) -> String {
    match stage.launcher() {
        Some(launcher) => {
            let mut command = Command::new(launcher);
            let seconds = limit.as_secs().to_string();
            command.args(["-n", &pes.to_string(), "--timeout", &seconds, "--"]).arg(program);
            command.envs(settings.iter().copied());
            finish(vec![start(command)], limit + Duration::from_secs(5))
        }
        None => {
            let uid = rushmem::Uid::create().expect("a unique ID");
            let pe = |pe: u32| {
                let mut command = Command::new(program);
                command.env("RUSHMEM_PE", pe.to_string()).env("RUSHMEM_NPES", pes.to_string());
                command.env("RUSHMEM_LOCAL_PE", pe.to_string()).env("RUSHMEM_LOCAL_NPES", pes.to_string());
                command.env("RUSHMEM_UID", uid.to_string()).envs(settings.iter().copied());
                start(command)
            };
            finish((0..pes).map(pe).collect(), limit)
        }
    }
}

/// The same for one process and no launcher's environment.
pub(crate) fn alone(command: Command, limit: Duration) -> String {
    finish(vec![start(command)], limit)
}

/// A process group of its own, so that it can be killed as a whole.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            // SAFETY: sends a signal to the group that this child leads; it has not been waited for.
            unsafe { libc::kill(-(self.0.id() as i32), libc::SIGKILL) };
            let _ = self.0.wait();
        }
    }
}

fn start(mut command: Command) -> Group {
    // A job inside a job (these tests under a launcher) must not pick up the outer one.
    for name in ["PE", "NPES", "UID", "LOCAL_PE", "LOCAL_NPES"].map(|n| format!("RUSHMEM_{n}")) {
        if !command.get_envs().any(|(k, v)| k == name.as_str() && v.is_some()) {
            command.env_remove(&name);
        }
    }
    use_the_installed_library(&mut command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    Group(command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}")))
}

fn finish(mut pes: Vec<Group>, limit: Duration) -> String {
    let readers: Vec<_> = pes
        .iter_mut()
        .flat_map(|pe| {
            let out = pe.0.stdout.take().map(|s| Box::new(s) as Box<dyn Read + Send>);
            let err = pe.0.stderr.take().map(|s| Box::new(s) as Box<dyn Read + Send>);
            out.into_iter().chain(err)
        })
        .map(|mut stream| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                let _ = stream.read_to_end(&mut bytes);
                String::from_utf8_lossy(&bytes).into_owned()
            })
        })
        .collect();
    let deadline = Instant::now() + limit;
    let mut failed = None;
    for (i, pe) in pes.iter_mut().enumerate() {
        let status = loop {
            match pe.0.try_wait().expect("a child can be waited for") {
                Some(status) => break Some(status),
                None if Instant::now() > deadline => break None,
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        match status {
            Some(status) if status.success() => {}
            Some(status) => failed = failed.or(Some(format!("process {i}: {status}"))),
            None => failed = failed.or(Some(format!("process {i} was still running after {limit:?}"))),
        }
    }
    drop(pes);
    let text: String = readers.into_iter().map(|r| r.join().expect("a reader does not panic")).collect();
    if let Some(why) = failed {
        panic!("{why}\n{text}");
    }
    text
}
