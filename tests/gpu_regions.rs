//! Memory of a GPU that the program made itself becomes symmetric: VMM memory, for kernels too, and that of
//! `cuMemAlloc`, for operations of the host. PEs are processes and threads, on as many GPUs as there are.

use std::time::Duration;

use rushmem::testing::{self, Exit};
use rushmem::{Cmp, ErrorCode, Launch, Pe, Registered, SignalOp, Source, SymSlice, Uid, World};
use rushmem_test_support::api_common::{at_counts, both, Rng};
use rushmem_test_support::gpu_memory::{skip, Gpu, Maker, Memory, Vmm};

const KERNELS: &str = r#"
#include <rushmem/rushmem.cuh>
/* By the symmetric address: to PE `right`'s copy. */
extern "C" __global__ void through_alias(uint64_t *region, size_t n, int right) {
  rushmem::put<rushmem::block>(region, region + n, n, right);
  if (threadIdx.x == 0) {
    rushmem::p(region + 2 * n, 7000u + rushmem::my_pe(), right);
    rushmem::atomic_add(region + 2 * n + 1, 5, right);
    rushmem::quiet();
  }
}
/* By addresses that the host asked for: a peer's copy, as if it were this PE's own. */
extern "C" __global__ void through_pointers(uint64_t *theirs, const uint64_t *mine, size_t n) {
  rushmem::put<rushmem::block>(theirs, mine + n, n, rushmem::my_pe());
  if (threadIdx.x == 0) {
    theirs[2 * n] = 7000u + rushmem::my_pe();
    rushmem::atomic_add(theirs + 2 * n + 1, 5, rushmem::my_pe());
    rushmem::quiet();
  }
}
/* Waits for what is there already: a PE's own copy is its own. */
extern "C" __global__ void wait_for(const uint64_t *word, uint64_t value) {
  rushmem::wait_until(word, rushmem::cmp::eq, value);
}
"#;

/// Contents of a PE's region that every PE can compute.
fn contents(rng: &Rng, pe: Pe, round: u64, n: usize) -> Vec<u64> {
    rng.fork(u64::from(pe.number()) << 8 | round).words(n)
}

/// What the host can do with a region, from every PE to every other.
fn use_from_the_host(world: &World, region: &Registered<'_, u64>, rng: &Rng, round: u64) {
    let (n, me, right, left) = (region.len(), world.my_pe(), world.right(), world.left());
    for pe in world.pes() {
        let mut theirs = vec![0; n];
        region.get(&mut theirs, pe).unwrap();
        assert!(theirs == contents(rng, pe, round, n), "the contents of {pe} are its own");
    }
    world.barrier_all().unwrap();

    // Bulk, across whatever pieces there are, and to the very end.
    let bulk = rng.fork(u64::from(me.number()) << 8 | 99).words(n - 16);
    let signal = world.signal().unwrap();
    region.slice(16..).unwrap().put_signal(&bulk, &signal, SignalOp::Set, 3, right).unwrap();
    signal.wait_until(Cmp::Eq, 3).unwrap();
    let expected = rng.fork(u64::from(left.number()) << 8 | 99).words(n - 16);
    assert!(region.to_vec().unwrap()[16..] == expected, "what {left} has put");
    world.barrier_all().unwrap();

    // Words: put, got, updated, waited for.
    region.p(0, 0x1234 + u64::from(me.number()), right).unwrap();
    region.at(1, right).set(40).unwrap();
    world.quiet().unwrap();
    world.barrier_all().unwrap();
    assert_eq!(region.g(0, me).unwrap(), 0x1234 + u64::from(left.number()));
    for pe in world.pes() {
        region.at(1, pe).add(2).unwrap();
    }
    region.wait_until(1, Cmp::Eq, 40 + 2 * u64::from(world.n_pes())).unwrap();
    world.barrier_all().unwrap();
    let last = n - 1;
    assert_eq!(region.at(last, right).swap(77).unwrap(), *bulk.last().unwrap());
    world.barrier_all().unwrap();
    assert_eq!(region.at(last, me).fetch().unwrap(), 77);
    let part = region.slice(2..10).unwrap();
    part.iput(&[1, 2, 3, 4], 2, 1, 4, right).unwrap();
    world.barrier_all().unwrap();
    let seen = part.to_vec().unwrap();
    assert_eq!([seen[0], seen[2], seen[4], seen[6]], [1, 2, 3, 4]);
    world.barrier_all().unwrap();
    signal.free().unwrap();
}

