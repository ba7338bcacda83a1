//! The names of all variables that rushmem reads, so that another one is not taken for a setting:
//! a misspelt name would otherwise have no effect, in silence.

use std::sync::Once;

use rushmem_bootstrap_uid::environment::detect_here;

use crate::logging;

/// Every `RUSHMEM_*` variable of the runtime, its launchers and tools. A test compares it with the sources.
const KNOWN: [&str; 57] = [
    "RUSHMEM_BOOTSTRAP",
    "RUSHMEM_CACHE_DIR",
    "RUSHMEM_CARD",
    "RUSHMEM_CARD_SL",
    "RUSHMEM_CARD_TC",
    "RUSHMEM_CHECK",
    "RUSHMEM_COLLECTIVES",
    "RUSHMEM_COMPILE_FOR",
    "RUSHMEM_COUNTERS",
    "RUSHMEM_CPU_BLOCKS",
    "RUSHMEM_CPU_OPT",
    "RUSHMEM_CPU_STACK",
    "RUSHMEM_CPU_THREADS",
    "RUSHMEM_CRASH_REPORT",
    "RUSHMEM_CUDA_DIR",
    "RUSHMEM_CXX",
    "RUSHMEM_DEVICE",
    "RUSHMEM_DOORBELL",
    "RUSHMEM_EARLY_LAUNCH",
    "RUSHMEM_FAKE_DELAY",
    "RUSHMEM_FAKE_SEED",
    "RUSHMEM_FAR_COPIES",
    "RUSHMEM_FAR_GPU",
    "RUSHMEM_HEAP_MAX",
    "RUSHMEM_HEAP_MIN",
    "RUSHMEM_HOST_LIB",
    "RUSHMEM_INIT_TIMEOUT",
    "RUSHMEM_JOB_SECRET",
    "RUSHMEM_LOCAL_NPES",
    "RUSHMEM_LOCAL_PE",
    "RUSHMEM_LOG",
    "RUSHMEM_MPI_PLUGIN",
    "RUSHMEM_NODES",
    "RUSHMEM_NPES",
    "RUSHMEM_NVCC",
    "RUSHMEM_NVJITLINK",
    "RUSHMEM_NVRTC",
    "RUSHMEM_PE",
    "RUSHMEM_PEER_TIMEOUT",
    "RUSHMEM_PES_PER_NODE",
    "RUSHMEM_QUEUE_CONTEXTS",
    "RUSHMEM_QUEUE_LOSE",
    "RUSHMEM_QUEUE_SLOTS",
    "RUSHMEM_RING_SLOTS",
    "RUSHMEM_STALL_REPORT",
    "RUSHMEM_STREAMS",
    "RUSHMEM_TEAM_MEMORY",
    "RUSHMEM_TIMEOUT",
    "RUSHMEM_TRACE",
    "RUSHMEM_TRACE_BLOCKS",
    "RUSHMEM_TRANSPORT",
    "RUSHMEM_UCX_LIB",
    "RUSHMEM_UID",
    "RUSHMEM_UID_IFNAME",
    "RUSHMEM_VERBS",
    "RUSHMEM_WAIT_TIMEOUT",
    "RUSHMEM_WIDE_PACKETS",
];
/// What programs that use rushmem, its own tests and its scripts may have for themselves.
const OTHERS: [&str; 5] =
    ["RUSHMEM_TEST_", "RUSHMEM_SOAK_", "RUSHMEM_FUZZ_", "RUSHMEM_USER_", "RUSHMEM_UCX_CUDA_DIR"];
/// What no log may show.
const SECRET: [&str; 2] = ["RUSHMEM_JOB_SECRET", "RUSHMEM_UID"];

