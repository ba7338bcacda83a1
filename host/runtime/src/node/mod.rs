//! The PEs that share this host: who they are, the sockets between them, and their shared control segment.

pub(crate) mod card;
pub(crate) mod control;
pub(crate) mod links;
mod meet;
pub(crate) mod message;