/// What kernels can do with it, by its symmetric address or by the addresses of its copies.
fn use_from_kernels(world: &World, gpu: &Gpu, region: &Registered<'_, u64>) {
    let (right, left) = (world.right(), world.left());
    let n = region.len() / 4;
    let mine: Vec<u64> = (0..n as u64).map(|i| i << 8 | u64::from(world.my_pe().number())).collect();
    let own = region.region() as usize;
    gpu.write(own + n * 8, &mine);
    gpu.write(own + 2 * n * 8, &[0u64, 0]);
    world.barrier_all().unwrap();

    let module = world.load(Source::text(KERNELS).name("regions.cu")).unwrap();
    let launch = Launch::new(1, 256);
    if region.in_kernels() {
        let kernel = module.kernel("through_alias").unwrap();
        // SAFETY: each PE writes the first quarter of its neighbour's region, and two words that nobody else
        // does.
        unsafe { kernel.launch(launch, (region, n, right.number() as i32)) }.unwrap();
    } else {
        let kernel = module.kernel("through_pointers").unwrap();
        let theirs = region.ptr_at(right).expect("every PE's memory is mapped here");
        // SAFETY: each PE writes the first quarter of its neighbour's region, and two words that nobody else
        // does.
        unsafe { kernel.launch(launch, (theirs, region.region(), n)) }.unwrap();
    }
    world.synchronize().unwrap();
    world.barrier_all().unwrap();

    // A wait by this PE's own address, whatever the kind.
    let kernel = module.kernel("wait_for").unwrap();
    let word = region.region().wrapping_add(2 * n + 1);
    // SAFETY: reads one word of this PE's own.
    unsafe { kernel.launch(Launch::new(1, 1), (word, 5u64)) }.unwrap();
    world.synchronize().unwrap();
    let seen: Vec<u64> = gpu.read(own, 2 * n + 2);
    let theirs: Vec<u64> = (0..n as u64).map(|i| i << 8 | u64::from(left.number())).collect();
    assert!(seen[..n] == theirs, "what the kernel of {left} has put");
    assert_eq!(seen[2 * n..], [7000 + u64::from(left.number()), 5]);
    module.unload().unwrap();
    world.barrier_all().unwrap();
}

/// A region at `at` through its life, twice, with words that stay after it.
fn through_its_life(world: &World, gpu: &Gpu, rng: &Rng, at: usize, n: usize, in_kernels: bool) {
    for round in 0..2 {
        gpu.write(at, &contents(rng, world.my_pe(), round, n));
        // SAFETY: the memory outlives the region, and is only used through it, or by copies that the test
        // orders.
        let region = unsafe { world.register(at as *mut u64, n) }.unwrap();
        assert_eq!((region.in_kernels(), region.region() as usize), (in_kernels, at));
        use_from_the_host(world, &region, rng, round);
        use_from_kernels(world, gpu, &region);
        region.p(0, 500 + round, world.right()).unwrap();
        world.quiet().unwrap();
        world.barrier_all().unwrap();
        region.unregister().unwrap();
        assert_eq!(gpu.read::<u64>(at, 1), [500 + round], "the contents stay");
    }
}

#[test]
fn vmm_memory_is_symmetric_for_hosts_and_kernels() {
    if skip("vmm_memory_is_symmetric_for_hosts_and_kernels") {
        return;
    }
    at_counts(&[1, 2, 3], |world, rng| {
        let gpu = Gpu::of(world);
        let piece = gpu.granularity();
        // Cut differently on each PE: six pieces' worth in all.
        let cuts: [&[usize]; 3] = [&[6], &[1, 5], &[2, 1, 3]];
        let sizes = cuts[world.my_pe().number() as usize % 3].iter().map(|k| k * piece);
        let memory = Vmm::new(&gpu, &sizes.collect::<Vec<_>>(), true);
        through_its_life(world, &gpu, rng, memory.at, memory.bytes / 8, true);
    });
}

#[test]
fn plain_memory_is_symmetric_for_hosts() {
    if skip("plain_memory_is_symmetric_for_hosts") {
        return;
    }
    at_counts(&[1, 2, 3], |world, rng| {
        let gpu = Gpu::of(world);
        // A small allocation, which shares the driver's block with others, and a large one; both inside,
        // elsewhere on each PE.
        let offset = 16 * (1 + world.my_pe().number() as usize);
        for words in [1000, (5 << 20) / 8 + 1] {
            let memory = Memory::new(&gpu, Maker::Plain, words * 8 + 4096);
            let neighbour = Memory::new(&gpu, Maker::Plain, 4096);
            gpu.write(neighbour.at, &[9u64; 512]);
            through_its_life(world, &gpu, rng, memory.at + offset, words, false);
            assert!(gpu.read::<u64>(neighbour.at, 512).iter().all(|w| *w == 9), "nothing beside is touched");
        }
    });
}

