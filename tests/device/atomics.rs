//! Atomics inside kernels: all PEs at once on the same words. What is left behind in the words is checked
//! here.

use rushmem::half::{bf16, f16};
use rushmem::Symmetric;

use crate::api_common::at_all_counts;
use crate::*;

const ATOMICS: &str = kernels!("atomics.cu");
const FLOAT16: &str = kernels!("float16.cu");

/// Each thread's calls of a form. Over a network a call takes some 40 us, and contention comes from threads
/// and PEs.
fn calls() -> i32 {
    if is_brief() {
        2
    } else {
        6
    }
}

/// Fills `words` with guards, but for zeros at `zeros`, and gives the check that the guards are still there.
fn guarded<T: Symmetric + PartialEq + std::fmt::Debug>(
    words: &SymSlice<'_, T>,
    zero: T,
    guard: T,
    zeros: &[usize],
) {
    let before: Vec<T> = (0..words.len()).map(|i| if zeros.contains(&i) { zero } else { guard }).collect();
    words.write(&before).unwrap();
}

fn check_guards<T: Symmetric + PartialEq + std::fmt::Debug>(
    words: &SymSlice<'_, T>,
    guard: T,
    zeros: &[usize],
) {
    for (i, word) in words.to_vec().unwrap().into_iter().enumerate() {
        assert!(zeros.contains(&i) || word == guard, "word {i} was touched: {word:?}");
    }
}

/// Counting, bits and swaps for one type, `name` as in atomics.cu.
fn all_forms<T: Symmetric + PartialEq + std::fmt::Debug>(
    name: &'static str,
    zero: T,
    guard: T,
    bits: fn(T) -> u64,
) {
    at_all_counts(|world, _| {
        let bench = Bench::new(world, ATOMICS);
        for (blocks, threads) in [(1, 1), (2, 33), (1, 64)] {
            let launch = Launch::new(blocks, threads);
            let all = (world.n_pes() * blocks * threads) as usize;

            let marks = world.alloc::<u8>(all * calls() as usize).unwrap();
            let words = world.alloc::<T>(12).unwrap();
            let zeros = [1, 4, 7, 10];
            guarded(&words, zero, guard, &zeros);
            bench.run(&format!("atomics_count_{name}"), launch, (&words, &marks, calls()));
            bench.run(
                &format!("atomics_count_check_{name}"),
                launch,
                (&bench.report, &words, &marks, calls()),
            );
            check_guards(&words, guard, &zeros);

            let flags = world.alloc::<T>(all.div_ceil(8 * size_of::<T>()) + 1).unwrap();
            bench.run(&format!("atomics_bits_{name}"), launch, (&bench.report, &flags, calls()));
            let width = u64::MAX >> (64 - 8 * size_of::<T>());
            let set: u32 =
                flags.to_vec().unwrap().into_iter().map(|word| (bits(word) & width).count_ones()).sum();
            assert_eq!(set as usize, all, "each thread's own bit");

            let (words, sums) = (world.alloc::<T>(6).unwrap(), world.alloc::<u64>(1).unwrap());
            let zeros = [1, 4];
            guarded(&words, zero, guard, &zeros);
            bench.run(&format!("atomics_swap_{name}"), launch, (&bench.report, &words, &sums, calls()));
            check_guards(&words, guard, &zeros);
            // What went in and did not come out is what is there; sign extension as in the kernel's casts.
            assert_eq!(bits(words.to_vec().unwrap()[1]), sums.to_vec().unwrap()[0]);

            for memory in [sums.free(), marks.free(), flags.free(), words.free()] {
                memory.unwrap();
            }
        }
    });
}

#[test]
fn atomics_on_i32() {
    all_forms::<i32>("i32", 0, -0x5a5a_5a5b, |word| i64::from(word) as u64);
}

#[test]
fn atomics_on_u32() {
    all_forms::<u32>("u32", 0, 0xa5a5_a5a5, u64::from);
}

#[test]
fn atomics_on_i64() {
    all_forms::<i64>("i64", 0, -0x5a5a_5a5a_5a5a_5a5b, |word| word as u64);
}

#[test]
fn atomics_on_u64() {
    all_forms::<u64>("u64", 0, 0xa5a5_a5a5_a5a5_a5a5, |word| word);
}

#[test]
fn atomics_on_size_t() {
    all_forms::<usize>("size", 0, 0xa5a5_a5a5_a5a5_a5a5, |word| word as u64);
}

#[test]
fn atomics_on_floats() {
    at_all_counts(|world, _| {
        let bench = Bench::new(world, ATOMICS);
        for (blocks, threads) in [(1, 1), (2, 33)] {
            let (singles, doubles) = (world.alloc::<f32>(3).unwrap(), world.alloc::<f64>(3).unwrap());
            let launch = Launch::new(blocks, threads);
            bench.run("atomics_floats", launch, (&bench.report, &singles, &doubles, calls()));
            let total = world.n_pes() * blocks * threads * calls() as u32;
            assert_eq!(singles.to_vec().unwrap()[0], total as f32);
            assert_eq!(doubles.to_vec().unwrap()[0], f64::from(total));
        }
    });
}

/// What lies beside a sum stays, and each addition sees another value before it: 16-bit floats count to 256
/// exactly.
fn sums_of<T: Symmetric + Copy>(kernel: &str, of: fn(f32) -> T, value: fn(T) -> f32) {
    at_all_counts(|world, _| {
        let bench = Bench::new(world, FLOAT16);
        let n = world.n_pes();
        let threads = 64 / n;
        let (words, seen) = (world.alloc::<T>(4).unwrap(), world.alloc::<T>((n * threads) as usize).unwrap());
        words.write(&[of(7.0), of(0.0), of(0.0), of(9.0)]).unwrap();
        world.barrier_all().unwrap();
        bench.run(kernel, Launch::new(1, threads), (&words, &seen));
        let total = (n * threads) as f32;
        let sums: Vec<f32> = words.to_vec().unwrap().into_iter().map(value).collect();
        assert_eq!(sums, [7.0, total, 2.0 * total, 9.0]);
        // What all PEs saw of this one's.
        let (mine, mut before) = (threads as usize * world.my_pe().number() as usize, Vec::new());
        for pe in world.pes() {
            let mut of_pe = vec![of(0.0); threads as usize];
            seen.slice(mine..mine + threads as usize).unwrap().get(&mut of_pe, pe).unwrap();
            before.extend(of_pe.into_iter().map(value));
        }
        before.sort_by(f32::total_cmp);
        let want: Vec<f32> = (0..n * threads).map(|i| i as f32).collect();
        assert_eq!(before, want);
        world.barrier_all().unwrap();
    });
}

#[test]
fn atomics_on_halves() {
    sums_of::<f16>("add_halves", f16::from_f32, f16::to_f32);
}

#[test]
fn atomics_on_bfloats() {
    sums_of::<bf16>("add_bfloats", bf16::from_f32, bf16::to_f32);
}
