//! Compilers work for seconds, for minutes where kernels are large, and ask nothing of ours meanwhile. Beside
//! them a PE hears that the job is broken.

use std::sync::mpsc::{channel, RecvTimeoutError};
use std::time::Duration;

use crate::error::{err, Error, Result};
use crate::health::Health;

/// How often the job is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// What a main thread has, as compilers that are libraries count on it.
const STACK: usize = 8 << 20;

/// Has a compiler do its `work` on a thread of its own, and waits for that. Once the job is broken the error
/// is the job's, and the compiler is left to itself: what it makes it puts into the cache.
pub(super) fn beside<T: Send + 'static>(
    health: &Health,
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let _outside = health.outside(|| format!("for {name} to be compiled"));
    let (done, result) = channel();
    let thread = std::thread::Builder::new().name("rushmem-compile".into()).stack_size(STACK);
    // Nobody may be waiting any more.
    let spawned = thread.spawn(move || drop(done.send(work())));
    spawned.map_err(|e| Error::thread("the thread of a compiler", &e))?;
    loop {
        match result.recv_timeout(LOOK) {
            Ok(made) => return Ok(made),
            Err(RecvTimeoutError::Timeout) => {
                health.check().map_err(|e| e.context(format_args!("while {name} was compiled")))?;
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(err!(INTERNAL, "the compiler of {name} panicked"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::code;
    use std::sync::{mpsc, Arc};
    use std::time::Instant;

    #[test]
    fn a_compiler_that_ends_gives_what_it_made_in_a_broken_job_too() {
        let health = Arc::new(Health::new("PE 0".into(), false, None));
        assert_eq!(beside(&health, "x.cu", || 7).unwrap(), 7);
        health.break_job("PE 1 died".into());
        assert_eq!(beside(&health, "x.cu", || 8).unwrap(), 8);
    }

    #[test]
    fn a_job_that_breaks_does_not_wait_for_the_compiler() {
        let health = Arc::new(Health::new("PE 0".into(), false, None));
        let (release, held) = mpsc::channel::<()>();
        let breaker = Arc::clone(&health);
        let start = Instant::now();
        let other = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            breaker.break_job("PE 1 died".into());
        });
        let error = beside(&health, "x.cu", move || held.recv().is_ok()).unwrap_err();
        assert_eq!(error.code, code::PEER_DEAD);
        assert!(error.message.contains("PE 1 died") && error.message.contains("x.cu"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
        drop(release);
        other.join().unwrap();
    }

    #[test]
    fn a_compiler_that_panics_is_an_error() {
        let health = Arc::new(Health::new("PE 0".into(), false, None));
        let error = beside(&health, "x.cu", || -> u32 { panic!("as a test wants") }).unwrap_err();
        assert_eq!(error.code, code::INTERNAL);
    }
}
