//! Calls in kernels on GPUs: which are in the picture, of which kernel, block and peer, and when; and the
//! wait that a kernel never comes out of. The same programs run on the CPU device, where every thread's calls
//! are there.

use super::*;
use rushmem::ErrorCode;
use rushmem_test_support::api_common::place::{gpus, pes, skip};

const BLOCKS: u32 = 12;
/// Blocks of a launch on a GPU that are in the picture where nothing else is said.
const TRACED: u32 = 8;

const KERNELS: &str = r#"#include <rushmem/rushmem.cuh>
extern "C" __global__ void talk(int *data, uint64_t *flag) {
  const int other = 1 - rushmem::my_pe();
  if (blockIdx.x > 0) {
    if (threadIdx.x == 40) rushmem::p(data + blockIdx.x, 1, other);
    return;
  }
  rushmem::put_signal<rushmem::block>(data + 64, data + 128, 64, flag, 7, rushmem::signal::set, other);
  if (threadIdx.x == 3) rushmem::signal_wait_until(flag, rushmem::cmp::eq, 7);
  __syncthreads();
  rushmem::barrier_all<rushmem::block>();
  if (threadIdx.x < 20) rushmem::atomic_add(data + 192, 1, other);
  rushmem::team all = rushmem::world();
  rushmem::reduce<rushmem::block>(all, data + 200, data + 201, 1, rushmem::sum{});
}
extern "C" __global__ void hangs(uint64_t *flag) {
  if (threadIdx.x == 1) rushmem::wait_until(flag, rushmem::cmp::eq, 1);
}
"#;

/// Whether there is a GPU; else says that the test does nothing.
fn has_gpu(test: &str) -> bool {
    let has = gpus() > 0;
    if !has {
        skip(test, "no GPU, or RUSHMEM_DEVICE=cpu");
    }
    has
}

fn traced_on(device: &'static str, n: u32, folder: &Path) -> Pes {
    traced_by(pes(n).env("RUSHMEM_TRANSPORT", "direct"), folder)
        .timeout(3 * LIMIT)
        .env("RUSHMEM_DEVICE", device)
}

/// PE 0 launches late.
fn talks(world: &World) {
    let (me, data) = (world.my_pe().number(), world.alloc::<i32>(256).unwrap());
    let flags = world.signals(1).unwrap();
    let module = world.load(Source::text(KERNELS).name("talk.cu")).unwrap();
    world.barrier_all().unwrap();
    if me == 0 {
        std::thread::sleep(LATE / 2);
    }
    // SAFETY: 256 values and a signal, which outlive it.
    unsafe { module.kernel("talk").unwrap().launch(Launch::new(BLOCKS, 64), (&data, flags.words())) }
        .unwrap();
    world.synchronize().unwrap();
    world.barrier_all().unwrap();
    data.free().unwrap();
    flags.free().unwrap();
}

/// Begin and end of a span, in microseconds.
fn times(event: &Value) -> (f64, f64) {
    let start = number(&event["ts"]);
    (start, start + number(&event["dur"]))
}

/// The spans of a file: those that are written as a beginning and an end, too, as wholes.
fn spans(events: &[Value]) -> Vec<Value> {
    let mut open: Vec<Value> = Vec::new();
    let mut all = Vec::new();
    for event in events {
        match event["ph"].as_str() {
            Some("X") => all.push(event.clone()),
            Some("B") => open.push(event.clone()),
            Some("E") => {
                let at = open.iter().rposition(|begun| begun["tid"] == event["tid"]);
                let mut whole = open.remove(at.expect("its beginning"));
                whole["dur"] = (number(&event["ts"]) - number(&whole["ts"])).into();
                whole["args"] = event["args"].clone();
                all.push(whole);
            }
            _ => {}
        }
    }
    assert!(open.is_empty(), "{open:?}");
    all
}

