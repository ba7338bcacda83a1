//! The watch over CUDA threads that do not yield. A loop that polls memory with plain or `volatile` loads
//! calls nothing, so it would keep its OS thread for ever, and the thread of its block that is to write the
//! word would never run. On a GPU such a loop ends.
//!
//! One thread of the process looks at the blocks that run, ten times a second. Where the scheduler has
//! resumed nothing since the last look, it sends the block's OS thread a signal, whose handler suspends the
//! CUDA thread *inside the handler*: the kernel of the operating system has put all registers on the CUDA
//! thread's own stack, and takes them back when the handler returns, whenever that is.
//!
//! Why that is sound. The handler does it only where the program counter is in the kernel's own code: not in
//! libc, which may hold a lock, nor in the scheduler. What a request writes into the thread's context before
//! it suspends is kept but for `request`, which the handler puts back; `errno`, which the block's threads
//! share, too. Compiled code may keep the address of `rushmem_cpu_self`, and what was in it: both are the
//! same when the thread goes on, because a CUDA thread never changes its OS thread. What the program's code
//! must bear, others of its block running between any two instructions, CUDA's threads bear on any GPU.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, Once, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use crate::context::PREEMPT;
use crate::hooks;
use crate::monotonic::now_ns;
use crate::os_thread::{self, OsThread, TURN};
use crate::signals;

/// How often the watch looks, and how long a CUDA thread runs by itself at least.
const LOOK: Duration = Duration::from_millis(100);
/// The same in a block that has threads that do not yield.
const LOOK_OFTEN: Duration = Duration::from_micros(500);
/// Looks without a launch before the watch sleeps until the next.
const IDLE_LOOKS: u32 = 20;

/// Launches that run.
static LAUNCHES: AtomicUsize = AtomicUsize::new(0);
static SLEEPS: AtomicBool = AtomicBool::new(false);
static WATCH: OnceLock<Thread> = OnceLock::new();

/// What the program had for the signal.
static PREVIOUS: Mutex<Option<libc::sigaction>> = Mutex::new(None);

/// A launch that is watched as long as this lives.
pub(crate) struct Watched(());

impl Watched {
    pub(crate) fn new() -> Watched {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            // Without it plain polling for one's own block never ends; nothing else differs.
            match std::thread::Builder::new().name("rushmem-watch".into()).stack_size(128 << 10).spawn(watch)
            {
                Ok(thread) => drop(WATCH.set(thread.thread().clone())),
                Err(error) => log::debug!("no thread to watch kernels that do not yield: {error}"),
            }
        });
        LAUNCHES.fetch_add(1, Ordering::SeqCst);
        if SLEEPS.load(Ordering::SeqCst) && SLEEPS.swap(false, Ordering::SeqCst) {
            if let Some(thread) = WATCH.get() {
                thread.unpark();
            }
        }
        Watched(())
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        LAUNCHES.fetch_sub(1, Ordering::SeqCst);
    }
}

fn watch() {
    let (mut idle, mut often) = (0, false);
    loop {
        std::thread::sleep(if often { LOOK_OFTEN } else { LOOK });
        if LAUNCHES.load(Ordering::SeqCst) != 0 {
            idle = 0;
            often = look();
            continue;
        }
        (idle, often) = (idle + 1, false);
        if idle < IDLE_LOOKS {
            continue;
        }
        SLEEPS.store(true, Ordering::SeqCst);
        // A launch comes after this look, and wakes; or before it.
        while LAUNCHES.load(Ordering::SeqCst) == 0 && SLEEPS.load(Ordering::SeqCst) {
            std::thread::park();
        }
        SLEEPS.store(false, Ordering::SeqCst);
        idle = 0;
    }
}

/// Interrupts who has run for too long; whether to look often.
fn look() -> bool {
    let (now, mut any) = (now_ns(), false);
    os_thread::each(|os_thread| {
        if !os_thread.runs_block() {
            return;
        }
        let often = os_thread.often.load(Ordering::Relaxed);
        any |= often;
        let turns = os_thread.turns.load(Ordering::Relaxed);
        if os_thread.seen.swap(turns, Ordering::Relaxed) != turns {
            os_thread.since.store(now, Ordering::Relaxed);
            return;
        }
        let least = if often { LOOK_OFTEN } else { LOOK };
        if now - os_thread.since.load(Ordering::Relaxed) < least.as_nanos() as u64 / 2 {
            return;
        }
        if handles() {
            interrupt(os_thread);
        }
    });
    any
}

/// Installs the handler, once; whether it is there.
fn handles() -> bool {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    *INSTALLED.get_or_init(|| {
        // On the CUDA thread's own stack, where what is interrupted stays until the thread goes on; with the
        // signal open, because the handler leaves by a switch of stacks.
        let flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_NODEFER;
        let previous = signals::install(TURN, on_turn, flags);
        *PREVIOUS.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = previous;
        previous.is_some()
    })
}

fn interrupt(os_thread: &OsThread) {
    // SAFETY: a zeroed siginfo is a valid one; the thread lives as long as its record is in the list.
    unsafe {
        let mut info: Queued = std::mem::zeroed();
        (info.signal, info.code) = (TURN, libc::SI_QUEUE);
        (info.pid, info.uid) = (libc::getpid(), libc::getuid());
        info.value = std::ptr::from_ref(os_thread) as usize;
        libc::syscall(libc::SYS_rt_tgsigqueueinfo, libc::getpid(), os_thread.tid, TURN, &info);
    }
}

/// `siginfo_t` of a signal that was queued with a value.
#[repr(C)]
struct Queued {
    signal: i32,
    errno: i32,
    code: i32,
    pad: i32,
    pid: i32,
    uid: u32,
    value: usize,
    rest: [u64; 12],
}
const _: () = assert!(size_of::<Queued>() == size_of::<libc::siginfo_t>());

/// Runs on the stack of what it interrupts, a CUDA thread's or any other.
extern "C" fn on_turn(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a handler both.
    let (code, value, context_of) =
        unsafe { ((*info).si_code, (*info.cast::<Queued>()).value, &*context.cast::<libc::ucontext_t>()) };
    if code != libc::SI_QUEUE || value == 0 || value != os_thread::current() as usize {
        return hand_on(signal, info, context);
    }
    // SAFETY: this thread's own record.
    let os_thread = unsafe { &*os_thread::current() };
    let Some((launch, _)) = os_thread.launch() else { return };
    let counter = signals::counter(context_of);
    let top = signals::stack_pointer(context_of);
    let thread = os_thread.running();
    if thread.is_null() || !launch.code.text.contains(&counter) || !os_thread.stacks().holds(top) {
        return;
    }
    // SAFETY: the context of the CUDA thread that was interrupted, in its kernel's own code: it is the
    // running one, and nothing else touches its context before it is suspended.
    unsafe {
        let errno = *libc::__errno_location();
        os_thread.look(|each| signals::looks(context_of, os_thread.stacks().end_of(top), each));
        let request = (*thread).request;
        (*thread).request = PREEMPT;
        hooks::suspend(thread);
        (*thread).request = request;
        *libc::__errno_location() = errno;
    }
}

/// The program's own use of the signal.
fn hand_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let previous = PREVIOUS.try_lock().ok().and_then(|previous| *previous);
    if let Some(previous) = previous {
        // SAFETY: what the kernel gave this handler, for the handler that was there before.
        unsafe { signals::call(&previous, signal, info, context) };
    }
}
