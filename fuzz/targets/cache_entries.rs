//! Records of the kernel cache, and compilers' lists of headers.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rushmem_device_cpu::fuzzing::cache_entries(bytes));
