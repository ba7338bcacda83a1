//! Eight PEs on one device: as threads of a process, whose kernels run side by side, and as processes, which
//! take turns.

use rushmem_test_support::arguments::{Alltoall, Syncs};

use crate::*;

const SIGNALS: &str = kernels!("signals.cu");
const SYNC: &str = kernels!("sync.cu");
const MANY: &str = kernels!("many.cu");
const PES: u32 = 8;

/// A ring, barriers, and everybody's puts to everybody.
fn meet(world: &World, laps: i32, meetings: i32, exchanges: i32, rng: &mut Rng) {
    let n = PES as usize;
    assert_eq!(world.n_pes(), PES);
    let ring = Bench::new(world, SIGNALS);
    let (token, signal) = (world.alloc::<u64>(1).unwrap(), world.signal().unwrap());
    ring.run("signals_ring", Launch::new(1, 1), (&ring.report, &token, &signal, laps));

    let sync = Bench::new(world, SYNC);
    let threads = 64;
    for scope in [THREAD, WARP, BLOCK] {
        let entered = world.alloc::<u64>(n).unwrap();
        let data = world.alloc::<u64>(2 * n * threads as usize).unwrap();
        let syncs = Syncs { scope, barrier: 1, rounds: meetings, seed: rng.next() };
        let args = (&sync.report, &entered, &data, ByValue(syncs));
        sync.run("sync_rounds", Launch::new(1, threads), args);
    }

    let all = Bench::new(world, MANY);
    let words = 1001;
    let inbox = world.alloc::<u64>(n * words).unwrap();
    let outbox = world.alloc::<u64>(n * words).unwrap();
    for blocks in [1, 3] {
        let (arrived, taken) = (world.alloc::<u64>(n).unwrap(), world.alloc::<u64>(n).unwrap());
        let alltoall = Alltoall { words, rounds: exchanges, seed: rng.next() };
        let args = (&all.report, &inbox, &outbox, &arrived, &taken, ByValue(alltoall));
        all.run("many_alltoall", Launch::new(blocks, 96), args);
    }
}

/// The PEs' devices are one.
fn shared(world: &World) {
    let names = world.alloc::<u8>(200).unwrap();
    let mut mine = world.device_name().into_bytes();
    mine.resize(200, 0);
    names.write(&mine).unwrap();
    world.barrier_all().unwrap();
    let mut theirs = vec![0; 200];
    names.get(&mut theirs, world.right()).unwrap();
    assert_eq!(mine, theirs);
    world.barrier_all().unwrap();
}

fn pes() -> testing::Pes {
    seeded(testing::pes(PES).env("RUSHMEM_DEVICE", one_device()))
}

#[test]
fn eight_pes_of_one_device_as_threads() {
    let exchanges = if on_gpus() { 2000 } else { 50 };
    pes().threads(|world| {
        shared(world);
        meet(world, rounds(100) as i32, rounds(200) as i32, rounds(exchanges) as i32, &mut Rng::new(seed()));
    });
}

#[test]
fn eight_pes_of_one_device_as_processes() {
    pes().run(|world| {
        shared(world);
        meet(world, 3, 5, 3, &mut Rng::new(seed()));
    });
}
