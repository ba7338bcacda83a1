//! `__half` and `__nv_bfloat16` on the CPU, beside the crate `half` and beside exact integers.

use half::{bf16, f16};
use rushmem_device_cpu::Module;
use rushmem_device_cpu_test_support::{arg, run, shape, Bench, Random};

/// One kernel for each type: what it makes of three values by each operation, and of numbers of other types.
const SOURCE: &str = r#"
#include <cuda_fp16.h>
#include <cuda_bf16.h>
struct results {
  unsigned short sum, difference, product, quotient, fused, min, max, root, of_float, of_double, of_long;
  unsigned short down, up, zero, min_nan, saturated;
  unsigned char equal, unequal, less, at_most, unordered;
  int rounded, truncated;
  float widened;
};
template <class T> struct by;
template <> struct by<__half> {
  static float wide(__half a) { return __half2float(a); }
  static __half near(float a) { return __float2half_rn(a); }
  static __half down(float a) { return __float2half_rd(a); }
  static __half up(float a) { return __float2half_ru(a); }
  static __half zero(float a) { return __float2half_rz(a); }
  static __half of(unsigned short a) { return __ushort_as_half(a); }
  static unsigned short bits(__half a) { return __half_as_ushort(a); }
  static __half of_long(long long a) { return __ll2half_rn(a); }
  static int nearest(__half a) { return __half2int_rn(a); }
  static int truncated(__half a) { return __half2int_rz(a); }
};
template <> struct by<__nv_bfloat16> {
  static float wide(__nv_bfloat16 a) { return __bfloat162float(a); }
  static __nv_bfloat16 near(float a) { return __float2bfloat16(a); }
  static __nv_bfloat16 down(float a) { return __float2bfloat16_rd(a); }
  static __nv_bfloat16 up(float a) { return __float2bfloat16_ru(a); }
  static __nv_bfloat16 zero(float a) { return __float2bfloat16_rz(a); }
  static __nv_bfloat16 of(unsigned short a) { return __ushort_as_bfloat16(a); }
  static unsigned short bits(__nv_bfloat16 a) { return __bfloat16_as_ushort(a); }
  static __nv_bfloat16 of_long(long long a) { return __ll2bfloat16_rn(a); }
  static int nearest(__nv_bfloat16 a) { return __bfloat162int_rn(a); }
  static int truncated(__nv_bfloat16 a) { return __bfloat162int_rz(a); }
};
template <class T> __device__ void all(const unsigned short *in, const float *f, const double *d,
                                       const long long *l, results *out, unsigned n) {
  using b = by<T>;
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    const T x = b::of(in[3 * i]), y = b::of(in[3 * i + 1]), z = b::of(in[3 * i + 2]);
    T product = x;
    product *= y;
    out[i] = results{
        b::bits(x + y), b::bits(x - y), b::bits(product), b::bits(x / y), b::bits(__hfma(x, y, z)),
        b::bits(__hmin(x, y)), b::bits(__hmax(x, y)), b::bits(hsqrt(x)), b::bits(b::near(f[i])), b::bits(T(d[i])),
        b::bits(b::of_long(l[i])), b::bits(b::down(f[i])), b::bits(b::up(f[i])), b::bits(b::zero(f[i])),
        b::bits(__hmin_nan(x, y)), b::bits(__hadd_sat(x, y)),
        x == y, x != y, x < y, __hle(x, y), __hgtu(x, y),
        b::nearest(x), b::truncated(x), b::wide(x)};
  }
}
__global__ void halves(const unsigned short *in, const float *f, const double *d, const long long *l, results *out,
                       unsigned n) {
  all<__half>(in, f, d, l, out, n);
}
__global__ void bfloats(const unsigned short *in, const float *f, const double *d, const long long *l,
                        results *out, unsigned n) {
  all<__nv_bfloat16>(in, f, d, l, out, n);
}

