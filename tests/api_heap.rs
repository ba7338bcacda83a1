//! The symmetric heap: zeroed, aligned, reused, growing, exhausted, and refused where PEs disagree; and user
//! memory that becomes symmetric.

use rushmem::{ErrorCode, World};
use rushmem_test_support::api_common::place::{on_gpus, pes};
use rushmem_test_support::api_common::{apart_as, at_all_counts, both};

#[test]
fn allocations_are_zeroed_aligned_apart_and_at_one_offset_everywhere() {
    at_all_counts(|world, rng| {
        let mut live: Vec<(usize, usize, u8, rushmem::SymSlice<'_, u8>)> = Vec::new();
        let shared = world.alloc::<u64>(1).unwrap();
        for round in 0..60u64 {
            // The same choices on every PE: allocation is collective.
            let mut choice = rng.fork(round);
            if choice.below(3) == 0 && !live.is_empty() {
                let (_, n, mark, slice) = live.swap_remove(choice.below(live.len()));
                assert!(slice.to_vec().unwrap() == vec![mark; n], "an allocation keeps its contents");
                slice.free().unwrap();
                continue;
            }
            let n = [0, 1, 63, 64, 65, 4096, 5000, 100_000][choice.below(8)];
            let align = 1 << choice.below(15);
            let slice = world.alloc_aligned::<u8>(n, align).unwrap();
            assert_eq!((slice.len(), slice.bytes(), slice.is_empty()), (n, n, n == 0));
            let at = slice.as_ptr() as usize;
            assert!(n == 0 || at % align.max(1) == 0, "{n} bytes, {align} aligned, at {at:#x}");
            assert!(
                slice.to_vec().unwrap().iter().all(|b| *b == 0),
                "memory is zeroed, also when it was used before"
            );
            for (other, len, ..) in live.iter().filter(|_| n > 0) {
                assert!(at + n <= *other || other + len <= at, "allocations overlap");
            }
            // The distance from the first allocation is the same on every PE.
            let offset = (at as u64).wrapping_sub(shared.as_ptr() as u64);
            world.barrier_all().unwrap();
            shared.p(0, offset, world.right()).unwrap();
            world.barrier_all().unwrap();
            assert!(n == 0 || shared.to_vec().unwrap() == [offset]);
            let mark = choice.next() as u8;
            slice.fill(mark).unwrap();
            live.push((at, n, mark, slice));
        }
        world.barrier_all().unwrap();
    });
}

#[test]
fn types_are_aligned_and_numbers_add_up() {
    both(2, |world, _| {
        let before = world.heap_info().unwrap();
        let one = world.alloc::<u128>(3).unwrap();
        assert_eq!(one.as_ptr() as usize % 64, 0);
        let two = world.alloc_aligned::<u128>(1, 1).unwrap();
        assert_eq!(two.as_ptr() as usize % align_of::<u128>(), 0);
        let during = world.heap_info().unwrap();
        assert_eq!(during.allocations, before.allocations + 2);
        assert!(during.used >= before.used + 64, "{before:?} {during:?}");
        assert!(during.committed <= during.max && during.used <= during.committed, "{during:?}");
        one.free().unwrap();
        two.free().unwrap();
        let after = world.heap_info().unwrap();
        assert_eq!((after.used, after.allocations), (before.used, before.allocations));
    });
}

#[test]
fn freed_memory_is_used_again() {
    both(2, |world, _| {
        let start = world.heap_info().unwrap();
        for _ in 0..200 {
            let slice = world.alloc::<u64>(1 << 16).unwrap();
            slice.p(0, 1, world.right()).unwrap();
            slice.free().unwrap();
        }
        let info = world.heap_info().unwrap();
        let grown = info.committed - start.committed;
        assert!(grown <= start.committed, "200 times 512 KiB, one after the other: {start:?} {info:?}");
    });
}

/// An allocation and a free are barriers, which complete what was put: it is there behind the one, and behind
/// the other it cannot meet the memory's next owner. Over a network a put returns before it has arrived.
#[test]
fn what_was_put_arrives_before_an_allocation_or_a_free_returns() {
    both(3, |world, rng| {
        for _ in 0..20 {
            let n = 1 + rng.below(1 << 18);
            let data: Vec<u32> = (0..n).map(|_| rng.next() as u32 | 1).collect();
            let first = world.alloc::<u32>(n).unwrap();
            first.put(&data, world.right()).unwrap();
            first.free().unwrap();
            let second = world.alloc::<u32>(n).unwrap();
            assert!(second.to_vec().unwrap().iter().all(|word| *word == 0), "{n}: a put into freed memory");
            world.barrier_all().unwrap();
            second.put(&data, world.right()).unwrap();
            let third = world.alloc::<u8>(1).unwrap();
            assert!(second.to_vec().unwrap() == data, "{n}: a put before an allocation");
            third.free().unwrap();
            second.free().unwrap();
        }
    });
}

#[test]
fn the_heap_grows_past_what_it_starts_with() {
    both(3, |world, rng| {
        let start = world.heap_info().unwrap();
        let mut slices = Vec::new();
        for i in 0..6u64 {
            let slice = world.alloc::<u64>((start.committed as usize / 8) << (i / 3)).unwrap();
            slice.fill(i + 1).unwrap();
            let last = slice.len() - 1;
            world.barrier_all().unwrap();
            slice.p(last, rng.fork(i).next() ^ u64::from(world.my_pe().number()), world.right()).unwrap();
            slices.push(slice);
        }
        world.barrier_all().unwrap();
        for (i, slice) in slices.iter().enumerate() {
            let all = slice.to_vec().unwrap();
            assert!(all[..all.len() - 1].iter().all(|w| *w == i as u64 + 1));
            assert_eq!(*all.last().unwrap(), rng.fork(i as u64).next() ^ u64::from(world.left().number()));
        }
        let end = world.heap_info().unwrap();
        assert!(end.committed > 6 * start.committed, "{start:?} {end:?}");
        world.barrier_all().unwrap();
    });
}

#[test]
fn an_exhausted_heap_is_an_error_on_every_pe_and_the_job_goes_on() {
    apart_as(3, pes(3).env("RUSHMEM_HEAP_MAX", "8M"), |world| {
        let max = world.heap_info().unwrap().max;
        assert!(max >= 8 << 20, "{max}");
        let kept = world.alloc::<u8>(1 << 20).unwrap();
        for n in [max as usize, 1 << 40, usize::MAX / 2, usize::MAX] {
            let error = world.alloc::<u8>(n).unwrap_err();
            assert_eq!(error.code(), ErrorCode::HeapExhausted, "{n}: {error}");
        }
        let error = world.alloc::<u64>(usize::MAX / 4).unwrap_err();
        assert_eq!(error.code(), ErrorCode::HeapExhausted, "{error}");
        kept.put(&[5; 1 << 20], world.right()).unwrap();
        let more = world.alloc::<u8>(1 << 20).unwrap();
        assert!(more.to_vec().unwrap().iter().all(|b| *b == 0) && kept.to_vec().unwrap() == [5; 1 << 20]);
        world.barrier_all().unwrap();
    });
}

#[test]
fn pes_that_disagree_get_an_error_each_and_the_job_goes_on() {
    both(3, |world, _| {
        let odd = usize::from(world.my_pe().number() == 1);
        let error = world.alloc::<u8>(100 + odd).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Mismatch, "{error}");
        let error = world.alloc_aligned::<u8>(100, 64 << odd).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Mismatch, "{error}");
        let error = world.alloc_aligned::<u8>(100, 48).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
        let slice = world.alloc::<u8>(100).unwrap();
        slice.put(&[1; 100], world.right()).unwrap();
        world.barrier_all().unwrap();
        assert_eq!(slice.to_vec().unwrap(), [1; 100]);
        slice.free().unwrap();
    });
}

