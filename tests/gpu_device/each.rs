//! PEs each with a GPU of its own, two of them and as many as there are, as processes and as threads of one
//! process: the same kernels as everywhere, over the link between the GPUs.

use rushmem::Device;

use crate::*;
use rushmem_test_support::arguments::{Exchange, Large, Syncs};

const RMA: &str = kernels!("rma.cu");
const ELEMENTS: &str = kernels!("elements.cu");
const SIGNALS: &str = kernels!("signals.cu");
const SYNC: &str = kernels!("sync.cu");
const ATOMICS: &str = kernels!("atomics.cu");

/// No two PEs have the same GPU.
fn all_different(world: &World) {
    let Device::Cuda(Some(number)) = world.device() else { panic!("{:?}", world.device()) };
    let numbers = world.alloc::<u32>(world.n_pes() as usize).unwrap();
    for pe in world.pes() {
        numbers.p(world.my_pe().index(), number, pe).unwrap();
    }
    world.barrier_all().unwrap();
    let mut numbers = numbers.to_vec().unwrap();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), world.n_pes() as usize, "{numbers:?}");
}

fn everything(world: &World, rng: &mut Rng) {
    all_different(world);
    let n = world.n_pes() as usize;
    let room = (1 << 20) + 100;
    let dst = world.alloc_aligned::<u8>(room, 16).unwrap();
    let src = world.alloc_aligned::<u8>(room, 16).unwrap();

    let rma = Bench::new(world, RMA);
    for scope in SCOPES {
        for op in 0..4 {
            let (bytes, from, to) = ((1usize << 20) - rng.below(33), rng.below(16), rng.below(16));
            let large = Large { op, scope, bytes, from_align: from, to_align: to, seed: rng.next() };
            rma.run("rma_large", Launch::new(1, 480), (&rma.report, &dst, &src, ByValue(large)));
        }
    }
    let elements = Bench::new(world, ELEMENTS);
    elements.run("elements_values", Launch::new(1, 64), (&elements.report, &dst, &src, rng.next()));
    let signals = Bench::new(world, SIGNALS);
    for scope in SCOPES {
        let (signal, ack) = (world.signal().unwrap(), world.signal().unwrap());
        let exchange = Exchange { bytes: 4097, scope, rounds: 200, seed: rng.next() };
        let args = (&signals.report, &dst, &src, &signal, &ack, ByValue(exchange));
        signals.run("signals_exchange", Launch::new(1, 128), args);
    }
    let sync = Bench::new(world, SYNC);
    for scope in SCOPES {
        let (entered, data) = (world.alloc::<u64>(n).unwrap(), world.alloc::<u64>(2 * n * 64).unwrap());
        let syncs = Syncs { scope, barrier: 1, rounds: 1000, seed: rng.next() };
        let args = (&sync.report, &entered, &data, ByValue(syncs));
        sync.run("sync_rounds", Launch::new(1, 64), args);
    }
    let atomics = Bench::new(world, ATOMICS);
    let (singles, doubles) = (world.alloc::<f32>(3).unwrap(), world.alloc::<f64>(3).unwrap());
    atomics.run("atomics_floats", Launch::new(4, 64), (&atomics.report, &singles, &doubles, 6));
    assert_eq!(doubles.to_vec().unwrap()[0], (n * 4 * 64 * 6) as f64);
}

#[test]
fn pes_with_a_gpu_each_as_processes_and_as_threads() {
    if gpus() < 2 {
        return skip("pes_with_a_gpu_each_as_processes_and_as_threads", "it needs two GPUs");
    }
    let mut counts = vec![2, gpus() as u32];
    counts.dedup();
    for n in counts {
        // Processes, too: there is a GPU for each.
        both(n, everything);
    }
}