/* Pairs, atomics and shuffles: lane i has i. */
__global__ void together(__half *sums, __nv_bfloat162 *pairs, float *out) {
  const unsigned i = threadIdx.x;
  atomicAdd(&sums[i % 2], __half(0.5f));
  atomicAdd(pairs, __floats2bfloat162_rn(1.0f, 2.0f));
  __half2 mine = __floats2half2_rn(i, i + 0.5f);
  mine = __hadd2(mine, __shfl_xor_sync(~0u, mine, 1));
  mine = __hfma2(mine, __float2half2_rn(2.0f), __half2half2(__int2half_rn(1)));
  out[3 * i] = __low2float(mine);
  out[3 * i + 1] = __high2float(mine);
  out[3 * i + 2] = __half2float(__shfl_sync(~0u, __low2half(mine), 3));
}
"#;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Results {
    sum: u16,
    difference: u16,
    product: u16,
    quotient: u16,
    fused: u16,
    min: u16,
    max: u16,
    root: u16,
    of_float: u16,
    of_double: u16,
    of_long: u16,
    down: u16,
    up: u16,
    zero: u16,
    min_nan: u16,
    saturated: u16,
    equal: u8,
    unequal: u8,
    less: u8,
    at_most: u8,
    unordered: u8,
    rounded: i32,
    truncated: i32,
    widened: f32,
}

struct Inputs {
    bits: Vec<u16>,
    floats: Vec<f32>,
    doubles: Vec<f64>,
    longs: Vec<i64>,
}

/// Every pattern as the first value; values of like size beside them, where sums are rounded.
fn inputs(mantissa: u32, random: &mut Random) -> Inputs {
    let n = 1 << 17;
    let mut bits: Vec<u16> = random.list(3 * n, |x| x as u16);
    for (i, three) in bits.chunks_mut(3).enumerate() {
        three[0] = i as u16;
        if i % 2 == 1 {
            let shift = (random.below(2 * u64::from(mantissa) + 4) << mantissa) as u16;
            three[1] = three[0].wrapping_sub(shift) & 0x7fff | three[1] & 0x8000;
        }
    }
    // Around the halves between two neighbours, too: those decide how ties go.
    let near = |x: u64| {
        let float = f32::from_bits(x as u32);
        let tie = (x as u32) & !((1 << (23 - mantissa)) - 1) | 1 << (22 - mantissa);
        match x >> 62 {
            0 => f32::from_bits(tie),
            1 => f32::from_bits(tie + 1),
            2 => f32::from_bits(tie - 1),
            _ => float,
        }
    };
    let small = |x: u64| near(x & !0x7f80_0000 | (100 + (x >> 40) % 50) << 23);
    let floats = random.list(n, |x| if x % 3 == 0 { near(x) } else { small(x) });
    let doubles = random.list(n, |x| f64::from(small(x)) * (1.0 + ((x >> 33) % 3) as f64 * f64::EPSILON));
    let longs = random.list(n, |x| x as i64 >> (x % 61));
    Inputs { bits, floats, doubles, longs }
}

fn results(module: &Module, kernel: &str, inputs: &Inputs) -> Vec<Results> {
    let n = inputs.floats.len() as u32;
    let mut out = vec![Results::default(); n as usize];
    let (bits, floats, doubles, longs, to) = (
        inputs.bits.as_ptr(),
        inputs.floats.as_ptr(),
        inputs.doubles.as_ptr(),
        inputs.longs.as_ptr(),
        out.as_mut_ptr(),
    );
    let kernel = module.kernel(kernel).expect("defined");
    run(&kernel, &shape(2, 64), &[arg(&bits), arg(&floats), arg(&doubles), arg(&longs), arg(&to), arg(&n)])
        .expect("runs");
    out
}

/// What a type of the crate `half` is asked for.
trait Float16: Copy + PartialOrd {
    fn of(bits: u16) -> Self;
    fn bits(self) -> u16;
    fn near(x: f32) -> Self;
    fn wide(self) -> f32;
}
macro_rules! float16 {
    ($($type:ty)*) => {
        $(impl Float16 for $type {
            fn of(bits: u16) -> Self { <$type>::from_bits(bits) }
            fn bits(self) -> u16 { self.to_bits() }
            fn near(x: f32) -> Self { <$type>::from_f32(x) }
            fn wide(self) -> f32 { self.to_f32() }
        })*
    };
}
float16!(f16 bf16);

