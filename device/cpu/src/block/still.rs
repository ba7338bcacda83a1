//! A block that does not move: which of its threads are where, what they wait for, and who is missing.
//!
//! A block moves when a thread exits, reaches a barrier or a warp collective, or when what a thread polls has
//! changed. A thread that was interrupted (`crate::watch`) moves unless it looks as it looked before: the
//! same instruction, registers and top of the stack. So a long computation is no stall, and a loop that polls
//! is one, whatever it polls with. A loop that counts beside it is reported, and not ended: it may use up
//! time.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::looks::Looks;
use super::Block;
use crate::context::{self, ThreadContext};
use crate::hooks::Fiber;
use crate::idle::Idle;
use crate::launch::Reports;
use crate::monotonic::now_ns;
use crate::outcome::Cause;
use crate::stack_trace::{Counters, SourcePlace};
use crate::waiting::{missing_lanes, named, text};

/// Places named in one text.
const PLACES: usize = 8;
/// What waits by a rushmem call ends by itself at the limit, with a better text.
const GRACE: Duration = Duration::from_secs(1);
/// Looks that it has for that: it looks at the clock every 4 polls (`polls_per_tick`), and the first time
/// only learns when it has begun. Polls are slow where the machine is busy.
const POLLS: u32 = 64;
/// Such a wait's own report may come so much later than the block is due, a part of that time.
const LATE_PART: u64 = 16;

/// What is known of a block that does not move.
pub(super) struct Still {
    stall: Option<u64>,
    limit: Option<u64>,
    /// Since when it did not move at the last look, and when the next text is due, after that time.
    since: u64,
    next: u64,
    told: u64,
    /// Looks since the limit passed.
    over: u32,
    looks: HashMap<u32, Looks>,
}

impl Still {
    pub(super) fn new(reports: &Reports) -> Still {
        let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let limit = reports.limit.map(|limit| ns(limit.saturating_add(GRACE)));
        Still {
            stall: reports.stall.map(ns),
            limit,
            since: 0,
            next: 0,
            told: 0,
            over: 0,
            looks: HashMap::new(),
        }
    }
}

