//! Random data: fresh in each run, and the same again from the seed that is printed.

/// SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators").
pub(crate) struct Random(u64);

impl Random {
    /// Seeded by the system; says so under the test's name.
    pub(crate) fn new(test: &str) -> Random {
        let seed =
            crate::topology::card::random().map(u64::from_le_bytes).expect("the system has random bytes");
        eprintln!("{test}: seed {seed:#x}");
        Random(seed)
    }

    /// Gives what others give that are seeded alike.
    pub(crate) fn seeded(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).collect();
        bytes.truncate(len);
        bytes
    }
}
