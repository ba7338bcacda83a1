//! The parts of the operations that need no world, against independent models on random data.

use super::movement::Movement;
use super::signal::SignalOp;
use super::strided::Strides;
use super::waitset::{comparison, Expected, Integer, WaitSet};
use super::Op;
use crate::word::{copy_word, Update, Word};
use proptest::prelude::*;
use rushmem_abi::c::*;

/// The model of a comparison, by the language's own operators on the element type itself.
fn compares(kind: i32, cmp: i32, seen: u64, expected: u64) -> bool {
    fn by<T: PartialOrd>(cmp: i32, a: T, b: T) -> bool {
        match cmp {
            RUSHMEM_CMP_EQ => a == b,
            RUSHMEM_CMP_NE => a != b,
            RUSHMEM_CMP_GT => a > b,
            RUSHMEM_CMP_GE => a >= b,
            RUSHMEM_CMP_LT => a < b,
            RUSHMEM_CMP_LE => a <= b,
            _ => unreachable!("not generated"),
        }
    }
    match kind {
        RUSHMEM_INT32 => by(cmp, seen as i32, expected as i32),
        RUSHMEM_UINT32 => by(cmp, seen as u32, expected as u32),
        RUSHMEM_INT64 => by(cmp, seen as i64, expected as i64),
        RUSHMEM_UINT64 => by(cmp, seen, expected),
        RUSHMEM_INT16 => by(cmp, seen as i16, expected as i16),
        RUSHMEM_UINT16 => by(cmp, seen as u16, expected as u16),
        _ => unreachable!("not generated"),
    }
}

/// An array of elements of `kind` in memory, aligned.
fn array(kind: i32, bits: &[u64]) -> Vec<u64> {
    let width = match kind {
        RUSHMEM_INT16 | RUSHMEM_UINT16 => 2,
        RUSHMEM_INT32 | RUSHMEM_UINT32 => 4,
        _ => 8,
    };
    // Little-endian: the low bytes come first.
    let bytes: Vec<u8> = bits.iter().flat_map(|b| b.to_le_bytes().into_iter().take(width)).collect();
    let word = |part: &[u8]| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        u64::from_le_bytes(word)
    };
    bytes.chunks(8).map(word).collect()
}

/// Bit patterns around the places where signs and widths matter, so that equal ones are common.
fn bits() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(u64::MAX),
        Just(i16::MAX as u64),
        Just(i16::MIN as u16 as u64),
        Just(u16::MAX as u64),
        Just(i32::MAX as u64),
        Just(i32::MIN as u32 as u64),
        Just(u32::MAX as u64),
        Just(1u64 << 32),
        Just(i64::MAX as u64),
        Just(1u64 << 63),
        any::<u64>(),
    ]
}

