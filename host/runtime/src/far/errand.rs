//! Operations of threads that must not drive the engine themselves: the driver's, on which streams of a GPU call the host, may not
//! call CUDA. They leave an errand, and sleep until the engine's other threads have seen to it.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::engine::{Done, Engine};
use super::Far;
use crate::error::Result;

/// What is to be started.
type What = Box<dyn FnOnce(&mut Engine, Done) -> Result<()> + Send>;

/// Where the answer goes.
#[derive(Debug, Default)]
pub(super) struct Letterbox {
    answer: Mutex<Option<Result<u64>>>,
    came: Condvar,
}

impl Letterbox {
    pub(super) fn put(&self, answer: Result<u64>) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
        self.came.notify_all();
    }
}

/// What has been left.
#[derive(Default)]
pub(super) struct Errands(Mutex<VecDeque<(What, Arc<Letterbox>)>>);

impl Errands {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(What, Arc<Letterbox>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts what has been left.
    pub(super) fn run(&self, engine: &mut Engine) {
        loop {
            let Some((what, letterbox)) = self.lock().pop_front() else { return };
            let done = engine.letter(Arc::clone(&letterbox));
            if let Err(e) = what(engine, done) {
                letterbox.put(Err(e));
            }
        }
    }
}

impl Far {
    /// Has an operation carried out by others, and waits for its end.
    pub(crate) fn leave(
        &self,
        what: impl FnOnce(&mut Engine, Done) -> Result<()> + Send + 'static,
    ) -> Result<u64> {
        let letterbox = Arc::new(Letterbox::default());
        self.shared.errands.lock().push_back((Box::new(what), Arc::clone(&letterbox)));
        self.shared.bell.ring();
        let mut answer = letterbox.answer.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(answer) = answer.take() {
                return answer;
            }
            self.shared.health.check()?;
            let waited = letterbox.came.wait_timeout(answer, Duration::from_millis(20));
            answer = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