/// Looks at one PE's file, where so many blocks are in the picture; how many words it has put or updated.
fn check_talk(events: &[Value], pe: u32, traced: u32, gpu: bool) -> u32 {
    check_nesting(events);
    let spans = spans(events);
    let of = |name: &str| -> Vec<&Value> {
        let calls = spans.iter().filter(|span| span["args"]["kernel"].is_string());
        calls.filter(|span| span["name"] == name).collect()
    };
    let one = |name: &str| {
        let found = of(name);
        assert_eq!(found.len(), 1, "PE {pe}: {name}: {found:?} in {spans:?}");
        found[0]
    };
    let row = |event: &Value| {
        let named = events.iter().find(|e| e["name"] == "thread_name" && e["tid"] == event["tid"]);
        named.expect("its row has a name")["args"]["name"].as_str().unwrap().to_owned()
    };
    let (put, wait, barrier, reduce) =
        (one("put_signal"), one("signal_wait_until"), one("barrier_all"), one("reduce"));
    for call in [put, wait, barrier, reduce] {
        assert_eq!(call["args"]["kernel"], "talk", "{call}");
        assert!(!gpu || call["args"]["module"] == "talk.cu", "{call}");
    }
    let other = 1 - pe;
    assert_eq!(
        (&put["args"]["peer"], &put["args"]["bytes"], &put["args"]["path"]),
        (&other.into(), &256.into(), &"direct".into())
    );
    assert!(put["args"]["word"] == wait["args"]["word"] && wait["args"]["word"].is_u64(), "{put} {wait}");
    assert_eq!(
        (row(put).as_str(), row(wait).as_str()),
        ("block (0,0,0), thread (0,0,0)", "block (0,0,0), thread (3,0,0)")
    );
    assert!(barrier["args"]["phase"].is_u64() && reduce["args"]["phase"].is_u64(), "{barrier} {reduce}");
    // One after the other, and one within the other.
    assert!(times(put).1 <= times(barrier).0 && times(barrier).1 <= times(reduce).0, "{spans:?}");
    let mut blocks: Vec<String> = of("p").into_iter().map(row).collect();
    blocks.sort_unstable();
    let mut wanted: Vec<String> =
        (1..traced).map(|block| format!("block ({block},0,0), thread (40,0,0)")).collect();
    wanted.sort_unstable();
    assert_eq!(blocks, wanted);
    // Twenty threads of one warp, of which a GPU's first one is there: of each part that goes its own way.
    let adds = of("atomic_add").len();
    assert!(if gpu { (1..=2).contains(&adds) } else { adds == 20 }, "{adds}: {spans:?}");
    // All between the launch and what the host does when it has ended, by its clock.
    let error = events.iter().rfind(|event| event["name"] == "rushmem_gpu_clock");
    assert_eq!(error.is_some(), gpu);
    let error = error.map_or(0.0, |event| number(&event["args"]["error_ns"]) / 1e3);
    assert!(error < 1000.0, "{error} us");
    println!(
        "PE {pe}: the GPU's clock is known within {error} us; the wait lasted {} us",
        times(wait).1 - times(wait).0
    );
    // Clocks part meanwhile.
    let slack = 100.0 + 3.0 * error;
    let launch = spans.iter().find(|span| span["name"] == "launch talk").expect("the launch");
    let after = spans.iter().filter(|span| span["name"] == "barrier_all" && span["args"]["round"].is_u64());
    let after = after.map(|span| times(span).0).fold(0.0, f64::max);
    for call in spans.iter().filter(|span| span["args"]["kernel"].is_string()) {
        let (start, end) = times(call);
        assert!(start + slack >= times(launch).0 && end <= after + slack, "{call} {launch} {after}");
    }
    let dropped = events.iter().find(|event| event["name"] == "rushmem_dropped");
    assert!(dropped.is_none(), "{dropped:?}");
    traced - 1 + adds as u32
}

