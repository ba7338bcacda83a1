//! Who is where: each PE's card, the nodes that the cards make, which of a node's PEs are near, that is,
//! mapped here, and sets of PEs that make teams.
//!
//! All of these are sets of PE numbers. Launchers deal ranks out in blocks, in turn (`--map-by node`) or as a
//! host file says, and nothing here or above may take the PEs of a node for neighbours by number.

pub(crate) mod card;
pub(crate) mod members;
pub(crate) mod near;
pub(crate) mod nodes;

/// Cards, and the nodes that they make.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz(bytes: &[u8]) {
    for part in crate::seeds::parts(bytes) {
        if let Some(bytes) = part.first_chunk() {
            let read = card::Card::decode(bytes);
            let two = [read.clone(), read.clone()];
            let _ = (read.who(), card::check_agreement(&two), card::host_index(&two, 1));
            let nodes = nodes::Nodes::new(&two);
            assert_eq!(
                (nodes.leaders().count(), nodes.members(1).len()),
                (1, 2),
                "two PEs of one card share a node"
            );
        }
    }
}
