//! One launch of a kernel: checked against the limits, run by the caller's OS thread (block 0) and one pooled
//! OS thread for each other block, and over when all blocks have ended. Whichever thread of whichever block
//! gives up first says why; the others are dropped where they stand.

use std::ffi::c_void;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use crate::block::{self, Arguments};
use crate::check::{self, CheckedLaunch};
use crate::hooks::ThreadContext;
use crate::limits::{block_problem, volume, Limits, MAX_GRID};
use crate::lines::Lines;
use crate::pool;
use crate::source::SourceNames;
use crate::trace::Counters;
use crate::traced::KernelTrace;
use crate::watch::Watched;

/// The shape of a launch, in CUDA's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory of each block.
    pub shared: usize,
    /// Blocks need not all be resident: a few run at a time, in their order. They cannot meet.
    pub in_turns: bool,
}

/// Why a kernel gave up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The number that it passed to `rushmem_cpu_exit` (a `RUSHMEM_DEVICE_FAIL_*`).
    Code(u32),
    /// A trap, a failed assertion, an exception, a deadlock, no memory.
    Text(String),
    /// A block has not moved for longer than [`Reports::limit`].
    Stuck(String),
}

/// `blockIdx` and `threadIdx` of a thread.
pub type Place = ([u32; 3], [u32; 3]);

/// Which thread gave up first, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Why.
    pub cause: Cause,
    /// Which thread; of a deadlock or lack of memory, the block's first.
    pub place: Option<Place>,
    /// ` at k.cu:12 in rushmem::wait_until()`, from the debug information, or empty.
    pub at: String,
    /// What waits should know of blocks that take turns and had not begun: `; 5 of 9 blocks ...`, or empty.
    pub turns: String,
}

/// What is said of a launch while it runs, and by whom.
#[derive(Clone, Default)]
pub struct Reports {
    /// Whose launch it is, for texts: `PE 2 (host gpu01, pid 4711)`.
    pub who: String,
    /// A block that has not moved for so long is reported by a warning, and again at each doubling.
    pub stall: Option<Duration>,
    /// One that has not moved for so long, and a second, ends the launch. What waits by a rushmem call has
    /// ended it before, with a better text.
    pub limit: Option<Duration>,
    /// Notes its threads' calls, where the module was compiled for that.
    pub trace: Option<Arc<dyn KernelTrace>>,
}

impl fmt::Debug for Reports {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reports { who, stall, limit, .. } = self;
        out.debug_struct("Reports").field("who", who).field("stall", stall).field("limit", limit).finish()
    }
}

impl Reports {
    /// What a text begins with.
    pub(crate) fn prefix(&self) -> String {
        if self.who.is_empty() {
            String::new()
        } else {
            format!("{}: ", self.who)
        }
    }
}

/// How a launch can fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// Nothing has run: the shape is impossible or too large for this machine. The text names the largest
    /// grid.
    Refused(String),
    /// A thread gave up.
    Failed(Failure),
    /// The caller's stop flag was set.
    Stopped,
}

impl fmt::Display for RunError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Refused(text) => write!(out, "launch refused: {text}"),
            RunError::Stopped => write!(out, "stopped"),
            RunError::Failed(Failure { cause, place, at, turns }) => {
                if let Some(place) = place {
                    write!(out, "{}{at}: ", place_text(place).trim_start_matches(", "))?;
                }
                match cause {
                    Cause::Code(code) => write!(out, "the kernel gave up with code {code}{turns}"),
                    Cause::Text(text) | Cause::Stuck(text) => out.write_str(text),
                }
            }
        }
    }
}

impl std::error::Error for RunError {}

/// `, block (0,0,0), thread (5,0,0)`.
pub(crate) fn place_text(place: &Place) -> String {
    let ([bx, by, bz], [tx, ty, tz]) = place;
    format!(", block ({bx},{by},{bz}), thread ({tx},{ty},{tz})")
}

