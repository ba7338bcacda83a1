//! Where and when a figure was made: without that it means nothing. No host name and no path, so that the
//! record can be published as it is.

use std::fmt;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// The machine, the time and the code.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Environment {
    /// UTC, to the second.
    pub(crate) date: String,
    /// Of the bundle that this program lies in; else of the source tree that it was started in, `-dirty` when
    /// that had changes; none elsewhere.
    pub(crate) commit: Option<String>,
    /// As the kernel names it.
    pub(crate) cpu: String,
    /// That this process may use.
    pub(crate) cores: usize,
    /// Kernel release.
    pub(crate) kernel: String,
    /// One-minute load average at the start: how busy the machine was with other things.
    pub(crate) load: f64,
    /// `release` or `debug`.
    pub(crate) build: String,
    /// The GPUs that this process sees; empty where nobody looked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) gpus: Vec<String>,
    /// Of NVIDIA's kernel driver, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) driver: Option<String>,
    /// Arguments of this program, files without their folders.
    pub(crate) command: String,
}

impl Environment {
    /// Of this process, now. What cannot be read is `unknown`.
    pub(crate) fn here() -> Environment {
        let file = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpu = file("/proc/cpuinfo").lines().find_map(|line| {
            line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim().to_owned())
        });
        let first_word = |text: String| text.split_whitespace().next().map(str::to_owned);
        Environment {
            date: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            commit: commit(),
            cpu: cpu.unwrap_or_else(|| format!("unknown {}", std::env::consts::ARCH)),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: first_word(file("/proc/sys/kernel/osrelease")).unwrap_or_else(|| "unknown".to_owned()),
            load: first_word(file("/proc/loadavg")).and_then(|word| word.parse().ok()).unwrap_or(f64::NAN),
            build: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
            gpus: Vec::new(),
            driver: None,
            command: command(std::env::args().skip(1)),
        }
    }

    /// With what there is of GPUs, which starts CUDA.
    pub(crate) fn with_gpus(mut self) -> Environment {
        let gpus = rushmem::gpus().unwrap_or_default();
        self.gpus = gpus
            .iter()
            .map(|gpu| format!("{}, {} SMs, {} GiB", gpu.name, gpu.sms, gpu.memory >> 30))
            .collect();
        let version = std::fs::read_to_string("/sys/module/nvidia/version").ok();
        self.driver = version.map(|version| version.trim().to_owned()).filter(|_| !self.gpus.is_empty());
        self
    }
}

impl Environment {
    /// As lines of `# key: value`, for files that have no other place for it.
    pub(crate) fn comments(&self) -> String {
        let of = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
        let mut lines = vec![
            ("date", self.date.clone()),
            ("commit", of(&self.commit)),
            ("build", self.build.clone()),
            ("cpu", format!("{}, {} cores", self.cpu, self.cores)),
            ("load", format!("{:.2}", self.load)),
            ("kernel", self.kernel.clone()),
        ];
        if !self.gpus.is_empty() {
            lines.extend([("gpus", self.gpus.join("; ")), ("driver", of(&self.driver))]);
        }
        lines.push(("command", self.command.clone()));
        lines.iter().map(|(key, value)| format!("# {key}: {value}\n")).collect()
    }
}

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let commit = self.commit.as_deref().unwrap_or("unknown");
        write!(f, "{}, {} cores, load {:.1}, Linux {}; ", self.cpu, self.cores, self.load, self.kernel)?;
        write!(f, "commit {commit}, {} build, {}", self.build, self.date)
    }
}

fn command(arguments: impl Iterator<Item = String>) -> String {
    let name = |argument: String| match argument.rsplit_once('/') {
        Some((before, name)) => match before.split_once('=') {
            Some((option, _)) => format!("{option}={name}"),
            None => name.to_owned(),
        },
        None => argument,
    };
    arguments.map(name).collect::<Vec<_>>().join(" ")
}

/// A text for a record: of every path in it the last name alone.
pub(crate) fn without_folders(text: &str) -> String {
    let outside = |c: char| c.is_whitespace() || "()[],;:'\"=`".contains(c);
    let mut told = String::with_capacity(text.len());
    for piece in text.split_inclusive(outside) {
        let word = piece.trim_end_matches(outside);
        let path = word.starts_with(['/', '.', '~']) && word.contains('/');
        let name = word.rsplit_once('/').filter(|_| path).map_or(word, |(_, name)| name);
        told.extend([name, &piece[word.len()..]]);
    }
    told
}

/// A bundle says what it was built from (`make gpu-bundle`), wherever it was copied to.
fn bundled(program: &Path) -> Option<String> {
    let bundle = program.parent()?.parent()?;
    bundle.join("manifest.json").exists().then_some(())?;
    let commit = std::fs::read_to_string(bundle.join("commit")).ok()?;
    Some(commit.trim().to_owned()).filter(|commit| !commit.is_empty())
}

/// Only inside rushmem's own tree: any other repository's commit would be a lie.
fn commit() -> Option<String> {
    if let Some(commit) = std::env::current_exe().ok().as_deref().and_then(bundled) {
        return Some(commit);
    }
    let git = |arguments: &[&str]| {
        let out = Command::new("git").args(arguments).output().ok().filter(|out| out.status.success())?;
        Some(String::from_utf8_lossy(&out.stdout).trim().to_owned())
    };
    let top = git(&["rev-parse", "--show-toplevel"])?;
    Path::new(&top).join("host/bin/src/perf/environment.rs").exists().then_some(())?;
    git(&["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_told_without_folders() {
        let words = ["device", "put-bw", "--json", "/tmp/x/a.json", "--csv=../b.csv", "--check"];
        let told = command(words.into_iter().map(str::to_owned));
        assert_eq!(told, "device put-bw --json a.json --csv=b.csv --check");
    }

    #[test]
    fn a_record_has_no_paths() {
        for (text, want) in [
            ("UCX 1.16.0 (/lib/x86_64-linux-gnu/libucp.so.0) (GPU 0)", "UCX 1.16.0 (libucp.so.0) (GPU 0)"),
            (
                "A=/a/b:~/c:../d/e, 0.55 GB/s, and/or (0000:00:06.0)",
                "A=b:c:e, 0.55 GB/s, and/or (0000:00:06.0)",
            ),
            ("GB/s /a/b\n/c/d\n", "GB/s b\nd\n"),
        ] {
            assert_eq!(without_folders(text), want);
        }
    }

    #[test]
    fn a_bundle_says_what_it_was_built_from() {
        let temp = tempfile::tempdir().unwrap();
        let program = temp.path().join("bin/rushmem-perf");
        std::fs::write(temp.path().join("commit"), "0123abcd+changes\n").unwrap();
        assert_eq!(bundled(&program), None, "any folder may have a file of that name");
        std::fs::write(temp.path().join("manifest.json"), "{}").unwrap();
        assert_eq!(bundled(&program).as_deref(), Some("0123abcd+changes"));
    }
}
