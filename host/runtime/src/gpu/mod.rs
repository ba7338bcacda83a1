//! CUDA, made safe: what the runtime needs of the driver and of NVRTC, and no more.
//!
//! Everything here owns what it made and gives it back on drop, reports the driver's own words as an
//! [`Error`](crate::error::Error), and is harmless on a machine without CUDA: [`Cuda::count`] is 0 there and
//! [`Cuda::open`] says what is missing. From the bottom up: [`driver`] finds libcuda and turns its answers
//! into results; [`device`] is a GPU with its context, [`nvlink`] what connects two of them, and [`watch`]
//! sees calls that do not return; [`vmm`] is memory that other PEs can map, [`plain`] memory for ourselves,
//! [`ipc`] the older way to share what was not made for it, [`dma_buf`] how network cards reach it, and
//! [`pointer`] tells what an address is; [`pinned`] is host memory that a GPU can reach; [`stream`] and
//! [`event`] order work, [`copy`] and [`memop`] are work that needs no kernel; [`nvrtc`], [`nvjitlink`] and
//! [`compile`] turn a source into machine code with what [`embedded`] holds, [`module`] and [`launch`] run
//! it, [`sharing`] keeps PEs apart that do so in one context, and [`turns`] has one of them compile for all;
//! [`names`] are what C++ calls it.
//!
//! Addresses are `usize`, as everywhere in the runtime: CUDA's unified addressing gives host and GPU memory
//! one address space, so an address means the same to a copy, a kernel and the bookkeeping.

pub(crate) mod compile;
mod context;
pub(crate) mod copy;
pub(crate) mod device;
mod dma_buf;
pub(crate) mod driver;
pub(crate) mod embedded;
pub(crate) mod event;
mod includes;
pub(crate) mod ipc;
pub(crate) mod launch;
mod link_options;
pub(crate) mod memop;
pub(crate) mod module;
pub(crate) mod names;
pub(crate) mod nvjitlink;
pub(crate) mod nvlink;
pub(crate) mod nvrtc;
pub(crate) mod pinned;
pub(crate) mod plain;
pub(crate) mod pointer;
mod search;
pub(crate) mod sharing;
mod signatures;
mod stacks;
pub(crate) mod stream;
pub(crate) mod turns;
pub(crate) mod vmm;
pub(crate) mod watch;
mod working_dir;

pub(crate) use device::Cuda;

#[cfg(test)]
mod tests;
