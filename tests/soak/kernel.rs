//! Actors of a kernel: each block runs one program (tests/kernels/soak.cu).

use rushmem::zerocopy::{FromBytes, Immutable, IntoBytes};
use rushmem::{ByValue, Launch, Result};

use crate::actor::{ActorPlace, Outcome};
use crate::model::compare;
use crate::program::{Kind, ARENA, OPERATIONS};

/// `soak_operation` of soak.cu.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[zerocopy(crate = "rushmem::zerocopy")]
#[repr(C)]
pub(crate) struct Operation {
    kind: u64,
    scope: u64,
    pe: u64,
    word: u64,
    n: u64,
    stride: u64,
    arena: u64,
    at: u64,
    value: u64,
    second: u64,
}

/// What ends a program.
const NO_OPERATION: Operation = Operation {
    kind: u64::MAX,
    scope: 0,
    pe: 0,
    word: 0,
    n: 0,
    stride: 0,
    arena: 0,
    at: 0,
    value: 0,
    second: 0,
};

/// `soak_memory` of soak.cu.
#[derive(Clone, Copy)]
#[repr(C)]
struct Memory {
    rows: *mut u64,
    signals: *mut u64,
    counters: *mut u64,
    shared: *mut u64,
    sources: *mut u64,
    landing: *mut u64,
    code: *mut Operation,
    fetched: *mut u64,
}

/// Threads of a block: two warps.
const THREADS: u32 = 64;

/// Runs them all in one launch.
pub(crate) fn run(places: &[ActorPlace<'_>]) -> Result<Vec<Outcome>> {
    let Some(first) = places.first() else { return Ok(Vec::new()) };
    let field = first.field;
    let mut code = vec![NO_OPERATION; places.len() * OPERATIONS];
    for (place, code) in places.iter().zip(code.chunks_exact_mut(OPERATIONS)) {
        for (i, (op, to)) in place.ops.iter().zip(code).enumerate() {
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
            *to = Operation {
                kind: op.kind as u64,
                scope: op.scope,
                pe: op.pe.into(),
                word: op.word as u64,
                n: op.n as u64,
                stride: op.stride as u64,
                arena: op.arena as u64,
                at: op.at as u64,
                value,
                second,
            };
        }
    }
    field.code.slice(..code.len())?.write(&code)?;
    let mut numbers = [0u64; 2 * crate::program::ACTORS];
    for (i, place) in places.iter().enumerate() {
        (numbers[2 * i], numbers[2 * i + 1]) = (place.actor as u64, place.k as u64);
    }
    let [a, b, c, d, e, f, g, h] = numbers;
    let who = ByValue([a, b, c, d, e, f, g, h]);
    let stream = field.world.stream()?;
    let memory = Memory {
        rows: field.rows.as_ptr(),
        signals: field.signals.words().as_ptr(),
        counters: field.counters.as_ptr(),
        shared: field.shared.as_ptr(),
        sources: field.sources.as_ptr(),
        landing: field.landing.as_ptr(),
        code: field.code.as_ptr(),
        fetched: field.fetched.as_ptr(),
    };
    let kernel = field.module.kernel("soak")?;
    // SAFETY: every array is as large as the kernel's comment says, and each actor's words are its own.
    unsafe { kernel.launch_on(Launch::new(places.len() as u32, THREADS), (ByValue(memory), who), &stream) }?;
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
