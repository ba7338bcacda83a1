//! What the host and kernels share in memory. The headers `device/include/rushmem/abi*.h` say the same in C,
//! and what it means; `tests/headers.rs` compares the two, number by number and field by field. C's names, so
//! that one search finds both; the structs are named for Rust, and each says its name in C.

mod mailbox;
mod queue;
mod ring;
mod state;
mod trace;

pub use mailbox::*;
pub use queue::*;
pub use ring::*;
pub use state::*;
pub use trace::*;
