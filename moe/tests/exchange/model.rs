//! What an exchange should do, by its definition and one token after the other: the data of all ranks, drawn
//! from a seed, and what each of them should have in the end.

use rushmem::half::{bf16, f16};
use rushmem_moe::{Float, Fp8, Payload, Scales};

/// SplitMix64.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    /// Between -4 and 4, now and then much smaller or 0.
    pub(crate) fn float(&mut self) -> f32 {
        let x = (self.next() >> 40) as f32 / (1 << 21) as f32 - 4.0;
        match self.below(16) {
            0 => x * 1e-6,
            1 => 0.0,
            _ => x,
        }
    }
}

/// How tokens choose their experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Routing {
    /// Any, all different; each is left out (-1) once in so many times, if not 0.
    Any(u64),
    /// All tokens have the same.
    Same,
    /// Any, the same one several times, too.
    Repeated,
}

/// The tokens of one rank.
#[derive(Clone, Default)]
pub(crate) struct Drawn {
    pub(crate) n: usize,
    /// As dispatch takes them.
    pub(crate) x: Vec<u8>,
    pub(crate) side: Vec<u8>,
    pub(crate) experts: Vec<i32>,
    pub(crate) weights: Vec<f32>,
}

/// Draws the tokens of a rank.
pub(crate) fn draw(rng: &mut Rng, n: usize, sizes: &Sizes, payload: Payload, routing: Routing) -> Drawn {
    let mut drawn = Drawn { n, ..Drawn::default() };
    let same = rng.below(sizes.experts as u64);
    for _ in 0..n {
        let mut chosen = Vec::new();
        while chosen.len() < sizes.top_k {
            let expert = match routing {
                Routing::Same => (same + chosen.len() as u64) % sizes.experts as u64,
                Routing::Any(_) | Routing::Repeated => rng.below(sizes.experts as u64),
            } as i32;
            if matches!(routing, Routing::Repeated) || !chosen.contains(&expert) {
                chosen.push(expert);
            }
        }
        for expert in chosen {
            let out = matches!(routing, Routing::Any(one_in) if one_in > 0 && rng.below(one_in) == 0);
            drawn.experts.push(if out { -1 } else { expert });
            drawn.weights.push(rng.float());
        }
        match payload {
            Payload::Floats(float) => (0..sizes.hidden).for_each(|_| push(&mut drawn.x, float, rng.float())),
            Payload::Cast(..) => {
                // Groups of different magnitudes, now and then of zeros.
                let mut by = 1.0;
                for column in 0..sizes.hidden {
                    if column % 128 == 0 {
                        by = [1.0, 1e-9, 1e12, 0.0, 1e-38][rng.below(5) as usize];
                    }
                    push(&mut drawn.x, Float::Bf16, rng.float() * by);
                }
            }
            Payload::Bytes { row, side } => {
                (0..row).for_each(|_| drawn.x.push(rng.next() as u8));
                (0..side).for_each(|_| drawn.side.push(rng.next() as u8));
            }
        }
    }
    drawn
}

/// What is said once of a round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) hidden: usize,
    pub(crate) experts: usize,
    pub(crate) top_k: usize,
}

/// Appends a number in a type.
pub(crate) fn push(to: &mut Vec<u8>, float: Float, x: f32) {
    match float {
        Float::Bf16 => to.extend(bf16::from_f32(x).to_le_bytes()),
        Float::F16 => to.extend(f16::from_f32(x).to_le_bytes()),
        Float::F32 => to.extend(x.to_le_bytes()),
    }
}

/// Number `i` of a row.
pub(crate) fn pull(from: &[u8], float: Float, i: usize) -> f32 {
    match float {
        Float::Bf16 => bf16::from_le_bytes([from[2 * i], from[2 * i + 1]]).to_f32(),
        Float::F16 => f16::from_le_bytes([from[2 * i], from[2 * i + 1]]).to_f32(),
        Float::F32 => f32::from_le_bytes([from[4 * i], from[4 * i + 1], from[4 * i + 2], from[4 * i + 3]]),
    }
}

