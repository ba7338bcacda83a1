//! What is particular to PEs whose memory is not mapped: sizes around those at which the network's way
//! changes, memory in several segments, many threads, PEs that do not listen, PEs that die. (The other tests
//! of the API run over a network too: `scripts/test`.)
//!
//! `RUSHMEM_PES_PER_NODE` makes a host of every few PEs, so that all of it runs on one machine.

use std::time::{Duration, Instant};

use rushmem::testing::{Exit, Job};
use rushmem::{Cmp, ErrorCode, Pe, SignalOp, SymSlice, World};
use rushmem_test_support::api_common::place::{hosts, on_gpus, pes, skip};
use rushmem_test_support::api_common::{seed, seeded, Rng};

const LIMIT: Duration = Duration::from_secs(30);

/// What one PE does to another: made again from the same numbers for the check.
struct Operation {
    to: Pe,
    kind: usize,
    at: usize,
    data: Vec<u8>,
}

/// Where each PE writes in every other one's memory.
const ROW: usize = (1 << 20) + 40_000;
/// What takes more than one piece over TCP (60 KiB), and more than may be on its way at once.
const LARGE_OPERATIONS: [usize; 2] = [60 << 10, 1 << 20];

impl Operation {
    fn of(rng: &Rng, from: Pe, number: u64, n: u32) -> Operation {
        let mut rng = rng.fork(u64::from(from.number()) << 32 | number);
        // Around what decides how it travels: words, messages of 512 bytes and of 4 KiB, and more than that.
        let around = match rng.below(40) {
            i @ 0..2 => LARGE_OPERATIONS[i],
            _ => [1, 8, 64, 512, 4016, 4096, 8192, 20_000][rng.below(8)],
        };
        let bytes = (around + rng.below(17)).saturating_sub(8).max(1);
        Operation {
            to: Pe::new(rng.below(n as usize) as u32),
            kind: rng.below(4),
            at: rng.below(ROW - bytes),
            data: rng.bytes(bytes),
        }
    }

    /// A signal comes with it.
    fn signals(&self) -> bool {
        self.kind == 1
    }

    fn apply(&self, row: &mut [u8]) {
        match self.kind {
            // Every other byte.
            2 => {
                for (i, byte) in self.strided().iter().enumerate() {
                    row[self.at + 2 * i] = *byte;
                }
            }
            _ => row[self.at..self.at + self.data.len()].copy_from_slice(&self.data),
        }
    }

    fn strided(&self) -> &[u8] {
        &self.data[..self.data.len().div_ceil(2)]
    }
}

/// Every PE does `operations` random things to all PEs, in order; then each checks that its memory is what
/// must come of them.
fn everything(world: &World, rng: &Rng, operations: u64) {
    let (me, n) = (world.my_pe(), world.n_pes());
    let memory = world.alloc::<u8>(ROW * n as usize).unwrap();
    let counts = world.alloc::<u64>(n as usize).unwrap();
    let signals = world.signals(n as usize).unwrap();
    let (mut tickets, mine) = (Vec::new(), me.number() as usize);
    for number in 0..operations {
        let operation = Operation::of(rng, me, number, n);
        let row = memory.slice(mine * ROW + operation.at..(mine + 1) * ROW).unwrap();
        let target = row.slice(..operation.data.len()).unwrap();
        let signal = signals.at(mine).unwrap();
        match operation.kind {
            0 => target.put(&operation.data, operation.to).unwrap(),
            1 => target.put_signal(&operation.data, &signal, SignalOp::Add, 1, operation.to).unwrap(),
            2 => target.iput(operation.strided(), 2, 1, operation.strided().len(), operation.to).unwrap(),
            _ => world.nbi(|scope| scope.put(&target, &operation.data, operation.to)).unwrap(),
        }
        tickets.push((operation.to, counts.at(mine, operation.to).fetch_add(1).unwrap()));
        // What is behind a fence is seen behind it, so that later operations may overwrite earlier ones.
        world.fence().unwrap();
        if number % 7 == 0 || operation.data.len() > 50_000 {
            world.quiet().unwrap();
            let wanted = if operation.kind == 2 { operation.strided() } else { &operation.data };
            let mut back = vec![0; wanted.len()];
            match operation.kind {
                2 => target.iget(&mut back, 1, 2, wanted.len(), operation.to).unwrap(),
                _ => target.get(&mut back, operation.to).unwrap(),
            }
            assert!(
                back == wanted,
                "operation {number} of {me} to {}: {} bytes",
                operation.to,
                operation.data.len()
            );
        }
    }
    world.barrier_all().unwrap();
    let seen = memory.to_vec().unwrap();
    for from in world.pes() {
        let (mut row, mut signalled, mut count) = (vec![0; ROW], 0, 0);
        for number in 0..operations {
            let operation = Operation::of(rng, from, number, n);
            if operation.to == me {
                operation.apply(&mut row);
                signalled += u64::from(operation.signals());
                count += 1;
            }
        }
        let from_number = from.number() as usize;
        let got = &seen[from_number * ROW..][..ROW];
        let wrong = row.iter().zip(got).position(|(want, got)| want != got);
        assert_eq!(wrong, None, "what {from} did to {me}");
        assert_eq!(signals.at(from_number).unwrap().fetch().unwrap(), signalled, "signals of {from} to {me}");
        assert_eq!(counts.g(from_number, me).unwrap(), count, "counts of {from} on {me}");
    }
    // Each PE's counter of mine has been seen at 0, 1, 2, ...
    for pe in world.pes() {
        let seen = tickets.iter().filter(|(to, _)| *to == pe).map(|(_, ticket)| *ticket);
        assert!(seen.eq(0..tickets.iter().filter(|(to, _)| *to == pe).count() as u64), "tickets of {pe}");
    }
    world.barrier_all().unwrap();
    signals.free().unwrap();
    counts.free().unwrap();
    memory.free().unwrap();
}

