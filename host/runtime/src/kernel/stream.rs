//! Streams of the CPU device: launches and operations run one after the other on a worker thread that the
//! first of them starts; streams run beside one another. A stream keeps its first failure until a call
//! synchronises, and drops the work behind it, as on a GPU, because what that would work on was never made. A
//! [`Mark`] is a point in the work that can be waited for.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rushmem_device_cpu::check;

use super::device_stream::DeviceStream;
use crate::error::{err, Error, Result};
use crate::interrupt::{self, Turn};

/// One launch or operation.
pub(crate) struct StreamJob {
    /// What it is, for texts: ``kernel `ring` ``.
    pub(crate) what: String,
    /// Runs it to its end.
    pub(crate) run: Box<dyn FnOnce() -> Result<()> + Send>,
}

enum Entry {
    Job(StreamJob),
    Mark(Arc<Mark>),
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Entry>,
    running: Option<String>,
    failure: Option<Error>,
    /// Jobs dropped since the failure.
    dropped: usize,
    closing: bool,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.running.is_none() && self.waiting.is_empty()
    }

    /// What a mark that comes up now has to say of the work before it.
    fn outcome(&self) -> Result<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }
}

#[derive(Default)]
struct QueueState {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl QueueState {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // The queue is whole between any two statements.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the queue once `done`. A wait longer than `report` is logged, by what `who` waits for, again
    /// at each doubling. What runs on a stream polls the job's health; so this ends with it.
    fn wait(
        &self,
        who: &str,
        report: Option<Duration>,
        done: impl Fn(&Queue) -> bool,
    ) -> Result<MutexGuard<'_, Queue>> {
        let start = Instant::now();
        let mut next = report;
        let mut turn = Turn::new();
        let mut queue = self.lock();
        while !done(&queue) {
            let until = next.map_or(interrupt::PERIOD, |at| at.saturating_sub(start.elapsed()));
            let until = until.clamp(Duration::from_millis(1), interrupt::PERIOD);
            queue = self.changed.wait_timeout(queue, until).unwrap_or_else(PoisonError::into_inner).0;
            if turn.is_due() {
                let running = queue.running.clone();
                // Without the lock: the answer may take its time.
                drop(queue);
                turn.check(&|| format!("for {} to end", running.as_deref().unwrap_or("a stream's work")))?;
                queue = self.lock();
            }
            if let Some(at) = next.filter(|at| start.elapsed() >= *at) {
                if let Some(what) = &queue.running {
                    log::warn!("{who} has waited {:.1} s for {what} to end", start.elapsed().as_secs_f64());
                }
                next = Some(at * 2);
            }
        }
        Ok(queue)
    }
}

/// A stream's strand, in a run that is checked.
#[derive(Default)]
struct StreamCheck {
    world: Arc<OnceLock<Arc<check::World>>>,
    chain: OnceLock<Arc<check::Chain>>,
}

impl StreamCheck {
    fn chain(&self) -> Option<&Arc<check::Chain>> {
        let world = self.world.get()?;
        Some(self.chain.get_or_init(|| check::Chain::new(world, "stream")))
    }

    /// `job`, as part of the stream and behind all that the caller has done.
    fn part(&self, job: StreamJob) -> StreamJob {
        let (Some(world), Some(chain)) = (self.world.get(), self.chain().cloned()) else { return job };
        let (point, run) = (world.current().point(), job.run);
        let run = move || {
            let _entered = chain.enter();
            chain.after(&point);
            run()
        };
        StreamJob { what: job.what, run: Box::new(run) }
    }

    /// What the calling thread does from now on comes behind that point of a stream.
    fn came(&self, point: &check::Point) {
        if let Some(world) = self.world.get() {
            world.current().after(point);
        }
    }
}

/// A point in a stream's work.
pub(crate) struct Mark {
    shared: Arc<QueueState>,
    checked: Arc<StreamCheck>,
    point: OnceLock<check::Point>,
    outcome: OnceLock<Result<()>>,
}

impl Mark {
    /// How the work before it went; `None` before it has ended.
    pub(crate) fn outcome(&self) -> Option<Result<()>> {
        let outcome = self.outcome.get().cloned();
        if let (Some(point), true) = (self.point.get(), outcome.is_some()) {
            self.checked.came(point);
        }
        outcome
    }

    /// Waits for the work before it. Reports as [`CpuStream::synchronize`] does.
    pub(crate) fn wait(&self, who: &str, report: Option<Duration>) -> Result<()> {
        drop(self.shared.wait(who, report, |_| self.outcome.get().is_some())?);
        self.outcome().unwrap_or(Ok(()))
    }

    /// Only under the queue's lock, and then tell those that wait.
    fn come(&self, outcome: Result<()>) {
        if let Some(chain) = self.checked.chain() {
            let _ = self.point.set(chain.point());
        }
        // Each mark is in one queue, once.
        let _ = self.outcome.set(outcome);
    }
}

/// The stream.
#[derive(Default)]
pub(crate) struct CpuStream {
    /// What C calls it.
    name: usize,
    shared: Arc<QueueState>,
    worker: Mutex<Option<JoinHandle<()>>>,
    checked: Arc<StreamCheck>,
}

