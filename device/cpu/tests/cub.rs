//! CUB's primitives of blocks and warps on the CPU, beside serial models.

use rushmem_device_cpu::{LaunchConfig, Module};
use rushmem_device_cpu_test_support::{arg, run, shape, Bench, Random};

const SOURCE: &str = r#"
#include <cub/cub.cuh>
constexpr int T = 70, N = 3, ALL = T * N;
/* x -> x * a + b, one after the other: associative, and not commutative. */
struct affine { unsigned a, b; };
struct then {
  __device__ affine operator()(const affine &x, const affine &y) const { return {x.a * y.a, x.b * y.a + y.b}; }
};
/* Continues where the tile before ended. */
struct running {
  affine total;
  __device__ affine operator()(affine tile) {
    affine before = total;
    total = then()(total, tile);
    return before;
  }
};
__global__ void scans(const affine *in, affine *out, int valid) {
  using Load = cub::BlockLoad<affine, T, N, cub::BLOCK_LOAD_TRANSPOSE>;
  using Store = cub::BlockStore<affine, T, N, cub::BLOCK_STORE_TRANSPOSE>;
  using Scan = cub::BlockScan<affine, 35, cub::BLOCK_SCAN_WARP_SCANS, 2>;
  using Reduce = cub::BlockReduce<affine, T>;
  __shared__ union {
    typename Load::TempStorage load;
    typename Store::TempStorage store;
    typename Scan::TempStorage scan;
    typename Reduce::TempStorage reduce;
  } temp;
  affine items[N], results[N], sum;
  Load(temp.load).Load(in, items, valid, affine{1, 0});
  __syncthreads();
  auto keep = [&](int slot) {
    Store(temp.store).Store(out + slot * ALL, results);
    __syncthreads();
  };
  Scan(temp.scan).InclusiveScan(items, results, then(), sum);
  __syncthreads();
  keep(0);
  Scan(temp.scan).ExclusiveScan(items, results, affine{3, 5}, then());
  __syncthreads();
  keep(1);
  running prefix{{7, 11}};
  for (int tile = 0; tile < 2; ++tile) {
    Scan(temp.scan).ExclusiveScan(items, results, then(), prefix);
    __syncthreads();
  }
  keep(2);
  Scan(temp.scan).ExclusiveScan(items[0], results[0], affine{1, 0}, then());
  __syncthreads();
  Scan(temp.scan).InclusiveScan(items[0], results[1], then());
  __syncthreads();
  results[2] = sum;
  keep(3);
  affine all = Reduce(temp.reduce).Reduce(items, then());
  __syncthreads();
  affine some = Reduce(temp.reduce).Reduce(items[0], then(), valid / N + 1 < T ? valid / N + 1 : T);
  if (threadIdx.x + threadIdx.y == 0) {
    out[4 * ALL] = all;
    out[4 * ALL + 1] = some;
  }
}
__global__ void exchanges(const unsigned *in, unsigned *out) {
  using Exchange = cub::BlockExchange<unsigned, T, N>;
  __shared__ typename Exchange::TempStorage temp;
  const unsigned i = threadIdx.x;
  unsigned v[N], ranks[N];
  auto keep = [&](int slot) {
    for (int k = 0; k < N; ++k) out[slot * ALL + i * N + k] = v[k];
    __syncthreads();
    for (int k = 0; k < N; ++k) v[k] = in[i * N + k];
  };
  for (int k = 0; k < N; ++k) v[k] = in[i * N + k];
  for (int k = 0; k < N; ++k) ranks[k] = in[ALL + i * N + k];
  Exchange(temp).BlockedToStriped(v);
  keep(0);
  Exchange(temp).StripedToBlocked(v);
  keep(1);
  Exchange(temp).ScatterToBlocked(v, ranks);
  keep(2);
  Exchange(temp).ScatterToStriped(v, ranks);
  keep(3);
  Exchange(temp).BlockedToWarpStriped(v);
  __syncthreads();
  Exchange(temp).WarpStripedToBlocked(v, v);
  keep(4);
  cub::BlockLoad<unsigned, T, N, cub::BLOCK_LOAD_STRIPED>().Load(in, v);
  keep(5);
}
template <class K> __device__ void sorts(const K *keys, unsigned *out, int begin, int end) {
  using Sort = cub::BlockRadixSort<K, T, N, unsigned>;
  __shared__ typename Sort::TempStorage temp;
  for (int way = 0; way < 3; ++way) {
    K own[N];
    unsigned from[N];
    for (int k = 0; k < N; ++k) own[k] = keys[threadIdx.x * N + k], from[k] = threadIdx.x * N + k;
    if (way == 0) Sort(temp).Sort(own, from, begin, end);
    else if (way == 1) Sort(temp).SortDescending(own, from);
    else Sort(temp).SortBlockedToStriped(own, from);
    __syncthreads();
    for (int k = 0; k < N; ++k) out[way * ALL + threadIdx.x * N + k] = from[k];
  }
  K alone[N];
  for (int k = 0; k < N; ++k) alone[k] = keys[threadIdx.x * N + k];
  cub::BlockRadixSort<K, T, N>().Sort(alone);
  __syncthreads();
  for (int k = 0; k < N; ++k) {
    const int j = threadIdx.x * N + k;
    out[3 * ALL + j] = alone[k] == keys[out[2 * ALL + j % T * N + j / T]];
  }
}
__global__ void sort_i32(const int *keys, unsigned *out, int begin, int end) { sorts(keys, out, begin, end); }
__global__ void sort_u8(const unsigned char *keys, unsigned *out, int begin, int end) { sorts(keys, out, begin, end); }
__global__ void sort_u64(const unsigned long long *keys, unsigned *out, int begin, int end) {
  sorts(keys, out, begin, end);
}
__global__ void sort_f32(const float *keys, unsigned *out, int begin, int end) { sorts(keys, out, begin, end); }

