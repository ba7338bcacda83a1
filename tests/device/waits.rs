//! The wait and test families inside kernels.

use crate::api_common::at_all_counts;
use crate::*;

const WAITS: &str = kernels!("waits.cu");

#[test]
fn every_form_agrees_with_a_plain_loop() {
    at_few_counts(|world, rng| {
        let bench = Bench::new(world, WAITS);
        let words = world.alloc::<u64>(32 * 33).unwrap();
        for ty in 0..5 {
            let args = (&bench.report, &words, ty, rounds(100) as i32, rng.next());
            bench.run("waits_families", Launch::new(1, 33), args);
        }
    });
}

#[test]
fn every_form_sees_what_peers_write() {
    at_all_counts(|world, rng| {
        let bench = Bench::new(world, WAITS);
        let words = world.alloc::<u64>(32).unwrap();
        for ty in 0..4 {
            for form in 0..7 {
                words.fill(0).unwrap();
                let args = (&bench.report, &words, ty, form, rng.next());
                bench.run("waits_peers", Launch::new(1, BLOCK_SIZES[form as usize % 3]), args);
            }
        }
    });
}

#[test]
fn threads_of_one_block_satisfy_each_others_waits() {
    at_few_counts(|world, _| {
        let bench = Bench::new(world, WAITS);
        for threads in [1, 2, 70, 256] {
            let words = world.alloc::<u64>(threads as usize + 1).unwrap();
            bench.run("waits_same_block", Launch::new(1, threads), (&bench.report, &words, 10));
        }
    });
}
