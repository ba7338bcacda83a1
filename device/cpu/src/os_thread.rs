//! A record of each OS thread that runs blocks: what it runs now, and where its CUDA threads' stacks are. The
//! handler of crashes ([`crate::crash`]) and the watch over threads that do not yield ([`crate::watch`]) read
//! it. It lies at the low end of the thread's alternate signal stack. A handler finds it there by the address
//! that the kernel hands in (`uc_stack`), with no thread-local variable, whose first use may allocate.

use std::cell::Cell;
use std::io;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::context::{BlockContext, ThreadContext};
use crate::launch::Launch;
use crate::stack::Span;

/// Addresses for the handlers of one OS thread. Pages that nobody touches take no memory.
const ALTERNATE: usize = 512 << 10;

/// At the beginning of a record and, but by chance, of nothing else.
const MARK: [u64; 2] = [0x7c1f_52d3_9b0e_66a8, 0xd4a8_03e5_f172_2b9d];

/// Signals that mean a fault of the thread that gets them.
pub(crate) const FAULTS: [i32; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];
/// Asks a thread to let others of its block run. Ignored where nobody handles it; Go uses it alike.
pub(crate) const TURN: i32 = libc::SIGURG;

/// One OS thread that runs blocks.
#[repr(C)]
pub(crate) struct OsThread {
    mark: [u64; 2],
    pub(crate) tid: i32,
    /// The launch whose block runs, null between blocks.
    launch: AtomicPtr<Launch>,
    block: AtomicPtr<BlockContext>,
    /// Where the kernel's module has the CUDA thread that runs.
    slot: AtomicPtr<*mut ThreadContext>,
    /// The stacks of the block's threads.
    base: AtomicUsize,
    slots: AtomicUsize,
    guard: AtomicUsize,
    stack: AtomicUsize,
    /// Goes up whenever the scheduler resumes a CUDA thread.
    pub(crate) turns: AtomicU64,
    /// Threads of this block have been interrupted: the watch looks often.
    pub(crate) often: AtomicBool,
    /// What the last interrupted thread looked like: its registers and the top of its stack.
    looks: [AtomicU64; LOOKED_AT],
    looked_at: AtomicUsize,
    /// The watch's own: the turn that it saw last, and when it saw it first.
    pub(crate) seen: AtomicU64,
    pub(crate) since: AtomicU64,
}

/// Words by which a thread is known that looks as it looked before.
const LOOKED_AT: usize = 128;

/// All records; none is unmapped while this is locked.
static OS_THREADS: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Unmaps the record when its thread ends.
struct Own(*const OsThread);

thread_local! {
    static OWN: Own = Own::make();
    /// The same for signal handlers: no destructor, and no first use in them.
    static CURRENT: Cell<*const OsThread> = const { Cell::new(null()) };
}

fn list() -> MutexGuard<'static, Vec<usize>> {
    OS_THREADS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The record of the calling thread, which stays as long as the thread; made by the first call. `None` where
/// there is no memory for one.
pub(crate) fn of_this_thread() -> Option<&'static OsThread> {
    let own = OWN.try_with(|own| own.0).unwrap_or(null());
    // SAFETY: mapped until the thread ends, and callers are the thread itself.
    unsafe { own.as_ref() }
}

/// The same in a handler: null in threads that never ran a block.
pub(crate) fn current() -> *const OsThread {
    CURRENT.with(Cell::get)
}

/// The record at the low end of the alternate stack that a handler runs on, if it is one.
///
/// # Safety
/// `stack` is what the kernel says of the interrupted thread's alternate stack.
pub(crate) unsafe fn at(stack: &libc::stack_t) -> Option<&'static OsThread> {
    if stack.ss_sp.is_null() || stack.ss_size < size_of::<OsThread>() || stack.ss_sp as usize % 16 != 0 {
        return None;
    }
    let os_thread = stack.ss_sp.cast::<OsThread>();
    // SAFETY: the low end of memory that the thread has named as a stack; a record stays as long as its
    // thread.
    unsafe { ((*os_thread).mark == MARK).then(|| &*os_thread) }
}

/// Calls `look` with every record; none is unmapped meanwhile.
pub(crate) fn each(mut look: impl FnMut(&OsThread)) {
    for &os_thread in &*list() {
        // SAFETY: a record leaves the list before it is unmapped.
        look(unsafe { &*(os_thread as *const OsThread) });
    }
}

impl OsThread {
    /// The thread runs a block from now on, whose threads' stacks are `stacks`.
    pub(crate) fn begin(
        &self,
        launch: &Launch,
        block: &BlockContext,
        slot: *mut *mut ThreadContext,
        stacks: Span,
    ) {
        self.block.store(std::ptr::from_ref(block).cast_mut(), Ordering::Relaxed);
        self.slot.store(slot, Ordering::Relaxed);
        self.base.store(stacks.base, Ordering::Relaxed);
        self.slots.store(stacks.slots, Ordering::Relaxed);
        self.guard.store(stacks.guard, Ordering::Relaxed);
        self.stack.store(stacks.stack, Ordering::Relaxed);
        self.often.store(false, Ordering::Relaxed);
        self.launch.store(std::ptr::from_ref(launch).cast_mut(), Ordering::Release);
    }

