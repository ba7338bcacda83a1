//! From the words that kernels write to the spans of a file.

use std::path::Path;
use std::time::Duration;

use rushmem_abi::device::{RUSHMEM_TRACE_ROUND, RUSHMEM_TRACE_SLOTS};
use serde_json::Value;

use super::super::ring::tests::{ring, write};
use super::*;

/// When the kernels of these tests begin, by the GPU's clock; the host's is then at 0.
const START: u64 = 1 << 60;

/// A timeline in that folder, and a ring whose writer is the test.
struct Played {
    timeline: Arc<Timeline>,
    trace: Arc<GpuTrace>,
    slots: Arc<Vec<AtomicU64>>,
    written: u64,
    /// The host's time at `START`.
    base: u64,
}

struct Shared(Arc<Vec<AtomicU64>>);

impl AsRef<[AtomicU64]> for Shared {
    fn as_ref(&self) -> &[AtomicU64] {
        &self.0
    }
}

impl Played {
    fn new(folder: &Path) -> Played {
        let stall = Some(Duration::from_millis(50));
        let file = folder.join("out.json");
        let timeline = Timeline::create(Some(&file), 3, "PE 3 (a test)", stall).expect("a fresh folder");
        let slots = Arc::new(ring());
        let trace = GpuTrace::new(&timeline, 2..4, Box::new(Shared(Arc::clone(&slots))));
        // A second ago, so that nothing lies ahead.
        let base = now() - 1_000_000_000;
        trace.meet(&[Reading { asked: base - 500, gpu: START, seen: base + 500 }]);
        Played { timeline, trace, slots, written: 0, base }
    }

    fn write(&mut self, record: GpuRecord) {
        write(&self.slots, self.written, &record);
        self.written += 1;
    }

    /// All events once the run is over.
    fn events(self, folder: &Path) -> Vec<Value> {
        self.timeline.close();
        let file = std::fs::read_dir(folder).expect("the folder").next().expect("a file").expect("its entry");
        let text = std::fs::read_to_string(file.path()).expect("the file");
        let value: Value = serde_json::from_str(&text).expect("JSON");
        value["traceEvents"].as_array().expect("events").clone()
    }
}

/// A thread's call at a time after `START`, in nanoseconds.
fn record(time: u64, event: u64, kind: u64, name: &str) -> GpuRecord {
    GpuRecord {
        time: (START + time) & ((1 << 48) - 1),
        bytes: 0,
        word: None,
        place: ([1, 0, 0], [0, 2, 0]),
        event,
        kind,
        name: hash(name),
        module: 0,
        peer: None,
        launch: 40_000,
        last: shape([4, 1, 1], [32, 8, 1]),
    }
}

fn begins(time: u64, kind: u64, name: &str) -> GpuRecord {
    record(time, RUSHMEM_TRACE_BEGIN, kind, name)
}

fn ends(time: u64, kind: u64, name: &str) -> GpuRecord {
    record(time, RUSHMEM_TRACE_END, kind, name)
}

fn named<'a>(events: &'a [Value], name: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["name"] == name).collect()
}

/// Start and length of a whole span, in nanoseconds.
fn time(event: &Value) -> (u64, u64) {
    let ns = |what: &str| (event[what].as_f64().expect("a time") * 1e3).round() as u64;
    (ns("ts"), ns("dur"))
}

#[test]
fn records_become_nested_spans_of_the_right_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let mut played = Played::new(folder.path());
    assert_eq!(played.trace.module("talk.cu", ["talk", "other"].into_iter()), Some(0));
    played.trace.launch(0, "talk", [4, 1, 1], [32, 8, 1]);
    played.trace.launch(0, "other", [5, 1, 1], [32, 8, 1]);
    let (rma, wait, collective) = (RUSHMEM_TRACE_RMA, RUSHMEM_TRACE_WAIT, RUSHMEM_TRACE_COLLECTIVE);
    let put = GpuRecord { bytes: 256, word: Some(64), peer: Some(2), ..begins(1000, rma, "put_signal") };
    played.write(put);
    played.write(ends(1500, rma, "put_signal"));
    played.write(GpuRecord { word: Some(128), ..begins(2000, wait, "signal_wait_until") });
    // Another thread's meanwhile, by a PE that is not mapped.
    let other = |r: GpuRecord| GpuRecord { place: ([0; 3], [7, 0, 0]), ..r };
    played.write(other(GpuRecord { bytes: 4, peer: Some(9), ..begins(2100, rma, "p") }));
    played.write(ends(5000, wait, "signal_wait_until"));
    played.write(other(ends(5100, rma, "p")));
    played.write(begins(6000, collective, "barrier"));
    let round = record(6100, RUSHMEM_TRACE_ROUND, collective, "");
    played.write(GpuRecord { word: Some(4096), last: 12, ..round });
    played.write(begins(6200, RUSHMEM_TRACE_ORDER, "quiet"));
    played.write(ends(6300, RUSHMEM_TRACE_ORDER, "quiet"));
    played.write(ends(7000, collective, "barrier"));
    let base = played.base;
    let counted = {
        played.trace.drain();
        played.timeline.counted(2).1
    };
    assert_eq!((counted.operations, counted.bytes, counted.ns), (1, 256, 500));
    let events = played.events(folder.path());
    let one = |name: &str| {
        let found = named(&events, name);
        assert_eq!(found.len(), 1, "{name}: {events:?}");
        found[0]
    };
    let (put, wait, p) = (one("put_signal"), one("signal_wait_until"), one("p"));
    assert_eq!((time(put), time(wait)), ((base + 1000, 500), (base + 2000, 3000)));
    assert_eq!(
        put["args"],
        serde_json::json!({"peer": 2, "path": "direct", "bytes": 256, "word": 64, "kernel": "talk",
                           "module": "talk.cu"})
    );
    assert_eq!((&wait["args"]["word"], &wait["cat"]), (&128.into(), &"wait".into()));
    assert_eq!((&p["args"]["path"], p["tid"] == put["tid"]), (&"net".into(), false));
    let (barrier, quiet) = (one("barrier"), one("quiet"));
    assert_eq!((&barrier["args"]["slots"], &barrier["args"]["phase"]), (&4096.into(), &12.into()));
    let ((a, d), (b, c)) = (time(barrier), time(quiet));
    assert!(a <= b && b + c <= a + d && quiet["tid"] == put["tid"] && quiet["args"]["phase"].is_null());
    let rows = named(&events, "thread_name");
    let row = |name: &str| rows.iter().any(|row| row["args"]["name"] == name);
    assert!(row("block (1,0,0), thread (0,2,0)") && row("block (0,0,0), thread (7,0,0)"), "{rows:?}");
    assert_eq!(one("rushmem_gpu_clock")["args"]["error_ns"], 500);
    assert!(named(&events, "rushmem_dropped").is_empty());
}

