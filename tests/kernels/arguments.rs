//! What kernels of tests/kernels are told besides memory: structs that lie as those of the `.cu` files do, so that numbers
//! have names and no positions. Those of one test stand beside it.

/// `large_args` of rma.cu.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Large {
    pub(crate) op: i32,
    pub(crate) scope: i32,
    pub(crate) bytes: usize,
    pub(crate) from_align: usize,
    pub(crate) to_align: usize,
    pub(crate) seed: u64,
}

/// `exchange_args` of signals.cu.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Exchange {
    pub(crate) bytes: usize,
    pub(crate) scope: i32,
    pub(crate) rounds: i32,
    pub(crate) seed: u64,
}
