//! The streams of a world, whatever its device: the default one, a pool that transfers take turns in, and
//! those that the program made for itself. A stream that is destroyed with work on it is kept until that has
//! ended, so that the world knows of everything that still uses its memory; only streams of the caller's own
//! are the caller's to look after.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::device_stream::DeviceStream;
use super::stream::CpuStream;
use super::{lock, KernelCore, Kernels, Runner};
use crate::error::{err, Error, Result};
use crate::gpu;

/// The streams of one world.
pub(super) struct Streams<S> {
    default: Arc<S>,
    lists: Mutex<Lists<S>>,
    /// Streams of the pool once all are made.
    pool_size: usize,
    /// Whose turn it is.
    turn: AtomicUsize,
}

struct Lists<S> {
    pool: Vec<Arc<S>>,
    own: Vec<Arc<S>>,
    /// Destroyed, with work on them.
    retired: Vec<Arc<S>>,
}

impl<S: DeviceStream> Streams<S> {
    /// With a default stream; the pool is filled when it is used.
    pub(super) fn new(default: S, pool_size: usize) -> Self {
        let lists = Lists { pool: Vec::new(), own: Vec::new(), retired: Vec::new() };
        Streams {
            default: Arc::new(default),
            lists: Mutex::new(lists),
            pool_size: pool_size.max(1),
            turn: AtomicUsize::new(0),
        }
    }

    /// The default stream.
    pub(super) fn default(&self) -> &Arc<S> {
        &self.default
    }

    /// A new stream.
    pub(super) fn create(&self, make: impl FnOnce() -> Result<S>) -> Result<usize> {
        let stream = make()?;
        let raw = stream.raw();
        let mut lists = lock(&self.lists);
        lists.own.push(Arc::new(stream));
        let spent = lists.sweep();
        drop(lists);
        // Outside the lock: a stream may take a moment to go.
        drop(spent);
        Ok(raw)
    }

    /// The pool's streams in turn.
    pub(super) fn next(&self, make: impl FnOnce() -> Result<S>) -> Result<usize> {
        let mut lists = lock(&self.lists);
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.pool_size;
        if turn >= lists.pool.len() {
            lists.pool.push(Arc::new(make()?));
        }
        let last = lists.pool.len() - 1;
        Ok(lists.pool[turn.min(last)].raw())
    }

    /// Ends a stream of the program's; its work goes on to its end.
    pub(super) fn destroy(&self, raw: usize) -> Result<()> {
        let mut lists = lock(&self.lists);
        let Some(at) = lists.own.iter().position(|stream| stream.raw() == raw) else {
            let of_the_world =
                raw == 0 || raw == self.default.raw() || lists.pool.iter().any(|s| s.raw() == raw);
            return Err(if of_the_world {
                err!(INVALID_ARGUMENT, "the default stream and those of the pool end with the world")
            } else {
                unknown(raw)
            });
        };
        let stream = lists.own.swap_remove(at);
        lists.retired.push(stream);
        let spent = lists.sweep();
        drop(lists);
        drop(spent);
        Ok(())
    }

    /// The stream that C calls `raw`: null is the default one.
    pub(super) fn find(&self, raw: usize) -> Result<Arc<S>> {
        if raw == 0 || raw == self.default.raw() {
            return Ok(Arc::clone(&self.default));
        }
        let lists = lock(&self.lists);
        let found = lists.pool.iter().chain(&lists.own).find(|stream| stream.raw() == raw);
        found.cloned().ok_or_else(|| unknown(raw))
    }

    /// All that there are, those that were destroyed with work on them too.
    pub(super) fn all(&self) -> Vec<Arc<S>> {
        let lists = lock(&self.lists);
        let made = lists.pool.iter().chain(&lists.own).chain(&lists.retired);
        std::iter::once(&self.default).chain(made).cloned().collect()
    }
}

