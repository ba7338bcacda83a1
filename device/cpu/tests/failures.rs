//! Kernels that give up, hang, throw, or ask for too much: the launch fails with a text, the process goes on.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rushmem_device_cpu::{Cause, Failure, LaunchConfig, Limits, Reports, RunError};
use rushmem_device_cpu_test_support::{arg, failure, run, shape, Bench};

const SOURCE: &str = r#"
#include <cassert>
#include <stdexcept>
struct Noisy { int *count; ~Noisy() { ++*count; } };
__global__ void fine(int *out) { atomicAdd(out, 1); }
__global__ void stuck(int half) {
  if (threadIdx.x < (unsigned)half) __syncthreads();
  else
    __syncwarp();
}
__global__ void lonely() { if (threadIdx.x == 5) return; if (threadIdx.x != 3) __shfl_sync(~0u, 1, 0);
  __syncthreads(); }
__global__ void mixed() { if (threadIdx.x % 2) __ballot_sync(~0u, 1); else __syncwarp(); }
__global__ void give_up(unsigned code) {
  if (blockIdx.x == 1 && threadIdx.x == 2) rushmem_cpu_exit(code);
  for (;;) __nanosleep(1);
}
__global__ void spin_for_ever(int how) {
  __shared__ unsigned word;
  if (how == 0) for (;;) rushmem_cpu_spin();
  if (how == 1) for (;;) atomicAdd(&word, 1u);
  if (how == 2) { if (threadIdx.x == 0) for (;;) __threadfence(); __syncthreads(); }
}
__global__ void trap() { if (threadIdx.x == 7) __trap(); __syncthreads(); }
__global__ void asserts(int x) { assert(x == 3 && "three"); }
__global__ void throws(int how) {
  if (how == 0) throw std::runtime_error("out of cheese");
  if (how == 1) throw 42;
  try { throw std::runtime_error("caught"); } catch (const std::exception &) {}
}
#include <cstdlib>
#include <unistd.h>
__global__ void leaves(int how) {
  if (threadIdx.x != 3) { __syncthreads(); return; }
  switch (how) {
  case 0: exit(3);
  case 1: std::exit(4);
  case 2: _Exit(5);
  case 3: _exit(6);
  case 4: std::quick_exit(7);
  case 5: abort();
  default: __builtin_abort();
  }
}
__global__ void noisy(int *count) { Noisy a{count}; if (threadIdx.x == 1) __trap(); __syncthreads(); }
"#;

#[test]
fn what_would_end_the_process_ends_the_launch() {
    let bench = Bench::new();
    let module = bench.module(SOURCE);
    let kernel = module.kernel("leaves").expect("defined");
    let calls = ["exit(3)", "exit(4)", "_Exit(5)", "_exit(6)", "quick_exit(7)", "abort()", "abort()"];
    for (how, call) in calls.into_iter().enumerate() {
        let (text, place) = failure(run(&kernel, &shape(2, 40), &[arg(&(how as i32))]));
        assert!(text.starts_with(&format!("called {call}, which would end the whole process")), "{text}");
        assert!(place.is_some_and(|(_, thread)| thread == [3, 0, 0]), "{place:?}");
    }
    let mut out = 0;
    let pointer = &raw mut out;
    run(&module.kernel("fine").expect("defined"), &shape(1, 5), &[arg(&pointer)])
        .expect("the process goes on");
    assert_eq!(out, 5);
}

#[test]
fn a_deadlock_is_told_with_its_places() {
    let bench = Bench::new();
    let module = bench.module(SOURCE);
    let stuck = module.kernel("stuck").expect("defined");
    // Threads that exit count as arrived, so this one ends…
    run(&stuck, &shape(2, 64), &[arg(&32)]).expect("whole warps go each their way");
    // … but here half of a warp waits for the other half.
    let (text, place) = failure(run(&stuck, &shape(1, 64), &[arg(&16)]));
    assert!(text.starts_with("deadlock: 32 of 64 threads wait for each other (32 have exited)"), "{text}");
    let barrier = "16 threads (0,0,0), (1,0,0), (2,0,0), (3,0,0), … at test.cu:7 in __syncthreads()";
    let warp = "16 threads (16,0,0), (17,0,0), (18,0,0), (19,0,0), … at test.cu:9 in __syncwarp() with mask \
                0xffffffff, missing lanes 0x0000ffff";
    assert!(text.contains(barrier) && text.contains(warp), "{text}");
    assert_eq!(place, Some(([0; 3], [0; 3])));

    let (text, _) = failure(run(&module.kernel("lonely").expect("defined"), &shape(1, 20), &[]));
    assert!(text.contains("1 thread (3,0,0) at test.cu:12 in __syncthreads()"), "{text}");
    assert!(text.contains("missing lanes 0x00000008"), "{text}");

    let (text, _) = failure(run(&module.kernel("mixed").expect("defined"), &shape(1, 32), &[]));
    assert!(text.contains("different operations") && text.contains("__ballot_sync()"), "{text}");
}

