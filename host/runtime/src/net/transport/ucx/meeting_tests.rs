//! PEs that go while connections to them are being made: whatever has been said by then, the other loses a PE
//! and lives on.
//!
//! One thread lets two transports, and UCX's progress in them, take steps in random order, and at a random
//! step one of them goes. What UCX makes of that may be the end of the process, so that each such test runs
//! in a process of its own, over TCP.

use std::io::{Read, Seek};
use std::process::Command;
use std::time::{Duration, Instant};

use super::tests::{data, pair, Pe, BYTES, LIMIT, SEGMENT};
use super::Carrier;
use crate::net::transport::{Remote, Transport, MESSAGE};
use crate::net::wire::message::PRELUDE;
use crate::topology::card::random;

const CHILD: &str = "RUSHMEM_MEETING_CHILD";
const ROUNDS: usize = 150;
/// Steps of a round, both PEs' together: a connection takes less.
const STEPS: u64 = 60;

/// Goes on in a process of its own, with UCX over TCP alone. False: this is the one that only waits for it.
pub(super) fn apart(module: &str, test: &str) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let mut child = Command::new(std::env::current_exe().expect("a test knows where it is"));
    child.args([
        "--exact",
        &format!("net::transport::ucx::{module}::{test}"),
        "--nocapture",
        "--test-threads=1",
    ]);
    // Connections that are refused are part of it.
    child.env(CHILD, "1").env("UCX_TLS", "tcp").env("UCX_LOG_LEVEL", "fatal");
    let mut said = tempfile::tempfile().expect("the temporary folder takes files");
    let pipe = || said.try_clone().expect("descriptors are left");
    let mut child = child.stdout(pipe()).stderr(pipe()).spawn().expect("it starts");
    let start = Instant::now();
    while child.try_wait().expect("the child is ours").is_none() {
        if start.elapsed() > 3 * LIMIT {
            child.kill().expect("the child is ours");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let status = child.wait().expect("it has ended");
    let mut text = String::new();
    said.rewind().and_then(|()| said.read_to_string(&mut text)).expect("text");
    assert!(
        status.success(),
        "{status} after {:?}: {}",
        start.elapsed(),
        &text[text.len().saturating_sub(4000)..]
    );
    text.lines().filter(|line| line.contains("SKIP ")).for_each(|line| eprintln!("{line}"));
    false
}

/// A first put, and a first message, of every size.
fn speak(pe: &mut Pe, other: usize, there: u64, source: &[u8], bytes: usize) {
    let mut message = vec![0; MESSAGE.min(bytes).max(PRELUDE)];
    message[..4].copy_from_slice(&(1 - other as u32).to_le_bytes());
    pe.ucx.send(other, message).unwrap();
    let to = Remote { pe: other, segment: SEGMENT, address: there };
    // SAFETY: the source outlives the round's transports.
    if unsafe { pe.ucx.put(to, source.as_ptr(), bytes, 0) }.unwrap() {
        pe.done.push(0);
    }
}

#[test]
fn a_pe_that_goes_before_it_is_connected_takes_nobody_along() {
    let name = "a_pe_that_goes_before_it_is_connected_takes_nobody_along";
    if !apart("meeting_tests", name) {
        return;
    }
    let mut state = u64::from_le_bytes(random().unwrap());
    println!("seed {state:#x}");
    let mut below = |n: u64| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    };
    let source = data(BYTES);
    for round in 0..ROUNDS {
        let Some(mut pes) = pair(name, Carrier::Messages) else { return };
        let there: Vec<u64> = pes.iter().map(|pe| pe.memory.as_ptr() as u64).collect();
        // Who speaks: one, the other, both.
        let speakers = below(3) + 1;
        let sizes = [1, 4000, 100_000, BYTES as u64].map(|most| 1 + below(most) as usize);
        let (bytes, goes, steps) = (sizes[below(4) as usize], below(2) as usize, below(STEPS));
        println!("round {round}: speakers {speakers:b}, {bytes} bytes, {goes} goes after {steps}");
        let mut spoken = 0;
        for _ in 0..steps {
            let me = below(2) as usize;
            if speakers & !spoken & (1 << me) != 0 {
                spoken |= 1 << me;
                speak(&mut pes[me], 1 - me, there[1 - me], &source, bytes);
            }
            match below(2) {
                0 => pes[me].progress(),
                // SAFETY: a live worker.
                _ => unsafe {
                    pes[me].ucx.ucp.ucp_worker_progress(pes[me].ucx.worker);
                },
            }
            if below(8) == 0 {
                std::thread::sleep(Duration::from_micros(below(300)));
            }
        }
        let [first, second] = pes;
        let (gone, mut pe) = if goes == 0 { (first, second) } else { (second, first) };
        let memory = gone.memory;
        drop(gone.ucx);
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(5) {
            pe.progress();
        }
        if spoken & (1 << (1 - goes)) != 0 {
            // It learns of the loss, or of nothing, and then cuts: its put ends in either case.
            pe.ucx.cut();
            while pe.done.len() + pe.failed.len() < 1 {
                pe.progress();
                assert!(start.elapsed() < LIMIT, "the put goes on for ever");
            }
        }
        drop(pe);
        drop(memory);
    }
}
