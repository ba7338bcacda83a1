//! Strangers connect to everything that listens while jobs start: the jobs must start, and the log must
//! report the strangers. A test binary of its own, because it connects to every listener of its process.

mod warnings;

use std::collections::HashSet;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rushmem_bootstrap_abi::Bootstrap;
use rushmem_bootstrap_uid::{join_uid, Uid, UidConfig};

/// The addresses at which this process listens on IPv4 loopback.
fn listeners() -> Vec<SocketAddr> {
    let own: HashSet<String> = std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .filter_map(|e| std::fs::read_link(e.ok()?.path()).ok()?.to_str().map(str::to_owned))
        .collect();
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap_or_default();
    let rows = table.lines().map(|l| l.split_whitespace().collect::<Vec<_>>());
    rows.filter(|r| r.get(3) == Some(&"0A") && own.contains(&format!("socket:[{}]", r[9])))
        .filter_map(|r| u16::from_str_radix(r[1].rsplit_once(':')?.1, 16).ok())
        .map(|port| SocketAddr::from(([127, 0, 0, 1], port)))
        .collect()
}

/// The public name of the job that is starting.
static JOB: Mutex<[u8; 16]> = Mutex::new([0; 16]);

/// What strangers say: nothing, garbage, another protocol, a frame of 4 GiB, an older version's hello, a good
/// hello and then nonsense.
fn lines() -> Vec<Vec<u8>> {
    let mut random = vec![0; 300];
    getrandom::fill(&mut random).expect("random");
    let mut old = vec![39, 0, 0, 0, 1];
    old.extend(b"rmUi\x02\x00\x01");
    old.extend([7; 32]);
    let mut hello = vec![55, 0, 0, 0, 1];
    hello.extend(b"rmUi\x03\x00\x01");
    hello.extend(*JOB.lock().expect("no panic in here"));
    hello.extend([7; 32]);
    let mut mesh_hello = hello.clone();
    mesh_hello[11] = 2;
    let mut lie = hello.clone();
    lie.extend([100, 0, 0, 0, 3]);
    lie.extend([9; 100]);
    let mut mesh_lie = mesh_hello.clone();
    mesh_lie.extend([40, 0, 0, 0, 3]);
    mesh_lie.extend([9; 40]);
    let half = hello[..20].to_vec();
    let huge = vec![0xff; 64];
    vec![
        vec![],
        random,
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        huge,
        old,
        hello,
        mesh_hello,
        lie,
        mesh_lie,
        half,
    ]
}

#[test]
fn strangers_are_refused_and_jobs_go_on() {
    warnings::keep();
    let done = Arc::new(AtomicBool::new(false));
    let stranger = std::thread::spawn({
        let done = done.clone();
        move || {
            let mut held = Vec::new();
            let (mut knocks, mut ports) = (0, HashSet::new());
            while !done.load(Ordering::Relaxed) {
                for addr in listeners() {
                    for line in lines() {
                        let Ok(mut stream) = TcpStream::connect_timeout(&addr, Duration::from_secs(1)) else {
                            continue;
                        };
                        let _ = stream.write_all(&line); // it may have been thrown out already
                        knocks += 1;
                        ports.insert(addr.port());
                        held.push(stream); // idle from now on
                    }
                }
                if held.len() > 600 {
                    held.drain(..300);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            (knocks, ports.len())
        }
    });
    for n in [2u32, 5, 8] {
        let (uid, rendezvous) = Uid::create(Some("lo")).expect("a unique ID");
        let name = uid.job();
        let bytes = (0..16).map(|i| u8::from_str_radix(&name[2 * i..][..2], 16).expect("hex digits"));
        *JOB.lock().expect("no panic in here") = bytes.collect::<Vec<u8>>().try_into().expect("16 of them");
        let start = Instant::now();
        let ranks: Vec<_> = (0..n)
            .map(|rank| {
                let uid = uid.clone();
                std::thread::spawn(move || {
                    // Late, so that there is something to knock at.
                    std::thread::sleep(Duration::from_millis(if rank == 1 { 400 } else { 0 }));
                    let b = join_uid(
                        &uid,
                        UidConfig { init_timeout: Duration::from_secs(40), ..UidConfig::new(rank, n) },
                    )?;
                    let mut out = vec![0; n as usize];
                    b.allgather(&[rank as u8 + 1], &mut out)?;
                    assert_eq!(out, (1..=n as u8).collect::<Vec<_>>());
                    b.finalize()
                })
            })
            .collect();
        for rank in ranks {
            rank.join().expect("no panic").expect("the job comes up");
        }
        println!("{n} ranks started among strangers in {:?}", start.elapsed());
        drop(rendezvous);
    }
    assert_eq!(listeners(), [], "listeners are left behind");
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let names = threads.filter_map(|t| std::fs::read_to_string(t.ok()?.path().join("comm")).ok());
    let left: Vec<String> = names.filter(|n| n.starts_with("rushmem")).collect();
    assert!(left.is_empty(), "threads are left behind: {left:?}");
    done.store(true, Ordering::Relaxed);
    let (knocks, ports) = stranger.join().expect("no panic");
    let warnings = warnings::take();
    println!("{knocks} knocks at {ports} ports, {} warnings, such as {:?}", warnings.len(), warnings.first());
    assert!(knocks > 20 && ports > 5, "{knocks} knocks at {ports} ports");
    for part in [
        "refused a connection from 127.0.0.1:",
        "the job goes on",
        "a frame of 4294967295 bytes",
        "token",
        "an older rushmem",
    ] {
        assert!(warnings.iter().any(|w| w.contains(part)), "no warning says {part:?}: {warnings:#?}");
    }
}
