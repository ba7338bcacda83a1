//! Inputs of the fuzz targets: how one is cut into parts, and how what comes in becomes a seed. Below every
//! parser, as [`fuzzing`](crate::fuzzing) is above them; in the same builds.
//!
//! With `RUSHMEM_FUZZ_RECORD=dir` what comes in is kept there as seeds, few of each shape:
//! `scripts/fuzz-seeds`.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Parts of an input: each a length of two bytes, and as many bytes as that says or as are left.
pub(crate) fn parts(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = bytes.split_first_chunk::<2>()?;
        let (part, rest) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
        bytes = rest;
        Some(part)
    })
}

/// Keeps what has come in as a seed, where that is asked for. `shape`: a few of each are enough.
pub(crate) fn record(target: &str, shape: usize, bytes: &[u8]) {
    static DIR: OnceLock<Option<PathBuf>> = OnceLock::new();
    let dir = DIR.get_or_init(|| std::env::var_os("RUSHMEM_FUZZ_RECORD").map(PathBuf::from));
    let Some(dir) = dir else { return };
    let dir = dir.join(target);
    let size = bytes.len().checked_ilog2().unwrap_or(0);
    for number in 0..2 {
        let file = dir.join(format!("{shape:02x}-{size}-{number}"));
        if file.exists() {
            continue;
        }
        let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        let seed = [&length.to_le_bytes()[..], &bytes[..usize::from(length)]].concat();
        let _ = fs::create_dir_all(&dir).and_then(|()| fs::write(&file, seed));
        return;
    }
}
