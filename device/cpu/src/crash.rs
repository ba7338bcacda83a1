//! A fault of a kernel, or of a call of rushmem's, ends the process with a text: which kernel, block, thread
//! and line, what the address is, which allocation is nearest. The text comes from the handler of the fault;
//! what happens to the process afterwards is what would have happened without it.
//!
//! **Whose faults.** Those of a thread that runs a block; those at an address of symmetric memory or of its
//! windows, wherever the code is; and those in a call of the C ABI, on any thread. Everything else is handed
//! on at once, unless `RUSHMEM_CRASH_REPORT=all` asks for a text about it, too: a driver's or a compiler's
//! own thread that dies otherwise ends the process without a word. The program's own handlers stay: one that
//! was there before is called after the text, and one that is installed later comes first and sees
//! everything.
//!
//! **What the handler may do.** It can have interrupted anything: malloc with its lock held, the dynamic
//! linker, `log`. So it allocates nothing and takes no lock. It claims the one `Facts` of the process by an
//! atomic, fills in numbers, and makes a child by a bare `clone`: no `fork` of libc's, whose handlers take
//! locks. The child has the memory as it was at the fault, and one thread. It alone unwinds, reads debug
//! information, allocates and writes. A lock that any thread held at that moment is held in the child for
//! ever, and a heap that is broken may end it: so the parent waits for it for `PATIENCE` at most, then ends
//! it and writes the numbers alone. The child asks for a signal when its parent dies, and is gone before the
//! parent goes on, so that no socket of the job outlives the process: the other PEs see the death as any
//! other, and launchers see the signal.
//!
//! **Where it runs.** Threads that run blocks have an alternate stack of 512 KiB (`os_thread.rs`), because
//! the fault may be that the stack is full. Other threads have what the program gave them, perhaps 8 KiB of
//! which the registers take most: the handler's own frames are small, and the child works on a stack that it
//! maps itself.

mod address;
mod deferred;
mod text;

use std::cell::UnsafeCell;
use std::fmt::Write;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Once, OnceLock};
use std::time::Duration;

use crate::os_thread::{self, OsThread, FAULTS};
use crate::signals;

pub use deferred::Deferred;

/// The longest that the text may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of stack that a library has at most which a call of ours has called.
const LIBRARIES_STACK: usize = 128 << 10;
/// Faults of a process with a text. One may be handled by the program, which goes on.
const MOST: u32 = 4;
/// How a child ends that has nothing to say: the fault is not ours.
const NOT_OURS: i32 = 3;

/// What a runtime knows and a kernel's device does not. All is called in the child alone, but for `covers`.
pub struct Knowledge {
    /// Whether this is an address in a window of symmetric memory. Called in signal handlers.
    pub covers: fn(usize) -> bool,
    /// What is at or near an address of symmetric memory.
    pub memory: fn(usize) -> Option<String>,
    /// Whose process this is: `PE 2 (host gpu01, pid 4711)`.
    pub who: fn() -> Option<String>,
}

static KNOWLEDGE: OnceLock<Knowledge> = OnceLock::new();

/// What handlers need, gathered beforehand.
struct Prepared {
    previous: [Option<libc::sigaction>; FAULTS.len()],
    /// The code of the library that this is in.
    own: Range<usize>,
    /// Whether faults of others have a text, too.
    all: bool,
}

static PREPARED: OnceLock<Prepared> = OnceLock::new();

/// A fault, in numbers.
#[derive(Clone, Copy)]
struct Facts {
    signal: i32,
    code: i32,
    address: usize,
    counter: usize,
    top: usize,
    context: *const libc::ucontext_t,
    os_thread: *const OsThread,
}

struct Shared(UnsafeCell<Facts>);
// SAFETY: only the thread that has claimed it, and its child, touch the content.
unsafe impl Sync for Shared {}

static FACTS: Shared = Shared(UnsafeCell::new(Facts {
    signal: 0,
    code: 0,
    address: 0,
    counter: 0,
    top: 0,
    context: std::ptr::null(),
    os_thread: std::ptr::null(),
}));

/// The thread that makes a text, or 0.
static CLAIMED: AtomicI32 = AtomicI32::new(0);
static TEXTS: AtomicU32 = AtomicU32::new(0);
/// The process is about to end by a fault that has its text.
static DYING: AtomicBool = AtomicBool::new(false);

/// Installs the handlers, once in a process, unless `RUSHMEM_CRASH_REPORT` is 0. If it is `all`, they tell of
/// faults in the code of others, too.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let wish = std::env::var_os("RUSHMEM_CRASH_REPORT").unwrap_or_default();
        if wish == "0" {
            return;
        }
        let own = signals::text_of(install as *const () as usize);
        let previous = FAULTS.map(|signal| {
            let flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            signals::install(signal, on_fault, flags)
        });
        let _ = PREPARED.set(Prepared { previous, own, all: wish == "all" });
    });
}

