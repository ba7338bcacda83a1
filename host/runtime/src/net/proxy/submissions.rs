//! Operations of threads that must not drive the engine themselves: the driver's, on which streams of a GPU call the host, may not
//! call CUDA. They leave an errand, which the engine's other threads see to.

use std::collections::VecDeque;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::{err, Result};
use crate::net::engine::{Done, Engine};
use crate::net::{Far, Shared};

/// What is to be started.
type What = Box<dyn FnOnce(&mut Engine, Done) -> Result<()> + Send>;
/// Who hears how it ended; called by a thread that holds the engine, so it is brief.
pub(in crate::net) type Then = Box<dyn FnOnce(Result<u64>) + Send>;

/// What has been left.
#[derive(Default)]
pub(in crate::net) struct Errands(Mutex<VecDeque<(What, Then)>>);

impl Errands {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(What, Then)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts what has been left.
    pub(in crate::net) fn run(&self, engine: &mut Engine) {
        loop {
            let Some((what, then)) = self.lock().pop_front() else { return };
            let done = engine.letter(then);
            if let Err(e) = what(engine, done) {
                engine.fail(e.clone());
                engine.fire(done, Err(e));
            }
        }
    }

    /// Nobody starts what is left.
    pub(in crate::net) fn close(&self) {
        self.lock().clear();
    }
}

impl Shared {
    /// In a broken job nothing is certain to end: whoever waits for an errand goes on.
    pub(in crate::net) fn let_errands_go(&self, engine: &mut Engine) {
        if let Err(e) = self.health.check() {
            engine.answer_letters(&e);
        }
    }
}

impl Far {
    /// Has an operation carried out by others; `then` hears of its end, or of the end of the job.
    pub(crate) fn leave_then(
        &self,
        what: impl FnOnce(&mut Engine, Done) -> Result<()> + Send + 'static,
        then: impl FnOnce(Result<u64>) + Send + 'static,
    ) {
        self.shared.errands.lock().push_back((Box::new(what), Box::new(then)));
        self.shared.bell.ring();
    }

    /// Has an operation carried out by others, and waits for its end.
    pub(crate) fn leave(
        &self,
        what: impl FnOnce(&mut Engine, Done) -> Result<()> + Send + 'static,
    ) -> Result<u64> {
        let (tell, told) = mpsc::channel();
        self.leave_then(what, move |result| drop(tell.send(result)));
        loop {
            match told.recv_timeout(Duration::from_millis(20)) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Timeout) => self.shared.health.check()?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(err!(INTERNAL, "the network was closed before the operation was begun"))
                }
            }
        }
    }
}
