//! Descriptors that have arrived at this PE and that nobody took yet, by exchange and slot; and those that
//! could not arrive, because this process may have no more: the kernel drops them and says no more than that
//! (`MSG_CTRUNC`).

use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::message::{Received, MAX_FDS};
use super::notice::TICK;
use crate::error::{err, raise_the_limit, Error, Result};
use crate::health::Health;
use crate::topology::card::Card;

#[derive(Debug, Default)]
struct State {
    fds: HashMap<(u64, usize), OwnedFd>,
    /// The slots of an exchange whose descriptors are lost.
    lost: Vec<(u64, Range<usize>)>,
    /// An exchange of which the leader could not take all descriptors, and why.
    failed: Option<(u64, String)>,
}

/// See the top of the file.
#[derive(Debug, Default)]
pub(super) struct NodeInbox {
    state: Mutex<State>,
    changed: Condvar,
}

impl NodeInbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The maps are whole between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `message` holds descriptors of exchange `id`, those of slot `first` and of the slots behind it.
    pub(super) fn put(&self, id: u64, first: usize, message: Received) {
        let mut state = self.lock();
        if message.is_cut {
            state.lost.push((id, first + message.fds.len()..first + MAX_FDS));
        }
        state.fds.extend(message.fds.into_iter().enumerate().map(|(k, fd)| ((id, first + k), fd)));
        drop(state);
        self.changed.notify_all();
    }

    /// The leader says that nothing comes of exchange `id`.
    pub(super) fn fail(&self, id: u64, why: String) {
        self.lock().failed = Some((id, why));
        self.changed.notify_all();
    }

    /// Exchange `id` begins: what is left of those before it, because they failed somewhere, goes.
    pub(super) fn forget_before(&self, id: u64) {
        let mut state = self.lock();
        state.fds.retain(|(of, _), _| *of >= id);
        state.lost.retain(|(of, _)| *of >= id);
        state.failed.take_if(|(of, _)| *of < id);
    }

    /// Lets those that wait look at the job's health.
    pub(super) fn wake(&self) {
        self.changed.notify_all();
    }

    /// Drops all descriptors, so that no later reader gets a stale one.
    pub(super) fn clear(&self) {
        *self.lock() = State::default();
    }

    /// The slots whose descriptors are kept.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn slots(&self) -> Vec<usize> {
        self.lock().fds.keys().map(|(_, slot)| *slot).collect()
    }

    /// Waits for the descriptor of `slot`, whose PE `cards` tells.
    pub(super) fn take(
        &self,
        id: u64,
        slot: usize,
        cards: &[Card],
        health: &Health,
        limit: Duration,
    ) -> Result<OwnedFd> {
        let start = Instant::now();
        let mut state = self.lock();
        loop {
            if let Some(fd) = state.fds.remove(&(id, slot)) {
                return Ok(fd);
            }
            if state.lost.iter().any(|(of, slots)| *of == id && slots.contains(&slot)) {
                return Err(no_room(&cards[slot], health));
            }
            if let Some((_, why)) = state.failed.as_ref().filter(|(of, _)| *of == id) {
                return Err(err!(IO, "{}: {why}", cards[0].who()));
            }
            health.check()?;
            if start.elapsed() > limit {
                let who = cards[slot].who();
                return Err(err!(TIMEOUT, "{} waited {limit:?} for the memory of {who}", health.who()));
            }
            state = self.changed.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn no_room(of: &Card, health: &Health) -> Error {
    let limit = raise_the_limit();
    err!(IO, "{} has no file descriptor left for the memory of {}: {limit}", health.who(), of.who())
}
