//! Blocks that do not move are reported with the place of each thread, and a loop that polls memory with
//! plain loads gets its turn to end.

use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rushmem_device_cpu::{Cause, Failure, Module, Reports, RunError};
use rushmem_device_cpu_test_support::{arg, run, run_within, shape, Bench, Random};

/// Warnings, kept.
struct Log(Mutex<Vec<String>>);

static LOG: Log = Log(Mutex::new(Vec::new()));

impl log::Log for Log {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        if record.level() <= log::Level::Warn {
            println!("{}", record.args());
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(record.args().to_string());
        }
    }

    fn flush(&self) {}
}

/// One test at a time has the log, which is empty at first.
fn the_log() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    static SET: OnceLock<()> = OnceLock::new();
    let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    SET.get_or_init(|| {
        log::set_logger(&LOG).expect("no other logger");
        log::set_max_level(log::LevelFilter::Warn);
    });
    LOG.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    one
}

fn warnings() -> Vec<String> {
    LOG.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The line of `source` that ends in `mark`.
fn line(source: &str, mark: &str) -> String {
    let found = source.lines().position(|line| line.ends_with(mark)).expect("the mark is in the source");
    format!("test.cu:{}", found + 1)
}

/// Runs a kernel that must not end by itself until it is ended.
fn stuck(module: &Module, kernel: &str, threads: u32, reports: &Reports, pointer: *mut i32) -> RunError {
    let kernel = module.kernel(kernel).expect("defined");
    let stop = AtomicU32::new(0);
    let end = AtomicI32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..2000 {
                std::thread::sleep(Duration::from_millis(10));
                if end.load(Ordering::Relaxed) != 0 {
                    return;
                }
            }
            stop.store(1, Ordering::Relaxed);
        });
        // SAFETY: the tests pass arguments of their kernels' types.
        let ended = unsafe {
            kernel.run_reporting(&shape(1, threads), &[arg(&pointer)], std::ptr::null(), &stop, reports)
        };
        end.store(1, Ordering::Relaxed);
        ended.expect_err("it cannot end")
    })
}

/// Loops that a GPU ends, with one thread for all of a block.
const POLLS: &str = r#"
extern "C" __global__ void volatiles(int *p) {
  __shared__ volatile int flag;
  if (threadIdx.x == 0) flag = 0;
  __syncthreads();
  if (threadIdx.x == 0) while (!flag) {}
  else if (threadIdx.x == blockDim.x - 1) flag = 1;
  __syncthreads();
  atomicAdd(p, flag);
}
/* A loop that changes nothing but a number of its own. */
extern "C" __global__ void counts(int *p) {
  __shared__ volatile int flag;
  if (threadIdx.x == 0) flag = 0;
  __syncthreads();
  int n = 0;
  if (threadIdx.x < 2) while (flag == 0) ++n;
  else if (threadIdx.x == blockDim.x - 1) flag = 1;
  __syncthreads();
  atomicAdd(p, threadIdx.x < 2 ? n > 0 : 1);
}
/* Each waits for the next one: the last shows first. */
extern "C" __global__ void chain(int *p) {
  volatile int *words = p + 1;
  if (threadIdx.x + 1 < blockDim.x) while (words[threadIdx.x + 1] == 0) {}
  words[threadIdx.x] = 1;
  atomicAdd(p, 1);
}
extern "C" __global__ void locks(int *p) {
  for (int i = 0; i < 3; ++i) {
    while (atomicCAS(p + 1, 0, 1) != 0) {}
    p[0] += 1;
    if (i == 1) __syncwarp(1u << threadIdx.x % 32);  // in the lock
    atomicExch(p + 1, 0);
  }
}
/* Registers of all kinds, and what calls return, survive an interruption anywhere. */
extern "C" __global__ void sums(int *p, double *out, int rounds) {
  volatile int *flag = p;
  double sum = 0, product = 1;
  unsigned long long bits = threadIdx.x + 1;
  int seen = 0;
  for (int i = 0; i < rounds; ++i) {
    sum += i * 0.5 + (double)(bits & 1023);
    product = product * 1.0000001 + sum * 1e-9;
    bits = bits * 6364136223846793005ull + 1442695040888963407ull;
    seen += *flag != 0;
  }
  if (threadIdx.x + 1 == blockDim.x) *flag = 1;
  out[2 * threadIdx.x] = sum + product;
  out[2 * threadIdx.x + 1] = (double)(bits >> 12);
}
"#;

