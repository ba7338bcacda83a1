//! Across nodes, large data goes to a node once: to one of its members, from which the others copy it. Which
//! one that is depends on whose data it is, so that the members of a node share the work. All members know
//! all nodes, so they say the same.

use super::Session;

/// The nodes of a team's members.
pub(super) struct Relays {
    /// The members of each node that has some.
    nodes: Vec<Vec<usize>>,
    /// The place in `nodes` of each member's, and its place there.
    of: Vec<(usize, usize)>,
}

impl Session<'_> {
    /// Those of this team; none where its data would take the same way without them.
    pub(super) fn relays(&self) -> Option<Relays> {
        if self.call.is_of_one_node() {
            return None;
        }
        let leaders: Vec<usize> = (0..self.n).map(|i| self.world.nodes.leader(self.pe(i) as usize)).collect();
        let relays = Relays::of(&leaders);
        relays.nodes.iter().any(|node| node.len() > 1).then_some(relays)
    }
}

impl Relays {
    /// Of members whose nodes are known by their leaders.
    fn of(leaders: &[usize]) -> Relays {
        let mut seen: Vec<usize> = Vec::new();
        let mut relays = Relays { nodes: Vec::new(), of: Vec::new() };
        for (i, leader) in leaders.iter().enumerate() {
            let node = seen.iter().position(|other| other == leader).unwrap_or_else(|| {
                seen.push(*leader);
                relays.nodes.push(Vec::new());
                seen.len() - 1
            });
            relays.of.push((node, relays.nodes[node].len()));
            relays.nodes[node].push(i);
        }
        relays
    }

    /// Who of a node gets the data of member `from`, of another node.
    fn relay(&self, from: usize, node: usize) -> usize {
        let members = &self.nodes[node];
        members[self.of[from].1 % members.len()]
    }

    /// Whether member `from` sends its data to member `to` itself.
    pub(super) fn sends(&self, from: usize, to: usize) -> bool {
        let node = self.of[to].0;
        node == self.of[from].0 || self.relay(from, node) == to
    }

    /// Whose data member `to` copies, and from which member of its node.
    pub(super) fn copies(&self, to: usize) -> impl Iterator<Item = (usize, usize)> + use<'_> {
        let node = self.of[to].0;
        let far = (0..self.of.len()).filter(move |from| self.of[*from].0 != node);
        far.map(move |from| (from, self.relay(from, node))).filter(move |(_, relay)| *relay != to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random::Random;

    /// Each member gets each other's data once: sent to it, or by a copy of what was sent to one of its node.
    #[test]
    fn everything_arrives_once_and_crosses_to_a_node_once() {
        let mut random = Random::new("everything_arrives_once_and_crosses_to_a_node_once");
        for _ in 0..200 {
            let (n, nodes) = (1 + random.below(40), 1 + random.below(9));
            let leaders: Vec<usize> = (0..n).map(|_| random.below(nodes)).collect();
            let relays = Relays::of(&leaders);
            for from in 0..n {
                for to in (0..n).filter(|to| *to != from) {
                    let copied: Vec<usize> =
                        relays.copies(to).filter(|(i, _)| *i == from).map(|(_, relay)| relay).collect();
                    assert_eq!(
                        copied.len() + usize::from(relays.sends(from, to)),
                        1,
                        "{leaders:?}: {from} {to}"
                    );
                    let there = |relay: &usize| relays.sends(from, *relay) && leaders[*relay] == leaders[to];
                    assert!(copied.iter().all(there), "{leaders:?}: {from} {to}");
                }
                let crossed =
                    |node: usize| (0..n).filter(|to| leaders[*to] == node && relays.sends(from, *to)).count();
                let other = |node: &usize| *node != leaders[from] && leaders.contains(node);
                assert!((0..nodes).filter(other).all(|node| crossed(node) == 1), "{leaders:?}: {from}");
            }
        }
    }

    /// Sixteen nodes of four: what ARCHITECTURE.md says of 64 PEs.
    #[test]
    fn messages_of_sixteen_nodes_of_four() {
        let leaders: Vec<usize> = (0..64).map(|pe| pe / 4 * 4).collect();
        let relays = Relays::of(&leaders);
        let far = |from: usize, to: usize| from / 4 != to / 4 && relays.sends(from, to);
        let sent: Vec<usize> = (0..64).map(|from| (0..64).filter(|to| far(from, *to)).count()).collect();
        let come: Vec<usize> = (0..64).map(|to| (0..64).filter(|from| far(*from, to)).count()).collect();
        // One to each other node, and shared evenly among its members; it were 60 without.
        assert!(sent.iter().chain(&come).all(|copies| *copies == 15), "{sent:?} {come:?}");
    }
}
