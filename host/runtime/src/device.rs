//! The device of a PE: the CPU, or a GPU that this module chooses.
//!
//! All PEs of a job have the same kind, so that one heap layout and one kind of kernel serve it. Which GPU:
//! the one that was asked for; else that of the thread's current CUDA context, as a program that called
//! `cudaSetDevice` expects; else the PE's number among those of its host, modulo the GPUs that its process
//! sees. That is right both where a launcher shows each process its own GPU and where all see all.

use std::fmt;
use std::sync::Arc;

use crate::config::{Config, DeviceWish};
use crate::error::{err, Result};
use crate::gpu::{nvlink, Cuda};

/// The kind of a PE's device. The numbers travel on cards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum DeviceKind {
    Cpu = 1,
    Cuda = 2,
}

impl DeviceKind {
    /// PE 0 of a checked run says what is not seen there.
    pub(crate) fn warn_of_checks(self, config: &Config, pe: u32) {
        if config.check.is_on() && self == DeviceKind::Cuda && pe == 0 {
            log::warn!(
                "RUSHMEM_CHECK: kernels on GPUs are not checked, calls of the host alone; RUSHMEM_DEVICE=cpu runs kernels \
                 where they are"
            );
        }
    }

    /// The kind that a wish means on this machine.
    pub(crate) fn choose(wish: DeviceWish) -> Result<DeviceKind> {
        match wish {
            DeviceWish::Cpu => Ok(DeviceKind::Cpu),
            DeviceWish::Cuda(_) => match Cuda::count() {
                Ok(0) => Err(err!(
                    UNSUPPORTED,
                    "RUSHMEM_DEVICE asks for a GPU, but NVIDIA's driver (libcuda.so.1) is not installed here or finds none; \
                     RUSHMEM_DEVICE=cpu runs the same programs on the CPU"
                )),
                Ok(_) => Ok(DeviceKind::Cuda),
                Err(e) => Err(e.context("RUSHMEM_DEVICE asks for a GPU")),
            },
            DeviceWish::Auto => match Cuda::count() {
                Ok(0) => Ok(DeviceKind::Cpu),
                Ok(_) => Ok(DeviceKind::Cuda),
                // Falling to the CPU quietly would be the slowest surprise there is.
                Err(e) => Err(e.context("a GPU is here but cannot be used (RUSHMEM_DEVICE=cpu does without)")),
            },
        }
    }

    /// The kind behind a card's number.
    pub(crate) fn name(number: u32) -> &'static str {
        match number {
            1 => "the CPU",
            2 => "a GPU",
            _ => "an unknown device",
        }
    }
}

/// The device of a PE.
#[derive(Debug, Clone)]
pub(crate) enum Device {
    Cpu,
    Gpu(Arc<Cuda>),
}

impl Device {
    /// Whether what a warp stores at once is seen whole by the GPU with that UUID, where the devices are GPUs
    /// (`impl/coll/wide.h`).
    pub(crate) fn has_wide_packets_to(&self, uuid: &[u8; 16]) -> bool {
        self.gpu().is_none_or(|gpu| nvlink::connects(gpu, uuid))
    }

    /// Opens the device of the PE that is number `local` of its host.
    pub(crate) fn open(kind: DeviceKind, wish: DeviceWish, local: usize) -> Result<Device> {
        if kind == DeviceKind::Cpu {
            return Ok(Device::Cpu);
        }
        let seen = Cuda::count()?;
        let ordinal = match wish {
            DeviceWish::Cuda(Some(ordinal)) => ordinal,
            _ => Cuda::current_ordinal()?.unwrap_or(local % seen.max(1)),
        };
        let cuda = Cuda::open(ordinal)?;
        let facts = cuda.facts();
        if !facts.vmm || !facts.posix_fd {
            return Err(err!(
                UNSUPPORTED,
                "{cuda} cannot hold a symmetric heap: it has no virtual memory management that is shared by descriptors \
                 (RUSHMEM_DEVICE=cpu does without)"
            ));
        }
        Ok(Device::Gpu(cuda))
    }

    /// The GPU, if it is one.
    pub(crate) fn gpu(&self) -> Option<&Arc<Cuda>> {
        match self {
            Device::Cpu => None,
            Device::Gpu(cuda) => Some(cuda),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("the CPU"),
            Device::Gpu(cuda) => cuda.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::code;

    #[test]
    fn without_a_gpu_auto_is_the_cpu_and_a_wish_for_one_is_an_error() {
        assert_eq!(DeviceKind::choose(DeviceWish::Cpu).unwrap(), DeviceKind::Cpu);
        if Cuda::count().unwrap_or(1) > 0 {
            eprintln!("SKIP the rest: there is a GPU");
            return;
        }
        assert_eq!(DeviceKind::choose(DeviceWish::Auto).unwrap(), DeviceKind::Cpu);
        let e = DeviceKind::choose(DeviceWish::Cuda(None)).unwrap_err();
        assert_eq!(e.code, code::UNSUPPORTED);
        assert!(e.message.contains("RUSHMEM_DEVICE=cpu"), "{e}");
        assert!(matches!(Device::open(DeviceKind::Cpu, DeviceWish::Auto, 3).unwrap(), Device::Cpu));
    }
}