/* Logical warps of W lanes. */
template <int W> __device__ void warps(const affine *in, affine *out, int valid) {
  using Reduce = cub::WarpReduce<affine, W>;
  using Scan = cub::WarpScan<affine, W>;
  __shared__ typename Reduce::TempStorage reduce[96 / W];
  __shared__ typename Scan::TempStorage scan[96 / W];
  const unsigned i = threadIdx.x, w = i / W;
  const affine v = in[i];
  affine *to = out + 8 * i;
  to[0] = Reduce(reduce[w]).Reduce(v, then());
  to[1] = Reduce(reduce[w]).Reduce(v, then(), valid);
  to[2] = Reduce(reduce[w]).HeadSegmentedReduce(v, v.b % 4 == 0, then());
  to[3] = Reduce(reduce[w]).TailSegmentedReduce(v, v.b % 4 == 0, then());
  Scan(scan[w]).InclusiveScan(v, to[4], then(), to[5]);
  Scan(scan[w]).ExclusiveScan(v, to[6], affine{3, 5}, then());
  to[7] = Scan(scan[w]).Broadcast(v, W / 2);
}
__global__ void warps_of_32(const affine *in, affine *out, int valid) { warps<32>(in, out, valid); }
__global__ void warps_of_8(const affine *in, affine *out, int valid) { warps<8>(in, out, valid); }
__global__ void warps_of_1(const affine *in, affine *out, int valid) { warps<1>(in, out, valid); }
"#;

const THREADS: usize = 70;
const ITEMS: usize = 3;
const ALL: usize = THREADS * ITEMS;

type Affine = [u32; 2];

fn then(x: Affine, y: Affine) -> Affine {
    [x[0].wrapping_mul(y[0]), x[1].wrapping_mul(y[0]).wrapping_add(y[1])]
}

fn all_of(of: &[Affine]) -> Affine {
    of.iter().fold([1, 0], |x, y| then(x, *y))
}

/// What is before each, from `start`, and what is after it.
fn prefixes(start: Affine, of: &[Affine]) -> (Vec<Affine>, Vec<Affine>) {
    let before: Vec<Affine> = (0..of.len()).map(|i| then(start, all_of(&of[..i]))).collect();
    let after = before.iter().zip(of).map(|(x, y)| then(*x, *y)).collect();
    (before, after)
}

