//! Teams: which PEs are members, and the symmetric memory by which their collectives meet.

pub(crate) mod slots;
