//! A random program: what each actor does, in order.

use std::fmt;

use crate::api_common::Rng;
use crate::model::Model;

/// Words of an actor's region on each PE: more than the longest piece of 60 KiB.
pub(crate) const WORDS: usize = 9000;
/// Signal words of an actor on each PE.
pub(crate) const SIGNALS: usize = 4;
/// Words of an actor on each PE for its atomics.
pub(crate) const COUNTERS: usize = 4;
/// Actors of a PE, at most.
pub(crate) const ACTORS: usize = 4;
/// Words of an actor's sources, and of what it gets, in one round.
pub(crate) const ARENA: usize = 1 << 17;
/// Operations of an actor in one round, at most.
pub(crate) const OPERATIONS: usize = 384;

/// Lengths around what decides how a copy travels: 512 bytes, 4 KiB, 8 KiB, 60 KiB.
const LENGTHS: [usize; 20] =
    [1, 1, 1, 2, 3, 7, 63, 64, 65, 100, 500, 511, 512, 513, 1023, 1025, 2048, 4100, 7679, 7681];

/// Who runs a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Actor {
    Host,
    /// A thread of the host, with a context of its own.
    Context,
    Stream,
    Kernel,
}

/// What an operation does to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// Writes words of the region.
    Writes,
    /// Reads words of the region.
    Reads,
    /// Updates a signal word, with or without data.
    Signals,
    /// Updates a word of the actor's own by an atomic.
    Counts,
    /// Gives the word's old value.
    Fetches,
}

use Effect::*;

/// A row of the table of kinds.
struct Row {
    kind: Kind,
    /// Its name in the kernel.
    name: &'static str,
    /// How often hosts and kernels do it, and how often streams.
    weights: [usize; 2],
    effects: &'static [Effect],
}

macro_rules! kinds {
    ($($kind:ident $name:ident $weight:literal $on_stream:literal $($effect:ident)*;)*) => {
        /// An operation. The numbers are the kernel's, too: tests/kernels/soak_kinds.h.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u64)]
        pub(crate) enum Kind {
            $($kind),*
        }

        const KINDS: &[Row] = &[$(Row {
            kind: Kind::$kind,
            name: stringify!($name),
            weights: [$weight, $on_stream],
            effects: &[$($effect),*],
        }),*];
    };
}

// Kernels take what is between PUT and IGET for operations of a whole scope.
kinds! {
    P              P               2 1  Writes;
    Put            PUT             2 2  Writes;
    PutNbi         PUT_NBI         3 0  Writes;
    PutSignal      PUT_SIGNAL      1 1  Writes Signals;
    PutSignalNbi   PUT_SIGNAL_NBI  1 0  Writes Signals;
    Iput           IPUT            1 1  Writes;
    Get            GET             1 1  Reads;
    GetNbi         GET_NBI         1 0  Reads;
    Iget           IGET            1 1  Reads;
    G              G               1 0  Reads;
    Signal         SIGNAL          1 1  Signals;
    Set            SET             1 0  Counts;
    Add            ADD             1 0  Counts;
    FetchAdd       FETCH_ADD       1 0  Counts Fetches;
    Swap           SWAP            1 0  Counts Fetches;
    CompareSwap    COMPARE_SWAP    1 0  Counts Fetches;
    SharedAdd      SHARED_ADD      1 0;
    Fence          FENCE           2 1;
    Quiet          QUIET           1 1;
}

use Kind::*;

impl Kind {
    fn has(self, effect: Effect) -> bool {
        KINDS[self as usize].effects.contains(&effect)
    }

    /// Writes words of the region.
    pub(crate) fn writes(self) -> bool {
        self.has(Writes)
    }

    /// Reads words of the region.
    pub(crate) fn reads(self) -> bool {
        self.has(Reads)
    }

    /// Updates a signal word, with or without data.
    pub(crate) fn signals(self) -> bool {
        self.has(Signals)
    }

    /// Updates a word of the actor's own by an atomic.
    pub(crate) fn counts(self) -> bool {
        self.has(Counts)
    }

    /// Gives the word's old value.
    pub(crate) fn fetches(self) -> bool {
        self.has(Fetches)
    }

    /// The kinds that an actor draws from, each as often as its weight says.
    fn of(actor: Actor) -> Vec<Kind> {
        let column = usize::from(actor == Actor::Stream);
        KINDS.iter().flat_map(|row| std::iter::repeat_n(row.kind, row.weights[column])).collect()
    }
}

/// One operation. What a kind does not need is 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Op {
    pub(crate) kind: Kind,
    /// The other PE.
    pub(crate) pe: u32,
    /// First word of the region, how many, and how far apart.
    pub(crate) word: usize,
    pub(crate) n: usize,
    pub(crate) stride: usize,
    /// Where in the arena its source is, or its data goes.
    pub(crate) arena: usize,
    /// Which signal or counter, and with what.
    pub(crate) at: usize,
    pub(crate) value: u64,
    pub(crate) compare: u64,
    /// The scope of a kernel's: thread, warp or block.
    pub(crate) scope: u64,
    /// The host's source or destination is symmetric memory.
    pub(crate) symmetric: bool,
    /// Its place in the program as it was made: values tell it.
    pub(crate) id: usize,
}

impl Op {
    /// The words that it touches.
    pub(crate) fn words(&self) -> impl DoubleEndedIterator<Item = usize> + Clone + use<> {
        let (word, stride) = (self.word, self.stride.max(1));
        (0..self.n).map(move |i| word + i * stride)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Op { kind, pe, word, n, stride, at, value, .. } = self;
        match kind {
            Fence | Quiet => write!(f, "{kind:?}"),
            _ if kind.counts() || *kind == SharedAdd => {
                write!(f, "{kind:?} counter {at} of PE {pe} with {value}")
            }
            Signal => write!(f, "Signal {at} of PE {pe}"),
            _ => {
                write!(f, "{kind:?} words {word}.. x{n} of PE {pe}")?;
                if *stride > 1 {
                    write!(f, ", {stride} apart")?;
                }
                if kind.signals() {
                    write!(f, ", signal {at}")?;
                }
                Ok(())
            }
        }
    }
}

