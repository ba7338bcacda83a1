//! Starting: any order, late ranks, missing ranks, ranks too many, disagreements, IPv6, addresses; and calls
//! that do not match. Ranks are threads.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use rushmem_bootstrap_abi::{BootError, BootErrorKind, Bootstrap};
use rushmem_bootstrap_uid::{join_address, join_uid, Uid, UidBootstrap, UidConfig};

const LIMIT: Duration = Duration::from_secs(90);

fn config(rank: u32, n: u32) -> UidConfig {
    UidConfig { init_timeout: LIMIT, timeout: LIMIT, ..UidConfig::new(rank, n) }
}

/// Runs `body` on a thread for each of `ranks`; results in the order of `ranks`, all within two minutes.
fn ranks<T: Send + 'static>(ranks: &[u32], body: impl Fn(u32) -> T + Send + Clone + 'static) -> Vec<T> {
    let (tx, rx) = mpsc::channel();
    for (at, rank) in ranks.iter().copied().enumerate() {
        let (tx, body) = (tx.clone(), body.clone());
        std::thread::spawn(move || {
            let _ = tx.send((at, body(rank))); // the test may have given up
        });
    }
    drop(tx);
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut results: Vec<(usize, T)> = Vec::new();
    while results.len() < ranks.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        results.push(rx.recv_timeout(left).expect("every rank ends within two minutes, without a panic"));
    }
    results.sort_by_key(|r| r.0);
    results.into_iter().map(|r| r.1).collect()
}

fn works(b: &UidBootstrap) -> Result<(), BootError> {
    let mut out = vec![0; 4 * b.n_ranks() as usize];
    b.allgather(&(b.rank() * 3).to_le_bytes(), &mut out)?;
    for (rank, word) in (0..).zip(out.chunks(4)) {
        assert_eq!(word, u32::to_le_bytes(rank * 3));
    }
    b.finalize()
}

fn uid() -> (Uid, rushmem_bootstrap_uid::RendezvousHandle) {
    Uid::create(Some("lo")).expect("a unique ID")
}

#[test]
fn ranks_come_in_any_order_and_late() {
    let (uid, _rendezvous) = uid();
    let results = ranks(&[3, 0, 2, 1], move |rank| {
        std::thread::sleep(Duration::from_millis(if rank == 2 { 700 } else { 0 }));
        works(&join_uid(&uid, config(rank, 4))?)
    });
    assert!(results.iter().all(|r| r.is_ok()), "{results:?}");
}

#[test]
fn ids_survive_their_encodings() {
    let (uid, _rendezvous) = uid();
    let results = ranks(&[0, 1], move |rank| {
        let copy = match rank {
            0 => Uid::from_hex(&uid.to_hex()),
            _ => Uid::from_bytes(&uid.to_bytes()),
        };
        works(&join_uid(&copy?, config(rank, 2))?)
    });
    assert!(results.iter().all(|r| r.is_ok()), "{results:?}");
}

#[test]
fn the_ranks_that_never_came_are_named() {
    let (uid, _rendezvous) = uid();
    let start = Instant::now();
    let results = ranks(&[0, 1, 2, 4, 5, 6], move |rank| {
        // The shortest limit counts for all.
        let limit = Duration::from_millis(if rank == 4 { 2500 } else { 25_000 });
        join_uid(&uid, UidConfig { init_timeout: limit, ..config(rank, 10) }).map(|_| ())
    });
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    for result in results {
        let e = result.expect_err("four are missing");
        assert_eq!(e.kind, BootErrorKind::Timeout);
        assert!(e.message.starts_with("ranks 3, 7-9 of 10 never came"), "{e}");
    }
}

#[test]
fn one_missing_rank_is_the_error_s_rank_and_a_latecomer_hears_of_it() {
    let (uid, _rendezvous) = uid();
    let late = uid.clone();
    let quick = move |rank| {
        join_uid(&uid, UidConfig { init_timeout: Duration::from_millis(1500), ..config(rank, 3) }).map(|_| ())
    };
    for result in ranks(&[0, 2], quick) {
        let e = result.expect_err("one is missing");
        assert_eq!((e.kind, e.rank), (BootErrorKind::Timeout, Some(1)), "{e}");
    }
    let e = join_uid(&late, config(1, 3)).expect_err("too late");
    assert_eq!((e.kind, e.rank), (BootErrorKind::Timeout, Some(1)), "{e}");
}

