//! What kernels of a traced run call: the Rust half of `rushmem_cpu/trace.h`. The hooks run on a coroutine's
//! stack, and hand on to the launch's tracer.

use std::ffi::{c_char, c_void, CStr};
use std::ops::Range;

use crate::context::ThreadContext;
use crate::hooks::Fiber;
use crate::kernel_trace::{KernelCall, KernelCallKind, KernelTrace, TRACED_DEPTH};
use crate::launch::Launch;
use crate::outcome::Place;

/// `rushmem_cpu_traced_call`.
#[repr(C)]
pub(crate) struct RawCall {
    name: *const c_char,
    bytes: u64,
    word: u64,
    frame: *const c_void,
    peer: i32,
    kind: u32,
}

/// `rushmem_cpu_tracer`.
#[repr(C)]
pub(crate) struct TraceHooks {
    bytes: u32,
    begin: unsafe extern "C" fn(*mut ThreadContext, *const RawCall),
    round: unsafe extern "C" fn(*mut ThreadContext, u64, u64),
    end: unsafe extern "C" fn(*mut ThreadContext),
}

pub(crate) static TRACE_HOOKS: TraceHooks =
    TraceHooks { bytes: size_of::<TraceHooks>() as u32, begin, round, end };

/// Who traces the launch, and which of its threads that is.
///
/// # Safety
/// Here and below: `thread` is null or the running CUDA thread, and `call` what the header says.
unsafe fn tracer<'a>(thread: *mut ThreadContext) -> Option<(&'a Launch, &'a dyn KernelTrace, Place)> {
    // SAFETY: the caller's word; block, fiber and launch outlive the thread.
    unsafe {
        let thread = thread.as_ref()?;
        let launch = &*Fiber::of(thread).launch;
        let trace = launch.reports().trace.as_deref()?;
        Some((launch, trace, ((*thread.block).block_idx, thread.thread_idx)))
    }
}

unsafe extern "C" fn begin(thread: *mut ThreadContext, call: *const RawCall) {
    // SAFETY: the header's inline functions pass the running thread and a call of their own, whose name is a
    // literal.
    unsafe {
        let Some((launch, trace, at)) = tracer(thread) else { return };
        let call = &*call;
        let kind = match call.kind {
            0 => KernelCallKind::Rma,
            1 => KernelCallKind::Nbi,
            2 => KernelCallKind::Order,
            3 => KernelCallKind::Wait,
            _ => KernelCallKind::Collective,
        };
        let call = KernelCall {
            kind,
            name: CStr::from_ptr(call.name).to_str().unwrap_or_default(),
            peer: (call.peer >= 0).then_some(call.peer),
            bytes: call.bytes,
            word: (call.word != 0).then_some(call.word),
            stack: walk(call.frame.cast(), &launch.code.text),
        };
        trace.begin(at, &call);
    }
}

unsafe extern "C" fn round(thread: *mut ThreadContext, slots: u64, phase: u64) {
    // SAFETY: the header's inline functions pass the running thread.
    if let Some((_, trace, at)) = unsafe { tracer(thread) } {
        trace.round(at, slots, phase);
    }
}

unsafe extern "C" fn end(thread: *mut ThreadContext) {
    // SAFETY: the header's inline functions pass the running thread.
    if let Some((_, trace, at)) = unsafe { tracer(thread) } {
        trace.end(at);
    }
}

/// The places behind the calls that led to this frame, as far as they are in `text`: such a kernel keeps
/// frame pointers, and a frame begins with its caller's and the place to return to (System V ABI of x86-64,
/// AAPCS64).
///
/// # Safety
/// `frame` is the frame pointer of a function of that code that runs on this stack.
unsafe fn walk(mut frame: *const usize, text: &Range<usize>) -> [usize; TRACED_DEPTH] {
    let mut stack = [0; TRACED_DEPTH];
    for place in &mut stack {
        // SAFETY: the frame of a function in `text`, which keeps them: the first by the caller's word, each
        // other one because the place to return to was in `text`.
        let (caller, counter) = unsafe { (*frame, *frame.add(1)) };
        if !text.contains(&counter) || caller <= frame as usize {
            // The entry's own frame may hold anything: only its place counts.
            *place = if text.contains(&counter) { counter } else { 0 };
            break;
        }
        (*place, frame) = (counter, caller as *const usize);
    }
    stack
}
