//! What ranks, the rendezvous and strangers send to each other while a job starts, and after.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rushmem_bootstrap_uid::fuzzing::boot_frames(bytes));