fn talk(device: &'static str, blocks: Option<&str>) {
    let folder = tempfile::tempdir().unwrap();
    let gpu = device != "cpu";
    let mut job = traced_on(device, 2, folder.path());
    if let Some(blocks) = blocks {
        job = job.env("RUSHMEM_TRACE_BLOCKS", blocks);
    }
    job.supervise(
        |_| {
            let world = World::init().unwrap();
            talks(&world);
            let counted = world.counters(Pe::new(1 - world.my_pe().number())).unwrap().kernels;
            println!("COUNTED {} {}", counted.operations, counted.bytes);
            world.finalize().unwrap();
        },
        |job| {
            let traced = match blocks {
                _ if !gpu => BLOCKS,
                None => TRACED,
                Some(blocks) => blocks.parse().unwrap_or(BLOCKS),
            };
            for outcome in job.outcomes() {
                assert_eq!(outcome.exit, Exit::Done, "{}", outcome.stderr);
                let pe = outcome.pe.number();
                let words = check_talk(&part(folder.path(), pe), pe, traced, gpu);
                // The signalled put, and words of four bytes.
                let counted = format!("COUNTED {} {}", 1 + words, 256 + 4 * words);
                assert!(outcome.stdout.contains(&counted), "{counted}: {}", outcome.stdout);
            }
            let (code, out, err) = info(&[&folder.path().join("out.json")]);
            assert_eq!(code, Some(0), "{err}");
            println!("{out}");
            let wanted = "s  PE 1 for PE 0: signal_wait_until at heap offset ";
            let line = out.lines().find(|line| line.contains(wanted)).unwrap_or_else(|| panic!("{out}"));
            assert!(line.contains(", kernel talk, block (0,0,0), thread (3,0,0)"), "{out}");
            let ms = line.trim().split(' ').next().and_then(|number| number.parse::<f64>().ok());
            let late = LATE.as_secs_f64() / 2.0;
            assert!(line.contains(" ms  ") && ms.is_some_and(|ms| ms >= 800.0 * late), "{out}");
            assert_eq!(out.contains("times in kernels on its GPU are within"), gpu, "{out}");
        },
    );
}

#[test]
fn calls_in_kernels_on_gpus_are_in_the_picture() {
    if has_gpu("calls_in_kernels_on_gpus_are_in_the_picture") {
        talk("cuda", None);
    }
}

#[test]
fn a_setting_says_how_many_blocks_are_in_the_picture() {
    if has_gpu("a_setting_says_how_many_blocks_are_in_the_picture") {
        for blocks in ["3", "all"] {
            talk("cuda", Some(blocks));
        }
    }
}

#[test]
fn the_same_calls_on_the_cpu_are_in_the_picture() {
    talk("cpu", None);
}

/// A kernel that waits for ever is ended by the limit, and the file has what it waited for.
fn hang(device: &'static str) {
    let folder = tempfile::tempdir().unwrap();
    traced_on(device, 1, folder.path()).env("RUSHMEM_WAIT_TIMEOUT", "1").supervise(
        |_| {
            let world = World::init().unwrap();
            let flags = world.signals(2).unwrap();
            let module = world.load(Source::text(KERNELS).name("talk.cu")).unwrap();
            // SAFETY: two signals, which outlive it.
            unsafe { module.kernel("hangs").unwrap().launch(Launch::new(2, 32), (flags.words(),)) }.unwrap();
            let error = world.synchronize().unwrap_err();
            assert_eq!(error.code(), ErrorCode::Timeout, "{error}");
            println!("FINALIZED {:?}", world.finalize());
        },
        |job| {
            let outcome = job.outcome(Pe::new(0));
            assert_eq!(outcome.exit, Exit::Done, "{}{}", outcome.stdout, outcome.stderr);
            let spans = spans(&part(folder.path(), 0));
            let waits: Vec<&Value> = spans.iter().filter(|span| span["name"] == "wait_until").collect();
            assert!((1..=2).contains(&waits.len()), "{waits:?}");
            for wait in &waits {
                assert_eq!((&wait["args"]["kernel"], &wait["cat"]), (&"hangs".into(), &"wait".into()));
                assert!(wait["args"]["word"].is_u64(), "{wait}");
                let (start, end) = times(wait);
                assert!(end - start >= 900_000.0, "{wait}");
            }
            let (code, out, err) = info(&[&folder.path().join("out.json")]);
            assert_eq!(code, Some(0), "{err}");
            let told = |line: &str| {
                line.contains("PE 0 for nobody known: wait_until at heap offset ")
                    && line.contains(", kernel hangs, block (")
            };
            assert!(out.lines().any(told), "{out}");
        },
    );
}

#[test]
fn a_wait_on_a_gpu_that_never_ends_is_in_the_file() {
    if has_gpu("a_wait_on_a_gpu_that_never_ends_is_in_the_file") {
        hang("cuda");
    }
}

#[test]
fn a_wait_on_the_cpu_that_never_ends_is_in_the_file() {
    hang("cpu");
}
