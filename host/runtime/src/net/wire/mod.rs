//! What travels between engines.

pub(crate) mod message;
