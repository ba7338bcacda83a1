//! What the PEs of a node say to each other over their sockets: kinds of messages, and how each is laid out.

use std::time::Duration;

use rushmem_bootstrap_abi::Death;

use super::message::{Socket, MAX_BYTES};

/// How often the monitor looks at what cannot wake it: the bootstrap, kernels' stall records.
pub(super) const TICK: Duration = Duration::from_millis(100);

pub(super) const HELLO: u8 = 1;
pub(super) const FDS: u8 = 2;
pub(super) const DEATH: u8 = 3;
pub(super) const BYE: u8 = 4;
/// An exchange has failed at the leader.
pub(super) const FAILED: u8 = 5;
/// A PE has left without finalising.
pub(super) const LEFT: u8 = 6;

/// Between the PE and the reason, in the text by which the bootstrap tells of a PE that left without
/// finalising.
pub(super) const LEFT_TEXT: &str = " left the job without finalize: ";

/// The text that tells other PEs that `who` left without finalising.
pub(crate) fn left_text(who: &str, why: &str) -> String {
    format!("{who}{LEFT_TEXT}{why}")
}

/// A death as the bootstrap tells it, which counts ranks: those are the PEs' numbers.
pub(super) fn in_pes(death: Death) -> String {
    let pe = format!("PE {}", death.rank);
    match death.what.contains(&format!("{pe} ")) {
        true => death.what,
        false => format!("{pe} is gone: {}", death.what),
    }
}

pub(super) fn tell_all(sockets: &[Option<Socket>], message: &[u8]) {
    for socket in sockets.iter().flatten() {
        // A peer that is gone shows as a death elsewhere.
        let _ = socket.send(message, &[]);
    }
}

pub(super) fn word(m: &[u8]) -> u64 {
    u64::from_le_bytes(m[1..9].try_into().expect("eight bytes"))
}

pub(super) fn fds_message(id: u64, first_slot: usize) -> Vec<u8> {
    let mut m = vec![FDS];
    m.extend_from_slice(&id.to_le_bytes());
    m.extend_from_slice(&(first_slot as u64).to_le_bytes());
    m
}

/// `dead`: the PE, where one has died.
pub(super) fn death_message(dead: Option<u32>, what: &str) -> Vec<u8> {
    text_message(DEATH, dead.map_or(u64::MAX, u64::from), what)
}

pub(super) fn text_message(kind: u8, number: u64, text: &str) -> Vec<u8> {
    let mut m = vec![kind];
    m.extend_from_slice(&number.to_le_bytes());
    m.extend_from_slice(text.as_bytes());
    m.truncate(MAX_BYTES);
    m
}