#[test]
fn several_regions_live_at_once() {
    if skip("several_regions_live_at_once") {
        return;
    }
    both(2, |world, _| {
        let gpu = Gpu::of(world);
        let (right, left) = (world.right(), u64::from(world.left().number()));
        let (one, two) = (Memory::new(&gpu, Maker::Plain, 8192), Memory::new(&gpu, Maker::Plain, 1 << 22));
        let vmm = Vmm::new(&gpu, &[gpu.granularity()], true);
        // Two of one allocation, one of another, one of another kind.
        let places = [one.at, one.at + 4096, two.at + (1 << 21), vmm.at];
        let register = |(i, at): (usize, &usize)| {
            let n = if i == 3 { vmm.bytes / 8 } else { 512 };
            // SAFETY: the memory outlives the regions, and is only used through them.
            unsafe { world.register(*at as *mut u64, n) }.unwrap()
        };
        let regions: Vec<_> = places.iter().enumerate().map(register).collect();
        for (i, region) in regions.iter().enumerate() {
            region
                .slice(..512)
                .unwrap()
                .put(&[100 * i as u64 + u64::from(world.my_pe().number()); 512], right)
                .unwrap();
        }
        world.barrier_all().unwrap();
        let check = |i: usize| {
            let seen: Vec<u64> = gpu.read(places[i], 512);
            assert!(seen.iter().all(|w| *w == 100 * i as u64 + left), "region {i}");
        };
        (0..4).for_each(check);
        world.barrier_all().unwrap();
        // In another order than they came; those that stay, stay.
        let mut regions: Vec<Option<Registered<'_, u64>>> = regions.into_iter().map(Some).collect();
        for i in [1, 3, 0, 2] {
            regions[i].take().unwrap().unregister().unwrap();
            for (k, region) in regions.iter().enumerate().filter_map(|(k, r)| Some((k, r.as_ref()?))) {
                assert_eq!(region.g(5, right).unwrap() / 100, k as u64);
            }
            world.barrier_all().unwrap();
        }
    });
}

#[test]
fn what_cannot_be_registered_is_refused_with_the_reason() {
    if skip("what_cannot_be_registered_is_refused_with_the_reason") {
        return;
    }
    both(2, |world, _| {
        let gpu = Gpu::of(world);
        let piece = gpu.granularity();
        let first = world.my_pe().number() == 0;
        // SAFETY: refused, or unregistered below.
        let refuse = |at: usize, bytes: usize, code: ErrorCode, word: &str| unsafe {
            let error = world.register(at as *mut u8, bytes).map(drop).unwrap_err();
            assert_eq!(error.code(), code, "{error}");
            assert!(error.message().contains(word), "`{word}` in: {error}");
        };
        let host = vec![0u64; 1024];
        refuse(host.as_ptr() as usize, 4096, ErrorCode::Unsupported, "host memory");
        refuse(8, 4096, ErrorCode::Unsupported, "host memory");
        refuse(0, 4096, ErrorCode::InvalidArgument, "no range");
        let pinned = Memory::new(&gpu, Maker::Pinned, 8192);
        refuse(pinned.at, 4096, ErrorCode::Unsupported, "pinned");
        let managed = Memory::new(&gpu, Maker::Managed, 8192);
        refuse(managed.at, 4096, ErrorCode::Unsupported, "managed");
        let pooled = Memory::new(&gpu, Maker::Pool, 8192);
        refuse(pooled.at, 4096, ErrorCode::Unsupported, "cuMemAlloc");

        let plain = Memory::new(&gpu, Maker::Plain, 4 * piece);
        refuse(plain.at + 8, 4096, ErrorCode::InvalidArgument, "multiple of 16");
        refuse(plain.at, 4 * piece + 4096, ErrorCode::InvalidArgument, "past the end");
        let size = if first { 4096 } else { 8192 };
        refuse(plain.at, size, ErrorCode::Mismatch, "size");

        let vmm = Vmm::new(&gpu, &[piece, 2 * piece], true);
        refuse(vmm.at, piece / 2, ErrorCode::InvalidArgument, "whole allocations");
        refuse(vmm.at + piece, piece, ErrorCode::InvalidArgument, "whole allocations");
        refuse(vmm.at, 2 * piece, ErrorCode::InvalidArgument, "whole allocations");
        let private = Vmm::new(&gpu, &[piece], false);
        refuse(private.at, piece, ErrorCode::Unsupported, "POSIX_FILE_DESCRIPTOR");
        let at = if first { vmm.at } else { plain.at };
        refuse(at, 3 * piece, ErrorCode::Mismatch, "VMM memory (cuMemCreate) on PE 0");

        // One PE's mistake fails the call on both; the other's error names it.
        let at = if first { plain.at } else { host.as_ptr() as usize };
        refuse(at, 4096, ErrorCode::Unsupported, if first { "PE 1" } else { "host memory" });

        // Twice, by either address, in part; and the heap itself.
        let heap: SymSlice<'_, u8> = world.alloc(4096).unwrap();
        refuse(heap.as_ptr() as usize, 4096, ErrorCode::InvalidArgument, "");
        for (at, bytes) in [(plain.at, 4096), (vmm.at, vmm.bytes)] {
            // SAFETY: only used through the region.
            let region = unsafe { world.register(at as *mut u8, bytes) }.unwrap();
            refuse(at, bytes, ErrorCode::InvalidArgument, "symmetric already");
            region.unregister().unwrap();
            // SAFETY: only used through the region.
            let again = unsafe { world.register(at as *mut u8, bytes) }.unwrap();
            again.unregister().unwrap();
        }
        if rushmem::gpus().unwrap().len() > 1 {
            let index = (gpu.index + 1) % 2;
            let other = Gpu { context: cudarc::driver::CudaContext::new(index).unwrap(), index };
            let theirs = Memory::new(&other, Maker::Plain, 8192);
            refuse(theirs.at, 4096, ErrorCode::InvalidArgument, &format!("memory of GPU {index}"));
            drop(theirs);
            gpu.context.bind_to_thread().unwrap();
        }
        // The job goes on.
        heap.put(&[5; 4096], world.right()).unwrap();
        world.barrier_all().unwrap();
        assert!(heap.to_vec().unwrap() == [5; 4096]);
        world.barrier_all().unwrap();
    });
}

