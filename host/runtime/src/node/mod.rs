//! The PEs that share this host: who they are, the sockets between them, and their shared control segment.

pub(crate) mod card;
pub(crate) mod control;
mod inbox;
pub(crate) mod links;
pub(crate) mod mate;
mod meet;
pub(crate) mod message;

/// Cards, and the messages of the node's sockets.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz(bytes: &[u8]) {
    for part in crate::seeds::parts(bytes) {
        if let Some(bytes) = part.first_chunk() {
            let read = card::Card::decode(bytes);
            let _ = (read.who(), card::check_agreement(&[read.clone(), read.clone()]));
            let _ =
                (card::run_of(&[read.clone(), read.clone()], 1), card::host_index(&[read.clone(), read], 1));
        }
    }
    links::fuzz(bytes);
}
