//! What the examples say of the device.

use rushmem::World;

/// What kernels of this world run on.
pub(crate) fn name(world: &World) -> String {
    match world.device() {
        rushmem::Device::Cpu => "CPU".into(),
        _ => world.device_name(),
    }
}
