//! Random-looking bytes that every rank can compute for every other.

use rushmem_bootstrap_abi::Bootstrap;

/// What a blob is for: its bytes depend on all of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key {
    pub(crate) seed: u64,
    pub(crate) round: u32,
    pub(crate) from: u32,
    pub(crate) to: u32,
}

/// SplitMix64 (Steele, Lea, Flood 2014).
pub(crate) fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn start(key: Key) -> u64 {
    let mut state = key.seed;
    for part in [key.round, key.from, key.to] {
        state ^= u64::from(part);
        state = next(&mut state);
    }
    state
}

/// Writes the bytes of `key`.
pub(crate) fn fill(key: Key, buf: &mut [u8]) {
    let mut state = start(key);
    for word in buf.chunks_mut(8) {
        word.copy_from_slice(&next(&mut state).to_le_bytes()[..word.len()]);
    }
}

/// Checks that `buf` holds the bytes of `key`.
pub(crate) fn verify(key: Key, buf: &[u8], what: &str) -> Result<(), String> {
    let mut state = start(key);
    for (at, word) in buf.chunks(8).enumerate() {
        let want = next(&mut state).to_le_bytes();
        if *word != want[..word.len()] {
            let want = &want[..word.len()];
            return Err(format!(
                "{what} of {} bytes, {key:x?}: bytes at {} are {word:x?}, must be {want:x?}",
                buf.len(),
                at * 8
            ));
        }
    }
    Ok(())
}

/// A seed made by rank 0 and sent to all.
pub(crate) fn shared_seed(b: &dyn Bootstrap) -> Result<u64, String> {
    let mut bytes = [0; 8];
    if b.rank() == 0 {
        getrandom::fill(&mut bytes).map_err(|e| format!("no random bytes: {e}"))?;
    }
    b.broadcast(&mut bytes, 0).map_err(|e| format!("the broadcast of the seed failed: {e}"))?;
    Ok(u64::from_le_bytes(bytes))
}