#[test]
fn random_operations_between_two_hosts_of_two() {
    let Some(hosts) = hosts("random_operations_between_two_hosts_of_two", 4, 2) else { return };
    seeded(hosts).run(|world| everything(world, &Rng::new(seed()), 200));
}

#[test]
fn random_operations_over_the_fake_network() {
    if on_gpus() {
        return skip("random_operations_over_the_fake_network", "its PEs' heaps are in host memory");
    }
    // No PE is near; some are near; all are on one host, and none is mapped.
    for each in ["1", "2", ""] {
        let fake = pes(4).env("RUSHMEM_TRANSPORT", "fake").env("RUSHMEM_PES_PER_NODE", each);
        seeded(fake).threads(|world| everything(world, &Rng::new(seed()), 60));
    }
}

#[test]
fn copies_run_over_the_seams_of_a_heap_that_has_grown() {
    let Some(hosts) = hosts("copies_run_over_the_seams_of_a_heap_that_has_grown", 2, 1) else { return };
    seeded(hosts).run(|world| {
        let rng = Rng::new(seed());
        const MIB: usize = 1 << 20;
        // Grown piece by piece, and all of them freed: what comes next lies across the seams.
        let pieces: Vec<SymSlice<'_, u8>> = (0..4).map(|i| world.alloc::<u8>(MIB << i).unwrap()).collect();
        world.barrier_all().unwrap();
        pieces.into_iter().for_each(|piece| piece.free().unwrap());
        let memory = world.alloc::<u8>(12 * MIB).unwrap();
        let data = |pe: Pe, part: usize, bytes: usize| {
            rng.fork((part as u64) << 8 | u64::from(pe.number())).bytes(bytes)
        };
        let mut part = 0;
        const MOST: usize = 300_000;
        // The window begins at a multiple of a MiB, and grows by whole ones.
        let seams = (1..=12).map(|seam| (seam, seam * MIB - memory.as_ptr() as usize % MIB));
        for (seam, first) in seams.filter(|(_, first)| (MOST..12 * MIB - MOST).contains(first)) {
            for bytes in [2, 8, 100, 511, 512, 513, 4015, 4017, 4096, 4097, MOST] {
                let before = 1 + rng.fork(part as u64).below(bytes - 1);
                let range = memory.slice(first - before..first - before + bytes).unwrap();
                range.put(&data(world.my_pe(), part, bytes), world.right()).unwrap();
                world.barrier_all().unwrap();
                assert!(
                    range.to_vec().unwrap() == data(world.left(), part, bytes),
                    "{bytes} bytes at seam {seam}"
                );
                let mut back = vec![0; bytes];
                range.get(&mut back, world.right()).unwrap();
                assert!(back == data(world.my_pe(), part, bytes), "{bytes} bytes back from seam {seam}");
                world.barrier_all().unwrap();
                part += 1;
            }
        }
        let whole = data(world.my_pe(), part, memory.len());
        memory.put(&whole, world.right()).unwrap();
        world.barrier_all().unwrap();
        assert!(memory.to_vec().unwrap() == data(world.left(), part, memory.len()), "all of it");
        world.barrier_all().unwrap();
    });
}

