//! Calls in kernels on a GPU: what they write to their ring ([`ring`](super::ring)) becomes spans. Each CUDA
//! thread that makes a call has a row of its own in the picture, as on the CPU device; threads of launches
//! that run at the same time have different ones.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock};

use rushmem_abi::device::{
    RUSHMEM_TRACE_BEGIN, RUSHMEM_TRACE_COLLECTIVE, RUSHMEM_TRACE_END, RUSHMEM_TRACE_NBI, RUSHMEM_TRACE_ORDER,
    RUSHMEM_TRACE_RMA, RUSHMEM_TRACE_WAIT,
};
use rushmem_device_cpu::Place;

use super::clock::now;
use super::event::{About, KernelCaller, TraceEvent};
use super::gpu_clock::{GpuClock, Reading};
use super::kernels::{row_name, MOST_ROWS};
use super::lock;
use super::ring::{GpuRecord, RingReader};
use super::timeline::{Timeline, TraceLane, TraceSource};

/// Shapes of launches of one module that are kept apart.
const MOST_SHAPES: usize = 1024;

/// What the kernels of one PE on a GPU write.
pub(crate) struct GpuTrace {
    timeline: Arc<Timeline>,
    /// PEs that are mapped side by side with it.
    near: std::ops::Range<i32>,
    /// The ring, which kernels write to meanwhile.
    slots: Box<dyn AsRef<[AtomicU64]> + Send + Sync>,
    reading: Mutex<GpuReading>,
}

#[derive(Default)]
struct GpuReading {
    reader: RingReader,
    clock: GpuClock,
    modules: Vec<TracedModule>,
    rows: HashMap<Place, Vec<GpuRow>>,
    n_rows: usize,
    /// How many of the reader's lost records the timeline knows of.
    lost: u64,
}

/// A module that has the hooks.
struct TracedModule {
    name: Arc<str>,
    kernels: Vec<Arc<str>>,
    /// Which were launched, in which shapes.
    launches: Vec<(u64, Arc<str>)>,
}

/// A row of the picture.
struct GpuRow {
    lane: Arc<TraceLane>,
    /// Whose it is: module and launch.
    of: (u16, u16),
    /// Calls that have begun, by their names' hashes.
    open: Vec<u32>,
    /// When something last happened here, by the host's clock.
    latest: u64,
}

impl GpuTrace {
    /// Of a PE that has `timeline`; its kernels write to `slots`, which are empty.
    pub(crate) fn new(
        timeline: &Arc<Timeline>,
        near: std::ops::Range<i32>,
        slots: Box<dyn AsRef<[AtomicU64]> + Send + Sync>,
    ) -> Arc<GpuTrace> {
        let timeline = Arc::clone(timeline);
        let trace = Arc::new(GpuTrace { timeline, near, slots, reading: Mutex::default() });
        let source: Arc<dyn TraceSource> = Arc::<GpuTrace>::clone(&trace);
        trace.timeline.take_from(&source);
        trace
    }

    /// A module with those kernels, before any of them runs: its number. None where no number is left.
    pub(crate) fn module<'a>(&self, name: &str, kernels: impl Iterator<Item = &'a str>) -> Option<u16> {
        let mut reading = lock(&self.reading);
        let number = u16::try_from(reading.modules.len()).ok()?;
        let kernels = kernels.map(Arc::from).collect();
        reading.modules.push(TracedModule { name: Arc::from(name), kernels, launches: Vec::new() });
        Some(number)
    }

    /// A kernel of module `number` is about to be launched in that shape.
    pub(crate) fn launch(&self, number: u16, kernel: &str, grid: [u32; 3], block: [u32; 3]) {
        let mut reading = lock(&self.reading);
        let Some(module) = reading.modules.get_mut(usize::from(number)) else { return };
        let shape = shape(grid, block);
        let is_known = module.launches.iter().any(|(known, name)| *known == shape && **name == *kernel);
        if !is_known && module.launches.len() < MOST_SHAPES {
            module.launches.push((shape, Arc::from(kernel)));
        }
    }

    /// The GPU's clock was read.
    pub(crate) fn meet(&self, readings: &[Reading]) {
        let error = {
            let mut reading = lock(&self.reading);
            reading.clock.meet(readings);
            reading.clock.error()
        };
        if let Some(error) = error {
            self.timeline.set_gpu_clock(error);
        }
    }

    /// What is there goes to the file.
    pub(crate) fn flush(&self) {
        self.timeline.flush();
    }

    fn take(&self, last: bool) {
        let mut reading = lock(&self.reading);
        let mut reader = std::mem::take(&mut reading.reader);
        let slots = (*self.slots).as_ref();
        reader.read(slots, now(), last, |record| reading.note(&record, now(), &self.timeline, &self.near));
        // A span is two records.
        let lost = reader.lost.div_ceil(2);
        self.timeline.miss(lost - reading.lost);
        (reading.lost, reading.reader) = (lost, reader);
    }
}

impl TraceSource for GpuTrace {
    fn drain(&self) {
        self.take(false);
    }

    fn finish(&self) {
        self.take(true);
        let (mut reading, end) = (lock(&self.reading), now());
        for row in reading.rows.values_mut().flatten() {
            while row.open.pop().is_some() {
                row.lane.end_last(end);
            }
        }
    }
}

impl GpuReading {
    fn note(&mut self, record: &GpuRecord, now: u64, timeline: &Arc<Timeline>, near: &std::ops::Range<i32>) {
        let time = self.clock.host_time(record.time, now);
        match record.event {
            RUSHMEM_TRACE_BEGIN => self.begin(record, time, timeline, near),
            RUSHMEM_TRACE_END => self.end(record, time),
            _ => self.round(record),
        }
    }

