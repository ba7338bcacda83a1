//! put, get, p, g, iput, iget and the non-blocking forms, between every pair of neighbours, at the sizes
//! where the library changes its way: against data that the receiver makes again by itself.

use rushmem::zerocopy::{FromBytes, Immutable, IntoBytes};
use rushmem::{Device, ErrorCode, Pe, Symmetric, World};
use rushmem_test_support::api_common::place::{all_mapped, skip};
use rushmem_test_support::api_common::{at_all_counts, both, Rng};

/// Around every power of two where a copy may change its way, and everything small.
fn sizes() -> impl Iterator<Item = usize> {
    let around = [32usize, 64, 128, 256, 512, 1024, 4096, 65536, 1 << 20];
    (0..=24).chain(around.into_iter().flat_map(|n| [n - 1, n, n + 1]))
}

#[test]
fn puts_and_gets_of_every_size_and_alignment_arrive_and_touch_nothing_else() {
    at_all_counts(|world, rng| {
        const GUARD: usize = 40;
        let memory = world.alloc::<u8>((1 << 20) + 1 + 2 * GUARD).unwrap();
        for (round, n) in sizes().enumerate() {
            let mut here = rng.fork(round as u64);
            let offset = GUARD - here.below(17);
            let data = |pe: Pe| rng.fork((round as u64) << 32 | u64::from(pe.number())).bytes(n);
            let target = memory.slice(offset..offset + n).unwrap();
            let frame = memory.slice(..offset + n + GUARD).unwrap();
            frame.fill(0xa5).unwrap();
            world.barrier_all().unwrap();
            target.put(&data(world.my_pe()), world.right()).unwrap();
            world.barrier_all().unwrap();

            let seen = frame.to_vec().unwrap();
            assert!(seen[..offset].iter().all(|b| *b == 0xa5), "{n} bytes at {offset}: before");
            assert!(seen[offset + n..].iter().all(|b| *b == 0xa5), "{n} bytes at {offset}: behind");
            assert!(seen[offset..offset + n] == data(world.left())[..], "{n} bytes at {offset}");

            // What the right-hand PE now holds is what was put there.
            let mut back = vec![0; n];
            target.get(&mut back, world.right()).unwrap();
            assert!(back == data(world.my_pe()), "get of {n} bytes at {offset}");
            world.barrier_all().unwrap();
        }
    });
}

#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Particle {
    position: [f32; 3],
    charge: i32,
    name: [u8; 5],
    more: [u8; 3],
}

/// p and g of one type: every element of the right-hand PE, from values that it can make again.
fn words_of<T: Symmetric + PartialEq + std::fmt::Debug>(world: &World, rng: &Rng) {
    const N: usize = 13;
    let name = std::any::type_name::<T>();
    let slice = world.alloc::<T>(N).unwrap();
    let value = |pe: Pe, i: usize| {
        // No NaNs: they would not equal themselves.
        let bytes = rng.fork(u64::from(pe.number()) << 8 | i as u64).bytes(size_of::<T>());
        T::read_from_bytes(&bytes.iter().map(|b| b & 0x3f).collect::<Vec<_>>()).unwrap()
    };
    for i in 0..N {
        slice.p(i, value(world.my_pe(), i), world.right()).unwrap();
        slice
            .at(i, world.right())
            .g()
            .map(|seen| assert_eq!(seen, value(world.my_pe(), i), "{name}"))
            .unwrap();
    }
    world.barrier_all().unwrap();
    for (i, seen) in slice.to_vec().unwrap().into_iter().enumerate() {
        assert_eq!(seen, value(world.left(), i), "{name} {i}");
    }
    world.pes().for_each(|pe| {
        let before = world.pe((pe.number() + world.n_pes() - 1) % world.n_pes()).unwrap();
        assert_eq!(slice.g(N - 1, pe).unwrap(), value(before, N - 1), "{name}");
    });
    world.barrier_all().unwrap();
    slice.free().unwrap();
}

#[test]
fn single_elements_of_every_type_arrive() {
    at_all_counts(|world, rng| {
        words_of::<u8>(world, rng);
        words_of::<i16>(world, rng);
        words_of::<u32>(world, rng);
        words_of::<f32>(world, rng);
        words_of::<u64>(world, rng);
        words_of::<f64>(world, rng);
        words_of::<i128>(world, rng);
        words_of::<[u8; 8]>(world, rng);
        words_of::<[u8; 3]>(world, rng);
        words_of::<[u64; 3]>(world, rng);
        words_of::<Particle>(world, rng);
    });
}

