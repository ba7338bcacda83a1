//! Strangers at the ports of a job's PEs: a program of any user on this host, or one that reaches the port,
//! that has no key. Raw bytes, and what well-formed messages of UCX's can carry; the job goes on with right
//! data, and counts what it dropped.
//!
//! What they may do to one transport, and the tests of numbers and tags, are in
//! `host/runtime/src/net/transport/ucx/strangers_tests.rs`.

#[path = "../host/runtime/src/net/transport/ucx/listening.rs"]
mod listening;
#[path = "../host/runtime/src/net/transport/ucx/stranger.rs"]
mod stranger;

use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use listening::listening;
use rushmem::testing::{self, Exit, Job};
use rushmem::{Pe, World};
use rushmem_test_support::api_common::place::on_gpus;
use rushmem_test_support::api_common::{seed, Rng};
use stranger::Stranger;

const LIMIT: Duration = Duration::from_secs(40);
/// How long strangers are at it.
const ATTACK: Duration = Duration::from_millis(1500);
/// Names the file that ends the PEs' rounds.
const STOP: &str = "STRANGERS_TEST_STOP";
/// Bytes that each PE puts to the other in a round: in messages, in a piece, in several.
const SIZES: [usize; 4] = [40, 3000, 9000, 150_000];
/// What a stranger would write.
const EVIL: [u8; 8] = [0xEE; 8];

/// Puts to the other PE, round by round, until the file is there; nobody writes to the words in front.
fn play(world: &World) -> rushmem::Result<()> {
    let (me, other) = (world.my_pe(), world.right());
    let target = world.alloc::<u64>(64)?;
    let inbox = world.alloc::<u8>(200_000)?;
    let stop = world.alloc::<u64>(1)?;
    world.barrier_all()?;
    println!("READY {:x}", target.as_ptr() as usize);
    let rng = Rng::new(0x5eed);
    let mut rounds = 0u64;
    loop {
        for bytes in SIZES {
            let data = |from: Pe| rng.fork(rounds << 8 | u64::from(from.number())).bytes(bytes);
            inbox.slice(..bytes)?.put(&data(me), other)?;
            world.barrier_all()?;
            assert!(inbox.slice(..bytes)?.to_vec()? == data(other), "round {rounds}, {bytes} bytes");
            let mut back = vec![0; bytes];
            inbox.slice(..bytes)?.get(&mut back, other)?;
            assert!(back == data(me), "round {rounds}, {bytes} bytes, back");
            world.barrier_all()?;
        }
        rounds += 1;
        if me.number() == 0 && std::env::var_os(STOP).is_some_and(|file| std::path::Path::new(&file).exists())
        {
            stop.p(0, 1, other)?;
            stop.p(0, 1, me)?;
        }
        world.barrier_all()?;
        if stop.to_vec()?[0] != 0 {
            break;
        }
    }
    assert_eq!(target.to_vec()?, vec![0; 64], "a stranger has written to memory");
    println!("FINE after {rounds} rounds");
    Ok(())
}

/// A message of an engine's with one record, as `net/wire/message.rs` has it: a word at an offset of the
/// heap.
fn word(sender: u32, number: u64, offset: u64) -> Vec<u8> {
    let mut message = [&sender.to_le_bytes()[..], &[0; 4], &number.to_le_bytes()].concat();
    message.extend_from_slice(&[1, 0, 8, 0, 16, 0, 0, 0]);
    message.extend_from_slice(&offset.to_le_bytes());
    message.extend_from_slice(&EVIL);
    message
}

/// The head of a put, as `net/transport/ucx/wire.rs` has it.
fn put(sender: u64, number: u64, segment: u32, address: u64) -> Vec<u8> {
    let (kind, segment) = (1u32.to_le_bytes(), segment.to_le_bytes());
    let words = [sender, number, address, 0].map(u64::to_le_bytes).concat();
    [&kind[..], &segment, &words].concat()
}

