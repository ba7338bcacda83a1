//! Kernels that give up although the driver never says so. A kernel writes its reason to pinned memory, then
//! traps, and the driver reports the trap. Where processes share a GPU and several kernels trap at one
//! moment, the driver may tell only some of the processes (docs/gpu-findings.md): the stream stays busy for
//! ever. So the host believes the kernel, once the driver has had time to say the same.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::device_state::DeviceState;
use crate::error::{err, Result};
use crate::health::Health;

/// What the host knows about the end of a world's kernels.
pub(super) struct Unreported {
    /// How long the driver has.
    grace: Duration,
    /// When the reason was first seen.
    since: OnceLock<Instant>,
}

impl Unreported {
    /// For a driver that has `grace` to report a kernel that has given up.
    pub(super) fn new(grace: Duration) -> Unreported {
        Unreported { grace, since: OnceLock::new() }
    }

    /// Whether a kernel has given up and the driver, which knows nothing of it, should have reported it by
    /// now.
    pub(super) fn is_overdue(&self, state: &DeviceState) -> bool {
        state.has_failed() && self.since.get_or_init(Instant::now).elapsed() > self.grace
    }

    /// Returns when `query` says that the work has ended, or has failed, when the job breaks, or when news of
    /// a kernel that has given up are overdue. `report` as for [`Health::wait`].
    pub(super) fn wait(
        &self,
        health: &Health,
        state: &DeviceState,
        report: &dyn Fn() -> String,
        query: &dyn Fn() -> Result<bool>,
    ) -> Result<()> {
        let mut outcome = Ok(());
        let waited = health.wait(None, report, &mut || match query() {
            Ok(true) => true,
            Ok(false) if self.is_overdue(state) => {
                outcome = Err(err!(LAUNCH, "a kernel has given up, and the driver does not report it"));
                true
            }
            Ok(false) => false,
            Err(e) => {
                outcome = Err(e);
                true
            }
        });
        waited.and(outcome)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use super::*;
    use crate::device_state::tests::state_of;
    use crate::error::code;
    use rushmem_abi::device::RUSHMEM_DEVICE_FAIL_TIMEOUT;

    const GRACE: Duration = Duration::from_millis(50);

    fn health() -> Arc<Health> {
        Arc::new(Health::new("PE 1".into(), true, None))
    }

    #[test]
    fn a_silent_driver_is_not_waited_for() {
        let (health, unreported) = (health(), Unreported::new(GRACE));
        let state = state_of(&health);
        // The kernel gives up after a while.
        let (start, polls) = (Instant::now(), Cell::new(0_u32));
        let e = unreported
            .wait(&health, &state, &|| "for it to end".into(), &|| {
                polls.set(polls.get() + 1);
                if start.elapsed() > GRACE {
                    state.fail_as_a_kernel_does(RUSHMEM_DEVICE_FAIL_TIMEOUT);
                }
                Ok(false)
            })
            .unwrap_err();
        assert_eq!(e.code, code::LAUNCH, "{e}");
        let took = start.elapsed();
        assert!(took >= 2 * GRACE && took < Duration::from_secs(60), "{took:?} {} polls", polls.get());
        // The reason is still there, to be reported.
        assert_eq!(state.take_failure().0, RUSHMEM_DEVICE_FAIL_TIMEOUT);
    }

    #[test]
    fn a_driver_that_tells_in_time_is_believed() {
        let (health, unreported) = (health(), Unreported::new(Duration::from_secs(600)));
        let state = state_of(&health);
        state.fail_as_a_kernel_does(RUSHMEM_DEVICE_FAIL_TIMEOUT);
        let start = Instant::now();
        let query = || match start.elapsed() > GRACE {
            true => Err(err!(IO, "the context is lost")),
            false => Ok(false),
        };
        let e = unreported.wait(&health, &state, &|| "for it to end".into(), &query).unwrap_err();
        assert_eq!(e.code, code::IO, "{e}");
        assert!(!unreported.is_overdue(&state));
    }

    #[test]
    fn without_a_reason_nothing_is_overdue() {
        let (health, unreported) = (health(), Unreported::new(Duration::ZERO));
        let state = state_of(&health);
        let start = Instant::now();
        unreported
            .wait(&health, &state, &|| "for it to end".into(), &|| Ok(start.elapsed() > GRACE))
            .unwrap();
        assert!(!unreported.is_overdue(&state));
        // What has ended well is no failure, whatever another kernel has left meanwhile.
        state.fail_as_a_kernel_does(RUSHMEM_DEVICE_FAIL_TIMEOUT);
        unreported.wait(&health, &state, &|| "for it to end".into(), &|| Ok(true)).unwrap();
    }
}