#[test]
fn strided_copies_agree_with_a_plain_loop() {
    at_all_counts(|world, rng| {
        const LEN: usize = 120;
        let slice = world.alloc::<u32>(LEN).unwrap();
        for round in 0..60u64 {
            let mut choice = rng.fork(round);
            let (dst_stride, src_stride) = (1 + choice.below(5), 1 + choice.below(5));
            let n = choice.below(LEN.div_ceil(dst_stride.max(src_stride)) + 1);
            let data = |pe: Pe| -> Vec<u32> {
                let words = rng.fork(round << 32 | u64::from(pe.number())).words(LEN);
                words.into_iter().map(|word| word as u32).collect()
            };
            slice.fill(7).unwrap();
            world.barrier_all().unwrap();
            slice.iput(&data(world.my_pe()), dst_stride, src_stride, n, world.right()).unwrap();
            world.barrier_all().unwrap();
            let (mut expected, from) = (vec![7; LEN], data(world.left()));
            (0..n).for_each(|i| expected[i * dst_stride] = from[i * src_stride]);
            assert_eq!(slice.to_vec().unwrap(), expected, "iput {n} at {dst_stride}/{src_stride}");

            world.barrier_all().unwrap();
            slice.write(&data(world.my_pe())).unwrap();
            world.barrier_all().unwrap();
            let (mut got, mut expected, from) = (vec![9; LEN], vec![9; LEN], data(world.right()));
            slice.iget(&mut got, dst_stride, src_stride, n, world.right()).unwrap();
            (0..n).for_each(|i| expected[i * dst_stride] = from[i * src_stride]);
            assert_eq!(got, expected, "iget {n} at {dst_stride}/{src_stride}");
            world.barrier_all().unwrap();
        }
    });
}

#[test]
fn symmetric_to_symmetric_and_non_blocking_forms_arrive_by_the_quiet() {
    at_all_counts(|world, rng| {
        for n in [0, 1, 7, 64, 1000, 100_000] {
            let data = |pe: Pe| rng.fork(n as u64 ^ u64::from(pe.number()) << 40).words(n);
            let (src, dst) = (world.alloc::<u64>(n).unwrap(), world.alloc::<u64>(n).unwrap());
            let mine = data(world.my_pe());
            let check = |what: &str, slice: &rushmem::SymRef<'_, u64>, from: Pe| {
                world.barrier_all().unwrap();
                assert!(slice.to_vec().unwrap() == data(from), "{what} of {n} words");
                world.barrier_all().unwrap();
                slice.fill(0).unwrap();
                world.barrier_all().unwrap();
            };
            src.write(&mine).unwrap();
            world.barrier_all().unwrap();
            dst.put_from(&src, world.right()).unwrap();
            check("put_from", &dst, world.left());
            dst.put_from_nbi(&src, world.right()).unwrap();
            check("put_from_nbi", &dst, world.left());
            src.get_into(&dst, world.right()).unwrap();
            check("get_into", &dst, world.right());
            src.get_into_nbi(&dst, world.left()).unwrap();
            world.quiet().unwrap();
            check("get_into_nbi", &dst, world.left());

            let mut back = vec![0; n];
            world
                .nbi(|scope| {
                    scope.get(&src, &mut back, world.left())?;
                    scope.put(&dst, &mine, world.right())
                })
                .unwrap();
            assert!(back == data(world.left()), "scope.get of {n} words");
            check("scope.put", &dst, world.left());

            let mut back = vec![0; n];
            // SAFETY: both buffers live untouched until the quiet.
            unsafe {
                dst.put_nbi(&mine, world.right()).unwrap();
                src.get_nbi(&mut back, world.right()).unwrap();
            }
            world.quiet().unwrap();
            assert!(back == data(world.right()), "get_nbi of {n} words");
            check("put_nbi", &dst, world.left());
        }
    });
}

#[test]
fn a_nbi_scope_belongs_to_one_world() {
    let (one, other) = (World::init().unwrap(), World::init().unwrap());
    let (memory, source) = (other.alloc::<u8>(4).unwrap(), [1; 4]);
    let error = one.nbi(|scope| scope.put(&memory, &source, other.my_pe())).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert_eq!(memory.to_vec().unwrap(), [0; 4]);
    one.finalize().unwrap();
    other.finalize().unwrap();
}

#[test]
fn peers_memory_is_mapped_where_ptr_at_says() {
    if !all_mapped(3) {
        return skip("peers_memory_is_mapped_where_ptr_at_says", "memory of these PEs is not mapped");
    }
    both(3, |world, _| {
        let slice = world.alloc::<u64>(5).unwrap();
        slice.fill(u64::from(world.my_pe().number()) + 10).unwrap();
        world.barrier_all().unwrap();
        let at = |pe: Pe| slice.ptr_at(pe).expect("all PEs of this host are mapped");
        // One distance from each PE to the next.
        let stride = at(Pe::new(1)) as usize - at(Pe::new(0)) as usize;
        assert_eq!(at(Pe::new(2)) as usize - at(Pe::new(1)) as usize, stride);
        assert!(stride >= slice.bytes());
        for pe in world.pes() {
            let there = at(pe);
            // What is a GPU's is for kernels (tests/kernels/elements.cu).
            if world.device() == Device::Cpu {
                // SAFETY: mapped, five elements long, and nobody writes between the barriers.
                assert_eq!(unsafe { there.add(4).read_volatile() }, u64::from(pe.number()) + 10);
            }
            assert_eq!(slice.g(4, pe).unwrap(), u64::from(pe.number()) + 10);
        }
        assert_eq!(slice.ptr_at(world.my_pe()), Some(slice.as_ptr()));
        assert_eq!(slice.ptr_at(Pe::new(3)), None);
        world.barrier_all().unwrap();
    });
}

