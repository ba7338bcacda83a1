//! What the software card reads in a slot of a send queue. Written from the published formats (rdma-core's
//! mlx5dv.h, "Work Queue Elements Format" of the programmer's reference manual), apart from what writes
//! them; `../formats_tests.rs` builds requests by mlx5dv.h's own structures, and this has to read them.

/// Bytes of a slot.
pub(super) const BLOCK: usize = 64;

/// Syndromes of completions.
pub(super) mod syndrome {
    pub(in super::super) const LOCAL_LENGTH: u8 = 0x01;
    pub(in super::super) const LOCAL_OPERATION: u8 = 0x02;
    pub(in super::super) const LOCAL_PROTECTION: u8 = 0x04;
    pub(in super::super) const FLUSHED: u8 = 0x05;
    pub(in super::super) const REMOTE_INVALID: u8 = 0x12;
    pub(in super::super) const REMOTE_ACCESS: u8 = 0x13;
    pub(in super::super) const RETRIES_EXCEEDED: u8 = 0x15;
}

/// A request that is not as a card wants it: the syndrome, and what a person would want to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mistake {
    pub(super) syndrome: u8,
    pub(super) why: String,
}

/// Memory of this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LocalBytes {
    pub(super) key: u32,
    pub(super) address: u64,
    pub(super) bytes: usize,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Body {
    Nothing,
    WriteInline(Vec<u8>),
    Write(LocalBytes),
    Read(LocalBytes),
    FetchAdd { add: u64, answer: LocalBytes },
    CompareSwap { swap: u64, compare: u64, answer: LocalBytes },
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WorkRequest {
    /// It asks for a completion.
    pub(super) completes: bool,
    /// It waits for the answers to earlier READs and atomics.
    pub(super) fenced: bool,
    pub(super) remote: u64,
    pub(super) key: u32,
    pub(super) body: Body,
}

fn word(block: &[u8; BLOCK], at: usize) -> u32 {
    u32::from_be_bytes(block[at..at + 4].try_into().expect("four bytes"))
}

fn long(block: &[u8; BLOCK], at: usize) -> u64 {
    u64::from_be_bytes(block[at..at + 8].try_into().expect("eight bytes"))
}

fn wrong<T>(syndrome: u8, why: String) -> Result<T, Mistake> {
    Err(Mistake { syndrome, why })
}

/// What is wrong with the request itself.
fn operation<T>(why: String) -> Result<T, Mistake> {
    wrong(syndrome::LOCAL_OPERATION, why)
}

impl WorkRequest {
    /// Reads the slot of request number `index` of queue pair `number`.
    pub(super) fn parse(block: &[u8; BLOCK], index: u16, number: u32) -> Result<WorkRequest, Mistake> {
        let head = word(block, 0);
        let (modifier, at, opcode) = (head >> 24, (head >> 8) as u16, head as u8);
        if at != index {
            return operation(format!(
                "the slot of request {index} holds number {at}: it was not written, or torn"
            ));
        }
        if modifier != 0 {
            return operation(format!("operation modifier {modifier:#x}"));
        }
        let (pair, segments) = (word(block, 4) >> 8, (word(block, 4) & 0x3f) as usize);
        if pair != number {
            return operation(format!("it names queue pair {pair:#x}, and lies in that of {number:#x}"));
        }
        let flags = block[11];
        let (fence, completion) = (flags >> 5, flags >> 2 & 3);
        if flags & 1 != 0
            || !matches!(completion, 0 | 2)
            || !matches!(fence, 0 | 1 | 4)
            || block[8..11] != [0; 3]
        {
            return operation(format!(
                "flags {flags:#04x}, signature {:#04x}, stream {:#06x}",
                block[8],
                word(block, 8) >> 8 & 0xffff
            ));
        }
        let (remote, key) = (long(block, 16), word(block, 24));
        let wants = |wanted: usize| {
            if segments == wanted {
                return Ok(());
            }
            operation(format!(
                "opcode {opcode:#04x} with {segments} segments of 16 bytes, and it has {wanted}"
            ))
        };
        if opcode != 0 && segments > 2 && word(block, 28) != 0 {
            return operation("the reserved word behind the remote key is not zero".into());
        }
        let local = |at: usize| {
            let (bytes, key, address) = (word(block, at), word(block, at + 4), long(block, at + 8));
            if bytes == 0 || bytes >> 31 != 0 {
                // Zero stands for 2 GiB.
                return wrong(syndrome::LOCAL_LENGTH, format!("a data segment of {bytes:#x} bytes"));
            }
            Ok(LocalBytes { key, address, bytes: bytes as usize })
        };
        let answer = || {
            let answer = local(48)?;
            if answer.bytes != 8 {
                let why = format!("an atomic with {} bytes for its answer, which has 8", answer.bytes);
                return wrong(syndrome::LOCAL_LENGTH, why);
            }
            Ok(answer)
        };
        let body = match opcode {
            0x00 => {
                if segments == 0 {
                    return operation("a NOP without a segment".into());
                }
                Body::Nothing
            }
            0x08 => {
                if segments < 3 {
                    wants(3)?;
                }
                let bytes = (word(block, 32) & 0x7fff_ffff) as usize;
                if word(block, 32) >> 31 == 0 {
                    wants(3)?;
                    Body::Write(local(32)?)
                } else if bytes == 0 || 36 + bytes > BLOCK {
                    return wrong(syndrome::LOCAL_LENGTH, format!("{bytes} bytes inline in one block"));
                } else {
                    wants(2 + (4 + bytes).div_ceil(16))?;
                    Body::WriteInline(block[36..36 + bytes].to_vec())
                }
            }
            0x10 => {
                wants(3)?;
                Body::Read(local(32)?)
            }
            0x11 => {
                wants(4)?;
                Body::CompareSwap { swap: long(block, 32), compare: long(block, 40), answer: answer()? }
            }
            0x12 => {
                wants(4)?;
                Body::FetchAdd { add: long(block, 32), answer: answer()? }
            }
            other => {
                return operation(format!(
                    "opcode {other:#04x}, which is none of a reliable connection's here"
                ))
            }
        };
        Ok(WorkRequest { completes: completion == 2, fenced: fence == 4, remote, key, body })
    }
}

/// What a doorbell says: how many requests are written, all in all; or why not.
pub(super) fn written(
    bell: u64,
    record: u32,
    number: u32,
    known: u64,
    complete: u64,
    slots: usize,
) -> Result<u64, Mistake> {
    let bytes = bell.to_le_bytes();
    let head = u32::from_be_bytes(bytes[..4].try_into().expect("four bytes"));
    let pair = u32::from_be_bytes(bytes[4..].try_into().expect("four bytes")) >> 8;
    if pair != number {
        return operation(format!("the doorbell names queue pair {pair:#x}, and this is {number:#x}"));
    }
    let count = u32::from_be(record);
    if count > 0xffff {
        return operation(format!("the doorbell record holds {count:#x}, which is no count of 16 bits"));
    }
    let last = (head >> 8) as u16;
    if (count as u16).wrapping_sub(last.wrapping_add(1)) as i16 >= 0 {
        let more = (count as u16).wrapping_sub(known as u16) as i16;
        if more < 0 {
            return operation(format!("the doorbell record goes back, from {} to {count}", known as u16));
        }
        let now = known + more as u64;
        if now - complete > slots as u64 {
            return operation(format!("{} requests are under way, in {slots} slots", now - complete));
        }
        return Ok(now);
    }
    operation(format!(
        "the doorbell rings for request {last}, and its record counts {count}: it was not written before"
    ))
}
