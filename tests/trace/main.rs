//! `RUSHMEM_TRACE`: what a traced run leaves behind, as python's parser reads it and as
//! `rushmem-info --trace` explains it: whole, nested, with the right peers, after any end of a process.

mod counters;
mod gpu;
mod nvtx;
mod retries;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rushmem::testing::{self, Exit, Pes};
use rushmem::{Asked, Cmp, Launch, Pe, SignalOp, Source, World};
use rushmem_test_support::api_common::place::hosts;
use rushmem_test_support::programs;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
/// How late a PE comes: long beside what a loaded machine does to the others.
const LATE: Duration = Duration::from_millis(1500);
const PES: u32 = 4;

const KERNEL: &str = r#"
#include <rushmem/rushmem.cuh>
extern "C" __global__ void adds(int *to, int pe) {
  if (blockIdx.x == 0 && threadIdx.x == 0) rushmem::p(to, 7, pe);
}
"#;

/// One PE comes late to a barrier, and another lets its neighbour wait for a signal.
fn program(world: &World) {
    let (me, data) = (world.my_pe().number(), world.alloc::<i32>(64).unwrap());
    let flags = world.signals(1).unwrap();
    let flag = flags.at(0).unwrap();
    world.barrier_all().unwrap();
    if me == 2 {
        std::thread::sleep(LATE);
    }
    world.barrier_all().unwrap();
    match me {
        1 => {
            std::thread::sleep(LATE / 2);
            data.put_signal(&[3; 64], &flag, SignalOp::Set, 1, Pe::new(3)).unwrap();
        }
        3 => drop(flag.wait_until(Cmp::Eq, 1).unwrap()),
        _ => {}
    }
    let module = world.load(Source::text(KERNEL).name("adds.cu")).unwrap();
    // SAFETY: one word of an array of 64.
    unsafe { module.kernel("adds").unwrap().launch(Launch::new(2, 32), (&data, me as i32)) }.unwrap();
    world.synchronize().unwrap();
    world.barrier_all().unwrap();
    data.free().unwrap();
    flags.free().unwrap();
}

fn traced_by(job: Pes, folder: &Path) -> Pes {
    let job = job.timeout(LIMIT).env("RUSHMEM_DEVICE", "cpu").env("RUSHMEM_LOG", "");
    job.env("RUSHMEM_TRACE", folder.join("out.json"))
}

