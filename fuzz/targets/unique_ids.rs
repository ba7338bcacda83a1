//! Unique IDs, as bytes and as text.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rushmem_bootstrap_uid::fuzzing::unique_ids(bytes));
