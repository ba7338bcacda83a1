//! The ranks of a job under attack: threads of the test, or processes with a limit of descriptors each.

use std::time::{Duration, Instant};

use rushmem_bootstrap_abi::{BootError, Bootstrap};
use rushmem_bootstrap_uid::{join_uid, Uid, UidBootstrap};

use crate::strangers::Processes;
use crate::{config, never_more_descriptors};

/// `n` ranks join by `join`, gather and leave; how long the slowest took to join.
pub(crate) fn starts(n: u32, join: impl Fn(u32) -> Result<UidBootstrap, BootError> + Sync) -> Duration {
    std::thread::scope(|s| {
        let rank = |rank| {
            let join = &join;
            s.spawn(move || {
                let start = Instant::now();
                let b = join(rank).expect("the job comes up");
                let took = start.elapsed();
                gather_and_leave(&b, rank, n);
                took
            })
        };
        let ranks: Vec<_> = (0..n).map(rank).collect();
        ranks.into_iter().map(|r| r.join().expect("no panic")).max().expect("there are ranks")
    })
}

fn gather_and_leave(b: &UidBootstrap, rank: u32, n: u32) {
    let mut out = vec![0; n as usize];
    b.allgather(&[rank as u8], &mut out).expect("all are there");
    assert!(out.iter().enumerate().all(|(r, x)| r == *x as usize));
    b.finalize().expect("all leave");
}

/// The same with ranks that are processes, which may have so many descriptors each. Rank r joins `late[r]`
/// after its process is there.
pub(crate) fn processes_start(uid: &Uid, late: &[Duration], descriptors: u64) -> Duration {
    let (hex, n) = (uid.to_hex(), late.len());
    let part =
        |(r, late): (usize, &Duration)| format!("rank {hex} {r} {n} {} {descriptors}", late.as_millis());
    let parts: Vec<String> = late.iter().enumerate().map(part).collect();
    let took = Processes::that_say("@took", &parts);
    let millis = took.iter().map(|t| t.parse().expect("milliseconds")).max();
    Duration::from_millis(millis.expect("there are ranks"))
}

/// A rendezvous in a process of its own, which may have so many descriptors. It keeps half as many
/// connections of strangers, and 32 at least.
pub(crate) fn standing(network: &str, descriptors: u64) -> (Processes, Uid) {
    let (process, hex) = Processes::one_that_says("@uid", &format!("rendezvous {network} {descriptors}"));
    (process, Uid::from_hex(&hex).expect("a unique ID"))
}

/// A rendezvous' process, until it is killed.
pub(crate) fn rendezvous(is_local: bool, descriptors: u64) {
    never_more_descriptors(descriptors);
    let made = if is_local { Uid::create_standing_local() } else { Uid::create_standing(Some("lo")) };
    let (uid, _handle) = made.expect("a unique ID");
    println!("@uid {}", uid.to_hex());
    std::thread::sleep(Duration::from_secs(600));
}

/// A rank's process.
pub(crate) fn play(uid: &str, rank: u32, n: u32, late: Duration, descriptors: u64) {
    never_more_descriptors(descriptors);
    std::thread::sleep(late);
    let uid = Uid::from_hex(uid).expect("a unique ID");
    let start = Instant::now();
    let b = join_uid(&uid, config(rank, n)).expect("the job comes up");
    let took = start.elapsed();
    gather_and_leave(&b, rank, n);
    println!("@took {}", took.as_millis());
}
