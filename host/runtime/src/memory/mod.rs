//! Symmetric memory: one heap with one layout on every PE, backed by memory that grows on demand, and what
//! the user has registered.
//!
//! * [`alloc`]: which bytes are handed out. Deterministic and out of band, so the same calls give the same
//!   offsets on every PE and no header in shared memory can be overwritten.
//! * [`window`]: where they are. One reservation holds every near PE's heap, `stride` apart.
//! * [`backing`]: what they are made of: host memory, or a GPU's.
//! * [`live`]: which address belongs to which live allocation, for the checks of every operation.
//! * [`map`]: what lies at an address or near it, for texts about faults.
//! * [`region`], [`gpu_region`]: user memory that was registered as symmetric, the host's and a GPU's.
//! * [`segments`]: where the copies of registered memory are that cannot be mapped into the window.
//! * [`symmetric`]: all of it made collective: allocation, registration.
//! * [`remote`]: how PEs that do not map this memory learn of it.

pub(crate) mod alloc;
pub(crate) mod backing;
pub(crate) mod gpu_region;
pub(crate) mod live;
pub(crate) mod map;
pub(crate) mod region;
pub(crate) mod remote;
pub(crate) mod segments;
pub(crate) mod symmetric;
pub(crate) mod window;