/// Warns about variables that rushmem does not know, once in a process and on one PE of a host. Logs those in
/// force at debug level, with `library`, the file that this code is from.
pub(crate) fn look(library: &dyn Fn() -> String) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::debug!("librushmem_host.so {}: {}", env!("CARGO_PKG_VERSION"), library());
        let mut set: Vec<(String, String)> = std::env::vars_os()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
            .filter(|(name, _)| name.starts_with("RUSHMEM_"))
            .collect();
        set.sort_unstable();
        for (name, value) in set.iter().filter(|(name, _)| KNOWN.contains(&name.as_str())) {
            let value = if SECRET.contains(&name.as_str()) { "(a secret)" } else { value };
            log::debug!("setting {name}={value}");
        }
        let ranks = detect_here().ok().and_then(|launch| launch.ranks());
        if ranks.is_none_or(|ranks| ranks.local_rank.unwrap_or(ranks.rank) == 0) {
            let unknown = set.iter().filter_map(|(name, _)| unknown(name));
            unknown.chain(logging::trouble()).for_each(|text| log::warn!("{text}"));
        }
    });
}

/// What to say of a variable that rushmem does not know.
fn unknown(name: &str) -> Option<String> {
    if KNOWN.contains(&name) || OTHERS.iter().any(|prefix| name.starts_with(prefix)) {
        return None;
    }
    let distance =
        |known: &str| strsim::damerau_levenshtein(&name["RUSHMEM_".len()..], &known["RUSHMEM_".len()..]);
    let nearest = KNOWN.iter().map(|known| (distance(known), known)).min();
    // Further away it is another word.
    let near = nearest.filter(|(distance, known)| *distance <= 3.max((known.len() - "RUSHMEM_".len()) / 3));
    let hint = near.map_or(String::new(), |(_, known)| format!("; is {known} meant?"));
    Some(format!("the environment has {name}, which rushmem does not know: it has no effect{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_slip_of_the_finger_is_told_with_the_name_that_is_meant() {
        for (name, meant) in [
            ("RUSHMEM_HEAPMAX", "RUSHMEM_HEAP_MAX"),
            ("RUSHMEM_TRANPSORT", "RUSHMEM_TRANSPORT"),
            ("RUSHMEM_WAIT_TIME", "RUSHMEM_WAIT_TIMEOUT"),
            ("RUSHMEM_DEVICES", "RUSHMEM_DEVICE"),
        ] {
            let text = unknown(name).expect(name);
            assert!(text.contains(name) && text.contains(&format!("is {meant} meant?")), "{text}");
        }
        assert!(!unknown("RUSHMEM_SOMETHING_ELSE_ENTIRELY").expect("unknown").contains("meant"));
        assert!(KNOWN.iter().all(|known| unknown(known).is_none()) && unknown("RUSHMEM_TEST_SEED").is_none());
    }

    /// Names in the sources that are read from the environment: those in quotes by themselves.
    fn names_in(folder: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() && !name.contains("test") {
                names_in(&path, found);
            } else if name.ends_with(".rs") && !name.contains("test") && name != "settings.rs" {
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                let code = text.split("#[cfg(test)]").next().unwrap_or_default();
                let words = code.split('"').filter(|word| word.starts_with("RUSHMEM_"));
                let plain = |word: &&str| {
                    word.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
                };
                found.extend(words.filter(plain).map(str::to_owned));
            }
        }
    }

    #[test]
    fn the_names_are_those_in_the_sources() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        if !root.join("bootstrap").is_dir() {
            eprintln!("SKIP the_names_are_those_in_the_sources: the sources are not here");
            return;
        }
        let mut found = Vec::new();
        for folder in ["host", "bootstrap", "device/cpu/src"] {
            names_in(&root.join(folder), &mut found);
        }
        let no_setting =
            ["RUSHMEM_ERR_", "RUSHMEM_FAKE_", "RUSHMEM_OK", "RUSHMEM_H", "RUSHMEM_CARRIED_", "RUSHMEM_TEST_"];
        found.retain(|name| {
            !name.starts_with("RUSHMEM_ERR_")
                && !name.starts_with("RUSHMEM_TEST_")
                && !name.starts_with("RUSHMEM_CARRIED_")
                && !name.starts_with("RUSHMEM_FUZZ_")
                && !name.ends_with('_')
                && !no_setting.contains(&name.as_str())
        });
        let missing: Vec<&String> = found.iter().filter(|name| !KNOWN.contains(&name.as_str())).collect();
        assert!(missing.is_empty(), "these are read and not in KNOWN: {missing:?}");
        for known in KNOWN {
            assert!(found.iter().any(|name| name == known), "{known} is in KNOWN and read nowhere");
        }
    }
}