/// What a stranger that knows the port, the layout of messages and even an address can send. Returns how much
/// it has sent.
fn attack(rng: &mut Rng, port: u16, address: u64) -> u64 {
    const ENGINES: u32 = 1;
    const COPIES: u32 = 2;
    let ucp = ucx_sys::Ucp::load().expect("it loaded before");
    let mut stranger = Stranger::at_port(ucp, port);
    let mut said = 0;
    for sender in 0..3u32 {
        for number in [0, 1, 2, 1000, u64::MAX] {
            for tail in [0, 24] {
                let behind = rng.bytes(tail);
                let message = [word(sender, number, 0), behind.clone()].concat();
                stranger.send(ENGINES, &[], &message, true);
                for segment in 0..3 {
                    let head = [put(sender.into(), number, segment, address), behind.clone()].concat();
                    stranger.send(COPIES, &head, &EVIL, true);
                    said += 1;
                }
                said += 1;
            }
        }
    }
    stranger.put(address, &EVIL);
    let bytes = 1 + rng.below(6000);
    let noise = rng.bytes(bytes);
    stranger.send(ENGINES, &noise[..noise.len().min(64)], &noise, true);
    stranger.send(COPIES, &noise[..noise.len().min(64)], &noise, true);
    let end = Instant::now() + Duration::from_millis(100);
    while Instant::now() < end {
        stranger.progress();
        std::thread::sleep(Duration::from_millis(1));
    }
    said
}

fn strangers(job: &mut Job, stop: &std::path::Path) {
    let mut rng = Rng::new(seed());
    let mut ports = Vec::new();
    for pe in [0, 1].map(Pe::new) {
        let line = job.wait_for_line(pe, "READY", LIMIT);
        let address = line.split_whitespace().last().and_then(|word| u64::from_str_radix(word, 16).ok());
        let open = listening(job.pid(pe));
        // PEs of one host are nobody else's business.
        assert!(!open.is_empty() && open.iter().all(|(at, _)| *at == Ipv4Addr::LOCALHOST), "{pe}: {open:?}");
        ports.extend(open.into_iter().map(|(_, port)| (port, address.expect("an address"))));
    }
    let end = Instant::now() + ATTACK;
    let (mut said, mut kept, mut rounds) = (0, Vec::new(), 0);
    // However slow the machine is.
    while Instant::now() < end || rounds < 4 {
        rounds += 1;
        for (port, address) in &ports {
            said += attack(&mut rng, *port, *address);
            // Bytes that are nothing, and a connection that says nothing.
            let mut noise = TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).expect("it listens");
            let bytes = 1 + rng.below(5000);
            let _ = noise.write_all(&rng.bytes(bytes));
            kept.push(noise);
            kept.extend(TcpStream::connect((Ipv4Addr::LOCALHOST, *port)));
        }
    }
    println!("{said} forged messages");
    std::fs::write(stop, "").expect("the temporary folder takes files");
    for outcome in job.outcomes() {
        assert_eq!(outcome.exit, Exit::Done, "{}: {}\n{}", outcome.pe, outcome.stdout, outcome.stderr);
        assert!(outcome.stdout.contains("FINE after"), "{}", outcome.stdout);
        assert!(outcome.stderr.contains("was dropped (its tag is wrong)"), "one warning: {}", outcome.stderr);
        let counts = outcome.stderr.split(" that were dropped: ").nth(1);
        let forged = counts.and_then(|rest| rest.split_once(" with a wrong tag"));
        let counted = forged.and_then(|(count, _)| count.parse::<u64>().ok());
        assert!(counted.is_some_and(|count| count > 100), "{}: {counted:?} {}", outcome.pe, outcome.stderr);
    }
}

#[test]
fn strangers_at_the_ports_of_a_job_change_nothing() {
    let name = "strangers_at_the_ports_of_a_job_change_nothing";
    if let Err(why) = ucx_sys::Ucp::load() {
        return eprintln!("SKIP {name}: {why}");
    }
    if on_gpus() {
        return eprintln!("SKIP {name}: it is about the network, and runs on the CPU device");
    }
    let folder = tempfile::tempdir().expect("the temporary folder takes folders");
    let stop = folder.path().join("stop");
    testing::pes(2)
        .timeout(LIMIT)
        .env("RUSHMEM_TRANSPORT", "ucx")
        .env("RUSHMEM_LOG", "info")
        .env("UCX_TLS", "tcp")
        .env(STOP, &stop)
        .supervise(
            |_| {
                let world = World::init()?;
                play(&world)?;
                world.finalize()
            },
            |job| strangers(job, &stop),
        );
}
