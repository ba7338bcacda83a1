//! The four functions that a kernel may call (`rushmem_cpu/hooks.h`; what it shares with its scheduler is in
//! `context.rs`). They run on a coroutine's stack, so they do as little as possible and never panic.

use std::cell::Cell;
use std::ffi::{c_char, CStr};

use crate::context::{ThreadContext, EXIT, PREEMPT};
use crate::launch::Launch;
use crate::monotonic::now_ns;
use crate::outcome::Cause;
use crate::stack_trace::Counters;

pub(crate) const VERSION: u32 = 2;

/// `rushmem_cpu_hooks`.
#[repr(C)]
pub(crate) struct Hooks {
    version: u32,
    bytes: u32,
    suspend: unsafe extern "C" fn(*mut ThreadContext),
    exit: unsafe extern "C" fn(*mut ThreadContext, u32),
    die: unsafe extern "C" fn(*mut ThreadContext, *const c_char),
    now_ns: extern "C" fn() -> u64,
}

pub(crate) static HOOKS: Hooks =
    Hooks { version: VERSION, bytes: size_of::<Hooks>() as u32, suspend, exit, die, now_ns };

pub(crate) type Yielder = corosensei::Yielder<(), ()>;

/// What the hooks need of the scheduler's side of a CUDA thread.
pub(crate) struct Fiber {
    /// Set by the coroutine as it starts; valid as long as it lives.
    pub(crate) yielder: Cell<*const Yielder>,
    /// Outlives every block of the launch.
    pub(crate) launch: *const Launch,
    /// Not null while the scheduler only asks where the thread is.
    pub(crate) probe: Cell<*mut Counters>,
}

impl Fiber {
    /// That of a CUDA thread.
    ///
    /// # Safety
    /// `thread` is one of a block that has not ended; what is returned is not used behind the block's end.
    pub(crate) unsafe fn of<'a>(thread: *const ThreadContext) -> &'a Fiber {
        // SAFETY: the scheduler gives each thread of a block a fiber, which lives as long as the block.
        unsafe { &*(*thread).scheduler.cast::<Fiber>() }
    }
}

/// # Safety
/// Here and below: `thread` is the running CUDA thread, and `text` a terminated string.
pub(crate) unsafe extern "C" fn suspend(thread: *mut ThreadContext) {
    // SAFETY: the kernel passes the context of the CUDA thread that calls, whose fiber outlives it and whose
    // yielder was set before the kernel's first instruction. The counters of a probe are the scheduler's,
    // which waits for the answer.
    unsafe {
        let fiber = Fiber::of(thread);
        loop {
            (*fiber.yielder.get()).suspend(());
            match fiber.probe.get().as_mut() {
                None => return,
                Some(counters) => {
                    counters.capture(&(*fiber.launch).code.text, (*thread).request == PREEMPT);
                }
            }
        }
    }
}

unsafe extern "C" fn exit(thread: *mut ThreadContext, failure: u32) {
    // SAFETY: the kernel passes the context of the CUDA thread that calls: the one that runs.
    unsafe { abandon(thread, Cause::Code(failure)) }
}

unsafe extern "C" fn die(thread: *mut ThreadContext, text: *const c_char) {
    // SAFETY: the kernel passes a terminated string.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    // SAFETY: the kernel passes the context of the CUDA thread that calls: the one that runs.
    unsafe { abandon(thread, Cause::Text(text)) }
}

/// # Safety
/// `thread` must be the running CUDA thread.
unsafe fn abandon(thread: *mut ThreadContext, cause: Cause) {
    // SAFETY: the caller gives the thread that runs; its fiber, its block and the launch outlive it.
    unsafe {
        let launch = &*Fiber::of(thread).launch;
        let mut counters = Counters::default();
        counters.capture(&launch.code.text, false);
        launch.fail_at(cause, Some(((*(*thread).block).block_idx, (*thread).thread_idx)), counters);
        // The scheduler doesn't resume a thread that asked for this.
        loop {
            (*thread).request = EXIT;
            suspend(thread);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::BlockContext;
    use std::process::Command;

    /// The offsets as the C++ compiler sees them.
    #[test]
    fn layout_is_that_of_the_header() {
        let program = r#"
            #include <stdio.h>
            #include "rushmem_cpu/hooks.h"
            #define P(type, field) printf(#type "." #field " %zu\n", offsetof(type, field))
            int main() {
              P(rushmem_cpu_block, grid_dim); P(rushmem_cpu_block, block_dim); P(rushmem_cpu_block, block_idx);
              P(rushmem_cpu_block, shared_bytes); P(rushmem_cpu_block, shared); P(rushmem_cpu_block, state);
              P(rushmem_cpu_block, grid_barrier);
              P(rushmem_cpu_thread, block); P(rushmem_cpu_thread, thread_idx); P(rushmem_cpu_thread, linear);
              P(rushmem_cpu_thread, ticks); P(rushmem_cpu_thread, request); P(rushmem_cpu_thread, mask);
              P(rushmem_cpu_thread, woke); P(rushmem_cpu_thread, result); P(rushmem_cpu_thread, value);
              P(rushmem_cpu_thread, values); P(rushmem_cpu_thread, what); P(rushmem_cpu_thread, file);
              P(rushmem_cpu_thread, line); P(rushmem_cpu_thread, vote); P(rushmem_cpu_thread, seen_at);
              P(rushmem_cpu_thread, seen); P(rushmem_cpu_thread, scheduler); P(rushmem_cpu_thread, check);
              P(rushmem_cpu_hooks, suspend); P(rushmem_cpu_hooks, exit); P(rushmem_cpu_hooks, die);
              P(rushmem_cpu_hooks, now_ns);
              printf("sizes %zu %zu %zu version %u\n", sizeof(rushmem_cpu_block), sizeof(rushmem_cpu_thread),
                     sizeof(rushmem_cpu_hooks), RUSHMEM_CPU_HOOKS_VERSION);
            }"#;
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (source, binary) = (dir.path().join("layout.cpp"), dir.path().join("layout"));
        std::fs::write(&source, program).expect("writing to a fresh directory");
        let built = Command::new("c++")
            .args(["-std=c++17", "-I", concat!(env!("CARGO_MANIFEST_DIR"), "/include"), "-o"])
            .args([&binary, &source])
            .output()
            .expect("running c++");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let said = Command::new(&binary).output().expect("running the layout program").stdout;

        let mut expected = String::new();
        macro_rules! offsets {
            ($c:literal, $rust:ty: $($field:ident)*) => {
                $(expected += &format!(concat!($c, ".", stringify!($field), " {}\n"), std::mem::offset_of!($rust, $field));)*
            };
        }
        offsets!("rushmem_cpu_block", BlockContext: grid_dim block_dim block_idx shared_bytes shared state grid_barrier);
        offsets!("rushmem_cpu_thread", ThreadContext: block thread_idx linear ticks request mask woke result value
            values what file line vote seen_at seen scheduler check);
        offsets!("rushmem_cpu_hooks", Hooks: suspend exit die now_ns);
        expected += &format!(
            "sizes {} {} {} version {VERSION}\n",
            size_of::<BlockContext>(),
            size_of::<ThreadContext>(),
            size_of::<Hooks>()
        );
        assert_eq!(String::from_utf8_lossy(&said), expected);
    }
}
