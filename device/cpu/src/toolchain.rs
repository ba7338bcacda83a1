//! The system's C++ compiler: which one it is, found once for each process, and running it within a time
//! limit.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{memfd_create, MemfdFlags};

use crate::error::Error;

/// The longest that one run of a compiler may take.
const RUN_LIMIT: Duration = Duration::from_secs(300);

/// A compiler whose version is known.
#[derive(Debug)]
pub(crate) struct Toolchain {
    pub(crate) program: PathBuf,
    /// What comes before all other arguments (`g++` in `ccache g++`).
    pub(crate) first: Vec<OsString>,
    /// The output of `--version`.
    pub(crate) version: String,
    /// The file's path, size and time, for the cache key.
    pub(crate) stamp: String,
}

impl Toolchain {
    pub(crate) fn is_clang(&self) -> bool {
        self.version.contains("clang")
    }

    /// `wanted` (a path, a name, or a command with arguments), else the first of c++, g++ and clang++.
    pub(crate) fn find(wanted: Option<&Path>) -> Result<Arc<Self>, Error> {
        let Some(wanted) = wanted else {
            let found = ["c++", "g++", "clang++"].iter().find_map(|name| in_path(Path::new(name)));
            let Some(program) = found else {
                let text = "no C++ compiler (c++, g++, clang++) in PATH: kernels for the CPU need one; install g++ or \
                            clang, or set RUSHMEM_CXX";
                return Err(Error::NoCompiler { text: text.into() });
            };
            return Self::ask(&program, &[]);
        };
        if let Some(program) = in_path(wanted) {
            return Self::ask(&program, &[]);
        }
        let words: Vec<&str> =
            wanted.to_str().map(|text| text.split_whitespace().collect()).unwrap_or_default();
        if let Some((program, first)) = words.split_first() {
            if let (Some(program), false) = (in_path(Path::new(program)), first.is_empty()) {
                return Self::ask(&program, &first.iter().map(OsString::from).collect::<Vec<_>>());
            }
        }
        Err(Error::NoCompiler {
            text: format!("RUSHMEM_CXX={} is no program, here or in PATH", wanted.display()),
        })
    }

    fn ask(program: &Path, first: &[OsString]) -> Result<Arc<Self>, Error> {
        static KNOWN: Mutex<Option<HashMap<String, Arc<Toolchain>>>> = Mutex::new(None);
        let failed = |why: String| Error::NoCompiler {
            text: format!(
                "the C++ compiler {} does not run: {why} (RUSHMEM_CXX names another)",
                program.display()
            ),
        };
        let meta = fs::metadata(program).map_err(|error| failed(error.to_string()))?;
        let stamp = format!("{program:?} {first:?} {} {}.{}", meta.len(), meta.mtime(), meta.mtime_nsec());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get_or_insert_default();
        if let Some(toolchain) = known.get(&stamp) {
            return Ok(toolchain.clone());
        }
        let output = Command::new(program)
            .args(first)
            .arg("--version")
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| failed(error.to_string()))?;
        if !output.status.success() {
            return Err(failed(format!("--version: {}", output.status)));
        }
        let version = String::from_utf8_lossy(&output.stdout).into_owned();
        let toolchain = Arc::new(Toolchain {
            program: program.to_owned(),
            first: first.to_vec(),
            version,
            stamp: stamp.clone(),
        });
        known.insert(stamp, toolchain.clone());
        Ok(toolchain)
    }

    /// Runs the compiler, whose temporary files go to `scratch`; its messages come back with the status. They
    /// are kept in memory, because on a full disk they are the only report of it.
    pub(crate) fn run(&self, args: &[OsString], scratch: &Path) -> Result<(ExitStatus, String), Error> {
        let failed = |error: std::io::Error| Error::NoCompiler {
            text: format!("running the C++ compiler {}: {error}", self.program.display()),
        };
        let messages = memfd_create("compiler messages", MemfdFlags::CLOEXEC).map(File::from);
        let mut messages = messages.map_err(|error| failed(error.into()))?;
        let stderr = messages.try_clone().map_err(failed)?;
        let mut child = Command::new(&self.program)
            .args(&self.first)
            .args(args)
            .env("LC_ALL", "C")
            .env("TMPDIR", scratch)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .map_err(failed)?;
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().map_err(failed)? {
                break status;
            }
            if start.elapsed() > RUN_LIMIT {
                let _ = child.kill();
                let _ = child.wait();
                let text = format!("the C++ compiler took more than {} s and was ended", RUN_LIMIT.as_secs());
                return Err(Error::Interrupted { text });
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let mut text = Vec::new();
        messages.rewind().and_then(|()| messages.read_to_end(&mut text)).map_err(failed)?;
        Ok((status, String::from_utf8_lossy(&text).into_owned()))
    }
}

