//! Files of timelines. A file whose process was killed while it wrote is read as far as it goes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// What one PE did.
pub(crate) struct Timeline {
    pub(crate) pe: i64,
    /// `PE 2 (host gpu01, pid 4711)`.
    pub(crate) who: String,
    /// How far its clock is ahead of PE 0's; `None` where that is not known.
    pub(crate) clock: Option<Clock>,
    /// Within which bound, in nanoseconds, times in its kernels are by that clock: 0 on the CPU device.
    pub(crate) gpu_error_ns: u64,
    /// By PE 0's clock.
    pub(crate) spans: Vec<Span>,
    /// What it has asked each PE for.
    pub(crate) counters: Vec<Counters>,
    /// What is to be known of the file.
    pub(crate) notes: Vec<String>,
    /// All events, as they are.
    pub(crate) events: Vec<Value>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    pub(crate) ahead_ns: i64,
    pub(crate) error_ns: u64,
}

/// What a PE has asked another one for, or (without a peer) how it has waited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) peer: Option<i64>,
    /// `host` or `kernels`.
    pub(crate) by: String,
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
    pub(crate) ns: u64,
    pub(crate) stalls: u64,
    pub(crate) retries: u64,
}

/// A round of collective calls: of the host's, by team and number; of kernels', by slot set (0: of all PEs)
/// and phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Round {
    Host { team: u64, number: u64 },
    Kernels { slots: u64, phase: u64 },
}

/// Something that a thread of a PE did.
#[derive(Debug)]
pub(crate) struct Span {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) thread: String,
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// Else the process ended first.
    pub(crate) has_ended: bool,
    pub(crate) peer: Option<i64>,
    /// Over a network: what it did came later than its end.
    pub(crate) is_far: bool,
    pub(crate) word: Option<u64>,
    pub(crate) round: Option<Round>,
    /// Of a kernel's: its name, and the line, where that is known.
    pub(crate) kernel: Option<(String, Option<String>)>,
}

/// The timelines of all these files, or of those that belong to a name that a run was given.
pub(crate) fn all(files: &[PathBuf]) -> Result<Vec<Timeline>, String> {
    let mut paths = Vec::new();
    for file in files {
        match file.exists() {
            true => paths.push(file.clone()),
            false => paths.extend(parts(file)?),
        }
    }
    let mut timelines = Vec::new();
    for path in &paths {
        timelines.extend(one(path).map_err(|why| format!("{}: {why}", path.display()))?);
    }
    timelines.sort_by_key(|timeline| timeline.pe);
    match timelines.windows(2).find(|two| two[0].pe == two[1].pe) {
        Some(two) => Err(format!("there are two timelines of PE {}: give those of one run", two[0].pe)),
        None => Ok(timelines),
    }
}

/// `out.0.json`, `out.1.json` and so on, of `out.json`.
fn parts(given: &Path) -> Result<Vec<PathBuf>, String> {
    let name = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let (stem, extension) = (name(given.file_stem()), name(given.extension()));
    let folder = given.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let is_part = |path: &PathBuf| {
        let number = name(path.file_name());
        let number = number.strip_prefix(&format!("{stem}.")).map(str::to_owned);
        let number = number.and_then(|n| n.strip_suffix(&format!(".{extension}")).map(str::to_owned));
        number.is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let parts: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_part).collect();
    if parts.is_empty() {
        return Err(format!(
            "{}: there is no such file, nor one of a PE's ({stem}.0.{extension}): was RUSHMEM_TRACE set?",
            given.display()
        ));
    }
    Ok(parts)
}

/// The timelines of one file: of one PE, or several that were merged.
fn one(path: &Path) -> Result<Vec<Timeline>, String> {
    let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    let (events, cut) = events(&text)?;
    let mut of: BTreeMap<i64, Vec<Value>> = BTreeMap::new();
    for (i, event) in events.into_iter().enumerate() {
        let pe =
            event["pid"].as_i64().ok_or_else(|| format!("event {i} has no number of a process (pid)"))?;
        of.entry(pe).or_default().push(event);
    }
    let timelines: Result<Vec<Timeline>, String> = of.into_iter().map(|(pe, e)| timeline(pe, e)).collect();
    let mut timelines = timelines?;
    if timelines.is_empty() {
        return Err("it has no events".to_owned());
    }
    for timeline in timelines.iter_mut().filter(|_| cut) {
        timeline.notes.push(format!("{} is cut: its process ended while it wrote", path.display()));
    }
    Ok(timelines)
}

/// The events of a file, and whether its end is missing.
fn events(text: &str) -> Result<(Vec<Value>, bool), String> {
    match serde_json::from_str::<Value>(text) {
        Ok(mut value) => match value["traceEvents"].take() {
            Value::Array(events) => Ok((events, false)),
            _ => Err("it is JSON, but no timeline: it has no traceEvents".to_owned()),
        },
        Err(e) => {
            // One event a line, as the runtime writes them.
            let mut lines = text.lines();
            if !lines.next().is_some_and(|head| head.contains("\"traceEvents\":[")) {
                return Err(format!("it is no timeline, and no JSON: {e}"));
            }
            let line = |line: &str| serde_json::from_str(line.trim_end_matches(',')).ok();
            Ok((lines.map_while(line).collect(), true))
        }
    }
}

