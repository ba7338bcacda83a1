//! OS threads for blocks, shared by all launches of the process. A launch needs its blocks at once, or as
//! many as take turns, so the pool never queues: it wakes idle threads and makes what is missing. A thread
//! that has been idle for a second ends.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::lock::lock;

const IDLE: Duration = Duration::from_secs(1);
/// The scheduler's own frames; kernels run on stacks of their own.
const STACK: usize = 256 << 10;

/// A launch, as the pool sees it.
pub(crate) trait RunsBlocks: Send + Sync {
    /// Runs block `index`, and others behind it where blocks take turns.
    fn run(&self, index: u64);
}

type Job = (Arc<dyn RunsBlocks>, u64);

#[derive(Default)]
struct Worker {
    job: Mutex<Option<Job>>,
    wake: Condvar,
}

static IDLE_WORKERS: Mutex<Vec<Arc<Worker>>> = Mutex::new(Vec::new());

/// Starts these blocks of `launch`, each on a thread of its own, or none of them.
pub(crate) fn start(launch: &Arc<impl RunsBlocks + 'static>, blocks: Range<u64>) -> io::Result<()> {
    let wanted = (blocks.end - blocks.start) as usize;
    if wanted == 0 {
        return Ok(());
    }
    let mut workers = {
        let mut idle = lock(&IDLE_WORKERS);
        let kept = idle.len().saturating_sub(wanted);
        idle.split_off(kept)
    };
    while workers.len() < wanted {
        match spawn() {
            Ok(worker) => workers.push(worker),
            Err(error) => {
                lock(&IDLE_WORKERS).append(&mut workers);
                return Err(error);
            }
        }
    }
    for (worker, block) in workers.into_iter().zip(blocks) {
        *lock(&worker.job) = Some((launch.clone(), block));
        worker.wake.notify_one();
    }
    Ok(())
}

fn spawn() -> io::Result<Arc<Worker>> {
    let worker = Arc::new(Worker::default());
    let own = worker.clone();
    std::thread::Builder::new().name("rushmem-block".into()).stack_size(STACK).spawn(move || serve(&own))?;
    Ok(worker)
}

fn serve(worker: &Arc<Worker>) {
    loop {
        let Some((launch, block)) = next_job(worker) else { return };
        launch.run(block);
        drop(launch);
        lock(&IDLE_WORKERS).push(worker.clone());
    }
}

/// Waits for work; `None` after a second without, when nobody can hand this worker any more.
fn next_job(worker: &Arc<Worker>) -> Option<Job> {
    let mut job = lock(&worker.job);
    loop {
        if let Some(job) = job.take() {
            return Some(job);
        }
        let (guard, waited) = worker.wake.wait_timeout(job, IDLE).unwrap_or_else(PoisonError::into_inner);
        job = guard;
        if !waited.timed_out() || job.is_some() {
            continue;
        }
        drop(job);
        let mut idle = lock(&IDLE_WORKERS);
        if let Some(at) = idle.iter().position(|other| Arc::ptr_eq(other, worker)) {
            idle.swap_remove(at);
            return None;
        }
        drop(idle);
        // Chosen by a launch that is about to hand the job over.
        job = lock(&worker.job);
    }
}
