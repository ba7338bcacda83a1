//! The text about a fault. All of this runs in the child that the handler made.

use std::ffi::{CStr, OsStr};
use std::fmt::Write;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use corosensei::Coroutine;

use super::deferred::{self, Deferred};
use super::{address, Facts, KNOWLEDGE, NOT_OURS, PREPARED};
use crate::function::Function;
use crate::os_thread::OsThread;
use crate::outcome::place_text;
use crate::signals;
use crate::stack::Slab;
use crate::stack_trace::{Counters, SourcePlace, DEPTH};

/// Bytes of stack for debug information's readers.
const STACK: usize = 4 << 20;
/// Callers that are named.
const CALLERS: usize = 6;

/// Tells of the fault; the child's exit status.
pub(super) fn on_a_stack_of_its_own(facts: &Facts) -> i32 {
    let facts = *facts;
    let Ok(mut slab) = Slab::new(1, STACK) else { return 1 };
    let Ok(slot) = slab.take() else { return 1 };
    let mut teller: Coroutine<(), (), i32, _> = Coroutine::with_stack(slot, move |_, ()| tell(&facts));
    let status = teller.resume(()).as_return().unwrap_or(1);
    std::mem::forget((teller, slab));
    status
}

fn tell(facts: &Facts) -> i32 {
    let counters = counters(facts);
    // SAFETY: the context lies in the handler's frame, which is the child's own copy.
    let context = unsafe { &*facts.context };
    // SAFETY: the record stays as long as its thread, of which this is a copy.
    let os_thread = unsafe { facts.os_thread.as_ref() };
    let text = match os_thread.filter(|os_thread| os_thread.runs_block()) {
        Some(os_thread) => of_kernel(facts, os_thread, &counters),
        None => of_host(facts, &counters),
    };
    let Some(mut text) = text else { return NOT_OURS };
    for line in address::lines(facts, context, os_thread) {
        let _ = write!(text, "\n  {line}");
    }
    text.push('\n');
    // SAFETY: a plain system call on initialised bytes.
    let wrote = unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
    i32::from(wrote != text.len() as isize)
}

fn of_kernel(facts: &Facts, os_thread: &OsThread, counters: &Counters) -> Option<String> {
    let (launch, block) = os_thread.launch()?;
    // SAFETY: the running thread's context lives as long as its block.
    let thread = unsafe { os_thread.running().as_ref() }?;
    let place = launch.code.place(counters);
    let mut text = format!(
        "rushmem [error] {}kernel `{}` ({}){}{}: {}",
        launch.reports().prefix(),
        launch.code.kernel(),
        launch.code.source(),
        place_text(&(block.block_idx, thread.thread_idx)),
        place.phrase(),
        said(facts),
    );
    callers(&mut text, &place);
    Some(text)
}

/// The functions that called the place.
fn callers(text: &mut String, place: &SourcePlace) {
    if place.callers.is_empty() {
        return;
    }
    let _ = write!(text, "\n  {} called at ", place.function);
    let mut groups: Vec<(&str, usize)> = Vec::new();
    for caller in &place.callers {
        match groups.last_mut() {
            Some((last, times)) if last == caller => *times += 1,
            _ => groups.push((caller, 1)),
        }
    }
    for (i, (caller, times)) in groups.iter().take(CALLERS).enumerate() {
        let again = if *times > 1 { format!(" ({times} times)") } else { String::new() };
        let _ = write!(text, "{}{caller}{again}", if i == 0 { "" } else { ", called at " });
    }
    if groups.len() > CALLERS || place.callers.len() + 1 >= DEPTH {
        text.push_str(", …");
    }
}

/// `None`: it is neither in a call of the C ABI nor at an address of symmetric memory.
fn of_host(facts: &Facts, counters: &Counters) -> Option<String> {
    let deferred = deferred::current();
    // Of a call that another thread carries out, those of the thread that made it.
    let functions = deferred.map_or(counters, Deferred::from).functions();
    let own = PREPARED.get().map(|prepared| prepared.own.clone()).unwrap_or_default();
    // The outermost of this library's functions that C can name.
    let is_call = |function: &Function| {
        own.contains(&function.counter)
            && function.name.starts_with("rushmem_")
            && !function.name.contains(':')
    };
    let call = functions.iter().rposition(is_call);
    // SAFETY: no preconditions.
    let entry = unsafe { libc::getauxval(libc::AT_ENTRY) } as usize;
    // A program that this is linked into has code of its own beside.
    let is_apart = !own.contains(&entry);
    let inside = call.is_some()
        || deferred.is_some()
        || is_apart && functions.iter().any(|function| own.contains(&function.counter));
    let memory = KNOWLEDGE.get().is_some_and(|knowledge| (knowledge.covers)(facts.address));
    let who = KNOWLEDGE.get().and_then(|knowledge| (knowledge.who)());
    let who = who.unwrap_or_else(|| format!("process {}", parent()));
    if !inside && !memory {
        return super::tells_of_all().then(|| of_others(facts, &who, &functions));
    }
    let mut text = format!("rushmem [error] {who}");
    let outside = match (call, deferred) {
        (Some(call), _) => {
            let _ = write!(text, ", in {}()", functions[call].name);
            &functions[call + 1..]
        }
        (None, Some(deferred)) => {
            let _ = write!(text, ", in {}", deferred.what());
            &functions[..]
        }
        (None, None) => &functions[..],
    };
    let is_named = call.is_some() || deferred.is_some();
    let is_of_a_library = |function: &&Function| {
        let library = |file: &Path| file.starts_with("/usr") || file.starts_with("/rustc");
        own.contains(&function.counter)
            || function.file.as_deref().is_some_and(library)
            || is_system(function.counter, entry)
    };
    // Through libraries on top of the C ABI up to the program.
    let callers = outside.iter().filter(|function| !is_of_a_library(function)).take(CALLERS);
    for (i, caller) in callers.enumerate() {
        let separator = if i == 0 { "" } else { "," };
        let _ = write!(text, "{separator}{}{}", if is_named { " called" } else { "" }, place(caller));
        if !is_named || is_in_program(caller.counter, entry) {
            break;
        }
    }
    if deferred.is_some() {
        let _ = write!(text, ", on thread `{}`", thread_name());
    }
    let _ = write!(text, ": {}", said(facts));
    if is_named && !memory {
        text.push_str("\n  the memory that a pointer of this call means, or a part of it, is not there");
        text.push_str(if deferred.is_some() { "; it must stay until the stream has come to it" } else { "" });
    }
    Some(text)
}