#[test]
fn strided_elements_may_be_larger_than_a_message() {
    let Some(hosts) = hosts("strided_elements_may_be_larger_than_a_message", 2, 1) else { return };
    seeded(hosts).run(|world| {
        // 502 words are one record, 600 take two messages.
        fn strided<const WORDS: usize>(world: &World, rng: &Rng) {
            const N: usize = 5;
            let table = world.alloc::<[u64; WORDS]>(3 * N).unwrap();
            let element = |pe: Pe, i: usize| -> [u64; WORDS] {
                rng.fork((i as u64) << 8 | u64::from(pe.number())).words(WORDS).try_into().unwrap()
            };
            let mine: Vec<_> = (0..2 * N).map(|i| element(world.my_pe(), i)).collect();
            table.iput(&mine, 3, 2, N, world.right()).unwrap();
            world.barrier_all().unwrap();
            for (i, seen) in table.to_vec().unwrap().into_iter().enumerate() {
                let want = if i % 3 == 0 { element(world.left(), i / 3 * 2) } else { [0; WORDS] };
                assert!(seen == want, "element {i} of {WORDS} words");
            }
            let mut back = vec![[0; WORDS]; 2 * N];
            table.iget(&mut back, 2, 3, N, world.right()).unwrap();
            for (i, seen) in back.into_iter().enumerate() {
                let want = if i % 2 == 0 { element(world.my_pe(), i) } else { [0; WORDS] };
                assert!(seen == want, "element {i} of {WORDS} words, back");
            }
            world.barrier_all().unwrap();
            table.free().unwrap();
        }
        let rng = Rng::new(seed());
        strided::<501>(world, &rng);
        strided::<502>(world, &rng);
        strided::<503>(world, &rng);
        strided::<600>(world, &rng);
        strided::<2000>(world, &rng);
    });
}

#[test]
fn threads_of_one_pe_use_the_network_at_once() {
    let Some(hosts) = hosts("threads_of_one_pe_use_the_network_at_once", 2, 1) else { return };
    seeded(hosts).run(|world| {
        const THREADS: usize = 6;
        const ROUNDS: usize = 60;
        const MOST: usize = 9000;
        let rng = &Rng::new(seed());
        let (memory, counter) = (world.alloc::<u8>(THREADS * MOST).unwrap(), world.alloc::<u64>(1).unwrap());
        let other = world.right();
        let thread = |thread: usize| {
            let mut tickets = Vec::new();
            for round in 0..ROUNDS {
                let mut rng = rng.fork((thread * ROUNDS + round) as u64 * 2 + u64::from(other.number()));
                let bytes = 1 + rng.below(MOST);
                let (data, mine) = (rng.bytes(bytes), thread * MOST..thread * MOST + bytes);
                let target = memory.slice(mine).unwrap();
                target.put(&data, other).unwrap();
                world.quiet().unwrap();
                let mut back = vec![0; bytes];
                target.get(&mut back, other).unwrap();
                assert!(back == data, "thread {thread}, round {round}, {bytes} bytes");
                tickets.push(counter.at(0, other).fetch_add(1).unwrap());
            }
            tickets
        };
        let mut tickets: Vec<u64> = std::thread::scope(|scope| {
            let running: Vec<_> = (0..THREADS).map(|i| scope.spawn(move || thread(i))).collect();
            running.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        tickets.sort_unstable();
        assert!(tickets.into_iter().eq(0..(THREADS * ROUNDS) as u64));
        world.barrier_all().unwrap();
    });
}

#[test]
fn what_is_asked_of_a_pe_that_sleeps_completes() {
    let Some(hosts) = hosts("what_is_asked_of_a_pe_that_sleeps_completes", 2, 1) else { return };
    if on_gpus() {
        return skip("what_is_asked_of_a_pe_that_sleeps_completes", "it looks into the heap by itself");
    }
    hosts.run(|world| {
        let data = world.alloc::<u64>(50_000).unwrap();
        let done = world.alloc::<u64>(1).unwrap();
        data.fill(3).unwrap();
        world.barrier_all().unwrap();
        if world.my_pe().number() == 1 {
            // Not one call into rushmem meanwhile.
            let start = Instant::now();
            // SAFETY: a live word, which the peer stores whole.
            let seen = || unsafe { done.as_ptr().read_volatile() };
            while seen() == 0 && start.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_secs(1));
            }
            assert_eq!(seen(), 7, "within {:?}", start.elapsed());
        } else {
            let asleep = Pe::new(1);
            std::thread::sleep(Duration::from_millis(300));
            let mut got = vec![0; 50_000];
            data.get(&mut got, asleep).unwrap();
            assert!(got.iter().all(|word| *word == 3));
            data.iget(&mut got[..100], 1, 400, 100, asleep).unwrap();
            assert_eq!(data.g(9, asleep).unwrap(), 3);
            assert_eq!(data.at(9, asleep).fetch_add(4).unwrap(), 3);
            assert_eq!(data.at(9, asleep).compare_swap(7, 8).unwrap(), 7);
            data.put(&got, asleep).unwrap();
            world.quiet().unwrap();
            done.p(0, 7, asleep).unwrap();
            world.quiet().unwrap();
        }
        world.barrier_all().unwrap();
    });
}

