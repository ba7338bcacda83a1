//! The messages by which PEs copy to and from each other where the network cannot do it by itself: a head of
//! fixed size, and data behind it. Nothing is assumed about their order.

use super::seal::TAG;
use crate::net::transport::Token;

/// Bytes of a head.
pub(super) const HEAD: usize = 40;
/// As it travels: with a number and a tag.
pub(super) const SEALED: usize = HEAD + 8 + TAG;

/// What a message is, and what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    /// Data for an address of a segment: the sender's piece of that number.
    Put {
        number: u64,
        segment: u32,
        address: u64,
    },
    /// Asks for a word when all pieces numbered below `count` are in their place.
    Flush {
        count: u64,
        token: Token,
    },
    /// That word.
    Flushed {
        token: Token,
    },
    /// Asks for bytes, as pieces for `landing`.
    Get {
        segment: u32,
        address: u64,
        bytes: u64,
        landing: u64,
    },
    /// Data that was asked for, and its place there.
    Piece {
        landing: u64,
        at: u64,
    },
    /// A large message: so many bytes are there to be fetched. Its head is the data.
    Offer {
        id: u64,
        bytes: u64,
    },
    /// Asks for them, as pieces for `landing`.
    Want {
        id: u64,
        landing: u64,
    },
    /// The first word of a PE that connects, or its answer to one.
    Hello,
    /// Asks whether both may begin, and says so.
    Open,
    Opened,
    /// So many of the other's messages have come in: numbers are free again. It takes none itself.
    Seen {
        count: u64,
    },
}

/// The kind of [`Head::Seen`].
const SEEN: u32 = 11;

impl Head {
    /// As it travels, little-endian: kind and segment, sender, and up to four words.
    pub(super) fn encode(self, sender: usize) -> [u8; HEAD] {
        let (kind, segment, words) = match self {
            Head::Put { number, segment, address } => (1, segment, [number, address, 0]),
            Head::Flush { count, token } => (2, 0, [count, token, 0]),
            Head::Flushed { token } => (3, 0, [token, 0, 0]),
            Head::Get { segment, address, bytes, landing } => (4, segment, [address, bytes, landing]),
            Head::Piece { landing, at } => (5, 0, [landing, at, 0]),
            Head::Offer { id, bytes } => (6, 0, [id, bytes, 0]),
            Head::Want { id, landing } => (7, 0, [id, landing, 0]),
            Head::Hello => (8, 0, [0; 3]),
            Head::Open => (9, 0, [0; 3]),
            Head::Opened => (10, 0, [0; 3]),
            Head::Seen { count } => (SEEN, 0, [count, 0, 0]),
        };
        let mut head = [0; HEAD];
        head[..4].copy_from_slice(&u32::to_le_bytes(kind));
        head[4..8].copy_from_slice(&segment.to_le_bytes());
        head[8..16].copy_from_slice(&(sender as u64).to_le_bytes());
        for (place, word) in head[16..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        head
    }

    /// Whether messages of its kind take a number.
    pub(super) fn counts(self) -> bool {
        !matches!(self, Head::Seen { .. })
    }

    /// The sender that a head names, and whether it takes a number.
    pub(super) fn sender(head: &[u8; HEAD]) -> (usize, bool) {
        let kind = u32::from_le_bytes(head[..4].try_into().expect("four bytes"));
        let sender = u64::from_le_bytes(head[8..16].try_into().expect("eight bytes"));
        (usize::try_from(sender).unwrap_or(usize::MAX), kind != SEEN)
    }

    /// Sender and head; `None`: it is none.
    pub(super) fn decode(bytes: &[u8]) -> Option<(usize, Head)> {
        let bytes: &[u8; HEAD] = bytes.try_into().ok()?;
        let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let (segment, a, b, c) = (half(4), word(16), word(24), word(32));
        let head = match half(0) {
            1 => Head::Put { number: a, segment, address: b },
            2 => Head::Flush { count: a, token: b },
            3 => Head::Flushed { token: a },
            4 => Head::Get { segment, address: a, bytes: b, landing: c },
            5 => Head::Piece { landing: a, at: b },
            6 => Head::Offer { id: a, bytes: b },
            7 => Head::Want { id: a, landing: b },
            8 => Head::Hello,
            9 => Head::Open,
            10 => Head::Opened,
            SEEN => Head::Seen { count: a },
            _ => return None,
        };
        Some((usize::try_from(word(8)).ok()?, head))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_survive_the_wire() {
        for head in [
            Head::Put { number: u64::MAX, segment: 7, address: 1 << 47 },
            Head::Flush { count: 3, token: 4 },
            Head::Flushed { token: 9 },
            Head::Get { segment: u32::MAX, address: 2, bytes: 1 << 40, landing: 5 },
            Head::Piece { landing: 8, at: 1 << 33 },
            Head::Offer { id: 1, bytes: 0 },
            Head::Want { id: 1, landing: 2 },
            Head::Hello,
            Head::Open,
            Head::Opened,
            Head::Seen { count: 12 },
        ] {
            assert_eq!(Head::decode(&head.encode(70_000)), Some((70_000, head)));
            assert_eq!(Head::sender(&head.encode(70_000)), (70_000, head.counts()));
        }
        assert_eq!(Head::decode(&[0; HEAD]), None);
        assert_eq!(Head::decode(&[1; HEAD - 1]), None);
    }
}