#[test]
fn polling_with_plain_loads_ends() {
    let bench = Bench::new();
    let module = bench.module(POLLS);
    let threads = 64;
    for (name, limit) in [("volatiles", 60), ("counts", 60), ("chain", 80), ("locks", 60)] {
        let mut words = vec![0i32; 2000];
        let pointer = words.as_mut_ptr();
        let start = Instant::now();
        let kernel = module.kernel(name).expect("defined");
        run_within(Duration::from_secs(limit), &kernel, &shape(1, threads), &[arg(&pointer)])
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let wanted = if name == "locks" { 3 * threads } else { threads };
        assert_eq!(words[0], wanted as i32, "{name}");
        println!("{name}: {:?}", start.elapsed());
    }
}

/// The same numbers with interruptions and without: one thread polls all the time, so that the others are
/// interrupted every few milliseconds.
#[test]
fn an_interrupted_thread_goes_on_as_it_was() {
    let bench = Bench::new();
    let module = bench.module(POLLS);
    let sums = |threads: u32, rounds: i32| {
        let (mut words, mut out) = (vec![0i32; 4], vec![0f64; 2 * threads as usize]);
        let (pointer, results) = (words.as_mut_ptr(), out.as_mut_ptr());
        let kernel = module.kernel("sums").expect("defined");
        run(&kernel, &shape(1, threads), &[arg(&pointer), arg(&results), arg(&rounds)]).expect("runs");
        out
    };
    let mut random = Random::new();
    let rounds = 20_000_000 + random.below(5_000_000) as i32;
    let start = Instant::now();
    let found = sums(12, rounds);
    println!("{rounds} rounds: {:?}", start.elapsed());
    for thread in 0..12u64 {
        let (mut sum, mut product, mut bits) = (0f64, 1f64, thread + 1);
        for i in 0..rounds {
            sum += f64::from(i) * 0.5 + (bits & 1023) as f64;
            product = product * 1.0000001 + sum * 1e-9;
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        }
        let at = 2 * thread as usize;
        // The compiler may fuse a multiplication and an addition.
        assert!(
            (found[at] / (sum + product) - 1.0).abs() < 1e-9,
            "thread {thread}: {} {}",
            found[at],
            sum + product
        );
        assert_eq!(found[at + 1], (bits >> 12) as f64, "thread {thread}");
    }
}

const STALLS: &str = r#"
__device__ __attribute__((noinline)) void waits(int *p) {
  while (*(volatile int *)p == 0) {}  // plain
}
extern "C" __global__ void plain(int *p) {
  if (threadIdx.x == 3) waits(p);
  if (threadIdx.x == 4) return;
  __syncthreads();  // barrier
}
extern "C" __global__ void counted(int *p) {
  long n = 0;
  int m = 7;
  if (threadIdx.x == 3) while (*(volatile int *)p == 0) ++n, ++m;  // counted
  p[1] = n + m;
  __syncthreads();  // barrier behind
}
extern "C" __global__ void atomics(int *p) {
  if (threadIdx.x < 2) while (atomicCAS(p, 1, 2) != 1) {}  // cas
  else __syncwarp();  // warp
}
extern "C" __global__ void spins(int *p) {
  while (__atomic_load_n(p, __ATOMIC_RELAXED) == 0) rushmem_cpu_spin();  // spin
}
extern "C" __global__ void computes(int *p) {
  double x = 1;
  for (long i = 0; __builtin_expect(*(volatile int *)p == 0, 1); ++i) x = x * 1.0000001 + i;
  p[1] = x;
}
/* No number but a floating-point one, or none that goes up by one, and the count. */
extern "C" __global__ void computes_floats(int *p) {
  double x = 1;
  for (long i = 0; __builtin_expect(*(volatile int *)p == 0, 1); ++i) x = x < 1e300 ? x * 1.01 : 1;
  p[1] = x;
}
extern "C" __global__ void computes_one(int *p) {
  unsigned long long x = 1;
  while (__builtin_expect(*(volatile int *)p == 0, 1)) x = x * 6364136223846793005ull + 1442695040888963407ull;
  p[1] = x;
}
extern "C" __global__ void computes_rounds(int *p) {
  unsigned sum = 0;
  for (unsigned round = 0; __builtin_expect(*(volatile int *)p == 0, 1); ++round)
    for (unsigned i = 0; i < 5000; ++i) sum += ((volatile int *)p)[i & 1];
  p[1] = sum;
}
"#;

