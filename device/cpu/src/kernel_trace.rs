//! What kernels of a traced run (`RUSHMEM_TRACE`) tell their launch's tracer: their threads' calls of
//! rushmem, as they begin and as they end.

use crate::outcome::Place;

/// Places of a stack that a call comes with.
pub const TRACED_DEPTH: usize = 8;

/// Notes a launch's calls.
pub trait KernelTrace: Send + Sync {
    /// A thread's call begins.
    fn begin(&self, thread: Place, call: &KernelCall<'_>);
    /// The innermost call of the thread's that has begun is collective: in that phase of the slot set at that
    /// symmetric address's offset, or of all PEs (0).
    fn round(&self, thread: Place, slots: u64, phase: u64);
    /// The innermost call of the thread's has ended.
    fn end(&self, thread: Place);
}

/// What a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelCallKind {
    /// A put, get, atomic operation or signal.
    Rma,
    /// One that is complete at the next quiet.
    Nbi,
    /// A fence or quiet.
    Order,
    /// A wait for a word.
    Wait,
    /// A collective call.
    Collective,
}

/// A call of rushmem by a thread of a kernel.
#[derive(Debug)]
pub struct KernelCall<'a> {
    /// What it is.
    pub kind: KernelCallKind,
    /// The function's name.
    pub name: &'a str,
    /// The PE that is asked.
    pub peer: Option<i32>,
    /// Bytes that are moved.
    pub bytes: u64,
    /// The symmetric address of the word that is waited for, or that tells the peer of the data.
    pub word: Option<u64>,
    /// Where it is made, innermost first: places behind calls in the kernel's code, then zeroes.
    pub stack: [usize; TRACED_DEPTH],
}
