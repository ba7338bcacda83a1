//! PEs and their children: a PE that dies is named at once though a child of it lives on, a child's calls are
//! errors on the spot, and neither forks nor programs that are started disturb the PE.

// PEs and their children end themselves here, at once.
#![allow(clippy::disallowed_methods)]

use std::process::Command;
use std::time::{Duration, Instant};

use rushmem::testing::{Exit, Job, Pes};
use rushmem::{Cmp, ErrorCode, Pe, World};
use rushmem_test_support::api_common::place::{hosts, on_gpus, pes, processes};
use rushmem_test_support::api_common::Rng;

/// Room for a loaded machine; on an idle one the first is milliseconds.
const NAMED: Duration = Duration::from_secs(2);
const LIMIT: Duration = Duration::from_secs(30);

/// Makes a child that runs `child` and ends with its value, by a plain system call where no handler of fork
/// is to run. It ends with the test in any case: by an alarm.
fn child(raw: bool, child: impl FnOnce() -> i32) -> libc::pid_t {
    // SAFETY: this process' other threads are only rushmem's, and what the child does without them is what
    // the tests are of.
    let pid = unsafe {
        match raw {
            true => libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as libc::pid_t,
            false => libc::fork(),
        }
    };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        // SAFETY: plain system calls.
        unsafe { libc::alarm(60) };
        let code = child();
        // SAFETY: a plain system call.
        unsafe { libc::_exit(code) };
    }
    pid
}

/// How a child ended: its exit code; its signal, negative. Killed after a while.
fn wait(pid: libc::pid_t) -> i32 {
    let begin = Instant::now();
    let mut status = 0;
    // SAFETY: our own child.
    while unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } == 0 {
        if begin.elapsed() > LIMIT {
            // SAFETY: our own child, not waited for yet.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    match libc::WIFEXITED(status) {
        true => libc::WEXITSTATUS(status),
        false => -libc::WTERMSIG(status),
    }
}

/// The PEs with their memory mapped, and with the network between them.
fn near_and_far(test: &str, n: u32) -> Vec<Pes> {
    if !processes(test) {
        return Vec::new();
    }
    let near = pes(n).env("RUSHMEM_TRANSPORT", "auto").env("RUSHMEM_PES_PER_NODE", "");
    let far = hosts(test, n, 1).map(|far| far.env("RUSHMEM_TRANSPORT", "ucx"));
    [Some(near), far].into_iter().flatten().collect()
}

fn killed_with_a_child(pes: Pes, raw: bool) {
    const N: u32 = 3;
    pes.supervise(
        |_| -> () {
            let world = World::init().expect("nobody dies during start-up here");
            let worker = child(raw, || {
                // Tests kill PEs with their process groups; the kernel, short of memory, does not.
                // SAFETY: plain system calls, the last of which waits for the alarm.
                unsafe {
                    libc::setpgid(0, 0);
                    loop {
                        libc::pause();
                    }
                }
            });
            println!("WORKER {worker} .");
            let error = loop {
                if let Err(error) = world.barrier_all() {
                    break error;
                }
            };
            println!("ENDED with {:?}: {error}", error.code());
            // SAFETY: our own child.
            unsafe { libc::kill(worker, libc::SIGKILL) };
            std::process::exit(7)
        },
        |job: &mut Job| {
            let victim = Pe::new(Rng::printed().below(N as usize) as u32);
            let workers: Vec<i32> = (0..N)
                .map(|pe| job.wait_for_line(Pe::new(pe), "WORKER", LIMIT))
                .map(|line| line.split(' ').rev().nth(1).unwrap().parse().unwrap())
                .collect();
            std::thread::sleep(Duration::from_millis(20));
            let killed = job.kill(victim);
            for pe in (0..N).map(Pe::new).filter(|pe| *pe != victim) {
                let outcome = job.outcome(pe);
                let said = format!("{pe} {}:\n{}\n{}", outcome.exit, outcome.stdout, outcome.stderr);
                assert_eq!(outcome.exit, Exit::Code(7), "{said}");
                let took = outcome.ended - killed;
                println!("{pe} ended {took:?} after {victim} was killed");
                assert!(took < NAMED, "{took:?}: {said}");
                let number = victim.number();
                let named = outcome.stdout.contains(&format!("PE {number} "))
                    || outcome.stdout.contains(&format!("rank {number} "));
                assert!(named && outcome.stdout.contains("PeerDead"), "{victim} is not named: {said}");
            }
            let worker = workers[victim.number() as usize];
            let state = std::fs::read_to_string(format!("/proc/{worker}/stat")).unwrap_or_default();
            assert!(state.contains(") S "), "the victim's child did not live on: {state:?}");
            // SAFETY: the victim's worker, which ends by nothing but this or its alarm.
            unsafe { libc::kill(worker, libc::SIGKILL) };
        },
    );
}