/// What a run that failed says about the machine and not about the source, if it does. The driver's own end
/// may tell, or its message about the end of a program that it ran, or a message about a file.
pub(crate) fn machine_fault(status: ExitStatus, text: &str) -> Option<Error> {
    // Words of the source are quoted behind its line number, or by `#error`.
    let quoted = |line: &str| {
        line.contains("#error") || line.trim_start().starts_with(|c: char| c.is_ascii_digit() || c == '|')
    };
    let says = |words: &[&str]| {
        text.lines().any(|line| !quoted(line) && words.iter().any(|word| line.contains(word)))
    };
    let no_room =
        ["No space left on device", "Disk quota exceeded", "File too large", "File size limit exceeded"];
    let text = text.trim();
    if status.signal() == Some(libc::SIGXFSZ) || says(&no_room) {
        let text = format!("no room on the disk for what the C++ compiler writes ({status})\n{text}");
        return Some(Error::Io { text });
    }
    if says(&["Read-only file system", "Input/output error"]) {
        return Some(Error::Io { text: format!("the C++ compiler cannot use its files ({status})\n{text}") });
    }
    // GCC's driver, its linker's driver, and Clang.
    let killed = [
        "Killed signal terminated program",
        "Terminated signal terminated program",
        "terminated with signal 9",
        "terminated with signal 15",
        "unable to execute command: Killed",
        "unable to execute command: Terminated",
    ];
    if status.signal().is_some() || says(&killed) {
        let text = format!("the C++ compiler was killed ({status}): is there enough memory?\n{text}");
        return Some(Error::Interrupted { text: text.trim().to_owned() });
    }
    None
}

/// The C++ compiler that kernels for the CPU are compiled with, where [`Compiler::cxx`](crate::Compiler::cxx)
/// is `wanted`: its program, and the first line of what it says about its version.
pub fn find_compiler(wanted: Option<&Path>) -> Result<(PathBuf, String), Error> {
    let found = Toolchain::find(wanted)?;
    Ok((found.program.clone(), found.version.lines().next().unwrap_or_default().trim().to_owned()))
}

/// The program file that `name` means, as a shell would look for it.
fn in_path(name: &Path) -> Option<PathBuf> {
    let runnable =
        |path: &Path| fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.mode() & 0o111 != 0);
    if name.components().count() != 1 || name.is_absolute() {
        return runnable(name).then(|| name.to_owned());
    }
    std::env::split_paths(&std::env::var_os("PATH")?).map(|dir| dir.join(name)).find(|path| runnable(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_and_remembers() {
        let found = Toolchain::find(None).expect("the tests need a C++ compiler");
        assert!(found.program.is_absolute() && !found.version.is_empty());
        assert!(Arc::ptr_eq(&found, &Toolchain::find(Some(&found.program)).expect("the same")));
        let with_arguments = format!("env {}", found.program.display());
        let env = Toolchain::find(Some(Path::new(&with_arguments))).expect("env runs it");
        assert_eq!(env.version, found.version);
    }

    #[test]
    fn a_machine_s_fault_is_not_the_source_s() {
        let (failed, killed) = (ExitStatus::from_raw(1 << 8), ExitStatus::from_raw(libc::SIGKILL));
        let disk =
            "/tmp/ccX.s: Assembler messages: Fatal error: can't write 4 bytes: No space left on device";
        let lto = "c++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.";
        let linker = "collect2: fatal error: ld terminated with signal 9 [Killed]";
        assert!(
            matches!(machine_fault(failed, disk), Some(Error::Io { text }) if text.contains("disk") && text.contains(disk))
        );
        assert!(matches!(machine_fault(ExitStatus::from_raw(libc::SIGXFSZ), ""), Some(Error::Io { .. })));
        for (status, text) in [(failed, lto), (failed, linker), (killed, "")] {
            assert!(matches!(machine_fault(status, text), Some(Error::Interrupted { .. })), "{text}");
        }
        let source =
            "k.cu:1:2: error: #error No space left on device\n    1 | #error No space left on device";
        assert_eq!(machine_fault(failed, source), None);
        assert_eq!(machine_fault(failed, "k.cu:3:1: error: 'x' was not declared in this scope"), None);
    }

    #[test]
    fn says_what_is_missing() {
        let error = Toolchain::find(Some(Path::new("/nowhere/c++"))).expect_err("no such file");
        assert!(error.to_string().contains("RUSHMEM_CXX=/nowhere/c++"), "{error}");
        let error = Toolchain::find(Some(Path::new("false"))).expect_err("not a compiler");
        assert!(error.to_string().contains("does not run"), "{error}");
    }
}
