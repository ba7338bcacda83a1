//! What the tests share: a compiler with a cache of its own, launches under a time limit, and random data
//! whose seed is printed.

pub mod parts;

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rushmem_device_cpu::{
    Cause, Compiler, Failure, Kernel, LaunchConfig, Limits, Module, Optimization, Place, RunError,
};

/// The longest that one launch of these tests may take, on a loaded machine.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A cache that goes with the value, and a compiler that uses it.
pub struct Bench {
    /// The cache's folder.
    pub dir: tempfile::TempDir,
    /// The compiler.
    pub compiler: Compiler,
}

impl Default for Bench {
    fn default() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        Bench { compiler: compiler(dir.path()), dir }
    }
}

impl Bench {
    /// With an empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// The entries.
    pub fn cache(&self) -> PathBuf {
        cache(self.dir.path())
    }

    /// The source, compiled; panics with the compiler's messages.
    pub fn module(&self, source: &str) -> Module {
        self.compiler.compile("test.cu", source).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same with options of the compiler.
    pub fn module_with(&self, source: &str, options: &[&str]) -> Module {
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let compiler = Compiler { options, ..compiler(self.dir.path()) };
        compiler.compile("test.cu", source).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The messages about a source that must not compile.
    pub fn complaint(&self, source: &str) -> String {
        match self.compiler.compile("test.cu", source) {
            Err(rushmem_device_cpu::Error::Compile { text }) => text,
            other => panic!("expected a complaint of the compiler, got {other:?}"),
        }
    }
}

/// Where this user's entries are in a cache.
pub fn cache(dir: &Path) -> PathBuf {
    // SAFETY: no preconditions.
    dir.join(format!("uid-{}/cpu", unsafe { libc::geteuid() }))
}

/// A compiler with its cache there.
pub fn compiler(cache: &Path) -> Compiler {
    Compiler {
        // As the runtime does, so that the tests can be run with each compiler.
        cxx: std::env::var_os("RUSHMEM_CXX").filter(|cxx| !cxx.is_empty()).map(Into::into),
        cache_dir: Some(cache.to_owned()),
        options: Vec::new(),
        headers: &[],
        optimization: Optimization::from_env().expect("a level"),
        limits: Limits::default(),
        check: rushmem_device_cpu::check::Mode::OFF,
        trace: false,
    }
}

/// So many blocks of so many threads.
pub fn shape(grid: u32, block: u32) -> LaunchConfig {
    LaunchConfig { grid: [grid, 1, 1], block: [block, 1, 1], shared: 0, in_turns: false, early: false }
}

/// A pointer to an argument.
pub fn arg<T>(value: &T) -> *const c_void {
    std::ptr::from_ref(value).cast()
}

/// Runs a kernel; one that takes longer than the limit is stopped, and fails as such.
pub fn run(kernel: &Kernel, config: &LaunchConfig, args: &[*const c_void]) -> Result<(), RunError> {
    run_within(LIMIT, kernel, config, args)
}

/// [`run`] with a limit of its own.
pub fn run_within(
    limit: Duration,
    kernel: &Kernel,
    config: &LaunchConfig,
    args: &[*const c_void],
) -> Result<(), RunError> {
    let stop = Arc::new(AtomicU32::new(0));
    let (done, watch) = std::sync::mpsc::channel::<()>();
    let flag = stop.clone();
    let watchdog = std::thread::spawn(move || {
        if watch.recv_timeout(limit) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            flag.store(1, Ordering::Relaxed);
        }
    });
    // SAFETY: the tests pass arguments of their kernels' types.
    let result = unsafe { kernel.run(config, args, std::ptr::null(), &stop) };
    drop(done);
    watchdog.join().expect("the watchdog doesn't panic");
    result
}

/// The text of a launch that must fail, and where.
pub fn failure(result: Result<(), RunError>) -> (String, Option<Place>) {
    match result {
        Err(RunError::Failed(Failure { cause: Cause::Text(text), place, .. })) => (text, place),
        other => panic!("expected a failure with a text, got {other:?}"),
    }
}

/// xorshift64*.
pub struct Random(u64);

impl Default for Random {
    fn default() -> Self {
        let seed = std::env::var("SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
            now.as_nanos() as u64 ^ u64::from(std::process::id()) << 40
        });
        println!("SEED={seed}");
        Random(seed | 1)
    }
}

impl Random {
    /// A fresh one; `SEED` in the environment repeats a run.
    pub fn new() -> Self {
        Self::default()
    }

    /// A number of 64 bits.
    #[allow(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }

    /// So many of what `make` makes of a number.
    pub fn list<T>(&mut self, count: usize, mut make: impl FnMut(u64) -> T) -> Vec<T> {
        (0..count).map(|_| make(self.next())).collect()
    }
}

/// The shortest of some runs.
pub fn best_of(runs: u32, mut run: impl FnMut()) -> Duration {
    (0..runs)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed()
        })
        .min()
        .expect("at least one run")
}
