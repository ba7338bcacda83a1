//! What kernels compute: indices, shared memory, barriers, atomics, grids that wait for themselves, early
//! returns.

use rushmem_device_cpu::LaunchConfig;
use rushmem_device_cpu_test_support::{arg, failure, run, shape, Bench, Random};

#[test]
fn indices_in_three_dimensions() {
    let bench = Bench::new();
    let module = bench.module(
        r#"
        __global__ void indices(unsigned *out) {
          unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
          unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
          unsigned *mine = out + 8 * (block * blockDim.x * blockDim.y * blockDim.z + thread);
          mine[0] = blockIdx.x; mine[1] = blockIdx.y; mine[2] = blockIdx.z;
          mine[3] = threadIdx.x; mine[4] = threadIdx.y; mine[5] = threadIdx.z;
          mine[6] = warpSize; mine[7] += 1;
        }"#,
    );
    let kernel = module.kernel("indices").expect("defined");
    for (grid, block) in
        [([1, 1, 1], [1, 1, 1]), ([2, 3, 2], [3, 2, 5]), ([1, 5, 1], [1, 1, 64]), ([3, 1, 1], [33, 1, 1])]
    {
        let volume = |d: [u32; 3]| d.iter().product::<u32>() as usize;
        let mut out = vec![0u32; 8 * volume(grid) * volume(block)];
        let pointer = out.as_mut_ptr();
        run(
            &kernel,
            &LaunchConfig { grid, block, shared: 0, in_turns: false, early: false },
            &[arg(&pointer)],
        )
        .expect("runs");
        let mut at = 0;
        for b in 0..volume(grid) as u32 {
            for t in 0..volume(block) as u32 {
                let split = |i: u32, d: [u32; 3]| [i % d[0], i / d[0] % d[1], i / d[0] / d[1]];
                let (b, t) = (split(b, grid), split(t, block));
                assert_eq!(out[at..at + 8], [b[0], b[1], b[2], t[0], t[1], t[2], 32, 1]);
                at += 8;
            }
        }
    }
}

#[test]
fn tree_reduction_in_static_and_dynamic_shared_memory() {
    let bench = Bench::new();
    let module = bench.module(
        r#"
        __global__ void fixed(const double *in, double *out) {
          __shared__ double tile[256];
          tile[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
          __syncthreads();
          for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
            if (threadIdx.x < half) tile[threadIdx.x] += tile[threadIdx.x + half];
            __syncthreads();
          }
          if (threadIdx.x == 0) out[blockIdx.x] = tile[0];
        }
        template <class T> __device__ void sum(const T *in, T *out, T *tile) {
          tile[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
          __syncthreads();
          for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
            if (threadIdx.x < half) tile[threadIdx.x] += tile[threadIdx.x + half];
            __syncthreads();
          }
          if (threadIdx.x == 0) out[blockIdx.x] = tile[0];
        }
        __global__ void by_macro(const double *in, double *out) { RUSHMEM_DYNAMIC_SHARED(double, t); sum(in, out, t); }
        __global__ void as_cuda(const double *in, double *out) {
          extern __shared__ __align__(16) double t[];
          sum(in, out, t);
        }"#,
    );
    let mut random = Random::new();
    for name in ["fixed", "by_macro", "as_cuda"] {
        let kernel = module.kernel(name).expect("defined");
        // Twice: the second launch finds the first one's shared memory.
        for (grid, block) in [(1, 1), (3, 2), (4, 256), (4, 256)] {
            // Whole numbers: any order of additions is exact.
            let input = random.list((grid * block) as usize, |bits| (bits >> 40) as f64 - 8e6);
            let mut out = vec![f64::NAN; grid as usize];
            let (from, to) = (input.as_ptr(), out.as_mut_ptr());
            let config = LaunchConfig { shared: 8 * block as usize, ..shape(grid, block) };
            run(&kernel, &config, &[arg(&from), arg(&to)]).expect("runs");
            let expected: Vec<f64> = input.chunks(block as usize).map(|chunk| chunk.iter().sum()).collect();
            assert_eq!(out, expected, "{name} {grid} x {block}");
        }
    }
}