/// The runtime says what it knows. The first does; a process has one runtime.
pub fn know(knowledge: Knowledge) {
    let _ = KNOWLEDGE.set(knowledge);
}

extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a handler both.
    let (code, address, interrupted) =
        unsafe { ((*info).si_code, (*info).si_addr() as usize, &*context.cast::<libc::ucontext_t>()) };
    // A signal that was sent is none of ours.
    if code > 0 {
        // SAFETY: what the kernel says of this thread's alternate stack.
        let os_thread =
            unsafe { os_thread::at(&interrupted.uc_stack) }.filter(|os_thread| os_thread.runs_block());
        let facts = Facts {
            signal,
            code,
            address,
            counter: signals::counter(interrupted),
            top: signals::stack_pointer(interrupted),
            context: interrupted,
            os_thread: os_thread.map_or(std::ptr::null(), std::ptr::from_ref),
        };
        if os_thread.is_some() || is_memory(address) || tells_of_all() || may_be_a_call(interrupted) {
            tell(facts);
        }
    }
    let index = FAULTS.iter().position(|fault| *fault == signal);
    let previous = index.and_then(|index| PREPARED.get().and_then(|prepared| prepared.previous[index]));
    // SAFETY: the kernel's own arguments, handed on.
    if previous.is_some_and(|previous| unsafe { signals::call(&previous, signal, info, context) }) {
        return;
    }
    // The instruction runs again, and ends the process by its signal, as if no handler had been.
    DYING.store(true, Ordering::SeqCst);
    signals::reset(signal);
    if code <= 0 {
        // SAFETY: sends this thread the signal that it got.
        unsafe { libc::raise(signal) };
    }
}

fn tells_of_all() -> bool {
    PREPARED.get().is_some_and(|prepared| prepared.all)
}

fn is_memory(address: usize) -> bool {
    KNOWLEDGE.get().is_some_and(|knowledge| (knowledge.covers)(address))
}

/// Whether the fault may be in a call of ours: the counter is in this library's code, or an address of it is
/// near the top of the stack. The child unwinds, and knows.
fn may_be_a_call(interrupted: &libc::ucontext_t) -> bool {
    let Some(own) = PREPARED.get().map(|prepared| &prepared.own) else { return false };
    if own.contains(&signals::counter(interrupted)) {
        return true;
    }
    let from = match signals::return_slot(interrupted) {
        Ok(caller) if own.contains(&caller) => return true,
        Ok(_) => signals::stack_pointer(interrupted),
        Err(slot) => slot,
    };
    // Frames of libc, of the network's library, of a driver or of its compiler, which are large.
    let mut words = [0usize; 64];
    for block in 0..LIBRARIES_STACK / size_of_val(&words) {
        let read = signals::peek(from + block * size_of_val(&words), &mut words) / size_of::<usize>();
        if words[..read].iter().any(|word| own.contains(word)) {
            return true;
        }
        if read < words.len() {
            break;
        }
    }
    false
}

/// Makes the text, unless there have been enough.
fn tell(facts: Facts) {
    // SAFETY: no arguments.
    let me = unsafe { libc::syscall(libc::SYS_gettid) } as i32;
    let mut waited = Duration::ZERO;
    while CLAIMED.compare_exchange(0, me, Ordering::SeqCst, Ordering::SeqCst).is_err() {
        // Another thread has one in hand. A fault of the handler itself has none.
        if CLAIMED.load(Ordering::SeqCst) == me || waited > 2 * PATIENCE {
            return;
        }
        waited += nap();
    }
    if !waited.is_zero() {
        // The other thread's instruction runs again now, and ends the process, unless a handler of the
        // program's has seen to it.
        for _ in 0..200 {
            nap();
        }
    }
    if DYING.load(Ordering::SeqCst) {
        // The other thread's instruction ends the process now.
        CLAIMED.store(0, Ordering::SeqCst);
        for _ in 0..1000 {
            nap();
        }
        return;
    }
    if TEXTS.load(Ordering::Relaxed) < MOST {
        // SAFETY: claimed just now.
        unsafe { *FACTS.0.get() = facts };
        match by_child() {
            Some(NOT_OURS) => {}
            Some(0) => drop(TEXTS.fetch_add(1, Ordering::Relaxed)),
            _ => {
                TEXTS.fetch_add(1, Ordering::Relaxed);
                in_numbers(&facts);
            }
        }
    }
    CLAIMED.store(0, Ordering::SeqCst);
}

/// A millisecond.
fn nap() -> Duration {
    let time = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    // SAFETY: a time to read, and no place for the rest.
    unsafe { libc::nanosleep(&time, std::ptr::null_mut()) };
    Duration::from_millis(1)
}

