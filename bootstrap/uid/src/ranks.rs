//! Small facts about sets of ranks: who is whose neighbour, and how a set is written for a person.

/// The ranks that `rank` keeps a connection with: `rank ± 2^k (mod n)`, ascending, without itself. These are
/// the edges that Bruck's allgather, the dissemination barrier and binomial trees need for any `n`.
pub fn neighbours(rank: u32, n_ranks: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let mut distance = 1u64;
    while distance < u64::from(n_ranks) {
        let (r, n) = (u64::from(rank), u64::from(n_ranks));
        found.push(((r + distance) % n) as u32);
        found.push(((r + n - distance) % n) as u32);
        distance *= 2;
    }
    found.sort_unstable();
    found.dedup();
    found.retain(|r| *r != rank);
    found
}

/// `{3, 7, 8, 9}` as `3, 7-9`. The input must ascend. A long list is cut after `MAX_RANGES` ranges.
pub fn compress(ranks: impl IntoIterator<Item = u32>) -> String {
    const MAX_RANGES: usize = 32;
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match ranges.last_mut() {
            Some((_, end)) if *end + 1 == rank => *end = rank,
            _ => ranges.push((rank, rank)),
        }
    }
    let shown: Vec<String> = ranges
        .iter()
        .take(MAX_RANGES)
        .map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") })
        .collect();
    let left: u64 = ranges.iter().skip(MAX_RANGES).map(|(a, b)| u64::from(b - a) + 1).sum();
    if left > 0 {
        format!("{} and {left} more", shown.join(", "))
    } else {
        shown.join(", ")
    }
}

/// `rank 3` or `ranks 3, 7-9`.
pub(crate) fn named(ranks: &[u32]) -> String {
    format!("rank{} {}", if ranks.len() == 1 { "" } else { "s" }, compress(ranks.iter().copied()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_symmetric_and_few() {
        for n in 1..70u32 {
            for r in 0..n {
                let mine = neighbours(r, n);
                assert!(mine.len() <= 2 * (32 - n.leading_zeros()) as usize);
                assert!(mine.iter().all(|p| *p < n && *p != r && neighbours(*p, n).contains(&r)));
            }
        }
        assert_eq!(neighbours(0, 1), vec![]);
        assert_eq!(neighbours(0, 2), vec![1]);
        assert_eq!(neighbours(1, 8), vec![0, 2, 3, 5, 7]);
        assert_eq!(neighbours(u32::MAX - 1, u32::MAX).len(), 64);
    }

    #[test]
    fn sets_are_compressed() {
        assert_eq!(compress([]), "");
        assert_eq!(compress([3, 7, 8, 9]), "3, 7-9");
        assert_eq!(compress([0, 1]), "0-1");
        assert_eq!(named(&[4]), "rank 4");
        assert_eq!(named(&[4, 6]), "ranks 4, 6");
        assert!(compress((0..200).map(|r| r * 2)).ends_with("and 168 more"));
    }
}
