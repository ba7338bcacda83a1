//! What software cards send each other: a stream of frames between two queue pairs that are connected.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PacketKind {
    /// A part of a WRITE; with `LAST` it is to be acknowledged.
    Write = 1,
    Read = 2,
    FetchAdd = 3,
    CompareSwap = 4,
    /// All of a WRITE is there.
    Done = 5,
    /// A refusal, with a syndrome.
    Refused = 6,
    /// The answer to a READ or an atomic.
    Data = 7,
}

const KINDS: [PacketKind; 7] = [
    PacketKind::Write,
    PacketKind::Read,
    PacketKind::FetchAdd,
    PacketKind::CompareSwap,
    PacketKind::Done,
    PacketKind::Refused,
    PacketKind::Data,
];

/// The last part of a WRITE.
pub(super) const LAST: u8 = 1;

/// A frame.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    pub(super) kind: PacketKind,
    /// `LAST`, or a syndrome.
    pub(super) more: u8,
    pub(super) key: u32,
    /// Of the request.
    pub(super) index: u64,
    pub(super) address: u64,
    /// The operands of an atomic, or the bytes that a READ asks for.
    pub(super) a: u64,
    pub(super) b: u64,
    pub(super) data: Vec<u8>,
}

const HEAD: usize = 48;
/// Most bytes of a frame's data.
pub(super) const PART: usize = 32 << 10;
/// Bytes that may wait to be sent.
const WAITING: usize = 256 << 10;

/// One end of a connection; or both, of a pair that is connected to itself.
pub(super) struct Link {
    pub(super) stream: Option<UnixStream>,
    input: Vec<u8>,
    output: Vec<u8>,
    sent: usize,
}

impl Link {
    pub(super) fn new(stream: UnixStream) -> std::io::Result<Link> {
        stream.set_nonblocking(true)?;
        Ok(Link { stream: Some(stream), ..Link::to_itself() })
    }

    /// What is sent comes back.
    pub(super) fn to_itself() -> Link {
        Link { stream: None, input: Vec::new(), output: Vec::new(), sent: 0 }
    }

    pub(super) fn is_full(&self) -> bool {
        self.output.len() - self.sent > WAITING
    }

    pub(super) fn has_output(&self) -> bool {
        self.output.len() > self.sent
    }

    pub(super) fn send(&mut self, frame: &Frame) {
        self.output.extend_from_slice(&((HEAD + frame.data.len()) as u32).to_le_bytes());
        self.output.extend_from_slice(&[frame.kind as u8, frame.more, 0, 0]);
        self.output.extend_from_slice(&frame.key.to_le_bytes());
        self.output.extend_from_slice(&[0; 4]);
        for word in [frame.index, frame.address, frame.a, frame.b] {
            self.output.extend_from_slice(&word.to_le_bytes());
        }
        self.output.extend_from_slice(&frame.data);
    }

    /// Moves bytes both ways. `Err`: the connection is gone.
    pub(super) fn progress(&mut self) -> Result<bool, ()> {
        let Some(stream) = &mut self.stream else {
            let moved = self.has_output();
            self.input.extend(self.output.drain(..).skip(std::mem::take(&mut self.sent)));
            return Ok(moved);
        };
        let mut moved = false;
        while self.output.len() > self.sent {
            match stream.write(&self.output[self.sent..]) {
                Ok(0) => return Err(()),
                Ok(n) => (self.sent, moved) = (self.sent + n, true),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(()),
            }
        }
        if self.output.len() == self.sent {
            self.output.clear();
            self.sent = 0;
        }
        let mut part = [0; 16 << 10];
        for _ in 0..8 {
            match stream.read(&mut part) {
                Ok(0) => return Err(()),
                Ok(n) => {
                    self.input.extend_from_slice(&part[..n]);
                    moved = true;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(()),
            }
        }
        Ok(moved)
    }

    /// The frames that have come. `Err`: what came is none.
    pub(super) fn frames(&mut self) -> Result<Vec<Frame>, ()> {
        let (mut at, mut frames) = (0, Vec::new());
        while let Some(size) = self.input.get(at..at + 4) {
            let size = u32::from_le_bytes(size.try_into().expect("four bytes")) as usize;
            if !(HEAD..=HEAD + PART).contains(&size) {
                return Err(());
            }
            let Some(bytes) = self.input.get(at..at + size) else { break };
            let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
            let kind = KINDS.into_iter().find(|kind| *kind as u8 == bytes[4]).ok_or(())?;
            frames.push(Frame {
                kind,
                more: bytes[5],
                key: long(8) as u32,
                index: long(16),
                address: long(24),
                a: long(32),
                b: long(40),
                data: bytes[HEAD..].to_vec(),
            });
            at += size;
        }
        self.input.drain(..at);
        Ok(frames)
    }
}
