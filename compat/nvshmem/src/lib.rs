//! NVSHMEM's interface as a client of rushmem's C ABI and device headers: `nvshmem.h`, `nvshmemx.h` and
//! `libnvshmem_host.so`, with which programs that were written for NVSHMEM 3 run on rushmem.
//!
//! The library is C, in `c/`, and the functions of kernels are in headers, in `include/`. This crate is what
//! builds them (`build.rs`), from one table of operations. `target/<profile>/nvshmem` is then laid out as a
//! prefix; `scripts/install-nvshmem` copies it.

pub mod header;
pub mod source;
pub mod table;

/// The prefix that the build script has filled.
pub const PREFIX: &str = env!("PREFIX_OF_NVSHMEM");
