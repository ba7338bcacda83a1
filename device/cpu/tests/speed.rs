//! What a launch costs, printed, with bounds that only a defect would break.

use std::time::Duration;

use rushmem_device_cpu_test_support::{arg, best_of, run, shape, Bench};

#[test]
fn launches_are_cheap() {
    let bench = Bench::new();
    let module = bench.module(
        r#"
        __global__ void empty() {}
        __global__ void barriers(int rounds) { for (int i = 0; i < rounds; ++i) __syncthreads(); }
        __global__ void shuffles(int rounds) { for (int i = 0; i < rounds; ++i) __shfl_xor_sync(~0u, i, 1); }
        __device__ unsigned arrived;
        __global__ void meet(unsigned *word) {
          if (threadIdx.x == 0) {
            atomicAdd(word, 1u);
            while (atomicAdd(word, 0u) < gridDim.x) {}
          }
          __syncthreads();
        }"#,
    );
    let kernel = |name: &str| module.kernel(name).expect("defined");
    // SAFETY: neither kernel takes arguments or reads the state.
    let launch = |kernel: &rushmem_device_cpu::Kernel, grid, block| unsafe {
        kernel
            .run(&shape(grid, block), &[], std::ptr::null(), &std::sync::atomic::AtomicU32::new(0))
            .expect("runs");
    };
    let empty = kernel("empty");
    for (grid, block, bound) in [(1, 1, 2), (1, 256, 10), (4, 256, 50), (16, 1024, 500)] {
        let took = best_of(50, || launch(&empty, grid, block));
        println!("empty {grid} x {block}: {took:?}");
        assert!(took < Duration::from_millis(bound));
    }
    for (name, rounds) in [("barriers", 0), ("barriers", 100), ("shuffles", 100)] {
        for (grid, block) in [(1, 256), (4, 256)] {
            let took =
                best_of(20, || run(&kernel(name), &shape(grid, block), &[arg(&rounds)]).expect("runs"));
            println!("{name} x {rounds}, {grid} x {block}: {took:?}");
            assert!(took < Duration::from_millis(500));
        }
    }
    for grid in [2, 16, 128] {
        let took = best_of(10, || {
            let mut word = 0u32;
            let pointer = &raw mut word;
            run(&kernel("meet"), &shape(grid, 64), &[arg(&pointer)]).expect("runs");
        });
        println!("meet {grid} x 64: {took:?}");
        assert!(took < Duration::from_millis(1000));
    }
}

/// A token goes round a ring of blocks, more of them than cores: each waits most of the time.
#[test]
fn a_ring_of_waiting_blocks_moves() {
    let bench = Bench::new();
    let module = bench.module(
        r#"
        __global__ void ring(unsigned laps, unsigned *slots) {
          unsigned me = blockIdx.x, next = (me + 1) % gridDim.x;
          for (unsigned lap = 1; lap <= laps; ++lap) {
            if (me != 0 || lap > 1) {
              unsigned wanted = me == 0 ? lap - 1 : lap;
              while (__atomic_load_n(&slots[32 * me], __ATOMIC_ACQUIRE) < wanted) rushmem_cpu_spin();
              rushmem_cpu_woke();
            }
            __atomic_store_n(&slots[32 * next], lap, __ATOMIC_RELEASE);
          }
        }"#,
    );
    for (blocks, laps) in [(2u32, 2000u32), (8, 200), (64, 40)] {
        let took = best_of(3, || {
            let mut slots = vec![0u32; 32 * blocks as usize];
            let pointer = slots.as_mut_ptr();
            run(&module.kernel("ring").expect("defined"), &shape(blocks, 1), &[arg(&laps), arg(&pointer)])
                .expect("runs");
            assert_eq!((slots[0], slots[32]), (laps, laps));
        });
        println!("ring of {blocks}: {:?} a hop", took / (blocks * laps));
        assert!(took < Duration::from_secs(20));
    }
}