/// Lets a copy of this process make the text; how it has ended, if it did by itself.
fn by_child() -> Option<i32> {
    // SAFETY: a child with no signal at its end and a copy of everything, as fork makes it, but with nothing
    // run before or after.
    let child = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) } as i32;
    if child == 0 {
        // SAFETY: the child has one thread, which goes no further than here.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            FAULTS.iter().for_each(|signal| signals::reset(*signal));
            let facts = *FACTS.0.get();
            let status = text::on_a_stack_of_its_own(&facts);
            libc::syscall(libc::SYS_exit_group, status);
        }
    }
    if child < 0 {
        return None;
    }
    let (mut status, mut waited) = (0, Duration::ZERO);
    // __WALL: also children that send no signal.
    let wall = 0x4000_0000;
    loop {
        // SAFETY: the child made above, and a place for its status.
        match unsafe { libc::waitpid(child, &mut status, libc::WNOHANG | wall) } {
            0 if waited < PATIENCE => waited += nap(),
            0 => {
                // SAFETY: the child, which has not been waited for.
                unsafe {
                    libc::kill(child, libc::SIGKILL);
                    libc::waitpid(child, &mut status, wall);
                }
                return None;
            }
            ended if ended == child && libc::WIFEXITED(status) => return Some(libc::WEXITSTATUS(status)),
            -1 if io_interrupted() => {}
            _ => return None,
        }
    }
}

fn io_interrupted() -> bool {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() == libc::EINTR }
}

/// The text without debug information, from a handler.
fn in_numbers(facts: &Facts) {
    let mut line = Line::default();
    // SAFETY: the record stays as long as its thread, which is this one.
    let launch = unsafe { facts.os_thread.as_ref() }.and_then(OsThread::launch);
    let _ = write!(line, "rushmem [error] ");
    match launch {
        Some((launch, block)) => {
            // SAFETY: the running thread's context lives as long as its block.
            let thread =
                unsafe { facts.os_thread.as_ref().and_then(|os_thread| os_thread.running().as_ref()) };
            let [bx, by, bz] = block.block_idx;
            let [tx, ty, tz] = thread.map_or([0; 3], |thread| thread.thread_idx);
            let (kernel, source) = (launch.code.kernel(), launch.code.source());
            let _ =
                write!(line, "kernel `{kernel}` ({source}), block ({bx},{by},{bz}), thread ({tx},{ty},{tz})");
        }
        None => drop(line.write_str("a call of rushmem's or its memory")),
    }
    let (name, address, counter) = (text::name(facts.signal), facts.address, facts.counter);
    let _ = writeln!(
        line,
        ": {name}, address {address:#x}, instruction {counter:#x} (no more could be found out)"
    );
    line.print();
}

/// A text of at most so many bytes, without an allocation.
struct Line {
    bytes: [u8; 480],
    used: usize,
}

impl Default for Line {
    fn default() -> Self {
        Line { bytes: [0; 480], used: 0 }
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = &mut self.bytes[self.used..];
        let taken = text.len().min(room.len());
        room[..taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.used += taken;
        Ok(())
    }
}

impl Line {
    fn print(&self) {
        // SAFETY: a plain system call on initialised bytes.
        unsafe { libc::write(2, self.bytes.as_ptr().cast(), self.used) };
    }
}

/// Ranges of addresses that handlers may ask for.
pub struct Ranges([(AtomicUsize, AtomicUsize); 64]);

impl Ranges {
    /// None yet.
    pub const fn new() -> Ranges {
        Ranges([const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; 64])
    }

    /// One more, unless there are 64.
    pub fn add(&self, range: &Range<usize>) {
        for (start, end) in &self.0 {
            if end.compare_exchange(0, usize::MAX, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                start.store(range.start, Ordering::SeqCst);
                end.store(range.end, Ordering::SeqCst);
                return;
            }
        }
    }

    /// One less.
    pub fn remove(&self, range: &Range<usize>) {
        for (start, end) in &self.0 {
            if start.load(Ordering::SeqCst) == range.start && end.load(Ordering::SeqCst) == range.end {
                start.store(0, Ordering::SeqCst);
                end.store(0, Ordering::SeqCst);
                return;
            }
        }
    }

    /// Whether one of them has `address`.
    pub fn has(&self, address: usize) -> bool {
        self.0.iter().any(|(start, end)| {
            let (start, end) = (start.load(Ordering::SeqCst), end.load(Ordering::SeqCst));
            start != 0 && end != usize::MAX && (start..end).contains(&address)
        })
    }
}

impl Default for Ranges {
    fn default() -> Self {
        Ranges::new()
    }
}
