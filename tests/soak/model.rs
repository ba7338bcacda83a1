//! What one actor's program must do, and which programs say it for certain.
//!
//! Operations between two fences have no order among themselves (OpenSHMEM 1.5, section 9.11). So a program
//! may touch a word once between two fences, and read what it has written behind a quiet only: then each
//! word's history is known.

use std::collections::{HashMap, HashSet};

use crate::program::{Kind, Op, COUNTERS};

/// The words of one PE that an actor has, as its program has left them.
#[derive(Debug, Default, Clone)]
struct Target {
    /// Who wrote a word last: the operation's id.
    words: HashMap<usize, usize>,
    signals: HashMap<usize, usize>,
    counters: [u64; COUNTERS],
    /// What has been touched since the last fence, and written since the last quiet.
    fresh: HashSet<(u8, usize)>,
    unsettled: HashSet<usize>,
}

/// An actor's words on all PEs.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    targets: Vec<Target>,
    /// The fences and quiets so far.
    epoch: usize,
    shared: Vec<u64>,
}

/// What an operation gives back.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Expected {
    /// The epoch in which it is.
    pub(crate) epoch: usize,
    /// The old value of an atomic.
    pub(crate) fetched: Option<u64>,
    /// For each word that it reads, who wrote it: `None` where no operation of this program has.
    pub(crate) read: Vec<Option<usize>>,
}

const WORD: u8 = 0;
const SIGNAL: u8 = 1;
const COUNTER: u8 = 2;

impl Model {
    pub(crate) fn new(n: u32) -> Model {
        Model { targets: vec![Target::default(); n as usize], epoch: 0, shared: vec![0; n as usize] }
    }

    /// Carries out an operation; refuses, and does nothing, where its outcome would not be certain.
    pub(crate) fn allow(&mut self, op: &Op) -> Result<Expected, ()> {
        let mut expected = Expected { epoch: self.epoch, ..Expected::default() };
        if matches!(op.kind, Kind::Fence | Kind::Quiet) {
            self.epoch += 1;
            for target in &mut self.targets {
                target.fresh.clear();
                if op.kind == Kind::Quiet {
                    target.unsettled.clear();
                }
            }
            return Ok(expected);
        }
        if op.kind == Kind::SharedAdd {
            self.shared[op.pe as usize] = self.shared[op.pe as usize].wrapping_add(op.value);
            return Ok(expected);
        }
        let target = &mut self.targets[op.pe as usize];
        if op.kind.reads() {
            if op.words().any(|word| target.unsettled.contains(&word) || target.fresh.contains(&(WORD, word)))
            {
                return Err(());
            }
            expected.read = op.words().map(|word| target.words.get(&word).copied()).collect();
            return Ok(expected);
        }
        let mut touched: Vec<(u8, usize)> = Vec::new();
        if op.kind.writes() {
            touched.extend(op.words().map(|word| (WORD, word)));
        }
        if op.kind.signals() {
            touched.push((SIGNAL, op.at));
        }
        if op.kind.counts() {
            touched.push((COUNTER, op.at));
        }
        if touched.iter().any(|word| target.fresh.contains(word)) {
            return Err(());
        }
        target.fresh.extend(&touched);
        if op.kind.writes() {
            for word in op.words() {
                target.words.insert(word, op.id);
                target.unsettled.insert(word);
            }
        }
        if op.kind.signals() {
            target.signals.insert(op.at, op.id);
        }
        if op.kind.counts() {
            let counter = &mut target.counters[op.at];
            expected.fetched = op.kind.fetches().then_some(*counter);
            *counter = match op.kind {
                Kind::Set | Kind::Swap => op.value,
                // Half of them find what they compare with.
                Kind::CompareSwap if compare(op, *counter) == *counter => op.value,
                Kind::CompareSwap => *counter,
                _ => counter.wrapping_add(op.value),
            };
        }
        Ok(expected)
    }

    /// Who wrote each word of `pe` last.
    pub(crate) fn words(&self, pe: usize) -> &HashMap<usize, usize> {
        &self.targets[pe].words
    }

    /// Who set each signal of `pe` last.
    pub(crate) fn signals(&self, pe: usize) -> &HashMap<usize, usize> {
        &self.targets[pe].signals
    }

    /// The counters of `pe`.
    pub(crate) fn counters(&self, pe: usize) -> &[u64; COUNTERS] {
        &self.targets[pe].counters
    }

    /// What has been added to the counter of `pe` that all actors share.
    pub(crate) fn shared(&self, pe: usize) -> u64 {
        self.shared[pe]
    }
}

/// What a compare_swap compares with: the counter's value, or something else.
pub(crate) fn compare(op: &Op, counter: u64) -> u64 {
    if op.compare % 2 == 0 {
        counter
    } else {
        op.compare
    }
}

/// An actor's program with all that is known of it; nothing where its outcome is not certain.
pub(crate) fn simulate(n: u32, ops: &[Op]) -> Option<(Model, Vec<Expected>)> {
    let mut model = Model::new(n);
    let expected = ops.iter().map(|op| model.allow(op)).collect::<Result<_, ()>>().ok()?;
    Some((model, expected))
}
