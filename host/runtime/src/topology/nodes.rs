//! The nodes of a job: which PEs are on each, however they are numbered.
//!
//! A node's PEs in the order of their numbers are its *slots*: the sockets between them, their part of the
//! window of addresses and their descriptors all go by slot. Its lowest PE, in slot 0, leads it.

use std::collections::HashMap;

use super::card::Card;

/// All nodes, as every PE works them out from the cards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Nodes {
    /// Of each PE: its node, and its slot there.
    place: Vec<(usize, usize)>,
    /// Of each node: its PEs in order. Nodes come in the order of their leaders.
    members: Vec<Vec<usize>>,
}

impl Nodes {
    pub(crate) fn new(cards: &[Card]) -> Nodes {
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        let mut members: Vec<Vec<usize>> = Vec::new();
        let mut place = Vec::with_capacity(cards.len());
        for (pe, card) in cards.iter().enumerate() {
            let node = *numbers.entry(&card.node).or_insert(members.len());
            if node == members.len() {
                members.push(Vec::new());
            }
            place.push((node, members[node].len()));
            members[node].push(pe);
        }
        Nodes { place, members }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.members.len()
    }

    /// The PEs of `pe`'s node, by slot.
    pub(crate) fn members(&self, pe: usize) -> &[usize] {
        &self.members[self.place[pe].0]
    }

    /// `pe`'s slot in its node.
    pub(crate) fn slot(&self, pe: usize) -> usize {
        self.place[pe].1
    }

    /// The lowest PE of `pe`'s node.
    pub(crate) fn leader(&self, pe: usize) -> usize {
        self.members(pe)[0]
    }

    /// The lowest PE of each node.
    pub(crate) fn leaders(&self) -> impl Iterator<Item = usize> + '_ {
        self.members.iter().map(|members| members[0])
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::topology::card::CARD_BYTES;

    /// Cards of PEs of which each is on the node with this number.
    pub(crate) fn cards(nodes: &[u32]) -> Vec<Card> {
        let card = Card::decode(&[0; CARD_BYTES]);
        let of = |(pe, node): (u32, &u32)| Card { pe, node: format!("h{node}"), ..card.clone() };
        (0..).zip(nodes).map(of).collect()
    }

    #[test]
    fn a_node_is_a_set_of_pes_in_any_order() {
        let nodes = Nodes::new(&cards(&[0, 1, 1, 0, 2]));
        assert_eq!(
            [0, 1, 2, 3, 4].map(|pe| nodes.members(pe)),
            [&[0, 3][..], &[1, 2], &[1, 2], &[0, 3], &[4]]
        );
        assert_eq!([0, 1, 2, 3, 4].map(|pe| nodes.slot(pe)), [0, 0, 1, 1, 0]);
        assert_eq!([0, 1, 2, 3, 4].map(|pe| nodes.leader(pe)), [0, 1, 1, 0, 4]);
        assert_eq!((nodes.leaders().collect(), nodes.count()), (vec![0, 1, 4], 3));
    }
}
