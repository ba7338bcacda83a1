//! The PEs that share this host: who they are, the sockets between them, and their shared control segment.

pub(crate) mod card;
pub(crate) mod control;
mod inbox;
pub(crate) mod links;
pub(crate) mod mate;
mod meet;
pub(crate) mod message;
