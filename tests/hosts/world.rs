//! Worlds across hosts: each PE reaches those of its own host by mapped memory and the others over the
//! network, with the same calls. Under torchrun's variables and under Open MPI's mpirun.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rushmem::{Cmp, Pe, Result, World};

use crate::listening::listening;
use crate::mpirun::Mpirun;
use crate::namespaces::on_hosts;
use crate::programs;
use crate::ranks::{text, Job, LIMIT, PLACEMENT};

/// PEs on each host.
const PER_HOST: u32 = 2;
/// Whose data a PE makes: the same on all.
pub(crate) const SEED: &str = "HOSTS_TEST_SEED";
/// When they put for the first time, in microseconds since 1970.
const FIRST_PUT: &str = "HOSTS_TEST_FIRST_PUT";

// ---- the PEs ----

pub(crate) fn play(part: &str) {
    match World::init().and_then(|world| on(world, part)) {
        Ok(()) => println!("@end fine"),
        // When, too: a launcher may take its time to hand this on.
        Err(e) => println!("@end {:?} {e} @at {}", e.code(), now().as_millis()),
    }
}

fn on(world: World, part: &str) -> Result<()> {
    ways(&world)?;
    if part.starts_with("first put") {
        println!("@ready");
        return first_put(&world, part);
    }
    world.barrier_all()?;
    println!("@ready");
    match part {
        "mixed" => {
            let seed: u64 = std::env::var(SEED).ok().and_then(|s| s.parse().ok()).expect("a seed");
            for n in [1, 7, 1000, 70_001] {
                transfers(&world, seed ^ n as u64, n)?;
            }
            counters(&world)?;
            signals(&world)?;
            barriers(&world)?;
        }
        // Most are in a barrier, and PE 0 waits for a word that nobody will send.
        "wait" => {
            let word = world.alloc::<u64>(1)?;
            match world.my_pe().number() {
                0 => word.wait_until(0, Cmp::Eq, 1)?,
                _ => world.barrier_all()?,
            }
        }
        "put" => {
            let inbox = world.alloc::<u8>(300_001)?;
            let far = Pe::new((world.my_pe().number() + PER_HOST) % world.n_pes());
            loop {
                inbox.put(&vec![1; 300_001], far)?;
                world.quiet()?;
            }
        }
        // More than sockets hold, and answers besides: a PE that stands still stops the others.
        "patient" => {
            let inbox = world.alloc::<u8>(1 << 20)?;
            let counter = world.alloc::<u64>(1)?;
            for _ in 0..40 {
                for pe in world.pes() {
                    inbox.put(&vec![1; 1 << 20], pe)?;
                    counter.at(0, pe).fetch_inc()?;
                }
            }
            world.barrier_all()?;
        }
        other => panic!("no part {other}"),
    }
    world.finalize()
}

/// Puts to a PE of the other host, at a given time and not before, and goes on so; or waits for a word that
/// nobody sends.
fn first_put(world: &World, part: &str) -> Result<()> {
    let (inbox, word) = (world.alloc::<u8>(300_001)?, world.alloc::<u64>(1)?);
    let (me, n) = (world.my_pe().number(), world.n_pes());
    if part == "first put to host 1" && me < PER_HOST {
        return word.wait_until(0, Cmp::Eq, 1);
    }
    let at: u64 = std::env::var(FIRST_PUT).ok().and_then(|s| s.parse().ok()).expect("a time");
    let at = Duration::from_micros(at);
    while now() < at {
        std::thread::sleep(at.saturating_sub(now()).min(Duration::from_millis(1)));
    }
    // What shares a message, what fills one, what goes in pieces.
    for bytes in [3, 4000, 300_001].into_iter().cycle() {
        inbox.slice(..bytes)?.put(&vec![1; bytes], Pe::new((me + PER_HOST) % n))?;
        if bytes == 300_001 {
            world.quiet()?;
        }
    }
    Ok(())
}