impl Streams<CpuStream> {
    /// Does something while no work runs on any stream and none begins, where that can be; false where it
    /// cannot.
    pub(super) fn while_idle(&self, then: impl FnOnce()) -> bool {
        let lists = lock(&self.lists);
        let made = lists.pool.iter().chain(&lists.own).chain(&lists.retired);
        let held: Option<Vec<_>> = std::iter::once(&self.default).chain(made).map(|s| s.hold()).collect();
        if held.is_some() {
            then();
        }
        held.is_some()
    }
}

impl<S: DeviceStream> Lists<S> {
    /// Takes out what has ended.
    fn sweep(&mut self) -> Vec<Arc<S>> {
        let (spent, busy) =
            std::mem::take(&mut self.retired).into_iter().partition(|stream| stream.is_spent());
        self.retired = busy;
        spent
    }
}

fn unknown(raw: usize) -> Error {
    err!(BAD_HANDLE, "{raw:#x} is not a stream of this world, or it was destroyed")
}

/// A stream that work can be put on.
pub(crate) enum On {
    Cpu(Arc<CpuStream>),
    Gpu(gpu::stream::Stream),
}

impl KernelCore {
    /// The stream that C calls `raw`.
    ///
    /// # Safety
    /// On a GPU: null, or a stream of the GPU's primary context that outlives the value.
    pub(super) unsafe fn on(&self, raw: *mut c_void) -> Result<On> {
        Ok(match &self.runner {
            Runner::Cpu(runner) => On::Cpu(runner.streams().find(raw as usize)?),
            // SAFETY: the caller gives null or a stream of the GPU's primary context that outlives the value.
            Runner::Gpu(runner) => On::Gpu(unsafe { runner.on(raw) }?),
        })
    }
}

impl Kernels {
    /// The stream that C calls `raw`.
    ///
    /// # Safety
    /// On a GPU: null, or a stream of the GPU's primary context that outlives the value.
    pub(crate) unsafe fn on(&self, raw: *mut c_void) -> Result<On> {
        // SAFETY: the caller gives null or, on a GPU, a stream of its primary context that outlives the
        // value.
        unsafe { self.core.on(raw) }
    }

    /// An error once the device takes no more work, as [`Kernels::on`] would give.
    pub(crate) fn check_alive(&self) -> Result<()> {
        match &self.core.runner {
            Runner::Cpu(_) => Ok(()),
            Runner::Gpu(runner) => runner.check_alive(),
        }
    }

    /// What C may call the default stream, other than null.
    pub(crate) fn default_stream(&self) -> *mut c_void {
        let raw = match &self.core.runner {
            Runner::Cpu(runner) => runner.streams().default().raw(),
            Runner::Gpu(runner) => runner.streams().default().raw(),
        };
        raw as *mut c_void
    }

    /// A new stream.
    pub(crate) fn create_stream(&self) -> Result<*mut c_void> {
        let raw = match &self.core.runner {
            Runner::Cpu(runner) => runner.streams().create(|| Ok(runner.new_stream()))?,
            Runner::Gpu(runner) => runner.streams().create(|| runner.new_stream())?,
        };
        Ok(raw as *mut c_void)
    }

    /// One of the pool's streams, in turn.
    pub(crate) fn pool_stream(&self) -> Result<*mut c_void> {
        let raw = match &self.core.runner {
            Runner::Cpu(runner) => runner.streams().next(|| Ok(runner.new_stream()))?,
            Runner::Gpu(runner) => runner.streams().next(|| runner.new_stream())?,
        };
        Ok(raw as *mut c_void)
    }

    /// Ends a stream that `create_stream` made; its work goes on to its end.
    pub(crate) fn destroy_stream(&self, raw: *mut c_void) -> Result<()> {
        match &self.core.runner {
            Runner::Cpu(runner) => runner.streams().destroy(raw as usize),
            Runner::Gpu(runner) => runner.streams().destroy(raw as usize),
        }
    }

