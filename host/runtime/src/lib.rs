//! The rushmem host runtime: `librushmem_host.so`, the one runtime of a process.
//!
//! Every front end (the Rust API, a C or C++ program) loads this library and speaks its C ABI, `capi`. From the
//! bottom up: `memory` and `node` deal with the operating system and the PEs of this host; `heap` is
//! bookkeeping; `symmetric` and `collective` make the two into symmetric memory; `far` is the way
//! to PEs whose memory is not mapped; `world` holds it all together;
//! `ops` are the operations; `boot` chooses how PEs find each other.

mod at_exit;
mod boot;
pub mod capi;
mod collective;
mod config;
mod device;
mod device_state;
mod error;
mod fork;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod gpu;
mod handles;
mod health;
mod heap;
mod kernel;
mod logging;
mod memory;
mod net;
mod node;
mod ops;
mod placement;
mod plugin;
mod settings;
mod symmetric;
mod topology;
mod word;
mod world;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
