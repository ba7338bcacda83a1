//! Whom a wait was for. A round of collective calls waits for the PE that came last. A wait for a word was
//! for the PE whose operation on that word was the last to begin before the wait's end; not for one whose
//! operation was over before the wait began, which would not have had to wait. Where clocks are known within
//! a bound, and no operation fits, one counts that fits within it.

use std::collections::BTreeMap;
use std::fmt;

use crate::timeline::read::{Round, Span, Timeline};

/// A wait.
pub(crate) struct Wait<'a> {
    pub(crate) pe: i64,
    pub(crate) whom: Option<i64>,
    pub(crate) ns: u64,
    span: &'a Span,
}

impl fmt::Display for Wait<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PE {} ", self.pe)?;
        match self.whom {
            Some(whom) => write!(f, "for PE {whom}: ")?,
            None => f.write_str("for nobody known: ")?,
        }
        f.write_str(&self.span.name)?;
        match (self.span.round, self.span.word) {
            (Some(Round::Host { team: 0, number }), _) => write!(f, ", round {number} of the world")?,
            (Some(Round::Host { team, number }), _) => write!(f, ", round {number} of team {team}")?,
            (Some(Round::Kernels { slots: 0, phase }), _) => write!(f, ", number {phase} in kernels")?,
            (Some(Round::Kernels { slots, phase }), _) => {
                write!(f, ", phase {phase} of the team at heap offset {slots:#x}")?;
            }
            (None, Some(word)) => write!(f, " at heap offset {word:#x}")?,
            (None, None) => {}
        }
        match &self.span.kernel {
            None => write!(f, ", on thread {}", self.span.thread)?,
            Some((kernel, line)) => {
                let at = line.as_ref().map_or(String::new(), |line| format!(" at {line}"));
                write!(f, ", kernel {kernel}, {}{at}", self.span.thread)?;
            }
        }
        if !self.span.has_ended {
            f.write_str("; it never ended")?;
        }
        Ok(())
    }
}

/// An operation on a word: when it began, until when it may have changed the word, and whose it is.
type Write = (i64, i64, i64);

/// All waits of a run.
pub(crate) fn of(timelines: &[Timeline]) -> Vec<Wait<'_>> {
    let all = || timelines.iter().flat_map(|t| t.spans.iter().map(move |span| (t.pe, span)));
    let mut last: BTreeMap<Round, (i64, i64)> = BTreeMap::new();
    let mut writes: BTreeMap<(i64, u64), Vec<Write>> = BTreeMap::new();
    // As far as clocks are known.
    let hosts = timelines.iter().filter_map(|t| t.clock).map(|c| c.error_ns as i64).max().unwrap_or(0);
    let error = hosts + timelines.iter().map(|t| t.gpu_error_ns as i64).max().unwrap_or(0);
    for (pe, span) in all() {
        if let Some(round) = span.round {
            let came = last.entry(round).or_insert((span.start, pe));
            *came = (*came).max((span.start, pe));
        } else if let (Some(peer), Some(word)) = (span.peer, span.word) {
            writes.entry((peer, word)).or_default().push((
                span.start,
                if span.is_far { i64::MAX } else { span.end + 2 * error },
                pe,
            ));
        }
    }
    for starts in writes.values_mut() {
        starts.sort_unstable();
    }
    let wait = |(pe, span): (i64, &'_ Span)| -> Option<(Option<i64>, u64)> {
        if let Some(round) = span.round {
            let (start, whom) = last[&round];
            if whom == pe {
                // A round that never ended lacks a PE that is not in the picture.
                return (!span.has_ended).then(|| (None, (span.end - span.start).max(0) as u64));
            }
            return Some((Some(whom), (start.min(span.end) - span.start).max(0) as u64));
        }
        let is_wait =
            span.kind == "wait" || (span.kind == "stream" && span.peer.is_none() && span.word.is_some());
        if !is_wait {
            return None;
        }
        let writes = span.word.and_then(|word| writes.get(&(pe, word)));
        let last_until = |time: i64| {
            let writes = writes?;
            let before = writes.partition_point(|(start, ..)| *start <= time);
            writes.get(before.checked_sub(1)?).filter(|(_, end, _)| *end >= span.start && span.has_ended)
        };
        let last = last_until(span.end).or_else(|| last_until(span.end + 2 * error));
        let whom = last.map(|(.., pe)| *pe);
        Some((whom, (span.end - span.start).max(0) as u64))
    };
    all().filter_map(|(pe, span)| wait((pe, span)).map(|(whom, ns)| Wait { pe, whom, ns, span })).collect()
}