fn affines(random: &mut Random, n: usize) -> Vec<Affine> {
    random.list(n, |x| [x as u32 | 1, (x >> 32) as u32])
}

#[test]
fn blocks_load_scan_reduce_and_store() {
    let (bench, mut random) = (Bench::new(), Random::new());
    let kernel = bench.module(SOURCE).kernel("scans").expect("defined");
    for valid in [0, 1, ALL, random.below(ALL as u64) as usize] {
        let mut input = affines(&mut random, ALL);
        let mut out = vec![Affine::default(); 4 * ALL + 2];
        let (from, to, count) = (input.as_ptr(), out.as_mut_ptr(), valid as i32);
        let block =
            LaunchConfig { grid: [1; 3], block: [35, 2, 1], shared: 0, in_turns: false, early: false };
        run(&kernel, &block, &[arg(&from), arg(&to), arg(&count)]).expect("runs");
        input[valid..].fill([1, 0]);
        assert_eq!(out[..ALL], prefixes([1, 0], &input).1, "inclusive, {valid} valid");
        assert_eq!(out[ALL..2 * ALL], prefixes([3, 5], &input).0, "exclusive, {valid} valid");
        let second = then([7, 11], all_of(&input));
        assert_eq!(out[2 * ALL..3 * ALL], prefixes(second, &input).0, "the second tile, {valid} valid");
        let firsts: Vec<Affine> = input.iter().copied().step_by(ITEMS).collect();
        let (before, after) = prefixes([1, 0], &firsts);
        for (i, three) in out[3 * ALL..4 * ALL].chunks(ITEMS).enumerate() {
            assert_eq!(three, [before[i], after[i], all_of(&input)], "thread {i}, {valid} valid");
        }
        assert_eq!(out[4 * ALL], all_of(&input), "{valid} valid");
        let some = (valid / ITEMS + 1).min(THREADS);
        assert_eq!(out[4 * ALL + 1], all_of(&firsts[..some]), "{valid} valid");
    }
}

#[test]
fn blocks_exchange_items() {
    let (bench, mut random) = (Bench::new(), Random::new());
    let mut input = random.list(ALL, |x| x as u32);
    let mut ranks: Vec<u32> = (0..ALL as u32).collect();
    for i in (1..ALL).rev() {
        ranks.swap(i, random.below(i as u64 + 1) as usize);
    }
    input.extend(&ranks);
    let mut out = vec![0u32; 6 * ALL];
    let (from, to) = (input.as_ptr(), out.as_mut_ptr());
    let kernel = bench.module(SOURCE).kernel("exchanges").expect("defined");
    run(&kernel, &shape(1, THREADS as u32), &[arg(&from), arg(&to)]).expect("runs");
    let values = &input[..ALL];
    // Item k of thread i is in `slot` at i * ITEMS + k.
    let at = |i: usize| (i / ITEMS, i % ITEMS);
    let mut scattered = [0; ALL];
    for (value, rank) in values.iter().zip(&ranks) {
        scattered[*rank as usize] = *value;
    }
    for i in 0..ALL {
        let (thread, k) = at(i);
        let striped = thread + k * THREADS;
        let back = (i % THREADS) * ITEMS + i / THREADS;
        let want =
            [values[striped], values[back], scattered[i], scattered[striped], values[i], values[striped]];
        let got = [0, 1, 2, 3, 4, 5].map(|slot| out[slot * ALL + i]);
        assert_eq!(got, want, "item {k} of thread {thread}");
    }
}

