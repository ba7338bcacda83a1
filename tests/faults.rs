//! A PE is killed (SIGKILL) at any stage: every other PE ends within 5 s with an error that names it, and
//! nothing is left behind. The stages: bootstrap, heap creation, barrier, a wait in host code, a wait in a
//! kernel.
//!
//! Kills come at random moments (the seed is printed), many times, because a stage is an interval and not a
//! point.

// PEs end themselves here, at once and whatever is on their stack.
#![allow(clippy::disallowed_methods)]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rushmem::testing::{self, Exit, Job, Outcome};
use rushmem::{Cmp, ErrorCode, Launch, Pe, World};
use rushmem_test_support::api_common::place::on_gpus;
use rushmem_test_support::api_common::{longer, Rng};

/// What the issue promises.
const LIMIT: Duration = Duration::from_secs(5);
/// Exit code of a PE that ended with an error it printed.
const ENDED: i32 = 7;

/// What is in /dev/shm, but for what MPI programs and CUDA may put there meanwhile, and for the file that UCX
/// leaves if its process is killed between making and unlinking it (docs/far.md).
fn dev_shm() -> BTreeSet<String> {
    let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let names = entries.map(|e| e.file_name().to_string_lossy().into_owned());
    let others = ["vader_segment", "mpich_shm", "cuda.", "ucx_shm_posix"];
    names.filter(|n| !others.iter().any(|other| n.starts_with(other))).collect()
}

/// A PE's last words.
fn end(stage: &str, error: rushmem::Error) {
    println!("ENDED in {stage} with {:?}: {error}", error.code());
    std::process::exit(ENDED)
}

/// Repeats `step` until it fails.
fn until_error(stage: &str, mut step: impl FnMut() -> rushmem::Result<()>) {
    loop {
        if let Err(error) = step() {
            end(stage, error);
        }
    }
}

/// Every survivor ended soon after the kill, with an error that names the victim.
fn check_survivors(job: &mut Job, victim: Pe, killed: Instant) {
    for Outcome { pe, exit, stdout, stderr, ended, .. } in job.outcomes() {
        if pe == victim {
            assert_eq!(exit, Exit::Signal(libc::SIGKILL));
            continue;
        }
        let said = format!("{pe} {exit} {:?} after the kill:\n{stdout}\n{stderr}", ended - killed);
        assert_eq!(exit, Exit::Code(ENDED), "{said}");
        assert!(ended < killed + LIMIT, "{said}");
        let last = stdout.lines().rfind(|l| l.starts_with("ENDED")).expect("it printed its error");
        let named = last.contains(&format!("PE {}", victim.number()))
            || last.contains(&format!("rank {}", victim.number()))
            || last.contains(&format!("ranks {}", victim.number()));
        assert!(named, "{pe}'s error does not name {victim}: {last}");
    }
}

/// Kills a random PE of `n` a random moment after all are in the stage that `pe_side` loops in.
fn kill_in_stage(n: u32, rounds: u32, within: Duration, pe_side: impl Fn(&World)) {
    for _ in 0..longer(rounds) {
        let before = dev_shm();
        testing::pes(n).supervise(
            |_| {
                let world = World::init().expect("nobody dies during start-up here");
                println!("READY");
                pe_side(&world);
            },
            |job| {
                let mut random = Rng::printed();
                let victim = Pe::new(random.below(n as usize) as u32);
                for pe in 0..n {
                    job.wait_for_line(Pe::new(pe), "READY", LIMIT);
                }
                std::thread::sleep(within.mul_f64(random.below(1000) as f64 / 1000.0));
                let killed = job.kill(victim);
                check_survivors(job, victim, killed);
            },
        );
        assert_eq!(dev_shm(), before, "something was left in /dev/shm");
    }
}

#[test]
fn killed_during_start_up() {
    let before = dev_shm();
    // Most of it is opening the device.
    let lasts = if on_gpus() { 800_000 } else { 25_000 };
    for _ in 0..longer(8) {
        // A PE that dies before it has introduced itself is only missing: the start-up limit names it.
        testing::pes(4).env("RUSHMEM_INIT_TIMEOUT", "3").supervise(
            |_| {
                println!("STARTING");
                match World::init() {
                    Err(error) => end("start-up", error),
                    Ok(world) => until_error("barrier_all", || world.barrier_all()),
                }
            },
            |job| {
                let mut random = Rng::printed();
                let victim = Pe::new(random.below(4) as u32);
                job.wait_for_line(victim, "STARTING", LIMIT);
                std::thread::sleep(Duration::from_micros(random.below(lasts) as u64));
                let killed = job.kill(victim);
                check_survivors(job, victim, killed);
            },
        );
    }
    assert_eq!(dev_shm(), before, "something was left in /dev/shm");
}

