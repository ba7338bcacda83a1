//! Offsets past 4 GiB and counts past 2^31, in kernels at each scope and by the host. On the CPU device,
//! whose memory is everybody's, the same in small.

use rushmem_test_support::arguments::{BigCheck, BigTransfer, BigWords};

use crate::*;

const BIG: &str = kernels!("big.cu");
/// `BIG_*` of big.cu.
const PUT: i32 = 0;
const GET: i32 = 1;
const IPUT: i32 = 2;
const IGET: i32 = 3;
const PUT_SIGNAL: i32 = 4;

/// The sizes of the test, in bytes.
struct Sizes {
    /// More than 2^31, and no multiple of anything.
    many: usize,
    /// `many`, with room around it.
    room: usize,
}

impl Sizes {
    fn new() -> Self {
        let many = if on_gpus() { (1usize << 31) + 4099 } else { (1 << 18) + 4099 };
        Sizes { many, room: (many + 64).next_multiple_of(64) }
    }

    /// What each PE needs, in MiB: heaps grow by doubling, and there is more than the heap.
    fn mib(&self) -> u64 {
        ((6 * self.room as u64) >> 20) + 1024
    }
}

/// Two PEs with three large allocations each: the last is past 4 GiB.
struct Scene<'w> {
    bench: Bench<'w>,
    sizes: Sizes,
    src: SymSlice<'w, u8>,
    dst: SymSlice<'w, u8>,
    last: SymSlice<'w, u64>,
    first: SymSlice<'w, u8>,
}

/// Enough blocks to fill and check quickly.
fn wide() -> Launch {
    match on_gpus() {
        true => Launch::new(128, 512),
        false => Launch::new(2, 64),
    }
}

impl<'w> Scene<'w> {
    fn new(world: &'w World) -> Self {
        let sizes = Sizes::new();
        let bench = Bench::new(world, BIG);
        let first = world.alloc::<u8>(64).unwrap();
        let src = world.alloc_aligned::<u8>(sizes.room, 64).unwrap();
        let dst = world.alloc_aligned::<u8>(sizes.room, 64).unwrap();
        let last = world.alloc_aligned::<u64>(sizes.room / 8, 64).unwrap();
        let far = last.as_ptr() as usize - first.as_ptr() as usize;
        assert!(!on_gpus() || far > 1 << 32, "the last one is {far:#x} bytes past the first");
        Scene { bench, sizes, src, dst, last, first }
    }

    fn fill(&self, seed: u64) {
        self.bench.run("big_fill", wide(), (&self.src, self.sizes.room, seed));
    }

    /// `dst` has `n` bytes of `pe`'s, at `to` what is there at `from`, and zeros around them; then it is
    /// zeroed.
    #[track_caller]
    fn check(&self, to: usize, from: usize, n: usize, seed: u64, pe: Pe) {
        let (room, pe) = (self.sizes.room, pe.number() as i32);
        let check = BigCheck { before: to, n, room, from, seed, pe };
        self.bench.run("big_check", wide(), (&self.bench.report, &self.dst, ByValue(check)));
        self.bench.run("big_zero", wide(), (&self.dst, self.sizes.room));
    }
}

fn by_kernels(scene: &Scene<'_>, rng: &mut Rng) {
    let (world, many) = (scene.bench.world, scene.sizes.many);
    let (right, left, signal) = (world.right(), world.left(), world.signal().unwrap());
    let mut signals = 0;
    // A thread or a warp alone takes seconds for as much, as gets byte by byte do: they have the last bytes
    // only.
    let little = 100_003;
    for (op, scope, n, misaligned) in [
        (PUT, BLOCK, many, 0),
        (PUT, BLOCK, many, 3),
        (GET, BLOCK, many, 0),
        (PUT_SIGNAL, BLOCK, many, 5),
        (IPUT, BLOCK, many, 0),
        (IGET, BLOCK, little, 1),
        (PUT, THREAD, little, 1),
        (GET, THREAD, little, 0),
        (PUT, WARP, little, 0),
        (GET, WARP, little, 7),
        (PUT_SIGNAL, THREAD, little, 0),
    ] {
        let (seed, at) = (rng.next(), many - n);
        scene.fill(seed);
        let (dst, src) = (scene.dst.slice(at + misaligned..).unwrap(), scene.src.slice(at..).unwrap());
        let transfer = BigTransfer { n, op, scope, pe: right.number() as i32 };
        scene.bench.run("big_transfer", Launch::new(1, 512), (&dst, &src, &signal, ByValue(transfer)));
        let from = if op == GET || op == IGET { right } else { left };
        if op == PUT_SIGNAL {
            signals += 1;
            assert_eq!(signal.fetch().unwrap(), signals);
        }
        scene.check(at + misaligned, at, n, seed, from);
    }
    let words = scene.last.len();
    let mine = world.alloc::<u64>(8).unwrap();
    for (at, far) in [(0, words - 3), (words / 2, words / 2 - 8), (words - 9, 5)] {
        scene.last.slice(at..at + 3).unwrap().fill(0).unwrap();
        let words = BigWords { at, far, seed: rng.next(), pe: right.number() as i32 };
        let args = (&scene.bench.report, &scene.last, &mine, ByValue(words));
        scene.bench.run("big_words", Launch::new(1, 1), args);
    }
}