#[test]
fn a_pe_killed_on_another_host_ends_what_others_do_with_it() {
    let Some(hosts) = hosts("a_pe_killed_on_another_host_ends_what_others_do_with_it", 5, 1) else { return };
    hosts.supervise(
        |pe| {
            let world = World::init().unwrap();
            let (memory, victim) = (world.alloc::<u64>(1 << 18).unwrap(), Pe::new(1));
            let (signal, mut data) = (world.signal().unwrap(), vec![1; 1 << 18]);
            world.barrier_all().unwrap();
            println!("READY");
            let error = loop {
                let step = match pe.number() {
                    0 => signal.wait_until(Cmp::Eq, 1).map(drop),
                    2 => memory.put(&data, victim),
                    3 => memory
                        .get(&mut data, victim)
                        .and_then(|()| memory.at(0, victim).fetch_add(1).map(drop)),
                    _ => world.barrier_all(),
                };
                if let Err(error) = step {
                    break error;
                }
            };
            assert_eq!(error.code(), ErrorCode::PeerDead, "{error}");
            println!("ENDED {error}");
        },
        |job| {
            let victim = Pe::new(1);
            (0..5).for_each(|pe| drop(job.wait_for_line(Pe::new(pe), "READY", LIMIT)));
            std::thread::sleep(Duration::from_millis(200));
            kill(job, victim, &[0, 2, 3, 4]);
        },
    );
}

/// Kills it. Each of the others ends soon, by itself, with an error that names it.
#[track_caller]
fn kill(job: &mut Job, victim: Pe, others: &[u32]) {
    let killed = job.kill(victim);
    let mut times = Vec::new();
    for pe in others.iter().copied().map(Pe::new) {
        let outcome = job.outcome(pe);
        assert_eq!(outcome.exit, Exit::Done, "{outcome:?}");
        let end = outcome.stdout.lines().find(|line| line.starts_with("ENDED")).unwrap_or_default();
        assert!(end.contains(&victim.to_string()), "{pe}: {end}");
        times.push((pe, outcome.ended - killed));
    }
    // With the times of all: one that is late is another fault than a machine that stood still.
    assert!(times.iter().all(|(_, took)| *took < Duration::from_secs(10)), "{times:?}");
}

/// What is on its way to and from the victim when it dies: more than any network takes at once.
const LARGE: usize = 8 << 20;

