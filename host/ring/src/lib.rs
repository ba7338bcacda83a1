//! The protocol of the device ring: how any number of threads of kernels hand 64-byte descriptors to one
//! thread of the host, and get answers. `device/include/rushmem/abi_ring.h` says what the words mean and why
//! it is right; this crate is the host's half, [`Consumer`], and a model of the kernels' half ([`model`],
//! which takes the steps of `impl/net/ring.h`, as a test compares), so that loom can try every interleaving
//! of the two: `RUSTFLAGS="--cfg loom" cargo test -p rushmem-ring --release`, which `scripts/test` runs.
//!
//! Beside it stands a model of another queue that threads of kernels share, a network card's send queue
//! (`impl/net/send_queue.h`), for tests alone.
//!
//! A crate of its own because loom wants every atomic of what it models to be one of its own.

mod consumer;
mod memory;
pub mod model;
#[cfg(test)]
mod send_queue;
#[cfg(test)]
mod send_queue_tests;
#[cfg(all(test, not(loom), not(miri)))]
mod steps;
mod sync;
#[cfg(test)]
mod tests;

pub use consumer::Consumer;
pub use memory::{Reply, Slot, View, WORDS};
pub use sync::AtomicU64;