/// What all actors of all PEs do in one round.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// Tells this round's values from others'.
    pub(crate) round: u64,
    /// For each PE, its actors with their operations.
    pub(crate) actors: Vec<Vec<(Actor, Vec<Op>)>>,
}

impl Program {
    /// A random one for `n` PEs, as the round of that number, the same on every PE whose generator is the
    /// same.
    pub(crate) fn random(random: &mut Rng, n: u32, round: u64) -> Program {
        let actors = (0..n)
            .map(|_| {
                let actors = 1 + random.below(ACTORS);
                (0..actors).map(|_| random_actor(random, n)).collect()
            })
            .collect();
        Program { round, actors }
    }

    pub(crate) fn operations(&self) -> usize {
        self.actors.iter().flatten().map(|(_, ops)| ops.len()).sum()
    }

    /// What word or signal `at` holds once the operation of that number has written it. A word of a long copy
    /// may be seen in parts meanwhile: a sum tells such a word from a whole one.
    pub(crate) fn value(&self, id: usize, at: usize) -> u64 {
        let tag = ((self.round % (1 << 20)) << 24) | ((id as u64 + 1) << 14) | at as u64;
        tag | (sum(tag) << 44)
    }

    /// The number of the operation of this round that wrote `value`; `Ok(None)` for one of another round,
    /// `Err` for part of one.
    pub(crate) fn writer(&self, value: u64) -> Result<Option<usize>, ()> {
        let tag = value & ((1 << 44) - 1);
        if value == 0 {
            return Ok(None);
        }
        if sum(tag) != value >> 44 {
            return Err(());
        }
        Ok((tag >> 24 == self.round % (1 << 20)).then(|| (tag >> 14 & 0x3ff) as usize - 1))
    }
}

/// A sum of 20 bits.
fn sum(tag: u64) -> u64 {
    (tag ^ (tag >> 17)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44
}

fn random_actor(random: &mut Rng, n: u32) -> (Actor, Vec<Op>) {
    let actor = [Actor::Host, Actor::Context, Actor::Stream, Actor::Kernel][random.below(4)];
    let kinds = Kind::of(actor);
    let (length, mostly) = (1 + random.below(OPERATIONS), random.below(n as usize) as u32);
    // Some programs are of short copies only, and some of long ones.
    let lengths = [&LENGTHS[..], &LENGTHS[..7], &LENGTHS[7..]][random.below(3)];
    let (mut ops, mut arena) = (Vec::new(), 0);
    let mut model = Model::new(n);
    while ops.len() + 2 < length {
        let kind = kinds[random.below(kinds.len())];
        let mut op = random_op(random, kind, lengths);
        op.pe = if random.below(4) == 0 { random.below(n as usize) as u32 } else { mostly };
        if arena + op.n > ARENA {
            break;
        }
        (op.arena, op.id) = (arena, ops.len());
        arena += op.n * usize::from(kind.writes() || kind.reads());
        // What the model does not allow yet is allowed behind a fence, or a quiet.
        for order in [None, Some(Fence), Some(Quiet)] {
            if let Some(order) = order {
                let order = Op { kind: order, id: ops.len(), ..random_op(random, order, lengths) };
                model.allow(&order).expect("a fence is always allowed");
                ops.push(order);
                op.id = ops.len();
            }
            if model.allow(&op).is_ok() {
                ops.push(op);
                break;
            }
        }
        if kind == GetNbi {
            let quiet = Op { kind: Quiet, id: ops.len(), ..op };
            model.allow(&quiet).expect("a quiet is always allowed");
            ops.push(quiet);
        }
    }
    ops.truncate(OPERATIONS);
    (actor, ops)
}

fn random_op(random: &mut Rng, kind: Kind, lengths: &[usize]) -> Op {
    let mut op = Op {
        kind,
        pe: 0,
        word: 0,
        n: 0,
        stride: 1,
        arena: 0,
        at: 0,
        value: 0,
        compare: 0,
        scope: random.below(3) as u64,
        symmetric: random.below(2) == 0,
        id: 0,
    };
    if kind.writes() || kind.reads() {
        op.n = match kind {
            P | G => 1,
            _ => lengths[random.below(lengths.len())],
        };
        if matches!(kind, Iput | Iget) {
            op.n = op.n.min(700);
            op.stride = 1 + random.below(4);
        }
        // Most of it on the same few words, so that they are overwritten again and again.
        let room = WORDS - op.n * op.stride;
        op.word = if random.below(3) == 0 { random.below(room + 1) } else { random.below(room.min(8) + 1) };
    }
    if kind.signals() {
        op.at = random.below(SIGNALS);
    }
    if kind.counts() {
        op.at = random.below(COUNTERS);
    }
    if kind.counts() || kind == SharedAdd {
        (op.value, op.compare) = (random.next() >> 32, random.next() >> 32);
    }
    op
}

#[test]
fn the_kernels_kinds_are_those_of_the_table() {
    let text = include_str!("../kernels/soak_kinds.h");
    let list = text.split_once('{').and_then(|(_, rest)| rest.split_once('}')).expect("an enum").0;
    let theirs: Vec<&str> = list.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    let ours: Vec<&str> = KINDS.iter().map(|row| row.name).collect();
    assert_eq!(theirs, ours);
}
