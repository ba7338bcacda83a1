//! The PEs that share this host: the sockets between them, and their shared control segment. (Who they are:
//! [`crate::topology`].)

pub(crate) mod control;
mod inbox;
pub(crate) mod links;
pub(crate) mod mate;
mod meet;
pub(crate) mod message;
pub(crate) mod notice;

/// The messages of the node's sockets.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz(bytes: &[u8]) {
    links::fuzz(bytes);
}