impl DeviceStream for CpuStream {
    fn raw(&self) -> usize {
        self.name
    }

    fn is_spent(&self) -> bool {
        let queue = self.shared.lock();
        queue.is_empty() && queue.failure.is_none()
    }
}

impl CpuStream {
    /// A stream that C knows by `name`; its world's checker may come later.
    pub(crate) fn new(name: usize, check: Arc<OnceLock<Arc<check::World>>>) -> CpuStream {
        let checked = Arc::new(StreamCheck { world: check, chain: OnceLock::new() });
        CpuStream { name, shared: Arc::default(), worker: Mutex::default(), checked }
    }

    /// Puts a job at the end.
    pub(crate) fn push(&self, job: StreamJob) -> Result<()> {
        let job = self.checked.part(job);
        let mut worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        let mut queue = self.shared.lock();
        if queue.closing {
            return Err(closed());
        }
        if worker.is_none() {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name("rushmem-stream".into());
            let spawned = thread.spawn(move || work(&shared));
            *worker = Some(spawned.map_err(|e| Error::thread("the stream's thread", &e))?);
        }
        queue.waiting.push_back(Entry::Job(job));
        self.shared.changed.notify_all();
        Ok(())
    }

    /// A mark behind all that the stream has been given so far.
    pub(crate) fn mark(&self) -> Arc<Mark> {
        let (shared, checked) = (Arc::clone(&self.shared), Arc::clone(&self.checked));
        let mark = Arc::new(Mark { shared, checked, point: OnceLock::new(), outcome: OnceLock::new() });
        let mut queue = self.shared.lock();
        if queue.closing {
            mark.come(Err(closed()));
        } else if queue.is_empty() {
            mark.come(queue.outcome());
        } else {
            queue.waiting.push_back(Entry::Mark(Arc::clone(&mark)));
        }
        mark
    }

    /// Waits until nothing is left to run; the first failure since the last call.
    pub(crate) fn synchronize(&self, who: &str, report: Option<Duration>) -> Result<()> {
        let mut queue = self.shared.wait(who, report, Queue::is_empty)?;
        if let Some(chain) = self.checked.chain() {
            self.checked.came(&chain.point());
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

    /// Keeps the stream from beginning anything as long as what is returned lives; `None` where something
    /// runs or waits to.
    pub(super) fn hold(&self) -> Option<HeldStream<'_>> {
        let queue = self.shared.lock();
        queue.is_empty().then(|| HeldStream { _queue: queue })
    }

    /// `BUSY` while something runs or waits to.
    pub(crate) fn check_idle(&self) -> Result<()> {
        let queue = self.shared.lock();
        let waiting = || {
            queue.waiting.iter().filter_map(|entry| match entry {
                Entry::Job(job) => Some(&job.what),
                Entry::Mark(_) => None,
            })
        };
        let mut all = queue.running.iter().chain(waiting());
        let Some(what) = all.next() else { return Ok(()) };
        let more = all.count();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        Err(err!(BUSY, "{what}{more} is still in flight: synchronize first"))
    }

    /// Drops what waits and ends the worker once the job that runs has ended, which the caller sees to.
    pub(crate) fn close(&self) {
        {
            let mut queue = self.shared.lock();
            queue.closing = true;
            for entry in queue.waiting.drain(..) {
                if let Entry::Mark(mark) = entry {
                    mark.come(Err(closed()));
                }
            }
        }
        self.shared.changed.notify_all();
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(worker) = worker {
            let start = Instant::now();
            let mut next = Duration::from_secs(5);
            while !worker.is_finished() {
                std::thread::sleep(Duration::from_micros(200));
                if start.elapsed() > next {
                    let what = self.shared.lock().running.clone().unwrap_or_default();
                    log::error!(
                        "{what} does not end, though its world does: it spins without a rushmem wait, an atomic or \
                         __nanosleep"
                    );
                    next *= 2;
                }
            }
            // A panic in the worker was reported when it happened.
            let _ = worker.join();
        }
    }
}

/// A stream that begins nothing.
pub(super) struct HeldStream<'a> {
    _queue: MutexGuard<'a, Queue>,
}

impl Drop for CpuStream {
    fn drop(&mut self) {
        self.close();
    }
}

fn closed() -> Error {
    err!(BAD_HANDLE, "the stream was destroyed, or its world has ended")
}