#[test]
fn dynamic_shared_memory_is_aligned_and_as_large_as_asked() {
    let bench = Bench::new();
    let module = bench.module(
        r#"
        __global__ void fill(unsigned bytes, unsigned long long *sum) {
          RUSHMEM_DYNAMIC_SHARED(unsigned char, memory);
          if ((unsigned long long)memory % 128) __trap();
          for (unsigned i = threadIdx.x; i < bytes; i += blockDim.x) memory[i] = (unsigned char)(i + blockIdx.x);
          __syncthreads();
          unsigned long long mine = 0;
          for (unsigned i = threadIdx.x; i < bytes; i += blockDim.x) mine += memory[bytes - 1 - i];
          atomicAdd(sum, mine);
        }"#,
    );
    let kernel = module.kernel("fill").expect("defined");
    for bytes in [0u32, 1, 127, 128, 129, 48 << 10, 227 << 10] {
        let mut sum = 0u64;
        let pointer = &raw mut sum;
        let config = LaunchConfig { shared: bytes as usize, ..shape(3, 64) };
        run(&kernel, &config, &[arg(&bytes), arg(&pointer)]).expect("runs");
        let expected: u64 =
            (0..3).flat_map(|block| (0..bytes).map(move |i| u64::from((i + block) as u8))).sum();
        assert_eq!(sum, expected, "{bytes} bytes");
    }
}

#[test]
fn threads_that_return_early_are_not_waited_for() {
    let bench = Bench::new();
    let module = bench.module(
        r#"
        __global__ void leave(unsigned stay, unsigned *out) {
          if (threadIdx.x >= stay && threadIdx.x % 2 == 0) return;
          __syncthreads();
          if (threadIdx.x >= stay) return;
          unsigned here = __syncthreads_count(1), odd = __syncthreads_count(threadIdx.x % 2);
          unsigned all = __syncthreads_and(threadIdx.x < stay), not_all = __syncthreads_and(threadIdx.x != 0);
          unsigned any = __syncthreads_or(threadIdx.x == stay - 1), none = __syncthreads_or(0);
          unsigned *mine = out + 6 * threadIdx.x;
          mine[0] = here; mine[1] = odd; mine[2] = all; mine[3] = not_all; mine[4] = any; mine[5] = none;
        }"#,
    );
    let kernel = module.kernel("leave").expect("defined");
    let mut random = Random::new();
    for _ in 0..20 {
        let threads = 1 + random.below(1024) as u32;
        let stay = 1 + random.below(u64::from(threads)) as u32;
        let mut out = vec![u32::MAX; 6 * stay as usize];
        let pointer = out.as_mut_ptr();
        run(&kernel, &shape(1, threads), &[arg(&stay), arg(&pointer)]).expect("runs");
        for mine in out.chunks(6) {
            assert_eq!(mine, [stay, stay / 2, 1, 0, 1, 0], "{stay} of {threads}");
        }
    }
}

