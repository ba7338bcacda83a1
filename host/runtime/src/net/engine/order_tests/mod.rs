//! Small programs, in every order of the network's events, against what [`crate::net::ordering`] promises.
//!
//! Two engines run on a [network](crate::net::transport::stand_in) of which the test chooses the next event.
//! Each operation has a region of the target's memory to itself, so that the test sees after every event
//! which of them have happened. States that have been seen before are not explored again.
//!
//! `cargo test` explores all pairs of the ten kinds of operations, all triples of the five ways through the
//! engine, and some programs of four operations of four ways. `RUSHMEM_TEST_ROUNDS=all` explores all of
//! these. Messages to one PE come in their order here; the fake network reorders them.

mod run;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::testing::random::Random;
use run::Run;

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

const ALL: [Kind; 10] = [
    Kind::Word,
    Kind::Put,
    Kind::Copy,
    Kind::CopySignal,
    Kind::PutSignal,
    Kind::Add,
    Kind::FetchAdd,
    Kind::Rows,
    Kind::Get,
    Kind::Load,
];
/// One of each way that an operation takes through the engine.
const WAYS: [Kind; 5] = [Kind::Put, Kind::Copy, Kind::CopySignal, Kind::FetchAdd, Kind::Get];

/// Explores all that can happen; the number of states.
fn explore(program: &Program, eager: bool) -> usize {
    let mut seen = HashSet::new();
    let mut todo: Vec<Vec<usize>> = vec![Vec::new()];
    while let Some(path) = todo.pop() {
        let mut run = Run::new(program, eager);
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

#[test]
fn every_pair_of_operations_keeps_its_order() {
    for program in programs(2, &ALL, &[Between::Nothing, Between::Fence, Between::Quiet]) {
        explore(&program, true);
        explore(&program, false);
    }
}

#[test]
fn every_three_operations_keep_their_order() {
    let mut states = 0;
    for (i, program) in programs(3, &WAYS, &BOTH).iter().enumerate() {
        states += explore(program, i % 2 == 0);
    }
    println!("{states} states");
}

/// Programs of four operations, of which as many are explored as there is time for, unless all are asked for.
#[test]
fn four_operations_keep_their_order() {
    let kinds = [Kind::Put, Kind::Copy, Kind::CopySignal, Kind::FetchAdd];
    let mut all = programs(4, &kinds, &[Between::Nothing, Between::Fence, Between::Quiet]);
    let everything = std::env::var("RUSHMEM_TEST_ROUNDS").is_ok_and(|rounds| rounds == "all");
    let limit = Duration::from_secs(if everything { 7200 } else { 8 });
    let mut random = Random::new("four operations");
    let (start, mut explored, total) = (Instant::now(), 0, all.len());
    while !all.is_empty() && start.elapsed() < limit {
        let program = all.swap_remove(random.below(all.len()));
        explore(&program, random.below(2) == 0);
        explored += 1;
    }
    println!("{explored} of {total} programs");
    assert!(explored > 0 && (!everything || all.is_empty()));
}
