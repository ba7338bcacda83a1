//! What parses bytes of others, for the fuzz targets (`fuzz/`) and for the test that replays their seeds. Only in builds for
//! those: `cfg(test)`, or the feature `fuzzing`. A parser may refuse whatever it is given; it must not panic, run for ever,
//! or touch memory that is not the peer's to name.
//!
//! With `RUSHMEM_FUZZ_RECORD=dir` what comes in is kept there as seeds, few of each shape: `scripts/fuzz-seeds`.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Messages to a far engine, one after the other.
pub fn far_messages(bytes: &[u8]) {
    crate::net::fuzzing::messages(bytes);
}

/// Heads of pieces.
pub fn far_pieces(bytes: &[u8]) {
    crate::net::ucx::fuzz_head(bytes);
}

/// Descriptors of the device ring, as memory that anything may have written over.
pub fn ring_descriptors(bytes: &[u8]) {
    crate::net::fuzzing::descriptors(bytes);
}

/// Messages on the sockets of a node.
pub fn node_messages(bytes: &[u8]) {
    crate::topology::fuzz(bytes);
    crate::node::fuzz(bytes);
}

/// Variables of launchers, and rushmem's own: lines `NAME=VALUE`.
pub fn launcher_variables(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let lookup = |name: &str| {
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix('=').map(str::to_owned);
        text.lines().find_map(value)
    };
    let launch = rushmem_bootstrap_uid::environment::detect(&lookup);
    for error in [launch.as_ref().err().map(ToString::to_string), settings(&lookup)].into_iter().flatten() {
        // Names what is wrong.
        assert!(error.contains(char::is_alphabetic), "{error:?}");
    }
    let _ = crate::boot::plan(lookup("RUSHMEM_BOOTSTRAP").as_deref(), launch);
}

fn settings(lookup: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let error = crate::config::Config::from_lookup(lookup).err()?;
    assert!(error.message.contains("RUSHMEM_"), "a setting is refused and not named: {error}");
    Some(error.to_string())
}

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

#[cfg(test)]
mod tests {
    use super::replay::replay;

    #[test]
    fn far_messages() {
        replay("far_messages", super::far_messages);
    }

    #[test]
    fn far_pieces() {
        replay("far_pieces", super::far_pieces);
    }

    #[test]
    fn ring_descriptors() {
        replay("ring_descriptors", super::ring_descriptors);
    }

    #[test]
    fn node_messages() {
        replay("node_messages", super::node_messages);
    }

    #[test]
    fn launcher_variables() {
        replay("launcher_variables", super::launcher_variables);
    }
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;
