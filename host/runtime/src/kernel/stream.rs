//! A world's default stream: launches run one after the other on a worker thread that the first of them starts. The first
//! failure is kept until somebody asks; launches behind it are dropped, as on a GPU, because what they would work on
//! was never made.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::{err, Error, Result};

/// One launch.
pub(crate) struct Job {
    /// The kernel's name, for texts.
    pub(crate) kernel: String,
    /// Runs it to its end.
    pub(crate) run: Box<dyn FnOnce() -> Result<()> + Send>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Job>,
    running: Option<String>,
    failure: Option<Error>,
    /// Launches dropped since the failure.
    dropped: usize,
    closing: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // The queue is whole between any two statements.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The stream.
#[derive(Default)]
pub(crate) struct Stream {
    shared: Arc<Shared>,
    worker: Mutex<Option<JoinHandle<()>>>,
}

impl Stream {
    /// Puts a launch at the end.
    pub(crate) fn push(&self, job: Job) -> Result<()> {
        let mut worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        if worker.is_none() {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name("rushmem-stream".into());
            let spawned = thread.spawn(move || work(&shared));
            *worker = Some(spawned.map_err(|e| err!(IO, "starting the stream's thread: {e}"))?);
        }
        self.shared.lock().waiting.push_back(job);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Waits until nothing is left to run; the first failure since the last call. A wait longer than `report` is logged,
    /// by what `who` waits for, again at each doubling.
    pub(crate) fn synchronize(&self, who: &str, report: Option<Duration>) -> Result<()> {
        let start = Instant::now();
        let mut next = report;
        let mut queue = self.shared.lock();
        while queue.running.is_some() || !queue.waiting.is_empty() {
            let until = next.map_or(Duration::from_secs(3600), |at| at.saturating_sub(start.elapsed()));
            let waited = self.shared.changed.wait_timeout(queue, until.max(Duration::from_millis(1)));
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
            if let Some(at) = next.filter(|at| start.elapsed() >= *at) {
                if let Some(kernel) = &queue.running {
                    let seconds = start.elapsed().as_secs_f64();
                    log::warn!("{who} has waited {seconds:.1} s for kernel `{kernel}` to end");
                }
                next = Some(at * 2);
            }
        }
        let dropped = std::mem::take(&mut queue.dropped);
        match queue.failure.take() {
            None => Ok(()),
            Some(failure) if dropped == 0 => Err(failure),
            Some(Error { code, message }) => {
                Err(Error { code, message: format!("{message} ({dropped} launches behind it did not run)") })
            }
        }
    }

    /// `BUSY` while something runs or waits to.
    pub(crate) fn check_idle(&self) -> Result<()> {
        let queue = self.shared.lock();
        let Some(kernel) = queue.running.as_ref().or(queue.waiting.front().map(|job| &job.kernel)) else {
            return Ok(());
        };
        let more = queue.waiting.len() + usize::from(queue.running.is_some()) - 1;
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        Err(err!(BUSY, "kernel `{kernel}`{more} is still in flight: synchronize first"))
    }

    /// Drops what waits and ends the worker once the kernel that runs has ended, which the caller sees to.
    pub(crate) fn close(&self) {
        {
            let mut queue = self.shared.lock();
            queue.closing = true;
            queue.waiting.clear();
        }
        self.shared.changed.notify_all();
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(worker) = worker {
            let start = Instant::now();
            let mut next = Duration::from_secs(5);
            while !worker.is_finished() {
                std::thread::sleep(Duration::from_micros(200));
                if start.elapsed() > next {
                    let kernel = self.shared.lock().running.clone().unwrap_or_default();
                    log::error!(
                        "kernel `{kernel}` does not end, though its world does: it spins without a rushmem wait, an \
                         atomic or __nanosleep"
                    );
                    next *= 2;
                }
            }
            // A panic in the worker was reported when it happened.
            let _ = worker.join();
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.close();
    }
}

fn work(shared: &Shared) {
    let mut queue = shared.lock();
    loop {
        let Some(job) = queue.waiting.pop_front() else {
            if queue.closing {
                return;
            }
            queue = shared.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        if queue.failure.is_some() {
            queue.dropped += 1;
            shared.changed.notify_all();
            continue;
        }
        queue.running = Some(job.kernel);
        drop(queue);
        let run = job.run;
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        let result =
            result.unwrap_or_else(|_| Err(err!(INTERNAL, "a defect in rushmem: the launch panicked")));
        queue = shared.lock();
        queue.running = None;
        queue.failure = result.err();
        shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::code;
    use std::sync::mpsc;

    fn job(kernel: &str, run: impl FnOnce() -> Result<()> + Send + 'static) -> Job {
        Job { kernel: kernel.into(), run: Box::new(run) }
    }

    #[test]
    fn launches_run_in_order() {
        let stream = Stream::default();
        stream.synchronize("PE 0", None).unwrap();
        let (tx, rx) = mpsc::channel();
        for i in 0..100 {
            let tx = tx.clone();
            stream.push(job("k", move || tx.send(i).map_err(|_| err!(INTERNAL, "nobody listens")))).unwrap();
        }
        stream.synchronize("PE 0", None).unwrap();
        assert_eq!(rx.try_iter().collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn the_first_failure_is_kept_and_what_follows_is_dropped() {
        let stream = Stream::default();
        let (tx, rx) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        stream
            .push(job("bad", move || Err(wait.recv().map_or(err!(TIMEOUT, "first"), |()| err!(IO, "?")))))
            .unwrap();
        for _ in 0..3 {
            let tx = tx.clone();
            stream
                .push(job("after", move || tx.send(()).map_err(|_| err!(INTERNAL, "nobody listens"))))
                .unwrap();
        }
        let busy = stream.check_idle().unwrap_err();
        assert_eq!(busy.code, code::BUSY);
        assert!(busy.message.contains("`bad` and 3 more"), "{busy}");
        drop(go);
        let e = stream.synchronize("PE 0", Some(Duration::from_millis(1))).unwrap_err();
        assert_eq!((e.code, e.message.as_str()), (code::TIMEOUT, "first (3 launches behind it did not run)"));
        assert!(rx.try_recv().is_err());
        stream.check_idle().unwrap();
        // Asked and told, the stream works again.
        stream.push(job("good", move || tx.send(()).map_err(|_| err!(INTERNAL, "nobody listens")))).unwrap();
        stream.synchronize("PE 0", None).unwrap();
        rx.try_recv().unwrap();
    }

    #[test]
    fn a_panic_is_a_failure_and_closing_drops_what_waits() {
        let stream = Stream::default();
        stream.push(job("boom", || panic!("on purpose"))).unwrap();
        assert_eq!(stream.synchronize("PE 0", None).unwrap_err().code, code::INTERNAL);
        let (tx, rx) = mpsc::channel::<()>();
        let (say, told) = mpsc::channel();
        let long = move || {
            say.send("begun").unwrap();
            let _ = rx.recv();
            say.send("ended").unwrap();
            Ok(())
        };
        stream.push(job("long", long)).unwrap();
        stream.push(job("never", || panic!("dropped"))).unwrap();
        assert_eq!(told.recv().unwrap(), "begun");
        std::thread::scope(|s| {
            let closing = s.spawn(|| stream.close());
            std::thread::sleep(Duration::from_millis(20));
            drop(tx);
            closing.join().unwrap();
        });
        assert_eq!(told.recv().unwrap(), "ended");
        assert!(told.recv().is_err());
    }
}
