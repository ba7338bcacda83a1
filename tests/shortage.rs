//! What a machine may be short of, and that the PE that runs out of it says so at once, by its name and what
//! to do about it: file descriptors, and room in /dev/shm.

// PEs end themselves here, at once and whatever is on their stack.
#![allow(clippy::disallowed_methods)]

use rushmem_test_support::programs;

use std::process::{Command, Stdio};
use std::time::Duration;

use rushmem::testing::{self, Exit, Outcome, Pes};
use rushmem::{Pe, World};
use rushmem_test_support::api_common::place::{hosts, on_gpus, processes, skip};

/// Far below the limits that would end the job without the message. Virtual machines of CI have been seen to
/// stand still for half a minute.
const SOON: Duration = Duration::from_secs(60);
/// In seconds: what a start, and an operation, may take.
const LIMIT_OF_JOBS: &str = "200";
const LIMIT: Duration = Duration::from_secs(150);

/// From now on this process may have `more` open files than it has now.
fn allow_more_files(more: u64) {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let open: Vec<u64> = open.map(|e| e.unwrap().file_name().to_string_lossy().parse().unwrap()).collect();
    // One of those is the folder's own. The limit bounds the numbers of descriptors, and the kernel gives out
    // the lowest free one.
    let highest = open.iter().max().unwrap() + 1;
    let free = highest - open.len() as u64;
    let limit = if more < free { highest } else { highest + more - free };
    // All below the limit that are too many are taken.
    for _ in more..free {
        // SAFETY: a descriptor of its own, for as long as the process lives.
        unsafe { libc::dup(2) };
    }
    let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
    // SAFETY: a plain system call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
}

#[test]
fn too_few_open_files_are_named_at_once_by_the_pe_that_has_them() {
    let name = "too_few_open_files_are_named_at_once_by_the_pe_that_has_them";
    if !processes(name) || on_gpus() {
        return;
    }
    let (mut failed, mut started) = (0, 0);
    for victim in [0, 1] {
        for more in [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 30] {
            match short_of_files(testing::pes(3), Pe::new(victim), more) {
                Some(true) => started += 1,
                Some(false) => failed += 1,
                None => {}
            }
        }
    }
    // Both happen among these numbers, so the edge between them was tried.
    if std::env::var_os("RUSHMEM_PE").is_none() {
        assert!(failed >= 8 && started >= 2, "{failed} failed, {started} started");
    }
}

/// UCX by itself ends a process that is short of them, by an assertion.
#[test]
fn too_few_open_files_for_far_pes_are_named_by_the_pe_that_has_them() {
    let name = "too_few_open_files_for_far_pes_are_named_by_the_pe_that_has_them";
    if !processes(name) || on_gpus() {
        return;
    }
    let Some(job) = hosts(name, 3, 1) else { return };
    for more in [2, 5, 8, 11, 14, 17] {
        let started = short_of_files(job.clone(), Pe::new(1), more);
        assert!(started != Some(true), "{more} files were enough");
    }
}