#[test]
fn a_block_that_stands_still_is_told() {
    let _log = the_log();
    let bench = Bench::new();
    let module = bench.module(STALLS);
    let second = Duration::from_millis(700);
    let reports =
        Reports { who: "PE 7 (test)".into(), stall: Some(second), limit: Some(second), trace: None };
    let cases: [(&str, u32, &[&str], &[&str]); 3] = [
        (
            "plain",
            8,
            &["plain", "barrier"],
            &[
                "1 thread (3,0,0) in a loop that polls memory with plain loads, or never ends, at ",
                "6 threads (0,0,0), (1,0,0), (2,0,0), (5,0,0), … at ",
                "in __syncthreads(), which 1 thread (3,0,0) has not reached",
                "1 of 8 threads have exited",
            ],
        ),
        (
            "atomics",
            32,
            &["cas", "warp"],
            &[
                "2 threads (0,0,0), (1,0,0) polling with atomics",
                "30 threads",
                "in __syncwarp() with mask 0xffffffff, missing lanes 0x00000003",
            ],
        ),
        ("spins", 3, &["spin"], &["3 threads (0,0,0), (1,0,0), (2,0,0) waiting at "]),
    ];
    for (name, threads, marks, parts) in cases {
        LOG.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let mut words = [0i32; 4];
        let RunError::Failed(Failure { cause: Cause::Stuck(ended), place: Some(_), .. }) =
            stuck(&module, name, threads, &reports, words.as_mut_ptr())
        else {
            panic!("{name}: it ended otherwise")
        };
        assert!(ended.contains("longer than RUSHMEM_WAIT_TIMEOUT allows"), "{ended}");
        let warned = warnings();
        assert!(!warned.is_empty() && warned.len() <= 3, "{warned:?}");
        let head = format!("PE 7 (test): kernel `{name}` (test.cu), block (0,0,0) has not moved for ");
        assert!(warned[0].starts_with(&head), "{}", warned[0]);
        for text in [&warned[0], &ended] {
            let places = marks.iter().map(|mark| format!(" at {}", line(STALLS, &format!("// {mark}"))));
            for part in places.chain(parts.iter().map(|part| (*part).to_owned())) {
                assert!(text.contains(&part), "{part:?} is not in {text}");
            }
        }
    }
}

/// A loop that counts while it polls is named, and not ended: it may as well use up time. Optimised or not:
/// unoptimised, its numbers are below the stack pointer.
#[test]
fn a_loop_that_counts_is_told() {
    let _log = the_log();
    let bench = Bench::new();
    let second = Duration::from_millis(700);
    let reports = Reports { who: String::new(), stall: Some(second), limit: Some(second), trace: None };
    for option in ["-O0", "-O1", "-O2"] {
        LOG.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let module = bench.module_with(STALLS, &[option]);
        let mut words = [0i32; 2];
        let pointer = words.as_mut_ptr() as usize;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_secs(4));
                // SAFETY: the word outlives the launch, which polls it.
                unsafe { AtomicI32::from_ptr(pointer as *mut i32) }.store(1, Ordering::Relaxed);
            });
            let kernel = module.kernel("counted").expect("defined");
            let pointer = pointer as *mut i32;
            let stop = AtomicU32::new(0);
            // SAFETY: two words.
            unsafe {
                kernel.run_reporting(&shape(1, 8), &[arg(&pointer)], std::ptr::null(), &stop, &reports)
            }
            .expect("it ends by itself");
        });
        let warned = warnings();
        let place = line(STALLS, "// counted");
        for part in [
            "1 thread (3,0,0) in a loop that does nothing but count, and may poll memory with plain loads, at ",
            &place,
            "in __syncthreads(), which 1 thread (3,0,0) has not reached",
        ] {
            let first = warned.first().is_some_and(|text| text.contains(part));
            assert!(first, "{option}: {part:?} is not in {warned:?}");
        }
    }
}

/// Hard work is no stall, however long it takes; and it can be stopped.
#[test]
fn a_long_computation_is_no_stall_and_can_be_stopped() {
    let _log = the_log();
    let bench = Bench::new();
    let (plain, quick) = (bench.module_with(STALLS, &["-O0"]), bench.module_with(STALLS, &["-O2"]));
    let stall = Duration::from_millis(500);
    let reports = Reports { who: String::new(), stall: Some(stall), limit: Some(stall), trace: None };
    let of = |module, names: &[&'static str]| names.iter().map(|&name| (module, name)).collect::<Vec<_>>();
    let quick = of(&quick, &["computes", "computes_floats", "computes_one", "computes_rounds"]);
    for (module, name) in [quick, of(&plain, &["computes_one", "computes_rounds"])].concat() {
        let kernel = module.kernel(name).expect("defined");
        let mut words = [0i32; 2];
        let pointer = words.as_mut_ptr();
        let stop = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_secs(3));
                stop.store(1, Ordering::Relaxed);
            });
            let start = Instant::now();
            // SAFETY: two words.
            let ended = unsafe {
                kernel.run_reporting(&shape(1, 3), &[arg(&pointer)], std::ptr::null(), &stop, &reports)
            };
            assert_eq!(ended, Err(RunError::Stopped), "{name}");
            let took = start.elapsed();
            assert!(took > Duration::from_secs(2) && took < Duration::from_secs(20), "{took:?}");
        });
        assert_eq!(warnings(), Vec::<String>::new(), "{name}");
    }
}
