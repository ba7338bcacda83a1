//! Variables of launchers, and rushmem's own.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rushmem_host::fuzzing::launcher_variables(bytes));