fn by_the_host(scene: &Scene<'_>, rng: &mut Rng) {
    let (world, many) = (scene.bench.world, scene.sizes.many);
    let (right, left) = (world.right(), world.left());
    // From symmetric memory to symmetric memory: no buffer of the host's has to be as large.
    for form in 0..3 {
        let seed = rng.next();
        scene.fill(seed);
        let (dst, src) = (scene.dst.slice(..many).unwrap(), scene.src.slice(..many).unwrap());
        match form {
            0 => dst.put_from(&src, right).unwrap(),
            1 => src.get_into(&dst, right).unwrap(),
            _ => dst.put_from_nbi(&src, right).unwrap(),
        }
        world.barrier_all().unwrap();
        scene.check(0, 0, many, seed, if form == 1 { right } else { left });
    }
    // Words and bulk at the far end.
    let (last, me) = (&scene.last, u64::from(world.my_pe().number()));
    let end = last.len() - 1;
    world.barrier_all().unwrap();
    last.p(end, 1000 + me, right).unwrap();
    world.quiet().unwrap();
    assert_eq!(last.g(end, right).unwrap(), 1000 + me);
    assert_eq!(last.at(end, right).fetch_add(5).unwrap(), 1000 + me);
    let block: Vec<u64> = (0..5000).map(|i| i << 8 | me).collect();
    last.slice(end - 5000..end).unwrap().put(&block, right).unwrap();
    let mut back = vec![0; 5000];
    last.slice(end - 5000..end).unwrap().get(&mut back, right).unwrap();
    assert_eq!(back, block);
    let far = end / 2;
    last.iput(&[me + 7, me + 8], far, 1, 2, right).unwrap();
    let mut two = [0; 2];
    last.iget(&mut two, 1, far, 2, right).unwrap();
    assert_eq!(two, [me + 7, me + 8]);
    world.barrier_all().unwrap();
    assert_eq!(last.g(end, world.my_pe()).unwrap(), 1005 + u64::from(left.number()));
    // The first allocation is where it was, and nobody wrote to it.
    assert_eq!(scene.first.to_vec().unwrap(), [0; 64]);
    world.barrier_all().unwrap();
}

/// What is freed is used again: the heap does not grow for the same once more.
fn given_back(scene: Scene<'_>) {
    let world = scene.bench.world;
    let room = scene.sizes.room;
    let before = world.heap_info().unwrap();
    scene.dst.free().unwrap();
    scene.src.free().unwrap();
    scene.last.free().unwrap();
    assert!(world.heap_info().unwrap().used < before.used - 3 * room as u64 + 4096);
    let again = world.alloc_aligned::<u8>(3 * room, 64).unwrap();
    let after = world.heap_info().unwrap();
    assert!(after.committed <= before.committed, "{before:?} {after:?}");
    for at in [0, room, 3 * room - 8] {
        assert_eq!(
            again.slice(at..at + 8).unwrap().to_vec().unwrap(),
            [0; 8],
            "memory is zeroed, also when used again"
        );
    }
    again.free().unwrap();
}

fn enough_memory(test: &str) -> bool {
    if !on_gpus() {
        return true;
    }
    // Both on one GPU, or each on its own.
    let needed = Sizes::new().mib() * if gpus() < 2 { 2 } else { 1 };
    let Some(memory) = memory::of_gpus(test) else { return true };
    match memory.iter().map(|(_, free)| *free).min() {
        Some(free) if free < needed => {
            skip(test, format_args!("it needs {needed} MiB of a GPU, of which {free} are free"));
            false
        }
        _ => true,
    }
}

/// Two PEs, as processes where each has a GPU, and as threads.
fn on_two(test: &str, f: impl Fn(Scene<'_>, &mut Rng) + Sync) {
    if enough_memory(test) {
        both(2, |world, rng| f(Scene::new(world), rng));
    }
}

#[test]
fn kernels_move_more_than_two_to_the_31_elements() {
    on_two("kernels_move_more_than_two_to_the_31_elements", |scene, rng| by_kernels(&scene, rng));
}

#[test]
fn the_host_moves_more_than_two_to_the_31_elements() {
    on_two("the_host_moves_more_than_two_to_the_31_elements", |scene, rng| {
        by_the_host(&scene, rng);
        given_back(scene);
    });
}