fn timeline(pe: i64, events: Vec<Value>) -> Result<Timeline, String> {
    let meta = |name: &str| events.iter().rev().find(|event| event["ph"] == "M" && event["name"] == name);
    let who = meta("process_name").and_then(|event| event["args"]["name"].as_str());
    let who = who.map_or_else(|| format!("PE {pe}"), str::to_owned);
    let clock = meta("rushmem_clock").and_then(|event| {
        let (ahead, error) = (event["args"]["ahead_ns"].as_i64(), event["args"]["error_ns"].as_u64());
        Some(Clock { ahead_ns: ahead?, error_ns: error? })
    });
    let mut notes = Vec::new();
    if let Some(dropped) = meta("rushmem_dropped").and_then(|event| event["args"]["events"].as_u64()) {
        notes.push(format!("{dropped} spans are missing: they came faster than they were written"));
    }
    let gpu_error = meta("rushmem_gpu_clock").and_then(|event| event["args"]["error_ns"].as_u64());
    if let Some(error) = gpu_error {
        notes.push(format!("times in kernels on its GPU are within {} of its own", super::time(error)));
    }
    let threads: BTreeMap<i64, String> = events
        .iter()
        .filter(|event| event["name"] == "thread_name")
        .filter_map(|event| Some((event["tid"].as_i64()?, event["args"]["name"].as_str()?.to_owned())))
        .collect();
    let ahead = clock.map_or(0, |clock| clock.ahead_ns);
    let nanos = |value: &Value| value.as_f64().map(|us| (us * 1e3).round() as i64);
    let (mut spans, mut open, mut last) = (Vec::new(), BTreeMap::<i64, Vec<Span>>::new(), i64::MIN);
    for (i, event) in events.iter().enumerate() {
        let phase = event["ph"].as_str().unwrap_or_default();
        if !matches!(phase, "X" | "B" | "E") {
            continue;
        }
        let tid = event["tid"].as_i64().unwrap_or_default();
        let start =
            nanos(&event["ts"]).ok_or_else(|| format!("event {i} of PE {pe} has no time (ts)"))? - ahead;
        if phase == "E" {
            let mut span = open.get_mut(&tid).and_then(Vec::pop).ok_or_else(|| {
                format!("event {i} of PE {pe} is the end of something that has no beginning")
            })?;
            (span.end, span.has_ended, last) = (start, true, last.max(start));
            // A kernel learns its phase when the call has begun.
            span.round = span.round.or_else(|| round(&event["args"]));
            spans.push(span);
            continue;
        }
        let (args, text) = (&event["args"], |value: &Value| value.as_str().unwrap_or_default().to_owned());
        let end = start + nanos(&event["dur"]).unwrap_or(0);
        last = last.max(end);
        let span = Span {
            name: text(&event["name"]),
            kind: text(&event["cat"]),
            thread: threads.get(&tid).cloned().unwrap_or_else(|| format!("thread {tid}")),
            start,
            end,
            has_ended: phase == "X",
            peer: args["peer"].as_i64(),
            is_far: args["path"] == "net",
            word: args["word"].as_u64(),
            round: round(args),
            kernel: args["kernel"]
                .as_str()
                .map(|name| (name.to_owned(), args["line"].as_str().map(str::to_owned))),
        };
        match phase {
            "X" => spans.push(span),
            _ => open.entry(tid).or_default().push(span),
        }
    }
    // What the process died in lasted to its end, as far as that is known.
    spans.extend(open.into_values().flatten().map(|span| Span { end: last, ..span }));
    let counters = counters(&events);
    let gpu_error_ns = gpu_error.unwrap_or(0);
    Ok(Timeline { pe, who, clock, gpu_error_ns, spans, counters, notes, events })
}

fn round(args: &Value) -> Option<Round> {
    let pair = |a: &str, b: &str| args[a].as_u64().zip(args[b].as_u64());
    let host = pair("team", "round").map(|(team, number)| Round::Host { team, number });
    host.or_else(|| pair("slots", "phase").map(|(slots, phase)| Round::Kernels { slots, phase }))
}

/// The last of each row.
fn counters(events: &[Value]) -> Vec<Counters> {
    let mut rows: Vec<Counters> = Vec::new();
    for args in events.iter().filter(|event| event["name"] == "rushmem_counters").map(|event| &event["args"])
    {
        let number = |name: &str| args[name].as_u64().unwrap_or(0);
        let by = args["by"].as_str().unwrap_or_default().to_owned();
        let peer = args["peer"].as_i64();
        rows.retain(|row| (row.peer, &row.by) != (peer, &by));
        rows.push(Counters {
            peer,
            by,
            operations: number("operations"),
            bytes: number("bytes"),
            ns: number("ns"),
            stalls: number("stalls"),
            retries: number("retries"),
        });
    }
    rows
}
