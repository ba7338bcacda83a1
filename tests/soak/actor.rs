//! Actors of the host: its threads, and its streams.

use rushmem::{Context, Pe, Result, SignalOp, SymRef};

use crate::field::Field;
use crate::model::{compare, Expected};
use crate::program::{Kind, Op, Program, ARENA, COUNTERS, SIGNALS, WORDS};

/// What came of an actor's operations.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// What its atomics fetched, by place in the program.
    pub(crate) fetched: Vec<u64>,
    /// What it got, as the arena has it.
    pub(crate) landed: Vec<u64>,
}

/// An actor at its place.
pub(crate) struct ActorPlace<'a> {
    pub(crate) field: &'a Field<'a>,
    pub(crate) program: &'a Program,
    /// Its number on its PE, and among all.
    pub(crate) k: usize,
    pub(crate) actor: usize,
    pub(crate) ops: &'a [Op],
    pub(crate) expected: &'a [Expected],
}

impl ActorPlace<'_> {
    /// The data of all its puts, where the arena has them.
    pub(crate) fn arena(&self) -> Vec<u64> {
        let mut arena = vec![0; ARENA];
        for op in self.ops.iter().filter(|op| op.kind.writes()) {
            for (i, word) in op.words().enumerate() {
                arena[op.arena + i] = self.program.value(op.id, word);
            }
        }
        arena
    }

    fn rows(&self, op: &Op) -> SymRef<'_, u64> {
        let first = self.actor * WORDS + op.word;
        let extent = if op.n == 0 { 0 } else { (op.n - 1) * op.stride.max(1) + 1 };
        self.field.rows.slice(first..first + extent).unwrap()
    }

    fn of_arena<'a>(&self, memory: &'a SymRef<'_, u64>, op: &Op) -> SymRef<'a, u64> {
        let first = self.k * ARENA + op.arena;
        memory.slice(first..first + op.n).unwrap()
    }

    /// A thread of the host, in the default context or in one of its own.
    pub(crate) fn run_host(&self, in_context: bool) -> Result<Outcome> {
        let world = self.field.world;
        let context = if in_context { Some(world.context()?) } else { None };
        let _entered = context.as_ref().map(Context::enter).transpose()?;
        let arena = self.arena();
        let (mut landed, mut fetched) = (vec![0u64; ARENA], vec![0; self.ops.len()]);
        let landing: *mut u64 = landed.as_mut_ptr();
        for (i, op) in self.ops.iter().enumerate() {
            // SAFETY: each operation has words of the arena to itself, which live to the quiet at the end.
            let room = unsafe { std::slice::from_raw_parts_mut(landing.add(op.arena), op.n) };
            self.host_op(op, &self.expected[i], &arena, room, &mut fetched[i], context.as_ref())?;
        }
        context.as_ref().map_or_else(|| world.quiet(), Context::quiet)?;
        self.keep_symmetric(&mut landed)?;
        Ok(Outcome { fetched, landed })
    }

    fn host_op(
        &self,
        op: &Op,
        expected: &Expected,
        arena: &[u64],
        room: &'static mut [u64],
        fetched: &mut u64,
        context: Option<&Context<'_>>,
    ) -> Result<()> {
        let Field { world, signals, counters, shared, sources, landing, .. } = self.field;
        let (pe, rows, data) = (Pe::new(op.pe), self.rows(op), &arena[op.arena..][..op.n]);
        let signal = signals.at(self.actor * SIGNALS + op.at)?;
        let (value, set) = (self.program.value(op.id, op.at), SignalOp::Set);
        let counter = counters.at((self.actor * COUNTERS + op.at).min(counters.len() - 1), pe);
        let source = self.of_arena(sources, op);
        let target = self.of_arena(landing, op);
        // SAFETY, of the non-blocking ones: sources and destinations live to the quiet at the end.
        match (op.kind, op.symmetric) {
            (Kind::P, _) => rows.p(0, data[0], pe),
            (Kind::Put, false) => rows.put(data, pe),
            (Kind::Put, true) => rows.put_from(&source, pe),
            // SAFETY: the source lives to the quiet at the end.
            (Kind::PutNbi, false) => unsafe { rows.put_nbi(data, pe) },
            (Kind::PutNbi, true) => rows.put_from_nbi(&source, pe),
            (Kind::PutSignal, false) => rows.put_signal(data, &signal, set, value, pe),
            (Kind::PutSignal, true) => rows.put_signal_from(&source, &signal, set, value, pe),
            (Kind::PutSignalNbi, _) => rows.put_signal_from_nbi(&source, &signal, set, value, pe),
            (Kind::Iput, _) => rows.iput(data, op.stride, 1, op.n, pe),
            (Kind::Get, false) => rows.get(room, pe),
            (Kind::Get, true) => rows.get_into(&target, pe),
            // SAFETY: the destination lives to the quiet at the end.
            (Kind::GetNbi, false) => unsafe { rows.get_nbi(room, pe) },
            (Kind::GetNbi, true) => rows.get_into_nbi(&target, pe),
            (Kind::Iget, _) => rows.iget(room, 1, op.stride, op.n, pe),
            (Kind::G, _) => rows.g(0, pe).map(|word| room[0] = word),
            (Kind::Signal, _) => signal.set(value, pe),
            (Kind::Set, _) => counter.set(op.value),
            (Kind::Add, _) => counter.add(op.value),
            (Kind::FetchAdd, _) => counter.fetch_add(op.value).map(|old| *fetched = old),
            (Kind::Swap, _) => counter.swap(op.value).map(|old| *fetched = old),
            (Kind::CompareSwap, _) => {
                let with = compare(op, expected.fetched.unwrap_or_default());
                counter.compare_swap(with, op.value).map(|old| *fetched = old)
            }
            (Kind::SharedAdd, _) => shared.at(0, pe).add(op.value),
            (Kind::Fence, _) => context.map_or_else(|| world.fence(), Context::fence),
            (Kind::Quiet, _) => context.map_or_else(|| world.quiet(), Context::quiet),
        }
    }

    /// A stream of its own.
    pub(crate) fn run_stream(&self) -> Result<Outcome> {
        let Field { world, signals, sources, landing, .. } = self.field;
        let (arena, mut landed, stream) = (self.arena(), vec![0u64; ARENA], world.stream()?);
        let room_of = landed.as_mut_ptr();
        for op in self.ops {
            let (pe, rows, data) = (Pe::new(op.pe), self.rows(op), &arena[op.arena..][..op.n]);
            let signal = signals.at(self.actor * SIGNALS + op.at)?;
            let (value, set) = (self.program.value(op.id, op.at), SignalOp::Set);
            // SAFETY: each operation has words of the arena to itself.
            let room = unsafe { std::slice::from_raw_parts_mut(room_of.add(op.arena), op.n) };
            // SAFETY: sources and destinations live until the stream is synchronised.
            unsafe {
                match (op.kind, op.symmetric) {
                    (Kind::P, _) => rows.p_on(0, data[0], pe, &stream)?,
                    (Kind::Put, false) => rows.put_on(data, pe, &stream)?,
                    (Kind::Put, true) => rows.put_from_on(&self.of_arena(sources, op), pe, &stream)?,
                    (Kind::PutSignal, false) => {
                        rows.put_signal_on(data, &signal, set, value, pe, &stream)?;
                    }
                    (Kind::PutSignal, true) => {
                        let source = self.of_arena(sources, op);
                        rows.put_signal_from_on(&source, &signal, set, value, pe, &stream)?;
                    }
                    (Kind::Iput, _) => rows.iput_on(data, op.stride, 1, op.n, pe, &stream)?,
                    (Kind::Get, false) => rows.get_on(room, pe, &stream)?,
                    (Kind::Get, true) => rows.get_into_on(&self.of_arena(landing, op), pe, &stream)?,
                    (Kind::Iget, _) => rows.iget_on(room, 1, op.stride, op.n, pe, &stream)?,
                    (Kind::Signal, _) => signal.signal_op_on(set, value, pe, &stream)?,
                    (Kind::Fence, _) => world.fence_on(&stream)?,
                    (Kind::Quiet, _) => world.quiet_on(&stream)?,
                    (kind, _) => unreachable!("streams have no {kind:?}"),
                }
            }
        }
        world.quiet_on(&stream)?;
        stream.synchronize()?;
        stream.destroy()?;
        self.keep_symmetric(&mut landed)?;
        Ok(Outcome { fetched: vec![0; self.ops.len()], landed })
    }

    /// What was got into symmetric memory is put with the rest.
    fn keep_symmetric(&self, landed: &mut [u64]) -> Result<()> {
        let symmetric = |op: &&Op| op.symmetric && matches!(op.kind, Kind::Get | Kind::GetNbi);
        for op in self.ops.iter().filter(symmetric) {
            self.of_arena(&self.field.landing, op).read(&mut landed[op.arena..][..op.n])?;
        }
        Ok(())
    }
}
