//! The members of a team: some PEs of the world, in an order of their own.
//!
//! Where they are evenly spaced, three numbers say who they are, so that a team of every k-th PE of a large
//! world costs no memory; else a list does.

use std::sync::Arc;

/// See the top of the file. Members are numbered from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Members {
    /// Member `i` is PE `start + i * stride`.
    Steps { start: i32, stride: i32, n: usize },
    /// Anything else.
    List(Arc<[i32]>),
}

impl Members {
    /// All PEs of a world of `n`.
    pub(crate) fn all(n: usize) -> Members {
        Members::Steps { start: 0, stride: 1, n }
    }

    /// These PEs in this order, of which there is one at least.
    pub(crate) fn new(pes: &[i32]) -> Members {
        let (start, n) = (pes[0], pes.len());
        let stride = pes.get(1).map_or(1, |second| second - start);
        if pes.windows(2).all(|two| two[1] - two[0] == stride) {
            return Members::Steps { start, stride, n };
        }
        Members::List(pes.into())
    }

    /// How many there are.
    #[inline]
    pub(crate) fn n(&self) -> usize {
        match self {
            Members::Steps { n, .. } => *n,
            Members::List(pes) => pes.len(),
        }
    }

    /// The PE of the world that is member `i`.
    #[inline]
    pub(crate) fn pe(&self, i: usize) -> usize {
        match self {
            Members::Steps { start, stride, .. } => (start + i as i32 * stride) as usize,
            Members::List(pes) => pes[i] as usize,
        }
    }

    /// The number here of a PE of the world, if it is a member.
    pub(crate) fn find(&self, pe: i32) -> Option<usize> {
        match self {
            Members::List(pes) => pes.iter().position(|member| *member == pe),
            Members::Steps { n: 1, start, .. } => (pe == *start).then_some(0),
            Members::Steps { start, stride, n } => {
                let (apart, stride) = (i64::from(pe) - i64::from(*start), i64::from(*stride));
                usize::try_from(apart / stride).ok().filter(|i| apart % stride == 0 && i < n)
            }
        }
    }

    /// All of them, in their order.
    pub(crate) fn pes(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.n()).map(|i| self.pe(i))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_by_either_number() {
        let lists: [&[i32]; 8] = [
            &[0, 1, 2, 3],
            &[5],
            &[7, 4],
            &[1, 4, 7, 10],
            &[9, 6, 3, 0],
            &[0, 1, 3],
            &[2, 0, 1],
            &[3, 1, 3 + 8],
        ];
        for (i, pes) in lists.into_iter().enumerate() {
            let members = Members::new(pes);
            assert_eq!(matches!(members, Members::Steps { .. }), i < 5, "{members:?}");
            assert_eq!(members.pes().map(|pe| pe as i32).collect::<Vec<_>>(), pes);
            for pe in -2..20 {
                assert_eq!(members.find(pe), pes.iter().position(|p| *p == pe), "{pe} of {members:?}");
            }
        }
        assert_eq!(Members::all(4), Members::new(&[0, 1, 2, 3]));
    }
}
