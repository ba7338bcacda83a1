//! A crate whose kernel is compiled while it is built (build.rs).

/// The kernel as text: what the CPU device runs, and GPUs for which it was not compiled before.
pub const TEXT: &str = include_str!("double.cu");

/// The kernel as machine code for sm_90, where the build had an nvcc.
#[cfg(machine_code)]
pub const CODE: Option<&[u8]> = Some(include_bytes!(concat!(env!("OUT_DIR"), "/double.cubin")));
#[cfg(not(machine_code))]
pub const CODE: Option<&[u8]> = None;

/// The version of rushmem that the kernel was compiled against.
pub const BUILT_AGAINST: &str = env!("RUSHMEM_BUILT_AGAINST");
