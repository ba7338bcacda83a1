//! A program that fails, with fewer and fewer operations: what is left when nothing can be left out any more.

use std::time::{Duration, Instant};

use crate::api_common::seed;
use crate::field::Field;
use crate::program::Program;
use crate::round::{know, run_round};

/// How often a program is tried before it counts as one that does not fail.
const TRIES: usize = 60;
/// How long is tried in all.
const LIMIT: Duration = Duration::from_secs(60);

/// Shrinks the program, prints it, and panics. Collective.
pub(crate) fn report(field: &Field<'_>, program: Program, failure: &str) -> ! {
    let me = field.world.my_pe().number();
    if !failure.is_empty() {
        eprintln!("PE {me}: {failure}");
    }
    let start = Instant::now();
    let (mut smallest, mut last) = (program, failure.to_owned());
    // Whole actors first, then halves of their operations, quarters, and single ones.
    let mut part = usize::MAX;
    while part > 0 {
        let mut shrunk = false;
        for candidate in candidates(&smallest, part) {
            if field.agree(start.elapsed() > LIMIT) {
                part = 1;
                break;
            }
            if know(&candidate).is_none() {
                continue;
            }
            if let Some(failure) = fails(field, &candidate) {
                (smallest, last, shrunk) = (candidate, failure, true);
                break;
            }
        }
        if !shrunk {
            let longest = smallest.actors.iter().flatten().map(|(_, ops)| ops.len()).max().unwrap_or(0);
            part = part.min(longest.max(1)) / 2;
        }
    }
    if me == 0 {
        eprintln!("the smallest program that fails (RUSHMEM_TEST_SEED={}):", seed());
        for (pe, actors) in smallest.actors.iter().enumerate() {
            for (k, (actor, ops)) in actors.iter().enumerate().filter(|(_, (_, ops))| !ops.is_empty()) {
                eprintln!("  PE {pe}, actor {} ({actor:?}):", Field::actor(pe, k));
                ops.iter().for_each(|op| eprintln!("    {}: {op}", op.id));
            }
        }
    }
    panic!("PE {me}: operations out of order, or lost: {last}");
}

/// Whether it fails in some tries; what was found.
fn fails(field: &Field<'_>, program: &Program) -> Option<String> {
    (0..TRIES).find_map(|_| {
        let again = Program { round: field.next_round(), ..program.clone() };
        run_round(field, &again).err()
    })
}

/// The program without some of one actor's operations, `part` of them, or without the actor.
fn candidates(program: &Program, part: usize) -> Vec<Program> {
    let mut all = Vec::new();
    for (pe, actors) in program.actors.iter().enumerate() {
        for (k, (_, ops)) in actors.iter().enumerate() {
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
