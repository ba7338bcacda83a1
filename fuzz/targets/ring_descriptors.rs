//! Descriptors of the device ring.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rushmem_host::fuzzing::ring_descriptors(bytes));