#[test]
fn killed_while_the_heap_grows() {
    kill_in_stage(4, 4, Duration::from_millis(60), |world| {
        let mut bytes = 1 << 20;
        until_error("alloc", || {
            bytes += bytes / 4;
            let memory = world.alloc::<u8>(bytes.min(1 << 28))?;
            memory.free()
        })
    });
}

#[test]
fn killed_while_in_barriers() {
    kill_in_stage(5, 4, Duration::from_millis(30), |world| {
        until_error("barrier_all", || world.barrier_all())
    });
}

#[test]
fn killed_while_others_wait_in_host_code() {
    kill_in_stage(3, 3, Duration::from_millis(30), |world| {
        let words = match world.alloc::<u64>(4) {
            Ok(words) => words,
            Err(error) => return end("alloc", error),
        };
        // Whatever the victim might still send, this never comes.
        match world.my_pe().number() % 3 {
            0 => until_error("wait_until", || words.wait_until(0, Cmp::Eq, 1)),
            1 => until_error("wait_until_any", || words.ivars().wait_until_any(Cmp::Gt, 5).map(drop)),
            _ => until_error("wait_until_all", || words.ivars().wait_until_all(Cmp::Ne, 0)),
        }
    });
}

const WAITER: &str = r#"
#include <rushmem/rushmem.cuh>
extern "C" __global__ void waiter(uint64_t *word) {
  if (threadIdx.x == 0) rushmem::wait_until(word, RUSHMEM_CMP_EQ, uint64_t(1));
  __syncthreads();
}
extern "C" __global__ void syncer() {
  for (;;) rushmem::sync_all<rushmem::block>();
}
"#;

/// Loads and runs one of the kernels above, neither of which can end by itself.
fn run_for_ever(world: &World, kernel: &str) -> rushmem::Result<()> {
    let word = world.alloc::<u64>(1)?;
    let module = world.load(WAITER)?;
    let f = module.kernel(kernel)?;
    // SAFETY: the kernels take what is passed here, and touch nothing else.
    unsafe {
        match kernel {
            "waiter" => f.launch(Launch::new(2, 64), (&word,))?,
            _ => f.launch(Launch::new(1, 32), ())?,
        }
    }
    world.synchronize()
}

fn kill_in_kernel(kernel: &'static str) {
    // Compiled before anybody is killed, so that the kill finds the PEs in the kernel.
    testing::run(1, |world| world.load(WAITER).unwrap().unload().unwrap());
    kill_in_stage(3, 3, Duration::from_millis(60), |world| match run_for_ever(world, kernel) {
        Err(error) => end(kernel, error),
        Ok(()) => panic!("{kernel} cannot end by itself"),
    });
}

#[test]
fn killed_while_others_wait_in_a_kernel() {
    kill_in_kernel("waiter");
}

#[test]
fn killed_while_others_sync_in_a_kernel() {
    kill_in_kernel("syncer");
}

#[test]
fn a_pe_that_never_comes_is_named_after_the_limit() {
    testing::pes(4).without(Pe::new(1)).without(Pe::new(3)).env("RUSHMEM_INIT_TIMEOUT", "1").supervise(
        |_| match World::init() {
            Err(error) => end("start-up", error),
            Ok(_) => panic!("two PEs are missing"),
        },
        |job| {
            for outcome in job.outcomes() {
                assert_eq!(outcome.exit, Exit::Code(ENDED), "{}", outcome.stderr);
                assert!(outcome.ended - outcome.started < Duration::from_secs(4));
                assert!(outcome.stdout.contains("Timeout"), "{}", outcome.stdout);
                let named = outcome.stdout.contains('1') && outcome.stdout.contains('3');
                assert!(named && !outcome.stdout.contains("PE 2 "), "{}", outcome.stdout);
            }
        },
    );
}

#[test]
fn a_pe_that_returns_early_is_named() {
    testing::pes(3).supervise(
        |pe| {
            let world = World::init().unwrap();
            if pe == Pe::new(2) {
                // As a program does that returns from main with an error: dropping the world leaves the job.
                drop(world);
                std::process::exit(3);
            }
            until_error("barrier_all", || world.barrier_all());
        },
        |job| {
            for pe in [0, 1] {
                let outcome = job.outcome(Pe::new(pe));
                assert_eq!(outcome.exit, Exit::Code(ENDED), "{}", outcome.stderr);
                let named = outcome.stdout.contains("PE 2") && outcome.stdout.contains("without finalize");
                assert!(named, "{}", outcome.stdout);
            }
        },
    );
}

