//! The types and constants of the C ABI, as `rushmem.h` shows them; that header is made from these files.

mod collectives;
mod functions;
mod operation;
mod status;
mod types;

pub use operation::*;
pub use status::*;
pub use types::*;