#[test]
fn giving_up_ends_every_block() {
    let bench = Bench::new();
    let module = bench.module(SOURCE);
    let kernel = module.kernel("give_up").expect("defined");
    for code in [1u32, 2, 77] {
        let result = run(&kernel, &shape(4, 33), &[arg(&code)]);
        let place = Some(([1, 0, 0], [2, 0, 0]));
        let Err(RunError::Failed(Failure { cause, place: found, at, .. })) = result else {
            panic!("{result:?}")
        };
        assert_eq!((cause, found), (Cause::Code(code), place));
        assert!(at.starts_with(" at test.cu:"), "{at}");
    }
    // What was abandoned leaves room for what comes.
    let mut out = 0;
    let pointer = &raw mut out;
    run(&module.kernel("fine").expect("defined"), &shape(4, 256), &[arg(&pointer)]).expect("runs");
    assert_eq!(out, 1024);
}

/// Lines are not looked up among those modules alone that were there when one was looked up first.
#[test]
fn modules_that_are_loaded_later_have_lines_too() {
    let bench = Bench::new();
    for i in 0..3 {
        let above = "\n".repeat(7 * i);
        let source = format!("{above}__global__ void gives_up(int n) {{ if (n) rushmem_cpu_exit(3); }}\n");
        let module = bench.module(&source);
        let result = run(&module.kernel("gives_up").expect("defined"), &shape(1, 1), &[arg(&1i32)]);
        let Err(RunError::Failed(Failure { at, .. })) = result else { panic!("{result:?}") };
        assert!(at.starts_with(&format!(" at test.cu:{}", 7 * i + 1)), "{i}: {at}");
    }
}

#[test]
fn the_stop_flag_ends_a_spinning_kernel() {
    let bench = Bench::new();
    let module = bench.module(SOURCE);
    let kernel = module.kernel("spin_for_ever").expect("defined");
    for how in 0..3 {
        let stop = AtomicU32::new(0);
        let result = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                stop.store(1, Ordering::Relaxed);
            });
            let start = Instant::now();
            // SAFETY: the kernel takes one int.
            let result = unsafe { kernel.run(&shape(3, 70), &[arg(&how)], std::ptr::null(), &stop) };
            assert!(start.elapsed() < Duration::from_secs(60));
            result
        });
        assert_eq!(result, Err(RunError::Stopped), "way {how}");
    }
    // Set before the start: nothing runs.
    let mut out = 0;
    let pointer = &raw mut out;
    let (fine, args) = (module.kernel("fine").expect("defined"), [arg(&pointer)]);
    // SAFETY: the kernel takes one pointer to int.
    let result = unsafe { fine.run(&shape(2, 2), &args, std::ptr::null(), &AtomicU32::new(9)) };
    assert_eq!((result, out), (Err(RunError::Stopped), 0));
}

#[test]
fn traps_assertions_and_exceptions() {
    let bench = Bench::new();
    let module = bench.module(SOURCE);
    let kernel = |name: &str| module.kernel(name).expect("defined");
    let (text, place) = failure(run(&kernel("trap"), &shape(1, 40), &[]));
    assert_eq!((text.as_str(), place), ("__trap()", Some(([0; 3], [7, 0, 0]))));
    run(&kernel("asserts"), &shape(1, 4), &[arg(&3)]).expect("the assertion holds");
    let (text, _) = failure(run(&kernel("asserts"), &shape(1, 4), &[arg(&4)]));
    assert!(
        text.starts_with("test.cu:25: ") && text.contains("assertion `x == 3 && \"three\"` failed"),
        "{text}"
    );
    let (text, place) = failure(run(&kernel("throws"), &shape(2, 40), &[arg(&0)]));
    assert_eq!(text, "a C++ exception left the kernel: out of cheese");
    assert!(place.is_some());
    let (text, _) = failure(run(&kernel("throws"), &shape(1, 1), &[arg(&1)]));
    assert_eq!(text, "a C++ exception left the kernel");
    run(&kernel("throws"), &shape(2, 40), &[arg(&2)]).expect("caught in the kernel");
    // As after a GPU's trap, no destructor runs.
    let mut count = 0;
    let pointer = &raw mut count;
    let (text, _) = failure(run(&kernel("noisy"), &shape(1, 9), &[arg(&pointer)]));
    assert_eq!((text.as_str(), count), ("__trap()", 0));
}

