//! Timelines as another parser reads them: spans nest, and what a process leaves behind is whole.

use super::*;
use serde_json::Value;

fn create(folder: &Path) -> Arc<Timeline> {
    Timeline::create(Some(&folder.join("out.json")), 3, "PE 3 (a test)", Some(Duration::from_millis(50)))
        .expect("a file in a fresh folder")
}

fn events(folder: &Path) -> Vec<Value> {
    let file = std::fs::read_dir(folder).expect("the folder").next().expect("a file").expect("its entry");
    let text = std::fs::read_to_string(file.path()).expect("the file");
    let value: Value = serde_json::from_str(&text).expect("JSON at each moment");
    value["traceEvents"].as_array().expect("events").clone()
}

fn named<'a>(events: &'a [Value], name: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["name"] == name).collect()
}

#[test]
fn spans_are_whole_and_nest() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = create(folder.path());
    {
        let _outer = trace.span("order", "outer", About { peer: Some(7), ..About::default() });
        let _inner = trace.span("order", "inner", About { bytes: Some(8), ..About::default() });
    }
    trace.close();
    let events = events(folder.path());
    let (outer, inner) = (named(&events, "outer")[0], named(&events, "inner")[0]);
    let time = |event: &Value| {
        let start = event["ts"].as_f64().expect("a time");
        (start, start + event["dur"].as_f64().expect("a length"))
    };
    let ((a, d), (b, c)) = (time(outer), time(inner));
    assert!(a <= b && c <= d, "{a} {b} {c} {d}");
    assert_eq!((&outer["args"]["peer"], &inner["args"]["bytes"]), (&7.into(), &8.into()));
    assert!(outer["tid"] == inner["tid"] && outer["pid"] == 3);
}

#[test]
fn a_span_that_lasts_is_in_the_file_before_it_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = create(folder.path());
    let span = trace.span("wait", "long", About::default());
    let start = std::time::Instant::now();
    let before = loop {
        std::thread::sleep(10 * PERIOD);
        let before = events(folder.path());
        if !named(&before, "long").is_empty() || start.elapsed() > Duration::from_secs(60) {
            break before;
        }
    };
    assert_eq!(named(&before, "long")[0]["ph"], "B");
    drop(span);
    trace.close();
    let after = events(folder.path());
    let phases: Vec<&Value> = named(&after, "long").iter().map(|event| &event["ph"]).collect();
    assert_eq!(phases, ["B", "E"]);
}

#[test]
fn a_full_buffer_drops_and_counts() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = create(folder.path());
    let more = 1000;
    {
        // Nobody empties the buffers meanwhile.
        let _file = lock(&trace.file);
        for _ in 0..BUFFERED + more {
            drop(trace.span("rma", "p", About::default()));
        }
    }
    trace.close();
    let events = events(folder.path());
    let written = named(&events, "p").len();
    let dropped = named(&events, "rushmem_dropped").last().expect("a count")["args"]["events"].as_u64();
    assert_eq!(written as u64 + dropped.expect("a number"), (BUFFERED + more) as u64);
    assert!(written <= BUFFERED + 1);
}

/// The last counters of each row.
fn counted(events: &[Value]) -> Vec<(Value, u64, u64, u64)> {
    let mut rows: Vec<(Value, u64, u64, u64)> = Vec::new();
    for args in named(events, "rushmem_counters").into_iter().map(|event| &event["args"]) {
        assert_eq!(args["by"], "host");
        let number = |name: &str| args[name].as_u64().expect("a number");
        rows.retain(|row| row.0 != args["peer"]);
        rows.push((args["peer"].clone(), number("operations"), number("bytes"), number("stalls")));
    }
    rows
}

#[test]
fn the_outermost_span_of_each_peer_is_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = create(folder.path());
    let about = |peer, bytes| About { peer: Some(peer), bytes: Some(bytes), ..About::default() };
    for bytes in [8, 100] {
        let _outer = trace.span("rma", "put", about(7, bytes));
        let _inner = trace.span("rma", "put", about(7, 1000));
    }
    drop(trace.span("rma", "get", about(2, 1)));
    trace.flush();
    drop(trace.span("order", "quiet", About::default()));
    drop(trace.span("rma", "get", about(2, 1)));
    {
        let _wait = trace.span("wait", "wait_until", About::default());
        std::thread::sleep(Duration::from_millis(60));
    }
    trace.close();
    let wanted = [(7.into(), 2, 108, 0), (Value::Null, 1, 0, 1), (2.into(), 2, 2, 0)];
    let counted = counted(&events(folder.path()));
    assert!(counted.len() == 3 && wanted.iter().all(|row| counted.contains(row)), "{counted:?}");
}