    /// The block has ended.
    pub(crate) fn end(&self) {
        self.launch.store(null_mut(), Ordering::Release);
    }

    /// A CUDA thread is resumed. The record has one writer, its thread.
    pub(crate) fn turn(&self) {
        self.turns.store(self.turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// What an interrupted thread looks like is what `say` gives, at most [`LOOKED_AT`] words; in a handler.
    pub(crate) fn look(&self, say: impl FnOnce(&mut dyn FnMut(u64))) {
        let mut count = 0;
        say(&mut |word| {
            if let Some(place) = self.looks.get(count) {
                place.store(word, Ordering::Relaxed);
                count += 1;
            }
        });
        self.looked_at.store(count, Ordering::Relaxed);
    }

    /// What the last interrupted thread looked like.
    pub(crate) fn looked(&self) -> Vec<u64> {
        let count = self.looked_at.load(Ordering::Relaxed);
        self.looks[..count].iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }

    /// Whether a block runs.
    pub(crate) fn runs_block(&self) -> bool {
        !self.launch.load(Ordering::Acquire).is_null()
    }

    /// The launch and the block that run; for the thread itself and its handlers.
    pub(crate) fn launch(&self) -> Option<(&Launch, &BlockContext)> {
        let launch = self.launch.load(Ordering::Acquire);
        // SAFETY: both outlive the block, at whose end the thread itself clears the pointer.
        unsafe { launch.as_ref().map(|launch| (launch, &*self.block.load(Ordering::Relaxed))) }
    }

    /// The CUDA thread that runs, null between two; for the thread itself and its handlers.
    pub(crate) fn running(&self) -> *mut ThreadContext {
        let slot = self.slot.load(Ordering::Relaxed);
        // SAFETY: the thread's own variable in a module that is loaded while its block runs.
        unsafe { slot.as_ref() }.map_or(null_mut(), |thread| *thread)
    }

    /// The stacks of the block's threads.
    pub(crate) fn stacks(&self) -> Span {
        Span {
            base: self.base.load(Ordering::Relaxed),
            slots: self.slots.load(Ordering::Relaxed),
            guard: self.guard.load(Ordering::Relaxed),
            stack: self.stack.load(Ordering::Relaxed),
        }
    }
}

impl Own {
    fn make() -> Own {
        Own(map().unwrap_or_else(|error| {
            log::debug!(
                "no alternate stack for a thread that runs blocks ({error}): its crashes have no text"
            );
            null()
        }))
    }
}

/// Maps a record with its alternate stack for the calling thread, on which its faults are handled from now
/// on, whatever its creator blocked.
fn map() -> io::Result<*const OsThread> {
    // SAFETY: plain system calls on a fresh mapping and on this thread's own signal state. The mapping's
    // first page stays inaccessible, as the end of a stack.
    unsafe {
        let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
        let mapped = libc::mmap(null_mut(), page + ALTERNATE, libc::PROT_NONE, flags, -1, 0);
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let low = mapped.byte_add(page);
        let stack = libc::stack_t { ss_sp: low, ss_flags: 0, ss_size: ALTERNATE };
        let writable = libc::mprotect(low, ALTERNATE, libc::PROT_READ | libc::PROT_WRITE) == 0;
        if !writable || libc::sigaltstack(&stack, null_mut()) != 0 {
            let error = io::Error::last_os_error();
            libc::munmap(mapped, page + ALTERNATE);
            return Err(error);
        }
        let os_thread = low.cast::<OsThread>();
        // The rest of a fresh mapping is zero, as an idle record is.
        (*os_thread).mark = MARK;
        (*os_thread).tid = libc::syscall(libc::SYS_gettid) as i32;
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut mask);
        for signal in FAULTS.into_iter().chain([TURN]) {
            libc::sigaddset(&mut mask, signal);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &mask, null_mut());
        CURRENT.with(|current| current.set(os_thread));
        list().push(os_thread as usize);
        Ok(os_thread)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if self.0.is_null() {
            return;
        }
        CURRENT.with(|current| current.set(null()));
        list().retain(|os_thread| *os_thread != self.0 as usize);
        // SAFETY: this thread's own alternate stack, on which no handler runs now, and which no list has.
        unsafe {
            let mut now: libc::stack_t = std::mem::zeroed();
            libc::sigaltstack(null(), &mut now);
            if now.ss_sp.cast_const().cast() == self.0 {
                let none = libc::stack_t { ss_sp: null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
                libc::sigaltstack(&none, null_mut());
            }
            let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
            libc::munmap(self.0.cast_mut().cast::<libc::c_void>().byte_sub(page), page + ALTERNATE);
        }
    }
}