#[test]
fn what_cannot_be_resident_is_refused() {
    let mut bench = Bench::new();
    bench.compiler.limits = Limits { threads: 1000, blocks: 20, ..Limits::default() };
    let module = bench.module(SOURCE);
    let kernel = module.kernel("fine").expect("defined");
    let mut out = 0;
    let pointer = &raw mut out;
    let refused = |grid, block, shared| {
        let config = LaunchConfig { grid, block, shared, in_turns: false, early: false };
        match run(&kernel, &config, &[arg(&pointer)]) {
            Err(RunError::Refused(text)) => text,
            other => panic!("{config:?}: {other:?}"),
        }
    };
    let text = refused([11, 1, 1], [97, 1, 1], 0);
    assert!(
        text.contains("11 blocks of 97 threads") && text.contains("the largest grid is 10 blocks"),
        "{text}"
    );
    assert!(refused([21, 1, 1], [1, 1, 1], 0).contains("the largest grid is 20 blocks"));
    assert!(refused([1, 1, 1], [1001, 1, 1], 0).contains("the largest grid is 0 blocks"));
    assert!(refused([1, 1, 1], [32, 33, 1], 0).contains("at most 1024 threads"));
    assert!(refused([1, 1, 1], [1, 1, 65], 0).contains("at most (1024, 1024, 64)"));
    assert!(refused([1, 1, 1], [u32::MAX; 3], 0).contains("at most 1024 threads"));
    assert!(refused([1, 0, 1], [1, 1, 1], 0).contains("no blocks"));
    assert!(refused([1, 1, 1], [1, 1, 0], 0).contains("no threads"));
    assert!(refused([1, 65536, 1], [1, 1, 1], 0).contains("a grid is at most"));
    assert!(refused([u32::MAX; 3], [1, 1, 1], 0).contains("a grid is at most"));
    assert!(refused([1, 1, 1], [1, 1, 1], 227 * 1024 + 1).contains("232448 bytes of dynamic shared memory"));
    assert_eq!(out, 0);
    run(&kernel, &shape(10, 97), &[arg(&pointer)]).expect("the largest runs");
    assert_eq!((out, kernel.max_blocks([97, 1, 1], 0)), (970, 10));

    let none: [*const c_void; 0] = [];
    let text = run(&kernel, &shape(1, 1), &none).expect_err("one is missing").to_string();
    assert_eq!(text, "launch refused: `fine` takes 1 arguments, got 0");
}