/// Starts a job in which `victim` may open `more` files. Whether it has started; if it has not, all have said
/// why, soon. Nothing in the PEs' own processes.
fn short_of_files(job: Pes, victim: Pe, more: u64) -> Option<bool> {
    let mut has_started = None;
    job.env("RUSHMEM_INIT_TIMEOUT", LIMIT_OF_JOBS).timeout(LIMIT).supervise(
        |pe| -> () {
            if pe == victim {
                allow_more_files(more);
            }
            let did = World::init().and_then(|world| {
                // Each further piece of the heap is a descriptor of each PE.
                let memory = (0..4).map(|_| world.alloc::<u8>(40 << 20)).collect::<Result<Vec<_>, _>>();
                world.barrier_all()?;
                memory.map(drop)
            });
            match did {
                Ok(()) => std::process::exit(0),
                Err(error) => println!("ENDED with {:?}: {error}", error.code()),
            }
            std::process::exit(7);
        },
        |job| {
            let outcomes = job.outcomes();
            let describe = |o: &Outcome| {
                let errors = o.stdout.lines().filter(|l| l.starts_with("ENDED"));
                format!("{} {} after {:?}: {}", o.pe, o.exit, o.ended - o.started, errors.collect::<String>())
            };
            let texts: Vec<String> = outcomes.iter().map(describe).collect();
            let report = format!("{more} files for {victim}:\n{}", texts.join("\n"));
            println!("{report}");
            has_started = Some(outcomes.iter().all(|o| o.exit == Exit::Code(0)));
            for outcome in outcomes.iter().filter(|_| has_started == Some(false)) {
                assert!(outcome.ended - outcome.started < SOON, "{report}");
                assert_eq!(outcome.exit, Exit::Code(7), "{report}");
                let said = &outcome.stdout;
                if outcome.pe == victim {
                    assert!(said.contains("ulimit -n"), "{report}");
                } else {
                    let (pe, rank) = (victim.to_string(), format!("rank {}", victim.number()));
                    assert!(said.contains(&pe) || said.contains(&rank), "{report}");
                }
            }
        },
    );
    has_started
}

/// Limits of threads do not bind root, so root plays another user. Both PEs do: PEs of a job have one user.
#[test]
fn too_few_threads_are_named() {
    if !processes("too_few_threads_are_named") || on_gpus() {
        return;
    }
    testing::pes(2).timeout(LIMIT).supervise(
        |_| -> () {
            // SAFETY: plain system calls; nothing else runs in this process.
            unsafe {
                if libc::geteuid() == 0 {
                    assert_eq!((libc::setgroups(0, std::ptr::null()), libc::setuid(54_321)), (0, 0));
                }
                let limit = libc::rlimit { rlim_cur: 1, rlim_max: 1 };
                assert_eq!(libc::setrlimit(libc::RLIMIT_NPROC, &limit), 0);
            }
            match World::init() {
                Ok(_) => println!("STARTED"),
                Err(error) => println!("ENDED with {error}"),
            }
            std::process::exit(7);
        },
        |job| {
            let said: Vec<String> = job.outcomes().into_iter().map(|o| o.stdout).collect();
            assert!(said.iter().any(|text| text.contains("ulimit -u")), "{said:?}");
            assert!(said.iter().all(|text| text.contains("ENDED")), "{said:?}");
        },
    );
}

