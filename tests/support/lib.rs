//! What the test programs of the root package share, a crate so that each of them takes what it needs and
//! nothing is compiled twenty times.

#[path = "../api_common/mod.rs"]
pub mod api_common;
#[path = "../kernels/arguments.rs"]
pub mod arguments;
#[path = "../gpu_memory/mod.rs"]
pub mod gpu_memory;
#[path = "../programs/mod.rs"]
pub mod programs;
pub mod reports;
