//! Actors of a kernel: each block runs one program (tests/kernels/soak.cu).

use rushmem::{Launch, Result};

use crate::actor::{Outcome, Place};
use crate::model::compare;
use crate::program::{Kind, ARENA, OPERATIONS};

/// Words of an operation, as the kernel reads it.
pub(crate) const FIELDS: usize = 10;
/// Threads of a block: two warps.
const THREADS: u32 = 64;

/// Runs them all in one launch.
pub(crate) fn run(places: &[Place<'_>]) -> Result<Vec<Outcome>> {
    let Some(first) = places.first() else { return Ok(Vec::new()) };
    let field = first.field;
    let mut code = vec![0u64; places.len() * OPERATIONS * FIELDS];
    for (place, code) in places.iter().zip(code.chunks_exact_mut(OPERATIONS * FIELDS)) {
        // What remains is no operation.
        code.chunks_exact_mut(FIELDS).for_each(|fields| fields[0] = u64::MAX);
        for (i, (op, fields)) in place.ops.iter().zip(code.chunks_exact_mut(FIELDS)).enumerate() {
            let (mut value, mut second) = (op.value, 0);
            if op.kind == Kind::P {
                value = place.program.value(op.id, op.word);
            }
            if op.kind.signals() {
                second = place.program.value(op.id, op.at);
            }
            if op.kind == Kind::CompareSwap {
                second = compare(op, place.expected[i].fetched.unwrap_or_default());
            }
            let words = [op.word, op.n, op.stride, op.arena, op.at].map(|word| word as u64);
            let [word, n, stride, arena, at] = words;
            let kind = op.kind as u64;
            fields.copy_from_slice(&[
                kind,
                op.pe.into(),
                word,
                n,
                stride,
                arena,
                at,
                value,
                second,
                op.scope,
            ]);
        }
    }
    field.code.slice(..code.len())?.write(&code)?;
    let mut numbers = [0u64; 2 * crate::program::ACTORS];
    for (i, place) in places.iter().enumerate() {
        (numbers[2 * i], numbers[2 * i + 1]) = (place.actor as u64, place.k as u64);
    }
    let [a, b, c, d, e, f, g, h] = numbers;
    let who = rushmem::ByValue([a, b, c, d, e, f, g, h]);
    let stream = field.world.stream()?;
    let memory = (&field.rows, field.signals.words(), &field.counters, &field.shared);
    let own = (&field.code, &field.sources, &field.landing, &field.fetched);
    let args = (memory.0, memory.1, memory.2, memory.3, own.0, own.1, own.2, own.3, who);
    let kernel = field.module.kernel("soak")?;
    // SAFETY: every array is as large as the kernel's comment says, and each actor's words are its own.
    unsafe { kernel.launch_on(Launch::new(places.len() as u32, THREADS), args, &stream) }?;
    stream.synchronize()?;
    stream.destroy()?;
    let (landing, fetched) = (field.landing.to_vec()?, field.fetched.to_vec()?);
    Ok(places
        .iter()
        .enumerate()
        .map(|(block, place)| Outcome {
            fetched: fetched[block * OPERATIONS..][..OPERATIONS].to_vec(),
            landed: landing[place.k * ARENA..][..ARENA].to_vec(),
        })
        .collect())
}
