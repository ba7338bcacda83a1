//! What the exchange is fed with and what must come out: numbers that every type on the way holds exactly, so
//! that results are compared bit for bit with sums that are computed otherwise.

/// SplitMix64, as a hash.
pub(super) fn mixed(x: u64) -> u64 {
    let mut x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Experts of a token, all different; and their weights, powers of two from a half to two.
pub(super) fn choice(seed: u64, source: u32, token: u32, experts: u32, top_k: u32) -> Vec<(u32, f32)> {
    let mut chosen: Vec<(u32, f32)> = Vec::new();
    let mut state = mixed(seed ^ u64::from(source) << 32 ^ u64::from(token));
    while chosen.len() < top_k as usize {
        state = mixed(state);
        let expert = (state % u64::from(experts)) as u32;
        if chosen.iter().all(|(other, _)| *other != expert) {
            chosen.push((expert, [0.5, 1.0, 2.0][(state >> 40) as usize % 3]));
        }
    }
    chosen
}

/// A token of bf16, and the same as bytes of fp8 e4m3, each 128 columns of which have one exponent more than
/// its scale: the largest number, 448, is among them, so the scale is a power of two and nothing is rounded.
pub(super) struct Token {
    pub(super) bf16: Vec<u16>,
    pub(super) fp8: Vec<u8>,
    pub(super) scales: Vec<f32>,
}

pub(super) fn token(seed: u64, source: u32, token: u32, hidden: u32) -> Token {
    let (mut bf16, mut fp8, mut scales) = (Vec::new(), Vec::new(), Vec::new());
    let mut state = mixed(seed ^ 1 << 63 ^ u64::from(source) << 32 ^ u64::from(token));
    let mut exponent = 0;
    for column in 0..hidden {
        if column % 8 == 0 {
            state = mixed(state);
        }
        if column % 128 == 0 {
            exponent = (state >> 60) as i32 - 8;
            scales.push(2f32.powi(exponent));
        }
        // Normal numbers, whose exponent field is 1 to 15; 0x7f would be none.
        let drawn = (state >> (8 * (column % 8))) as u8 | 0x08;
        let byte = match column % 128 {
            0 => 0x7e,
            _ if drawn & 0x7f == 0x7f => drawn & 0xfd,
            _ => drawn,
        };
        let (field, mantissa) = (i32::from(byte >> 3 & 15), u16::from(byte & 7));
        fp8.push(byte);
        bf16.push(u16::from(byte & 0x80) << 8 | ((field - 7 + exponent + 127) as u16) << 7 | mantissa << 4);
    }
    Token { bf16, fp8, scales }
}

const PERIOD: usize = 1021;

/// What experts produce: small whole numbers, in rows that begin somewhere in one sequence.
pub(super) struct Sequence {
    numbers: Vec<i8>,
    bf16: Vec<u16>,
}

impl Sequence {
    pub(super) fn new(seed: u64, hidden: u32) -> Sequence {
        let numbers: Vec<i8> = (0..PERIOD + hidden as usize)
            .map(|i| (mixed(seed ^ (i % PERIOD) as u64) % 5) as i8 - 2)
            .collect();
        let bf16 = numbers.iter().map(|n| ((f32::from(*n)).to_bits() >> 16) as u16).collect();
        Sequence { numbers, bf16 }
    }

    fn begin(maker: u32, source: u32, token: u32) -> usize {
        (mixed(u64::from(maker) << 48 ^ u64::from(source) << 32 ^ u64::from(token)) % PERIOD as u64) as usize
    }

    /// The row of an expert, or of a rank, for a token.
    pub(super) fn row(&self, maker: u32, source: u32, token: u32, hidden: u32) -> &[u16] {
        &self.bf16[Self::begin(maker, source, token)..][..hidden as usize]
    }

    /// Adds `weight` times that row.
    pub(super) fn add(&self, to: &mut [f32], weight: f32, maker: u32, source: u32, token: u32) {
        let numbers = &self.numbers[Self::begin(maker, source, token)..];
        for (to, n) in to.iter_mut().zip(numbers) {
            *to += weight * f32::from(*n);
        }
    }
}

/// Sums have few bits: exactly bf16.
pub(super) fn bf16_of(x: f32) -> u16 {
    debug_assert_eq!(x.to_bits() & 0xffff, 0, "{x} is no bf16");
    (x.to_bits() >> 16) as u16
}
