//! What the runtime's own tests share.

pub(crate) mod atomics;
pub(crate) mod bootstrap;
pub(crate) mod device;
pub(crate) mod random;