#[test]
fn a_pe_that_is_killed_is_named_though_a_child_of_it_lives() {
    for pes in near_and_far("a_pe_that_is_killed_is_named_though_a_child_of_it_lives", 3) {
        killed_with_a_child(pes, false);
    }
}

#[test]
fn a_child_that_fork_did_not_make_does_not_hide_the_end_either() {
    if on_gpus() {
        // CUDA's own threads are in the way of a raw clone.
        return;
    }
    let near = near_and_far("a_child_that_fork_did_not_make_does_not_hide_the_end_either", 3).swap_remove(0);
    killed_with_a_child(near, true);
}

/// One of every kind of call, each of which must be refused. How many were not, in a child.
fn calls(world: &World, words: &rushmem::SymSlice<'_, u64>, signal: &rushmem::Signal<'_>) -> i32 {
    let right = world.right();
    let me = world.my_pe();
    let mut buffer = [0u64; 8];
    let results = [
        world.barrier_all(),
        world.sync_all(),
        world.quiet(),
        world.fence(),
        world.alloc::<u64>(8).map(drop),
        world.heap_info().map(drop),
        world.peer(right).map(drop),
        words.p(0, 99, right),
        words.p(0, 99, me),
        words.put(&[99; 8], right),
        words.put(&[99; 3000], right),
        words.g(0, right).map(drop),
        words.get(&mut buffer, right),
        words.to_vec().map(drop),
        words.at(0, right).fetch_add(99).map(drop),
        words.put_signal(&[99; 8], signal, rushmem::SignalOp::Add, 99, right),
        signal.add(99, right),
        words.wait_until(0, Cmp::Eq, 4711),
        words.test(0, Cmp::Eq, 4711).map(drop),
        signal.wait_until(Cmp::Eq, 4711).map(drop),
        world.load("extern \"C\" __global__ void k() {}").map(drop),
        world.stream().map(drop),
        world.synchronize(),
        World::init().map(drop),
        rushmem::Uid::create().map(drop),
        // SAFETY: a world is bytes in a child, and this one is not used again by this name.
        unsafe { std::ptr::read(world) }.finalize(),
    ];
    let mut wrong = 0;
    for (i, result) in results.into_iter().enumerate() {
        let text = match &result {
            Err(error) if error.code() == ErrorCode::Forked => error.message().to_owned(),
            other => format!("{other:?}"),
        };
        let parent = format!("forked from PE {} (", me.number());
        if !text.contains(&parent) || !text.contains("forkserver") {
            eprintln!("call {i} in a child of {me}: {text}");
            wrong += 1;
        }
    }
    wrong
}

fn refused(pes: Pes) {
    pes.run(|world| {
        let rng = Rng::printed();
        let words = world.alloc::<u64>(4096).unwrap();
        let signal = world.signal().unwrap();
        let wait_all = |children: Vec<libc::pid_t>, what: &str| {
            for child in children {
                assert_eq!(wait(child), 0, "a child that {what}");
            }
        };
        for round in 0..20u64 {
            let mine = |pe: Pe| rng.fork(round << 8 | u64::from(pe.number())).words(4096);
            // Operations in flight, and threads that hold whatever they hold.
            words.put(&mine(world.my_pe()), world.right()).unwrap();
            let maker = child(false, || calls(world, &words, &signal));
            signal.add(1, world.right()).unwrap();
            wait_all(vec![maker], "called");
            world.barrier_all().unwrap();
            assert_eq!(signal.fetch().unwrap(), round + 1, "a child's signal came, or a signal is lost");
            // Seeds are drawn by each PE; a word says who wrote it.
            let seen = words.to_vec().unwrap();
            assert!(!seen.contains(&99), "a child wrote");
            world.barrier_all().unwrap();
        }
        let dropped = child(false, || {
            // SAFETY: a world is bytes in a child, and this one is not used again by its other name.
            drop(unsafe { std::ptr::read(world) });
            0
        });
        let grandchild = child(false, || wait(child(false, || calls(world, &words, &signal))));
        // Leaves as programs do, by exit and whatever libraries do then.
        let leaver = child(false, || std::process::exit(0));
        wait_all(vec![dropped, grandchild, leaver], "dropped its world, forked or left");
        world.barrier_all().unwrap();
        words.p(0, 7, world.right()).unwrap();
        world.barrier_all().unwrap();
        assert_eq!(words.g(0, world.my_pe()).unwrap(), 7);
    });
}

