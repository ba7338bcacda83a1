//! What a reduction does with numbers in memory: members' elements are combined one after the other, in the
//! order of the members, so that a result is `((x0 + x1) + x2) + ...` of these very operands: the same bits
//! wherever and in however many pieces it is worked out, and the same as on devices
//! (`device/include/rushmem/impl/coll/operators.h`). 16-bit floats are combined in 32 bits and rounded once.
//!
//! The loops are over plain arrays of one type, for the compiler to vectorise. Memory may lie anywhere: what
//! is read or written there need not be aligned.

mod number;

use std::mem::MaybeUninit;

use crate::error::{err, Result};
use crate::word::copy_past_caches;
use number::{BFloat, Complex, Half, Number};
use rushmem_abi::c::*;
use rushmem_abi::reduction::{reduction, Number as Kind, Operator, Reduced};

/// Bytes that are combined at a time; they stay in the first cache.
pub(crate) const BLOCK: usize = 8 << 10;

/// The numbers of a block, as far as they were given, in the type in which they are combined: twice as wide
/// as elements of 16 bits.
#[repr(C, align(64))]
pub(crate) struct Block([MaybeUninit<u8>; 2 * BLOCK]);

impl Block {
    /// An empty one.
    #[inline]
    pub(crate) fn new() -> Block {
        Block([const { MaybeUninit::uninit() }; 2 * BLOCK])
    }
}

/// Takes, combines or hands out `n` elements, which are one block at most.
type Step = unsafe fn(&mut Block, *mut u8, usize);

/// A type and an operator that go together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reduction {
    of: &'static Reduced,
    op: Operator,
    begin: Step,
    add: Step,
    put: Step,
}

impl Reduction {
    /// Of the C ABI's numbers.
    pub(crate) fn new(of: i32, op: i32) -> Result<Reduction> {
        let (of, op) = reduction(of, op).map_err(|e| err!(INVALID_ARGUMENT, "{e}"))?;
        Ok(match of.code {
            RUSHMEM_INT8 => integers::<i8>(of, op),
            RUSHMEM_UINT8 => integers::<u8>(of, op),
            RUSHMEM_INT16 => integers::<i16>(of, op),
            RUSHMEM_UINT16 => integers::<u16>(of, op),
            RUSHMEM_INT32 => integers::<i32>(of, op),
            RUSHMEM_UINT32 => integers::<u32>(of, op),
            RUSHMEM_INT64 => integers::<i64>(of, op),
            RUSHMEM_UINT64 => integers::<u64>(of, op),
            RUSHMEM_FLOAT => floats::<f32>(of, op),
            RUSHMEM_DOUBLE => floats::<f64>(of, op),
            RUSHMEM_HALF => floats::<Half>(of, op),
            RUSHMEM_BFLOAT16 => floats::<BFloat>(of, op),
            RUSHMEM_COMPLEX_FLOAT => complex::<f32>(of, op),
            _ => complex::<f64>(of, op),
        })
    }

    /// The type.
    pub(crate) fn of(&self) -> &'static Reduced {
        self.of
    }

    /// The operator.
    pub(crate) fn op(&self) -> Operator {
        self.op
    }

    /// Bytes of an element.
    #[inline]
    pub(crate) fn element(&self) -> usize {
        self.of.bytes
    }

    /// How many bytes are combined at a time: whole elements.
    #[inline]
    pub(crate) fn block(&self) -> usize {
        BLOCK
    }

    /// The first member's `bytes` bytes, [`Reduction::block`] at most.
    ///
    /// # Safety
    /// They are valid for reads.
    #[inline]
    pub(crate) unsafe fn begin(&self, block: &mut Block, from: *const u8, bytes: usize) {
        // SAFETY: the caller vouches for the bytes, which are not written.
        unsafe { (self.begin)(block, from.cast_mut(), bytes / self.of.bytes) }
    }

    /// The next member's.
    ///
    /// # Safety
    /// As for [`Reduction::begin`].
    #[inline]
    pub(crate) unsafe fn add(&self, block: &mut Block, from: *const u8, bytes: usize) {
        // SAFETY: the caller vouches for the bytes, which are not written.
        unsafe { (self.add)(block, from.cast_mut(), bytes / self.of.bytes) }
    }

    /// Hands out what has come of it so far.
    ///
    /// # Safety
    /// `to` is valid for writes of so many bytes.
    #[inline]
    pub(crate) unsafe fn put(&self, block: &mut Block, to: *mut u8, bytes: usize) {
        // SAFETY: the caller vouches for the bytes.
        unsafe { (self.put)(block, to, bytes / self.of.bytes) }
    }

    /// [`Reduction::put`] to where nobody reads soon.
    ///
    /// # Safety
    /// As for [`Reduction::put`].
    pub(crate) unsafe fn put_past_caches(&self, block: &mut Block, to: *mut u8, bytes: usize) {
        let mut few = [const { MaybeUninit::<u8>::uninit() }; BLOCK];
        // SAFETY: room for a block; the caller vouches for the bytes.
        unsafe {
            self.put(block, few.as_mut_ptr().cast(), bytes);
            copy_past_caches(to, few.as_ptr().cast(), bytes);
        }
    }
}

