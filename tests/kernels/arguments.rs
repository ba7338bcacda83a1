//! What kernels of tests/kernels get besides memory: structs that lie as those of the `.cu` files do, so that
//! numbers have names and no positions. Those of one test stand beside it; the `.cu` file says what a field
//! is.
#![allow(missing_docs, reason = "the kernels' comments say what each is")]

/// `large_args` of rma.cu.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Large {
    pub op: i32,
    pub scope: i32,
    pub bytes: usize,
    pub from_align: usize,
    pub to_align: usize,
    pub seed: u64,
}

/// `exchange_args` of signals.cu.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Exchange {
    pub bytes: usize,
    pub scope: i32,
    pub rounds: i32,
    pub seed: u64,
}

/// `sync_args` of sync.cu.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Syncs {
    pub scope: i32,
    pub barrier: i32,
    pub rounds: i32,
    pub seed: u64,
}

/// `litmus_args` of litmus.cu.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Litmus {
    pub words: usize,
    pub form: i32,
    pub rounds: i32,
}

/// `columns_args` of signals.cu.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Columns {
    pub rows: i32,
    pub scope: i32,
    pub rounds: i32,
    pub seed: u64,
}

/// `warps_args` of storm.cu.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Warps {
    pub words: u64,
    pub rounds: i32,
    pub seed: u64,
}

/// `alltoall_args` of many.cu.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Alltoall {
    pub words: usize,
    pub rounds: i32,
    pub seed: u64,
}

/// `occupied_args` of occupied.cu.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Occupied {
    pub words: usize,
    pub value: u64,
    pub seed: u64,
}

/// `big_check_args` of big.cu.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct BigCheck {
    pub before: usize,
    pub n: usize,
    pub room: usize,
    pub from: usize,
    pub seed: u64,
    pub pe: i32,
}

/// `big_transfer_args` of big.cu.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct BigTransfer {
    pub n: usize,
    pub op: i32,
    pub scope: i32,
    pub pe: i32,
}

/// `big_words_args` of big.cu.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct BigWords {
    pub at: usize,
    pub far: usize,
    pub seed: u64,
    pub pe: i32,
}
