//! CUDA's 8-bit floats on the CPU beside their definition: the list of all values that a format has, and the
//! nearest of them.

use half::{bf16, f16};
use rushmem_device_cpu::Module;
use rushmem_device_cpu_test_support::{arg, run, shape, Bench, Random};

const SOURCE: &str = r#"
#include <cuda_fp8.h>
/* Format by format: every conversion of each number, saturated in the low byte, not so in the high one. */
__device__ unsigned both(unsigned saturated, unsigned other) { return saturated | other << 8; }
__global__ void narrow(const double *in, unsigned short *out, unsigned n) {
  for (unsigned i = threadIdx.x; i < n; i += blockDim.x)
    for (int f = 0; f < 2; ++f) {
      const auto format = f ? __NV_E5M2 : __NV_E4M3;
      unsigned short *to = out + (2 * i + f) * 4;
      const double d = in[i];
      const __half_raw h = __double2half(d);
      const __nv_bfloat16_raw b = __double2bfloat16(d);
#define BOTH(call, value) both(call(value, __NV_SATFINITE, format), call(value, __NV_NOSAT, format))
      to[0] = BOTH(__nv_cvt_double_to_fp8, d);
      to[1] = BOTH(__nv_cvt_float_to_fp8, (float)d);
      to[2] = BOTH(__nv_cvt_halfraw_to_fp8, h);
      to[3] = BOTH(__nv_cvt_bfloat16raw_to_fp8, b);
    }
}
struct wide {
  float value[2];
  int whole[2];
  unsigned char small[2];
  signed char tiny[2];
  unsigned short half[2];
};
template <class T> __device__ void widen_as(unsigned bits, wide &to, int f, int format) {
  T x;
  x.__x = (__nv_fp8_storage_t)bits;
  to.value[f] = (float)x;
  to.whole[f] = (int)x;
  to.small[f] = (unsigned char)x;
  to.tiny[f] = (signed char)x;
  to.half[f] = __nv_cvt_fp8_to_halfraw(x.__x, (__nv_fp8_interpretation_t)format).x;
}
__global__ void widen(wide *out) {
  widen_as<__nv_fp8_e4m3>(threadIdx.x, out[threadIdx.x], 0, __NV_E4M3);
  widen_as<__nv_fp8_e5m2>(threadIdx.x, out[threadIdx.x], 1, __NV_E5M2);
}
/* Pairs and fours hold what single ones do, the first lowest: 1 where so. */
template <class One, class Two, class Four> __device__ int packs(float4 v) {
  const unsigned want = One(v.x).__x | One(v.y).__x << 8 | One(v.z).__x << 16 | (unsigned)One(v.w).__x << 24;
  const Four four(v);
  const float4 back = (float4)four;
  const float2 low = (float2)Two(make_float2(v.x, v.y));
  return four.__x == want && Two(make_float2(v.z, v.w)).__x == want >> 16 && sizeof(One) == 1 && sizeof(Two) == 2 &&
         sizeof(Four) == 4 && alignof(Four) == 4 && back.x == low.x && back.y == low.y && back.z == (float)One(v.z) &&
         back.w == (float)One(v.w) && Two(__floats2half2_rn(v.x, v.y)).__x == Two(make_float2(
             __half2float(__float2half(v.x)), __half2float(__float2half(v.y)))).__x;
}
__global__ void packed(const float4 *in, int *out) {
  const float4 v = in[threadIdx.x];
  out[threadIdx.x] = packs<__nv_fp8_e4m3, __nv_fp8x2_e4m3, __nv_fp8x4_e4m3>(v) &&
                     packs<__nv_fp8_e5m2, __nv_fp8x2_e5m2, __nv_fp8x4_e5m2>(v);
}
"#;

/// E4M3 and E5M2, by what the specification says of each code.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Format {
    E4M3,
    E5M2,
}
use Format::{E4M3, E5M2};

/// The value of a code without a sign; `None`: no number.
fn value(format: Format, code: u8) -> Option<f64> {
    let (mantissa_bits, bias) = if format == E4M3 { (3, 7) } else { (2, 15) };
    let (exponent, mantissa) =
        (i32::from(code >> mantissa_bits), f64::from(code & ((1 << mantissa_bits) - 1)));
    match (format, code) {
        (E4M3, 0x7f) | (E5M2, 0x7d..) => None,
        (E5M2, 0x7c) => Some(f64::INFINITY),
        _ if exponent == 0 => Some(mantissa * 2f64.powi(1 - bias - mantissa_bits)),
        _ => Some((mantissa + f64::from(1 << mantissa_bits)) * 2f64.powi(exponent - bias - mantissa_bits)),
    }
}

/// The code of the nearest number, of two the even one; past the largest by half a step, what there is for
/// that: saturated, and not.
fn nearest(format: Format, x: f64) -> [u8; 2] {
    let largest = if format == E4M3 { 0x7e } else { 0x7b };
    if x.is_nan() {
        return [0x7f; 2];
    }
    let sign = if x.is_sign_negative() { 0x80 } else { 0 };
    let size = x.abs();
    // The step past the largest is as long as the one before it.
    let at = |code: u8| value(format, code).expect("a number");
    let end = 2.0 * at(largest) - at(largest - 1);
    let is_over = |tie_is_over: bool| {
        size > (at(largest) + end) / 2.0 || tie_is_over && size == (at(largest) + end) / 2.0
    };
    if is_over(largest % 2 == 1) {
        return [sign | largest, sign | (largest + 1)];
    }
    let off = |code: &u8| (at(*code) - size).abs();
    let best = (0..=largest).min_by(|a, b| off(a).total_cmp(&off(b)).then((a % 2).cmp(&(b % 2))));
    [sign | best.expect("there are codes"); 2]
}

