//! One launch of a kernel: checked against the limits, shared by the OS threads that run its blocks, and over
//! when all of these have ended. Whichever thread of whichever block gives up first says why; the others are
//! dropped where they stand.

use std::ffi::c_void;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use crate::check::{self, CheckedLaunch};
use crate::code::{Arguments, Code};
use crate::kernel_trace::KernelTrace;
use crate::limits::{block_problem, volume, Limits, MAX_GRID};
use crate::outcome::{Cause, Failure, Place, RunError};
use crate::stack_trace::Counters;

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
    /// On a GPU the kernel may start while the one before it on its stream ends: checked runs look whether it
    /// waits for that before it uses what that one does. Here it never does.
    pub early: bool,
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
    /// OS threads that run blocks: as many as there are blocks, but where these take turns.
    pub(crate) workers: u64,
    workers_left: AtomicUsize,
    blocks: u64,
    /// The next block to run, where blocks take turns; else past the last.
    next: AtomicU64,
    in_turns: bool,
    grid_barrier: AtomicU64,
    caller: Thread,
}

// SAFETY: the pointers are read-only for this crate (the stop flag is atomic) and stay valid until the launch
// has ended, which is after the last block; what the kernel does with arguments and state is vouched for by
// the launch's caller.
unsafe impl Send for Launch {}
// SAFETY: blocks read the pointers, and share atomics and a lock.
unsafe impl Sync for Launch {}

impl Launch {
    /// A launch that begins now, if it has room. See `Kernel::run` for the contract; the pointers stay valid
    /// until [`Launch::end`].
    pub(crate) fn begin(
        code: Code,
        limits: Limits,
        config: &LaunchConfig,
        args: Arguments,
        state: *const c_void,
        stop: &AtomicU32,
        reports: &Reports,
    ) -> Result<Launch, RunError> {
        let blocks = check(limits, config).map_err(RunError::Refused)?;
        let workers = if config.in_turns { workers(limits, config).min(blocks) } else { blocks };
        let chain = if code.check.is_on() { check::chain_of_this_thread() } else { None };
        let LaunchConfig { grid, block, early, .. } = *config;
        let checked = chain.map(|chain| Arc::new(CheckedLaunch::begin(chain, &code, grid, block, early)));
        Ok(Launch {
            code,
            grid: config.grid,
            block: config.block,
            threads: volume(config.block) as usize,
            shared: config.shared,
            args,
            state,
            limits,
            check: checked,
            stop,
            reports,
            over: AtomicBool::new(false),
            cut_short: AtomicBool::new(false),
            failure: Mutex::new(None),
            workers,
            workers_left: AtomicUsize::new(workers as usize),
            blocks,
            next: AtomicU64::new(workers),
            in_turns: config.in_turns,
            grid_barrier: AtomicU64::new(0),
            caller: std::thread::current(),
        })
    }

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
        // SAFETY: the launch's caller keeps the flag alive.
        self.over.load(Ordering::Relaxed) || unsafe { &*self.stop }.load(Ordering::Relaxed) != 0
    }

    /// What is said of it.
    pub(crate) fn reports(&self) -> &Reports {
        // SAFETY: the launch's caller keeps it alive.
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

    /// Runs block `index` by `run`, which says whether it ran to its end, and what blocks are left where they
    /// take turns. One worker's part.
    pub(crate) fn run_from(&self, index: u64, run: fn(&Launch, u64) -> bool) {
        let mut index = index;
        while index < self.blocks {
            if self.is_over() || !run(self, index) {
                self.cut_short.store(true, Ordering::Relaxed);
                break;
            }
            index = if self.in_turns { self.next.fetch_add(1, Ordering::Relaxed) } else { self.blocks };
        }
        if self.workers_left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.caller.unpark();
        }
    }
    /// Waits for all workers, and says how it went. By the thread that began the launch.
    pub(crate) fn end(&self) -> Result<(), RunError> {
        while self.workers_left.load(Ordering::Acquire) > 0 {
            std::thread::park();
        }
        if let Some(checked) = &self.check {
            checked.end();
        }
        let failed = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((mut failure, counters)) = failed {
            failure.at = at(&failure.cause, &counters, &self.code);
            return Err(RunError::Failed(failure));
        }
        // A flag set after the last thread has exited stops nothing.
        if self.cut_short.load(Ordering::Relaxed) {
            return Err(RunError::Stopped);
        }
        Ok(())
    }
}

/// Where a thread gave up, unless the text says it.
fn at(cause: &Cause, counters: &Counters, code: &Code) -> String {
    if counters.list().is_empty() {
        return String::new();
    }
    let place = code.place(counters);
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
    let LaunchConfig { grid, block, shared, in_turns, .. } = *config;
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