#[test]
fn duplicates_and_disagreements_end_the_start_at_once() {
    // (rank, n) of each joiner; the text must name the odd one.
    for (who, parts) in [
        (vec![(0, 3), (1, 3), (1, 3)], ["rank 1 came twice", "its own rank"]),
        (vec![(0, 3), (1, 4)], ["was given", "rank 1"]),
    ] {
        let (uid, _rendezvous) = uid();
        let all: Vec<u32> = (0..who.len() as u32).collect();
        let results = ranks(&all, move |i| {
            let (rank, n) = who[i as usize];
            join_uid(&uid, config(rank, n)).map(|_| ())
        });
        for result in results {
            let e = result.expect_err("they do not fit");
            assert_eq!(e.kind, BootErrorKind::Mismatch, "{e}");
            assert!(parts.iter().all(|p| e.message.contains(p)), "{e}");
        }
    }
    for (rank, n) in [(0, 0), (3, 3), (u32::MAX, 2), (0, u32::MAX)] {
        let (uid, _rendezvous) = uid();
        let e = join_uid(&uid, config(rank, n)).expect_err("no such rank");
        assert_eq!(e.kind, BootErrorKind::InvalidArgument, "{e}");
    }
}

#[test]
fn a_rendezvous_that_goes_away_is_an_error() {
    let (uid, rendezvous) = uid();
    let waiting = uid.clone();
    let thread = std::thread::spawn(move || join_uid(&waiting, config(1, 2)).map(|_| ()));
    while rendezvous.joined() == 0 {
        std::thread::sleep(Duration::from_millis(2));
    }
    drop(rendezvous);
    let e = thread.join().expect("no panic").expect_err("nobody to meet");
    assert_eq!(e.kind, BootErrorKind::PeerDead, "{e}");
    let short = UidConfig { init_timeout: Duration::from_millis(300), ..config(0, 2) };
    let e = join_uid(&uid, short).expect_err("nobody there");
    assert_eq!(e.kind, BootErrorKind::Timeout);
    assert!(e.message.contains("found no rendezvous") && e.message.contains("refused"), "{e}");
}

#[test]
fn a_rank_that_gives_up_while_starting_takes_nobody_s_time() {
    let (uid, rendezvous) = uid();
    let other = uid.clone();
    let quick = std::thread::spawn(move || {
        join_uid(&other, UidConfig { ifname: Some("no-such-interface".into()), ..config(0, 2) }).map(|_| ())
    });
    let e = quick.join().expect("no panic").expect_err("no such interface");
    assert_eq!(e.kind, BootErrorKind::Environment, "{e}");
    // It never joined, so it may come again with the right numbers.
    let results = ranks(&[0, 1], move |rank| works(&join_uid(&uid, config(rank, 2))?));
    assert!(results.iter().all(|r| r.is_ok()), "{results:?}");
    drop(rendezvous);
}

/// A port that was free a moment ago, below the ephemeral range so that no client socket takes it meanwhile.
fn free_port(host: &str) -> u16 {
    let from = 12000 + (std::process::id() as u16 % 500) * 16;
    (from..from + 16)
        .find(|p| std::net::TcpListener::bind((host, *p)).is_ok())
        .expect("one of 16 ports is free")
}

#[test]
fn ranks_meet_at_an_address_before_rank_0_is_there() {
    for host in ["127.0.0.1", "[::1]", "localhost", &format!("[{}]", outer_address())] {
        let host = host.replace("[127", "127").replace(".0.0.1]", ".0.0.1");
        let bare = host.trim_matches(['[', ']']).to_owned();
        if std::net::TcpListener::bind((bare.as_str(), 0)).is_err() {
            eprintln!("SKIP an address of {host}: this host cannot listen there");
            continue;
        }
        let host = if bare.contains(':') { format!("[{bare}]") } else { bare.clone() };
        let address = format!("{host}:{}", free_port(&bare));
        for round in 0..2 {
            // The second round meets at the same place right after the first.
            let address = address.clone();
            let results = ranks(&[0, 1, 2, 3, 4], move |rank| {
                std::thread::sleep(Duration::from_millis(if rank == 0 { 300 } else { 0 }));
                works(&join_address(&address, b"secret", config(rank, 5))?)
            });
            assert!(results.iter().all(|r| r.is_ok()), "{host}, round {round}: {results:?}");
        }
    }
}

/// The address that other hosts would use.
fn outer_address() -> String {
    Uid::create(None)
        .map_or("127.0.0.1".into(), |(uid, _)| uid.addr().net().map_or("::1".into(), |a| a.ip().to_string()))
}

#[test]
fn a_wrong_secret_does_not_get_in() {
    let address = format!("127.0.0.1:{}", free_port("127.0.0.1"));
    let results = ranks(&[0, 1, 2], move |i| {
        let limit = if i == 2 { Duration::from_millis(600) } else { LIMIT };
        let secret: &[u8] = if i == 2 { b"guess" } else { b"secret" };
        if i == 1 {
            std::thread::sleep(Duration::from_millis(800)); // the impostor has its chance first
        }
        let cfg = UidConfig { init_timeout: limit, ..config(i.min(1), 2) };
        works(&join_address(&address, secret, cfg)?)
    });
    assert!(results[0].is_ok() && results[1].is_ok(), "{results:?}");
    let e = results[2].as_ref().expect_err("an impostor");
    assert_eq!(e.kind, BootErrorKind::Timeout);
}