/// All finite values that are not negative, as multiples of 2^-`scale`; more than an i128 has room for are
/// not asked for.
struct Exact {
    values: Vec<i128>,
    scale: i32,
}

impl Exact {
    fn new<T: Float16>(scale: i32) -> Exact {
        let finite = (0..0x7fffu16).map(T::of).take_while(|x| x.wide().is_finite());
        let values = finite.map(|x| (f64::from(x.wide()) * 2f64.powi(scale)) as i128).collect();
        Exact { values, scale }
    }

    /// x as a multiple, if it is one.
    fn of(&self, x: f64) -> Option<i128> {
        let scaled = x * 2f64.powi(self.scale);
        (scaled == scaled.trunc() && scaled.abs() < 2f64.powi(125)).then_some(scaled as i128)
    }

    /// The bits of the nearest value, of two as near the one with the even last place.
    fn nearest(&self, x: i128, negative: bool) -> Option<u16> {
        let sign = if negative { 0x8000 } else { 0 };
        let size = x.abs();
        let above = self.values.partition_point(|v| *v < size);
        let (up, down) = (*self.values.get(above)?, self.values[above.saturating_sub(1)]);
        let is_up = up == size || (up - size, above % 2) < (size - down, (above - 1) % 2);
        Some(sign | if is_up { above as u16 } else { above as u16 - 1 })
    }
}

/// The bits of the nearest value, if that is finite. (The crate looks at a double's upper half alone.)
fn nearest_to<T: Float16>(x: f64) -> Option<u16> {
    let about = T::near(x as f32).bits();
    // Differences of neighbours are exact.
    let off = |bits: &u16| (f64::from(T::of(*bits).wide()) - x).abs();
    let near = [about.wrapping_sub(1), about, about.wrapping_add(1)];
    let finite = near.into_iter().filter(|bits| T::of(*bits).wide().is_finite() && (bits ^ about) < 0x8000);
    let best = finite.min_by(|a, b| off(a).total_cmp(&off(b)).then((a % 2).cmp(&(b % 2))))?;
    T::near(x as f32).wide().is_finite().then_some(best)
}

fn same(what: &str, got: u16, want: u16, is_nan: bool, of: impl std::fmt::Debug) {
    if is_nan {
        assert_eq!(got, 0x7fff, "{what} of {of:x?}: CUDA's NaN");
    } else {
        assert_eq!(got, want, "{what} of {of:x?}: {got:#x} for {want:#x}");
    }
}

