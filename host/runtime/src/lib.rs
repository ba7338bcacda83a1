//! The rushmem host runtime: `librushmem_host.so`, the one runtime of a process.
//!
//! Every front end (the Rust API, a C or C++ program) loads this library and speaks its C ABI, `capi`. From
//! the bottom up: `os` and `node` deal with the operating system and the PEs of this host; `collective` is
//! the rounds of host calls that all PEs make; `memory` is symmetric memory; `net` is the way to PEs whose
//! memory is not mapped; `op` says what is asked and checks it, `exec` carries it out; `boot` chooses how PEs
//! find each other; `world` holds it all together. `scripts/check-tree` has the table of who may use whom.

mod boot;
pub mod capi;
mod collective;
mod config;
mod crash;
mod device;
mod device_state;
mod error;
mod exec;
mod fork;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod gpu;
mod handles;
mod health;
mod interrupt;
mod kernel;
mod logging;
mod memory;
mod net;
mod node;
mod op;
mod os;
mod plugin;
mod reduction;
#[cfg(any(test, feature = "fuzzing"))]
mod seeds;
mod settings;
mod team;
mod topology;
mod trace;
mod verbs;
mod word;
mod world;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
