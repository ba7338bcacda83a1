//! Timelines as another parser reads them: spans nest, and what a process leaves behind is whole.

use super::*;
use serde_json::Value;

fn create(folder: &Path) -> Arc<Trace> {
    Trace::create(&folder.join("out.json"), 3, "PE 3 (a test)").expect("a file in a fresh folder")
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
    std::thread::sleep(10 * PERIOD);
    let before = events(folder.path());
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