#[test]
fn bad_input_is_an_error_that_writes_nothing_and_leaves_the_job_usable() {
    both(2, |world, _| {
        let slice = world.alloc::<u32>(8).unwrap();
        slice.fill(1).unwrap();
        world.barrier_all().unwrap();
        let (right, nobody) = (world.right(), Pe::new(2));
        let part = slice.slice(2..6).unwrap();
        let code = |result: rushmem::Result<()>| result.unwrap_err().code();

        for pe in [nobody, Pe::new(u32::MAX), Pe::new(1 << 31)] {
            assert_eq!(code(slice.put(&[2; 8], pe)), ErrorCode::BadPe);
            assert_eq!(code(slice.put(&[], pe)), ErrorCode::BadPe);
            assert_eq!(code(slice.get(&mut [2; 8], pe)), ErrorCode::BadPe);
            assert_eq!(code(slice.p(0, 2, pe)), ErrorCode::BadPe);
            assert_eq!(code(slice.g(0, pe).map(drop)), ErrorCode::BadPe);
            assert_eq!(code(slice.iput(&[2; 8], 1, 1, 8, pe)), ErrorCode::BadPe);
            assert_eq!(code(slice.put_from(&slice, pe)), ErrorCode::BadPe);
            assert_eq!(code(world.nbi(|scope| scope.put(&slice, &[2; 8], pe))), ErrorCode::BadPe);
            assert_eq!(world.pe(pe.number()).map(drop).map_err(|e| e.code()), Err(ErrorCode::BadPe));
            assert_eq!(world.peer(pe).map(drop).map_err(|e| e.code()), Err(ErrorCode::BadPe));
        }
        for n in [5, 6, 8] {
            assert_eq!(code(part.put(&vec![2; n], right)), ErrorCode::OutOfBounds);
            assert_eq!(code(part.get(&mut vec![2; n], right)), ErrorCode::OutOfBounds);
            assert_eq!(
                code(world.nbi(|scope| scope.put(&part, &[2; 8][..n], right))),
                ErrorCode::OutOfBounds
            );
        }
        assert_eq!(code(part.put_from(&slice, right)), ErrorCode::OutOfBounds);
        assert_eq!(code(slice.get_into(&part, right)), ErrorCode::OutOfBounds);
        for index in [4, 5, usize::MAX, usize::MAX / 4] {
            assert_eq!(code(part.p(index, 2, right)), ErrorCode::OutOfBounds);
            assert_eq!(code(part.g(index, right).map(drop)), ErrorCode::OutOfBounds);
        }
        assert_eq!(code(slice.iput(&[2; 8], 3, 1, 4, right)), ErrorCode::OutOfBounds);
        assert_eq!(code(slice.iput(&[2; 3], 1, 1, 4, right)), ErrorCode::OutOfBounds);
        assert_eq!(code(slice.iput(&[2; 8], usize::MAX / 2, 1, 4, right)), ErrorCode::OutOfBounds);
        assert_eq!(code(slice.iput(&[2; 8], 0, 1, 4, right)), ErrorCode::InvalidArgument);
        assert_eq!(code(slice.iget(&mut [2; 8], 1, 0, 4, right)), ErrorCode::InvalidArgument);
        #[allow(clippy::reversed_empty_ranges)]
        for bad in [slice.slice(3..2), slice.slice(7..9), slice.slice(9..9), slice.slice(..=usize::MAX)] {
            assert_eq!(code(bad.map(drop)), ErrorCode::OutOfBounds);
        }
        let error = slice.p(8, 1, right).unwrap_err();
        assert!(
            error.message().contains('8') && error.to_string().contains("RUSHMEM_ERR_OUT_OF_BOUNDS"),
            "{error}"
        );
        let error = slice.p(0, 1, nobody).unwrap_err();
        assert!(error.message().contains("PE 2"), "{error}");

        world.barrier_all().unwrap();
        assert_eq!(slice.to_vec().unwrap(), [1; 8]);
        world.barrier_all().unwrap();
        slice.slice(8..).unwrap().put(&[], right).unwrap();
        slice.put(&[3; 8], right).unwrap();
        world.barrier_all().unwrap();
        assert_eq!(slice.to_vec().unwrap(), [3; 8]);
    });
}
