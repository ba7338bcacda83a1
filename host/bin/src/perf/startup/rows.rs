//! From the figures of all PEs of all jobs to rows: a job is as slow as its slowest PE, and takes as much
//! memory of a GPU as the PEs on it together.

use super::memory::Reading;
use super::pe::Figures;
use crate::report::{Limit, Row};
use crate::stats::Summary;

/// The most PEs and milliseconds of what the project promises on a GPU: `World::init` and the first barrier.
const INIT: (u32, f64) = (8, 1000.0);
/// The same on the CPU device, of everything from the exec of rushmem-run.
const READY: (u32, f64) = (4, 150.0);
/// The most MiB that a PE may take of its GPU's memory beyond the CUDA context.
const GPU_MIB: f64 = 16.0;
/// What NVSHMEM takes of each GPU: computed from its source, measured by nobody here.
const PEER: (&str, f64) = ("NVSHMEM 3.8.0 (computed)", 612.0);

/// The figures of one job, in the order of its PEs.
pub(super) type Job = Vec<Figures>;

/// One step's milliseconds on one PE.
type Time = fn(&Figures) -> Option<f64>;

/// All rows of jobs of `pes` PEs. A figure that some PE of some job lacks has none.
pub(super) fn rows(pes: u32, jobs: &[Job]) -> Vec<Row> {
    let on_gpu = jobs.iter().flatten().any(|pe| pe.context.is_some());
    let row = |name: &str, unit: &str, of: &dyn Fn(&Job) -> Option<f64>| {
        let samples = jobs.iter().map(of).collect::<Option<Vec<f64>>>()?;
        Some(Row::new(name, None, pes, unit, Summary::of(samples)?))
    };
    let time = |name: &str, of: Time| row(name, "ms", &|job| slowest(job, of));
    let short = |name: &str, of: fn(&Figures) -> f64| {
        row(name, "us", &|job| Some(slowest(job, |pe| Some(of(pe)))? * 1e3))
    };
    let promised = |row: Option<Row>, (most_pes, most): (u32, f64)| {
        row.map(|row| if pes <= most_pes { row.limit(Limit::Median(most)) } else { row })
    };
    let gpu =
        |name: &str, then: fn(&Figures) -> Reading| row(name, "MiB", &|job| taken_of_gpu(job, then).map(mib));
    let host = |name: &str, then: fn(&Figures) -> Reading| {
        row(name, "MiB", &|job| slowest(job, |pe| grown(pe.before.host, then(pe).host)).map(mib))
    };

    let beyond = time("init beyond context", |pe| pe.context.map(|_| beyond_context(pe)));
    let ready = time("exec to ready", |pe| Some(ready(pe)));
    let memory = gpu("GPU memory per PE beyond context", |pe| pe.with_world)
        .map(|row| row.against(PEER.0, Summary::single(PEER.1)).limit(Limit::Median(GPU_MIB)));
    let rows = [
        time("exec to main", |pe| Some(pe.main)),
        time("CUDA driver", |pe| pe.driver),
        time("CUDA context", |pe| pe.context),
        time("World::init", |pe| Some(pe.init)),
        short("first barrier_all", |pe| pe.barrier),
        short("first alloc", |pe| pe.alloc),
        time("first kernel (cached)", |pe| pe.kernel),
        time("finalize", |pe| Some(pe.finalize)),
        promised(beyond, INIT),
        if on_gpu { ready } else { promised(ready, READY) },
        memory,
        gpu("GPU memory per PE with a kernel", |pe| pe.with_kernel),
        row("heap per PE", "MiB", &|job| slowest(job, |pe| Some(pe.heap as f64)).map(mib)),
        host("host memory per PE", |pe| pe.with_world),
        host("host memory per PE with a kernel", |pe| pe.with_kernel),
    ];
    rows.into_iter().flatten().collect()
}

/// A line for each PE: its device, and the medians of its times.
pub(super) fn by_pe(jobs: &[Job]) -> Vec<Vec<String>> {
    const TIMES: [(&str, Time); 8] = [
        ("main", |pe| Some(pe.main)),
        ("driver", |pe| pe.driver),
        ("context", |pe| pe.context),
        ("init", |pe| Some(pe.init)),
        ("barrier", |pe| Some(pe.barrier)),
        ("alloc", |pe| Some(pe.alloc)),
        ("kernel", |pe| pe.kernel),
        ("finalize", |pe| Some(pe.finalize)),
    ];
    let mut lines = vec![["PE", "device"]
        .iter()
        .chain(TIMES.iter().map(|(name, _)| name))
        .map(|s| (*s).to_owned())
        .collect()];
    for (number, pe) in jobs.first().into_iter().flatten().enumerate() {
        let mut line = vec![number.to_string(), pe.device.clone()];
        for (_, time) in TIMES {
            let samples = jobs.iter().filter_map(|job| job.get(number).and_then(time)).collect();
            line.push(
                Summary::of(samples).map_or("-".to_owned(), |summary| format!("{:.2}", summary.median)),
            );
        }
        lines.push(line);
    }
    lines
}

