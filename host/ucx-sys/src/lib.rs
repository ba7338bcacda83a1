//! UCX's UCP interface for rushmem: how PEs on other hosts are reached.
//!
//! Three parts. [`bindings`] is made from the headers of UCX 1.13 (`scripts/ucx-bindings`) and holds the
//! functions of [`FUNCTIONS`] as methods of [`Ucp`]. [`macros`] writes by hand what bindgen cannot see.
//! [`load`](mod@load) finds the library at run time: nothing links against UCX, so a machine without it runs
//! every job whose PEs share a host.
//!
//! # Versions
//!
//! UCX keeps its ABI: a structure grows only behind a bit of its `field_mask` (`op_attr_mask` in requests),
//! and a function is never taken away. Bindings of 1.13 so serve 1.13 and everything newer. Two values are
//! not safe to pass on, because later versions moved them: `UCS_MEMORY_TYPE_LAST` and
//! `UCS_MEMORY_TYPE_UNKNOWN` (5 here, larger since). To let UCX find a memory's type out, leave the field's
//! bit unset.
//!
//! # Use
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let ucp = ucx_sys::Ucp::load()?;
//! println!("UCX {} in {}", ucp.version(), ucp.path().display());
//! # Ok(())
//! # }
//! ```

#[rustfmt::skip] // formatted by the script that makes it
#[allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    unused_imports,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    rustdoc::all
)]
pub mod bindings;
mod functions;
mod hooks;
pub mod load;
pub mod macros;
mod search;

pub use bindings::*;
pub use functions::FUNCTIONS;
pub use load::{LoadError, Tried, Version, OLDEST};
pub use macros::*;
pub use search::Search;
