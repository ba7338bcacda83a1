//! Hosts for tests: how the settings divide the PEs of one host into nodes, which cannot map each other's
//! memory.

use crate::error::{err, Result};

/// Which PEs are treated as one node. PEs of different hosts never are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Placement {
    /// All of a host.
    Hosts,
    /// So many, one after the other (`RUSHMEM_PES_PER_NODE`).
    Each(u32),
    /// By PE: the number of its node, from the front again where the list ends (`RUSHMEM_NODES`).
    Listed(Vec<u32>),
}

impl Placement {
    /// What the settings say.
    pub(crate) fn parse(pes_per_node: Option<String>, nodes: Option<String>) -> Result<Placement> {
        match (pes_per_node, nodes) {
            (None, None) => Ok(Placement::Hosts),
            (Some(each), None) => {
                let number = each.trim().parse().ok().filter(|n| *n > 0);
                let bad = || err!(ENVIRONMENT, "RUSHMEM_PES_PER_NODE={each}: expected a number of PEs, 1 or more");
                number.map(Placement::Each).ok_or_else(bad)
            }
            (None, Some(list)) => {
                // A card has room for so much.
                let number = |text: &str| text.trim().parse::<u16>().ok().map(u32::from);
                let numbers: Option<Vec<u32>> = list.split(',').map(number).collect();
                let bad = || {
                    err!(
                        ENVIRONMENT,
                        "RUSHMEM_NODES={list}: expected the number of each PE's node, 0 to 65535, with commas between (for \
                         example 0,1,1,0; where the list ends it begins anew)"
                    )
                };
                numbers.map(Placement::Listed).ok_or_else(bad)
            }
            (Some(each), Some(list)) => Err(err!(
                ENVIRONMENT,
                "RUSHMEM_PES_PER_NODE={each} and RUSHMEM_NODES={list} both say which PEs share a node: set one of them"
            )),
        }
    }

    /// The node of its host that `pe` is put on; `None` where hosts are not divided.
    pub(crate) fn part(&self, pe: u32) -> Option<u32> {
        match self {
            Placement::Hosts => None,
            Placement::Each(each) => Some(pe / each),
            Placement::Listed(nodes) => Some(nodes[pe as usize % nodes.len()]),
        }
    }

    /// Whether hosts are divided.
    pub(crate) fn divides(&self) -> bool {
        *self != Placement::Hosts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(each: Option<&str>, list: Option<&str>) -> Vec<Option<u32>> {
        let placement = Placement::parse(each.map(Into::into), list.map(Into::into)).unwrap();
        (0..6).map(|pe| placement.part(pe)).collect()
    }

    #[test]
    fn a_list_goes_on_from_its_front() {
        assert_eq!(parts(None, None), [None; 6]);
        assert_eq!(parts(Some("2"), None), [0, 0, 1, 1, 2, 2].map(Some));
        assert_eq!(parts(None, Some("0,1")), [0, 1, 0, 1, 0, 1].map(Some));
        assert_eq!(parts(None, Some(" 0, 1,1 ,0,7")), [0, 1, 1, 0, 7, 0].map(Some));
        assert_eq!(parts(None, Some("3")), [Some(3); 6]);
    }

    #[test]
    fn one_of_the_two_says_it() {
        let e = Placement::parse(Some("2".into()), Some("0,1".into())).unwrap_err();
        assert!(
            e.message.contains("RUSHMEM_PES_PER_NODE=2") && e.message.contains("RUSHMEM_NODES=0,1"),
            "{e}"
        );
    }
}
