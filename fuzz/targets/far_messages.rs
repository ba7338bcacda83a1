//! Messages of far PEs, carried out by an engine.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rushmem_host::fuzzing::far_messages(bytes));
