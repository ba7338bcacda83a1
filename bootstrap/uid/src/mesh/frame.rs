//! What travels between connected ranks: a 32-byte header and at most 64 KiB of payload. Every piece of data
//! says which call of which kind it belongs to, so that ranks that call different things notice before a byte
//! lands in the wrong place.

use rushmem_bootstrap_abi::{BootError, BootErrorKind};

use crate::messages::{read_error, write_error};
use crate::wire::{Parsed, Reader, Writer};

/// Bytes of a header.
pub(crate) const HEADER: usize = 32;
/// Most bytes of a collective's data in one frame.
pub(crate) const CHUNK: usize = 64 * 1024;
/// Bytes (headers included) that may be under way to a rank that does not take them. The reader always
/// empties the socket, so this bounds its memory, and reports of deaths never queue behind data.
pub(crate) const WINDOW: usize = 512 * 1024;
/// Bytes taken after which the sender is given new credit.
pub(crate) const CREDIT_STEP: usize = WINDOW / 4;
/// Most payload of any other frame.
const MAX_NEWS: usize = 8 * 1024;

/// The collectives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Op {
    Barrier = 1,
    Broadcast = 2,
    Allgather = 3,
    Alltoall = 4,
    Finalize = 5,
}

impl Op {
    fn from_byte(byte: u8) -> Parsed<Op> {
        use Op::*;
        [Barrier, Broadcast, Allgather, Alltoall, Finalize]
            .into_iter()
            .find(|op| *op as u8 == byte)
            .ok_or_else(|| crate::wire::Malformed(format!("no collective has number {byte}")))
    }
}

/// One collective call, the same on all ranks when they agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    /// How many collective calls this rank has made, this one included.
    pub(crate) seq: u64,
    pub(crate) op: Op,
    pub(crate) root: u32,
    /// Bytes of one rank's blob.
    pub(crate) blob: u64,
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.op {
            Op::Barrier => write!(f, "barrier")?,
            Op::Finalize => write!(f, "finalize")?,
            Op::Broadcast => write!(f, "broadcast of {} bytes from rank {}", self.blob, self.root)?,
            Op::Allgather => write!(f, "allgather of {} bytes", self.blob)?,
            Op::Alltoall => write!(f, "alltoall of {} bytes", self.blob)?,
        }
        write!(f, " (call {})", self.seq)
    }
}

/// Two ranks that are in different calls; sent to all ranks, since none can go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mismatch {
    pub(crate) a: (u32, Call),
    pub(crate) b: (u32, Call),
}

/// What a header announces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// Step `step` of a call.
    Data(Call, u32),
    /// The receiver has taken this many bytes.
    Credit(u64),
    /// The payload says that the job is broken, and since which call.
    Broken(u64),
    /// The payload is a [`Mismatch`].
    Mismatch,
    /// The payload says who has answered the roll of this call, and who has entered it.
    Roll(u64),
    /// This rank leaves in good order.
    Bye,
}

fn write_call(w: Writer, op: u8, step: u32, root: u32, seq: u64, blob: u64) -> Writer {
    w.u8(op).u16(0).u32(step).u32(root).u64(seq).u64(blob)
}

fn read_call(op: u8, root: u32, seq: u64, blob: u64) -> Parsed<Call> {
    Ok(Call { seq, op: Op::from_byte(op)?, root, blob })
}

/// The header of a frame with `len` bytes of payload.
pub(crate) fn header(kind: &FrameKind, len: usize) -> Vec<u8> {
    let w = Writer(Vec::with_capacity(HEADER)).u32(len as u32);
    let w = match kind {
        FrameKind::Data(c, step) => write_call(w.u8(1), c.op as u8, *step, c.root, c.seq, c.blob),
        FrameKind::Credit(bytes) => write_call(w.u8(2), 0, 0, 0, 0, *bytes),
        FrameKind::Broken(seq) => write_call(w.u8(3), 0, 0, 0, *seq, 0),
        FrameKind::Mismatch => write_call(w.u8(4), 0, 0, 0, 0, 0),
        FrameKind::Roll(seq) => write_call(w.u8(5), 0, 0, 0, *seq, 0),
        FrameKind::Bye => write_call(w.u8(6), 0, 0, 0, 0, 0),
    };
    debug_assert_eq!(w.0.len(), HEADER);
    w.0
}