#[test]
fn memory_freed_while_it_is_registered_is_an_error_of_unregister() {
    if skip("memory_freed_while_it_is_registered_is_an_error_of_unregister") {
        return;
    }
    // Alone, because CUDA does not say what becomes of peers' mappings.
    testing::pes(1).run(|world| {
        let gpu = Gpu::of(world);
        let memory = Memory::new(&gpu, Maker::Plain, 8 << 20);
        // SAFETY: nobody uses the region after the memory is gone.
        let region = unsafe { world.register(memory.at as *mut u64, 1 << 20) }.unwrap();
        region.p(3, 8, world.my_pe()).unwrap();
        world.quiet().unwrap();
        drop(memory);
        let error = region.unregister().unwrap_err();
        assert_eq!(error.code(), ErrorCode::BadAddress, "{error}");
        assert!(error.message().contains("freed"), "{error}");
        // It is unregistered all the same.
        let memory = Memory::new(&gpu, Maker::Plain, 8 << 20);
        // SAFETY: unregistered before the memory is gone.
        let region = unsafe { world.register(memory.at as *mut u64, 1 << 20) }.unwrap();
        region.unregister().unwrap();
    });
}

#[test]
fn regions_end_with_the_world_and_nothing_is_kept() {
    if skip("regions_end_with_the_world_and_nothing_is_kept") {
        return;
    }
    // The parent makes an ID for each world: three with regions, each followed by one that only looks.
    let uids: Vec<String> = (0..6).map(|_| Uid::create().unwrap().to_string()).collect();
    testing::pes(2).timeout(Duration::from_secs(120)).env("UIDS", uids.join(",")).supervise(
        |pe| {
            let uids = std::env::var("UIDS").unwrap();
            let mut uids = uids.split(',');
            let mut world = || {
                let uid = uids.next().unwrap().parse().unwrap();
                World::builder().uid(&uid, pe.number(), 2).init().unwrap()
            };
            let (big, mut free) = (512 << 20, Vec::new());
            for _ in 0..3 {
                let w = world();
                let gpu = Gpu::of(&w);
                let (plain, vmm) = (Memory::new(&gpu, Maker::Plain, big), Vmm::new(&gpu, &[big], true));
                for at in [plain.at, vmm.at] {
                    // SAFETY: the memory outlives the world, and is only used through the region.
                    let region = unsafe { w.register(at as *mut u64, big / 8) }.unwrap();
                    region.p(9, 1, w.right()).unwrap();
                    w.quiet().unwrap();
                }
                w.finalize().unwrap();
                drop((plain, vmm));
                let w = world();
                w.barrier_all().unwrap();
                free.push(gpu.free());
                w.barrier_all().unwrap();
                w.finalize().unwrap();
            }
            println!("free after each world: {free:?}");
            // The first world warms up what stays: the driver's own caches.
            assert!(free[2] + big / 2 > free[0], "{big} bytes twice in each world: {free:?}");
        },
        |job| job.outcomes().iter().for_each(|outcome| assert_eq!(outcome.exit, Exit::Done)),
    );
}