/// Launches that run at the same time have rows of their own, and later ones use them again.
#[test]
fn launches_side_by_side_do_not_share_a_row() {
    let folder = tempfile::tempdir().unwrap();
    let mut played = Played::new(folder.path());
    played.trace.module("many.cu", ["a", "b"].into_iter());
    let by = |launch: u16, r: GpuRecord| GpuRecord { launch, ..r };
    let wait = RUSHMEM_TRACE_WAIT;
    played.write(by(1, begins(0, wait, "wait_until")));
    played.write(by(2, begins(100, wait, "wait_until_any")));
    played.write(by(1, ends(200, wait, "wait_until")));
    played.write(by(2, ends(300, wait, "wait_until_any")));
    played.write(by(3, begins(400, wait, "wait_until_all")));
    played.write(by(3, ends(500, wait, "wait_until_all")));
    let events = played.events(folder.path());
    let tid = |name: &str| named(&events, name)[0]["tid"].as_u64().expect("a row");
    assert_ne!(tid("wait_until"), tid("wait_until_any"));
    assert_eq!(tid("wait_until"), tid("wait_until_all"));
    // Nobody has launched anything: it may be either.
    assert_eq!(named(&events, "wait_until")[0]["args"]["kernel"], "a or b");
}

/// A wait that a kernel was ended in is in the file, as long as it lasted; so is that records are missing.
#[test]
fn what_never_ends_and_what_is_lost_are_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut played = Played::new(folder.path());
    played.trace.module("hangs.cu", ["hangs"].into_iter());
    played.write(GpuRecord { word: Some(8), ..begins(0, RUSHMEM_TRACE_WAIT, "wait_until") });
    played.trace.drain();
    // Another thread's, far more than the ring has room for, before the host looks again.
    let rma = RUSHMEM_TRACE_RMA;
    let many = RUSHMEM_TRACE_SLOTS as u64 + 1000;
    {
        let _reading = lock(&played.trace.reading);
        let other = |r: GpuRecord| GpuRecord { place: ([0; 3], [0; 3]), ..r };
        for i in 0..many {
            write(&played.slots, 1 + 2 * i, &other(begins(10 + 2 * i, rma, "p")));
            write(&played.slots, 2 + 2 * i, &other(ends(11 + 2 * i, rma, "p")));
        }
    }
    let base = played.base;
    let events = played.events(folder.path());
    let wait = named(&events, "wait_until");
    // Long before the file was written: a beginning and an end, or a whole.
    let (first, last) = (wait[0], wait[wait.len() - 1]);
    let end = match last["ph"].as_str() {
        Some("X") => time(last).0 + time(last).1,
        _ => (last["ts"].as_f64().unwrap() * 1e3) as u64,
    };
    assert_eq!((first["ts"].as_f64().unwrap() * 1e3).round() as u64, base);
    assert!(end >= base + 1_000_000_000 && end <= now(), "{wait:?}");
    assert_eq!((&last["args"]["kernel"], &last["args"]["word"]), (&"hangs".into(), &8.into()));
    let dropped = named(&events, "rushmem_dropped").last().expect("a count")["args"]["events"].as_u64();
    let dropped = dropped.expect("a number");
    let written = named(&events, "p").len() as u64;
    assert!((written + dropped).abs_diff(many) <= 1, "{written} {dropped}");
    assert!(dropped >= 1000, "{dropped}");
}

#[test]
fn every_traced_call_of_the_headers_has_a_name_of_its_own() {
    assert_eq!(hash("foobar"), 0xbf9c_f968);
    let calls: usize = rushmem_device::HEADERS
        .iter()
        .filter(|(path, _)| !path.contains("/impl/"))
        .map(|(_, text)| text.matches("RUSHMEM_TRACED(").count())
        .sum();
    assert_eq!(traced_names().count(), calls);
    let distinct: std::collections::HashSet<&str> = traced_names().collect();
    assert_eq!(names().len(), distinct.len(), "two names have one hash");
    for known in ["put_signal", "signal_wait_until", "reduce", "sync_all", "p", "quiet"] {
        assert_eq!(names().get(&hash(known)), Some(&known));
    }
}