/// Token `t` of a rank as its experts should receive it, and what is beside it.
pub(crate) fn expected_row(drawn: &Drawn, t: usize, hidden: usize, payload: Payload) -> (Vec<u8>, Vec<u8>) {
    match payload {
        Payload::Floats(float) => {
            let bytes = hidden * float.bytes() as usize;
            (drawn.x[t * bytes..][..bytes].to_vec(), Vec::new())
        }
        Payload::Bytes { row, side } => {
            let (row, side) = (row as usize, side as usize);
            (drawn.x[t * row..][..row].to_vec(), drawn.side[t * side..][..side].to_vec())
        }
        Payload::Cast(format, scales) => {
            let token = &drawn.x[t * hidden * 2..][..hidden * 2];
            let numbers: Vec<f32> = (0..hidden).map(|i| pull(token, Float::Bf16, i)).collect();
            let (mut row, mut side) = (Vec::new(), Vec::new());
            for group in numbers.chunks(128) {
                let most = group.iter().fold(2f32.powi(-100), |most, x| most.max(x.abs()));
                let top = if format == Fp8::E4m3 { 448.0 } else { 57344.0 };
                let by = match scales {
                    Scales::F32 => {
                        side.extend((most / top).to_le_bytes());
                        top / most
                    }
                    Scales::Ue8m0 => {
                        let exponent = (-126..127).find(|e| 2f32.powi(*e) >= most / top).unwrap();
                        side.push((exponent + 127) as u8);
                        2f32.powi(-exponent)
                    }
                };
                row.extend(group.iter().map(|x| nearest_fp8(format, x * by)));
            }
            (row, side)
        }
    }
}

/// What a byte of fp8 stands for.
fn fp8_value(format: Fp8, byte: u8) -> f64 {
    let (mantissa_bits, bias) = if format == Fp8::E4m3 { (3, 7) } else { (2, 15) };
    let (exponent, mantissa) =
        (i32::from(byte & 0x7f) >> mantissa_bits, i32::from(byte) & ((1 << mantissa_bits) - 1));
    let of = |m: i32, e: i32| f64::from(m) * 2f64.powi(e - bias - mantissa_bits);
    let magnitude =
        if exponent == 0 { of(mantissa, 1) } else { of(mantissa + (1 << mantissa_bits), exponent) };
    if byte & 0x80 != 0 {
        -magnitude
    } else {
        magnitude
    }
}

/// The byte whose value is nearest; of two as near the even one; the largest for what is beyond.
fn nearest_fp8(format: Fp8, x: f32) -> u8 {
    let largest = if format == Fp8::E4m3 { 0x7e } else { 0x7b };
    let wanted = f64::from(x.abs());
    let mut best = 0u8;
    for byte in 1..=largest {
        let (new, old) = ((fp8_value(format, byte) - wanted).abs(), (fp8_value(format, best) - wanted).abs());
        if new < old || (new == old && byte % 2 == 0) {
            best = byte;
        }
    }
    best | if x.is_sign_negative() { 0x80 } else { 0 }
}

/// What an expert makes of a token: number `column`, drawn from what it depends on.
pub(crate) fn produced(seed: u64, expert: usize, source: usize, token: usize, column: usize) -> f32 {
    let mixed = seed ^ (expert as u64) << 48 ^ (source as u64) << 40 ^ (token as u64) << 20 ^ column as u64;
    Rng(mixed.wrapping_mul(0xd134_2543_de82_ef95)).float()
}

/// As it travels: a number of that type.
pub(crate) fn as_type(float: Float, x: f32) -> f32 {
    let mut bytes = Vec::new();
    push(&mut bytes, float, x);
    pull(&bytes, float, 0)
}
