//! What the proxy thread does to this PE's own GPU memory on behalf of far PEs, without needing a free SM:
//! [`mailbox`] has words updated atomically by whichever thread of the GPU waits, [`staging`] moves bulk
//! through pinned [`chunks`] with the copy engines, [`direct`] finds out whether UCX can reach GPU memory by
//! itself, and at [`gate`]s streams wait for what the proxy does for them. [`peer_queues`] and [`traffic`]
//! keep the order; what they have the GPU do is a [`mover`].
//!
//! All but the gates belongs to one thread, polls, and never waits for the GPU.

pub(crate) mod chunks;
pub(crate) mod direct;
pub(crate) mod gate;
pub(crate) mod mailbox;
pub(crate) mod mover;
pub(crate) mod peer_queues;
pub(crate) mod staging;
pub(crate) mod traffic;