/// From now on this process may take `more` bytes of addresses.
fn allow_more_addresses(more: u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let size = status.lines().find_map(|l| l.strip_prefix("VmSize:")).unwrap().trim();
    let kib: u64 = size.strip_suffix(" kB").unwrap().parse().unwrap();
    let limit = libc::rlimit { rlim_cur: kib * 1024 + more, rlim_max: kib * 1024 + more };
    // SAFETY: a plain system call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

/// Small heaps take few addresses where there are few, whatever other PEs have; more than few are named.
#[test]
fn small_heaps_serve_pes_that_have_few_addresses() {
    if !processes("small_heaps_serve_pes_that_have_few_addresses") || on_gpus() {
        return;
    }
    for (few, heap) in [(vec![1], "16M"), (vec![0, 1, 2, 3], "16M"), (vec![2], "64G")] {
        let (limited, heap) = (few.clone(), heap.to_owned());
        let too_large = heap == "64G";
        testing::pes(4).env("RUSHMEM_HEAP_MAX", &heap).timeout(LIMIT).supervise(
            move |pe| -> () {
                if limited.contains(&pe.number()) {
                    allow_more_addresses(2 << 30);
                }
                let did = World::init().and_then(|world| {
                    let words = world.alloc::<u64>(4)?;
                    for to in world.pes() {
                        words.p(pe.number() as usize, 100 + u64::from(pe.number()), to)?;
                    }
                    world.barrier_all()?;
                    assert_eq!(words.to_vec()?, [100, 101, 102, 103]);
                    assert_eq!(words.g(3, world.right())?, 103);
                    world.barrier_all()?;
                    world.finalize()
                });
                match did {
                    Ok(()) => std::process::exit(0),
                    Err(error) => println!("ENDED with {error}"),
                }
                std::process::exit(7);
            },
            |job| {
                for outcome in job.outcomes() {
                    let code = if too_large { 7 } else { 0 };
                    let (pe, said) = (outcome.pe, &outcome.stdout);
                    assert_eq!(outcome.exit, Exit::Code(code), "{pe} of {few:?}, {heap}: {said}");
                    let words = match (too_large, pe == Pe::new(2)) {
                        (false, _) => [""; 2],
                        (true, false) => ["reserving address space", "PE 2"],
                        (true, true) => ["RUSHMEM_HEAP_MAX", "ulimit -v"],
                    };
                    assert!(words.iter().all(|word| said.contains(word)), "{said}");
                }
            },
        );
    }
}

#[test]
fn a_heap_that_cannot_grow_for_want_of_files_fails_everywhere_and_the_job_goes_on() {
    let name = "a_heap_that_cannot_grow_for_want_of_files_fails_everywhere_and_the_job_goes_on";
    if !processes(name) || on_gpus() {
        return;
    }
    for victim in [0, 1] {
        for more in 0..6 {
            testing::pes(3).env("RUSHMEM_TIMEOUT", LIMIT_OF_JOBS).run(|world| {
                if world.my_pe().number() == victim {
                    allow_more_files(more);
                }
                let began = std::time::Instant::now();
                let grown = world.alloc::<u8>(64 << 20);
                let took = began.elapsed();
                assert!(took < SOON, "{took:?}");
                if let Err(error) = &grown {
                    let text = error.to_string();
                    println!("{} with {more}: {text}", world.my_pe());
                    let named = match world.my_pe().number() == victim {
                        true => text.contains("ulimit -n"),
                        false => text.contains(&format!("PE {victim} ")),
                    };
                    assert!(named, "{text}");
                }
                world.barrier_all().unwrap();
                let words = world.alloc::<u64>(8).unwrap();
                words.p(0, 5, world.right()).unwrap();
                world.barrier_all().unwrap();
                assert_eq!(words.g(0, world.my_pe()).unwrap(), 5);
            });
        }
    }
}

#[test]
fn a_full_dev_shm_is_named() {
    let name = "a_full_dev_shm_is_named";
    if let Err(why) = rushmem::doctor::network().unwrap() {
        return skip(name, why);
    }
    // A /dev/shm of its own, of which each PE wants more than there is.
    let within = |small: &str| {
        let mut command = Command::new("unshare");
        command.args([
            "-rm",
            "sh",
            "-c",
            &format!("mount -t tmpfs -o size={small} tmpfs /dev/shm && exec \"$@\""),
            "sh",
        ]);
        command
    };
    let probe =
        within("64k").arg("true").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output();
    match probe {
        Ok(out) if out.status.success() => {}
        Ok(out) => {
            return skip(
                name,
                format!("no tmpfs of one's own here: {}", String::from_utf8_lossy(&out.stderr).trim()),
            )
        }
        Err(e) => return skip(name, format!("unshare: {e}")),
    }
    let launched = programs::rushmem_run(2, programs::example("hello"));
    let mut command = within("64k");
    command.arg(launched.get_program()).args(launched.get_args());
    for (key, value) in launched.get_envs() {
        match value {
            Some(value) => command.env(key, value),
            None => command.env_remove(key),
        };
    }
    command.env("RUSHMEM_PES_PER_NODE", "1").env("RUSHMEM_TRANSPORT", "ucx").env("RUSHMEM_DEVICE", "cpu");
    command.env_remove("UCX_TLS").env_remove("UCX_POSIX_DIR");
    let ended = programs::run(&mut command, LIMIT);
    if ended.status.success() {
        return skip(name, "this UCX takes no memory of /dev/shm");
    }
    ended.failed().says(&["/dev/shm", "64 KiB free", "--shm-size"]);
}
