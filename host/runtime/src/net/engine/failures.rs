//! Failures: a PE that the network has lost, and an engine that cannot go on. It promises that the job's
//! reason is the PE's own where that is known: a connection breaks before it is known why, so the network's
//! word is a suspicion for a moment.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{err, Error, Result};
use crate::health::Health;
use crate::net::completion::Done;

/// How long the reason of a PE's end may take to arrive, when its connection has broken.
const REASON: Duration = Duration::from_millis(500);

pub(in crate::net) struct Failures {
    me: usize,
    /// Who each PE is, for texts.
    names: Vec<String>,
    health: Arc<Health>,
    /// Why the network thinks that a PE is gone, and since when.
    lost: Option<(Instant, String)>,
    /// What failed with it, and completes once the reason is known.
    failed: Vec<Done>,
}

impl Failures {
    pub(in crate::net) fn new(me: usize, names: Vec<String>, health: Arc<Health>) -> Failures {
        Failures { me, names, health, lost: None, failed: Vec::new() }
    }

    /// Who a PE is, for texts.
    pub(in crate::net) fn name(&self, pe: usize) -> &str {
        self.names.get(pe).map_or("a PE that does not exist", String::as_str)
    }

    /// The network has lost a PE.
    pub(in crate::net) fn suspect(&mut self, pe: usize, e: &Error) {
        let why = format!("{} cannot be reached any more: {}", self.name(pe), e.message);
        self.lost.get_or_insert_with(|| (Instant::now(), why));
    }

    /// An operation on a lost PE has failed; it completes with [`Failures::decide`].
    pub(in crate::net) fn hold(&mut self, done: Done) {
        self.failed.push(done);
    }

    /// Breaks the job over a loss once its reason is known, or none has come in time: what fails, and why.
    pub(in crate::net) fn decide(&mut self) -> Option<(Vec<Done>, Error)> {
        let (since, why) = self.lost.as_ref()?;
        if self.health.check().is_ok() && !self.health.is_leaving() && since.elapsed() < REASON {
            return None;
        }
        self.health.break_job(why.clone());
        let error = self.health.check().err().unwrap_or_else(|| err!(PEER_DEAD, "{why}"));
        Some((std::mem::take(&mut self.failed), error))
    }

    /// After how long a stall is reported.
    pub(in crate::net) fn stall_report(&self) -> Option<Duration> {
        self.health.stall_report()
    }

    /// Says that kernels have had no room to post for so long, and operations on which PEs are under way.
    pub(in crate::net) fn report_full_ring(&self, lasted: Duration, pes: impl Iterator<Item = usize>) {
        let pes: BTreeSet<usize> = pes.collect();
        let names: Vec<&str> = pes.iter().take(4).map(|pe| self.name(*pe)).collect();
        let more = if pes.len() > names.len() { ", …" } else { "" };
        log::warn!(
            "{} has had no room for what its kernels post for {:.1} s: the device ring is full, and nothing of it is \
             taken before earlier operations complete, on {}{more}",
            self.health.who(),
            lasted.as_secs_f64(),
            if names.is_empty() { "no PE".to_owned() } else { names.join(", ") }
        );
    }

    /// The engine itself cannot go on: everything that waits ends.
    pub(in crate::net) fn fail(&mut self, e: &Error) {
        self.health.break_job(format!("the network of {} failed: {}", self.names[self.me], e.message));
    }

    /// How long the job has been broken.
    pub(in crate::net) fn broken_for(&self) -> Option<Duration> {
        self.health.broken_for()
    }

    /// An error where the job is broken.
    pub(in crate::net) fn check(&self) -> Result<()> {
        self.health.check()
    }
}
