//! OpenSHMEM 1.6 as a client of rushmem's C ABI: `shmem.h` and `libshmem.so`, by which C and C++ programs
//! that were written for OpenSHMEM run on rushmem.
//!
//! The library is C, in `c/`: its interface has long doubles and complex numbers by value and functions with
//! any number of arguments, which Rust cannot export, and wants weak names. This crate is what builds it
//! (`build.rs`), from one table of operations. `target/<profile>/openshmem` is then laid out as a prefix:
//! header, library, `oshcc` and `oshrun`; `scripts/install` copies it.

pub mod header;
pub mod source;
pub mod table;

/// The prefix that the build script has filled.
pub const PREFIX: &str = env!("SHMEM_BUILD_PREFIX");