/// A fault outside of rushmem: which thread, where, and who called.
fn of_others(facts: &Facts, who: &str, functions: &[Function]) -> String {
    let mut text =
        format!("rushmem [error] {who}, thread `{}`, in code of others: {}", thread_name(), said(facts));
    for function in functions.iter().take(CALLERS) {
        let _ = write!(text, "\n {}", place(function));
    }
    if functions.is_empty() {
        let _ = write!(text, "\n  at {:#x}, where the stack cannot be read", facts.counter);
    }
    text
}

/// The name of the thread with the fault, which the child has, too.
fn thread_name() -> String {
    let mut name = [0u8; 16];
    // SAFETY: the call writes 16 bytes at most.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    String::from_utf8_lossy(name.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

/// ` at k.c:12 in main`, or what to ask addr2line where there is no debug information.
fn place(function: &Function) -> String {
    if let Some(file) = function.file.as_deref().filter(|_| function.line != 0) {
        return format!(" at {}:{} in {}", file.display(), function.line, function.name);
    }
    let name = if function.name.is_empty() { String::new() } else { format!(" in {}", function.name) };
    // The call is in front of where it returns to.
    let at = function.counter - 1;
    match module_of(at) {
        Some((file, base)) => format!("{name} (addr2line -e {} {:#x})", file.display(), at - base),
        None => format!("{name} at {at:#x}"),
    }
}

fn is_in_program(counter: usize, entry: usize) -> bool {
    let base = |address| module_of(address).map(|(_, base)| base);
    base(counter) == base(entry)
}

/// Whether code lies in a library of the system, and not in the program.
fn is_system(counter: usize, entry: usize) -> bool {
    let Some((file, _)) = module_of(counter) else { return false };
    !is_in_program(counter, entry)
        && (file.starts_with("/usr") || file.starts_with("/lib") || file.starts_with("/lib64"))
}

/// The program or library at an address, and where it begins.
fn module_of(address: usize) -> Option<(PathBuf, usize)> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked about; `info` is written when the answer is not 0.
    let found = unsafe { libc::dladdr(address as *const libc::c_void, info.as_mut_ptr()) };
    // SAFETY: zeroed at the least, and pointers may be null.
    let info = unsafe { info.assume_init() };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's own NUL-terminated name of an object that is loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some((OsStr::from_bytes(name.to_bytes()).into(), info.dli_fbase as usize))
}

/// The process that has the fault; this is its child.
fn parent() -> i32 {
    // SAFETY: no arguments.
    unsafe { libc::getppid() }
}

/// What the signal says: `SIGSEGV: it writes address 0x10`.
fn said(facts: &Facts) -> String {
    let name = name(facts.signal);
    // SAFETY: the context lies in the handler's frame, below which this runs.
    let context = unsafe { &*facts.context };
    match (facts.signal, facts.code) {
        (libc::SIGFPE, 1) => format!("{name}: an integer is divided by zero"),
        (libc::SIGFPE, _) => format!("{name}: an arithmetic fault"),
        (libc::SIGILL, _) => {
            format!("{name}: an instruction that the processor does not have, or __builtin_trap()")
        }
        (libc::SIGSEGV, 128) => format!("{name}: it uses an address that no process can have"),
        _ => {
            let verb = signals::access(context).unwrap_or("touches");
            format!("{name}: it {verb} address {:#x}", facts.address)
        }
    }
}

pub(super) fn name(signal: i32) -> &'static str {
    match signal {
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGILL => "SIGILL",
        _ => "a signal",
    }
}

/// The stack of the fault. A call of a wild function pointer leads nowhere: an unwinder would read the code
/// there. So it starts at the caller then, by changing the child's copy of what was interrupted.
fn counters(facts: &Facts) -> Counters {
    let is_code = |counter| !signals::text_of(counter).is_empty();
    if is_code(facts.counter) {
        return Counters::interrupted(facts.counter, true);
    }
    // SAFETY: it lies in the handler's frame; nobody else has a reference to it now.
    let context = unsafe { &mut *facts.context.cast_mut() };
    let caller = caller(context);
    if !is_code(caller) {
        return Counters::default();
    }
    signals::step_out(context, caller);
    Counters::interrupted(caller, false)
}

/// Where the interrupted function returns to, if it has no frame yet; 0 where that cannot be read.
fn caller(context: &libc::ucontext_t) -> usize {
    signals::return_slot(context).unwrap_or_else(|slot| {
        let mut word = [0];
        if signals::peek(slot, &mut word) == size_of::<usize>() {
            word[0]
        } else {
            0
        }
    })
}
