//! Formats of mlx5 cards, as far as the host writes and reads them; `impl/net/mlx5.h` says the same for
//! kernels. A test compares both with rdma-core's `mlx5dv.h`.

/// Bytes of a request.
pub(in crate::net) const BLOCK: usize = 64;
/// In a completion: the syndrome of a failure, the counter, kind and owner.
pub(in crate::net) const SYNDROME_AT: usize = 55;
pub(in crate::net) const COUNTER_AT: usize = 60;
pub(in crate::net) const OWNER_AT: usize = 63;
/// Kinds of completions.
pub(in crate::net) const DONE: u8 = 0;
pub(in crate::net) const NONE_YET: u8 = 15;
/// Which word of the doorbell record is the send queue's.
pub(in crate::net) const RECORD_SEND: usize = 1;
/// A request that does nothing.
pub(in crate::net) const NOP: u8 = 0x00;
/// An RDMA READ.
pub(in crate::net) const READ: u8 = 0x10;
/// The flag that asks for a completion.
pub(in crate::net) const COMPLETE: u8 = 8;

/// The first 16 bytes of a request that does nothing, for the slot of request `index`.
pub(in crate::net) fn nop(index: u16, number: u32) -> [u64; 2] {
    let head = (u32::from(index) << 8 | u32::from(NOP)).to_be();
    let pair = (number << 8 | 1).to_be();
    [u64::from(head) | u64::from(pair) << 32, u64::from(COMPLETE) << 24]
}

/// A READ of 8 bytes at `remote` into `local`, for the slot of request `index`. Keys as a card gives them.
pub(in crate::net) fn read_word(
    index: u16,
    number: u32,
    (remote, rkey): (u64, u32),
    (local, lkey): (u64, u32),
) -> [u64; 6] {
    let head = (u32::from(index) << 8 | u32::from(READ)).to_be();
    let pair = (number << 8 | 3).to_be();
    [
        u64::from(head) | u64::from(pair) << 32,
        u64::from(COMPLETE) << 24,
        remote.to_be(),
        u64::from(rkey.to_be()),
        u64::from(8u32.to_be()) | u64::from(lkey.to_be()) << 32,
        local.to_be(),
    ]
}

/// What a doorbell register takes, when the request of that index was the last.
pub(in crate::net) fn bell(index: u16, number: u32) -> u64 {
    u64::from((u32::from(index) << 8).to_be()) | u64::from((number << 8).to_be()) << 32
}

/// A completion, of its last two words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::net) enum Completion {
    NoneYet,
    /// All requests up to this index.
    Done(u16),
    /// That request, with a syndrome.
    Failed(u16, u8),
}

impl Completion {
    pub(in crate::net) fn read(sixth: u64, last: u64) -> Completion {
        let byte =
            |at: usize| (if at < 56 { sixth >> (8 * (at - 48)) } else { last >> (8 * (at - 56)) }) as u8;
        let counter = u16::from_be_bytes([byte(COUNTER_AT), byte(COUNTER_AT + 1)]);
        match byte(OWNER_AT) >> 4 {
            NONE_YET => Completion::NoneYet,
            DONE => Completion::Done(counter),
            _ => Completion::Failed(counter, byte(SYNDROME_AT)),
        }
    }
}
