//! What a PE computes on, and has its heap in: the CPU, or a GPU.

use std::fmt;

/// A kind of device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    /// The CPU: the heap is in host memory, kernels run on CPU threads.
    Cpu,
    /// A CUDA GPU: the one of this number among those that the process sees, or, to the builder, rushmem's
    /// choice.
    Cuda(Option<u32>),
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("CPU"),
            Device::Cuda(None) => f.write_str("GPU"),
            Device::Cuda(Some(number)) => write!(f, "GPU {number}"),
        }
    }
}
