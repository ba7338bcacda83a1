//! The version of the C ABI and the codes that its functions return.

/// Version of this ABI. A client refuses a library with another one, and a job whose PEs have different ones
/// does not start.
pub const RUSHMEM_ABI_VERSION: u32 = 3;

/// Success.
pub const RUSHMEM_OK: i32 = 0;
/// An argument makes no sense (null, zero where not allowed, overflow, unknown constant).
pub const RUSHMEM_ERR_INVALID_ARGUMENT: i32 = -1;
/// A PE number outside `0..n_pes`.
pub const RUSHMEM_ERR_BAD_PE: i32 = -2;
/// An address that is not symmetric: outside the heap and every registered region, or already freed.
pub const RUSHMEM_ERR_BAD_ADDRESS: i32 = -3;
/// A range that starts inside an allocation and ends past it.
pub const RUSHMEM_ERR_OUT_OF_BOUNDS: i32 = -4;
/// PEs disagree in a collective call (different calls, different arguments).
pub const RUSHMEM_ERR_MISMATCH: i32 = -5;
/// The symmetric heap cannot grow far enough.
pub const RUSHMEM_ERR_HEAP_EXHAUSTED: i32 = -6;
/// A time limit passed.
pub const RUSHMEM_ERR_TIMEOUT: i32 = -7;
/// A PE of the job died or left.
pub const RUSHMEM_ERR_PEER_DEAD: i32 = -8;
/// The bootstrap failed.
pub const RUSHMEM_ERR_BOOTSTRAP: i32 = -9;
/// An environment variable is missing, malformed or contradicts another.
pub const RUSHMEM_ERR_ENVIRONMENT: i32 = -10;
/// Library versions do not fit.
pub const RUSHMEM_ERR_VERSION: i32 = -11;
/// A kernel source did not compile; the text holds the compiler's messages.
pub const RUSHMEM_ERR_COMPILE: i32 = -12;
/// A launch was refused (unknown kernel, wrong arguments, too many blocks).
pub const RUSHMEM_ERR_LAUNCH: i32 = -13;
/// Not possible on this device, transport or build.
pub const RUSHMEM_ERR_UNSUPPORTED: i32 = -14;
/// Work is still in flight, or another thread is inside a collective call of this world.
pub const RUSHMEM_ERR_BUSY: i32 = -15;
/// The operating system refused.
pub const RUSHMEM_ERR_IO: i32 = -16;
/// A handle that was never made, or was finalised.
pub const RUSHMEM_ERR_BAD_HANDLE: i32 = -17;
/// A defect in rushmem; please report it.
pub const RUSHMEM_ERR_INTERNAL: i32 = -18;
/// The call was made in a child of fork. Only the process that joined the job is its PE; a child execs
/// (`posix_spawn`, or `spawn` and `forkserver` of Python's multiprocessing) before it uses rushmem.
pub const RUSHMEM_ERR_FORKED: i32 = -19;
/// The function of `rushmem_on_wait` has ended this wait. A collective call that was interrupted may go on at
/// the other PEs: as a rule the job is left next.
pub const RUSHMEM_ERR_INTERRUPTED: i32 = -20;
