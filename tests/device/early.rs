//! Kernels that are launched early, and let the next one come early. On the CPU device kernels of a stream
//! never overlap: there it is the API that is tested.

use crate::*;

const EARLY: &str = kernels!("early.cu");
/// Launches in a row.
const STEPS: usize = 60;

#[test]
fn kernels_that_come_early_find_what_those_before_them_wrote() {
    at_counts(&[1], |world, random| {
        let module = world.load(made_quickly(EARLY)).unwrap();
        let step = module.kernel("step").unwrap();
        for _ in 0..rounds(20) {
            let (n, threads) = (1 + random.below(5000), [1, 32, 70, 256][random.below(4)]);
            let blocks = 1 + random.below(step.max_blocks(threads, 0).unwrap().min(64) as usize) as u32;
            let (a, b) = (world.alloc::<u64>(n).unwrap(), world.alloc::<u64>(n).unwrap());
            let mut expected: Vec<u64> = (0..n).map(|_| random.next()).collect();
            a.write(&expected).unwrap();
            for i in 0..STEPS {
                let (salt, when) = (random.next() >> 24, random.below(4) as u32);
                let (to, from) = if i % 2 == 0 { (&b, &a) } else { (&a, &b) };
                // SAFETY: each kernel reads one array and writes the other, in the stream's order.
                unsafe {
                    step.launch(Launch::new(blocks, threads).early(), (to, from, n as u32, salt, when))
                }
                .unwrap();
                let turned = |at: usize| {
                    let mixed = expected[n - 1 - at].wrapping_add(salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    mixed.wrapping_add(expected[(at + n / 2) % n])
                };
                expected = (0..n).map(turned).collect();
            }
            world.synchronize().unwrap();
            assert_eq!(a.to_vec().unwrap(), expected, "{n} words, {blocks} x {threads}");
        }
    });
}
