//! Ranges of NVTX around host calls, as a profiler of our own gets them: balanced on each thread, with names,
//! peers and bytes; none without a profiler; a warning for one that cannot be loaded.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use rushmem::testing::{self, Exit, Pes};
use rushmem::{Launch, Pe, SignalOp, Source, World};
use rushmem_test_support::api_common::place::hosts;

use super::{KERNEL, LIMIT};

/// The profiler; none where there is no C compiler.
fn profiler(folder: &Path, test: &str) -> Option<PathBuf> {
    let (source, library) = (folder.join("recorder.c"), folder.join("recorder.so"));
    std::fs::write(&source, include_str!("nvtx_recorder.c")).unwrap();
    let cc =
        Command::new("cc").args(["-shared", "-fPIC", "-Werror", "-o"]).arg(&library).arg(&source).status();
    match cc {
        Ok(status) => assert!(status.success(), "cc: {status}"),
        Err(e) => {
            eprintln!("SKIP {test}: cc: {e}");
            return None;
        }
    }
    Some(library)
}

/// A range that has begun: its name, category and payload.
type Range = [String; 3];

/// The ranges of all processes, by process and thread, after a check that each thread's nest and have ended.
fn ranges(folder: &Path) -> BTreeMap<(String, String), Vec<Range>> {
    let mut threads = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let Some(pid) = path.to_string_lossy().rsplit_once("ranges.").map(|(_, pid)| pid.to_owned()) else {
            continue;
        };
        let mut depth: BTreeMap<String, i32> = BTreeMap::new();
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            let [thread, domain, what, name, category, payload] =
                line.split('|').collect::<Vec<_>>().try_into().unwrap();
            assert_eq!(domain, "rushmem", "{line}");
            let depth = depth.entry(thread.to_owned()).or_default();
            let of: &mut Vec<Range> = threads.entry((pid.clone(), thread.to_owned())).or_default();
            match what {
                "push" => {
                    *depth += 1;
                    of.push([name, category, payload].map(str::to_owned));
                }
                "pop" => *depth -= 1,
                _ => panic!("{line}"),
            }
            assert!(*depth >= 0, "{line}");
        }
        assert!(depth.values().all(|depth| *depth == 0), "{}: {depth:?}", path.display());
    }
    threads
}

fn program(pe: Pe) {
    let world = World::init().unwrap();
    let other = Pe::new(1 - pe.number());
    let (data, flags) = (world.alloc::<i32>(64).unwrap(), world.signals(1).unwrap());
    let stream = world.stream().unwrap();
    data.put(&[3; 16], other).unwrap();
    data.get(&mut [0; 64], other).unwrap();
    data.put_from_on(&data, other, &stream).unwrap();
    stream.synchronize().unwrap();
    data.put_signal(&[4; 64], &flags.at(0).unwrap(), SignalOp::Set, 1, other).unwrap();
    flags.at(0).unwrap().wait_until(rushmem::Cmp::Eq, 1).unwrap();
    world.quiet().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| data.p(1, 5, other).unwrap());
    });
    let module = world.load(Source::text(KERNEL).name("adds.cu")).unwrap();
    // SAFETY: one word of an array of 64.
    unsafe { module.kernel("adds").unwrap().launch(Launch::new(1, 1), (&data, other.number() as i32)) }
        .unwrap();
    world.synchronize().unwrap();
    world.barrier_all().unwrap();
    drop((data, flags, stream));
    world.finalize().unwrap();
}

fn profiled(job: Pes, test: &str) {
    let folder = tempfile::tempdir().unwrap();
    let Some(library) = profiler(folder.path(), test) else { return };
    let job = job.timeout(LIMIT).env("RUSHMEM_DEVICE", "cpu").env("NVTX_INJECTION64_PATH", &library);
    job.env("RUSHMEM_TEST_NVTX", folder.path().join("ranges")).supervise(program, |job| {
        for outcome in job.outcomes() {
            assert_eq!(outcome.exit, Exit::Done, "{}", outcome.stderr);
        }
        let threads = ranges(folder.path());
        let seen = |name: &str, category: &str, payload: &str| -> Vec<&(String, String)> {
            let is = |range: &Range| range[0] == name && range[1] == category && range[2] == payload;
            threads.iter().filter(|(_, ranges)| ranges.iter().any(is)).map(|(thread, _)| thread).collect()
        };
        for pe in 0..2 {
            let other = format!("PE {}", 1 - pe);
            let put = seen("put", &other, "64");
            assert_eq!(put.len(), 1, "{threads:?}");
            let [host] = put[..] else { unreachable!() };
            for (name, category, payload) in [
                ("init", "", ""),
                ("get", &other, "256"),
                ("put on a stream", &other, "256"),
                ("put_signal", &other, "256"),
                ("wait_until", "", ""),
                ("quiet", "", ""),
                ("launch adds", "", ""),
                ("barrier_all", "", ""),
                ("finalize", "", ""),
            ] {
                let seen = seen(name, category, payload);
                assert!(seen.contains(&host), "{name} {category} {payload} by {seen:?}: {threads:?}");
            }
            // By another thread of the same process.
            let p = seen("put", &other, "4");
            assert!(p.len() == 1 && p[0].0 == host.0 && p[0].1 != host.1, "{p:?}: {threads:?}");
        }
    });
}

#[test]
fn a_profiler_gets_ranges_of_host_calls() {
    let job = testing::pes(2).env("RUSHMEM_TRANSPORT", "direct");
    profiled(job, "a_profiler_gets_ranges_of_host_calls");
}

#[test]
fn a_profiler_gets_ranges_of_calls_on_far_pes() {
    if let Some(job) = hosts("a_profiler_gets_ranges_of_calls_on_far_pes", 2, 1) {
        profiled(job, "a_profiler_gets_ranges_of_calls_on_far_pes");
    }
}

#[test]
fn without_a_profiler_there_are_no_ranges() {
    let folder = tempfile::tempdir().unwrap();
    let job = testing::pes(2).timeout(LIMIT).env("RUSHMEM_DEVICE", "cpu").env("NVTX_INJECTION64_PATH", "");
    job.env("RUSHMEM_TEST_NVTX", folder.path().join("ranges")).supervise(program, |job| {
        assert!(job.outcomes().iter().all(|outcome| outcome.exit == Exit::Done && outcome.stderr.is_empty()));
        assert_eq!(ranges(folder.path()), BTreeMap::new());
    });
}

/// A job of one PE with the profiler at `path` says `wanted`, and is well.
fn warns(path: &Path, wanted: &str) {
    let job = testing::pes(1).timeout(LIMIT).env("NVTX_INJECTION64_PATH", path).env("RUSHMEM_LOG", "warn");
    job.supervise(
        |_| World::init().unwrap().finalize().unwrap(),
        |job| {
            let outcome = &job.outcomes()[0];
            assert_eq!(outcome.exit, Exit::Done, "{}", outcome.stderr);
            let head =
                format!("NVTX_INJECTION64_PATH: no profiler gets ranges of host calls: {}: ", path.display());
            assert!(outcome.stderr.contains(&head) && outcome.stderr.contains(wanted), "{}", outcome.stderr);
        },
    );
}

#[test]
fn a_profiler_that_is_not_there_is_a_warning() {
    warns(Path::new("/nowhere/profiler.so"), "No such file");
}

#[test]
fn a_profiler_that_refuses_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    // It has nowhere to write.
    if let Some(library) = profiler(folder.path(), "a_profiler_that_refuses_is_a_warning") {
        warns(&library, "its InitializeInjectionNvtx2 refuses");
    }
}
