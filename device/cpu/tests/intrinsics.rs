//! CUDA's integer SIMD, dot products, bit searches, directed rounding and mathematical functions beside
//! models in Rust.

use rushmem_device_cpu_test_support::{arg, run, shape, Bench, Random};

/// What each call makes of each input, by one kernel over all of them.
fn results<I: Copy, O: Copy + Default>(
    result: &str,
    params: &str,
    calls: &[String],
    input: &[I],
) -> Vec<Vec<O>> {
    let count = calls.len();
    let lines: String =
        calls.iter().enumerate().map(|(k, call)| format!("    out[i * {count} + {k}] = {call};\n")).collect();
    let source = format!(
        "struct in {{ {} }};\n__global__ void k(const in *inputs, {} *out, int n) {{\n  for (int i = threadIdx.x; i < n; i += \
         blockDim.x) {{\n    const in v = inputs[i];\n    (void)v;\n{lines}  }}\n}}\n",
        params, result
    );
    let bench = Bench::new();
    let mut out = vec![O::default(); input.len() * count];
    let (from, to, n) = (input.as_ptr(), out.as_mut_ptr(), input.len() as i32);
    let kernel = bench.module(&source).kernel("k").expect("defined");
    run(&kernel, &shape(1, 32), &[arg(&from), arg(&to), arg(&n)]).expect("runs");
    out.chunks(count).map(<[O]>::to_vec).collect()
}