#[test]
fn blocks_take_turns_where_they_need_not_be_resident() {
    let mut bench = Bench::new();
    bench.compiler.limits = Limits { threads: 1000, blocks: 20, ..Limits::default() };
    let module = bench.module(
        r#"
#include <cooperative_groups.h>
extern "C" __global__ void count(unsigned *seen, unsigned long long *sum) {
  atomicAdd(&seen[blockIdx.x + gridDim.x * blockIdx.y], 1u);
  atomicAdd(sum, threadIdx.x);
}
extern "C" __global__ void meet(bool *valid) {
  *valid = cooperative_groups::this_grid().is_valid();
  cooperative_groups::this_grid().sync();
}
extern "C" __global__ void later(unsigned *flag) {
  if (blockIdx.x == gridDim.x - 1) atomicExch(flag, 1u);
  while (atomicAdd(flag, 0u) == 0) {
  }
}
"#,
    );
    let turns = |x, y, block| LaunchConfig { grid: [x, y, 1], in_turns: true, ..shape(1, block) };
    for (x, y, block) in [(1, 1, 1), (20, 1, 50), (21, 1, 3), (300, 7, 2), (5, 1, 1000)] {
        let (mut seen, mut sum) = (vec![0_u32; (x * y) as usize], 0_u64);
        let (at, total) = (seen.as_mut_ptr(), &raw mut sum);
        let kernel = module.kernel("count").expect("defined");
        run(&kernel, &turns(x, y, block), &[arg(&at), arg(&total)]).expect("any number of blocks");
        assert!(seen.iter().all(|&threads| threads == block), "{x} x {y} blocks of {block}");
        assert_eq!(sum, u64::from(x * y) * u64::from(block) * u64::from(block - 1) / 2);
    }
    // A block that can never run is refused as ever.
    let (mut valid, mut flag) = (true, 0_u32);
    let (at, word) = (&raw mut valid, &raw mut flag);
    let meet = module.kernel("meet").expect("defined");
    assert!(matches!(run(&meet, &turns(1, 1, 1001), &[arg(&at)]), Err(RunError::Refused(_))));
    let (text, _) = failure(run(&meet, &turns(2, 1, 1), &[arg(&at)]));
    assert!(text.contains("grid_group::sync(): the blocks of this launch take turns") && !valid, "{text}");
    run(&meet, &turns(1, 1, 33), &[arg(&at)]).expect("one block is all of them");
    run(&meet, &shape(2, 1), &[arg(&at)]).expect("resident blocks can meet");
    assert!(valid);
    // The last block comes when another one has ended, and all wait for it.
    let reports = Reports { limit: Some(Duration::from_millis(100)), ..Reports::default() };
    let later = module.kernel("later").expect("defined");
    let (args, stop) = ([arg(&word)], AtomicU32::new(0));
    // SAFETY: the kernel takes one pointer, to a word that outlives the launch.
    let stuck = unsafe { later.run_reporting(&turns(1000, 1, 1), &args, ptr::null(), &stop, &reports) };
    let text = stuck.expect_err("the word is never set").to_string();
    assert!(text.contains("of 1000 blocks have not begun, as blocks take turns in this launch"), "{text}");
    flag = 0;
    run(&later, &shape(20, 1), &[arg(&word)]).expect("resident blocks may wait");
    assert_eq!(flag, 1);
}

#[test]
fn many_threads_and_many_blocks() {
    let bench = Bench::new();
    let module = bench.module(
        r#"__global__ void k(unsigned *out) {
          for (int round = 0; round < 3; ++round) __syncthreads();
          char line[64];
          snprintf(line, sizeof line, "%d %f %s", (int)threadIdx.x, 0.5, "text");
          atomicAdd(out, (unsigned)(__syncthreads_count(strlen(line) > 10) / (int)blockDim.x));
        }"#,
    );
    let kernel = module.kernel("k").expect("defined");
    for (grid, block) in [(16, 1024), (1, 1024), (200, 3), (512, 32)] {
        let mut out = 0u32;
        let pointer = &raw mut out;
        run(&kernel, &shape(grid, block), &[arg(&pointer)]).expect("runs");
        assert_eq!(out, grid * block, "{grid} x {block}");
    }
}

/// A get of an abandoned thread may be answered late, into a variable on its stack: that stack is there as
/// long as the process, and no other thread's.
#[test]
fn stacks_of_abandoned_threads_are_nobody_elses() {
    const THREADS: usize = 40;
    let bench = Bench::new();
    let module = bench.module(
        r#"
#include <cstdint>
__global__ void tells(uint64_t *where, int fails) {
  volatile uint64_t variable = threadIdx.x;
  where[threadIdx.x] = reinterpret_cast<uint64_t>(&variable);
  if (fails && threadIdx.x == 39) __trap();
  __syncthreads();
  where[threadIdx.x] += variable - threadIdx.x;
}
"#,
    );
    let kernel = module.kernel("tells").expect("defined");
    let mut abandoned = Vec::new();
    for round in 0..6 {
        let mut places = vec![0u64; THREADS];
        let fails = round % 2;
        let ended = run(&kernel, &shape(1, THREADS as u32), &[arg(&places.as_mut_ptr()), arg(&fails)]);
        assert_eq!(ended.is_err(), fails == 1);
        assert!(!places.iter().any(|at| abandoned.contains(at)), "round {round}: a stack is used again");
        if fails == 1 {
            abandoned.extend(places);
        }
        for at in &abandoned {
            // SAFETY: a variable of a thread that was abandoned; that it is there still is what is tested.
            unsafe { (*at as *mut u64).write_volatile(u64::MAX) };
        }
    }
}
