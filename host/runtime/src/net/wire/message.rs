//! The messages between engines: a sender, a number, and records, each of which asks for one thing. What a PE
//! sends to another is numbered, and carried out in that order whatever the network does on the way.
//!
//! All numbers are little-endian. A record begins with a word: kind, sub-kind, width, a spare byte, and the
//! number of bytes behind that word; every record is padded to a multiple of eight.

use crate::error::{err, Result};
use crate::node::control::{Arrival, Carried, BOARDS};

/// Sender, spare, number.
pub(crate) const PRELUDE: usize = 16;

/// One request, or one answer. Offsets are of the target's stride: heap and registered regions.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// Stores a word of `width` bytes, whole where it is aligned.
    Word { width: u8, offset: u64, value: u64 },
    /// Stores bytes.
    Data { offset: u64, data: &'a [u8] },
    /// Stores elements of `elem` bytes, `stride` bytes apart (in two's complement: it may be negative).
    Rows { offset: u64, stride: u64, elem: u64, data: &'a [u8] },
    /// An atomic update; the old value is sent to `reply` unless that is [`NO_REPLY`].
    Atomic { op: u8, width: u8, offset: u64, value: u64, compare: u64, reply: u64 },
    /// Updates a signal word: a thread that sees the new value sees all that came before.
    Signal { add: bool, offset: u64, value: u64 },
    /// Asks for a word.
    Load { width: u8, offset: u64, reply: u64 },
    /// Asks for bytes.
    Fetch { offset: u64, bytes: u64, reply: u64 },
    /// Asks for `n` elements, packed.
    FetchRows { offset: u64, stride: u64, elem: u64, n: u64, reply: u64 },
    /// An answer of one word.
    Reply { reply: u64, value: u64 },
    /// A piece of an answer, its place in the whole.
    ReplyData { reply: u64, at: u64, data: &'a [u8] },
    /// Asks for an answer once all before it has been carried out.
    Flush { reply: u64 },
    /// A part of what the sender's next arrival at a collective call carries.
    Carried(Carried<'a>),
    /// The sender has entered a collective call.
    Arrive(Arrival),
    /// The data of a large message, which travels apart, belongs here in the order.
    Bulk { number: u64, offset: u64, bytes: u64 },
}

/// The number of an atomic addition of floating-point words; those below are `word::Update`'s.
pub(crate) const FLOAT_ADD: u8 = 100;
/// Of an atomic that fetches nothing.
pub(crate) const NO_REPLY: u64 = u64::MAX;

const WORD: u8 = 1;
const DATA: u8 = 2;
const ROWS: u8 = 3;
const ATOMIC: u8 = 4;
const SIGNAL: u8 = 5;
const LOAD: u8 = 6;
const FETCH: u8 = 7;
const FETCH_ROWS: u8 = 8;
const REPLY: u8 = 9;
const REPLY_DATA: u8 = 10;
const FLUSH: u8 = 11;
const ARRIVE: u8 = 12;
const BULK: u8 = 13;
const CARRIED: u8 = 14;

/// Begins a message; its number is written when it is sent.
pub(crate) fn begin(message: &mut Vec<u8>, sender: u32) {
    message.clear();
    message.extend_from_slice(&sender.to_le_bytes());
    message.extend_from_slice(&[0; 12]);
}

/// Gives a message its number.
pub(crate) fn number(message: &mut [u8], number: u64) {
    message[8..PRELUDE].copy_from_slice(&number.to_le_bytes());
}

/// The sender that a message of at least [`PRELUDE`] bytes names.
pub(crate) fn sender(message: &[u8]) -> usize {
    read(message, 0) as u32 as usize
}

/// Sender and number.
pub(crate) fn prelude(message: &[u8]) -> Result<(usize, u64)> {
    if message.len() < PRELUDE {
        return Err(err!(INTERNAL, "a message of {} bytes came in: too short", message.len()));
    }
    Ok((sender(message), read(message, 8)))
}

fn read(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl Record<'_> {
    /// Bytes that it takes in a message.
    pub(crate) fn encoded(&self) -> usize {
        8 + match self {
            Record::Flush { .. } => 8,
            Record::Word { .. } | Record::Signal { .. } | Record::Load { .. } | Record::Reply { .. } => 16,
            Record::Fetch { .. } | Record::Bulk { .. } => 24,
            Record::Atomic { .. } => 32,
            Record::FetchRows { .. } => 40,
            Record::Arrive(_) => 48,
            Record::Carried(Carried { data, .. }) => 24 + data.len().next_multiple_of(8),
            Record::Data { data, .. } => 8 + data.len().next_multiple_of(8),
            Record::ReplyData { data, .. } => 16 + data.len().next_multiple_of(8),
            Record::Rows { data, .. } => 24 + data.len().next_multiple_of(8),
        }
    }

    /// Appends it.
    #[inline]
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let mut put = |kind: u8, sub: u8, width: u8, words: &[u64], data: &[u8]| {
            let len = (words.len() * 8 + data.len()) as u32;
            out.extend_from_slice(&[kind, sub, width, 0]);
            out.extend_from_slice(&len.to_le_bytes());
            for word in words {
                out.extend_from_slice(&word.to_le_bytes());
            }
            out.extend_from_slice(data);
            out.resize(out.len().next_multiple_of(8), 0);
        };
        match *self {
            Record::Word { width, offset, value } => put(WORD, 0, width, &[offset, value], &[]),
            Record::Data { offset, data } => put(DATA, 0, 0, &[offset], data),
            Record::Rows { offset, stride, elem, data } => put(ROWS, 0, 0, &[offset, stride, elem], data),
            Record::Atomic { op, width, offset, value, compare, reply } => {
                put(ATOMIC, op, width, &[offset, value, compare, reply], &[])
            }
            Record::Signal { add, offset, value } => put(SIGNAL, add.into(), 0, &[offset, value], &[]),
            Record::Load { width, offset, reply } => put(LOAD, 0, width, &[offset, reply], &[]),
            Record::Fetch { offset, bytes, reply } => put(FETCH, 0, 0, &[offset, bytes, reply], &[]),
            Record::FetchRows { offset, stride, elem, n, reply } => {
                put(FETCH_ROWS, 0, 0, &[offset, stride, elem, n, reply], &[])
            }
            Record::Reply { reply, value } => put(REPLY, 0, 0, &[reply, value], &[]),
            Record::ReplyData { reply, at, data } => put(REPLY_DATA, 0, 0, &[reply, at], data),
            Record::Flush { reply } => put(FLUSH, 0, 0, &[reply], &[]),
            Record::Arrive(Arrival { board, number, kind, previous, words: [a, b, c, d] }) => {
                put(ARRIVE, kind, previous, &[number, board as u64, a, b, c, d], &[])
            }
            Record::Carried(Carried { board, number, at, within, data }) => {
                put(CARRIED, within.into(), 0, &[number, board as u64, at], data)
            }
            Record::Bulk { number, offset, bytes } => put(BULK, 0, 0, &[number, offset, bytes], &[]),
        }
    }

    /// Reads the record at `*at` of a message and moves on; `None` at its end.
    #[inline]
    pub(crate) fn decode<'a>(message: &'a [u8], at: &mut usize) -> Result<Option<Record<'a>>> {
        let rest = &message[(*at).min(message.len())..];
        if rest.is_empty() {
            return Ok(None);
        }
        let bad = || {
            err!(INTERNAL, "a message of another PE cannot be read: do all run the same librushmem_host.so?")
        };
        if rest.len() < 8 {
            return Err(bad());
        }
        let (kind, sub, width) = (rest[0], rest[1], rest[2]);
        let len = u32::from_le_bytes(rest[4..8].try_into().expect("four bytes")) as usize;
        let body = rest.get(8..8 + len).ok_or_else(bad)?;
        let words = match kind {
            FLUSH | DATA => 1,
            WORD | SIGNAL | LOAD | REPLY | REPLY_DATA => 2,
            FETCH | ROWS | BULK | CARRIED => 3,
            ATOMIC => 4,
            FETCH_ROWS => 5,
            ARRIVE => 6,
            _ => return Err(bad()),
        };
        if len < words * 8 {
            return Err(bad());
        }
        let w = |i: usize| read(body, i * 8);
        let data = &body[words * 8..];
        let board = |i: usize| usize::try_from(w(i)).ok().filter(|board| *board < BOARDS).ok_or_else(bad);
        *at += 8 + len.next_multiple_of(8);
        Ok(Some(match kind {
            WORD => Record::Word { width, offset: w(0), value: w(1) },
            DATA => Record::Data { offset: w(0), data },
            ROWS => Record::Rows { offset: w(0), stride: w(1), elem: w(2), data },
            ATOMIC => {
                Record::Atomic { op: sub, width, offset: w(0), value: w(1), compare: w(2), reply: w(3) }
            }
            SIGNAL => Record::Signal { add: sub != 0, offset: w(0), value: w(1) },
            LOAD => Record::Load { width, offset: w(0), reply: w(1) },
            FETCH => Record::Fetch { offset: w(0), bytes: w(1), reply: w(2) },
            FETCH_ROWS => Record::FetchRows { offset: w(0), stride: w(1), elem: w(2), n: w(3), reply: w(4) },
            REPLY => Record::Reply { reply: w(0), value: w(1) },
            REPLY_DATA => Record::ReplyData { reply: w(0), at: w(1), data },
            FLUSH => Record::Flush { reply: w(0) },
            ARRIVE => {
                let words = [w(2), w(3), w(4), w(5)];
                Record::Arrive(Arrival { board: board(1)?, number: w(0), kind: sub, previous: width, words })
            }
            CARRIED => {
                let within = sub != 0;
                Record::Carried(Carried { board: board(1)?, number: w(0), at: w(2), within, data })
            }
            _ => Record::Bulk { number: w(0), offset: w(1), bytes: w(2) },
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_the_wire() {
        let data: Vec<u8> = (0..37).collect();
        let all = [
            Record::Word { width: 2, offset: 10, value: 11 },
            Record::Data { offset: 7, data: &data },
            Record::Data { offset: 7, data: &[] },
            Record::Rows { offset: 1, stride: 24, elem: 3, data: &data[..36] },
            Record::Atomic { op: 5, width: 8, offset: 1, value: 2, compare: 3, reply: NO_REPLY },
            Record::Signal { add: true, offset: 1 << 40, value: u64::MAX },
            Record::Load { width: 4, offset: 5, reply: 6 },
            Record::Fetch { offset: 1, bytes: 2, reply: 3 },
            Record::FetchRows { offset: 1, stride: 2, elem: 3, n: 4, reply: 5 },
            Record::Reply { reply: 1, value: 2 },
            Record::ReplyData { reply: 9, at: 4, data: &data[..1] },
            Record::Flush { reply: 77 },
            Record::Arrive(Arrival { board: 9, number: 1, kind: 2, previous: 3, words: [4, 5, 6, 7] }),
            Record::Carried(Carried { board: BOARDS - 1, number: 6, at: 7, within: true, data: &data }),
            Record::Bulk { number: 3, offset: 4, bytes: 5 },
        ];
        let mut message = Vec::new();
        begin(&mut message, 9);
        number(&mut message, 1 << 33);
        for record in &all {
            let before = message.len();
            record.encode(&mut message);
            assert_eq!(message.len() - before, record.encoded(), "{record:?}");
        }
        assert_eq!(prelude(&message).unwrap(), (9, 1 << 33));
        let mut at = PRELUDE;
        for record in &all {
            assert_eq!(Record::decode(&message, &mut at).unwrap().as_ref(), Some(record));
        }
        assert_eq!(Record::decode(&message, &mut at).unwrap(), None);
    }

    #[test]
    fn what_is_cut_or_unknown_is_an_error() {
        let mut message = Vec::new();
        begin(&mut message, 0);
        Record::Data { offset: 7, data: &[1; 30] }.encode(&mut message);
        for len in PRELUDE + 1..PRELUDE + 8 + 38 {
            assert!(Record::decode(&message[..len], &mut PRELUDE.clone()).is_err(), "{len}");
        }
        message[PRELUDE] = 200;
        assert!(Record::decode(&message, &mut PRELUDE.clone()).is_err());
        begin(&mut message, 0);
        Record::Arrive(Arrival { board: BOARDS, number: 1, kind: 2, previous: 3, words: [0; 4] })
            .encode(&mut message);
        assert!(Record::decode(&message, &mut PRELUDE.clone()).is_err(), "a board that does not exist");
        begin(&mut message, 0);
        Record::Carried(Carried { board: BOARDS, number: 1, at: 0, within: false, data: &[1] })
            .encode(&mut message);
        assert!(Record::decode(&message, &mut PRELUDE.clone()).is_err(), "a board that does not exist");
        assert!(prelude(&message[..15]).is_err());
    }
}
