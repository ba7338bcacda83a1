//! The order of operations.

pub(in crate::net) mod order;
