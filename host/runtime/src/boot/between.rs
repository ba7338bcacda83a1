//! Between two worlds of a job no PE is connected with another one, so a PE that dies there would be missed
//! only at the limit of the next start. Therefore each PE remembers who its mates of the last world were,
//! those at the other end of its node's sockets, by process and time of birth; while it waits for the next
//! start, it looks whether they live.
//!
//! Nothing is held open meanwhile. A PE of another host is watched by the PEs of its node; their start fails,
//! and the bootstrap passes that on to all. A PE that is alone on its host is missed at the limit.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rushmem_bootstrap_abi::{BootError, BootErrorKind};
use rushmem_bootstrap_uid::Watch;

use crate::config::Config;
use crate::node::mate::Mate;

/// Another process may have been started in place of one that ended: then the job comes up soon.
const GRACE: Duration = Duration::from_secs(2);

/// Where the last world met that ended in good order, and the mates in it.
static LAST: Mutex<Option<(String, Vec<Mate>)>> = Mutex::new(None);

/// A world of this process has ended in good order.
pub(crate) fn remember(config: &Config, mates: Vec<Mate>) {
    let last = config.meeting.clone().map(|meeting| (meeting, mates));
    *LAST.lock().unwrap_or_else(PoisonError::into_inner) = last;
}

/// For a start that may be of the same PEs again.
pub(super) fn watch(config: &Config) -> Watch {
    let last = LAST.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some((_, mates)) = last.filter(|(meeting, _)| Some(meeting) == config.meeting.as_ref()) else {
        return Watch::default();
    };
    let seen = Mutex::new(None);
    Watch::new(move || {
        let Some(mate) = mates.iter().find(|mate| mate.is_gone()) else { return Ok(()) };
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.get_or_insert_with(Instant::now).elapsed() < GRACE {
            return Ok(());
        }
        let text = format!(
            "{} is gone: its process ended between the last world, which it left in good order, and this one, which waits for it",
            mate.who
        );
        Err(BootError::new(BootErrorKind::PeerDead, text).with_rank(mate.pe))
    })
}
