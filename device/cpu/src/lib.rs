//! The CPU device: runs a CUDA C++ kernel with no GPU. A source is compiled by the system's C++ compiler,
//! with headers that give CUDA's words a meaning; a launch makes each block an OS thread and each CUDA thread
//! a coroutine on it, so that barriers, shuffles, atomics, waits and spins behave, in an ordinary debugger.
//!
//! What differs from a GPU:
//!
//! - A loop that polls memory with volatile loads only, for something another thread of the *same block* will
//!   write, ends slowly: a signal suspends it after a tenth of a second, and then every millisecond or two
//!   (`watch`). A rushmem wait, an atomic, a fence, `clock64()` or `__nanosleep` in it suspends at once.
//! - `__activemask()` is the calling lane alone: every lane runs by itself.
//! - A CUDA thread's stack is 128 KiB ([`Limits::stack`]); overrunning it ends the process with a
//!   text and SIGSEGV at a guard page (`crash`).
//! - `sizeof(long)` and such are the host's; `__CUDA_ARCH__` is not defined, `RUSHMEM_CPU` is.

mod block;
pub mod cache;
pub mod check;
mod check_mode;
mod code;
mod compile;
mod context;
pub mod crash;
mod dynamic_shared;
mod error;
mod function;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod headers;
mod hooks;
mod idle;
mod instead;
mod kernel_trace;
mod launch;
mod limits;
mod lines;
mod lock;
mod module;
mod monotonic;
mod optimization;
mod os_thread;
mod outcome;
mod padding;
mod pool;
mod ptx;
mod run;
mod scan;
mod signals;
mod source;
mod stack;
mod stack_trace;
mod token;
mod toolchain;
mod trace_hooks;
mod waiting;
mod warp;
mod watch;

pub use compile::Compiler;
pub use error::Error;
pub use headers::Header;
pub use kernel_trace::{KernelCall, KernelCallKind, KernelTrace, TRACED_DEPTH};
pub use launch::{LaunchConfig, Reports};
pub use limits::{Limits, MAX_BLOCK, MAX_BLOCK_THREADS, MAX_GRID, MAX_SHARED};
pub use module::{Kernel, Module, Param};
pub use optimization::Optimization;
pub use outcome::{Cause, Failure, Place, RunError};
pub use scan::function_kernels;
pub use toolchain::find_compiler;
