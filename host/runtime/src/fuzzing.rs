//! What parses bytes of others, for the fuzz targets (`fuzz/`) and for the test that replays their seeds.
//! Only in builds for those: `cfg(test)`, or the feature `fuzzing`. A parser may refuse whatever it is given;
//! it must not panic, run for ever, or touch memory that is not the peer's to name.

/// Messages to a far engine, one after the other.
pub fn far_messages(bytes: &[u8]) {
    crate::net::fuzzing::messages(bytes);
}

/// Heads of pieces.
pub fn far_pieces(bytes: &[u8]) {
    crate::net::transport::ucx::fuzz_head(bytes);
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
