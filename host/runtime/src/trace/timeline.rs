//! The file of a run that has a timeline (`RUSHMEM_TRACE`), in Chrome's format, which
//! <https://ui.perfetto.dev> shows.
//!
//! Each thread has a *lane* of its own, with a buffer that it alone writes to under a lock that nobody else
//! holds for long. A thread of the timeline's empties the buffers every few milliseconds into the file, which
//! is whole at each moment: a process that is killed leaves all but those milliseconds. A span that lasts
//! longer than that is written as a beginning and an end, so a wait in which a process dies is in the
//! picture. A buffer that is full drops what comes, and counts it.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use rushmem_device_cpu::Place;
use serde_json::json;

use super::clock::{now, Distance};
use super::counters::{PeerCounters, Tally};
use super::event::{naming, note, About, TraceEvent};
use super::file::{self, TraceFile};
use super::lock;
use crate::error::{Error, Result};

/// Rows of kernels' threads, by the row that launched and the place.
pub(super) type KernelRows = HashMap<(u32, Place), Arc<TraceLane>>;

/// Spans of one thread that may wait for being written.
const BUFFERED: usize = 1 << 16;
/// How often buffers are emptied.
const PERIOD: Duration = Duration::from_millis(10);
/// After how many of these times counters are written.
const COUNTERS_EVERY: u32 = 100;
/// Lines of counters in the log.
const MOST_LINES: usize = 64;

/// The timeline of one PE.
pub(crate) struct Timeline {
    pe: i32,
    /// Its number in the process.
    name: usize,
    who: String,
    /// What a stall is.
    stall: Option<Duration>,
    /// Whether spans are kept for a file.
    spans: bool,
    lanes: Mutex<Vec<Arc<TraceLane>>>,
    /// Those of kernels' threads.
    pub(super) rows: Mutex<KernelRows>,
    counters: Mutex<PeerCounters>,
    /// The network's count of retries by PE, where there is one.
    retries: OnceLock<Arc<[AtomicU64]>>,
    missed: AtomicU64,
    /// What others have written of their calls, and spans are made of now and then.
    sources: Mutex<Vec<Weak<dyn TraceSource>>>,
    file: Mutex<TraceFile>,
    writer: Mutex<Option<JoinHandle<()>>>,
    bell: (Mutex<bool>, Condvar),
}

/// Where calls are written before they are spans of a timeline.
pub(crate) trait TraceSource: Send + Sync {
    /// Makes spans of what is there.
    fn drain(&self);
    /// The same, of the last that there is; what has not ended by then never does.
    fn finish(&self);
}

/// The spans of one thread.
pub(super) struct TraceLane {
    pub(super) tid: u32,
    name: String,
    stall: Option<Duration>,
    keeps_spans: bool,
    pub(super) spans: Mutex<Spans>,
}

#[derive(Default)]
pub(super) struct Spans {
    /// Those that have begun, outermost first, and whether that has been written.
    pub(super) open: Vec<(TraceEvent, bool)>,
    /// Those that have ended, when, and whether their beginning has been written.
    ended: VecDeque<(TraceEvent, u64, bool)>,
    named: bool,
    dropped: u64,
    counters: PeerCounters,
}

thread_local! {
    /// This thread's lanes, by the traces' numbers.
    static OWN: RefCell<Vec<(usize, Weak<TraceLane>)>> = const { RefCell::new(Vec::new()) };
}

static NAMES: AtomicUsize = AtomicUsize::new(1);

impl Timeline {
    /// Of PE `pe`, described by `who`, in a file beside `given` that has its number in its name; without it
    /// calls are counted and leave no spans. What lasts as long as `stall` is counted as a stall.
    pub(crate) fn create(
        given: Option<&Path>,
        pe: i32,
        who: &str,
        stall: Option<Duration>,
    ) -> Result<Arc<Timeline>> {
        let path = given.map(|given| file::path_of(given, pe));
        let mut file = TraceFile::nowhere();
        if let Some(path) = &path {
            let failed = |e: std::io::Error| Error::io(format!("RUSHMEM_TRACE: {}", path.display()), &e);
            file = TraceFile::create(path).map_err(failed)?;
            file.add(&naming("process_name", who, (pe, 0)));
            file.add(&note("process_sort_index", json!({"sort_index": pe}), pe));
            file.write().map_err(failed)?;
        }
        let trace = Arc::new(Timeline {
            pe,
            name: NAMES.fetch_add(1, Ordering::Relaxed),
            who: who.to_owned(),
            stall,
            spans: file.is_there(),
            lanes: Mutex::default(),
            rows: Mutex::default(),
            counters: Mutex::default(),
            retries: OnceLock::new(),
            missed: AtomicU64::new(0),
            sources: Mutex::default(),
            file: Mutex::new(file),
            writer: Mutex::default(),
            bell: (Mutex::new(false), Condvar::new()),
        });
        let writer = {
            let trace = Arc::downgrade(&trace);
            let thread = std::thread::Builder::new().name("rushmem-trace".into());
            thread.spawn(move || write_on(&trace)).map_err(|e| Error::thread("the trace's thread", &e))?
        };
        *lock(&trace.writer) = Some(writer);
        if let Some(path) = path {
            log::info!("{who}: its timeline goes to {}", path.display());
        }
        Ok(trace)
    }

