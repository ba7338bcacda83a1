//! What is seen of a run from outside: spans around host calls, launches and streams' work, for a timeline in
//! a file (`RUSHMEM_TRACE`, [`timeline`]), for its counters alone (`RUSHMEM_COUNTERS`), for a profiler that
//! takes NVTX ranges ([`nvtx`]).
//!
//! A run that none of them looks at has no trace: operations on mapped memory ask nothing, as [`Reached`]
//! says how they are carried out; everything else asks one pointer.
//!
//! [`Reached`]: crate::op::Reached

pub(crate) mod clock;
mod counters;
pub(crate) mod event;
mod file;
pub(crate) mod gpu_clock;
pub(crate) mod gpu_kernels;
pub(crate) mod kernels;
pub(crate) mod nvtx;
mod ring;
mod timeline;

use std::borrow::Cow;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::Result;
use event::About;
use nvtx::{NvtxRange, NvtxTool};
use timeline::LaneSpan;
pub(crate) use timeline::{Timeline, TraceSource};

/// Where one PE's spans go.
pub(crate) struct Trace {
    timeline: Option<Arc<Timeline>>,
    tool: Option<&'static NvtxTool>,
}

impl Trace {
    /// Of PE `pe`, described by `who`; `given` names the files, `counters` asks for counters without them.
    /// None where nobody looks.
    pub(crate) fn create(
        given: Option<&Path>,
        counters: bool,
        pe: i32,
        who: &str,
        stall: Option<Duration>,
    ) -> Result<Option<Arc<Trace>>> {
        let wanted = given.is_some() || counters;
        let timeline = wanted.then(|| Timeline::create(given, pe, who, stall)).transpose()?;
        let tool = nvtx::tool();
        Ok((timeline.is_some() || tool.is_some()).then(|| Arc::new(Trace { timeline, tool })))
    }

    /// The file, where there is one.
    pub(crate) fn timeline(&self) -> Option<&Arc<Timeline>> {
        self.timeline.as_ref()
    }

    /// Begins a span on this thread, which ends when what is returned is dropped.
    pub(crate) fn span(
        &self,
        kind: &'static str,
        name: impl Into<Cow<'static, str>>,
        about: About,
    ) -> OpenSpan {
        let name = name.into();
        let range = self.tool.and_then(|tool| tool.range(&name, about.peer, about.bytes));
        OpenSpan {
            _lane: self.timeline.as_ref().map(|timeline| timeline.span(kind, name, about)),
            _range: range,
        }
    }
}

/// A span that has begun; dropping it ends it.
pub(crate) struct OpenSpan {
    _lane: Option<LaneSpan>,
    _range: Option<NvtxRange>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is guarded is whole between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
