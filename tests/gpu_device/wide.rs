//! Litmus test of wide packets: what a warp stores at once is seen whole, with its number, by another GPU and
//! by this one.

use crate::*;

const LITMUS: &str = kernels!("litmus_wide.cu");
const BLOCKS: u32 = 32;
const THREADS: u32 = 256;

/// Between two GPUs where there are two, else between two PEs of one. PTX promises 16 bytes; of the 128 this
/// is what there is to hold against (`impl/coll/wide.h`).
#[test]
fn wide_packets_are_whole() {
    const NAME: &str = "wide_packets_are_whole";
    if !on_gpus() {
        return skip(
            NAME,
            "on the CPU device a packet's number orders its data, and stores wait for readers",
        );
    }
    both(2, |world, _| {
        let rows = (BLOCKS * THREADS / 64) as usize;
        let bench = Bench::new(world, LITMUS);
        let (stats, memory) =
            (world.alloc::<u64>(4).unwrap(), world.alloc_aligned::<u8>(rows << 10, 128).unwrap());
        let total = rounds(10_000_000).div_ceil(rows) as u64;
        for weak in [0i32, 1] {
            stats.fill(0).unwrap();
            memory.fill(0).unwrap();
            bench.run(
                "litmus_wide",
                Launch::new(BLOCKS, THREADS),
                (&bench.report, &stats, &memory, total, weak),
            );
            let seen = stats.to_vec().unwrap();
            if world.my_pe() == Pe::new(0) {
                println!(
                    "LITMUS litmus_wide {} on {}: {} rows stored, {} looked at, {} met, torn {}",
                    if weak == 0 { "one store" } else { "two stores (weak)" },
                    world.device_name(),
                    total * rows as u64,
                    seen[2],
                    seen[0],
                    seen[1]
                );
            }
        }
    });
}