proptest! {
    #[test]
    fn all_any_and_some_agree_with_the_model(
        kind in prop_oneof![RUSHMEM_INT32..=RUSHMEM_UINT64, RUSHMEM_INT16..=RUSHMEM_UINT16],
        cmp in RUSHMEM_CMP_EQ..=RUSHMEM_CMP_LE,
        rows in prop::collection::vec((bits(), bits(), any::<bool>()), 0..12),
        one in bits(),
        with_status in any::<bool>(),
        vector in any::<bool>(),
        start in 0usize..12,
    ) {
        let n = rows.len();
        let words = array(kind, &rows.iter().map(|r| r.0).collect::<Vec<_>>());
        let values = array(kind, &rows.iter().map(|r| r.1).collect::<Vec<_>>());
        // Any non-zero status excludes.
        let status: Vec<i32> = rows.iter().enumerate().map(|(i, r)| if r.2 { i as i32 * 7 - 3 } else { 0 }).collect();
        let excluded = |i: usize| with_status && status[i] != 0;
        let expected = |i: usize| if vector { rows[i].1 } else { one };
        let model: Vec<usize> =
            (0..n).filter(|i| !excluded(*i) && compares(kind, cmp, rows[*i].0, expected(*i))).collect();
        let members = (0..n).filter(|i| !excluded(*i)).count();

        // SAFETY: all three arrays hold n elements and outlive the set.
        let set = unsafe {
            WaitSet::new(
                Integer::from_code(kind).unwrap(),
                words.as_ptr().cast(),
                n,
                if with_status { status.as_ptr() } else { std::ptr::null() },
                comparison(cmp).unwrap(),
                if vector { Expected::Each(values.as_ptr().cast()) } else { Expected::One(one) },
            )
        };
        prop_assert_eq!(set.some().collect::<Vec<_>>(), model.clone());
        prop_assert_eq!(set.first_unmet(0) == n, model.len() == members);
        prop_assert_eq!(set.no_members(), members == 0);
        prop_assert_eq!(set.members().count(), members);
        let found = set.any(start);
        // The first satisfied word at or after `start`, else the first before it.
        let want = model.iter().find(|i| **i >= start).or(model.first()).copied();
        prop_assert_eq!(found, want);
    }

    #[test]
    fn extents_agree_with_wide_arithmetic(
        n in prop_oneof![0usize..20, any::<usize>()],
        stride in prop_oneof![1isize..20, any::<isize>()],
        elem in prop_oneof![0usize..20, any::<usize>()],
    ) {
        let shape = Strides { dst_stride: stride, src_stride: 1, elem, n };
        let got = shape.extent("destination", stride);
        if elem == 0 || stride < 1 {
            prop_assert_eq!(got.unwrap_err().code, RUSHMEM_ERR_INVALID_ARGUMENT);
        } else {
            // Saturating: two 64-bit factors and one more may pass even u128.
            let wide = if n == 0 { 0 } else { ((n as u128 - 1) * stride as u128 + 1).saturating_mul(elem as u128) };
            match got {
                Ok(bytes) => prop_assert_eq!(bytes as u128, wide),
                Err(e) => {
                    prop_assert_eq!(e.code, RUSHMEM_ERR_INVALID_ARGUMENT);
                    prop_assert!(wide > isize::MAX as u128, "refused {wide} bytes");
                }
            }
        }
    }

    #[test]
    fn strided_copies_move_their_elements_and_nothing_else(
        n in 0usize..9,
        dst_stride in 1isize..5,
        src_stride in 1isize..5,
        elem in prop_oneof![1usize..20, Just(32usize)],
        dst_skew in 0usize..9,
        src_skew in 0usize..9,
        seed in any::<u8>(),
    ) {
        let shape = Strides { dst_stride, src_stride, elem, n };
        let src_bytes = shape.extent("source", src_stride).unwrap();
        let dst_bytes = shape.extent("destination", dst_stride).unwrap();
        let src: Vec<u8> = (0..src_skew + src_bytes).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect();
        let mut dst = vec![0xa5u8; dst_skew + dst_bytes + 8];
        let mut want = dst.clone();
        for i in 0..n {
            let (d, s) = (i * dst_stride as usize * elem + dst_skew, i * src_stride as usize * elem + src_skew);
            want[d..d + elem].copy_from_slice(&src[s..s + elem]);
        }
        // SAFETY: both vectors hold their extents behind the skew.
        unsafe { shape.copy(dst.as_mut_ptr().add(dst_skew), src.as_ptr().add(src_skew)) };
        prop_assert_eq!(dst, want);
    }

    #[test]
    fn a_movement_says_what_it_reads_and_writes(
        n in 0usize..9,
        dst_stride in 1usize..5,
        src_stride in 1usize..5,
        elem in 1usize..20,
        dst in 0usize..1000,
        src in 0usize..1000,
    ) {
        let read = |movement: Movement, first| {
            let mut found = vec![];
            movement.each_read(first, |at, bytes| found.push((at, bytes)));
            found
        };
        let written = |movement: Movement, first| {
            let mut found = vec![];
            movement.each_written(first, |at, bytes| found.push((at, bytes)));
            found
        };
        // Elements side by side are one range.
        let model = |first: usize, step: usize| -> Vec<_> {
            let (ranges, bytes) = if step == elem { (n.min(1), n * elem) } else { (n, elem) };
            (0..ranges).map(|i| (first + i * step, bytes)).collect()
        };
        let strides = Strides { dst_stride: dst_stride as isize, src_stride: src_stride as isize, elem, n };
        let elements = Movement::elements(dst, src, strides);
        // A put reads on this PE, a get on the other one.
        for (first_read, first_written) in [(src, dst), (dst, src)] {
            let from = model(first_read, src_stride * elem);
            let to = model(first_written, dst_stride * elem);
            prop_assert_eq!(elements.size(), n * elem);
            prop_assert_eq!(elements.is_empty(), n == 0);
            let end = |ranges: &[(usize, usize)], first| ranges.last().map_or(0, |(at, bytes)| at + bytes - first);
            prop_assert_eq!(elements.source_extent(), end(&from, first_read));
            prop_assert_eq!(elements.destination_extent(), end(&to, first_written));
            prop_assert_eq!(read(elements, first_read), from);
            prop_assert_eq!(written(elements, first_written), to);
        }
        let bytes = Movement::bytes(dst, src, n * elem);
        prop_assert_eq!((bytes.size(), bytes.is_empty()), (n * elem, n == 0));
        prop_assert_eq!((bytes.source_extent(), bytes.destination_extent()), (n * elem, n * elem));
        prop_assert_eq!(read(bytes, src), vec![(src, n * elem)]);
        prop_assert_eq!(written(bytes, dst), vec![(dst, n * elem)]);
    }

    #[test]
    fn updates_wrap_and_return_the_old_value(old in bits(), value in bits(), compare in bits(), swap_hits in any::<bool>()) {
        fn check<W: Word + PartialEq + std::fmt::Debug>(old: u64, value: u64, compare: u64) -> Result<(), TestCaseError> {
            let mask = W::from_bits(u64::MAX).bits();
            let model = |update| match update {
                Update::Fetch => old,
                Update::Set | Update::Swap => value,
                Update::CompareSwap => if old & mask == compare & mask { value } else { old },
                Update::Add => old.wrapping_add(value),
                Update::And => old & value,
                Update::Or => old | value,
                Update::Xor => old ^ value,
            };
            use Update::*;
            for update in [Fetch, Set, Swap, CompareSwap, Add, And, Or, Xor] {
                let mut word = W::from_bits(old);
                // SAFETY: a word of ours, aligned.
                let got = unsafe {
                    W::update((&raw mut word).cast(), update, W::from_bits(value), W::from_bits(compare))
                };
                prop_assert_eq!(word.bits(), model(update) & mask, "{:?}", update);
                let returned = if update == Set { value } else { old };
                prop_assert_eq!(got.bits(), returned & mask, "{:?}", update);
            }
            Ok(())
        }
        let compare = if swap_hits { old } else { compare };
        check::<u32>(old, value, compare)?;
        check::<u64>(old, value, compare)?;
    }
}

