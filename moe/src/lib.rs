//! Mixture-of-experts exchanges: tokens go to the ranks that hold their experts (*dispatch*), and the
//! experts' results come back and are added up (*combine*). For decoding, where latency counts, as for
//! prefill.
//!
//! An `AllToAll` is made once for a `Team` and a [`Config`]. Its calls are launches on a
//! `Stream`, on GPUs and on the CPU device alike, and can be captured into CUDA graphs.
//! `docs/moe.md` has layouts, guarantees, memory and figures, and how to move from DeepEP and pplx-kernels.
//!
//! It is a client of rushmem's public interface: `rushmem` on the host, the device headers in kernels.
//! Without the feature `api` it is the [`plan`] of an exchange alone, for front ends of other languages.

#[cfg(feature = "api")]
mod all_to_all;
mod buffers;
mod config;
mod error;
mod memory;
pub mod plan;
mod rooms;
mod source;

#[cfg(feature = "api")]
pub use all_to_all::AllToAll;
pub use buffers::{Count, Received, Tokens};
pub use config::{Config, Float, Fp8, Layout, Payload, Scales};
pub use error::{Error, Failure, Result, Why};
pub use memory::Memory;