#[test]
fn a_childs_calls_are_refused_and_its_parent_goes_on() {
    for pes in near_and_far("a_childs_calls_are_refused_and_its_parent_goes_on", 3) {
        refused(pes);
    }
}

#[test]
fn programs_may_be_started_and_get_none_of_our_sockets() {
    for pes in near_and_far("programs_may_be_started_and_get_none_of_our_sockets", 2) {
        pes.run(|world| {
            let words = world.alloc::<u64>(8).unwrap();
            let sockets = |pid: u32| -> Vec<String> {
                let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
                let targets = entries.filter_map(|e| std::fs::read_link(e.path()).ok());
                let names = targets.map(|t| t.to_string_lossy().into_owned());
                names.filter(|t| t.starts_with("socket:") || t.contains("rushmem-")).collect()
            };
            let far = world.peer(world.right()).unwrap().transport == "ucx";
            for round in 0..5u64 {
                words.p(0, round, world.right()).unwrap();
                // posix_spawn, which is vfork.
                let mut program = Command::new("sleep").arg("20").spawn().unwrap();
                // The descriptors close as it execs.
                let begin = Instant::now();
                let mut held = sockets(program.id());
                while !held.is_empty() && begin.elapsed() < Duration::from_secs(5) && !far {
                    std::thread::sleep(Duration::from_millis(1));
                    held = sockets(program.id());
                }
                // What UCX opens without close-on-exec is its own.
                assert!(far || held.is_empty(), "a program that a PE started has {held:?}");
                program.kill().unwrap();
                program.wait().unwrap();
                assert!(Command::new("true").status().unwrap().success());
                world.barrier_all().unwrap();
                assert_eq!(words.g(0, world.my_pe()).unwrap(), round);
                world.barrier_all().unwrap();
            }
        });
    }
}

#[test]
fn a_child_made_before_or_between_worlds_may_have_its_own() {
    if !processes("a_child_made_before_or_between_worlds_may_have_its_own") || on_gpus() {
        return;
    }
    pes(1).supervise(
        |_| {
            let uid = rushmem::Uid::create().unwrap();
            let alone = |what: &str| {
                let world = World::builder().uid(&uid, 0, 1).init().expect(what);
                let words = world.alloc::<u64>(8).expect(what);
                words.p(0, 5, world.my_pe()).expect(what);
                assert_eq!(words.g(0, world.my_pe()).expect(what), 5);
                world.barrier_all().expect(what);
                world.finalize().expect(what);
            };
            // The rendezvous is a thread of this process, so the child meets its parent's.
            let first = child(false, || {
                alone("a world of a child");
                0
            });
            assert_eq!(wait(first), 0, "a child that was made before any world");
            let own = || {
                let uid = rushmem::Uid::create().unwrap();
                let world = World::builder().uid(&uid, 0, 1).init().unwrap();
                world.barrier_all().unwrap();
                world
            };
            own().finalize().unwrap();
            let second = child(false, || {
                let world = own();
                let words = world.alloc::<u64>(4096).unwrap();
                let signal = world.signal().unwrap();
                // A child of the child, which is in a job.
                wait(child(false, || calls(&world, &words, &signal)))
            });
            assert_eq!(wait(second), 0, "a child that was made between worlds");
            own().finalize().unwrap();
        },
        |job| {
            let outcome = job.outcome(Pe::new(0));
            assert_eq!(outcome.exit, Exit::Done, "{}{}", outcome.stdout, outcome.stderr);
        },
    );
}