/// The functions of a loaded module that a block needs, and what texts need.
#[derive(Clone)]
pub(crate) struct Code {
    pub(crate) run: unsafe extern "C" fn(Arguments),
    pub(crate) slot: unsafe extern "C" fn() -> *mut *mut ThreadContext,
    /// The addresses of the module's code.
    pub(crate) text: Range<usize>,
    /// The kernel's name and its source's, in the module.
    pub(crate) kernel: *const str,
    pub(crate) names: *const SourceNames,
    /// Of a module with the hooks of checked or traced runs; else null.
    pub(crate) lines: *const Lines,
    /// What is checked.
    pub(crate) check: check::Mode,
}

impl Code {
    pub(crate) fn kernel(&self) -> &str {
        // SAFETY: the launch's caller holds the module.
        unsafe { &*self.kernel }
    }

    pub(crate) fn names(&self) -> &SourceNames {
        // SAFETY: the launch's caller holds the module.
        unsafe { &*self.names }
    }

    /// Of a module with the hooks of checked or traced runs.
    pub(crate) fn lines(&self) -> Option<&Lines> {
        // SAFETY: the launch's caller holds the module.
        unsafe { self.lines.as_ref() }
    }

    pub(crate) fn source(&self) -> &str {
        &self.names().name
    }
}

/// A launch under way. Shared by its blocks.
pub(crate) struct Launch {
    pub(crate) code: Code,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) threads: usize,
    pub(crate) shared: usize,
    pub(crate) args: Arguments,
    pub(crate) state: *const c_void,
    pub(crate) limits: Limits,
    /// Of a launch that is checked.
    pub(crate) check: Option<Arc<CheckedLaunch>>,
    stop: *const AtomicU32,
    reports: *const Reports,
    over: AtomicBool,
    cut_short: AtomicBool,
    failure: Mutex<Option<(Failure, Counters)>>,
    /// OS threads that run blocks.
    workers_left: AtomicUsize,
    blocks: u64,
    /// The next block to run, where blocks take turns; else past the last.
    next: AtomicU64,
    in_turns: bool,
    grid_barrier: AtomicU64,
    caller: Thread,
}

// SAFETY: the pointers are read-only for this crate (the stop flag is atomic) and stay valid until `run`
// returns, which is after the last block; what the kernel does with arguments and state is vouched for by
// `run`'s caller.
unsafe impl Send for Launch {}
// SAFETY: blocks read the pointers, and share atomics and a lock.
unsafe impl Sync for Launch {}

impl Launch {
    /// Ends the launch for this reason, unless there is one already.
    pub(crate) fn fail(&self, cause: Cause, place: Option<Place>) {
        self.fail_at(cause, place, Counters::default());
    }

    /// The same for a thread whose stack is known.
    pub(crate) fn fail_at(&self, cause: Cause, place: Option<Place>, counters: Counters) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        let turns = self.turns();
        failure.get_or_insert((Failure { cause, place, at: String::new(), turns }, counters));
        self.over.store(true, Ordering::Relaxed);
    }

    /// Whether no thread shall be resumed any more.
    pub(crate) fn is_over(&self) -> bool {
        // SAFETY: `run`'s caller keeps the flag alive.
        self.over.load(Ordering::Relaxed) || unsafe { &*self.stop }.load(Ordering::Relaxed) != 0
    }

    /// What is said of it.
    pub(crate) fn reports(&self) -> &Reports {
        // SAFETY: `run`'s caller keeps it alive.
        unsafe { &*self.reports }
    }

    /// What blocks meet by that synchronise as a grid; null where they do not run at the same time.
    pub(crate) fn grid_barrier(&self) -> *const AtomicU64 {
        if self.in_turns {
            std::ptr::null()
        } else {
            &self.grid_barrier
        }
    }

    /// What a text about a wait says of blocks that have not had their turn; empty where there are none.
    pub(crate) fn turns(&self) -> String {
        match self.blocks.saturating_sub(self.next.load(Ordering::Relaxed)) {
            0 => String::new(),
            waiting => format!(
                "; {waiting} of {} blocks have not begun, as blocks take turns in this launch: a wait for one of them \
                 cannot end",
                self.blocks
            ),
        }
    }

    /// Runs block `index`, and what blocks are left where they take turns, and says so.
    pub(crate) fn run_from(&self, index: u64) {
        let mut index = index;
        while index < self.blocks {
            if self.is_over() || !block::run(self, index) {
                self.cut_short.store(true, Ordering::Relaxed);
                break;
            }
            index = if self.in_turns { self.next.fetch_add(1, Ordering::Relaxed) } else { self.blocks };
        }
        if self.workers_left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.caller.unpark();
        }
    }
}

