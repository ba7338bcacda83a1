//! Tests that change the process (its user, its limits, its environment) do so in a child: the test program
//! again, for one test, with the name of a part in the environment.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::time::Duration;

use rushmem_device_cpu::{Compiler, Error};

use super::{arg, run, shape};

/// Names the part that a child plays.
pub const PART: &str = "RUSHMEM_TRUST_TEST_PART";
/// A user who may do nothing.
pub const NOBODY: u32 = 65534;
/// A kernel with one effect.
pub const SOURCE: &str = "__global__ void k(int *p) { *p = 123; }";

/// Whether this process is root's.
pub fn root() -> bool {
    // SAFETY: no preconditions.
    unsafe { libc::geteuid() == 0 }
}

/// Changes the permissions of a file or a folder.
pub fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

/// Copies a program, by a process that does nothing else: while this one had the copy open, a child that
/// another thread forks meanwhile would have it open, too, and the copy could not be run ("Text file busy").
pub fn copied(from: &Path, to: &Path) {
    let status = Command::new("cp").arg(from).arg(to).status().expect("there is cp");
    assert!(status.success(), "{} cannot be copied", from.display());
    chmod(to, 0o755);
}

/// Writes a script that can be run, for which [`copied`] says why it takes a copy.
pub fn script(to: &Path, text: &str) {
    let written = to.with_extension("written");
    fs::write(&written, text).expect("writing");
    copied(&written, to);
}

/// What the kernel writes.
pub fn answer(compiler: &Compiler, source: &str) -> Result<i32, Error> {
    let module = compiler.compile("test.cu", source)?;
    let mut out = 0;
    let pointer = &raw mut out;
    run(&module.kernel("k").expect("defined"), &shape(1, 1), &[arg(&pointer)]).expect("runs");
    Ok(out)
}

/// A part of this program as a process of its own: one test, PART says that it is the child.
pub fn part(test: &str, part: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(PART, part);
    command
}

/// Whether this process is to play that part.
pub fn is_part(name: &str) -> bool {
    std::env::var(PART).is_ok_and(|part| part == name)
}

/// What it printed; it takes two minutes at most, and succeeds.
pub fn finished(command: &mut Command) -> String {
    let child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("spawned");
    let (done, watch) = channel::<()>();
    let pid = child.id() as i32;
    let watchdog = std::thread::spawn(move || {
        if watch.recv_timeout(Duration::from_secs(120)) == Err(RecvTimeoutError::Timeout) {
            // SAFETY: a child that has not been waited for.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    });
    let output = child.wait_with_output().expect("waited for");
    drop(done);
    watchdog.join().expect("no panic");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{}\n{text}", output.status);
    text
}

/// Tries of an attack; `make attack` makes it many more.
pub fn tries(few: u32) -> u32 {
    let rounds = std::env::var("RUSHMEM_TEST_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    few * rounds
}
