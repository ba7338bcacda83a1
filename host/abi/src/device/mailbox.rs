//! `abi_mailbox.h`: updates of words of a GPU's memory that far PEs ask for and threads of that GPU carry
//! out.

use std::sync::atomic::AtomicU64;

/// Requests that can be in flight; a power of two.
pub const RUSHMEM_MAILBOX_SLOTS: usize = 256;

/// [`WordKind::Bits`].
pub const RUSHMEM_WORD_BITS: u8 = 0;
/// [`WordKind::Float`].
pub const RUSHMEM_WORD_FLOAT: u8 = 1;
/// [`WordKind::BFloat16`].
pub const RUSHMEM_WORD_BFLOAT16: u8 = 2;

/// As what a word is taken.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WordKind {
    /// Bits: every operation, on 4 and 8 bytes.
    Bits = RUSHMEM_WORD_BITS,
    /// IEEE floats of 2, 4 or 8 bytes: additions only.
    Float = RUSHMEM_WORD_FLOAT,
    /// A bfloat16: additions only.
    BFloat16 = RUSHMEM_WORD_BFLOAT16,
}

/// `rushmem_mailbox_request`. Both sides write it, by protocol.
#[repr(C)]
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "the header says what each is")]
pub struct MailboxRequest {
    pub address: AtomicU64,
    pub value: AtomicU64,
    pub compare: AtomicU64,
    pub what: AtomicU64,
}

impl MailboxRequest {
    /// The word `what`: operation `RUSHMEM_ATOMIC_*`, kind and size.
    pub fn what(op: i32, kind: WordKind, bytes: usize) -> u64 {
        op as u64 & 0xff | (kind as u64) << 8 | (bytes as u64) << 16
    }
}

/// `rushmem_mailbox_queue`.
#[repr(C, align(128))]
#[derive(Debug)]
#[allow(missing_docs, reason = "the header says what each is")]
pub struct MailboxQueue {
    pub done: AtomicU64,
    pub pad: [u64; 15],
    pub requests: [MailboxRequest; RUSHMEM_MAILBOX_SLOTS],
    pub results: [AtomicU64; RUSHMEM_MAILBOX_SLOTS],
}

impl Default for MailboxQueue {
    fn default() -> MailboxQueue {
        MailboxQueue {
            done: AtomicU64::new(0),
            pad: [0; 15],
            requests: std::array::from_fn(|_| MailboxRequest::default()),
            results: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

/// `rushmem_mailbox`.
#[repr(C, align(128))]
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "the header says what each is")]
pub struct RawMailbox {
    pub bell: AtomicU64,
    pub turn: AtomicU64,
    pub queue: AtomicU64,
    pub pad: [u64; 13],
}