impl Block<'_> {
    /// `thread` was interrupted, because it had not yielded; whether it has moved since the last time.
    pub(super) fn interrupted(&mut self, thread: u32) -> bool {
        let Some(os_thread) = self.os_thread else { return true };
        os_thread.often.store(true, Ordering::Relaxed);
        let looks = os_thread.looked();
        self.still.looks.entry(thread).or_default().moved(looks)
    }

    /// Nothing has moved in this round, or a wait has lasted (`woke`): a text where one is due. `None`: it
    /// was too long.
    pub(super) fn look_still(&mut self, idle: &Idle, woke: u32, contexts: *mut ThreadContext) -> Option<()> {
        let (since, waited) = idle.still();
        let (stall, limit) = (self.still.stall, self.still.limit);
        if self.still.since != since {
            (self.still.since, self.still.next, self.still.over) = (since, stall.unwrap_or(u64::MAX), 0);
        }
        // What waits by a rushmem call says by itself what for (`STALLED`), and says it first: naming places
        // takes long on a busy machine, and the wait may end at its limit meanwhile.
        let (next, late) = (self.still.next, self.still.next / LATE_PART);
        let is_near = since != 0 && waited >= next - late;
        let is_stalled = since != 0 && waited >= next && (waited - next >= late || !self.polls(contexts));
        let mut lasts = woke & context::STALLED != 0;
        if lasts {
            lasts = stall.is_some_and(|stall| self.still.told == 0 || now_ns() - self.still.told >= stall);
        }
        self.still.over += u32::from(since != 0 && limit.is_some_and(|limit| waited >= limit));
        let is_over = self.still.over > 1 && (self.still.over > POLLS || !self.polls(contexts));
        // What counts may as well use up time on purpose.
        let is_over =
            is_over && !self.any(contexts, |one| one.request == context::PREEMPT && self.counts(one));
        if !(is_stalled || lasts || is_over) {
            return Some(());
        }
        self.still.next = waited.max(next.min(u64::MAX / 4)).saturating_mul(2);
        self.still.told = now_ns();
        let seconds = waited as f64 / 1e9;
        let places = self.places(contexts);
        if is_over {
            let text = format!("the block has not moved for {seconds:.1} s, longer than RUSHMEM_WAIT_TIMEOUT allows: {places}");
            self.launch.fail(Cause::Stuck(text), Some((self.context.block_idx, [0; 3])));
            return None;
        }
        let [x, y, z] = self.context.block_idx;
        let code = &self.launch.code;
        let what = match is_near {
            true => format!("has not moved for {seconds:.1} s"),
            false => "has a wait that lasts".into(),
        };
        log::warn!(
            "{}kernel `{}` ({}), block ({x},{y},{z}) {what}: {places}",
            self.launch.reports().prefix(),
            code.kernel(),
            code.source()
        );
        Some(())
    }

    /// Whether a thread waits by a rushmem call.
    fn polls(&self, contexts: *mut ThreadContext) -> bool {
        self.any(contexts, |one| one.request == context::SPIN)
    }

    /// Whether that is so of a thread that has begun and not ended.
    fn any(&self, contexts: *mut ThreadContext, is_so: impl Fn(&ThreadContext) -> bool) -> bool {
        (0..self.launch.threads).any(|thread| {
            // SAFETY: the table's entry of one of the block's threads, which is suspended.
            self.space.running[thread].is_some() && is_so(unsafe { &*contexts.add(thread) })
        })
    }

    /// Whether a thread that was interrupted was found to count.
    fn counts(&self, context: &ThreadContext) -> bool {
        self.still.looks.get(&context.linear).is_some_and(|looks| looks.counts)
    }

    /// Where every thread is.
    fn places(&mut self, contexts: *mut ThreadContext) -> String {
        let mut known: HashMap<Counters, SourcePlace> = HashMap::new();
        let mut groups: BTreeMap<String, Vec<ThreadContext>> = BTreeMap::new();
        let (mut all, mut away) = (Vec::new(), Vec::new());
        let mut asleep = 0;
        for thread in 0..self.launch.threads as u32 {
            if self.space.running[thread as usize].is_none() {
                asleep += usize::from(self.space.queue.contains(&thread));
                continue;
            }
            let counters = self.probe(thread, contexts);
            // SAFETY: the table's entry of one of the block's threads, which is suspended.
            let context = unsafe { *contexts.add(thread as usize) };
            let code = &self.launch.code;
            let place = known.entry(counters).or_insert_with_key(|counters| code.place(counters));
            groups.entry(self.doing(&context, place)).or_default().push(context);
            all.push(context);
            if context.request != context::BARRIER {
                away.push(context);
            }
        }
        let mut parts = Vec::new();
        for (doing, threads) in groups.iter().take(PLACES) {
            let first = &threads[0];
            let mut part = format!("{} {doing}", named(&threads.iter().collect::<Vec<_>>()));
            if first.request == context::BARRIER && !away.is_empty() {
                part += &format!(", which {} not reached", have(&away));
            }
            if first.request == context::WARP {
                let missing = missing_lanes(first, &all, &self.space.warps);
                part += &format!(" with mask {:#010x}, missing lanes {missing:#010x}", first.mask);
            }
            parts.push(part);
        }
        if groups.len() > PLACES {
            parts.push(format!("and {} more places", groups.len() - PLACES));
        }
        let gone = self.launch.threads - self.live;
        if gone > 0 {
            parts.push(format!("{gone} of {} threads have exited", self.launch.threads));
        }
        if asleep > 0 {
            parts.push(format!("{asleep} threads have not begun"));
        }
        parts.join("; ") + &self.launch.turns()
    }

    /// What a thread does there, as a verb's phrase.
    fn doing(&self, context: &ThreadContext, place: &SourcePlace) -> String {
        let at = place.phrase();
        match context.request {
            context::BARRIER | context::WARP => {
                let what = text(context.what);
                let line = format!("{}:{}", text(context.file), context.line);
                let at = place.at.as_ref().unwrap_or(&line);
                let call = match &place.call {
                    Some(call) if !what.starts_with(call.as_str()) => format!("{call}(): {what}"),
                    _ => what,
                };
                format!("at {at} in {call}")
            }
            context::SPIN => format!("waiting{at}"),
            context::TICK => format!("polling with atomics, fences or a clock{at}"),
            _ if self.still.looks.get(&context.linear).is_some_and(|looks| looks.repeats) => {
                format!("in a loop that polls memory with plain loads, or never ends,{at}")
            }
            _ if self.counts(context) => {
                format!("in a loop that does nothing but count, and may poll memory with plain loads,{at}")
            }
            _ => format!("computing{at}"),
        }
    }

    /// Asks a suspended thread where it is.
    pub(super) fn probe(&mut self, thread: u32, contexts: *mut ThreadContext) -> Counters {
        let mut counters = Counters::default();
        // SAFETY: the table's entry of one of the block's threads, and its fiber, which outlive this; the
        // thread answers in `hooks::suspend`, and is suspended again as it was.
        unsafe {
            let fiber = Fiber::of(contexts.add(thread as usize));
            fiber.probe.set(&mut counters);
            if let Some(running) = &mut self.space.running[thread as usize] {
                let _ = running.coroutine.resume(());
            }
            fiber.probe.set(std::ptr::null_mut());
        }
        counters
    }
}

/// `1 thread (3,0,0) has`.
fn have(threads: &[ThreadContext]) -> String {
    let verb = if threads.len() == 1 { "has" } else { "have" };
    format!("{} {verb}", named(&threads.iter().collect::<Vec<_>>()))
}
