//! One step of a collective: a message to one neighbour and one from another, at the same time and in pieces,
//! so that blobs of any size go round a ring of ranks, and no rank holds more than a window of others' data.

use std::ops::Range;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use rushmem_bootstrap_abi::{BootError, BootErrorKind, Result};

use super::frame::{Call, Mismatch, Op, CHUNK};
use super::state::{Link, State};
use super::Mesh;
use crate::config;
use crate::ranks::named;

/// How long the answers of the others are awaited when a limit has passed; it takes some 10 ms a hop.
const ROLL_CALL: Duration = Duration::from_secs(3);

/// A message as pieces of a buffer, in order, and how far it has been moved.
#[derive(Debug, Default)]
pub(crate) struct Spans {
    spans: Vec<Range<usize>>,
    at: usize,
    left: usize,
}

impl Spans {
    pub(crate) fn new(spans: Vec<Range<usize>>) -> Spans {
        let left = spans.iter().map(|s| s.len()).sum();
        Spans { spans, at: 0, left }
    }

    pub(crate) fn one(span: Range<usize>) -> Spans {
        Spans { left: span.len(), spans: Vec::from([span]), at: 0 }
    }

    /// The next `n` bytes, span by span.
    fn advance(&mut self, mut n: usize, mut f: impl FnMut(Range<usize>)) {
        debug_assert!(n <= self.left);
        self.left -= n;
        while n > 0 {
            let span = &mut self.spans[self.at];
            let take = n.min(span.len());
            f(span.start..span.start + take);
            span.start += take;
            n -= take;
            if span.start == span.end {
                self.at += 1;
            }
        }
    }
}

/// A call that is under way.
pub(crate) struct Active {
    pub(crate) call: Call,
    pub(crate) until: Instant,
    limit: Duration,
}

/// One direction of a step: with whom, and which bytes.
pub(crate) type Side = Option<(u32, Spans)>;

impl Mesh {
    /// Begins a collective call.
    ///
    /// # Errors
    /// What broke the job already.
    pub(crate) fn begin(&self, op: Op, root: u32, blob: usize, limit: Duration) -> Result<Active> {
        let mut state = self.shared.lock();
        if state.leaving {
            let text = format!("rank {} has left the job already (finalize or abort)", self.shared.me);
            return Err(BootError::new(BootErrorKind::InvalidArgument, text));
        }
        let call = state.begin(op, root, blob as u64);
        if !state.rolls.is_empty() {
            self.shared.wake_io();
        }
        if let Some(e) = state.trouble(call.seq) {
            return Err(e);
        }
        Ok(Active { call, until: config::deadline(limit), limit })
    }

    /// A collective call has ended well.
    pub(crate) fn end(&self, active: &Active) {
        self.shared.lock().ended = active.call.seq;
    }

    /// Moves both messages of step `step`; `buf` holds the bytes of both.
    pub(crate) fn exchange(
        &self,
        active: &Active,
        step: u32,
        buf: &mut [u8],
        mut send: Side,
        mut recv: Side,
    ) -> Result<()> {
        let call = active.call;
        let mut state = self.shared.lock();
        let at = |state: &State, side: &Side| {
            side.as_ref().map(|(rank, _)| {
                let found = state.links.binary_search_by_key(rank, |l| l.rank);
                found.expect("collectives only talk to neighbours, whose links are sorted")
            })
        };
        let (to, from) = (at(&state, &send), at(&state, &recv));
        while send.is_some() || recv.is_some() {
            let mut progress = false;
            if let (Some(to), Some((_, spans))) = (to, send.as_mut()) {
                let link = &mut state.links[to];
                let len = spans.left.min(CHUNK);
                if link.has_credit(len) && !link.ended {
                    let idle = !link.has_output();
                    link.push_data(call, step, len, |out| {
                        spans.advance(len, |r| out.extend_from_slice(&buf[r]))
                    });
                    link.flush();
                    if idle && link.has_output() {
                        self.shared.wake_io(); // it must wait for room
                    }
                    if spans.left == 0 {
                        send = None;
                    }
                    progress = true;
                }
            }
            if let (Some(from), Some((_, spans))) = (from, recv.as_mut()) {
                if let Some(piece) = state.links[from].inbox.pop_front() {
                    let len = piece.payload.len();
                    if piece.call != call || piece.step != step || len > spans.left {
                        return Err(self.disagree(state, from, piece.call, call));
                    }
                    drop(state); // the I/O thread may go on while the bytes are copied
                    let mut taken = 0;
                    spans.advance(len, |r| {
                        let n = r.len();
                        buf[r].copy_from_slice(&piece.payload[taken..taken + n]);
                        taken += n;
                    });
                    if spans.left == 0 {
                        recv = None;
                    }
                    state = self.shared.lock();
                    state.links[from].took(len);
                    progress = true;
                }
            }
            if !progress {
                let waits = [send.is_some().then_some(to), recv.is_some().then_some(from)];
                state = self.wait(state, active, waits.into_iter().flatten().flatten())?;
            }
        }
        Ok(())
    }

