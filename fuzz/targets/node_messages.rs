//! Cards, and the messages on the sockets between the PEs of a host.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rushmem_host::fuzzing::node_messages(bytes));
