//! One PE of a job that measures our collectives, as `mpi.c` beside this file measures an MPI's: it prints
//! the nanoseconds of one call in each batch. Arrays are symmetric memory.

use std::time::Instant;

use rushmem::{Sum, SymRef, Team, World};

use crate::args::CollectivePeArgs;
use crate::host::pair::verify;
use crate::job::{self, Result};

/// A collective of so many bytes, for the `i`-th time.
type Call<'a> = &'a dyn Fn(&Arrays<'_>, usize) -> rushmem::Result<()>;

/// Arrays of one size.
struct Arrays<'a> {
    team: &'a Team<'a>,
    to: SymRef<'a, f32>,
    from: SymRef<'a, f32>,
    bytes: &'a [SymRef<'a, u8>; 2],
    n: usize,
}

/// As `mpi.c` has it.
fn calls_of(bytes: u64) -> usize {
    match bytes {
        ..=0x1000 => 200,
        0x1001..=0x1_0000 => 50,
        0x1_0001..=0x10_0000 => 8,
        _ => 2,
    }
}

fn samples_of(bytes: u64, samples: u32) -> u32 {
    let share = match bytes {
        ..=0x1000 => 1,
        0x1001..=0x1_0000 => 2,
        0x1_0001..=0x10_0000 => 8,
        _ => 40,
    };
    (samples / share).max(3)
}

fn measure(
    world: &World,
    arrays: &Arrays<'_>,
    name: &str,
    bytes: u64,
    samples: u32,
    call: Call<'_>,
) -> Result<()> {
    let calls = calls_of(bytes);
    (0..calls).try_for_each(|i| call(arrays, i))?;
    let mut times = Vec::new();
    for _ in 0..samples_of(bytes, samples) {
        world.barrier_all()?;
        let start = Instant::now();
        (0..calls).try_for_each(|i| call(arrays, i))?;
        times.push(start.elapsed().as_nanos() as f64 / calls as f64);
    }
    if world.my_pe().number() == 0 {
        let times: Vec<String> = times.iter().map(|time| format!("{time:.1}")).collect();
        println!("{name} {bytes} {}", times.join(" "));
    }
    Ok(())
}

/// What each PE has of itself: as bytes and as floats.
fn pattern(pe: u32, i: usize) -> f32 {
    (pe as usize * 31 + i % 1000) as f32
}

pub(crate) fn run(args: &CollectivePeArgs) -> Result<()> {
    let world = World::init()?;
    let (me, n) = (world.my_pe(), world.n_pes());
    job::pin(me.index());
    let team = world.team();
    let most = args.sizes.iter().copied().max().unwrap_or(0) as usize;
    let memory = [world.alloc::<f32>(most / 4 + 16)?, world.alloc::<f32>(most / 4 + 16)?];
    let bytes = [world.alloc::<u8>(most + 64)?, world.alloc::<u8>(most + 64)?];
    let floats: Vec<f32> = (0..memory[1].len()).map(|i| pattern(me.number(), i)).collect();
    memory[1].write(&floats)?;
    bytes[1].fill(me.number() as u8 + 1)?;
    let barrier: Call<'_> = &|_, _| world.barrier_all();
    for (k, size) in [0].iter().chain(&args.sizes).enumerate() {
        let size_of = *size as usize;
        let views = [bytes[0].slice(..size_of)?, bytes[1].slice(..size_of)?];
        let arrays = Arrays {
            team: &team,
            to: memory[0].slice(..size_of / 4)?,
            from: memory[1].slice(..size_of / 4)?,
            bytes: &views,
            n: n as usize,
        };
        if k == 0 {
            measure(&world, &arrays, "barrier", 0, args.samples, barrier)?;
            continue;
        }
        let calls: [(&str, Call<'_>); 4] = [
            ("allreduce", &|a, _| a.team.reduce(&a.to, &a.from, Sum)),
            ("broadcast", &|a, i| a.team.broadcast_in_place(&a.bytes[0], (i % a.n) as u32)),
            ("alltoall", &|a, _| {
                let whole = a.bytes[0].len() / a.n * a.n;
                a.team.alltoall(&a.bytes[0].slice(..whole)?, &a.bytes[1].slice(..whole)?)
            }),
            ("allgather", &|a, _| {
                let part = a.bytes[0].len() / a.n;
                a.team.fcollect(&a.bytes[0].slice(..part * a.n)?, &a.bytes[1].slice(..part)?)
            }),
        ];
        for (name, call) in calls {
            if name == "broadcast" {
                views[0].fill(me.number() as u8 + 1)?;
            }
            measure(&world, &arrays, name, *size, args.samples, call)?;
            if args.corrupt {
                views[0].write(&vec![0xff; size_of])?;
                arrays.to.fill(-1.0)?;
            }
            let seen = views[0].to_vec()?;
            let block = size_of / n as usize;
            let right = match name {
                "allreduce" => arrays
                    .to
                    .to_vec()?
                    .iter()
                    .enumerate()
                    .all(|(i, sum)| *sum == (0..n).fold(0.0, |sum, pe| sum + pattern(pe, i))),
                // The first root's, which went on from there.
                "broadcast" => seen.iter().all(|byte| *byte == 1),
                _ => seen[..block * n as usize]
                    .chunks(block.max(1))
                    .zip(1u8..)
                    .all(|(part, from)| part.iter().all(|byte| *byte == from)),
            };
            world.sync_all()?;
            verify(name, right)?;
        }
    }
    drop(team);
    Ok(world.finalize()?)
}
