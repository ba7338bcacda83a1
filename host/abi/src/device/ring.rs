//! `abi_ring.h`: the descriptors by which kernels ask the host for operations on PEs that are not mapped. The
//! protocol is the crate `rushmem-ring`.

/// [`RingOp::Put`].
pub const RUSHMEM_RING_PUT: u8 = 1;
/// [`RingOp::PutInline`].
pub const RUSHMEM_RING_PUT_INLINE: u8 = 2;
/// [`RingOp::Get`].
pub const RUSHMEM_RING_GET: u8 = 3;
/// [`RingOp::G`].
pub const RUSHMEM_RING_G: u8 = 4;
/// [`RingOp::Iput`].
pub const RUSHMEM_RING_IPUT: u8 = 5;
/// [`RingOp::Iget`].
pub const RUSHMEM_RING_IGET: u8 = 6;
/// [`RingOp::Atomic`].
pub const RUSHMEM_RING_ATOMIC: u8 = 7;
/// [`RingOp::Signal`].
pub const RUSHMEM_RING_SIGNAL: u8 = 8;
/// [`RingOp::PutSignal`].
pub const RUSHMEM_RING_PUT_SIGNAL: u8 = 9;
/// [`RingOp::PutSignalInline`].
pub const RUSHMEM_RING_PUT_SIGNAL_INLINE: u8 = 10;
/// [`RingOp::Fence`].
pub const RUSHMEM_RING_FENCE: u8 = 11;
/// [`RingOp::Quiet`].
pub const RUSHMEM_RING_QUIET: u8 = 12;

/// A flag of a descriptor: the kernel waits for an answer.
pub const RUSHMEM_RING_REPLY: u8 = 1;
/// A flag of a descriptor: an atomic's word is a float or double.
pub const RUSHMEM_RING_FLOAT: u8 = 2;
/// Bytes that a descriptor can carry itself.
pub const RUSHMEM_RING_INLINE_BYTES: usize = 32;

/// What a descriptor asks for.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingOp {
    /// A put.
    Put = RUSHMEM_RING_PUT,
    /// A put of a few bytes that the descriptor carries.
    PutInline = RUSHMEM_RING_PUT_INLINE,
    /// A get.
    Get = RUSHMEM_RING_GET,
    /// A get of up to 8 bytes, into the answer.
    G = RUSHMEM_RING_G,
    /// A strided put.
    Iput = RUSHMEM_RING_IPUT,
    /// A strided get.
    Iget = RUSHMEM_RING_IGET,
    /// An atomic.
    Atomic = RUSHMEM_RING_ATOMIC,
    /// An update of a signal word.
    Signal = RUSHMEM_RING_SIGNAL,
    /// A put, then a signal.
    PutSignal = RUSHMEM_RING_PUT_SIGNAL,
    /// A put of up to 8 bytes that the descriptor carries, then a signal.
    PutSignalInline = RUSHMEM_RING_PUT_SIGNAL_INLINE,
    /// A fence.
    Fence = RUSHMEM_RING_FENCE,
    /// A quiet.
    Quiet = RUSHMEM_RING_QUIET,
}

impl RingOp {
    /// All, by number.
    pub const ALL: [RingOp; 12] = [
        RingOp::Put,
        RingOp::PutInline,
        RingOp::Get,
        RingOp::G,
        RingOp::Iput,
        RingOp::Iget,
        RingOp::Atomic,
        RingOp::Signal,
        RingOp::PutSignal,
        RingOp::PutSignalInline,
        RingOp::Fence,
        RingOp::Quiet,
    ];

    /// The operation of that number.
    pub fn of(number: u8) -> Option<RingOp> {
        RingOp::ALL.into_iter().find(|op| *op as u8 == number)
    }

    /// The operation, for texts.
    pub fn what(self) -> &'static str {
        match self {
            RingOp::Put => "a put",
            RingOp::PutInline => "a put of a few bytes",
            RingOp::Get | RingOp::G => "a get",
            RingOp::Iput => "an iput",
            RingOp::Iget => "an iget",
            RingOp::Atomic => "an atomic",
            RingOp::Signal => "a signal",
            RingOp::PutSignal | RingOp::PutSignalInline => "a put_signal",
            RingOp::Fence => "a fence",
            RingOp::Quiet => "a quiet",
        }
    }
}

/// Whom an answer goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    /// Which reply slot.
    pub slot: u32,
    /// The ticket of the descriptor that is answered.
    pub ticket: u64,
}

/// `rushmem_descriptor`. Symmetric addresses in it are the poster's own; nothing of it has been checked.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the header says what each is")]
pub struct Descriptor {
    pub op: u8,
    pub sub: u8,
    pub width: u8,
    pub flags: u8,
    pub pe: i32,
    pub dst: u64,
    pub src: u64,
    pub bytes: u64,
    pub sig: u64,
    pub value: u64,
    pub reply: u32,
    pub element: u32,
    pub ticket: u64,
}

impl Descriptor {
    /// Words before the one that publishes it.
    pub const WORDS: usize = size_of::<Descriptor>() / 8 - 1;

    /// Of the words that a kernel wrote, and the ticket.
    pub fn new(words: [u64; Descriptor::WORDS], ticket: u64) -> Descriptor {
        let [head, dst, src, bytes, sig, value, last] = words;
        let [op, sub, width, flags, ..] = head.to_le_bytes();
        Descriptor {
            op,
            sub,
            width,
            flags,
            pe: (head >> 32) as i32,
            dst,
            src,
            bytes,
            sig,
            value,
            reply: last as u32,
            element: (last >> 32) as u32,
            ticket: ticket + 1,
        }
    }

    /// What it asks for; `None` for what no kernel of these headers writes.
    pub fn op(&self) -> Option<RingOp> {
        RingOp::of(self.op)
    }

    /// What it asks for, for texts.
    pub fn what(&self) -> &'static str {
        self.op().map_or("an unknown operation", RingOp::what)
    }

    /// Where the answer goes, if the kernel waits for one.
    pub fn reply_to(&self) -> Option<ReplyTo> {
        (self.flags & RUSHMEM_RING_REPLY != 0)
            .then_some(ReplyTo { slot: self.reply, ticket: self.ticket - 1 })
    }

    /// The data that the descriptor itself carries, of which the first `width` bytes count: of `PutInline`
    /// all four words, of `PutSignalInline` the first.
    pub fn inline(&self) -> [u8; RUSHMEM_RING_INLINE_BYTES] {
        let mut data = [0; RUSHMEM_RING_INLINE_BYTES];
        for (to, word) in data.chunks_exact_mut(8).zip([self.src, self.bytes, self.sig, self.value]) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        data
    }
}

/// `rushmem_reply`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "the header says what each is")]
pub struct RawReply {
    pub value: u64,
    pub state: u64,
    pub reserved: [u64; 2],
}

/// `rushmem_ring_line`.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the header says what each is")]
pub struct RingLine {
    pub value: u64,
    pub pad: [u64; 15],
}

impl RingLine {
    /// All zero.
    pub const ZERO: RingLine = RingLine { value: 0, pad: [0; 15] };
}

/// `rushmem_ring`. Addresses are the device's.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the header says what each is")]
pub struct RawRing {
    pub slots: u64,
    pub replies: u64,
    pub consumed: u64,
    pub busy: u64,
    pub mask: u64,
    pub reply_mask: u64,
    pub reserved: [u64; 10],
    pub tail: RingLine,
    pub consumed_seen: RingLine,
    pub reply_tail: RingLine,
    pub fenced: RingLine,
    pub quieted: RingLine,
}
