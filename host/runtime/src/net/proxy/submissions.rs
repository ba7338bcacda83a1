//! Submissions: operations of threads that must not turn the engine themselves. The CUDA driver's thread, on
//! which a GPU's stream calls the host, may not call CUDA, and the engine does. So it queues what it wants;
//! the next thread that turns the engine begins it.

use std::collections::VecDeque;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::{err, Result};
use crate::net::completion::{Callback, Done};
use crate::net::engine::{Engine, PATIENCE};
use crate::net::Far;

/// What is to begin.
type Operation = Box<dyn FnOnce(&mut Engine, Done) -> Result<()> + Send>;

/// What has been submitted and not begun.
#[derive(Default)]
pub(in crate::net) struct Submissions(Mutex<VecDeque<(Operation, Callback)>>);

impl Submissions {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(Operation, Callback)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins what has been submitted.
    pub(in crate::net) fn begin(&self, engine: &mut Engine) {
        loop {
            let Some((operation, callback)) = self.lock().pop_front() else { return };
            engine.begin(operation, callback);
        }
    }

    /// Drops what has not begun: its callbacks never run.
    pub(in crate::net) fn close(&self) {
        self.lock().clear();
    }
}

impl Far {
    /// Has another thread begin an operation; the callback runs when it is over, or the job is.
    pub(crate) fn submit(
        &self,
        operation: impl FnOnce(&mut Engine, Done) -> Result<()> + Send + 'static,
        callback: impl FnOnce(Result<u64>) + Send + 'static,
    ) {
        self.shared.submissions.lock().push_back((Box::new(operation), Box::new(callback)));
        self.shared.doorbell.ring();
    }

    /// The same, and waits for its end.
    pub(crate) fn submit_and_wait(
        &self,
        operation: impl FnOnce(&mut Engine, Done) -> Result<()> + Send + 'static,
    ) -> Result<u64> {
        let (send, receive) = mpsc::channel();
        self.submit(operation, move |result| drop(send.send(result)));
        loop {
            match receive.recv_timeout(Duration::from_millis(20)) {
                Ok(result) => return result,
                // In a broken job the callback runs once the operation's memory is free.
                Err(RecvTimeoutError::Timeout)
                    if self.shared.health.broken_for().is_some_and(|time| time > 2 * PATIENCE) =>
                {
                    self.shared.health.check()?
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(err!(INTERNAL, "the network was closed before the operation began"))
                }
            }
        }
    }
}