/// Runs a kernel to its end. See `Kernel::run` for the contract.
pub(crate) fn run(
    code: Code,
    limits: Limits,
    config: &LaunchConfig,
    args: Arguments,
    state: *const c_void,
    stop: &AtomicU32,
    reports: &Reports,
) -> Result<(), RunError> {
    let blocks = check(limits, config).map_err(RunError::Refused)?;
    let workers = if config.in_turns { workers(limits, config).min(blocks) } else { blocks };
    let _watched = Watched::new();
    let chain = code.lines().filter(|_| code.check.is_on()).and_then(|_| check::chain_of_this_thread());
    let checked = chain.map(|chain| Arc::new(CheckedLaunch::begin(chain, &code, config.grid, config.block)));
    let launch = Arc::new(Launch {
        code,
        grid: config.grid,
        block: config.block,
        threads: volume(config.block) as usize,
        shared: config.shared,
        args,
        state,
        limits,
        check: checked.clone(),
        stop,
        reports,
        over: AtomicBool::new(false),
        cut_short: AtomicBool::new(false),
        failure: Mutex::new(None),
        workers_left: AtomicUsize::new(workers as usize),
        blocks,
        next: AtomicU64::new(workers),
        in_turns: config.in_turns,
        grid_barrier: AtomicU64::new(0),
        caller: std::thread::current(),
    });
    pool::start(&launch, 1..workers).map_err(|error| {
        RunError::Refused(format!(
            "no OS thread for each of {workers} blocks ({error}); launch a smaller grid"
        ))
    })?;
    launch.run_from(0);
    while launch.workers_left.load(Ordering::Acquire) > 0 {
        std::thread::park();
    }
    if let Some(checked) = checked {
        checked.end();
    }
    let failed = launch.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((mut failure, counters)) = failed {
        failure.at = at(&failure.cause, &counters, launch.code.names());
        return Err(RunError::Failed(failure));
    }
    // A flag set after the last thread has exited stops nothing.
    if launch.cut_short.load(Ordering::Relaxed) {
        return Err(RunError::Stopped);
    }
    Ok(())
}

/// Where a thread gave up, unless the text says it.
fn at(cause: &Cause, counters: &Counters, names: &SourceNames) -> String {
    if counters.list().is_empty() {
        return String::new();
    }
    let place = counters.place(names);
    let is_said = match (cause, &place.at) {
        (Cause::Text(text), Some(at)) => text.contains(at),
        _ => false,
    };
    if is_said {
        String::new()
    } else {
        place.phrase()
    }
}

/// Blocks that run at the same time where they take turns: what keeps the cores busy, beside blocks that
/// wait.
fn workers(limits: Limits, config: &LaunchConfig) -> u64 {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    limits.max_blocks(config.block, config.shared).min((2 * cores).max(8))
}

/// The number of blocks, if they can all be resident, or need not be.
pub(crate) fn check(limits: Limits, config: &LaunchConfig) -> Result<u64, String> {
    let LaunchConfig { grid, block, shared, in_turns } = *config;
    if let Some(problem) = block_problem(block, shared) {
        return Err(problem);
    }
    let ([x, y, z], [most_x, most_y, most_z]) = (grid, MAX_GRID);
    if grid.contains(&0) {
        return Err(format!("the grid ({x}, {y}, {z}) has no blocks"));
    }
    if grid.iter().zip(MAX_GRID).any(|(&dim, most)| dim > most) {
        return Err(format!("a grid is at most ({most_x}, {most_y}, {most_z}), not ({x}, {y}, {z})"));
    }
    let (blocks, most) = (volume(grid), limits.max_blocks(block, shared));
    if blocks > most && !(in_turns && most > 0) {
        return Err(format!(
            "{blocks} blocks of {} threads cannot all be resident: the largest grid is {most} blocks (RUSHMEM_CPU_THREADS \
             {}, RUSHMEM_CPU_BLOCKS {}); blocks that need not be can take turns, in a launch that asks for it",
            volume(block),
            limits.threads,
            limits.blocks
        ));
    }
    Ok(blocks)
}