/// Reads a header: its kind and the length of the payload, which is checked against the kind's bound.
pub(crate) fn parse(bytes: &[u8; HEADER], n_ranks: u32) -> Parsed<(FrameKind, usize)> {
    let mut r = Reader(bytes);
    let len = r.u32()? as usize;
    let (kind, op) = (r.u8()?, r.u8()?);
    r.u16()?;
    let (step, root, seq, blob) = (r.u32()?, r.u32()?, r.u64()?, r.u64()?);
    let (kind, allowed) = match kind {
        1 => (FrameKind::Data(read_call(op, root, seq, blob)?, step), 0..=CHUNK),
        2 => (FrameKind::Credit(blob), 0..=0),
        3 => (FrameKind::Broken(seq), 1..=MAX_NEWS),
        4 => (FrameKind::Mismatch, 1..=MAX_NEWS),
        5 => (FrameKind::Roll(seq), roll_bytes(n_ranks)..=roll_bytes(n_ranks)),
        6 => (FrameKind::Bye, 0..=0),
        other => return Err(crate::wire::Malformed(format!("no frame has kind {other}"))),
    };
    if !allowed.contains(&len) {
        return Err(crate::wire::Malformed(format!(
            "{len} bytes where {} to {} are allowed",
            allowed.start(),
            allowed.end()
        )));
    }
    Ok((kind, len))
}

/// Bytes of the two sets of ranks of a roll call: who has answered, who has entered.
pub(crate) fn roll_bytes(n_ranks: u32) -> usize {
    2 * n_ranks.div_ceil(8) as usize
}

/// The payload of `Broken`.
pub(crate) fn write_broken(e: &BootError) -> Vec<u8> {
    write_error(Writer::default(), e).0
}

/// The inverse of [`write_broken`].
pub(crate) fn read_broken(payload: &[u8]) -> Parsed<BootError> {
    let mut r = Reader(payload);
    let e = read_error(&mut r)?;
    r.end()?;
    Ok(e)
}

impl Mismatch {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        for (rank, c) in [self.a, self.b] {
            w = write_call(w.u32(rank), c.op as u8, 0, c.root, c.seq, c.blob);
        }
        w.0
    }

    pub(crate) fn decode(payload: &[u8]) -> Parsed<Mismatch> {
        let mut r = Reader(payload);
        let mut side = || -> Parsed<(u32, Call)> {
            let (rank, op) = (r.u32()?, r.u8()?);
            r.u16()?;
            r.u32()?;
            let (root, seq, blob) = (r.u32()?, r.u64()?, r.u64()?);
            Ok((rank, read_call(op, root, seq, blob)?))
        };
        let mismatch = Mismatch { a: side()?, b: side()? };
        r.end()?;
        Ok(mismatch)
    }

    /// The first call in which the two differ.
    pub(crate) fn seq(&self) -> u64 {
        self.a.1.seq.min(self.b.1.seq)
    }

    /// The error for a rank that made `mine` as that call: it names the one of the two that differs from it.
    pub(crate) fn error(&self, mine: Option<Call>) -> BootError {
        let ((odd, odd_call), (other, other_call)) =
            if mine == Some(self.b.1) { (self.a, self.b) } else { (self.b, self.a) };
        let text = format!(
            "the ranks are in different collective calls: rank {odd} in {odd_call}, rank {other} in {other_call}; all ranks must make the same calls with the same sizes"
        );
        BootError::new(BootErrorKind::Mismatch, text).with_rank(odd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: Call = Call { seq: 1 << 40, op: Op::Allgather, root: 7, blob: 1 << 33 };

    #[test]
    fn headers_come_back_and_are_bounded() {
        for (kind, good, bad) in [
            (FrameKind::Data(CALL, 9), CHUNK, CHUNK + 1),
            (FrameKind::Credit(5), 0, 1),
            (FrameKind::Broken(3), 10, MAX_NEWS + 1),
            (FrameKind::Mismatch, 10, 0),
            (FrameKind::Roll(4), 4, 2),
            (FrameKind::Bye, 0, 1),
        ] {
            let bytes: [u8; HEADER] = header(&kind, good).try_into().expect("a header's size");
            assert_eq!(parse(&bytes, 9), Ok((kind.clone(), good)));
            let bytes: [u8; HEADER] = header(&kind, bad).try_into().expect("a header's size");
            assert!(parse(&bytes, 9).is_err(), "{kind:?}");
        }
        assert!(parse(&[0xff; HEADER], 9).is_err());
    }

    #[test]
    fn mismatches_name_the_odd_one_out() {
        let other = Call { blob: 1, ..CALL };
        let mismatch = Mismatch { a: (3, CALL), b: (5, other) };
        assert_eq!(Mismatch::decode(&mismatch.encode()), Ok(mismatch));
        assert_eq!(mismatch.error(Some(CALL)).rank, Some(5));
        assert_eq!(mismatch.error(Some(other)).rank, Some(3));
        assert!(mismatch.error(None).message.contains("rank 3 in allgather of 8589934592 bytes"));
        let e = BootError::new(BootErrorKind::Timeout, "x").with_rank(2);
        assert_eq!(read_broken(&write_broken(&e)), Ok(e));
    }
}
