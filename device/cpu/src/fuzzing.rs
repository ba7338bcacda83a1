//! What parses bytes of others, for the fuzz targets (`fuzz/`) and for the test that replays their seeds.
//! Only in builds for those: `cfg(test)`, or the feature `fuzzing`.

use crate::cache::{self, record::Record};

/// A record of a cache entry, or a compiler's list of headers.
pub fn cache_entries(bytes: &[u8]) {
    static FORMS: [cache::Form; 2] = [
        cache::CPU,
        cache::Form { heading: "rushmem cuda kernel 3", files: &["kernel.cubin", "kernel.names"] },
    ];
    for form in &FORMS {
        // Sealed, so that there is more to read than a wrong seal.
        for record in [bytes.to_vec(), cache::record::sealed(bytes)] {
            if let Some(record) = Record::parse(&record, form) {
                assert!(!record.vouches_for(&[]), "a record of no files");
                let _ = record.is_up_to_date();
            }
        }
    }
    let paths = cache::prerequisites(bytes);
    assert!(paths.len() <= bytes.len() && paths.iter().all(|path| !path.as_os_str().is_empty()));
}

#[cfg(test)]
mod tests {
    #[test]
    fn cache_entries() {
        super::replay::replay("cache_entries", super::cache_entries);
    }
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;
