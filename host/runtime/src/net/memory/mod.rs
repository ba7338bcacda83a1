//! Memory that operations of the network read and write: [`segments`] says which parts of the PEs' strides
//! exist, [`host`] carries out what other PEs ask of host memory, and [`span`] is the memory of one transfer.
//! [`crate::net::gpu`] does the same for GPU memory.

pub(in crate::net) mod host;
pub(in crate::net) mod reachable;
pub(in crate::net) mod segments;
pub(crate) mod span;
