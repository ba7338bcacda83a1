//! The C side of a bootstrap: a versioned vtable, and the entry point of a plug-in that fills one.
//!
//! A plug-in is a shared object of its own (the MPI one, or a user's in C), perhaps built by another
//! compiler, so only C types cross here. The first two words of every struct are its version and size and
//! never move, so that either side can refuse the other with both numbers before it reads anything else. Each
//! call carries its own [`RawError`], so no "last error" is shared between threads.

use std::ffi::{c_char, c_void};

/// Name of the function that a plug-in exports; its type is [`PluginEntry`].
pub const PLUGIN_ENTRY: &str = "rushmem_bootstrap_plugin_v1";

/// Room for an error's text, its closing NUL included; longer texts are cut.
pub const ERROR_TEXT_BYTES: usize = 2048;

/// What a vtable call returns when all went well; anything else is a [`crate::BootErrorKind`] code.
pub const OK: i32 = 0;

/// Where a failing call leaves its text and the rank at fault. The callee fills it only when it fails.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RawError {
    /// The rank at fault, or -1 where there is none.
    pub rank: i64,
    /// UTF-8, NUL-terminated.
    pub text: [c_char; ERROR_TEXT_BYTES],
}

/// A bootstrap as a C struct: the same calls, with the same meaning, as [`crate::Bootstrap`]. Every function
/// takes `ctx` first; `error` is never null. `bytes` counts one rank's block. Pointers may be null or
/// dangling where their length is 0. The functions may be called from any thread.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BootstrapVtable {
    /// [`crate::ABI_VERSION`] of the side that filled it.
    pub abi_version: u32,
    /// `sizeof` this struct for the side that filled it.
    pub struct_size: u32,
    /// Handed back as the first argument of every function.
    pub ctx: *mut c_void,
    /// Short name for logs, NUL-terminated, valid until `destroy`.
    pub name: *const c_char,
    /// This PE's rank.
    pub rank: u32,
    /// Number of ranks, at least 1.
    pub n_ranks: u32,
    /// `out` holds `n_ranks * bytes`.
    pub allgather: Option<AllgatherFn>,
    /// `input` and `out` hold `n_ranks * bytes` each.
    pub alltoall: Option<AllgatherFn>,
    /// Every rank has entered before any leaves.
    pub barrier: Option<BarrierFn>,
    /// `buf` holds `bytes`, given at `root`, received elsewhere.
    pub broadcast: Option<BroadcastFn>,
    /// The first death that this rank has learnt of; null where the bootstrap cannot know.
    pub death: Option<DeathFn>,
    /// Tells the others that this rank leaves; null where there is nobody to tell.
    pub abort: Option<AbortFn>,
    /// Leaves in good order.
    pub finalize: Option<BarrierFn>,
    /// Frees `ctx`; called once, last, whether or not `finalize` was.
    pub destroy: Option<DestroyFn>,
}

/// Type of `allgather` and `alltoall`.
pub type AllgatherFn = unsafe extern "C" fn(
    *mut c_void,
    input: *const u8,
    bytes: usize,
    out: *mut u8,
    error: *mut RawError,
) -> i32;
/// Type of `barrier` and `finalize`.
pub type BarrierFn = unsafe extern "C" fn(*mut c_void, error: *mut RawError) -> i32;
/// Type of `broadcast`.
pub type BroadcastFn =
    unsafe extern "C" fn(*mut c_void, buf: *mut u8, bytes: usize, root: u32, error: *mut RawError) -> i32;
/// Type of `death`: returns 1 and fills `what` (rank and text) when a rank died, else 0.
pub type DeathFn = unsafe extern "C" fn(*mut c_void, what: *mut RawError) -> i32;
/// Type of `abort`; `why` is UTF-8, NUL-terminated.
pub type AbortFn = unsafe extern "C" fn(*mut c_void, why: *const c_char);
/// Type of `destroy`.
pub type DestroyFn = unsafe extern "C" fn(*mut c_void);

/// What the runtime tells a plug-in.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PluginArgs {
    /// [`crate::ABI_VERSION`] of the caller.
    pub abi_version: u32,
    /// `sizeof` this struct for the caller.
    pub struct_size: u32,
    /// `sizeof` the [`BootstrapVtable`] that the caller has room for.
    pub vtable_size: u32,
    /// Zero.
    pub reserved: u32,
    /// What to start from, or null: for MPI a `MPI_Comm *` whose ranks become the PEs.
    pub comm: *const c_void,
    /// Limit of one collective call, in milliseconds; 0: none.
    pub timeout_ms: u64,
    /// Limit of the start, in milliseconds; 0: none.
    pub init_timeout_ms: u64,
    /// Where the plug-in leaves its text when it fails; never null.
    pub error: *mut RawError,
}

/// A plug-in's entry: fills `vtable` and returns [`OK`], or fills `args->error` and returns a
/// [`crate::BootErrorKind`] code with `vtable` untouched. Collective over the ranks that will be PEs.
pub type PluginEntry = unsafe extern "C" fn(args: *const PluginArgs, vtable: *mut BootstrapVtable) -> i32;