#[test]
fn calls_that_do_not_match_name_the_odd_rank() {
    type Call = fn(&UidBootstrap, bool) -> Result<(), BootError>;
    let cases: [(&str, Call); 4] = [
        ("allgather of 9 bytes", |b, odd| {
            let len = if odd { 9 } else { 8 };
            b.allgather(&vec![1; len], &mut vec![0; len * b.n_ranks() as usize])
        }),
        ("barrier", |b, odd| if odd { b.barrier() } else { b.alltoall(&[0; 5], &mut [0; 5]) }),
        ("alltoall of 0 bytes", |b, odd| {
            let len = if odd { 0 } else { 300_000 };
            b.alltoall(&vec![1; len * 5], &mut vec![0; len * 5])
        }),
        ("finalize", |b, odd| if odd { b.finalize() } else { b.barrier() }),
    ];
    for (what, call) in cases {
        let (uid, _rendezvous) = uid();
        let results = ranks(&[0, 1, 2, 3, 4], move |rank| {
            let b = join_uid(&uid, config(rank, 5))?;
            b.barrier()?;
            let first = call(&b, rank == 3);
            // Whatever came of the call, the job is broken and says so again, naming the same rank.
            let second = b.barrier();
            Ok::<_, BootError>((first, second))
        });
        for (rank, result) in results.into_iter().enumerate() {
            let (first, second) = result.expect("it comes up");
            let first = first.expect_err(what);
            assert_eq!(first.kind, BootErrorKind::Mismatch, "{what}, rank {rank}: {first}");
            if rank != 3 {
                assert_eq!(first.rank, Some(3), "{what}, rank {rank}: {first}");
                assert!(first.message.contains(what), "{what}, rank {rank}: {first}");
            }
            assert!(second.is_err(), "{what}, rank {rank}");
        }
    }
}

#[test]
fn a_broadcast_with_two_roots_is_noticed() {
    let (uid, _rendezvous) = uid();
    let results = ranks(&[0, 1, 2], move |rank| {
        let b = join_uid(&uid, config(rank, 3))?;
        let first = b.broadcast(&mut [0; 4], u32::from(rank == 1));
        first.and_then(|()| b.barrier())
    });
    for result in results {
        assert_eq!(result.expect_err("two roots").kind, BootErrorKind::Mismatch);
    }
}

#[test]
fn a_collective_that_a_rank_never_enters_ends_and_names_it() {
    let (uid, _rendezvous) = uid();
    let (tx, rx) = mpsc::channel::<()>();
    let rx = std::sync::Arc::new(std::sync::Mutex::new(rx));
    let results = ranks(&[0, 1, 2, 3, 4, 5, 6, 7], {
        let tx = tx.clone();
        move |rank| {
            let b = join_uid(&uid, UidConfig { timeout: Duration::from_secs(2), ..config(rank, 8) })?;
            b.barrier()?;
            if rank == 6 {
                // Alive, elsewhere; when it comes at last it must not wait for those who gave up.
                for _ in 0..7 {
                    let _ = rx.lock().expect("one user").recv_timeout(LIMIT);
                }
                // Those who gave up had entered, so this may even go through; the next may not.
                return b.barrier().and_then(|()| b.barrier());
            }
            let start = Instant::now();
            let result = b.barrier();
            assert!(start.elapsed() < Duration::from_secs(10));
            let _ = tx.send(());
            result
        }
    });
    for (rank, result) in results.into_iter().enumerate() {
        let e = result.expect_err("rank 6 never came");
        assert_eq!((e.kind, e.rank), (BootErrorKind::Timeout, Some(6)), "rank {rank}: {e}");
        assert!(e.message.starts_with("rank 6 of 8 never came to barrier"), "{e}");
    }
}

#[test]
fn idle_links_are_no_deaths() {
    let (uid, _rendezvous) = uid();
    let results = ranks(&[0, 1, 2], move |rank| {
        // Far more idle than any limit in here.
        let silence = Some(Duration::from_secs(1));
        let b = join_uid(&uid, UidConfig { host_silence: silence, ..config(rank, 3) })?;
        std::thread::sleep(Duration::from_secs(4));
        assert_eq!(b.death(), None);
        works(&b)
    });
    assert!(results.iter().all(|r| r.is_ok()), "{results:?}");
}

#[test]
fn leaving_twice_or_calling_after_it_is_refused() {
    let (uid, _rendezvous) = uid();
    let results = ranks(&[0, 1], move |rank| {
        let b = join_uid(&uid, config(rank, 2))?;
        b.finalize()?;
        assert_eq!(b.finalize().expect_err("twice").kind, BootErrorKind::InvalidArgument);
        assert_eq!(b.barrier().expect_err("gone").kind, BootErrorKind::InvalidArgument);
        b.abort("for nothing");
        Ok::<_, BootError>(b.death())
    });
    assert!(results.iter().all(|r| matches!(r, Ok(None))), "{results:?}");
}