/// # Safety
/// `n` elements at `at` are valid for reads.
unsafe fn begin<N: Number>(block: &mut Block, at: *mut u8, n: usize) {
    // SAFETY: a block holds as many; the caller vouches for the elements.
    unsafe { N::load(block.0.as_mut_ptr().cast(), at, n) }
}

/// # Safety
/// As for [`begin`].
unsafe fn add<N: Number, O: Combining<N::Wide>>(block: &mut Block, at: *mut u8, n: usize) {
    // SAFETY: a block holds as many, and is aligned for any number; the caller vouches for the elements.
    unsafe { N::combine(block.0.as_mut_ptr().cast(), at, n, O::of) }
}

/// # Safety
/// `n` elements at `at` are valid for writes.
unsafe fn put<N: Number>(block: &mut Block, at: *mut u8, n: usize) {
    // SAFETY: a block holds as many; the caller vouches for the elements.
    unsafe { N::store(at, block.0.as_ptr().cast(), n) }
}

/// An operator on numbers of one type.
trait Combining<W> {
    fn of(a: W, b: W) -> W;
}

macro_rules! operators {
    ($($name:ident: $bound:path, |$a:ident, $b:ident| $of:expr;)*) => {$(
        struct $name;
        impl<W: $bound> Combining<W> for $name {
            #[inline(always)]
            fn of($a: W, $b: W) -> W {
                $of
            }
        }
    )*};
}

operators! {
    Sum: number::Arithmetic, |a, b| a.plus(b);
    Prod: number::Arithmetic, |a, b| a.times(b);
    // As kernels have it, which decides what comes of zeroes of either sign and of what is no number.
    Min: number::Ordered, |a, b| if b < a { b } else { a };
    Max: number::Ordered, |a, b| if a < b { b } else { a };
    And: number::Bits, |a, b| a & b;
    Or: number::Bits, |a, b| a | b;
    Xor: number::Bits, |a, b| a ^ b;
}

fn of<N: Number, O: Combining<N::Wide>>(of: &'static Reduced, op: Operator) -> Reduction {
    debug_assert_eq!(of.bytes, N::BYTES);
    Reduction { of, op, begin: begin::<N>, add: add::<N, O>, put: put::<N> }
}

