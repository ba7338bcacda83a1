//! Heads of the pieces in which copies travel.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rushmem_host::fuzzing::far_pieces(bytes));