fn check<T: Float16>(module: &Module, kernel: &str, mantissa: u32, exact: &Exact) {
    let mut random = Random::new();
    let inputs = inputs(mantissa, &mut random);
    let mut fused = 0;
    for (i, got) in results(module, kernel, &inputs).into_iter().enumerate() {
        let of = &inputs.bits[3 * i..3 * i + 3];
        let (x, y, z) = (T::of(of[0]), T::of(of[1]), T::of(of[2]));
        let (a, b, c) = (x.wide(), y.wide(), z.wide());
        // Rounding a float's result again is rounding once, where it has twice the bits and two more.
        let arithmetic = [
            ("sum", got.sum, a + b),
            ("difference", got.difference, a - b),
            ("product", got.product, a * b),
            ("quotient", got.quotient, a / b),
        ];
        for (what, got, want) in arithmetic {
            same(what, got, T::near(want).bits(), want.is_nan(), of);
        }
        same("root", got.root, T::near(a.sqrt()).bits(), a.sqrt().is_nan(), of);
        let float = inputs.floats[i];
        same("float", got.of_float, T::near(float).bits(), float.is_nan(), float.to_bits());
        let double = inputs.doubles[i];
        if let Some(want) = nearest_to::<T>(double) {
            same("double", got.of_double, want, false, double.to_bits());
        }
        if let (Some(whole), long) = (exact.of(1.0), inputs.longs[i]) {
            if let Some(want) = whole.checked_mul(long.into()).and_then(|x| exact.nearest(x, long < 0)) {
                same("integer", got.of_long, want, false, long);
            }
        }
        let one = exact.of(f64::from(a) * f64::from(b)).zip(exact.of(f64::from(c)));
        if let Some(sum) = one.map(|(product, c)| product + c).filter(|sum| *sum != 0) {
            if let Some(want) = exact.nearest(sum, sum < 0) {
                same("fused product and sum", got.fused, want, false, of);
                fused += 1;
            }
        }
        // Rounded down, up, to zero: neighbours of the float, or the float itself.
        if float.is_finite() && got.up & 0x7fff < T::near(f32::INFINITY).bits() {
            let (down, up, zero) = (T::of(got.down).wide(), T::of(got.up).wide(), T::of(got.zero).wide());
            assert!(down <= float && float <= up, "{float:e} between {down:e} and {up:e}");
            let exactly = T::near(float).wide() == float;
            assert_eq!(exactly, down == up, "{float:e} between {down:e} and {up:e}");
            let apart = |low: u16, high: u16| i32::from(high & 0x7fff) - i32::from(low & 0x7fff);
            assert!(apart(got.down, got.up).abs() <= 1, "neighbours");
            assert_eq!(zero, if float < 0.0 { up } else { down }, "to zero");
        }
        assert!(got.widened.to_bits() == a.to_bits() || a.is_nan() && got.widened.is_nan(), "{of:x?}");
        let compared = [got.equal, got.unequal, got.less, got.at_most, got.unordered].map(|x| x == 1);
        let want = [a == b, a != b, a < b, a <= b, a.is_nan() || b.is_nan() || a > b];
        assert_eq!(compared, want, "{of:x?}");
        if !a.is_nan() && !b.is_nan() && a != b {
            assert_eq!(T::of(got.min).wide(), a.min(b), "{of:x?}");
            assert_eq!(T::of(got.max).wide(), a.max(b), "{of:x?}");
        } else if a.is_nan() != b.is_nan() {
            let number = if a.is_nan() { of[1] } else { of[0] };
            assert_eq!((got.min, got.max, got.min_nan), (number, number, 0x7fff), "{of:x?}");
        }
        if !(a + b).is_nan() {
            assert_eq!(T::of(got.saturated).wide(), T::near(a + b).wide().clamp(0.0, 1.0), "{of:x?}");
        }
        if !a.is_nan() {
            assert_eq!(
                (got.rounded, got.truncated),
                (a.round_ties_even() as i32, a.trunc() as i32),
                "{of:x?}"
            );
        }
    }
    assert!(fused > 10_000, "fused products were compared {fused} times");
}

#[test]
fn halves_are_rounded_as_ieee_754_says() {
    let bench = Bench::new();
    // Products are multiples of 2^-48, and below 2^32.
    check::<f16>(&bench.module(SOURCE), "halves", 10, &Exact::new::<f16>(48));
}

#[test]
fn bfloats_are_rounded_as_ieee_754_says() {
    let bench = Bench::new();
    // Those between 2^-30 and 2^64.
    check::<bf16>(&bench.module(SOURCE), "bfloats", 7, &Exact::new::<bf16>(60));
}

#[test]
fn pairs_atomics_and_shuffles() {
    let bench = Bench::new();
    let module = bench.module(SOURCE);
    let (mut sums, mut pairs) = ([f16::ZERO; 2], [bf16::from_f32(0.5), bf16::ZERO]);
    let mut out = [0f32; 96];
    let (a, b, c) = (sums.as_mut_ptr(), pairs.as_mut_ptr(), out.as_mut_ptr());
    let kernel = module.kernel("together").expect("defined");
    run(&kernel, &shape(1, 32), &[arg(&a), arg(&b), arg(&c)]).expect("runs");
    assert_eq!(sums.map(f16::to_f32), [8.0; 2]);
    assert_eq!(pairs.map(bf16::to_f32), [32.5, 64.0]);
    for (i, of) in out.chunks(3).enumerate() {
        let sum = (i + (i ^ 1)) as f32;
        assert_eq!(of, [2.0 * sum + 1.0, 2.0 * sum + 3.0, 11.0], "lane {i}");
    }
}