/// Sums and products are all that complex numbers have.
fn complex<F>(row: &'static Reduced, op: Operator) -> Reduction
where
    Complex<F>: Number<Wide = Complex<F>> + number::Arithmetic,
{
    debug_assert_eq!(row.number, Kind::Complex);
    match op {
        Operator::Prod => of::<Complex<F>, Prod>(row, op),
        _ => of::<Complex<F>, Sum>(row, op),
    }
}

fn floats<N: Number>(row: &'static Reduced, op: Operator) -> Reduction
where
    N::Wide: number::Arithmetic + number::Ordered,
{
    match op {
        Operator::Prod => of::<N, Prod>(row, op),
        Operator::Min => of::<N, Min>(row, op),
        Operator::Max => of::<N, Max>(row, op),
        _ => of::<N, Sum>(row, op),
    }
}

fn integers<N: Number>(row: &'static Reduced, op: Operator) -> Reduction
where
    N::Wide: number::Arithmetic + number::Ordered + number::Bits,
{
    match op {
        Operator::And => of::<N, And>(row, op),
        Operator::Or => of::<N, Or>(row, op),
        Operator::Xor => of::<N, Xor>(row, op),
        _ => floats::<N>(row, op),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random::Random;

    /// Combines elements at odd addresses.
    fn reduce(of: i32, op: i32, members: &[Vec<u8>]) -> Vec<u8> {
        let reduction = Reduction::new(of, op).unwrap();
        let (bytes, mut block) = (members[0].len(), Block::new());
        let mut result = vec![0xee; bytes + 2];
        for (i, member) in members.iter().enumerate() {
            let shifted: Vec<u8> = std::iter::once(0).chain(member.iter().copied()).collect();
            // SAFETY: as many bytes as there are.
            unsafe {
                match i {
                    0 => reduction.begin(&mut block, shifted.as_ptr().add(1), bytes),
                    _ => reduction.add(&mut block, shifted.as_ptr().add(1), bytes),
                }
            }
        }
        // SAFETY: as many bytes, between two others.
        unsafe { reduction.put(&mut block, result.as_mut_ptr().add(1), bytes) };
        assert_eq!((result[0], result[bytes + 1]), (0xee, 0xee), "what lies around it is not touched");
        result[1..=bytes].to_vec()
    }

    fn bytes<T: Copy, const N: usize>(values: &[T], to: fn(T) -> [u8; N]) -> Vec<u8> {
        values.iter().flat_map(|value| to(*value)).collect()
    }

    #[test]
    fn floats_are_combined_in_the_order_of_the_members() {
        let members = [[1e8f32, 1.0], [1.0, 1e8], [-1e8, -1e8], [1.0, 1.0]];
        let members = members.map(|m| bytes(&m, f32::to_ne_bytes));
        let expected = [((1e8f32 + 1.0) - 1e8) + 1.0, ((1.0 + 1e8f32) - 1e8) + 1.0];
        assert_eq!(reduce(RUSHMEM_FLOAT, RUSHMEM_SUM, &members), bytes(&expected, f32::to_ne_bytes));
    }

    /// 2048 + 1 is 2048 in 16 bits.
    #[test]
    fn halves_are_rounded_once() {
        let halves = |values: &[f32]| bytes(values, |v| half::f16::from_f32(v).to_ne_bytes());
        let members = [halves(&[2048.0, 1.0]), halves(&[1.0, 3.0]), halves(&[1.0, 5.0])];
        assert_eq!(reduce(RUSHMEM_HALF, RUSHMEM_SUM, &members), halves(&[2050.0, 9.0]));
        let brains = |values: &[f32]| bytes(values, |v| half::bf16::from_f32(v).to_ne_bytes());
        let members = [brains(&[256.0]), brains(&[1.0]), brains(&[1.0])];
        assert_eq!(reduce(RUSHMEM_BFLOAT16, RUSHMEM_SUM, &members), brains(&[258.0]));
    }

    #[test]
    fn complex_numbers_multiply_as_they_do() {
        let member = |re: f64, im: f64| bytes(&[re, im], f64::to_ne_bytes);
        let product = reduce(RUSHMEM_COMPLEX_DOUBLE, RUSHMEM_PROD, &[member(1.0, 2.0), member(3.0, 4.0)]);
        assert_eq!(product, member(-5.0, 10.0));
    }

    /// Every integer type and operator, at every number of elements up to some vectors.
    #[test]
    fn integers_are_combined_as_one_by_one() {
        let mut random = Random::new("integers_are_combined_as_one_by_one");
        macro_rules! check {
            ($($type:ty, $code:ident;)*) => {$({
                for op in Operator::ALL {
                    let n = random.below(70);
                    let all: Vec<Vec<$type>> =
                        (0..3).map(|_| (0..n).map(|_| random.below(usize::MAX) as $type).collect()).collect();
                    let one = |i: usize| all.iter().map(|m| m[i]).reduce(|a, b| match op {
                        Operator::Sum => a.wrapping_add(b),
                        Operator::Prod => a.wrapping_mul(b),
                        Operator::Min => a.min(b),
                        Operator::Max => a.max(b),
                        Operator::And => a & b,
                        Operator::Or => a | b,
                        Operator::Xor => a ^ b,
                    }).unwrap();
                    let expected: Vec<$type> = (0..n).map(one).collect();
                    let members: Vec<_> = all.iter().map(|m| bytes(m, <$type>::to_ne_bytes)).collect();
                    let result = reduce($code, op.code(), &members);
                    assert_eq!(result, bytes(&expected, <$type>::to_ne_bytes), "{op} of {}", stringify!($type));
                }
            })*};
        }
        check! {
            i8, RUSHMEM_INT8; u8, RUSHMEM_UINT8; i16, RUSHMEM_INT16; u16, RUSHMEM_UINT16;
            i32, RUSHMEM_INT32; u32, RUSHMEM_UINT32; i64, RUSHMEM_INT64; u64, RUSHMEM_UINT64;
        }
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        let e = Reduction::new(RUSHMEM_HALF, RUSHMEM_XOR).unwrap_err();
        assert!(e.message.contains("there is no xor of half"), "{e}");
    }
}
