//! Starts this program again as the PEs of a job, by the rushmem-run that lies beside it.

use std::fmt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What went wrong, in words for a person. The benchmark has no caller that would act on a code.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// A text that says what failed.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Failure {
        Failure(text.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// Any error becomes its text, so that `?` works on all of them; `Failure` itself is no `Error` for that
// reason.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure(error.to_string())
    }
}

/// Whether a launcher started this process as a PE.
pub(crate) fn inside() -> bool {
    ["RUSHMEM_PE", "RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"]
        .iter()
        .any(|name| std::env::var_os(name).is_some())
}

/// `rushmem-run -n pes -- rushmem-perf …`, the caller adds the arguments. It has a time limit, and no input.
pub(crate) fn command(pes: u32, limit_s: u32) -> Result<Command> {
    let own = std::env::current_exe().map_err(|error| Failure(format!("where is this program? {error}")))?;
    let launcher = beside(&own);
    if !launcher.exists() {
        return Err(Failure(format!(
            "{} is not there: it belongs beside rushmem-perf (cargo build -p rushmem-tools makes both)",
            launcher.display()
        )));
    }
    let mut command = Command::new(launcher);
    command
        .args(["-n", &pes.to_string(), "--timeout", &limit_s.to_string(), "--"])
        .arg(own)
        .stdin(Stdio::null());
    Ok(command)
}

fn beside(program: &std::path::Path) -> PathBuf {
    program.with_file_name("rushmem-run")
}

/// What makes the data of this run another than that of any before.
pub(crate) fn salt() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |now| now.as_nanos() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ u64::from(std::process::id())
}

/// Nanoseconds of a clock that all processes of the machine share.
pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the answer; this clock always exists on Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Keeps this process on one core, the `place`-th of those it may use, so that two PEs never share one while
/// another is idle. A refusal costs precision only.
pub(crate) fn pin(place: usize) {
    // SAFETY: an all-zero CPU set is a valid, empty one.
    let mut allowed: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is ours and as large as we say.
    if unsafe { libc::sched_getaffinity(0, size_of_val(&allowed), &mut allowed) } != 0 {
        return;
    }
    let cores: Vec<usize> = (0..libc::CPU_SETSIZE as usize)
        // SAFETY: the index is below CPU_SETSIZE.
        .filter(|&core| unsafe { libc::CPU_ISSET(core, &allowed) })
        .collect();
    let Some(&core) = cores.get(place % cores.len().max(1)) else { return };
    // SAFETY: an all-zero CPU set is an empty one; CPU_SET's index came out of such a set.
    unsafe {
        let mut only: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut only);
        libc::sched_setaffinity(0, size_of_val(&only), &only);
    }
}
