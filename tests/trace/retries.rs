//! Operations that find the network full: their number by peer stands in the timeline, in what
//! `rushmem-info --trace` prints, in the log's lines at the end, and in `World::counters`, and is the same.

use super::*;
use rushmem::Uid;
use rushmem_test_support::api_common::Rng;

const WORDS: usize = 512;
/// More than the fake network takes at once.
const COPIES: usize = 200;

/// PE 0 fills the network to PE 1, and puts one copy at a time to PE 2. It prints what was counted.
fn floods(uid: &Uid, pe: u32) {
    let world = World::builder().uid(uid, pe, 3).init().unwrap();
    let inbox = world.alloc::<u64>(COPIES * WORDS).unwrap();
    world.barrier_all().unwrap();
    if world.my_pe().number() == 0 {
        let mut rng = Rng::printed();
        let source: Vec<u64> = (0..COPIES * WORDS).map(|_| rng.next()).collect();
        let put = |i: usize, pe| {
            let (to, from) =
                (inbox.slice(i * WORDS..(i + 1) * WORDS).unwrap(), &source[i * WORDS..][..WORDS]);
            // SAFETY: the source lives until the quiet, and nobody writes it.
            unsafe { to.put_nbi(from, Pe::new(pe)) }.unwrap();
        };
        for i in 0..3 {
            put(i, 2);
            world.quiet().unwrap();
        }
        (0..COPIES).for_each(|i| put(i, 1));
        world.quiet().unwrap();
        let mut back = vec![0; COPIES * WORDS];
        inbox.get(&mut back, Pe::new(1)).unwrap();
        assert!(back == source);
        let count = |pe| world.counters(Pe::new(pe)).unwrap().retries;
        assert_eq!(count(2), 0);
        println!("RETRIES {}", count(1));
    }
    world.barrier_all().unwrap();
    inbox.free().unwrap();
    world.finalize().unwrap();
}

/// Runs it on threads of one process, as the fake network is within one, and has what was counted and written
/// judged.
fn flooded(job: Pes, judge: impl FnOnce(u64, &str)) {
    let job = job.timeout(LIMIT).env("RUSHMEM_DEVICE", "cpu").env("RUSHMEM_LOG", "info");
    let far = job.env("RUSHMEM_TRANSPORT", "fake").env("RUSHMEM_PES_PER_NODE", "1");
    far.env("RUSHMEM_FAKE_DELAY", "2000").supervise(
        |_| {
            let uid = &Uid::create().unwrap();
            std::thread::scope(|threads| {
                for pe in 0..3 {
                    threads.spawn(move || floods(uid, pe));
                }
            });
        },
        |job| {
            let outcome = job.outcome(Pe::new(0));
            assert_eq!(outcome.exit, Exit::Done, "{}", outcome.stderr);
            let told = outcome.stdout.lines().find_map(|line| line.strip_prefix("RETRIES "));
            let retries = told.and_then(|count| count.parse().ok()).expect("a number");
            assert!((1..=COPIES as u64).contains(&retries), "{retries}");
            judge(retries, &outcome.stderr);
        },
    );
}

#[test]
fn retries_are_in_the_timeline_and_in_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out.json");
    flooded(testing::pes(1).env("RUSHMEM_TRACE", &file), |retries, log| {
        let events = part(folder.path(), 0);
        let by_host = |peer: u64| {
            let row = |event: &&Value| event["args"]["peer"] == peer && event["args"]["by"] == "host";
            let last = events.iter().filter(|event| event["name"] == "rushmem_counters").rfind(row);
            last.map(|event| event["args"]["retries"].clone()).expect("a row")
        };
        assert_eq!((by_host(1), by_host(2)), (retries.into(), 0.into()));
        let asked = |line: &&str| line.contains("its host asked PE 1 ");
        let line = log.lines().find(asked).unwrap_or_else(|| panic!("{log}"));
        assert!(line.ends_with(&format!(", {retries} retries")), "{line}");
        let (code, out, err) = info(&[&file]);
        assert_eq!(code, Some(0), "{err}");
        let row = |pe: u32| out.lines().find(|line| line.contains(&format!("PE 0's host asked PE {pe}: ")));
        assert!(row(1).is_some_and(|line| line.ends_with(&format!(", {retries} retries"))), "{out}");
        assert!(row(2).is_some_and(|line| !line.contains("retries")), "{out}");
    });
}

#[test]
fn without_a_timeline_the_log_has_a_line() {
    flooded(testing::pes(1), |retries, log| {
        let full = "found the network full: retries";
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(full)).collect();
        let wanted = format!("{retries} operations on PE 1 {full}");
        assert!(lines.len() == 1 && lines[0].contains(&wanted), "{log}");
    });
}