/// Anonymous memory of whole pages, unmapped at the end.
struct Pages(*mut u8, usize);

impl Pages {
    fn new(bytes: usize) -> Self {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh mapping wherever there is room.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        Pages(at.cast(), bytes)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and the tests unregister it or end the world before.
        unsafe { libc::munmap(self.0.cast(), self.1) };
    }
}

#[test]
fn registered_memory_is_symmetric_and_becomes_ordinary_again() {
    if on_gpus() {
        return host_memory_is_refused();
    }
    at_all_counts(|world, rng| {
        let page = 4096;
        for pages in [1, 3, 64] {
            let memory = Pages::new(pages * page);
            let n = pages * page / 8;
            let data = |pe: rushmem::Pe| rng.fork(u64::from(pe.number()) << 16 | pages as u64).words(n);
            for (i, word) in data(world.my_pe()).into_iter().enumerate() {
                // SAFETY: inside the mapping, which nobody else knows yet.
                unsafe { memory.0.cast::<u64>().add(i).write(word) };
            }
            // SAFETY: mapped until after unregister, and only used through `region` until then.
            let region = unsafe { world.register(memory.0.cast::<u64>(), n) }.unwrap();
            assert_eq!(region.len(), n);
            assert!(region.to_vec().unwrap() == data(world.my_pe()), "the contents stay");
            let mut left = vec![0; n];
            region.get(&mut left, world.left()).unwrap();
            assert!(left == data(world.left()), "peers see them");
            world.barrier_all().unwrap();
            region.at(n - 1, world.right()).set(u64::from(world.my_pe().number())).unwrap();
            region.slice(..n / 2).unwrap().put(&vec![7; n / 2], world.right()).unwrap();
            world.barrier_all().unwrap();
            region.unregister().unwrap();

            let mut expected = data(world.my_pe());
            expected[..n / 2].fill(7);
            expected[n - 1] = u64::from(world.left().number());
            // SAFETY: ordinary memory again.
            let seen = unsafe { std::slice::from_raw_parts(memory.0.cast::<u64>(), n) };
            assert!(seen == expected, "peers' writes stay");
        }
        let slice = world.alloc::<u8>(10).unwrap();
        slice.free().unwrap();
    });
}

