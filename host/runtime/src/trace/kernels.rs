//! Calls in kernels, on the CPU device: each CUDA thread that makes one has a row of its own in the picture.

use std::collections::hash_map::Entry;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use rushmem_device_cpu::{Kernel, KernelCall, KernelCallKind, KernelTrace, Place};

use super::clock::now;
use super::event::{About, CodeLine, KernelCaller, TraceEvent};
use super::lock;
use super::timeline::{Timeline, TraceLane};

/// Rows of kernels' threads in a timeline: threads beyond them are not in it, and what they do is counted as
/// missing.
pub(super) const MOST_ROWS: usize = 4096;

/// What the row of a kernel's thread is called.
pub(super) fn row_name(([bx, by, bz], [tx, ty, tz]): Place) -> String {
    format!("block ({bx},{by},{bz}), thread ({tx},{ty},{tz})")
}

/// One launch.
pub(crate) struct LaunchTrace {
    trace: Arc<Timeline>,
    launcher: u32,
    kernel: Kernel,
    /// Where this PE's symmetric memory is, and up to which distance.
    heap: std::ops::Range<u64>,
    /// PEs that are mapped side by side with it.
    near: std::ops::Range<i32>,
    lanes: Mutex<HashMap<Place, Option<Arc<TraceLane>>>>,
}

impl LaunchTrace {
    /// A launch by this thread.
    pub(crate) fn new(
        trace: &Arc<Timeline>,
        kernel: &Kernel,
        heap: std::ops::Range<u64>,
        near: std::ops::Range<i32>,
    ) -> LaunchTrace {
        let launcher = trace.lane().tid;
        let (trace, kernel) = (Arc::clone(trace), kernel.clone());
        LaunchTrace { trace, launcher, kernel, heap, near, lanes: Mutex::default() }
    }

    fn lane(&self, place: Place) -> Option<Arc<TraceLane>> {
        match lock(&self.lanes).entry(place) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(new) => new.insert(self.row(place)).clone(),
        }
    }

    fn row(&self, place: Place) -> Option<Arc<TraceLane>> {
        let mut rows = lock(&self.trace.rows);
        let room = rows.len() < MOST_ROWS;
        match rows.entry((self.launcher, place)) {
            Entry::Occupied(known) => Some(Arc::clone(known.get())),
            Entry::Vacant(new) if room => Some(Arc::clone(new.insert(self.trace.new_lane(&row_name(place))))),
            Entry::Vacant(_) => None,
        }
    }
}

impl KernelTrace for LaunchTrace {
    fn begin(&self, thread: Place, call: &KernelCall<'_>) {
        let Some(lane) = self.lane(thread) else { return };
        let kind = match call.kind {
            KernelCallKind::Rma => "rma",
            KernelCallKind::Nbi => "nbi",
            KernelCallKind::Order => "order",
            KernelCallKind::Wait => "wait",
            KernelCallKind::Collective => "collective",
        };
        let offset = |at: u64| self.heap.contains(&at).then(|| at - self.heap.start);
        let about = About {
            peer: call.peer,
            path: call.peer.map(|pe| if self.near.contains(&pe) { "direct" } else { "net" }),
            bytes: (call.peer.is_some() || call.bytes > 0).then_some(call.bytes),
            word: call.word.and_then(offset),
            caller: Some(KernelCaller::Cpu(CodeLine { stack: call.stack, kernel: self.kernel.clone() })),
            ..About::default()
        };
        let event = TraceEvent { name: call.name.to_owned().into(), kind, start: now(), about };
        lock(&lane.spans).open.push((event, false));
    }

    fn round(&self, thread: Place, slots: u64, phase: u64) {
        let Some(lane) = self.lane(thread) else { return };
        if let Some((event, _)) = lock(&lane.spans).open.last_mut() {
            event.about.phase.get_or_insert((slots, phase));
        };
    }

    fn end(&self, thread: Place) {
        match self.lane(thread) {
            Some(lane) => lane.end_last(now()),
            None => self.trace.miss(1),
        }
    }
}

/// A launch that ends in the middle ends its threads' calls.
impl Drop for LaunchTrace {
    fn drop(&mut self) {
        let end = now();
        for lane in lock(&self.lanes).values().flatten() {
            while !lock(&lane.spans).open.is_empty() {
                lane.end_last(end);
            }
        }
    }
}
