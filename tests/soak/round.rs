//! One round: all actors of all PEs run a program, and everything is compared with the model.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use rushmem::Result;

use crate::actor::{ActorPlace, Outcome};
use crate::api_common::place::on_gpus;
use crate::field::Field;
use crate::model::{simulate, Expected, Model};
use crate::observe;
use crate::program::{Actor, Op, Program, ACTORS, COUNTERS, SIGNALS, WORDS};

/// What is known of an actor's program beforehand.
pub(crate) struct Known {
    pub(crate) model: Model,
    pub(crate) expected: Vec<Expected>,
    /// The epoch of each operation, by its number.
    pub(crate) epochs: HashMap<usize, usize>,
}

/// What is known of all; nothing where some program's outcome is not certain.
pub(crate) fn know(program: &Program) -> Option<Vec<Vec<Known>>> {
    let n = program.actors.len() as u32;
    let one = |ops: &[Op]| {
        let (model, expected) = simulate(n, ops)?;
        let epochs = ops.iter().zip(&expected).map(|(op, expected)| (op.id, expected.epoch)).collect();
        Some(Known { model, expected, epochs })
    };
    program.actors.iter().map(|actors| actors.iter().map(|(_, ops)| one(ops)).collect()).collect()
}

/// Runs it on all PEs. `Err`: what a PE found wrong; empty where another PE did. Collective.
pub(crate) fn run_round(field: &Field<'_>, program: &Program) -> std::result::Result<(), String> {
    let known = know(program).expect("programs are made so that their outcome is certain");
    let me = field.world.my_pe().number() as usize;
    let mine = &program.actors[me];
    let place = |k: usize| ActorPlace {
        field,
        program,
        k,
        actor: Field::actor(me, k),
        ops: &mine[k].1,
        expected: &known[me][k].expected,
    };
    field.counters.fill(0).unwrap();
    field.shared.fill(0).unwrap();
    for k in 0..mine.len() {
        let arena = place(k).arena();
        let first = k * arena.len();
        field.sources.slice(first..first + arena.len()).unwrap().write(&arena).unwrap();
    }
    let stop = AtomicBool::new(false);
    let (outcomes, seen) = std::thread::scope(|scope| {
        let observer = (!on_gpus()).then(|| scope.spawn(|| observe::watch(field, program, &known, &stop)));
        field.world.barrier_all().unwrap();
        let outcomes = act(scope, field, mine, &place);
        field.world.barrier_all().unwrap();
        stop.store(true, Ordering::Relaxed);
        (outcomes, observer.and_then(|observer| observer.join().expect("it looks, and no more")))
    });
    let wrong = seen
        .or_else(|| (0..mine.len()).find_map(|k| wrong_outcome(&place(k), &outcomes[k])))
        .or_else(|| wrong_memory(field, program, &known));
    if field.agree(wrong.is_some()) {
        return Err(wrong.unwrap_or_default());
    }
    Ok(())
}

/// All actors of this PE, at once.
fn act<'s, 'e: 's>(
    scope: &'s std::thread::Scope<'s, 'e>,
    field: &'e Field<'_>,
    mine: &[(Actor, Vec<Op>)],
    place: &(impl Fn(usize) -> ActorPlace<'e> + Sync),
) -> Vec<Outcome> {
    let of = |wanted: Actor| (0..mine.len()).filter(move |k| mine[*k].0 == wanted);
    let started: Vec<_> = of(Actor::Host)
        .chain(of(Actor::Context))
        .chain(of(Actor::Stream))
        .map(|k| {
            let (place, actor) = (place(k), mine[k].0);
            let run = move || -> Result<Outcome> {
                match actor {
                    Actor::Stream => place.run_stream(),
                    _ => place.run_host(actor == Actor::Context),
                }
            };
            (k, scope.spawn(run))
        })
        .collect();
    let kernels: Vec<usize> = of(Actor::Kernel).collect();
    let places: Vec<ActorPlace<'_>> = kernels.iter().map(|k| place(*k)).collect();
    let mut outcomes: Vec<Outcome> = (0..mine.len()).map(|_| Outcome::default()).collect();
    for (k, outcome) in kernels.iter().zip(crate::kernel::run(&places).unwrap()) {
        outcomes[*k] = outcome;
    }
    for (k, thread) in started {
        outcomes[k] = thread.join().expect("an actor panics only where a call of ours does").unwrap();
    }
    let _ = field;
    outcomes
}

/// What an actor was given and is wrong.
fn wrong_outcome(place: &ActorPlace<'_>, outcome: &Outcome) -> Option<String> {
    let who = format!("actor {}", place.actor);
    for (i, (op, expected)) in place.ops.iter().zip(place.expected).enumerate() {
        if let Some(old) = expected.fetched.filter(|old| *old != outcome.fetched[i]) {
            return Some(format!(
                "{who}: operation {} ({op}) fetched {:#x}, not {old:#x}",
                op.id, outcome.fetched[i]
            ));
        }
        for (j, (word, writer)) in op.words().zip(&expected.read).enumerate() {
            let Some(writer) = writer else { continue };
            let (got, wanted) = (outcome.landed[op.arena + j], place.program.value(*writer, word));
            if got != wanted {
                return Some(format!(
                    "{who}: operation {} ({op}) got {got:#x} of word {word}, not {wanted:#x}",
                    op.id
                ));
            }
        }
    }
    None
}

/// What of this PE's memory is not as the programs have left it.
fn wrong_memory(field: &Field<'_>, program: &Program, known: &[Vec<Known>]) -> Option<String> {
    let me = field.world.my_pe().number() as usize;
    let rows = field.rows.to_vec().unwrap();
    let signals = field.signals.words().to_vec().unwrap();
    let counters = field.counters.to_vec().unwrap();
    let mut shared = 0u64;
    for (pe, actors) in known.iter().enumerate() {
        for (k, Known { model, .. }) in actors.iter().enumerate() {
            let actor = Field::actor(pe, k);
            shared = shared.wrapping_add(model.shared(me));
            let checks = [
                ("word", &rows[actor * WORDS..], model.words(me)),
                ("signal", &signals[actor * SIGNALS..], model.signals(me)),
            ];
            for (what, memory, model) in checks {
                for (at, writer) in model {
                    let wanted = program.value(*writer, *at);
                    if memory[*at] != wanted {
                        let got = memory[*at];
                        return Some(format!(
                            "{what} {at} of actor {actor} on PE {me} is {got:#x} in the end, not {wanted:#x}"
                        ));
                    }
                }
            }
            let got = &counters[actor * COUNTERS..][..COUNTERS];
            if got != model.counters(me) {
                let wanted = model.counters(me);
                return Some(format!("counters of actor {actor} on PE {me} are {got:x?}, not {wanted:x?}"));
            }
        }
    }
    let got = field.shared.to_vec().unwrap()[0];
    debug_assert!(known.iter().all(|actors| actors.len() <= ACTORS));
    (got != shared).then(|| format!("the shared counter of PE {me} is {got:#x}, not {shared:#x}"))
}