/// Words whose parts are often alike, at the ends of their ranges, or zero.
fn words(random: &mut Random, n: usize) -> Vec<[u32; 3]> {
    let part = |x: u64| match x % 8 {
        0 => 0u8,
        1 => 0x7f,
        2 => 0x80,
        3 => 0xff,
        _ => (x >> 8) as u8,
    };
    random.list(n, |x| {
        let word = |x: u64| u32::from_le_bytes([0, 13, 26, 39].map(|by| part(x >> by)));
        let (a, b) = (word(x), word(x.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        [a, if x % 5 == 0 { a } else { b }, (x >> 20) as u32]
    })
}

/// Applies to parts of so many bits, as signed or unsigned numbers.
fn by_parts(bits: u32, signed: bool, a: u32, b: u32, f: impl Fn(i32, i32) -> i32) -> u32 {
    let mask = (1u32 << bits) - 1;
    let part = |word: u32, at: u32| {
        let raw = (word >> at & mask) as i32;
        if signed && raw >> (bits - 1) == 1 {
            raw - (1 << bits)
        } else {
            raw
        }
    };
    (0..32 / bits)
        .map(|i| i * bits)
        .fold(0, |out, at| out | (f(part(a, at), part(b, at)) as u32 & mask) << at)
}

#[test]
fn words_of_halves_and_bytes() {
    type Model = fn(i32, i32, i32, i32) -> i32;
    // Name, whether the parts are signed, of x, y, the least and the most of the parts' type.
    let models: &[(&str, bool, Model)] = &[
        ("__vadd", false, |x, y, _, _| x + y),
        ("__vsub", false, |x, y, _, _| x - y),
        ("__vaddss", true, |x, y, least, most| (x + y).clamp(least, most)),
        ("__vaddus", false, |x, y, least, most| (x + y).clamp(least, most)),
        ("__vsubss", true, |x, y, least, most| (x - y).clamp(least, most)),
        ("__vsubus", false, |x, y, least, most| (x - y).clamp(least, most)),
        ("__vmaxs", true, |x, y, _, _| x.max(y)),
        ("__vmaxu", false, |x, y, _, _| x.max(y)),
        ("__vmins", true, |x, y, _, _| x.min(y)),
        ("__vminu", false, |x, y, _, _| x.min(y)),
        ("__vavgu", false, |x, y, _, _| (x + y + 1) / 2),
        ("__vhaddu", false, |x, y, _, _| (x + y) / 2),
        ("__vabsdiffs", true, |x, y, _, _| (x - y).abs()),
        ("__vabsdiffu", false, |x, y, _, _| (x - y).abs()),
        ("__vcmpeq", false, |x, y, _, _| -i32::from(x == y)),
        ("__vcmpne", false, |x, y, _, _| -i32::from(x != y)),
        ("__vcmpges", true, |x, y, _, _| -i32::from(x >= y)),
        ("__vcmpgeu", false, |x, y, _, _| -i32::from(x >= y)),
        ("__vcmpgts", true, |x, y, _, _| -i32::from(x > y)),
        ("__vcmpgtu", false, |x, y, _, _| -i32::from(x > y)),
        ("__vcmples", true, |x, y, _, _| -i32::from(x <= y)),
        ("__vcmpleu", false, |x, y, _, _| -i32::from(x <= y)),
        ("__vcmplts", true, |x, y, _, _| -i32::from(x < y)),
        ("__vcmpltu", false, |x, y, _, _| -i32::from(x < y)),
        ("__vseteq", false, |x, y, _, _| i32::from(x == y)),
        ("__vsetges", true, |x, y, _, _| i32::from(x >= y)),
        ("__vsetltu", false, |x, y, _, _| i32::from(x < y)),
    ];
    let of_one: &[(&str, Model)] = &[
        ("__vabs", |x, _, _, _| x.abs()),
        ("__vneg", |x, _, _, _| -x),
        ("__vabsss", |x, _, _, most| x.abs().min(most)),
        ("__vnegss", |x, _, _, most| (-x).min(most)),
    ];
    let mut calls = Vec::new();
    for parts in [2, 4] {
        calls.extend(models.iter().map(|(name, ..)| format!("{name}{parts}(v.a, v.b)")));
        calls.extend(of_one.iter().map(|(name, _)| format!("{name}{parts}(v.a)")));
    }
    let input = words(&mut Random::new(), 2000);
    let got = results::<_, u32>("unsigned", "unsigned a, b, c;", &calls, &input);
    for ([a, b, _], got) in input.into_iter().zip(got) {
        let mut got = got.into_iter().zip(&calls);
        for bits in [16u32, 8] {
            let range = |signed: bool| {
                let most = (1 << (bits - u32::from(signed))) - 1;
                if signed {
                    (-most - 1, most)
                } else {
                    (0, most)
                }
            };
            let all = models.iter().map(|(_, signed, model)| (*signed, *model));
            for (signed, model) in all.chain(of_one.iter().map(|(_, model)| (true, *model))) {
                let (least, most) = range(signed);
                let (got, call) = got.next().expect("as many as there are calls");
                let want = by_parts(bits, signed, a, b, |x, y| model(x, y, least, most));
                assert_eq!(got, want, "{call} of {a:#x}, {b:#x}: {got:#x} for {want:#x}");
            }
        }
    }
}

#[test]
fn dot_products_sums_and_bits() {
    let calls = [
        "(unsigned)__dp4a((int)v.a, (int)v.b, (int)v.c)",
        "__dp4a(v.a, v.b, v.c)",
        "(unsigned)__dp2a_lo((int)v.a, (int)v.b, (int)v.c)",
        "(unsigned)__dp2a_hi((int)v.a, (int)v.b, (int)v.c)",
        "__dp2a_lo(v.a, v.b, v.c)",
        "__dp2a_hi(v.a, v.b, v.c)",
        "__vsads2(v.a, v.b)",
        "__vsads4(v.a, v.b)",
        "__vsadu2(v.a, v.b)",
        "__vsadu4(v.a, v.b)",
        "__uhadd(v.a, v.b)",
        "__urhadd(v.a, v.b)",
        "__fns(v.a, v.b % 32, (int)(v.c % 20) - 9)",
        "(unsigned)__dp4a(*(char4 *)&v.a, *(char4 *)&v.b, 5)",
    ]
    .map(String::from);
    let input = words(&mut Random::new(), 3000);
    let got = results::<_, u32>("unsigned", "unsigned a, b, c;", &calls, &input);
    for ([a, b, c], got) in input.into_iter().zip(got) {
        let (ab, bb) = (a.to_le_bytes(), b.to_le_bytes());
        let halves = |x: u32| [x as u16, (x >> 16) as u16];
        let (ah, bh) = (halves(a), halves(b));
        let dot = |x: &[i64], y: &[i64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<i64>();
        let apart = |x: &[i64], y: &[i64]| x.iter().zip(y).map(|(x, y)| (x - y).abs()).sum::<i64>() as u32;
        let u8s = |x: [u8; 4]| x.map(i64::from);
        let i8s = |x: [u8; 4]| x.map(|x| i64::from(x as i8));
        let u16s = |x: [u16; 2]| x.map(i64::from);
        let i16s = |x: [u16; 2]| x.map(|x| i64::from(x as i16));
        let plus = |sum: i64| (i64::from(c) + sum) as u32;
        let n = (c % 20) as i32 - 9;
        let up: Vec<u32> = (b % 32..32).filter(|i| a >> i & 1 == 1).collect();
        let down: Vec<u32> = (0..=b % 32).rev().filter(|i| a >> i & 1 == 1).collect();
        let nth = match n {
            0 => (a >> (b % 32) & 1 == 1).then_some(b % 32),
            1.. => up.get(n as usize - 1).copied(),
            _ => down.get(-n as usize - 1).copied(),
        };
        let want = [
            plus(dot(&i8s(ab), &i8s(bb))),
            plus(dot(&u8s(ab), &u8s(bb))),
            plus(dot(&i16s(ah), &i8s(bb)[..2])),
            plus(dot(&i16s(ah), &i8s(bb)[2..])),
            plus(dot(&u16s(ah), &u8s(bb)[..2])),
            plus(dot(&u16s(ah), &u8s(bb)[2..])),
            apart(&i16s(ah), &i16s(bh)),
            apart(&i8s(ab), &i8s(bb)),
            apart(&u16s(ah), &u16s(bh)),
            apart(&u8s(ab), &u8s(bb)),
            ((u64::from(a) + u64::from(b)) / 2) as u32,
            (u64::from(a) + u64::from(b)).div_ceil(2) as u32,
            nth.unwrap_or(u32::MAX),
            (5 + dot(&i8s(ab), &i8s(bb))) as u32,
        ];
        for ((got, want), call) in got.into_iter().zip(want).zip(&calls) {
            assert_eq!(got, want, "{call} of {a:#x}, {b:#x}, {c:#x}");
        }
    }
}

#[test]
fn arithmetic_rounds_as_its_name_says() {
    let mut calls = Vec::new();
    for suffix in ["rz", "ru", "rd"] {
        for call in
            ["__fadd_@(v.a, v.b)", "__fsub_@(v.a, v.b)", "__fmul_@(v.a, v.b)", "__fmaf_@(v.a, v.b, v.c)"]
        {
            calls.push(call.replace('@', suffix));
        }
        calls.push(format!("__double2float_{suffix}((double)v.a + (double)v.b)"));
        calls.push(format!("__int2float_{suffix}(__float_as_int(v.a))"));
    }
    // Products and sums of such floats are exact doubles.
    let float = |x: u64| f32::from_bits((x as u32 & 0x807f_ffff) | (120 + (x >> 32) as u32 % 16) << 23);
    let input = Random::new().list(4000, |x| [x, x.rotate_left(21), x.rotate_left(42)].map(float));
    let got = results::<_, f32>("float", "float a, b, c;", &calls, &input);
    let mut inexact = 0;
    for ([a, b, c], got) in input.into_iter().zip(got) {
        let [x, y, z] = [a, b, c].map(f64::from);
        let whole = f64::from(a.to_bits() as i32);
        // The fused one may need more bits than a double has: those are left out.
        let fused = x.mul_add(y, z);
        let exactly = [
            Some(x + y),
            Some(x - y),
            Some(x * y),
            (fused - z == x * y && fused - x * y == z).then_some(fused),
        ];
        let exactly = [exactly[0], exactly[1], exactly[2], exactly[3], Some(x + y), Some(whole)];
        for (way, got) in got.chunks(6).enumerate() {
            for ((got, exact), call) in got.iter().zip(exactly).zip(&calls[way * 6..]) {
                let Some(exact) = exact else { continue };
                let near = exact as f32;
                let (below, above) = match f64::from(near).total_cmp(&exact) {
                    std::cmp::Ordering::Less => (near, near.next_up()),
                    std::cmp::Ordering::Equal => (near, near),
                    std::cmp::Ordering::Greater => (near.next_down(), near),
                };
                let want = match way {
                    0 if exact < 0.0 => above,
                    1 => above,
                    _ => below,
                };
                assert_eq!(*got, want, "{call} of {a:e}, {b:e}, {c:e}");
                inexact += u32::from(below < above);
            }
        }
    }
    assert!(inexact > 10_000, "{inexact} were rounded");
}

#[test]
fn functions_that_the_library_lacks() {
    let calls = [
        "sinpi(v.x)",
        "cospi(v.x)",
        "erf(erfinv(v.y))",
        "erfc(erfcinv(v.t))",
        "normcdf(normcdfinv(v.t))",
        "erfcx(v.s) / (exp(v.s * v.s) * erfc(v.s))",
        "rcbrt(v.s) * cbrt(v.s)",
        "norm3d(v.x, v.y, v.s)",
        "norm4d(v.x, v.y, v.s, v.t) * rnorm4d(v.x, v.y, v.s, v.t)",
        "rhypot(v.x, v.s) * hypot(v.x, v.s)",
        "erfcx(v.s * 1e6) * v.s * 1e6",
        "sinpif((float)v.x)",
        "(double)erfinvf((float)v.y) - erfinv((float)v.y)",
        "sinpi(floor(v.x)) == 0 && cospi(floor(v.x) + 0.5) == 0 && fabs(cospi(floor(v.x))) == 1",
        "erfcinv(0.0) == INFINITY && erfinv(-1.0) == -INFINITY && isnan(erfinv(1.5)) && normcdfinv(0.5) == 0",
        "norm(3, &v.x)",
        "norm(3, &v.x) * rnorm(3, &v.x)",
        "[&] { float f[] = {(float)v.x, (float)v.y, (float)v.s}; return (double)normf(3, f) * rnormf(3, f); }()",
        "[&] { double d[] = {3e300, -4e300}, e[] = {1, -INFINITY}; return norm(2, d) / 5e300 + rnorm(2, e); }()",
        "cyl_bessel_i0(v.s)",
        "cyl_bessel_i1(-v.s)",
        "(double)cyl_bessel_i0f((float)v.s) / cyl_bessel_i0((float)v.s)",
    ]
    .map(String::from);
    // x anywhere, y between -1 and 1 with small ones, t between 0 and 1, s between 0.1 and 26.
    let mut random = Random::new();
    let unit = |x: u64| (x >> 11) as f64 / 2f64.powi(53);
    let input: Vec<[f64; 4]> = (0..3000)
        .map(|_| {
            let small = 10f64.powi(-(random.below(12) as i32));
            let x = (unit(random.next()) - 0.5) * [2.0, 50.0, 1e6][random.below(3) as usize];
            [
                x,
                (2.0 * unit(random.next()) - 1.0) * small,
                unit(random.next()) * small + 1e-300,
                0.1 + 25.9 * unit(random.next()),
            ]
        })
        .collect();
    let got = results::<_, f64>("double", "double x, y, t, s;", &calls, &input);
    for ([x, y, t, s], got) in input.into_iter().zip(got) {
        // Turns of 2 are taken off exactly.
        let angle = (x % 2.0) * std::f64::consts::PI;
        let close = |k: usize, want: f64, error: f64| {
            let off = (got[k] - want).abs();
            assert!(off <= error, "{}: {:e} for {want:e}, of {x:e} {y:e} {t:e} {s:e}", calls[k], got[k]);
        };
        close(0, angle.sin(), 2e-15);
        close(1, angle.cos(), 2e-15);
        close(2, y, 1e-14 * y.abs() + 1e-300);
        close(3, t, 2e-12 * t);
        close(4, t, 2e-12 * t);
        close(5, 1.0, 1e-11);
        close(6, 1.0, 1e-15);
        close(7, (x * x + y * y + s * s).sqrt(), 1e-14 * (x.abs() + s + 1.0));
        close(8, 1.0, 1e-15);
        close(9, 1.0, 1e-15);
        close(10, (1.0 - 0.5 / (s * 1e6).powi(2)) / std::f64::consts::PI.sqrt(), 1e-14);
        close(11, ((f64::from(x as f32) % 2.0) * std::f64::consts::PI).sin(), 1e-7);
        close(12, 0.0, 1e-7 * (1.0 + y.abs() * 10.0));
        close(13, 1.0, 0.0);
        close(14, 1.0, 0.0);
        close(15, (x * x + y * y + t * t).sqrt(), 1e-14 * (x.abs() + 1.0));
        close(16, 1.0, 1e-15);
        close(17, 1.0, 1e-6);
        close(18, 1.0, 1e-15);
        // I_n(s) is the mean of exp(s cos a) cos(n a) over a turn: so many points give all digits.
        let mean = |n: f64| {
            let points = (0..128).map(|i| f64::from(i) * std::f64::consts::TAU / 128.0);
            points.map(|a| (s * a.cos()).exp() * (n * a).cos()).sum::<f64>() / 128.0
        };
        close(19, mean(0.0), 1e-13 * mean(0.0));
        close(20, -mean(1.0), 1e-13 * mean(0.0));
        close(21, 1.0, 1e-7);
    }
}

#[test]
fn shared_memory_is_known_as_such() {
    let bench = Bench::new();
    let module = bench.module(
        "__device__ int global;
         __global__ void k(unsigned *out) {
           extern __shared__ int dynamic[];
           __shared__ int fixed[8];
           int local = 1;
           unsigned *to = out + 6 * (blockIdx.x * blockDim.x + threadIdx.x);
           to[0] = __isShared(fixed + 7);
           to[1] = __isShared(dynamic + 3);
           to[2] = __isShared(dynamic + 4);
           to[3] = __isShared(out);
           to[4] = __isShared(&local) | __isShared(&global);
           to[5] = __cvta_shared_to_generic(__cvta_generic_to_shared(fixed)) == fixed;
         }",
    );
    let mut out = [[9u32; 6]; 6];
    let to = out.as_mut_ptr();
    let config = rushmem_device_cpu::LaunchConfig { shared: 16, ..shape(2, 3) };
    run(&module.kernel("k").expect("defined"), &config, &[arg(&to)]).expect("runs");
    assert_eq!(out, [[1, 1, 0, 0, 0, 1]; 6]);
}

#[test]
fn vectors_are_loaded_and_added() {
    let bench = Bench::new();
    let module = bench.module(
        "#include <math_constants.h>
         __global__ void k(float4 *sum, float2 *pair, int4 *words, float *out) {
           atomicAdd(sum, make_float4(1, 2, 3, 4));
           atomicAdd(pair, make_float2(0.5f, 0.25f));
           __syncthreads();
           const float4 all = __ldcv(sum);
           const int4 word = __ldg(words);
           if (threadIdx.x == 0) {
             __stcs(words + 1, make_int4(word.w, word.z, word.y, word.x));
             out[0] = all.x + all.y + all.z + all.w;
             out[1] = pair->x + pair->y;
             out[2] = CUDART_INF_F;
             out[3] = CUDART_PI_F;
           }
         }",
    );
    #[repr(align(16))]
    struct Aligned<T>(T);
    let (mut sum, mut pair, mut words, mut out) =
        (Aligned([0f32; 4]), Aligned([0f32; 2]), Aligned([1i32, 2, 3, 4, 0, 0, 0, 0]), [0f32; 4]);
    let (a, b, c, d) = (sum.0.as_mut_ptr(), pair.0.as_mut_ptr(), words.0.as_mut_ptr(), out.as_mut_ptr());
    run(&module.kernel("k").expect("defined"), &shape(1, 40), &[arg(&a), arg(&b), arg(&c), arg(&d)])
        .expect("runs");
    assert_eq!(out, [400.0, 30.0, f32::INFINITY, std::f32::consts::PI]);
    assert_eq!(words.0, [1, 2, 3, 4, 4, 3, 2, 1]);
}
