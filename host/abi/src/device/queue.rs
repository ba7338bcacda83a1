//! `abi_queue.h`: send queues of a network card that kernels write themselves.

/// Pieces of symmetric memory that kernels can name to the card.
pub const RUSHMEM_QUEUE_SEGMENTS: usize = 256;
/// Places for answers.
pub const RUSHMEM_QUEUE_SINKS: usize = 256;
/// Bytes of each.
pub const RUSHMEM_QUEUE_SINK_BYTES: usize = 64;
/// Bytes of data in a request itself.
pub const RUSHMEM_QUEUE_INLINE_BYTES: usize = 28;
/// Most contexts.
pub const RUSHMEM_QUEUE_CONTEXTS: usize = 64;

/// `rushmem_queue_segment`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the header says what each is")]
pub struct QueueSegment {
    pub offset: u64,
    pub bytes: u64,
    pub rkeys: u64,
    pub lkey: u32,
    pub reserved: u32,
}

/// `rushmem_queue`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the header says what each is")]
pub struct RawQueue {
    pub slots: u64,
    pub record: u64,
    pub bell: u64,
    pub completion: u64,
    pub stamps: u64,
    pub mask: u32,
    pub number: u32,
    pub reserved: [u64; 10],
    pub tail: u64,
    pub last_read: u64,
    pub last_atomic: u64,
    pub pad_tail: [u64; 13],
    pub rung: u64,
    pub ringing: u64,
    pub pad_rung: [u64; 14],
    pub completed: u64,
    pub probed: u64,
    pub settled: u64,
    pub fences: u64,
    pub pad_completed: [u64; 12],
}

impl RawQueue {
    /// No queue leads there.
    pub const NONE: RawQueue = RawQueue {
        slots: 0,
        record: 0,
        bell: 0,
        completion: 0,
        stamps: 0,
        mask: 0,
        number: 0,
        reserved: [0; 10],
        tail: 0,
        last_read: 0,
        last_atomic: 0,
        pad_tail: [0; 13],
        rung: 0,
        ringing: 0,
        pad_rung: [0; 14],
        completed: 0,
        probed: 0,
        settled: 0,
        fences: 0,
        pad_completed: [0; 12],
    };
}

/// `rushmem_queues`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the header says what each is")]
pub struct RawQueues {
    pub queues: u64,
    pub segments: u64,
    pub n_segments: u64,
    pub sinks: u64,
    pub sink_busy: u64,
    pub sink_address: u64,
    pub sink_lkey: u32,
    pub reserved_key: u32,
    pub card_words: u64,
    pub contexts: u32,
    pub context_step: u32,
    pub reserved: [u64; 7],
    pub sink_tail: u64,
    pub pad_sink: [u64; 15],
    pub fences: u64,
    pub atomics: u64,
    pub atomics_over: u64,
    pub pad_fences: [u64; 13],
}

impl RawQueues {
    /// Nothing is there.
    pub const NONE: RawQueues = RawQueues {
        queues: 0,
        segments: 0,
        n_segments: 0,
        sinks: 0,
        sink_busy: 0,
        sink_address: 0,
        sink_lkey: 0,
        reserved_key: 0,
        card_words: 0,
        contexts: 0,
        context_step: 0,
        reserved: [0; 7],
        sink_tail: 0,
        pad_sink: [0; 15],
        fences: 0,
        atomics: 0,
        atomics_over: 0,
        pad_fences: [0; 13],
    };
}

/// What is written to memory of the device word by word.
macro_rules! words {
    ($($record:ty)*) => {$(
        impl $record {
            /// As it lies in memory.
            pub fn words(&self) -> [u64; size_of::<$record>() / 8] {
                // SAFETY: as many bytes, all of which are a field's: the fields' sizes add up to them.
                unsafe { std::mem::transmute(*self) }
            }
        }
    )*};
}
words!(QueueSegment RawQueue RawQueues);