    /// Waits for all work of one stream; the first failure since the last call.
    ///
    /// # Safety
    /// As for [`Kernels::on`].
    pub(crate) unsafe fn synchronize_stream(&self, raw: *mut c_void) -> Result<()> {
        let result = match &self.core.runner {
            Runner::Cpu(runner) => {
                runner.streams().find(raw as usize).and_then(|stream| runner.synchronize(&stream))
            }
            // SAFETY: the caller gives null or a stream of the GPU's primary context that lives.
            Runner::Gpu(runner) => unsafe { runner.on(raw) }.and_then(|stream| runner.synchronize(&stream)),
        };
        self.core.common.print_stalls();
        result
    }

    /// Notes work that may wait, for texts about a stream that does not end.
    pub(crate) fn note(&self, on: &On, what: String) {
        if let (Runner::Gpu(runner), On::Gpu(stream)) = (&self.core.runner, on) {
            runner.note(stream, what);
        }
    }

    /// What an error of putting `what` on a stream means.
    pub(crate) fn explain(&self, e: Error, what: &str) -> Error {
        match &self.core.runner {
            Runner::Cpu(_) => e,
            Runner::Gpu(runner) => runner.explain(e, &format!("{}: {what}", self.core.common.health.who())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::code;
    use std::sync::atomic::AtomicBool;

    struct Fake(usize, Arc<AtomicBool>);

    impl DeviceStream for Fake {
        fn raw(&self) -> usize {
            self.0
        }
        fn is_spent(&self) -> bool {
            !self.1.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn the_pool_takes_turns_and_is_made_when_it_is_used() {
        let idle = || Arc::new(AtomicBool::new(false));
        let streams = Streams::new(Fake(1, idle()), 3);
        assert_eq!(streams.all().len(), 1);
        let mut made = 10;
        let mut next = || {
            streams.next(|| {
                made += 1;
                Ok(Fake(made, idle()))
            })
        };
        let turns: Vec<usize> = (0..7).map(|_| next().unwrap()).collect();
        assert_eq!(turns, [11, 12, 13, 11, 12, 13, 11]);
        assert_eq!(streams.all().len(), 4);
        for raw in [0, 1, 12] {
            assert_eq!(streams.destroy(raw).unwrap_err().code, code::INVALID_ARGUMENT);
        }
        assert_eq!(streams.find(12).unwrap().raw(), 12);
        assert_eq!(streams.find(0).unwrap().raw(), 1);
        assert_eq!(streams.find(14).map(|s| s.raw()).unwrap_err().code, code::BAD_HANDLE);
        // A pool that cannot be made whole says so each time, and goes on.
        let streams = Streams::new(Fake(1, idle()), 2);
        assert_eq!(streams.next(|| Err(err!(IO, "no"))).unwrap_err().code, code::IO);
        assert_eq!(streams.next(|| Ok(Fake(2, idle()))).unwrap(), 2);
        assert_eq!(streams.next(|| Err(err!(IO, "not asked"))).unwrap(), 2);
    }

    #[test]
    fn what_is_destroyed_in_flight_is_kept_until_it_has_landed() {
        let busy = Arc::new(AtomicBool::new(true));
        let streams = Streams::new(Fake(1, Arc::default()), 1);
        let raw = streams.create(|| Ok(Fake(7, Arc::clone(&busy)))).unwrap();
        streams.destroy(raw).unwrap();
        assert_eq!(streams.find(raw).map(|s| s.raw()).unwrap_err().code, code::BAD_HANDLE);
        assert_eq!(streams.destroy(raw).unwrap_err().code, code::BAD_HANDLE);
        assert_eq!(streams.all().len(), 2);
        busy.store(false, Ordering::Relaxed);
        let other = streams.create(|| Ok(Fake(8, Arc::default()))).unwrap();
        assert_eq!(streams.all().iter().map(|s| s.raw()).collect::<Vec<_>>(), [1, 8]);
        streams.destroy(other).unwrap();
        assert_eq!(streams.all().len(), 1);
    }
}
