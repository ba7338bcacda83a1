//! Completion handles: points in a stream's work that a thread may ask about or wait for. What C holds is a
//! cell that is never given back to the system, but used again: a program makes one for each transfer.

use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use super::handle::{Handle, Handled};
use super::stream::Mark;
use super::streams::On;
use super::{lock, KernelCore, Kernels, Runner};
use crate::error::{err, Result};
use crate::gpu;

/// A point in a stream's work.
pub(crate) struct StreamEvent {
    core: Arc<KernelCore>,
    point: EventMark,
}

enum EventMark {
    Cpu(Arc<Mark>),
    Gpu { event: gpu::event::CudaEvent, stream: usize },
}

impl Handled for StreamEvent {
    const MAGIC: u64 = u64::from_le_bytes(*b"rushmemE");
    const WHAT: &'static str = "event";
    const GONE: &'static str = "it was freed";
}

/// Cells whose event was freed.
static SPARE: Mutex<Vec<&'static Handle<StreamEvent>>> = Mutex::new(Vec::new());

impl Kernels {
    /// A handle for all that the stream has been given so far.
    ///
    /// # Safety
    /// As for [`Kernels::on`].
    pub(crate) unsafe fn record(&self, raw: *mut c_void) -> Result<&'static Handle<StreamEvent>> {
        let core = &self.core;
        // SAFETY: the caller gives a stream that `on` may take: null, or one that lives.
        let point = match unsafe { core.on(raw) }? {
            On::Cpu(stream) => EventMark::Cpu(stream.mark()),
            On::Gpu(stream) => {
                if stream.is_capturing()? {
                    return Err(err!(
                        UNSUPPORTED,
                        "the stream is being captured into a graph: an event is about work that runs, so record it when the \
                         graph is launched"
                    ));
                }
                let event = gpu::event::CudaEvent::new(stream.cuda(), false)?;
                event.record(&stream).map_err(|e| self.explain(e, "recording an event"))?;
                EventMark::Gpu { event, stream: stream.as_raw() as usize }
            }
        };
        let event = Arc::new(StreamEvent { core: Arc::clone(core), point });
        let spare = lock(&SPARE).pop();
        let handle = match spare {
            Some(cell) => {
                cell.fill(event);
                cell
            }
            None => Handle::hold(event)?,
        };
        lock(&core.events).push(handle);
        Ok(handle)
    }
}

impl StreamEvent {
    /// Whether the work has ended; an error where some of it failed.
    pub(crate) fn test(&self) -> Result<bool> {
        match (&self.point, &self.core.runner) {
            (EventMark::Cpu(mark), _) => mark.outcome().map_or(Ok(false), |outcome| outcome.map(|()| true)),
            (EventMark::Gpu { event, stream }, Runner::Gpu(runner)) => runner.test(event, *stream),
            (EventMark::Gpu { .. }, Runner::Cpu(_)) => {
                Err(err!(INTERNAL, "an event of another kind of device"))
            }
        }
    }

    /// Waits until the work has ended; an error where some of it failed.
    pub(crate) fn wait(&self) -> Result<()> {
        let common = &self.core.common;
        let result = match (&self.point, &self.core.runner) {
            (EventMark::Cpu(mark), _) => mark.wait(common.health.who(), common.config.stall_report),
            (EventMark::Gpu { event, stream }, Runner::Gpu(runner)) => runner.wait(event, *stream),
            (EventMark::Gpu { .. }, Runner::Cpu(_)) => {
                Err(err!(INTERNAL, "an event of another kind of device"))
            }
        };
        common.print_stalls();
        result
    }
}

impl Handle<StreamEvent> {
    /// Gives the event back; the work that it stands for goes on.
    pub(crate) fn free(&'static self) -> Result<()> {
        let event = self.get()?;
        let mut events = lock(&event.core.events);
        // The caller that takes it out of the list gives it back; no other finds it there.
        let Some(at) = events.iter().position(|known| std::ptr::eq(*known, self)) else {
            return Err(err!(BAD_HANDLE, "not an event: it was freed"));
        };
        events.swap_remove(at);
        drop(events);
        self.empty();
        lock(&SPARE).push(self);
        Ok(())
    }
}