fn work(shared: &QueueState) {
    let mut queue = shared.lock();
    loop {
        let job = match queue.waiting.pop_front() {
            Some(Entry::Job(job)) => job,
            Some(Entry::Mark(mark)) => {
                mark.come(queue.outcome());
                shared.changed.notify_all();
                continue;
            }
            None if queue.closing => return,
            None => {
                queue = shared.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
        };
        if queue.failure.is_some() {
            queue.dropped += 1;
            shared.changed.notify_all();
            continue;
        }
        queue.running = Some(job.what);
        drop(queue);
        let run = job.run;
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        let result =
            result.unwrap_or_else(|_| Err(err!(INTERNAL, "a defect in rushmem: a stream's job panicked")));
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

    fn job(what: &str, run: impl FnOnce() -> Result<()> + Send + 'static) -> StreamJob {
        StreamJob { what: what.into(), run: Box::new(run) }
    }

    #[test]
    fn launches_run_in_order() {
        let stream = CpuStream::default();
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
    fn an_interrupted_wait_leaves_the_stream_as_it_is() {
        let stream = CpuStream::default();
        let (go, wait) = mpsc::channel::<()>();
        stream.push(job("slow", move || wait.recv().map_err(|_| err!(TIMEOUT, "never told")))).unwrap();
        let mark = stream.mark();
        std::thread::scope(|s| {
            s.spawn(|| {
                crate::interrupt::tests::interrupt_this_thread();
                let e = stream.synchronize("PE 0", None).unwrap_err();
                assert_eq!(
                    (e.code, e.message.as_str()),
                    (code::INTERRUPTED, "interrupted while it waited for slow to end")
                );
                assert_eq!(mark.wait("PE 0", None).unwrap_err().code, code::INTERRUPTED);
            });
        });
        go.send(()).unwrap();
        mark.wait("PE 0", None).unwrap();
        stream.synchronize("PE 0", None).unwrap();
    }

    #[test]
    fn the_first_failure_is_kept_and_what_follows_is_dropped() {
        let stream = CpuStream::default();
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
        assert!(busy.message.contains("bad and 3 more"), "{busy}");
        drop(go);
        let e = stream.synchronize("PE 0", Some(Duration::from_millis(1))).unwrap_err();
        assert_eq!((e.code, e.message.as_str()), (code::TIMEOUT, "first (3 launches behind it did not run)"));
        assert!(rx.try_recv().is_err());
        stream.check_idle().unwrap();
        // The failure is reported once; then the stream works again.
        stream.push(job("good", move || tx.send(()).map_err(|_| err!(INTERNAL, "nobody listens")))).unwrap();
        stream.synchronize("PE 0", None).unwrap();
        rx.try_recv().unwrap();
    }

    #[test]
    fn a_panic_is_a_failure_and_closing_drops_what_waits() {
        let stream = CpuStream::default();
        stream.push(job("boom", || panic!("on purpose"))).unwrap();
        assert_eq!(stream.synchronize("PE 0", None).unwrap_err().code, code::INTERNAL);
        let (tx, rx) = mpsc::channel::<()>();
        let (say, said) = mpsc::channel();
        let long = move || {
            say.send("begun").unwrap();
            let _ = rx.recv();
            say.send("ended").unwrap();
            Ok(())
        };
        stream.push(job("long", long)).unwrap();
        stream.push(job("never", || panic!("dropped"))).unwrap();
        assert_eq!(said.recv().unwrap(), "begun");
        std::thread::scope(|s| {
            let closing = s.spawn(|| stream.close());
            std::thread::sleep(Duration::from_millis(20));
            drop(tx);
            closing.join().unwrap();
        });
        assert_eq!(said.recv().unwrap(), "ended");
        assert!(said.recv().is_err());
        assert_eq!(stream.push(job("late", || Ok(()))).unwrap_err().code, code::BAD_HANDLE);
    }

    #[test]
    fn marks_come_in_their_turn_and_tell_how_the_work_went() {
        let stream = CpuStream::default();
        assert_eq!(stream.mark().outcome(), Some(Ok(())), "nothing to wait for");
        let (go, wait) = mpsc::channel::<()>();
        stream.push(job("long", move || wait.recv().map_err(|_| err!(IO, "?")))).unwrap();
        let first = stream.mark();
        stream.push(job("bad", || Err(err!(TIMEOUT, "too late")))).unwrap();
        let second = stream.mark();
        assert_eq!((first.outcome(), second.outcome()), (None, None));
        assert!(!stream.is_spent());
        go.send(()).unwrap();
        first.wait("PE 0", Some(Duration::from_millis(1))).unwrap();
        assert_eq!(second.wait("PE 0", None).unwrap_err().code, code::TIMEOUT);
        // A failure stays until a call synchronises, although marks have reported it.
        assert_eq!(stream.mark().wait("PE 0", None).unwrap_err().code, code::TIMEOUT);
        assert!(!stream.is_spent());
        assert_eq!(stream.synchronize("PE 0", None).unwrap_err().code, code::TIMEOUT);
        assert!(stream.is_spent());
        stream.mark().wait("PE 0", None).unwrap();
    }

    #[test]
    fn closing_tells_those_who_wait_for_a_mark() {
        let stream = CpuStream::default();
        let (go, wait) = mpsc::channel::<()>();
        let (say, said) = mpsc::channel();
        let long = move || {
            say.send("begun").unwrap();
            wait.recv().map_err(|_| err!(IO, "?"))
        };
        stream.push(job("long", long)).unwrap();
        assert_eq!(said.recv().unwrap(), "begun");
        let mark = stream.mark();
        std::thread::scope(|s| {
            let waiting = s.spawn(|| mark.wait("PE 0", None));
            s.spawn(|| stream.close());
            assert_eq!(waiting.join().unwrap().unwrap_err().code, code::BAD_HANDLE);
            go.send(()).unwrap();
        });
    }
}