/// Large puts and gets in both directions: PE 1 dies in the middle of what the others do with it and of what
/// it does with them. Each survivor ends with an error that names it; none is taken along by its network.
#[test]
fn a_pe_killed_in_the_middle_of_large_copies_takes_nobody_with_it() {
    let name = "a_pe_killed_in_the_middle_of_large_copies_takes_nobody_with_it";
    let rng = Rng::printed();
    let start = Instant::now();
    let (mut rounds, mut networks) = (0u64, ["tcp", ""].iter().cycle());
    while rounds < 2 || start.elapsed() < Duration::from_secs(20) {
        let Some(hosts) = hosts(name, 4, 1) else { return };
        let network = networks.next().expect("a cycle");
        let hosts = if network.is_empty() { hosts } else { hosts.env("UCX_TLS", *network) };
        println!("round {rounds}, UCX_TLS={network}");
        hosts.supervise(
            |pe| die_in_the_middle(pe.number()),
            |job| {
                let victim = Pe::new(1);
                (0..4).for_each(|pe| drop(job.wait_for_line(Pe::new(pe), "READY", LIMIT)));
                std::thread::sleep(Duration::from_micros(rng.fork(rounds).below(60_000) as u64));
                kill(job, victim, &[0, 2, 3]);
            },
        );
        rounds += 1;
    }
    println!("{rounds} deaths");
}

fn die_in_the_middle(me: u32) {
    let world = World::init().unwrap();
    let memory = world.alloc::<u8>(2 * LARGE).unwrap();
    let signal = world.signal().unwrap();
    let (inbox, outbox) = (memory.slice(..LARGE).unwrap(), memory.slice(LARGE..).unwrap());
    let (data, mut got, mut more) = (vec![1; LARGE], vec![0; LARGE], vec![0; LARGE]);
    world.barrier_all().unwrap();
    println!("READY");
    let (victim, others) = (Pe::new(1), [0, 2, 3].map(Pe::new));
    let error = loop {
        let step = match me {
            // The victim puts to two of them, and gets from two.
            1 => world
                .nbi(|scope| {
                    others[..2].iter().try_for_each(|pe| scope.put(&inbox, &data, *pe))?;
                    scope.get(&outbox, &mut got, others[1])?;
                    scope.get(&outbox, &mut more, others[2])
                })
                .and_then(|()| world.quiet()),
            0 => inbox.put(&data, victim).and_then(|()| world.quiet()),
            2 => outbox.get(&mut got, victim),
            // It waits, and answers.
            _ => signal.wait_until(Cmp::Eq, 1).map(drop),
        };
        if let Err(error) = step {
            break error;
        }
    };
    assert_eq!(error.code(), ErrorCode::PeerDead, "{error}");
    println!("ENDED {error}");
}

/// `p` by one thread of a kernel.
const POST: &str = r#"
#include <rushmem/rushmem.cuh>
extern "C" __global__ void post(uint64_t *at, int pe) {
  if (blockIdx.x == 1 && threadIdx.x == 2) rushmem::p(at, uint64_t(7), pe);
}
"#;

/// It is the kernel's mistake: that launch fails, with a text that says where, and the job goes on.
#[test]
fn an_address_that_is_none_is_the_kernels_mistake() {
    if on_gpus() {
        skip("an_address_that_is_none_is_the_kernels_mistake", "its kernels run on the CPU device");
        return;
    }
    pes(2).env("RUSHMEM_TRANSPORT", "fake").threads(|world| {
        let words = world.alloc::<u64>(4).unwrap();
        let module = world.load(rushmem::Source::text(POST).name("post.cu")).unwrap();
        let post = module.kernel("post").unwrap();
        let pe = world.right().number() as i32;
        let launch = |address: u64| {
            // SAFETY: the kernel hands the address to `p` alone, which is what is tested.
            unsafe { post.launch(rushmem::Launch::new(2, 4), (address as *mut u64, pe)) }.unwrap();
            world.synchronize()
        };
        let stack = 0_u64;
        for (address, place) in [
            // None of symmetric memory, as the device sees itself.
            (&raw const stack as u64, Some("in block (1,0,0), thread (2,0,0)")),
            // In the stride, where nothing is: the host sees that.
            (words.as_ptr() as u64 + (1 << 33), None),
        ] {
            let error = launch(address).unwrap_err();
            assert_eq!(error.code(), ErrorCode::BadAddress, "{error}");
            for word in ["kernel `post` (post.cu)", &format!("{address:#x}"), place.unwrap_or("PE ")] {
                assert!(error.message().contains(word), "{word:?} is missing: {error}");
            }
            assert!(!error.message().contains("Some("), "{error}");
        }
        launch(words.as_ptr() as u64).unwrap();
        world.barrier_all().unwrap();
        assert_eq!(words.to_vec().unwrap()[0], 7);
    });
}