#[test]
fn atomics_from_all_threads_of_all_blocks() {
    let bench = Bench::new();
    let module = bench.module(
        r#"
        struct Sums {
          int add, sub, low, high; unsigned inc, dec, ored, xored, anded, wide_low; unsigned long long wide, wide_high;
          long long signed_low; float f; double d; unsigned cas; unsigned exchanged;
        };
        __global__ void atomics(const int *in, Sums *s) {
          unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
          int v = in[i];
          atomicAdd(&s->add, v); atomicSub(&s->sub, v); atomicMin(&s->low, v); atomicMax(&s->high, v);
          atomicInc(&s->inc, 6u); atomicDec(&s->dec, 6u);
          atomicOr(&s->ored, 1u << (i % 29)); atomicXor(&s->xored, (unsigned)v); atomicAnd(&s->anded, ~(1u << (i % 7)));
          atomicMin_block(&s->wide_low, (unsigned)v); atomicMax_system(&s->wide_high, (unsigned long long)(unsigned)v << 20);
          atomicAdd_system(&s->wide, (unsigned long long)(long long)v); atomicMin(&s->signed_low, (long long)v * 3);
          atomicAdd(&s->f, 1.0f); atomicAdd(&s->d, (double)v);
          unsigned seen = s->cas, old;
          do { old = seen; seen = atomicCAS(&s->cas, old, old * 5u + 1u); } while (seen != old);
          atomicExch(&s->exchanged, i);
        }"#,
    );
    #[repr(C)]
    #[derive(Default, Debug, PartialEq)]
    struct Sums {
        add: i32,
        sub: i32,
        low: i32,
        high: i32,
        inc: u32,
        dec: u32,
        ored: u32,
        xored: u32,
        anded: u32,
        wide_low: u32,
        wide: u64,
        wide_high: u64,
        signed_low: i64,
        f: f32,
        d: f64,
        cas: u32,
        exchanged: u32,
    }
    let kernel = module.kernel("atomics").expect("defined");
    let mut random = Random::new();
    let (grid, block) = (8, 96);
    let input = random.list((grid * block) as usize, |bits| bits as i32);
    let mut sums =
        Sums { low: i32::MAX, high: i32::MIN, anded: u32::MAX, wide_low: u32::MAX, ..Sums::default() };
    let (from, to) = (input.as_ptr(), &raw mut sums);
    run(&kernel, &shape(grid, block), &[arg(&from), arg(&to)]).expect("runs");
    let count = input.len() as u32;
    assert!(sums.exchanged < count);
    let total: i32 = input.iter().fold(0, |sum, &v| sum.wrapping_add(v));
    let expected = Sums {
        add: total,
        sub: total.wrapping_neg(),
        low: *input.iter().min().expect("some"),
        high: *input.iter().max().expect("some"),
        inc: count % 7,
        dec: (7 - count % 7) % 7,
        ored: (1 << 29) - 1,
        xored: input.iter().fold(0, |all, &v| all ^ v as u32),
        anded: !0x7f,
        wide_low: input.iter().map(|&v| v as u32).min().expect("some"),
        wide: input.iter().fold(0, |sum, &v| sum.wrapping_add(i64::from(v) as u64)),
        wide_high: u64::from(input.iter().map(|&v| v as u32).max().expect("some")) << 20,
        signed_low: i64::from(*input.iter().min().expect("some")) * 3,
        f: count as f32,
        d: input.iter().map(|&v| f64::from(v)).sum(),
        cas: (0..count).fold(0, |x, _| x.wrapping_mul(5).wrapping_add(1)),
        exchanged: sums.exchanged,
    };
    assert_eq!(sums, expected);
}

#[test]
fn a_grid_waits_for_itself() {
    let bench = Bench::new();
    // Atomics, fences and clocks each make a spin loop that lets others run.
    let module = bench.module(
        r#"
        __device__ unsigned arrived;
        __global__ void barrier(unsigned rounds, unsigned way, unsigned *out) {
          volatile unsigned *count = &arrived;
          for (unsigned round = 1; round <= rounds; ++round) {
            atomicAdd(&arrived, 1u);
            unsigned wanted = round * gridDim.x * blockDim.x;
            if (way == 0) while (atomicAdd(&arrived, 0u) < wanted) {}
            if (way == 1) while (*count < wanted) __threadfence();
            if (way == 2) while (*count < wanted) __nanosleep(100);
            if (way == 3) while (*count < wanted) (void)clock64();
            if (*count < wanted) __trap();
          }
          out[blockIdx.x * blockDim.x + threadIdx.x] = rounds;
        }
        __global__ void reset() { arrived = 0; }"#,
    );
    let (barrier, reset) =
        (module.kernel("barrier").expect("defined"), module.kernel("reset").expect("defined"));
    for way in 0u32..4 {
        let (grid, block, rounds) = (6, 40, 10u32);
        let mut out = vec![0u32; (grid * block) as usize];
        let pointer = out.as_mut_ptr();
        run(&reset, &shape(1, 1), &[]).expect("runs");
        run(&barrier, &shape(grid, block), &[arg(&rounds), arg(&way), arg(&pointer)]).expect("runs");
        assert!(out.iter().all(|&done| done == rounds), "way {way}");
    }
}