/// Each peer is reached as its place demands, and its place is known.
fn ways(world: &World) -> Result<()> {
    let me = world.my_pe().number();
    // UCX listens where the hosts have met, and nowhere else. (Open MPI has ports of its own.)
    if std::env::var_os("OMPI_COMM_WORLD_SIZE").is_none() {
        let open = listening(std::process::id());
        let met = |address: Ipv4Addr| !address.is_loopback() && !address.is_unspecified();
        assert!(!open.is_empty() && open.iter().all(|(address, _)| met(*address)), "PE {me}: {open:?}");
    }
    for pe in world.pes() {
        let peer = world.peer(pe)?;
        let near = host_of(pe.number()) == host_of(me);
        assert_eq!(peer.transport, if near { "direct" } else { "ucx" }, "PE {me} to {pe}: {}", peer.reason);
        assert_eq!(peer.host, format!("h{}", host_of(pe.number()) + 1), "{pe}");
    }
    let mates: Vec<Pe> = world.pes().filter(|pe| host_of(pe.number()) == host_of(me)).collect();
    assert_eq!(world.near_pes()?.pes, mates, "PE {me}");
    Ok(())
}

/// On which host a PE is, counted from 0.
fn host_of(pe: u32) -> u32 {
    match std::env::var(PLACEMENT) {
        Ok(list) => {
            list.split(',').nth(pe as usize).and_then(|host| host.parse().ok()).expect("a host for each PE")
        }
        Err(_) => pe / PER_HOST,
    }
}

