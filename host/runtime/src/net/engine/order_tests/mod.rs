//! Small programs, in every order of the network's events, against what [`crate::net::ordering`] promises.
//!
//! Two engines run on a [network](crate::net::transport::stand_in) of which the test chooses the next event.
//! Each operation has a region of the target's memory to itself, so that the test sees after every event
//! which of them have happened. States that have been seen before are not explored again.
//!
//! `cargo test` explores all pairs of the eleven kinds of operations, all triples of the five ways through
//! the engine, and some programs of four operations of four ways. `RUSHMEM_TEST_ROUNDS=all` explores all of
//! these. Messages to one PE come in their order here; the fake network reorders them.
//!
//! The PEs' memory is the host's, or a [GPU's](gpu), where each copy into and out of it and each update is an
//! event, too. There `cargo test` explores some of all pairs and triples.

mod gpu;
mod run;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::net::gpu::chunks::LARGE;
use crate::net::transport::stand_in::Step as Event;
use crate::testing::random::Random;
use gpu::Arena;
use run::{Heap, Run, Setting, Step, APART};

/// One operation of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Word,
    Put,
    Copy,
    CopySignal,
    PutSignal,
    Add,
    FetchAdd,
    Rows,
    /// As an `iput_signal` issues it.
    RowsSignal,
    Get,
    Load,
}

/// What stands between two operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Between {
    Nothing,
    Fence,
    /// A quiet of one thread; others go on without waiting for it.
    Quiet,
}

type Program = Vec<(Between, Kind)>;

const ALL: [Kind; 11] = [
    Kind::Word,
    Kind::Put,
    Kind::Copy,
    Kind::CopySignal,
    Kind::PutSignal,
    Kind::Add,
    Kind::FetchAdd,
    Kind::Rows,
    Kind::RowsSignal,
    Kind::Get,
    Kind::Load,
];
/// One of each way that an operation takes through the engine.
const WAYS: [Kind; 5] = [Kind::Put, Kind::Copy, Kind::CopySignal, Kind::FetchAdd, Kind::Get];

/// Explores all that can happen; the number of states.
fn explore(program: &Program, setting: Setting, arena: &Arena) -> usize {
    let mut seen = HashSet::new();
    let mut todo: Vec<Vec<usize>> = vec![Vec::new()];
    while let Some(path) = todo.pop() {
        let mut run = Run::new(program, setting, arena);
        for choice in &path {
            let steps = run.steps();
            run.step(steps[*choice]);
            run.check();
        }
        if !seen.insert(run.state()) {
            continue;
        }
        let steps = run.steps().len();
        if steps == 0 {
            run.check_end();
        }
        todo.extend((0..steps).map(|choice| [&path[..], &[choice]].concat()));
    }
    seen.len()
}

/// Explores programs on the host's memory.
fn explore_all<'p>(programs: impl IntoIterator<Item = (&'p Program, bool)>) -> usize {
    let setting = |eager| Setting::new(Heap::Host, eager);
    let arena = setting(true).arena(4);
    programs.into_iter().map(|(program, eager)| explore(program, setting(eager), &arena)).sum()
}

/// Explores one after the other, drawn at random, until all are done or the time is up, of which there is
/// much where all are asked for.
fn explore_some(name: &str, mut all: Vec<(Program, Setting)>, seconds: u64) {
    let everything = std::env::var("RUSHMEM_TEST_ROUNDS").is_ok_and(|rounds| rounds == "all");
    let limit = Duration::from_secs(if everything { 7200 } else { seconds });
    let mut random = Random::new(name);
    let (start, mut states, total) = (Instant::now(), 0, all.len());
    while !all.is_empty() && start.elapsed() < limit {
        let (program, setting) = all.swap_remove(random.below(all.len()));
        states += explore(&program, setting, &setting.arena(program.len()));
    }
    println!("{} of {total} programs, {states} states", total - all.len());
    assert!(states > 0 && (!everything || all.is_empty()));
}

/// All programs of so many operations.
fn programs(n: u32, kinds: &[Kind], between: &[Between]) -> Vec<Program> {
    let (k, b) = (kinds.len(), between.len());
    let all = k.pow(n) * b.pow(n - 1);
    let program = |mut number: usize| {
        let mut pick = |of: usize| (number % of, number /= of).0;
        (0..n)
            .map(|i| {
                let kind = kinds[pick(k)];
                (if i == 0 { Between::Nothing } else { between[pick(b)] }, kind)
            })
            .collect()
    };
    (0..all).map(program).collect()
}

const BOTH: [Between; 2] = [Between::Nothing, Between::Fence];
const ALL_BETWEEN: [Between; 3] = [Between::Nothing, Between::Fence, Between::Quiet];

#[test]
fn every_pair_of_operations_keeps_its_order() {
    let all = programs(2, &ALL, &ALL_BETWEEN);
    explore_all(all.iter().flat_map(|program| [(program, true), (program, false)]));
}

