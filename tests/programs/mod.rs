//! Programs that tests start: examples and launchers, each in a process group of its own, with a time limit,
//! and killed with everything that they started when the test is done with them, however it ends.
//!
//! Their output goes to files: a pipe that nobody reads would stop a program, and one that a left-over
//! process holds would stop the test.

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::{Read, Seek};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// Between asking a program to end and killing it.
const GRACE: Duration = Duration::from_secs(2);

/// Variables of launchers. The tests may themselves run under one; their programs must not see it.
const LAUNCHERS: [&str; 12] = [
    "RUSHMEM_",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_",
    "MASTER_",
    "TORCHELASTIC_",
    "SLURM_",
    "OMPI_",
    "PMI",
    "PMIX_",
    "HYD",
    "GROUP_",
];

/// What a job gets from the environment of the tests rather than from a launcher: where it runs.
const WHERE: [&str; 6] = [
    "RUSHMEM_DEVICE",
    "RUSHMEM_TRANSPORT",
    "RUSHMEM_PES_PER_NODE",
    "RUSHMEM_NODES",
    "RUSHMEM_UCX_LIB",
    "RUSHMEM_CACHE_DIR",
];

/// What Open MPI's mpirun needs for PEs of this host alone: without `plm_rsh_agent` it refuses to start where
/// no ssh is installed.
pub const OPEN_MPI_ON_ONE_HOST: [&str; 11] = [
    "--allow-run-as-root",
    "--oversubscribe",
    "--mca",
    "btl",
    "self,vader",
    "--mca",
    "pml",
    "ob1",
    // What it would start elsewhere: nothing.
    "--mca",
    "plm_rsh_agent",
    "false",
];

/// A command without any launcher's variables.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if LAUNCHERS.iter().any(|prefix| text.starts_with(prefix)) && !WHERE.contains(&&*text) {
            command.env_remove(name);
        }
    }
    command
}

/// What programs say of their device: that it is the one that `RUSHMEM_DEVICE` asks for, or what the machine
/// has.
pub fn device() -> &'static str {
    let asked = std::env::var("RUSHMEM_DEVICE").unwrap_or_default();
    match asked.split(':').next() {
        Some("cuda") => "device: GPU",
        Some("cpu") => "device: CPU",
        _ if Path::new("/dev/nvidiactl").exists() => "device: ",
        _ => "device: CPU",
    }
}

/// Copies a program, by a process that does nothing else: while this one had the copy open, a child that
/// another thread forks meanwhile would have it open, too, and the copy could not be run ("Text file busy").
#[track_caller]
pub fn copied(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let status = Command::new("cp").arg("-p").arg(from.as_ref()).arg(to.as_ref()).status();
    assert!(status.expect("there is cp").success(), "{} cannot be copied", from.as_ref().display());
}

/// Writes a script that can be run, for which [`copied`] says why it takes a copy.
#[track_caller]
pub fn script(to: &Path, text: &str) {
    let written = to.with_extension("written");
    std::fs::write(&written, text).expect("the folder takes files");
    std::fs::set_permissions(&written, Permissions::from_mode(0o755)).expect("the file is ours");
    copied(&written, to);
}

/// A program that runs.
pub struct Running {
    what: String,
    child: Child,
    stdout: File,
    stderr: File,
    started: Instant,
}

/// Starts it.
#[track_caller]
pub fn start(command: &mut Command) -> Running {
    let what = format!("{command:?}");
    let file = || tempfile::tempfile().expect("the temporary folder takes files");
    let (stdout, stderr) = (file(), file());
    let shared = |file: &File| file.try_clone().expect("descriptors are left");
    command.stdin(Stdio::null()).stdout(shared(&stdout)).stderr(shared(&stderr)).process_group(0);
    let child = command.spawn().unwrap_or_else(|error| panic!("cannot start {what}: {error}"));
    Running { what, child, stdout, stderr, started: Instant::now() }
}

