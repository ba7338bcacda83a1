//! How what comes in becomes a seed of the fuzz targets. Below every parser, as [`fuzzing`](crate::fuzzing)
//! is above them; in the same builds. With `RUSHMEM_FUZZ_RECORD=dir` seeds are kept there, few of each shape:
//! `scripts/fuzz-seeds`.

use std::path::PathBuf;
use std::sync::OnceLock;

/// Keeps what has come in as a seed, where that is asked for.
pub(crate) fn record(to: u8, shape: u8, bytes: &[u8]) {
    static DIR: OnceLock<Option<PathBuf>> = OnceLock::new();
    let dir = DIR.get_or_init(|| std::env::var_os("RUSHMEM_FUZZ_RECORD").map(PathBuf::from));
    let Some(dir) = dir else { return };
    let dir = dir.join("boot_frames");
    let size = bytes.len().checked_ilog2().unwrap_or(0);
    for number in 0..2 {
        let file = dir.join(format!("{to}-{shape:02x}-{size}-{number}"));
        if !file.exists() {
            let _ = std::fs::create_dir_all(&dir)
                .and_then(|()| std::fs::write(&file, [&[to], &bytes[..bytes.len().min(4096)]].concat()));
            return;
        }
    }
}
