//! A stream of the CPU: its thread does in the stream's turn what the host would do at once, by the same
//! executors.

use std::sync::atomic::{fence, Ordering};
use std::sync::Arc;
use std::time::Duration;

use rushmem_device_cpu::check;
use rushmem_device_cpu::crash::Deferred;

use super::sync::Sync;
use super::{about, Work};
use crate::error::Result;
use crate::exec::checked;
use crate::exec::host::MappedHost;
use crate::exec::net::{self, FarPe};
use crate::exec::wait::place;
use crate::exec::{Executor, Form, Home};
use crate::health::Health;
use crate::kernel::stream::StreamJob;
use crate::net::{Far, Lane};
use crate::op::waitset::{Expected, WaitSet};
use crate::op::Reached;
use crate::trace::event::About;
use crate::trace::Trace;

/// The job that carries out `work`.
///
/// # Safety
/// The work's addresses are valid until it is done.
pub(super) unsafe fn job(w: &impl Home, what: &str, work: Work) -> StreamJob {
    let worker = Worker {
        health: Arc::clone(w.health()),
        limit: w.wait_limit(),
        sync: Sync::new(w.kernels().state().raw(), Arc::clone(w.near())),
        far: w.far().cloned(),
        check: w.check().cloned(),
        trace: w.trace().cloned(),
        about: if w.trace().is_some() { about(w, &work) } else { About::default() },
        what: what.to_owned(),
    };
    let what = format!("{what} on a stream");
    let (name, deferred) = (what.clone(), Deferred::new(&what));
    let run = move || {
        // SAFETY: the caller vouches for the addresses.
        deferred.run(|| unsafe { worker.run(work) }).map_err(|e| e.context(name))
    };
    StreamJob { what, run: Box::new(run) }
}

/// What the work needs of its world.
struct Worker {
    health: Arc<Health>,
    limit: Option<Duration>,
    sync: Sync,
    far: Option<Arc<Far>>,
    check: Option<Arc<check::World>>,
    /// Spans of the work, where the run is traced.
    trace: Option<Arc<Trace>>,
    what: String,
    about: About,
}

impl Worker {
    /// # Safety
    /// The work's addresses are valid.
    unsafe fn run(&self, work: Work) -> Result<()> {
        let trace = self.trace.as_ref();
        let _span = trace.map(|trace| trace.span("stream", self.what.clone(), self.about.clone()));
        if let Some(check) = &self.check {
            match &work {
                Work::Near { pe, op } => checked::note(check, op, Reached::Noted, *pe, Form::Blocking),
                Work::Net { pe, op } => checked::note(check, op, Reached::Net, *pe as i32, Form::Blocking),
                Work::Fence => check.note("fence on a stream", |notes| notes.fence()),
                Work::Quiet => check.note("quiet on a stream", |notes| notes.quiet()),
                Work::Wait { .. } | Work::Sync => {}
            }
        }
        match work {
            // SAFETY: checked, and the caller vouches for local memory.
            Work::Near { op, .. } => unsafe { MappedHost.run(op, Form::Blocking) }.map(drop)?,
            Work::Net { pe, op } => {
                let far = net::of(self.far.as_deref())?;
                // SAFETY: checked, and the caller vouches for local memory.
                unsafe { FarPe { far, lane: Lane::to(pe) }.run(op, Form::Blocking) }.map(drop)?;
            }
            Work::Wait { wait, offset } => {
                let (word, expected) = (wait.at as *const u8, Expected::One(wait.value));
                // SAFETY: an aligned word of this PE's, and no other arrays.
                let set = unsafe { WaitSet::new(wait.kind, word, 1, std::ptr::null(), wait.cmp, expected) };
                let report = || format!("waits for {}", set.describe(0, &|at| place(at, offset)));
                self.health.wait(self.limit, &report, &mut || set.holds(0))?;
                fence(Ordering::Acquire);
                if let Some(check) = &self.check {
                    checked::waited(check, &set);
                }
            }
            Work::Fence => {
                fence(Ordering::SeqCst);
                self.far.as_ref().map_or(Ok(()), |far| far.fence(Lane::DEFAULT))?;
            }
            Work::Quiet => {
                self.far.as_ref().map_or(Ok(()), |far| far.quiet(None))?;
                fence(Ordering::SeqCst);
            }
            Work::Sync => self.sync.all(&self.health, self.limit, self.far.as_ref(), self.check.as_ref())?,
        }
        Ok(())
    }
}