impl Running {
    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end; panics with what it wrote if that takes longer than `limit` from its start.
    #[track_caller]
    pub fn wait(mut self, limit: Duration) -> Ended {
        loop {
            if let Some(status) = self.child.try_wait().expect("the child is ours") {
                let (stdout, stderr) = self.output();
                return Ended { what: self.what.clone(), status, stdout, stderr };
            }
            if self.started.elapsed() > limit {
                self.end();
                let (stdout, stderr) = self.output();
                panic!("still running after {limit:?}: {}\n{stdout}\n{stderr}", self.what);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until it has written `word` to its standard output; panics with what it wrote instead if it ends
    /// before that, or if that takes longer than `limit` from its start.
    #[track_caller]
    pub fn wait_for(&mut self, word: &str, limit: Duration) {
        self.wait_for_all(word, 1, limit);
    }

    /// [`wait_for`](Running::wait_for) `n` times.
    #[track_caller]
    pub fn wait_for_all(&mut self, word: &str, n: usize, limit: Duration) {
        loop {
            let over = !matches!(self.child.try_wait(), Ok(None)) || self.started.elapsed() > limit;
            let stdout = so_far(&self.stdout);
            if stdout.matches(word).count() >= n {
                return;
            }
            if over {
                let stderr = so_far(&self.stderr);
                panic!("no {word:?} from {} within {limit:?}:\n{stdout}\n{stderr}", self.what);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What it has written to its standard output by now.
    pub fn stdout(&self) -> String {
        so_far(&self.stdout)
    }

    /// Sends a signal to the program alone.
    pub fn signal(&self, signal: i32) {
        send(self.child.id() as i32, signal);
    }

    fn output(&mut self) -> (String, String) {
        (text(&mut self.stdout), text(&mut self.stderr))
    }

    /// Asks it to end, so that a launcher can end what it started, and then leaves it no choice.
    fn end(&mut self) {
        let group = -(self.child.id() as i32);
        let asked = Instant::now();
        send(self.child.id() as i32, libc::SIGTERM);
        while matches!(self.child.try_wait(), Ok(None)) && asked.elapsed() < GRACE {
            std::thread::sleep(Duration::from_millis(5));
        }
        send(group, libc::SIGKILL);
        // A failure to reap can only mean that it is reaped.
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        match self.child.try_wait() {
            Ok(None) => self.end(),
            // What it left behind in its group, if anything.
            _ => send(-(self.child.id() as i32), libc::SIGKILL),
        }
    }
}

fn send(pid: i32, signal: i32) {
    // SAFETY: a plain system call. The pid is a child's, not reaped while it runs, or the group that it led;
    // a group that is gone makes it fail, harmlessly.
    unsafe { libc::kill(pid, signal) };
}

/// What is in a file that a program still writes to, without moving the place where it writes.
fn so_far(file: &File) -> String {
    let mut bytes = vec![0; file.metadata().map_or(0, |meta| meta.len() as usize)];
    let read = file.read_at(&mut bytes, 0).expect("a temporary file can be read");
    String::from_utf8_lossy(&bytes[..read]).into_owned()
}

fn text(file: &mut File) -> String {
    let mut bytes = Vec::new();
    file.rewind().and_then(|()| file.read_to_end(&mut bytes)).expect("a temporary file can be read");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A program that has ended.
pub struct Ended {
    what: String,
    /// How.
    pub status: ExitStatus,
    /// What it wrote.
    pub stdout: String,
    /// What it wrote of mistakes.
    pub stderr: String,
}

impl Ended {
    /// It must have ended well.
    #[track_caller]
    pub fn ok(self) -> Ended {
        assert!(self.status.success(), "{self}");
        self
    }

    /// It must have ended by itself and not well.
    #[track_caller]
    pub fn failed(self) -> Ended {
        assert!(!self.status.success() && self.status.signal().is_none(), "{self}");
        self
    }

    /// It must have said each of these.
    #[track_caller]
    pub fn says<T: AsRef<str>>(self, words: &[T]) -> Ended {
        for word in words.iter().map(AsRef::as_ref) {
            assert!(self.stdout.contains(word) || self.stderr.contains(word), "{word:?} is missing: {self}");
        }
        self
    }

    /// The lines of its output that contain `word`.
    pub fn lines_with(&self, word: &str) -> Vec<&str> {
        self.stdout.lines().chain(self.stderr.lines()).filter(|line| line.contains(word)).collect()
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Ended { what, status, stdout, stderr } = self;
        write!(f, "{what}\nended with {status}\n--- stdout\n{stdout}\n--- stderr\n{stderr}")
    }
}

/// Runs it to its end.
#[track_caller]
pub fn run(command: &mut Command, limit: Duration) -> Ended {
    start(command).wait(limit)
}

/// The folder that cargo built this test into, such as `target/debug`.
pub fn built() -> PathBuf {
    let exe = std::env::current_exe().expect("a test knows where it is");
    exe.parent().and_then(Path::parent).expect("it lies in target/<profile>/deps").to_owned()
}

/// The root of the tree.
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The root crate's example of this name. `cargo test` builds examples, but not for `--test examples` alone:
/// then this does.
#[track_caller]
pub fn example(name: &str) -> PathBuf {
    let sources = root().join("examples");
    let newest = newest(&sources);
    ensure(built().join("examples").join(name), newest, &["-p", "rushmem", "--example", name])
}

/// `rushmem-run`, to start `n` PEs of a program. The workspace's build makes it; `cargo test` of the root
/// crate alone does not.
#[track_caller]
pub fn rushmem_run(n: u32, program: impl AsRef<OsStr>) -> Command {
    let mut command = launcher();
    command.args(["-n", &n.to_string(), "--"]).arg(program);
    command
}

/// `rushmem-run` without arguments.
#[track_caller]
pub fn launcher() -> Command {
    let newest = newest(&root().join("host/bin/src/run"));
    command(ensure(built().join("rushmem-run"), newest, &["-p", "rushmem-tools", "--bin", "rushmem-run"]))
}

/// `rushmem-info`, built as `rushmem-run` is.
#[track_caller]
pub fn rushmem_info() -> Command {
    let newest = newest(&root().join("host/bin/src/info"));
    command(ensure(built().join("rushmem-info"), newest, &["-p", "rushmem-tools", "--bin", "rushmem-info"]))
}

/// Builds what is missing, or older than `newest`.
#[track_caller]
fn ensure(path: PathBuf, newest: Option<SystemTime>, what: &[&str]) -> PathBuf {
    let is_there =
        || path.metadata().and_then(|meta| meta.modified()).is_ok_and(|built| Some(built) >= newest);
    if is_there() {
        return path;
    }
    let built = built();
    let profile = match built.file_name().and_then(OsStr::to_str) {
        None | Some("debug") => "dev",
        Some(name) => name,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build
        .args(["build", "--profile", profile])
        .args(what)
        .arg("--target-dir")
        .arg(built.parent().unwrap_or(&built));
    run(build.current_dir(root()), Duration::from_secs(600)).ok();
    assert!(path.exists(), "cargo build {what:?} did not make {}", path.display());
    path
}

/// When the newest file in a folder, or in a folder of it, was changed.
fn newest(folder: &Path) -> Option<SystemTime> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let meta = entry.metadata().ok()?;
            if meta.is_dir() {
                newest(&entry.path())
            } else {
                meta.modified().ok()
            }
        })
        .max()
}

/// A program on the search path.
pub fn installed(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// A TCP port that nothing uses and that the system does not hand out by itself, so that no other test gets
/// it.
pub fn free_port() -> u16 {
    use std::hash::{BuildHasher, RandomState};
    let mut random = RandomState::new().hash_one(std::process::id());
    loop {
        let port = 10_000 + (random % 20_000) as u16;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
        random = random.rotate_left(7).wrapping_mul(0x9e3779b97f4a7c15) + 1;
    }
}