    /// Says how far this PE's clock is ahead of PE 0's.
    pub(crate) fn set_clock(&self, clock: u64, ahead: Option<Distance>) {
        let told = ahead.map(|d| json!({"ahead_ns": d.ahead_ns, "error_ns": d.error_ns, "clock": clock}));
        let told = told.unwrap_or_else(|| json!({"clock": clock}));
        lock(&self.file).add(&note("rushmem_clock", told, self.pe));
    }

    /// Says within which bound the times of this PE's kernels on a GPU are the host's.
    pub(super) fn set_gpu_clock(&self, error_ns: u64) {
        lock(&self.file).add(&note("rushmem_gpu_clock", json!({"error_ns": error_ns}), self.pe));
    }

    /// Counts the network's retries, too.
    pub(crate) fn count_retries(&self, by_pe: &Arc<[AtomicU64]>) {
        // A world has one network.
        let _ = self.retries.set(Arc::clone(by_pe));
    }

    /// What has been asked of `peer` so far, by the host and by kernels.
    pub(crate) fn counted(&self, peer: i32) -> (Tally, Tally) {
        self.write(false);
        let counters = lock(&self.counters);
        (counters.of(peer, false), counters.of(peer, true))
    }

    /// Begins a span on this thread, which ends when what is returned is dropped.
    pub(crate) fn span(
        self: &Arc<Self>,
        kind: &'static str,
        name: impl Into<Cow<'static, str>>,
        about: About,
    ) -> LaneSpan {
        let lane = self.lane();
        let event = TraceEvent { name: name.into(), kind, start: now(), about };
        lock(&lane.spans).open.push((event, false));
        LaneSpan { lane }
    }

    /// This thread's lane.
    pub(super) fn lane(&self) -> Arc<TraceLane> {
        let own = OWN.try_with(|own| {
            let own = &mut *own.borrow_mut();
            let known = own.iter().find(|(name, _)| *name == self.name).and_then(|(_, lane)| lane.upgrade());
            known.unwrap_or_else(|| {
                let thread = std::thread::current();
                let lane = self.new_lane(thread.name().unwrap_or("host"));
                own.retain(|(_, lane)| lane.strong_count() > 0);
                own.push((self.name, Arc::downgrade(&lane)));
                lane
            })
        });
        own.unwrap_or_else(|_| self.new_lane("exit handlers"))
    }

    pub(super) fn new_lane(&self, name: &str) -> Arc<TraceLane> {
        static THREADS: AtomicU32 = AtomicU32::new(1);
        let tid = THREADS.fetch_add(1, Ordering::Relaxed);
        let (name, stall, keeps_spans) = (name.to_owned(), self.stall, self.spans);
        let lane = Arc::new(TraceLane { tid, name, stall, keeps_spans, spans: Mutex::default() });
        lock(&self.lanes).push(Arc::clone(&lane));
        lane
    }

    /// So many spans that have no row.
    pub(super) fn miss(&self, spans: u64) {
        self.missed.fetch_add(spans, Ordering::Relaxed);
    }

    /// Whether spans are kept, for a file.
    pub(crate) fn keeps_spans(&self) -> bool {
        self.spans
    }

    /// From now on takes what `source` has, as long as that lives.
    pub(super) fn take_from(&self, source: &Arc<dyn TraceSource>) {
        lock(&self.sources).push(Arc::downgrade(source));
    }

    fn sources(&self) -> Vec<Arc<dyn TraceSource>> {
        lock(&self.sources).iter().filter_map(Weak::upgrade).collect()
    }

