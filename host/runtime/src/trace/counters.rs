//! Counters of a traced run: what this PE has asked each other one for, and what it has waited, from its host
//! and streams, and from its kernels. Of spans within others the outermost counts.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{json, Value};

use super::event::{note, TraceEvent};

/// What is counted for one peer, or (without one) of waits and collective calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
    pub(crate) ns: u64,
    /// Of them, those that lasted as long as a stall report takes.
    pub(crate) stalls: u64,
    /// Of operations on a far PE: those that found too much under way, and were tried again.
    pub(crate) retries: u64,
}

/// Of whom: a peer, and whether kernels asked it.
type Row = (Option<i32>, bool);

#[derive(Debug, Default)]
pub(crate) struct PeerCounters {
    rows: BTreeMap<Row, (Tally, bool)>,
}

impl PeerCounters {
    /// Counts a span that has ended.
    pub(crate) fn count(&mut self, event: &TraceEvent, end: u64, stall: Option<Duration>) {
        // What is put on a CPU stream counts when the stream carries it out.
        let about_pe = event.about.peer.is_some() && event.kind != "enqueue";
        if !about_pe && !matches!(event.kind, "wait" | "collective") {
            return;
        }
        let (tally, changed) = self.rows.entry((event.about.peer, event.about.caller.is_some())).or_default();
        let ns = end.saturating_sub(event.start);
        tally.operations += 1;
        tally.bytes += event.about.bytes.unwrap_or(0);
        tally.ns += ns;
        tally.stalls += u64::from(stall.is_some_and(|stall| u128::from(ns) >= stall.as_nanos()));
        *changed = true;
    }

    /// So many operations on PE `peer` were tried again so far.
    pub(crate) fn retried(&mut self, peer: i32, retries: u64) {
        let (tally, changed) = self.rows.entry((Some(peer), false)).or_default();
        *changed |= tally.retries != retries;
        tally.retries = retries;
    }

    /// What has been asked of `peer`, by kernels or by the host.
    pub(crate) fn of(&self, peer: i32, kernels: bool) -> Tally {
        self.rows.get(&(Some(peer), kernels)).map(|(tally, _)| *tally).unwrap_or_default()
    }

    /// Adds what another has counted.
    pub(crate) fn add(&mut self, other: PeerCounters) {
        for (row, (more, _)) in other.rows {
            let (tally, changed) = self.rows.entry(row).or_default();
            tally.operations += more.operations;
            tally.bytes += more.bytes;
            tally.ns += more.ns;
            tally.stalls += more.stalls;
            *changed = true;
        }
    }

    /// An event for each row that has changed since the last time: readers take the last one of a row.
    pub(crate) fn changes(&mut self, pe: i32) -> Vec<Value> {
        let rows = self.rows.iter_mut().filter_map(|(row, (tally, changed))| {
            std::mem::take(changed).then(|| {
                let (peer, by) = (row.0, if row.1 { "kernels" } else { "host" });
                let Tally { operations, bytes, ns, stalls, retries } = *tally;
                let args = json!({"peer": peer, "by": by, "operations": operations, "bytes": bytes, "ns": ns,
                                  "stalls": stalls, "retries": retries});
                note("rushmem_counters", args, pe)
            })
        });
        rows.collect()
    }

    /// A line for each row.
    pub(crate) fn lines(&self) -> Vec<String> {
        let line = |((peer, kernels), (tally, _)): (&Row, &(Tally, bool))| {
            let by = if *kernels { "its kernels" } else { "its host" };
            let Tally { operations, bytes, ns, stalls, retries } = *tally;
            let ms = ns as f64 / 1e6;
            match peer {
                Some(peer) => format!(
                    "{by} asked PE {peer} {operations} times, for {bytes} bytes, {ms:.3} ms in all; \
                     {stalls} stalls, {retries} retries"
                ),
                None => format!("{by} waited {operations} times, {ms:.3} ms in all; {stalls} stalls"),
            }
        };
        self.rows.iter().map(line).collect()
    }
}
