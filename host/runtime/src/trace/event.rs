//! What a timeline is made of: spans, each with what it was about, as events of Chrome's format ("Trace Event
//! Format", which Perfetto reads, too). Times are in microseconds there.

use std::borrow::Cow;
use std::sync::Arc;

use rushmem_device_cpu::{Kernel, TRACED_DEPTH};
use serde_json::{json, Map, Value};

/// What a span is about: what is absent is not written.
#[derive(Debug, Clone, Default)]
pub(crate) struct About {
    /// The PE that is asked.
    pub(crate) peer: Option<i32>,
    /// How that PE is reached.
    pub(crate) path: Option<&'static str>,
    /// What is moved.
    pub(crate) bytes: Option<u64>,
    /// The word that is waited for, or that tells `peer` of the data: an offset in its heap.
    pub(crate) word: Option<u64>,
    /// A round of collective calls: the team, and its number.
    pub(crate) round: Option<(u64, u64)>,
    /// The grid of a launch and its blocks.
    pub(crate) shape: Option<([u32; 3], [u32; 3])>,
    /// A collective call of a kernel's: its slot set, an offset in the heap, or 0 for all PEs; and its phase.
    pub(crate) phase: Option<(u64, u64)>,
    /// The kernel that makes it.
    pub(crate) caller: Option<KernelCaller>,
}

/// A kernel that makes a call.
#[derive(Debug, Clone)]
pub(crate) enum KernelCaller {
    /// On the CPU device: at that line.
    Cpu(CodeLine),
    /// On a GPU: which of a module's.
    Gpu { kernel: Arc<str>, module: Arc<str> },
}

/// A line of a kernel, which is looked up when it is written.
#[derive(Clone)]
pub(crate) struct CodeLine {
    pub(crate) stack: [usize; TRACED_DEPTH],
    pub(crate) kernel: Kernel,
}

impl std::fmt::Debug for CodeLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.kernel.name())
    }
}

/// A span: something that has a beginning and an end on one thread.
#[derive(Debug, Clone)]
pub(crate) struct TraceEvent {
    pub(crate) name: Cow<'static, str>,
    /// Its category, by which viewers filter.
    pub(crate) kind: &'static str,
    pub(crate) start: u64,
    pub(crate) about: About,
}

fn microseconds(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

impl About {
    fn to_json(&self) -> Value {
        let mut args = Map::new();
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                args.insert(name.to_owned(), value);
            }
        };
        put("peer", self.peer.map(Value::from));
        put("path", self.path.map(Value::from));
        put("bytes", self.bytes.map(Value::from));
        put("word", self.word.map(Value::from));
        put("team", self.round.map(|(team, _)| team.into()));
        put("round", self.round.map(|(_, round)| round.into()));
        put("grid", self.shape.map(|(grid, _)| grid.to_vec().into()));
        put("block", self.shape.map(|(_, block)| block.to_vec().into()));
        put("slots", self.phase.map(|(slots, _)| slots.into()));
        put("phase", self.phase.map(|(_, phase)| phase.into()));
        match &self.caller {
            None => {}
            Some(KernelCaller::Cpu(line)) => {
                put("kernel", Some(line.kernel.name().into()));
                put("line", line.kernel.line_of(&line.stack).map(Value::from));
            }
            Some(KernelCaller::Gpu { kernel, module }) => {
                put("kernel", Some((**kernel).into()));
                put("module", Some((**module).into()));
            }
        }
        Value::Object(args)
    }
}

impl TraceEvent {
    fn json(&self, phase: &str, (pid, tid): (i32, u32)) -> Value {
        json!({
            "ph": phase, "pid": pid, "tid": tid, "ts": microseconds(self.start), "name": self.name,
            "cat": self.kind, "args": self.about.to_json(),
        })
    }

    /// The whole span.
    pub(crate) fn complete(&self, end: u64, at: (i32, u32)) -> Value {
        let mut value = self.json("X", at);
        value["dur"] = json!(microseconds(end.saturating_sub(self.start)));
        value
    }

    /// That it has begun: its end comes later, or never.
    pub(crate) fn beginning(&self, at: (i32, u32)) -> Value {
        self.json("B", at)
    }

    /// The end of one whose beginning has been written.
    pub(crate) fn end(&self, end: u64, at: (i32, u32)) -> Value {
        let mut value = self.json("E", at);
        value["ts"] = json!(microseconds(end));
        value
    }
}

/// The name of a process or of a thread.
pub(crate) fn naming(what: &str, name: &str, (pid, tid): (i32, u32)) -> Value {
    json!({"ph": "M", "pid": pid, "tid": tid, "name": what, "args": {"name": name}})
}

/// Anything else that readers of the file should know of this PE.
pub(crate) fn note(what: &str, args: Value, pid: i32) -> Value {
    json!({"ph": "M", "pid": pid, "tid": 0, "name": what, "args": args})
}
