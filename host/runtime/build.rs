//! Gives librushmem_host.so its name inside (the soname), by which the loader knows that it is already there.
//!
//! One process must have one runtime, whoever loads it: the Rust API by a path, a C program by `-lrushmem_host`,
//! a C library of a Rust program by its own dependency. With a soname, a library that needs
//! `librushmem_host.so` is bound to the copy that the process has loaded, whatever path that came from; without
//! one, the link line's path would be recorded and a second copy loaded. The name carries no version: the file
//! that Cargo builds has none, and what a version in the name would say is said better by the handshake
//! (`RUSHMEM_ABI_VERSION`), which prints both paths.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,librushmem_host.so");
}