#[test]
fn finalising_with_a_kernel_in_flight_is_refused_and_the_job_goes_on() {
    testing::run(2, |world| {
        let word = world.alloc::<u64>(1).unwrap();
        let module = world.load(WAITER).unwrap();
        // SAFETY: the kernel takes one pointer to a symmetric word.
        unsafe { module.kernel("waiter").unwrap().launch(Launch::new(1, 32), (&word,)).unwrap() };
        // The Rust API waits for kernels itself, so the C function is asked here.
        let path = std::env::var_os("RUSHMEM_HOST_LIB");
        let code = finalize_through_c(world, path);
        assert_eq!(code, rushmem_abi::c::RUSHMEM_ERR_BUSY);
        world.barrier_all().unwrap();
        word.p(0, 1, world.right()).unwrap();
        world.synchronize().unwrap();
        world.barrier_all().unwrap();
    });
}

/// `rushmem_finalize` of the library that the Rust API has loaded in this process.
fn finalize_through_c(world: &World, _path: Option<std::ffi::OsString>) -> i32 {
    type Finalize = unsafe extern "C" fn(*mut rushmem_abi::c::rushmem_world_t) -> i32;
    // SAFETY: opening what is loaded already (its soname is known), and calling a function of its ABI by its
    // type.
    unsafe {
        let library = libloading::os::unix::Library::open(
            Some("librushmem_host.so"),
            libc::RTLD_NOW | libc::RTLD_NOLOAD,
        );
        let library = library.expect("the runtime is loaded under its soname");
        let finalize: libloading::os::unix::Symbol<Finalize> = library.get(b"rushmem_finalize").unwrap();
        finalize(world.as_raw())
    }
}

#[test]
fn a_stalled_wait_is_reported_and_may_be_bounded() {
    testing::pes(2).env("RUSHMEM_STALL_REPORT", "0.3").supervise(
        |pe| {
            let world = World::init().unwrap();
            let words = world.alloc::<u32>(8).unwrap();
            if pe == Pe::new(1) {
                let limit = Duration::from_millis(1000);
                let e = words.ivars().timeout(limit).wait_until_all(Cmp::Ge, 77).unwrap_err();
                assert_eq!(e.code(), ErrorCode::Timeout);
                println!("BOUNDED {e}");
            } else {
                std::thread::sleep(Duration::from_millis(1200));
            }
            world.finalize().unwrap();
        },
        |job| {
            let outcome = job.outcome(Pe::new(1));
            assert_eq!(outcome.exit, Exit::Done, "{}", outcome.stderr);
            let report = outcome.stderr.lines().find(|l| l.contains("has waited")).expect("a stall report");
            for part in ["PE 1", "host ", "pid ", "77"] {
                assert!(report.contains(part), "no {part:?} in: {report}");
            }
            assert!(outcome.stdout.contains("BOUNDED"), "{}", outcome.stdout);
        },
    );
}

#[test]
fn no_thread_and_no_descriptor_is_left_after_finalize() {
    let count = |what: &str| std::fs::read_dir(format!("/proc/self/{what}")).unwrap().count();
    testing::pes(1).supervise(
        |_| {
            let mut seen = Vec::new();
            for _ in 0..4 {
                let uid = rushmem::Uid::create().unwrap();
                std::thread::scope(|s| {
                    for rank in 0..3 {
                        let uid = &uid;
                        s.spawn(move || {
                            let world = World::builder().uid(uid, rank, 3).init().unwrap();
                            let _ = world.alloc::<u8>(5 << 20).unwrap();
                            world.barrier_all().unwrap();
                            world.finalize().unwrap();
                        });
                    }
                });
                // A joined thread's entry in /proc may outlive the join by a moment.
                let mut counts = (0, 0);
                for look in 0..100 {
                    std::thread::sleep(Duration::from_millis(100));
                    counts = (count("task"), count("fd"));
                    if seen.first().map_or(look == 4, |first| *first == counts) {
                        break;
                    }
                }
                seen.push(counts);
            }
            if on_gpus() {
                // CUDA keeps some of its own from its first use on.
                seen.remove(0);
            }
            println!("COUNTS {seen:?}");
            assert!(seen.iter().all(|s| *s == seen[0]), "threads and descriptors after each world: {seen:?}");
        },
        |job| {
            let outcome = job.outcome(Pe::new(0));
            assert_eq!(outcome.exit, Exit::Done, "{}{}", outcome.stdout, outcome.stderr);
        },
    );
}