fn sorts<K: Copy>(
    module: &Module,
    name: &str,
    keys: &[K],
    bits: i32,
    digits: impl Fn(K) -> u64,
    random: &mut Random,
) {
    let begin = random.below(bits as u64) as i32;
    let end = begin + 1 + random.below((bits - begin) as u64) as i32;
    let mut out = vec![0u32; 4 * ALL];
    let (from, to) = (keys.as_ptr(), out.as_mut_ptr());
    let kernel = module.kernel(name).expect("defined");
    run(&kernel, &shape(1, THREADS as u32), &[arg(&from), arg(&to), arg(&begin), arg(&end)]).expect("runs");
    let mut order: Vec<u32> = (0..ALL as u32).collect();
    let part = |i: &u32| digits(keys[*i as usize]) >> begin & (u64::MAX >> (64 - (end - begin)));
    order.sort_by_key(part);
    assert_eq!(out[..ALL], order, "{name} by bits {begin} to {end}");
    order.sort_unstable();
    let whole = |i: &u32| digits(keys[*i as usize]);
    order.sort_by_key(|i| std::cmp::Reverse(whole(i)));
    assert_eq!(out[ALL..2 * ALL], order, "{name} descending");
    order.sort_unstable();
    order.sort_by_key(whole);
    let striped: Vec<u32> = (0..ALL).map(|i| order[i / ITEMS + i % ITEMS * THREADS]).collect();
    assert_eq!(out[2 * ALL..3 * ALL], striped, "{name} striped");
    assert!(out[3 * ALL..].iter().all(|same| *same == 1), "{name} without values");
}

#[test]
fn blocks_sort() {
    let (bench, mut random) = (Bench::new(), Random::new());
    let module = bench.module(SOURCE);
    for _ in 0..3 {
        let ints = random.list(ALL, |x| x as i32 >> ((x >> 40) % 30));
        sorts(&module, "sort_i32", &ints, 32, |x| u64::from(x as u32 ^ 1 << 31), &mut random);
        let bytes = random.list(ALL, |x| x as u8);
        sorts(&module, "sort_u8", &bytes, 8, u64::from, &mut random);
        let longs = random.list(ALL, |x| x >> (x % 60));
        sorts(&module, "sort_u64", &longs, 64, |x| x, &mut random);
        // Without NaN, with both zeros, which are equal.
        let floats = random.list(ALL, |x| if x % 8 == 0 { -0.0 } else { f32::from((x >> 8) as i8) * 0.5 });
        let ordered = |x: f32| {
            let bits = if x == 0.0 { 0 } else { x.to_bits() };
            u64::from(if bits >> 31 == 1 { !bits } else { bits | 1 << 31 })
        };
        sorts(&module, "sort_f32", &floats, 32, ordered, &mut random);
    }
}

#[test]
fn warps_reduce_and_scan() {
    let (bench, mut random) = (Bench::new(), Random::new());
    let module = bench.module(SOURCE);
    for (name, width) in [("warps_of_32", 32), ("warps_of_8", 8), ("warps_of_1", 1)] {
        let input = affines(&mut random, 96);
        let valid = 1 + random.below(width as u64) as usize;
        let mut out = vec![[Affine::default(); 8]; 96];
        let (from, to, count) = (input.as_ptr(), out.as_mut_ptr(), valid as i32);
        run(&module.kernel(name).expect("defined"), &shape(1, 96), &[arg(&from), arg(&to), arg(&count)])
            .expect("runs");
        for (own, got) in input.chunks(width).zip(out.chunks(width)) {
            assert_eq!(got[0][0], all_of(own), "{name}");
            assert_eq!(got[0][1], all_of(&own[..valid]), "{name}, {valid} valid");
            let flags: Vec<bool> = own.iter().map(|x| x[1] % 4 == 0).collect();
            for i in 0..width {
                if i == 0 || flags[i] {
                    let end = (i + 1..width).find(|j| flags[*j]).unwrap_or(width);
                    assert_eq!(got[i][2], all_of(&own[i..end]), "{name}, head {i}");
                }
                if i == 0 || flags[i - 1] {
                    let end = (i..width).find(|j| flags[*j]).map_or(width, |j| j + 1);
                    assert_eq!(got[i][3], all_of(&own[i..end]), "{name}, tail after {i}");
                }
                assert_eq!(got[i][4], all_of(&own[..=i]), "{name}, lane {i}");
                assert_eq!(got[i][5], all_of(own), "{name}, lane {i}");
                assert_eq!(got[i][6], then([3, 5], all_of(&own[..i])), "{name}, lane {i}");
                assert_eq!(got[i][7], own[width / 2], "{name}, lane {i}");
            }
        }
    }
}