/// What narrow() makes of each: for both formats, from the double, the float, the half and the bfloat16.
fn narrowed(module: &Module, numbers: &[f64]) -> Vec<[[[u8; 2]; 4]; 2]> {
    let mut out = vec![[[[0u8; 2]; 4]; 2]; numbers.len()];
    let (from, to, n) = (numbers.as_ptr(), out.as_mut_ptr(), numbers.len() as u32);
    run(&module.kernel("narrow").expect("defined"), &shape(1, 32), &[arg(&from), arg(&to), arg(&n)])
        .expect("runs");
    out
}

#[test]
fn conversions_go_to_the_nearest_value() {
    let mut random = Random::new();
    // Every half and every bfloat16; every value, every tie, and their neighbours; and others near the range.
    let mut numbers: Vec<f64> = (0..=u16::MAX).map(|bits| f16::from_bits(bits).to_f64()).collect();
    numbers.extend((0..=u16::MAX).map(|bits| bf16::from_bits(bits).to_f64()));
    for format in [E4M3, E5M2] {
        let values: Vec<f64> =
            (0..0x80).filter_map(|code| value(format, code)).filter(|x| x.is_finite()).collect();
        let last = 2.0 * values[values.len() - 1] - values[values.len() - 2];
        for (i, low) in values.iter().enumerate() {
            let high = values.get(i + 1).copied().unwrap_or(last);
            let tie = f64::midpoint(*low, high);
            numbers.extend([*low, tie.next_down(), tie, tie.next_up(), -tie, -tie.next_up(), low.next_up()]);
        }
    }
    numbers.extend(
        random.list(50_000, |x| f64::from_bits(x & 0x800f_ffff_ffff_ffff | (1003 + (x >> 52) % 40) << 52)),
    );
    numbers.extend(random.list(1000, f64::from_bits));
    let bench = Bench::new();
    for (x, got) in numbers.iter().zip(narrowed(&bench.module(SOURCE), &numbers)) {
        for (format, got) in [E4M3, E5M2].into_iter().zip(got) {
            // What a narrower type holds is rounded once more, from there.
            let (single, half, brain) = (*x as f32, f16::from_f64(*x), bf16::from_f64(*x));
            assert_eq!(got[0], nearest(format, *x), "{format:?} of the double {x:e}");
            assert_eq!(got[1], nearest(format, f64::from(single)), "{format:?} of the float {single:e}");
            if x.is_nan() || half.to_f64() == *x {
                assert_eq!(got[2], nearest(format, half.to_f64()), "{format:?} of the half {half:e}");
            }
            if x.is_nan() || brain.to_f64() == *x {
                assert_eq!(got[3], nearest(format, brain.to_f64()), "{format:?} of the bfloat16 {brain:e}");
            }
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Wide {
    value: [f32; 2],
    whole: [i32; 2],
    small: [u8; 2],
    tiny: [i8; 2],
    half: [u16; 2],
}

#[test]
fn every_code_has_its_value() {
    let mut out = [Wide::default(); 256];
    let to = out.as_mut_ptr();
    let bench = Bench::new();
    let kernel = bench.module(SOURCE).kernel("widen").expect("defined");
    run(&kernel, &shape(1, 256), &[arg(&to)]).expect("runs");
    for (code, got) in (0..=u8::MAX).zip(out) {
        for (i, format) in [E4M3, E5M2].into_iter().enumerate() {
            let Some(size) = value(format, code & 0x7f) else {
                assert!(got.value[i].is_nan(), "{format:?} {code:#x}");
                assert_eq!((got.half[i], got.whole[i], got.small[i]), (0x7fff, 0, 0), "{format:?} {code:#x}");
                continue;
            };
            let want = if code >= 0x80 { -size } else { size };
            assert_eq!(f64::from(got.value[i]).to_bits(), want.to_bits(), "{format:?} {code:#x}");
            assert_eq!(got.half[i], f16::from_f64(want).to_bits(), "{format:?} {code:#x}");
            // A cast of Rust keeps to the type's range, as CUDA's conversions do.
            let casts = (want as i32, want as u8, want as i8);
            assert_eq!((got.whole[i], got.small[i], got.tiny[i]), casts, "{format:?} {code:#x}");
        }
    }
}

#[test]
fn pairs_and_fours_hold_what_single_ones_do() {
    let mut random = Random::new();
    let input: Vec<[f32; 4]> = random.list(256, |x| {
        [x, x >> 16, x >> 32, x >> 48].map(|x| f32::from(x as i16) * 2f32.powi((x % 16) as i32 - 20))
    });
    let mut out = [0i32; 256];
    // float4 is aligned to 16 bytes: the first of these that is.
    let mut aligned = vec![0u128; 256];
    // SAFETY: both have 4096 bytes, and are apart.
    unsafe { std::ptr::copy_nonoverlapping(input.as_ptr().cast::<u8>(), aligned.as_mut_ptr().cast(), 4096) };
    let (from, to) = (aligned.as_ptr(), out.as_mut_ptr());
    let bench = Bench::new();
    let kernel = bench.module(SOURCE).kernel("packed").expect("defined");
    run(&kernel, &shape(1, 256), &[arg(&from), arg(&to)]).expect("runs");
    assert_eq!(out, [1; 256]);
}