/// SplitMix64.
fn data(seed: u64, from: Pe, to: Pe, n: usize) -> Vec<u64> {
    let start = seed ^ (u64::from(from.number()) << 40) ^ (u64::from(to.number()) << 20);
    let word = |i: usize| {
        let mut z = start.wrapping_add((i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    (0..n).map(word).collect()
}

/// Everybody puts to everybody, and then gets from everybody what it has from a third.
fn transfers(world: &World, seed: u64, n: usize) -> Result<()> {
    let (me, pes) = (world.my_pe(), world.n_pes() as usize);
    let inbox = world.alloc::<u64>(n * pes)?;
    for pe in world.pes() {
        inbox.slice(me.index() * n..(me.index() + 1) * n)?.put(&data(seed, me, pe, n), pe)?;
    }
    world.barrier_all()?;
    let all = inbox.to_vec()?;
    for from in world.pes() {
        assert_eq!(all[from.index() * n..][..n], data(seed, from, me, n), "{from} to {me}, {n} words");
    }
    for pe in world.pes() {
        let third = Pe::new((pe.number() + 1) % world.n_pes());
        let mut got = vec![0; n];
        inbox.slice(third.index() * n..(third.index() + 1) * n)?.get(&mut got, pe)?;
        assert_eq!(got, data(seed, third, pe, n), "{me} gets from {pe} what {third} put there");
    }
    world.barrier_all()?;
    inbox.free()
}

/// Near and far PEs add to the same words, and each old value is seen once.
fn counters(world: &World) -> Result<()> {
    const ROUNDS: u64 = 50;
    let n = u64::from(world.n_pes());
    let words = world.alloc::<u64>(2)?;
    let seen = world.alloc::<u32>((ROUNDS * n) as usize)?;
    for _ in 0..ROUNDS {
        for pe in world.pes() {
            words.at(0, pe).add(1)?;
        }
        let old = words.at(1, Pe::new(0)).fetch_add(1)?;
        seen.at(old as usize, Pe::new(0)).inc()?;
    }
    world.barrier_all()?;
    assert_eq!(words.to_vec()?[0], ROUNDS * n);
    if world.my_pe().number() == 0 {
        assert_eq!(seen.to_vec()?, vec![1; (ROUNDS * n) as usize]);
    }
    world.barrier_all()?;
    // One of them wins.
    let claim = words.at(0, Pe::new(world.n_pes() - 1));
    let won = claim.compare_swap(ROUNDS * n, u64::from(world.my_pe().number()))? == ROUNDS * n;
    let wins = world.alloc::<u32>(1)?;
    wins.at(0, Pe::new(0)).add(u32::from(won))?;
    world.barrier_all()?;
    assert_eq!(wins.g(0, Pe::new(0))?, 1);
    world.barrier_all()
}

/// A ring over all PEs, and so over hosts: no signal is seen before its data.
fn signals(world: &World) -> Result<()> {
    let (me, right) = (world.my_pe(), world.right());
    let inbox = world.alloc::<u64>(5000)?;
    let signal = world.signal()?;
    let taken = world.signal()?;
    for round in 1..=40u64 {
        let n = (round as usize * 613) % 5000 + 1;
        inbox.slice(..n)?.put_signal(
            &data(round, me, right, n),
            &signal,
            rushmem::SignalOp::Set,
            round,
            right,
        )?;
        signal.wait_until(Cmp::Ge, round)?;
        assert_eq!(inbox.to_vec()?[..n], data(round, world.left(), me, n), "round {round}");
        taken.add(1, world.left())?;
        taken.wait_until(Cmp::Ge, round)?;
    }
    world.barrier_all()
}

/// Nobody leaves a barrier before all have come and what they had put has arrived.
fn barriers(world: &World) -> Result<()> {
    let came = world.alloc::<u64>(world.n_pes() as usize)?;
    for round in 1..=30 {
        for pe in world.pes() {
            came.p(world.my_pe().index(), round, pe)?;
        }
        world.barrier_all()?;
        let all = came.to_vec()?;
        assert!(all.iter().all(|at| *at >= round), "round {round}: {all:?}");
    }
    world.barrier_all()
}

// ---- the tests ----

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970")
}

pub(crate) fn seed() -> String {
    let seed = now().as_nanos() as u64;
    println!("{SEED}={seed}");
    seed.to_string()
}

#[test]
fn near_and_far_pes_in_one_job() {
    for hosts in [2, 3] {
        on_hosts(hosts, |net| {
            Job::start(net, (hosts as u32, PER_HOST), "world mixed", &[(SEED, &seed())]).ends_well();
        });
    }
}

/// In turn, irregularly, on hosts of different sizes: PEs of a host find one another wherever their numbers
/// are.
#[test]
fn near_and_far_pes_of_any_numbering() {
    for placement in [&[0, 1, 0, 1][..], &[0, 1, 1, 0, 2], &[0, 0, 1, 0]] {
        on_hosts(1 + placement.iter().max().expect("a rank"), |net| {
            Job::start_placed(net, placement, "world mixed", &[(SEED, &seed())]).ends_well();
        });
    }
}

#[test]
fn a_host_of_a_world_dealt_out_in_turn_is_cut_off() {
    on_hosts(2, |net| {
        let mut job = Job::start_placed(net, &[0, 1, 0, 1], "world wait", &[]);
        job.wait_for("@ready");
        let cut = Instant::now();
        net.cut(1);
        job.both_sides_say(1, cut, Duration::from_secs(10));
    });
}

#[test]
fn near_and_far_pes_under_mpirun() {
    on_hosts(2, |net| {
        let Some(mut mpirun) = Mpirun::find(net, 2, PER_HOST, "near_and_far_pes_under_mpirun") else {
            return;
        };
        let ended = mpirun.start("world mixed", &[(SEED, &seed())]).wait(LIMIT).ok();
        assert_eq!(ended.stdout.matches("@end fine").count(), 4, "{ended}");
        let placement = text(&[0, 1, 0, 1]);
        let dealt = mpirun.map_by("node").start("world mixed", &[(SEED, &seed()), (PLACEMENT, &placement)]);
        let ended = dealt.wait(LIMIT).ok();
        assert_eq!(ended.stdout.matches("@end fine").count(), 4, "{ended}");
    });
}

/// With kernels, on the CPU device.
#[test]
fn a_token_goes_round_over_hosts() {
    on_hosts(2, |net| {
        let job = Job::start_program(net, (2, PER_HOST), &programs::example("ring"), &["--laps", "20"]);
        let ended = job.end();
        assert!(ended.iter().any(|e| e.stdout.contains("ring: 4 PEs x 20 laps = 80 hops")), "{}", ended[0]);
    });
}

/// With no other setting than the defaults.
#[test]
fn a_host_of_a_world_is_cut_off() {
    for part in ["wait", "put"] {
        on_hosts(2, |net| {
            let mut job = Job::start(net, (2, PER_HOST), &format!("world {part}"), &[]);
            job.wait_for("@ready");
            std::thread::sleep(Duration::from_millis(300));
            let cut = Instant::now();
            net.cut(1);
            println!("{part}");
            job.both_sides_say(1, cut, Duration::from_secs(10));
        });
    }
}

#[test]
fn a_host_of_a_world_is_killed() {
    for part in ["wait", "put"] {
        on_hosts(2, |net| {
            let mut job = Job::start(net, (2, PER_HOST), &format!("world {part}"), &[]);
            job.wait_for("@ready");
            let killed = Instant::now();
            job.signal(2, libc::SIGKILL);
            job.signal(3, libc::SIGKILL);
            println!("{part}");
            job.survivors_name(1, killed, Duration::from_secs(5));
        });
    }
}

/// Dies while connections to it are being made: the others still end with the name of one of its PEs, which
/// stand still for a moment first, so that the others come as far as they can alone.
#[test]
fn a_host_of_a_world_is_killed_at_the_first_put() {
    on_hosts(2, |net| {
        for round in 0..8 {
            let first = now() + Duration::from_millis(1200);
            let at = first.as_micros().to_string();
            // All put, or only those that die.
            let part = if round % 4 == 0 { "world first put" } else { "world first put to host 1" };
            let mut job = Job::start(net, (2, PER_HOST), part, &[(FIRST_PUT, &at)]);
            job.wait_for("@ready");
            // Connections take a millisecond or a few.
            let late = Duration::from_micros(u64::from(now().subsec_nanos()) % 3_000);
            std::thread::sleep((first + late).saturating_sub(now()));
            [2, 3].into_iter().for_each(|rank| job.signal(rank, libc::SIGSTOP));
            std::thread::sleep(Duration::from_millis(20));
            let killed = Instant::now();
            [2, 3].into_iter().for_each(|rank| job.signal(rank, libc::SIGKILL));
            println!("round {round}: stopped {late:?} after the time of the first put");
            job.survivors_name(1, killed, Duration::from_secs(5));
        }
    });
}

/// Four times the limit on silence.
#[test]
fn a_stopped_pe_of_a_world_is_not_dead() {
    on_hosts(2, |net| {
        let mut job = Job::start(net, (2, PER_HOST), "world patient", &[("RUSHMEM_PEER_TIMEOUT", "2")]);
        job.wait_for("@ready");
        job.signal(2, libc::SIGSTOP);
        std::thread::sleep(Duration::from_secs(8));
        job.signal(2, libc::SIGCONT);
        job.ends_well();
    });
}

/// mpirun itself takes minutes to notice.
#[test]
fn a_host_under_mpirun_is_cut_off() {
    on_hosts(2, |net| {
        let Some(mut mpirun) = Mpirun::find(net, 2, PER_HOST, "a_host_under_mpirun_is_cut_off") else {
            return;
        };
        let mut job = mpirun.start("world wait", &[("RUSHMEM_PEER_TIMEOUT", "4")]);
        job.wait_for_all("@ready", 4, LIMIT);
        let cut = now();
        net.cut(1);
        // What the other two say is on the other side of the cut.
        job.wait_for_all("@at", 2, LIMIT);
        let said = job.stdout();
        assert_eq!(said.matches("host h2 with ranks 2-3").count(), 2, "{said}");
        for at in said.split("@at ").skip(1).filter_map(|rest| rest.lines().next()?.trim().parse().ok()) {
            let took = Duration::from_millis(at).saturating_sub(cut);
            assert!(took < Duration::from_secs(4), "it took {took:?}: {said}");
        }
    });
}