/// The events of a file, by python's parser, as one line of JSON each.
fn events(file: &Path) -> Vec<Value> {
    let script =
        "import json,sys\nfor e in json.load(open(sys.argv[1]))['traceEvents']: print(json.dumps(e))";
    let out = Command::new("python3").args(["-c", script]).arg(file).output().expect("python3 starts");
    assert!(out.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).expect("JSON is UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("python writes JSON")).collect()
}

fn info(arguments: &[&Path]) -> (Option<i32>, String, String) {
    let mut command = programs::rushmem_info();
    command.arg("--trace").args(arguments);
    let ended = programs::run(&mut command, LIMIT);
    (ended.status.code(), ended.stdout, ended.stderr)
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

/// Spans of one thread contain each other or have nothing in common, and none has a negative length.
fn check_nesting(events: &[Value]) {
    // Whole nanoseconds, as they were written.
    let ns = |us: &Value| (number(us) * 1e3).round() as i64;
    let mut tids: Vec<&Value> = events.iter().map(|event| &event["tid"]).collect();
    tids.dedup();
    for tid in tids {
        let mut spans = Vec::new();
        let mut open = Vec::new();
        for event in events.iter().filter(|event| &event["tid"] == tid) {
            match event["ph"].as_str() {
                Some("X") => spans.push((ns(&event["ts"]), ns(&event["ts"]) + ns(&event["dur"]))),
                Some("B") => open.push(ns(&event["ts"])),
                Some("E") => spans.push((open.pop().expect("it has begun"), ns(&event["ts"]))),
                _ => {}
            }
        }
        spans.sort_by_key(|(start, end)| (*start, -end));
        let mut ends: Vec<i64> = Vec::new();
        for (start, end) in spans {
            assert!(start <= end);
            while ends.last().is_some_and(|last| *last <= start) {
                ends.pop();
            }
            assert!(ends.last().is_none_or(|last| end <= *last), "{start} to {end} ends after {ends:?}");
            ends.push(end);
        }
    }
}

fn traced(job: Pes, far: bool) {
    let folder = tempfile::tempdir().unwrap();
    traced_by(job, folder.path()).supervise(
        |_| {
            let world = World::init().unwrap();
            program(&world);
            world.finalize().unwrap();
        },
        |job| {
            for outcome in job.outcomes() {
                assert_eq!(outcome.exit, Exit::Done, "{}", outcome.stderr);
            }
            for pe in 0..PES {
                let events = events(&folder.path().join(format!("out.{pe}.json")));
                assert!(events.iter().all(|event| event["pid"] == pe));
                check_nesting(&events);
                let kernel = events.iter().find(|event| event["cat"] == "kernel").expect("a launch");
                assert_eq!((&kernel["name"], &kernel["args"]["grid"][0]), (&"adds".into(), &2.into()));
                let put = events.iter().find(|event| event["name"] == "put_signal");
                assert_eq!(put.is_some(), pe == 1);
                if let Some(put) = put {
                    let (path, bytes) = (&put["args"]["path"], &put["args"]["bytes"]);
                    assert_eq!((path, bytes), (&(if far { "net" } else { "direct" }).into(), &256.into()));
                    assert_eq!(put["args"]["peer"], 3);
                }
            }
            let merged = folder.path().join("all.json");
            let given = folder.path().join("out.json");
            let (code, out, err) = info(&[&given, Path::new("--merge"), &merged]);
            assert_eq!(code, Some(0), "{err}");
            // All waited for PE 2, and for about as long as it was late.
            let top: Vec<&str> = out.lines().skip_while(|line| !line.starts_with("top")).skip(1).collect();
            for pe in [0, 1, 3] {
                let wait = format!("s  PE {pe} for PE 2: barrier_all");
                let line = top.iter().find(|line| line.contains(&wait)).unwrap_or_else(|| panic!("{out}"));
                let seconds = line.trim().split(' ').next().and_then(|number| number.parse::<f64>().ok());
                assert!(
                    line.contains(" s  ") && seconds.is_some_and(|s| s >= 0.9 * LATE.as_secs_f64()),
                    "{out}"
                );
            }
            let signal = top.iter().any(|line| line.contains("PE 3 for PE 1: wait_until at heap offset"));
            assert!(signal, "{out}");
            let all = events(&merged);
            assert_eq!(all.len(), (0..PES).map(|pe| part(folder.path(), pe).len()).sum::<usize>());
            let (code, again, err) = info(&[&merged]);
            assert!(code == Some(0) && again == out, "{again}{err}");
        },
    );
}

fn part(folder: &Path, pe: u32) -> Vec<Value> {
    events(&folder.join(format!("out.{pe}.json")))
}

#[test]
fn a_late_pe_is_the_top_wait() {
    traced(testing::pes(PES).env("RUSHMEM_TRANSPORT", "direct"), false);
}

#[test]
fn far_operations_are_in_the_picture() {
    if let Some(job) = hosts("far_operations_are_in_the_picture", PES, 1) {
        traced(job, true);
    }
}

const TALK: &str = r#"#include <rushmem/rushmem.cuh>
extern "C" __global__ void talk(int *data, uint64_t *flag, int me) {
  if (me == 0) rushmem::put_signal<rushmem::block>(data, data, 64, flag, 7, rushmem::signal::set, 1);
  else if (threadIdx.x == 3) rushmem::signal_wait_until(flag, rushmem::cmp::eq, 7);
  __syncthreads();
  rushmem::sync_all<rushmem::block>();
  if (threadIdx.x < 2) rushmem::atomic_add(data + 1, 1, 1 - me);
  rushmem::team all = rushmem::world();
  rushmem::reduce<rushmem::block>(all, data + 2, data + 2, 1, rushmem::sum{});
}
"#;

/// PE 0 launches late. All of a thread's calls are there, with their lines; whom they waited for; and counts.
fn talks(job: Pes) {
    let folder = tempfile::tempdir().unwrap();
    traced_by(job, folder.path()).env("RUSHMEM_LOG", "info").supervise(
        |pe| {
            let world = World::init().unwrap();
            let (data, flags) = (world.alloc::<i32>(64).unwrap(), world.signals(1).unwrap());
            let module = world.load(Source::text(TALK).name("talk.cu")).unwrap();
            world.barrier_all().unwrap();
            if pe.number() == 0 {
                std::thread::sleep(LATE / 2);
            }
            let args = (&data, flags.words(), pe.number() as i32);
            // SAFETY: 64 values and a signal, which outlive it.
            unsafe { module.kernel("talk").unwrap().launch(Launch::new(1, 64), args) }.unwrap();
            world.synchronize().unwrap();
            let counted = world.counters(Pe::new(1 - pe.number())).unwrap();
            let asked = (counted.kernels.operations, counted.kernels.bytes);
            assert_eq!(asked, if pe.number() == 0 { (3, 264) } else { (2, 8) });
            assert!(counted.kernels.time > Duration::ZERO && counted.host == Asked::default(), "{counted:?}");
            drop((data, flags));
            world.finalize().unwrap();
        },
        |job| {
            let outcomes = job.outcomes();
            for outcome in &outcomes {
                assert_eq!(outcome.exit, Exit::Done, "{}", outcome.stderr);
                let (pe, other) = (outcome.pe.number(), 1 - outcome.pe.number());
                let events = part(folder.path(), pe);
                check_nesting(&events);
                let of = |name: &str, line: &str| -> Vec<&Value> {
                    let named = events.iter().filter(|event| event["name"] == name && event["ph"] != "E");
                    named.filter(|event| event["args"]["line"] == line).collect()
                };
                assert_eq!(of("sync_all", "talk.cu:6").len(), 1, "{events:?}");
                assert_eq!(of("reduce", "talk.cu:9").len(), 1, "{events:?}");
                let adds = of("atomic_add", "talk.cu:7");
                assert!(adds.len() == 2 && adds[0]["tid"] != adds[1]["tid"], "{events:?}");
                assert_eq!(
                    (&adds[0]["args"]["peer"], &adds[0]["args"]["kernel"]),
                    (&other.into(), &"talk".into())
                );
                let (operations, bytes) = if pe == 0 { (3, 264) } else { (2, 8) };
                let said = format!("its kernels asked PE {other} {operations} times, for {bytes} bytes");
                assert!(outcome.stderr.contains(&said), "{said}: {}", outcome.stderr);
            }
            let (code, out, err) = info(&[&folder.path().join("out.json")]);
            assert_eq!(code, Some(0), "{err}");
            for wanted in [
                (
                    "s  PE 1 for PE 0: signal_wait_until at heap offset ",
                    ", kernel talk, block (0,0,0), thread (3,0,0) at talk.cu:4",
                ),
                ("PE 1's kernels asked PE 0: 2 operations, 8 bytes", ""),
                ("PE 0's kernels asked PE 1: 3 operations, 264 bytes", ""),
            ] {
                assert!(
                    out.lines().any(|line| line.contains(wanted.0) && line.contains(wanted.1)),
                    "{wanted:?}: {out}"
                );
            }
        },
    );
}

#[test]
fn calls_in_kernels_have_lines_peers_and_counts() {
    talks(testing::pes(2).env("RUSHMEM_TRANSPORT", "direct"));
}

#[test]
fn calls_in_kernels_on_far_pes_are_in_the_picture() {
    if let Some(job) = hosts("calls_in_kernels_on_far_pes_are_in_the_picture", 2, 1) {
        talks(job);
    }
}

/// PEs of another time namespace have a clock that is 5000 s ahead.
#[test]
fn clocks_of_other_hosts_are_aligned_within_the_bound() {
    const AHEAD: i64 = 5_000_000_000_000;
    let shifted = "exec unshare --time --monotonic 5000 --fork";
    let tried = Command::new("sh").args(["-c", &format!("{shifted} true")]).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        eprintln!("SKIP clocks_of_other_hosts_are_aligned_within_the_bound: no time namespaces here");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("pe");
    let text = format!("#!/bin/sh\n[ $RUSHMEM_PE = 1 ] && {shifted} \"$INFO\"\nexec \"$INFO\"\n");
    programs::script(&script, &text);
    let mut run = programs::rushmem_run(3, &script);
    run.env("INFO", programs::rushmem_info().get_program()).env("RUSHMEM_DEVICE", "cpu");
    run.env("RUSHMEM_TRACE", folder.path().join("out.json"));
    let ended = programs::run(&mut run, LIMIT);
    assert!(ended.status.success(), "{ended}");
    let clock = |pe: u32| {
        let events = part(folder.path(), pe);
        events.into_iter().find(|event| event["name"] == "rushmem_clock").expect("its clock")["args"].clone()
    };
    let (own, other) = (clock(2), clock(1));
    assert_eq!((&own["ahead_ns"], &own["error_ns"]), (&0.into(), &0.into()));
    let (ahead, error) = (other["ahead_ns"].as_i64().unwrap(), other["error_ns"].as_i64().unwrap());
    assert!((ahead - AHEAD).abs() <= error && error < 1_000_000_000, "{other}");
    let merged = folder.path().join("all.json");
    let (code, out, err) = info(&[&folder.path().join("out.json"), Path::new("--merge"), &merged]);
    assert!(code == Some(0) && out.contains("their clocks are aligned within"), "{out}{err}");
    // Nobody leaves a round before all have entered it, by the merged clocks, too.
    let events = events(&merged);
    let rounds = || events.iter().filter(|event| event["ph"] == "X" && event["cat"] == "collective");
    assert!(rounds().count() >= 3, "{events:?}");
    let slack = 2.0 * error as f64 / 1e3;
    for (a, b) in rounds().flat_map(|a| rounds().map(move |b| (a, b))) {
        if a["args"] == b["args"] {
            let left = number(&b["ts"]) + number(&b["dur"]);
            assert!(number(&a["ts"]) <= left + slack, "{a} is after {b}");
        }
    }
}

#[test]
fn a_killed_pe_leaves_what_it_died_in() {
    let folder = tempfile::tempdir().unwrap();
    traced_by(testing::pes(PES).env("RUSHMEM_TRANSPORT", "auto"), folder.path()).supervise(
        |pe| {
            let world = World::init().unwrap();
            let flags = world.signals(1).unwrap();
            println!("WAITING");
            if pe.number() == 1 {
                let _never = flags.at(0).unwrap().wait_until(Cmp::Eq, 1);
            }
            world.barrier_all().expect_err("PE 1 is dead");
        },
        |job| {
            job.wait_for_line(Pe::new(1), "WAITING", LIMIT);
            // Longer than the time between two writes, on a loaded machine, too.
            std::thread::sleep(Duration::from_millis(500));
            job.kill(Pe::new(1));
            job.outcomes();
            for pe in 0..PES {
                let events = part(folder.path(), pe);
                let name = if pe == 1 { "wait_until" } else { "barrier_all" };
                let last = events.iter().rev().find(|event| event["name"] == name);
                let last = last.unwrap_or_else(|| panic!("PE {pe}: no {name}: {events:?}"));
                assert!(pe != 1 || last["ph"] == "B", "{last}");
            }
            let (code, out, err) = info(&[&folder.path().join("out.json")]);
            let told = |line: &str| {
                line.contains("PE 1 for nobody known: wait_until") && line.contains("it never ended")
            };
            assert!(code == Some(0) && out.lines().any(told), "{out}{err}");
        },
    );
}

#[test]
fn a_file_that_is_none_is_named_with_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| -> PathBuf {
        std::fs::write(folder.path().join(name), text).unwrap();
        folder.path().join(name)
    };
    let event = r#"{"ph":"X","pid":0,"tid":1,"ts":1.0,"dur":2.0,"name":"put","cat":"rma","args":{}}"#;
    for (path, words) in [
        (folder.path().join("absent.json"), "no such file"),
        (file("text.json", "hello"), "no timeline, and no JSON"),
        (file("other.json", "{\"a\": 1}"), "it has no traceEvents"),
        (file("empty.json", "{\"traceEvents\":[]}"), "no events"),
        (file("end.json", r#"{"traceEvents":[{"ph":"E","pid":0,"tid":1,"ts":1.0}]}"#), "no beginning"),
        (file("time.json", r#"{"traceEvents":[{"ph":"B","pid":0,"tid":1}]}"#), "no time"),
        (file("pid.json", r#"{"traceEvents":[{"ph":"B","tid":1}]}"#), "no number of a process"),
    ] {
        let (code, out, err) = info(&[&path]);
        assert!(code == Some(1) && out.is_empty() && err.contains(words), "{}: {out}{err}", path.display());
    }
    let cut = file("cut.json", &format!("{{\"traceEvents\":[\n{event},\n{}", &event[..40]));
    let (code, out, err) = info(&[&cut]);
    assert!(code == Some(0) && out.contains("is cut") && out.contains("1 spans"), "{out}{err}");
}
