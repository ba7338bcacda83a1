//! The data that PEs send: it differs from word to word, from PE to PE and from run to run.

use rushmem::Pe;

/// `words` words of a PE's data as bytes.
pub(super) fn pattern(seed: u64, pe: Pe, words: usize) -> impl Iterator<Item = u8> {
    (0..words as u64).flat_map(move |i| word(seed, pe, i).to_ne_bytes())
}

/// Word `i` of it.
pub(super) fn word(seed: u64, pe: Pe, i: u64) -> u64 {
    let mut x = seed ^ (u64::from(pe.number()) << 48) ^ i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    // A zero is what the memory held before.
    (x ^ (x >> 31)) | 1
}

/// The first `n` elements of what a PE contributes to a collective.
pub(super) fn floats(seed: u64, pe: Pe, n: usize) -> Vec<f32> {
    let bytes: Vec<u8> = pattern(seed, pe, n.div_ceil(2)).collect();
    bytes
        .chunks_exact(4)
        .take(n)
        .map(|word| f32::from_ne_bytes([word[0], word[1], word[2], word[3]]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_two_pes_differs_everywhere() {
        let of = |pe| pattern(7, Pe::new(pe), 1000).collect::<Vec<u8>>();
        let (a, b) = (of(0), of(1));
        assert_eq!(a.len(), 8000);
        assert!(a.chunks(8).zip(b.chunks(8)).all(|(a, b)| a != b && a != [0; 8]));
        assert!(a.chunks(8).zip(a[8..].chunks(8)).all(|(a, b)| a != b));
    }
}