/// What rushmem adds to a program that has a CUDA context: until this PE knows that all are there.
fn beyond_context(pe: &Figures) -> f64 {
    pe.init + pe.barrier
}

/// From the exec of rushmem-run until this PE knows that all are there; not the pauses of the measure.
fn ready(pe: &Figures) -> f64 {
    pe.main + pe.driver.unwrap_or(0.0) + pe.context.unwrap_or(0.0) + beyond_context(pe)
}

fn slowest(job: &Job, of: impl Fn(&Figures) -> Option<f64>) -> Option<f64> {
    job.iter().map(of).try_fold(None, |most: Option<f64>, value| {
        let value = value?;
        Some(Some(most.map_or(value, |most| most.max(value))))
    })?
}

/// Bytes of a GPU that have gone since `before`, shared out among its PEs: of the GPU where a PE has taken
/// most.
fn taken_of_gpu(job: &Job, then: impl Fn(&Figures) -> Reading) -> Option<f64> {
    slowest(job, |pe| {
        let pes = job.iter().filter(|other| other.device == pe.device).count();
        // What is free shrinks.
        Some(grown(then(pe).gpu_free, pe.before.gpu_free)? / pes as f64)
    })
}

fn grown(before: Option<u64>, after: Option<u64>) -> Option<f64> {
    Some(after? as f64 - before? as f64)
}

fn mib(bytes: f64) -> f64 {
    bytes / (1 << 20) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn on_gpu(device: &str, taken: u64) -> Figures {
        Figures {
            device: device.into(),
            main: 10.0,
            driver: Some(100.0),
            context: Some(200.0),
            init: 40.0,
            barrier: 0.5,
            kernel: Some(3.0),
            before: Reading { gpu_free: Some(1000 * MIB), host: Some(5 * MIB) },
            with_world: Reading { gpu_free: Some((1000 - taken) * MIB), host: Some(7 * MIB) },
            with_kernel: Reading { gpu_free: Some((999 - taken) * MIB), host: Some(8 * MIB) },
            ..Figures::default()
        }
    }

    fn find(rows: &[Row], name: &str) -> Option<Row> {
        rows.iter().find(|row| row.measure == name).cloned()
    }

    #[test]
    fn a_gpus_memory_is_shared_out_among_its_pes() {
        // 24 MiB for three PEs on A, 10 for the one on B.
        let mut job = vec![on_gpu("A", 24), on_gpu("B", 10), on_gpu("A", 24), on_gpu("A", 24)];
        job[2].init = 900.0;
        let rows = rows(4, &[job]);
        let memory = find(&rows, "GPU memory per PE beyond context").expect("there is a GPU");
        assert_eq!((memory.ours.median, memory.kept()), (10.0, Some(true)));
        assert!(memory.ratio.is_some_and(|ratio| ratio < 0.02) && memory.reference.is_some());
        let init = find(&rows, "init beyond context").expect("there is a GPU");
        assert_eq!((init.ours.median, init.kept()), (900.5, Some(true)));
        assert_eq!(find(&rows, "exec to ready").expect("always").ours.median, 1210.5);
        assert_eq!(find(&rows, "host memory per PE").expect("it was read").ours.median, 2.0);
    }

    #[test]
    fn promises_are_made_up_to_some_number_of_pes() {
        let slow = Figures { init: 1500.0, ..on_gpu("A", 17) };
        let kept = |pes, name| find(&rows(pes, &[vec![slow.clone()]]), name).expect("there is a GPU").kept();
        assert_eq!(kept(8, "init beyond context"), Some(false));
        assert_eq!(kept(9, "init beyond context"), None);
        assert_eq!(kept(9, "GPU memory per PE beyond context"), Some(false));
        // That of the CPU device is none of a GPU's.
        assert_eq!(kept(4, "exec to ready"), None);
    }

    #[test]
    fn what_a_pe_lacks_has_no_row() {
        let cpu = Figures { main: 100.0, init: 60.0, ..Figures::default() };
        let without = vec![vec![cpu.clone(), cpu.clone()]];
        let rows = rows(2, &without);
        assert_eq!(find(&rows, "exec to ready").expect("always").kept(), Some(false));
        for name in [
            "CUDA driver",
            "CUDA context",
            "init beyond context",
            "first kernel (cached)",
            "host memory per PE",
        ] {
            assert!(find(&rows, name).is_none(), "{name}");
        }
        assert!(!rows.iter().any(|row| row.measure.starts_with("GPU")));
        let half = vec![vec![cpu.clone(), Figures { kernel: Some(1.0), ..cpu }]];
        assert!(find(&super::rows(2, &half), "first kernel (cached)").is_none());
    }
}