#[test]
fn every_three_operations_keep_their_order() {
    let all = programs(3, &WAYS, &BOTH);
    println!("{} states", explore_all(all.iter().enumerate().map(|(i, program)| (program, i % 2 == 0))));
}

/// Programs of four operations, of which as many are explored as there is time for, unless all are asked for.
#[test]
fn four_operations_keep_their_order() {
    let kinds = [Kind::Put, Kind::Copy, Kind::CopySignal, Kind::FetchAdd];
    let all = programs(4, &kinds, &ALL_BETWEEN);
    let with = |(i, program)| (program, Setting::new(Heap::Host, i % 2 == 0));
    explore_some("four operations", all.into_iter().enumerate().map(with).collect(), 8);
}

/// All ways in which a GPU's memory is reached.
fn gpu_heaps() -> [Heap; 5] {
    let staged = |source, scarce| Heap::Staged { source, scarce };
    [staged(true, false), staged(false, false), staged(true, true), staged(false, true), Heap::Direct]
}

/// Each of the programs on each way to a GPU's memory.
fn on_gpus(programs: &[Program]) -> Vec<(Program, Setting)> {
    let settings = gpu_heaps().into_iter().flat_map(|heap| [true, false].map(|e| Setting::new(heap, e)));
    settings.flat_map(|setting| programs.iter().map(move |program| (program.clone(), setting))).collect()
}

#[test]
fn pairs_of_operations_on_gpu_memory_keep_their_order() {
    explore_some("pairs on GPUs", on_gpus(&programs(2, &ALL, &ALL_BETWEEN)), 6);
}

#[test]
fn three_operations_on_gpu_memory_keep_their_order() {
    explore_some("three on GPUs", on_gpus(&programs(3, &WAYS, &BOTH)), 6);
}

/// Copies of more than a chunk, in random orders of events: there are too many states for all of them.
#[test]
fn copies_of_several_chunks_keep_their_order() {
    let kinds = [Kind::Copy, Kind::CopySignal, Kind::Get, Kind::FetchAdd];
    let (programs, mut random) = (programs(3, &kinds, &BOTH), Random::new("several chunks"));
    let start = Instant::now();
    let mut runs = 0;
    while start.elapsed() < Duration::from_secs(3) {
        let heap = gpu_heaps()[random.below(5)];
        let setting = Setting { copy: LARGE + 8, ..Setting::new(heap, random.below(2) == 0) };
        let program = &programs[random.below(programs.len())];
        let arena = setting.arena(program.len());
        let mut run = Run::new(program, setting, &arena);
        loop {
            let steps = run.steps();
            if steps.is_empty() {
                break;
            }
            run.step(steps[random.below(steps.len())]);
            run.check();
        }
        run.check_end();
        runs += 1;
    }
    println!("{runs} runs");
    assert!(runs > 0);
}

/// Three operations, of which the second or the third is in another context, and four in turns.
#[test]
fn operations_of_two_contexts_keep_their_orders() {
    let mut all = Vec::new();
    let heaps = [Heap::Host, Heap::Staged { source: true, scarce: false }, Heap::Direct];
    let sizes = heaps.into_iter().flat_map(|heap| [(heap, 3, 0b010), (heap, 3, 0b100)]);
    for (heap, n, apart) in sizes.chain([(Heap::Host, 4, 0b1010)]) {
        for (i, program) in programs(n, &WAYS, &ALL_BETWEEN).into_iter().enumerate() {
            // All programs of three, and as many of four.
            if n == 3 || i % 15 == 0 {
                all.push((program, Setting { apart, ..Setting::new(heap, i % 2 == 0) }));
            }
        }
    }
    explore_some("contexts", all, 8);
}

/// A copy of one context never arrives, and what is behind its fence never starts: another context's
/// operations happen, and its quiet ends.
#[test]
fn a_context_waits_for_nothing_of_another() {
    let others = [Kind::Word, Kind::Put, Kind::PutSignal, Kind::Add, Kind::FetchAdd, Kind::Rows, Kind::Load];
    for (other, eager) in others.into_iter().flat_map(|kind| [(kind, true), (kind, false)]) {
        let slow = (Between::Nothing, Kind::Copy);
        let program = vec![slow, (Between::Fence, Kind::Put), (Between::Nothing, other)];
        let setting = Setting { apart: 0b100, ..Setting::new(Heap::Host, eager) };
        let arena = setting.arena(program.len());
        let mut run = Run::new(&program, setting, &arena);
        (0..program.len()).for_each(|_| run.step(Step::Issue));
        run.quiet(Some(APART));
        run.quiet(Some(0));
        let moves = |step: &Step| !matches!(step, Step::Network(Event::Copy(_) | Event::Flush(_)));
        run.step_while(moves);
        run.check();
        assert!(run.is_over(0), "{other:?}: the quiet waits for another context's copy");
        assert!(run.has_happened(2) && !run.has_happened(0) && !run.has_happened(1), "{other:?}");
        assert!(!run.is_over(1), "{other:?}: the copy has not arrived");
        run.step_while(|_| true);
        run.check_end();
        assert!(run.is_over(1));
    }
}