    /// Waits until something changes, unless there is no hope.
    fn wait<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        active: &Active,
        links: impl Iterator<Item = usize>,
    ) -> Result<MutexGuard<'a, State>> {
        if let Some(e) = state.trouble(active.call.seq) {
            return Err(e);
        }
        for link in links.map(|at| &state.links[at]) {
            if link.ended {
                return Err(gone(link, active.call));
            }
        }
        let left = active.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(self.give_up(state, active));
        }
        Ok(match self.shared.changed.wait_timeout(state, left) {
            Ok((state, _)) => state,
            Err(e) => e.into_inner().0,
        })
    }

    fn disagree(&self, mut state: MutexGuard<'_, State>, from: usize, theirs: Call, mine: Call) -> BootError {
        if theirs == mine {
            let text = format!("{} sent the wrong step of {mine}", state.links[from].name);
            return BootError::new(BootErrorKind::Internal, text).with_rank(state.links[from].rank);
        }
        let them = state.links[from].rank;
        state.mismatch(Mismatch { a: (self.shared.me, mine), b: (them, theirs) });
        self.shared.publish(&state);
        state
            .trouble(mine.seq)
            .unwrap_or_else(|| Mismatch { a: (self.shared.me, mine), b: (them, theirs) }.error(Some(mine)))
    }

    /// The limit has passed: finds the missing ranks, and tells all others.
    fn give_up<'a>(&'a self, mut state: MutexGuard<'a, State>, active: &Active) -> BootError {
        let seq = active.call.seq;
        state.answer_roll(seq);
        self.shared.wake_io();
        let until = Instant::now() + ROLL_CALL;
        let (silent, absent) = loop {
            if let Some(e) = state.trouble(seq) {
                return e;
            }
            let (silent, absent) = state.absent(seq);
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || silent.is_empty() {
                break (silent, absent);
            }
            state = match self.shared.changed.wait_timeout(state, left) {
                Ok((state, _)) => state,
                Err(e) => e.into_inner().0,
            };
        };
        let (n, limit, call) = (self.shared.n_ranks, active.limit.as_secs_f64(), active.call);
        let text = if absent.is_empty() {
            format!("{call} did not end within {limit:.1} s though all {n} ranks are in it: the network is slow or lossy, or the limit too short")
        } else {
            let silent = match silent[..] {
                [] => String::new(),
                _ => format!(" (no answer at all from {}: stopped, or starved)", named(&silent)),
            };
            format!(
                "{} of {n} never came to {call} within {limit:.1} s{silent}: see what they wait for, or raise the limit",
                named(&absent)
            )
        };
        let mut error = BootError::new(BootErrorKind::Timeout, text);
        if let [only] = absent[..] {
            error = error.with_rank(only);
        }
        state.break_job(seq, error.clone());
        self.shared.publish(&state);
        error
    }
}

fn gone(link: &Link, call: Call) -> BootError {
    let text = format!("{} has left the job while this rank is in {call}", link.name);
    BootError::new(BootErrorKind::PeerDead, text).with_rank(link.rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_move_in_order() {
        let mut spans = Spans::new(vec![0..3, 3..3, 10..14, 20..21]);
        let mut seen = Vec::new();
        for n in [0, 2, 3, 1, 2] {
            spans.advance(n, |r| seen.push(r));
        }
        assert_eq!(spans.left, 0);
        let bytes: Vec<usize> = seen.into_iter().flatten().collect();
        assert_eq!(bytes, [0, 1, 2, 10, 11, 12, 13, 20]);
    }
}