    fn begin(
        &mut self,
        record: &GpuRecord,
        time: u64,
        timeline: &Arc<Timeline>,
        near: &std::ops::Range<i32>,
    ) {
        let kind = match record.kind {
            RUSHMEM_TRACE_RMA => "rma",
            RUSHMEM_TRACE_NBI => "nbi",
            RUSHMEM_TRACE_ORDER => "order",
            RUSHMEM_TRACE_WAIT => "wait",
            _ => "collective",
        };
        let module = self.modules.get(usize::from(record.module));
        let caller =
            module.map(|m| KernelCaller::Gpu { kernel: m.kernel(record.last), module: Arc::clone(&m.name) });
        let about = About {
            peer: record.peer,
            path: record.peer.map(|pe| if near.contains(&pe) { "direct" } else { "net" }),
            bytes: (record.peer.is_some() || record.bytes > 0).then_some(record.bytes),
            word: record.word,
            caller,
            ..About::default()
        };
        let Some(row) = self.row(record, time, timeline) else { return timeline.miss(1) };
        row.latest = row.latest.max(time);
        row.open.push(record.name);
        let name = names().get(&record.name).copied().unwrap_or("call");
        let event = TraceEvent { name: name.into(), kind, start: row.latest, about };
        lock(&row.lane.spans).open.push((event, false));
    }

    /// The row for a call that begins.
    fn row(&mut self, record: &GpuRecord, time: u64, timeline: &Arc<Timeline>) -> Option<&mut GpuRow> {
        let of = (record.module, record.launch);
        let rows = self.rows.entry(record.place).or_default();
        let free = |row: &GpuRow| row.open.is_empty() && row.latest <= time;
        let at = rows.iter().position(|row| row.of == of && !row.open.is_empty());
        let at = at.or_else(|| rows.iter().position(|row| row.of == of));
        let at = match at.or_else(|| rows.iter().position(free)) {
            Some(at) => at,
            None if self.n_rows >= MOST_ROWS => return None,
            None => {
                self.n_rows += 1;
                let lane = timeline.new_lane(&row_name(record.place));
                rows.push(GpuRow { lane, of, open: Vec::new(), latest: time });
                rows.len() - 1
            }
        };
        rows[at].of = of;
        Some(&mut rows[at])
    }

    /// The row of a call that has begun.
    fn open_row(&mut self, record: &GpuRecord) -> Option<&mut GpuRow> {
        let of = (record.module, record.launch);
        let rows = self.rows.get_mut(&record.place)?;
        rows.iter_mut().find(|row| row.of == of && !row.open.is_empty())
    }

    /// Ends the innermost call of that name, and those within it, whose ends are lost. One without a
    /// beginning is lost itself, and was counted.
    fn end(&mut self, record: &GpuRecord, time: u64) {
        let Some(row) = self.open_row(record) else { return };
        let Some(depth) = row.open.iter().rposition(|name| *name == record.name) else { return };
        row.latest = row.latest.max(time);
        for _ in row.open.drain(depth..) {
            row.lane.end_last(row.latest);
        }
    }

    fn round(&mut self, record: &GpuRecord) {
        let (slots, phase) = (record.word.unwrap_or(0), record.last);
        let Some(row) = self.open_row(record) else { return };
        if let Some((event, _)) = lock(&row.lane.spans).open.last_mut() {
            if event.kind == "collective" && record.kind == RUSHMEM_TRACE_COLLECTIVE {
                event.about.phase.get_or_insert((slots, phase));
            }
        };
    }
}

impl TracedModule {
    /// The kernel that a launch of that shape was of; several, where they were launched alike.
    fn kernel(&self, shape: u64) -> Arc<str> {
        let mut fitting: Vec<&Arc<str>> = Vec::new();
        fitting.extend(self.launches.iter().filter(|(known, _)| *known == shape).map(|(_, name)| name));
        if fitting.is_empty() {
            fitting.extend(&self.kernels);
        }
        match fitting.as_slice() {
            [one] => Arc::clone(one),
            several => Arc::from(several.iter().map(|name| &***name).collect::<Vec<_>>().join(" or ")),
        }
    }
}

/// What a record has of a launch's shape: `mix_of_shape` in device/include/rushmem/impl/trace.h.
fn shape(grid: [u32; 3], block: [u32; 3]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let all = grid.into_iter().chain(block);
    let mixed = all.fold(0_u64, |mixed, n| mixed.wrapping_mul(ODD).wrapping_add(u64::from(n)));
    mixed.wrapping_mul(ODD) >> 16
}

/// FNV-1a, as `hash_of_name` in device/include/rushmem/impl/trace.h.
fn hash(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// What the device headers have to compute alike.
#[cfg(test)]
pub(crate) fn for_headers(name: &str, grid: [u32; 3], block: [u32; 3]) -> (u32, u64) {
    (hash(name), shape(grid, block))
}

/// The functions that the device headers trace, by their names' hashes.
fn names() -> &'static HashMap<u32, &'static str> {
    static NAMES: OnceLock<HashMap<u32, &'static str>> = OnceLock::new();
    NAMES.get_or_init(|| traced_names().map(|name| (hash(name), name)).collect())
}

/// As the headers say them: `RUSHMEM_TRACED(KIND, "name", ...)`.
fn traced_names() -> impl Iterator<Item = &'static str> {
    let calls = rushmem_device::HEADERS.iter().flat_map(|(_, text)| text.split("RUSHMEM_TRACED(").skip(1));
    calls.filter_map(|call| {
        let (kind, rest) = call.split_once(", \"")?;
        kind.bytes().all(|byte| byte.is_ascii_uppercase()).then(|| rest.split('"').next()).flatten()
    })
}

#[cfg(test)]
#[path = "gpu_kernels_tests.rs"]
mod tests;
