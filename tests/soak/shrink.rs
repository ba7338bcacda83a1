//! A program that fails, with fewer and fewer operations: what is left when nothing can be left out any more.

use std::time::{Duration, Instant};

use crate::api_common::seed;
use crate::field::Field;
use crate::program::Program;
use crate::round::{know, run_round};

/// How often a program is tried, at most, before it counts as one that does not fail.
const TRIES: usize = 60;
/// Failures of the whole program by which is known how often it fails.
const KNOWN: usize = 3;

/// How long is tried in all: a minute, and longer where the soak is.
pub(crate) fn limit() -> Duration {
    Duration::from_secs(60 + crate::seconds() / 4)
}

/// Shrinks the program, prints it, and panics. Collective.
pub(crate) fn report(field: &Field<'_>, program: Program, failure: &str) -> ! {
    let me = field.world.my_pe().number();
    if !failure.is_empty() {
        eprintln!("PE {me}: {failure}");
    }
    let start = Instant::now();
    let tries = tries(field, &program);
    let fails = |candidate: &Program| {
        (0..tries).find_map(|_| {
            let again = Program { round: field.next_round(), ..candidate.clone() };
            run_round(field, &again).err()
        })
    };
    let (smallest, last) = smallest(program, fails, || field.agree(start.elapsed() > limit()));
    let last = last.unwrap_or_else(|| failure.to_owned());
    if me == 0 {
        eprintln!("the smallest program that fails (RUSHMEM_TEST_SEED={}), in one of {tries} tries:", seed());
        for (pe, actors) in smallest.actors.iter().enumerate() {
            for (k, (actor, ops)) in actors.iter().enumerate().filter(|(_, (_, ops))| !ops.is_empty()) {
                eprintln!("  PE {pe}, actor {} ({actor:?}):", Field::actor(pe, k));
                ops.iter().for_each(|op| eprintln!("    {}: {op}", op.id));
            }
        }
    }
    panic!("PE {me}: operations out of order, or lost: {last}");
}

/// How often to try a program that is as likely to fail as this one.
fn tries(field: &Field<'_>, program: &Program) -> usize {
    let (mut runs, mut failures) = (0, 0);
    while runs < TRIES && failures < KNOWN {
        let again = Program { round: field.next_round(), ..program.clone() };
        // All PEs count alike: a round that fails does so on each.
        failures += usize::from(run_round(field, &again).is_err());
        runs += 1;
    }
    (4 * runs / failures.max(1)).clamp(4, TRIES)
}

/// The smallest program found before it is `over` that `fails`, and its failure. The failing one's own where
/// nothing can be left out.
fn smallest(
    program: Program,
    mut fails: impl FnMut(&Program) -> Option<String>,
    mut over: impl FnMut() -> bool,
) -> (Program, Option<String>) {
    let (mut smallest, mut last) = (program, None);
    // Whole actors first, then halves of their operations, quarters, and single ones.
    let mut part = usize::MAX;
    while part > 0 {
        let mut shrunk = false;
        for candidate in candidates(&smallest, part) {
            if over() {
                return (smallest, last);
            }
            if know(&candidate).is_none() {
                continue;
            }
            if let Some(failure) = fails(&candidate) {
                (smallest, last, shrunk) = (candidate, Some(failure), true);
                break;
            }
        }
        if !shrunk {
            let longest = smallest.actors.iter().flatten().map(|(_, ops)| ops.len()).max().unwrap_or(0);
            part = part.min(longest.max(1)) / 2;
        }
    }
    (smallest, last)
}

/// The program without some of one actor's operations, `part` of them, or without the actor.
fn candidates(program: &Program, part: usize) -> Vec<Program> {
    let mut all = Vec::new();
    for (pe, actors) in program.actors.iter().enumerate() {
        for (k, (_, ops)) in actors.iter().enumerate().filter(|(_, (_, ops))| !ops.is_empty()) {
            let step = part.min(ops.len().max(1));
            for first in (0..ops.len()).step_by(step) {
                let mut without = program.clone();
                let end = (first + step).min(ops.len());
                without.actors[pe][k].1.drain(first..end);
                all.push(without);
            }
        }
    }
    all
}

/// A program that fails wherever a put, a fence and an atomic stand in this order in one actor's part.
#[test]
fn a_failing_program_shrinks_to_what_fails() {
    use crate::api_common::Rng;
    use crate::program::Kind;

    let wanted = |kind: Kind, at: usize| match at {
        0 => matches!(kind, Kind::Put | Kind::PutNbi),
        1 => matches!(kind, Kind::Fence | Kind::Quiet),
        _ => kind.counts(),
    };
    let fails = |program: &Program| {
        let mut parts = program.actors.iter().flatten();
        let fails = parts.any(|(_, ops)| {
            let mut found = 0;
            ops.iter().for_each(|op| found += usize::from(found < 3 && wanted(op.kind, found)));
            found == 3
        });
        fails.then(String::new)
    };
    let mut random = Rng::printed();
    let mut shrunk = 0;
    for round in 0..8 {
        let program = Program::random(&mut random, 2, round);
        if fails(&program).is_some() {
            let (smallest, _) = smallest(program, fails, || false);
            assert_eq!(smallest.operations(), 3, "{smallest:?}");
            shrunk += 1;
        }
    }
    assert!(shrunk > 0, "no program had the three");
}