    /// Writes all that is there.
    pub(crate) fn flush(&self) {
        self.write(true);
    }

    fn write(&self, counters: bool) {
        self.sources().iter().for_each(|source| source.drain());
        let mut file = lock(&self.file);
        let lost = file.told;
        file.dropped += self.missed.swap(0, Ordering::Relaxed);
        for lane in lock(&self.lanes).iter() {
            let counted = lane.write(self.pe, &mut file);
            lock(&self.counters).add(counted);
        }
        if counters {
            let mut known = lock(&self.counters);
            for (pe, retries) in self.retries.get().into_iter().flat_map(|by_pe| by_pe.iter().enumerate()) {
                match retries.load(Ordering::Relaxed) {
                    0 => {}
                    retries => known.retried(pe as i32, retries),
                }
            }
            known.changes(self.pe).iter().for_each(|event| file.add(event));
        }
        if file.dropped > lost {
            file.told = file.dropped;
            let dropped = note("rushmem_dropped", json!({"events": file.dropped}), self.pe);
            file.add(&dropped);
        }
        static TOLD: AtomicBool = AtomicBool::new(false);
        if let Err(e) = file.write() {
            if !TOLD.swap(true, Ordering::Relaxed) {
                log::warn!("PE {}: its timeline cannot be written: {e}", self.pe);
            }
        }
    }

    /// The end of the timeline.
    pub(crate) fn close(&self) {
        *lock(&self.bell.0) = true;
        self.bell.1.notify_all();
        if let Some(writer) = lock(&self.writer).take() {
            // A panic of the writer's was reported when it happened.
            let _ = writer.join();
        }
        self.sources().iter().for_each(|source| source.finish());
        self.flush();
        let lines = lock(&self.counters).lines();
        lines.iter().take(MOST_LINES).for_each(|line| log::info!("{}: {line}", self.who));
        if lines.len() > MOST_LINES {
            log::info!("{}: rushmem-info --trace has {} more", self.who, lines.len() - MOST_LINES);
        }
    }
}

/// Writes now and then until the trace is closed.
fn write_on(trace: &Weak<Timeline>) {
    for turn in 1.. {
        let Some(trace) = trace.upgrade() else { return };
        trace.write(turn % COUNTERS_EVERY == 0);
        let closed = lock(&trace.bell.0);
        let closed = trace.bell.1.wait_timeout(closed, PERIOD).unwrap_or_else(PoisonError::into_inner).0;
        if *closed {
            return;
        }
    }
}

impl TraceLane {
    /// The innermost span has ended.
    pub(super) fn end_last(&self, end: u64) {
        let mut spans = lock(&self.spans);
        let Some((event, told)) = spans.open.pop() else { return };
        if spans.open.is_empty() {
            spans.counters.count(&event, end, self.stall);
        }
        if !self.keeps_spans {
            return;
        }
        // An end whose beginning is written belongs to it.
        if spans.ended.len() < BUFFERED || told {
            spans.ended.push_back((event, end, told));
        } else {
            spans.dropped += 1;
        }
    }

    /// What has happened goes to the file; what was counted meanwhile.
    fn write(&self, pe: i32, file: &mut TraceFile) -> PeerCounters {
        let (named, ended, begun, dropped, counted) = {
            let mut spans = lock(&self.spans);
            let named = std::mem::replace(&mut spans.named, true);
            let ended = std::mem::take(&mut spans.ended);
            let old = now().saturating_sub(PERIOD.as_nanos() as u64);
            let new = spans.open.iter_mut().filter(|(event, told)| !told && event.start < old);
            let begun: Vec<TraceEvent> = new
                .map(|(event, told)| {
                    *told = true;
                    event.clone()
                })
                .collect();
            (named, ended, begun, std::mem::take(&mut spans.dropped), std::mem::take(&mut spans.counters))
        };
        let at = (pe, self.tid);
        if !named {
            file.add(&naming("thread_name", &self.name, at));
        }
        for (event, end, told) in &ended {
            file.add(&if *told { event.end(*end, at) } else { event.complete(*end, at) });
        }
        for event in &begun {
            file.add(&event.beginning(at));
        }
        file.dropped += dropped;
        counted
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        self.flush();
    }
}

/// A span that has begun; dropping it ends it.
pub(crate) struct LaneSpan {
    lane: Arc<TraceLane>,
}

impl Drop for LaneSpan {
    fn drop(&mut self) {
        self.lane.end_last(now());
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