#[test]
fn intrinsics_and_vectors() {
    let bench = Bench::new();
    let module = bench.module(
        r#"
        #include <cuda_runtime.h>
        #include <cassert>
        #include <memory>
        __constant__ int table[3] = {5, 6, 7};
        struct __align__(16) Wide { float4 a; ulonglong2 b; };
        __global__ void __launch_bounds__(32) intrinsics(const unsigned long long *in, long long *out, Wide w, char3 c) {
          unsigned long long v = in[0]; unsigned u = (unsigned)v; int i = (int)u;
          out[0] = __popc(u); out[1] = __popcll(v); out[2] = __clz(i); out[3] = __clzll((long long)v);
          out[4] = __ffs(i); out[5] = __ffsll((long long)v); out[6] = __brev(u); out[7] = (long long)__brevll(v);
          out[8] = __mulhi(i, 123456789); out[9] = __umulhi(u, 3123456789u); out[10] = __byte_perm(u, (unsigned)(v >> 32), 0x7120);
          out[11] = (long long)__umul64hi(v, v); out[12] = __float_as_int(__int_as_float(i)); out[13] = __double_as_longlong(1.5);
          out[14] = min(i, 7) + max(-3, i); out[15] = (long long)(max(2.5f, 1.0f) * min(4.0, 8.0f)); out[16] = __funnelshift_l(u, (unsigned)(v >> 32), 5);
          out[17] = (long long)(w.a.z + (float)w.b.y) + c.y; out[18] = table[1]; out[19] = __ldg(in) == v;
          out[20] = __float2int_rn(2.5f) + __float2int_rz(-2.7f) * 10 + __double2int_rd(-0.5) * 100 + __float2int_rz(1e20f) % 7;
          float4 f = make_float4(1, 2, 3, 4); int2 p = make_int2(-1, 1); dim3 d(2, 3); uint3 t = d;
          out[21] = (long long)(f.w + p.x) + t.z + d.y; out[22] = sizeof(double2) + alignof(float4) + sizeof(char3);
          assert(v == in[0]);
        }"#,
    );
    #[repr(C, align(16))]
    struct Wide {
        a: [f32; 4],
        b: [u64; 2],
    }
    let mut random = Random::new();
    for v in [0, u64::MAX, 1 << 63, 1, random.next(), random.next(), random.next()] {
        let mut out = [0i64; 23];
        let (from, to) = (&raw const v, out.as_mut_ptr());
        let wide = Wide { a: [0.0, 0.0, 3.0, 0.0], b: [0, 4] };
        run(
            &module.kernel("intrinsics").expect("defined"),
            &shape(1, 1),
            &[arg(&from), arg(&to), arg(&wide), arg(&[1i8, -2, 3])],
        )
        .expect("runs");
        let (u, i) = (v as u32, v as i32);
        let ffs = |zeros: u32, width: u32| i64::from((zeros + 1) % (width + 1));
        let both = v;
        let bytes = both.to_le_bytes();
        let expected = [
            i64::from(u.count_ones()),
            i64::from(v.count_ones()),
            i64::from(u.leading_zeros()),
            i64::from(v.leading_zeros()),
            ffs(u.trailing_zeros(), 32),
            ffs(v.trailing_zeros(), 64),
            i64::from(u.reverse_bits()),
            v.reverse_bits() as i64,
            (i64::from(i) * 123_456_789) >> 32,
            ((u64::from(u) * 3_123_456_789) >> 32) as i64,
            i64::from(u32::from_le_bytes([bytes[0], bytes[2], bytes[1], bytes[7]])),
            ((u128::from(v) * u128::from(v)) >> 64) as i64,
            i64::from(i),
            1.5f64.to_bits() as i64,
            i64::from(i.min(7).wrapping_add(i.max(-3))),
            10,
            i64::from((v << 5 >> 32) as u32),
            3 + 4 - 2,
            6,
            1,
            i64::from(2 - 20 - 100 + i32::MAX % 7),
            3 + 1 + 3,
            16 + 16 + 3,
        ];
        // A pattern that is a signalling NaN may come back quiet.
        let quiet = f32::from_bits(u).is_nan();
        for (n, (got, want)) in out.iter().zip(expected).enumerate().filter(|(n, _)| *n != 12 || !quiet) {
            assert_eq!(*got, want, "out[{n}] of {v:#x}");
        }
    }
}