/// A job on GPUs has no heap in which host memory could be symmetric.
fn host_memory_is_refused() {
    both(2, |world, _| {
        let memory = Pages::new(4096);
        // SAFETY: refused.
        let error = unsafe { world.register(memory.0, 4096) }.map(drop).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Unsupported, "{error}");
        assert!(error.message().contains("host memory"), "{error}");
        // The job goes on.
        let slice = world.alloc::<u8>(10).unwrap();
        slice.put(&[3; 10], world.right()).unwrap();
        world.barrier_all().unwrap();
        assert_eq!(slice.to_vec().unwrap(), [3; 10]);
        slice.free().unwrap();
    });
}

#[test]
fn memory_that_cannot_be_registered_is_refused() {
    both(2, |world, _| {
        let memory = Pages::new(3 * 4096);
        // SAFETY: as far as it is accepted, mapped until the end of the world and not used.
        let refuse = |at: *mut u8, n| unsafe { world.register(at, n) }.map(drop).unwrap_err().code();
        // With a heap in a GPU's memory no host memory will do, whatever its address.
        let why = if on_gpus() { ErrorCode::Unsupported } else { ErrorCode::InvalidArgument };
        assert_eq!(refuse(memory.0.wrapping_add(8), 4096), why);
        assert_eq!(refuse(memory.0, 100), why);
        let pages = 1 + world.my_pe().number() as usize;
        assert_eq!(refuse(memory.0, pages * 4096), ErrorCode::Mismatch);
        world.barrier_all().unwrap();
    });
}

#[test]
fn slices_can_be_used_by_several_threads() {
    let world = World::init().unwrap();
    let slice = world.alloc::<u64>(64).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let slice = &slice;
            scope.spawn(move || {
                (0..1000).for_each(|i| slice.at(i % 64, world_pe()).add(thread + 1).unwrap());
            });
        }
    });
    assert_eq!(slice.to_vec().unwrap().iter().sum::<u64>(), 1000 * (1 + 2 + 3 + 4));
    world.finalize().unwrap();

    fn world_pe() -> rushmem::Pe {
        rushmem::Pe::new(0)
    }
}
