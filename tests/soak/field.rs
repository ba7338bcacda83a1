//! The memory that actors work on: a region on every PE for each actor, and what its PE keeps for it.

use std::sync::atomic::{AtomicU64, Ordering};

use rushmem::{Module, Signals, Source, SymSlice, World};

use crate::api_common::bench::kernels;
use crate::kernel::Operation;
use crate::program::{ACTORS, ARENA, COUNTERS, OPERATIONS, SIGNALS, WORDS};

/// All memory of a world's soak.
pub(crate) struct Field<'w> {
    pub(crate) world: &'w World,
    /// Written by actors of all PEs.
    pub(crate) rows: SymSlice<'w, u64>,
    pub(crate) signals: Signals<'w>,
    pub(crate) counters: SymSlice<'w, u64>,
    pub(crate) shared: SymSlice<'w, u64>,
    /// Of this PE's actors: what they put, and where they get to.
    pub(crate) sources: SymSlice<'w, u64>,
    pub(crate) landing: SymSlice<'w, u64>,
    /// Of this PE's kernel: its programs, and what its atomics fetched.
    pub(crate) code: SymSlice<'w, Operation>,
    pub(crate) fetched: SymSlice<'w, u64>,
    pub(crate) module: Module<'w>,
    votes: SymSlice<'w, u64>,
    round: AtomicU64,
}

impl<'w> Field<'w> {
    pub(crate) fn new(world: &'w World) -> Field<'w> {
        let actors = world.n_pes() as usize * ACTORS;
        let source = concat!(include_str!("../kernels/soak_kinds.h"), kernels!("soak.cu"));
        let memory = |words: usize| world.alloc::<u64>(words).unwrap();
        Field {
            world,
            rows: memory(actors * WORDS),
            signals: world.signals(actors * SIGNALS).unwrap(),
            counters: memory(actors * COUNTERS),
            shared: memory(1),
            sources: memory(ACTORS * ARENA),
            landing: memory(ACTORS * ARENA),
            code: world.alloc(ACTORS * OPERATIONS).unwrap(),
            fetched: memory(ACTORS * OPERATIONS),
            module: world.load(Source::text(source)).unwrap(),
            votes: memory(world.n_pes() as usize),
            round: AtomicU64::new(0),
        }
    }

    /// Tells the values of one round from those of another: every PE counts alike.
    pub(crate) fn next_round(&self) -> u64 {
        self.round.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The number of an actor among those of all PEs.
    pub(crate) fn actor(pe: usize, k: usize) -> usize {
        pe * ACTORS + k
    }

    /// Whether any PE says yes. Collective.
    pub(crate) fn agree(&self, yes: bool) -> bool {
        let me = self.world.my_pe().number() as usize;
        for pe in self.world.pes() {
            self.votes.p(me, u64::from(yes), pe).unwrap();
        }
        self.world.barrier_all().unwrap();
        let any = self.votes.to_vec().unwrap().contains(&1);
        self.world.barrier_all().unwrap();
        any
    }
}