#[test]
fn a_module_loaded_twice_has_its_own_variables() {
    let bench = Bench::new();
    let source = r#"
        template <class T> struct Count { static inline T value = 0; };
        __device__ int counter;
        __global__ void bump(int *out) { out[0] = ++counter; out[1] = ++Count<int>::value; }"#;
    let modules = [bench.module(source), bench.module(source), bench.module(source)];
    for round in 1..4 {
        for module in &modules {
            let mut out = [0; 2];
            let pointer = out.as_mut_ptr();
            run(&module.kernel("bump").expect("defined"), &shape(1, 1), &[arg(&pointer)]).expect("runs");
            assert_eq!(out, [round; 2]);
        }
    }
    // Unloaded and loaded again, it starts afresh.
    let kernel = modules[0].kernel("bump").expect("defined");
    drop(modules);
    let mut out = [0; 2];
    let pointer = out.as_mut_ptr();
    run(&kernel, &shape(1, 1), &[arg(&pointer)]).expect("a kernel keeps its module");
    assert_eq!(out, [4; 2]);
    drop(kernel);
    run(&bench.module(source).kernel("bump").expect("defined"), &shape(1, 1), &[arg(&pointer)])
        .expect("runs");
    assert_eq!(out, [1; 2]);
    let left: Vec<_> = std::fs::read_dir(bench.cache())
        .expect("the cache")
        .flat_map(|entry| std::fs::read_dir(entry.expect("readable").path()).expect("readable"))
        .map(|file| file.expect("readable").file_name().into_string().expect("plain"))
        .filter(|name| name.starts_with("copy-") || name.starts_with("build-") || name.ends_with(".tmp"))
        .collect();
    assert_eq!(left, Vec::<String>::new());
}

#[test]
fn kernels_of_several_threads_run_at_once() {
    let bench = Bench::new();
    let source = r#"
        __device__ unsigned arrived;
        __global__ void meet(unsigned *mine, unsigned *other, unsigned long long *sum) {
          __shared__ unsigned seen;
          if (threadIdx.x == 0) {
            atomicAdd(mine, 1u);
            while (atomicAdd(other, 0u) < gridDim.x) {}
            seen = atomicAdd(&arrived, 1u);
          }
          __syncthreads();
          atomicAdd(sum, (unsigned long long)seen);
        }"#;
    let mut words = [0u32; 2];
    let words = words.as_mut_ptr() as usize;
    std::thread::scope(|scope| {
        for pe in 0..2 {
            let module = bench.module(source);
            scope.spawn(move || {
                // Each kernel waits for the other one to run.
                let (mine, other) = (words + 4 * pe, words + 4 * (1 - pe));
                let mut sum = 0u64;
                let pointer = &raw mut sum;
                let kernel = module.kernel("meet").expect("defined");
                run(&kernel, &shape(4, 50), &[arg(&mine), arg(&other), arg(&pointer)]).expect("runs");
                assert_eq!(sum, 50 * (1 + 2 + 3));
            });
        }
    });
}

#[test]
fn a_misshapen_exchange_is_told() {
    let bench = Bench::new();
    let module = bench.module("__global__ void k() { __syncwarp(0x2); }");
    let (text, place) = failure(run(&module.kernel("k").expect("defined"), &shape(1, 2), &[]));
    assert!(text.contains("lane 0 calls __syncwarp() with mask 0x00000002, which it is not in"), "{text}");
    assert_eq!(place, Some(([0; 3], [0; 3])));
}

#[test]
fn shared_variables_may_be_static_and_aligned() {
    let bench = Bench::new();
    let module = bench.module(
        "__global__ void k(int *out) {
           __shared__ alignas(64) unsigned char bytes[64];
           static __shared__ int word;
           static __shared__ alignas(16) float four[4];
           if (threadIdx.x == 0) word = 5;
           __syncthreads();
           out[threadIdx.x] = word + ((unsigned long long)bytes % 64 == 0) + ((unsigned long long)four % 16 == 0);
         }",
    );
    let mut out = [0i32; 8];
    let to = out.as_mut_ptr();
    run(&module.kernel("k").expect("defined"), &shape(1, 8), &[arg(&to)]).expect("runs");
    assert_eq!(out, [7; 8]);
}