#[test]
fn operations_have_the_names_of_the_abi() {
    let bytes = Movement::bytes(0, 0, 8);
    let elements = Movement::elements(0, 0, Strides { dst_stride: 1, src_stride: 1, elem: 8, n: 1 });
    let names = |moved| {
        [Op::Put(moved), Op::Get(moved), Op::put_signal(moved, 0, SignalOp::Set(1))].map(|op| op.name())
    };
    assert_eq!(names(bytes), ["put", "get", "put_signal"]);
    assert_eq!(names(elements), ["iput", "iget", "iput_signal"]);
    let signalled = |bytes| Op::put_signal(Movement::bytes(0, 0, bytes), 0, SignalOp::Set(1)).simplified();
    assert_eq!([0, 1].map(|bytes| signalled(bytes).name()), ["signal_op", "put_signal"], "without data");
}

#[test]
fn an_unaligned_word_is_copied_all_the_same() {
    let src: Vec<u8> = (1..=32).collect();
    for skew in 0..8 {
        let mut dst = vec![0u8; 32];
        // SAFETY: eight bytes from `skew`, and from 7 - `skew`, lie inside both vectors.
        unsafe { copy_word::<u64>(dst.as_mut_ptr().add(skew), src.as_ptr().add(7 - skew)) };
        assert_eq!(dst[skew..skew + 8], src[7 - skew..15 - skew]);
        assert!(dst[..skew].iter().chain(&dst[skew + 8..]).all(|b| *b == 0));
    }
}

#[test]
fn unknown_constants_are_refused_by_name() {
    for code in [-1, 6, 99] {
        assert!(comparison(code).unwrap_err().message.contains(&code.to_string()));
        assert!(Integer::from_code(code).unwrap_err().message.contains(&code.to_string()));
        assert!(super::signal::SignalOp::from_code(code, 1).is_err());
    }
    assert!(Integer::from_code(RUSHMEM_FLOAT).is_err() && Integer::from_code(RUSHMEM_DOUBLE).is_err());
    assert!(
        super::atomic::AtomicOp::from_code(12).is_err() && super::atomic::AtomicOp::from_code(-1).is_err()
    );
}

#[test]
fn updates_travel_by_number_and_reach_the_gpu_by_code() {
    use crate::word::Update;
    let codes = [
        (Update::Fetch, RUSHMEM_ATOMIC_FETCH),
        (Update::Set, RUSHMEM_ATOMIC_SET),
        (Update::Swap, RUSHMEM_ATOMIC_SWAP),
        (Update::CompareSwap, RUSHMEM_ATOMIC_COMPARE_SWAP),
        (Update::Add, RUSHMEM_ATOMIC_ADD),
        (Update::And, RUSHMEM_ATOMIC_AND),
        (Update::Or, RUSHMEM_ATOMIC_OR),
        (Update::Xor, RUSHMEM_ATOMIC_XOR),
    ];
    for (update, code) in codes {
        assert_eq!(update.code(), code);
        assert_eq!(Update::from_number(update as u8), Some(update));
    }
    assert_eq!(Update::from_number(codes.len() as u8), None);
}

/// Of a private array only its place and length are known; one that no process can have is an error, and not
/// the end of the process.
#[test]
fn private_arrays_lie_where_a_process_has_addresses() {
    use super::check_private;
    let at = 0x7f00_0000_0000;
    for (place, bytes) in [(at, 0), (0, 0), (at, 1), (at, 1 << 40), ((1 << 57) - 8, 8)] {
        assert!(check_private("the source", place, bytes).is_ok(), "{place:#x} {bytes}");
    }
    let past = [(0, 1), (at, 1 << 48), (at, 1 << 62), (at, usize::MAX), (usize::MAX, 1), ((1 << 57) - 8, 9)];
    for (place, bytes) in past {
        assert!(check_private("the source", place, bytes).is_err(), "{place:#x} {bytes}");
    }
}
