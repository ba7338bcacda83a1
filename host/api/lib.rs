//! Symmetric memory for GPUs.
//!
//! N processing elements (PEs) each own one heap with the same layout. Any PE, from the host or from inside a
//! kernel, may put into, get from, update atomically, or wait on any other PE's heap: the partitioned global
//! address space of OpenSHMEM and NVSHMEM, in Rust.
//!
//! ```
//! use rushmem::{Cmp, SignalOp, World};
//!
//! fn main() -> rushmem::Result<()> {
//!     let world = World::init()?; // the launcher's environment says who else there is
//!     let inbox = world.alloc::<u64>(4)?; // collective: the same place on every PE
//!     let arrived = world.signal()?;
//!
//!     // Data, then a signal that is never seen before the data.
//!     let gift = [u64::from(world.my_pe().number()); 4];
//!     inbox.put_signal(&gift, &arrived, SignalOp::Set, 1, world.right())?;
//!
//!     arrived.wait_until(Cmp::Eq, 1)?;
//!     assert_eq!(inbox.to_vec().unwrap(), [u64::from(world.left().number()); 4]);
//!     println!("{} heard from {}", world.my_pe(), world.left());
//!     world.finalize()
//! }
//! ```
//!
//! Run it with `rushmem-run -n 4 -- ./program`, under `torchrun`, Slurm or `mpirun`; by itself it is a job of
//! one PE. [`testing`] runs several PEs inside `#[test]` functions.
//!
//! # What is where
//! - [`run`]: a program's `main`: joins the job, and carries an error or a panic of any PE to all of them.
//! - [`World`]: joining and leaving a job, allocation, ordering, synchronisation. A value, not a global: a
//!   process may hold several.
//! - [`SymSlice`] and its views, [`SymRef`]: symmetric memory and what can be done with it: `put`, `get`,
//!   `p`, `g`; one word at a time through [`SymRef::at`]; waits through [`SymRef::ivars`].
//! - [`Signal`], [`Signals`]: words that announce data.
//! - [`Team`]: some PEs that synchronise and communicate together; kernels take one by value. Its collectives
//!   take symmetric memory or slices ([`FromMemory`], [`ToMemory`]); what is reduced are [`Number`]s.
//! - [`Stream`], [`Event`]: the same operations as methods (`stream.put`) in a stream's order, on the
//!   device's own time.
//! - [`Module`], [`Kernel`], [`Launch`]: CUDA C++ kernels that use the same operations on the device.
//!
//! With the cargo feature `cudarc`, [`SymRef::on_stream`](SymRef) makes a slice of a GPU's heap what cudarc's
//! functions take.
//!
//! # Safety
//! Symmetric memory never turns into `&T` or `&mut T`: a peer may write at any time. There are copies in and
//! out, single words that are never torn, and raw pointers. Elements are types for which any bits are a value
//! ([`Symmetric`]), so a racing copy may be mixed but never invalid. Slices borrow their world, so none
//! outlives it:
//!
//! ```compile_fail,E0505
//! # fn main() -> rushmem::Result<()> {
//! let world = rushmem::World::init()?;
//! let slice = world.alloc::<u64>(4)?;
//! world.finalize()?;
//! slice.free() // refused: the world has been moved away
//! # }
//! ```
//!
//! ```compile_fail,E0608
//! # fn main() -> rushmem::Result<()> {
//! # let world = rushmem::World::init()?;
//! # let slice = world.alloc::<u64>(4)?;
//! let first: &u64 = &slice[0]; // refused: `slice.g(0, world.my_pe())?` copies it out
//! # Ok(()) }
//! ```
//!
//! ```compile_fail,E0505
//! # fn main() -> rushmem::Result<()> {
//! # let world = rushmem::World::init()?;
//! # let slice = world.alloc::<u64>(4)?;
//! let half = slice.slice(..2)?;
//! slice.free()?;
//! half.fill(1); // refused: the view's memory has been freed
//! # Ok(()) }
//! ```
//!
//! # The runtime
//! This crate is a client of `librushmem_host.so`, the one runtime of a process, which it loads at the first
//! call: a C library in the same process that uses rushmem shares it. It is looked for in `RUSHMEM_HOST_LIB`,
//! around the executable, in the executable itself, which carries a copy, and where the system's loader
//! looks. So `cargo install` and a program copied elsewhere need nothing beside them. Without the cargo
//! feature `embed`, which is on by default, a program is some megabytes smaller and carries none.

mod args;
mod atomic;
mod builder;
mod card_word;
mod collective;
mod context;
#[cfg(feature = "cudarc")]
mod cudarc;
mod device;
pub mod doctor;
mod element;
mod embedded;
mod error;
mod forked;
mod gpu;
mod heap;
mod kernel;
mod loaded;
mod nbi;
mod near;
mod near_pes;
mod number;
mod order;
mod pe;
mod put_signal;
mod rma;
mod run;
mod runtime;
mod signal;
mod slice;
mod source;
mod stream;
mod strided;
mod table;
mod team;
mod team_stream;
pub mod testing;
mod wait;
mod world;

#[cfg(feature = "cudarc")]
pub use self::cudarc::DeviceView;
pub use args::{ArgType, ByValue, KernelArg, KernelArgs};
pub use atomic::Remote;
pub use builder::{Uid, WorldBuilder};
pub use card_word::CardWord;
pub use collective::{FromMemory, ToMemory};
pub use context::{Context, Entered};
pub use device::Device;
pub use element::{AtomicInt, AtomicType, Symmetric};
pub use error::{Error, ErrorCode, Result};
pub use gpu::{gpus, Gpu};
pub use heap::{HeapInfo, Registered};
pub use kernel::{Dim3, Kernel, Launch, Module};
pub use nbi::NbiScope;
pub use near_pes::{NearPes, NearShape};
pub use number::{And, Complex, Integer, Max, Min, Number, Operator, Or, Ordered, Prod, Sum, Xor};
pub use pe::Pe;
pub use run::{run, run_with};
pub use signal::{Signal, SignalOp, SignalRef, Signals};
pub use slice::{SymRef, SymSlice};
pub use source::Source;
pub use stream::{Event, Stream};
pub use team::{Split, Team, TeamComparison, TeamConfig};
pub use team_stream::{Prepared, SlotSet};
pub use wait::{Cmp, Ivars};
pub use world::{Asked, Counters, Peer, World};

#[doc(no_inline)]
pub use half;
#[doc(no_inline)]
pub use zerocopy;

/// The loaded runtime: its version and the path that it came from. Loads it if that has not happened yet.
///
/// # Errors
/// [`ErrorCode::LibraryNotFound`] lists the paths tried, [`ErrorCode::Version`] names both sides of a
/// mismatch.
pub fn runtime() -> Result<(String, std::path::PathBuf)> {
    let runtime = runtime::Runtime::get()?;
    Ok((runtime.version(), runtime.path()))
}
