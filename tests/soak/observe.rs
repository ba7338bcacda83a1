//! A thread of the host that looks at its PE's memory while actors work on it: an observer that sees an
//! operation sees all that its actor fenced before it, and behind a signal its data.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::api_common::Rng;
use crate::field::Field;
use crate::program::{Op, Program, SIGNALS, WORDS};
use crate::round::Known;

/// What is looked at behind what has been seen.
const LOOKS: usize = 12;

/// Looks until it is stopped, or has found something.
pub(crate) fn watch(
    field: &Field<'_>,
    program: &Program,
    known: &[Vec<Known>],
    stop: &AtomicBool,
) -> Option<String> {
    let me = field.world.my_pe().number();
    let mut random = Rng::new(program.round ^ (u64::from(me) << 32));
    // What each actor does here, by number.
    let here: Vec<(usize, &Known, Vec<&Op>)> = (0..program.actors.len())
        .flat_map(|pe| (0..program.actors[pe].len()).map(move |k| (pe, k)))
        .map(|(pe, k)| {
            let ops = &program.actors[pe][k].1;
            let mine =
                ops.iter().filter(|op| op.pe == me && (op.kind.writes() || op.kind.signals())).collect();
            (Field::actor(pe, k), &known[pe][k], mine)
        })
        .filter(|(_, _, ops): &(usize, &Known, Vec<&Op>)| !ops.is_empty())
        .collect();
    if here.is_empty() {
        return None;
    }
    while !stop.load(Ordering::Relaxed) {
        let (actor, known, ops) = &here[random.below(here.len())];
        let looked = Look { field, program, known, ops, actor: *actor };
        if let Some(wrong) = looked.once(&mut random) {
            return Some(format!("seen on PE {me} of actor {actor}: {wrong}"));
        }
        // Actors need the cores, too.
        if random.below(16) == 0 {
            std::thread::yield_now();
        }
    }
    None
}

struct Look<'a> {
    field: &'a Field<'a>,
    program: &'a Program,
    known: &'a Known,
    ops: &'a [&'a Op],
    actor: usize,
}

impl Look<'_> {
    /// The operation whose value is in a word or signal now; `Ok(None)`: of an earlier round, `Err`: part of
    /// one, or a wrong one, which the end of the round tells.
    fn writer(&self, at: usize, is_signal: bool) -> Result<Option<usize>, ()> {
        let word = if is_signal {
            self.field.signals.at(self.actor * SIGNALS + at).expect("it is one of them").as_ptr()
        } else {
            // SAFETY: inside the actor's region.
            unsafe { self.field.rows.as_ptr().add(self.actor * WORDS + at) }
        };
        // SAFETY: an aligned word of this PE's memory.
        let value = unsafe { AtomicU64::from_ptr(word) }.load(Ordering::Acquire);
        self.program.writer(value)
    }

    /// One look: a word or a signal, and then whatever must be there.
    fn once(&self, random: &mut Rng) -> Option<String> {
        let first = self.ops[random.below(self.ops.len())];
        let is_signal = first.kind.signals() && (!first.kind.writes() || random.below(2) == 0);
        let at = if is_signal { first.at } else { nth(first, random) };
        let Ok(Some(seen)) = self.writer(at, is_signal) else { return None };
        let what = if is_signal { "signal" } else { "word" };
        let epoch = self.known.epochs[&seen];
        for _ in 0..LOOKS {
            let earlier = self.ops[random.below(self.ops.len())];
            let behind = is_signal && earlier.id == seen && earlier.kind.writes();
            if self.known.epochs[&earlier.id] >= epoch && !behind {
                continue;
            }
            let is_signal = !behind && earlier.kind.signals() && !earlier.kind.writes();
            let other = if is_signal { earlier.at } else { nth(earlier, random) };
            match self.writer(other, is_signal) {
                Ok(Some(id)) if id >= earlier.id => {}
                Err(()) => {}
                Ok(id) => {
                    let place = if is_signal { "signal" } else { "word" };
                    let Op { id: before, .. } = earlier;
                    return Some(format!(
                        "{what} {at} shows operation {seen}, behind a fence after operation {before} ({earlier}), \
                         of which {place} {other} shows {id:?} still"
                    ));
                }
            }
        }
        None
    }
}

/// One of the words that an operation writes: often the first or the last.
fn nth(op: &Op, random: &mut Rng) -> usize {
    let i = [0, op.n - 1, random.below(op.n)][random.below(3)];
    op.word + i * op.stride.max(1)
}
