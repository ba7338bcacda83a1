//! Collectives that the host calls: random ones against a serial model, of every type and operator, on arrays
//! of any memory; several teams at once; mistakes; PEs that die. (Over each way to other PEs in its turn:
//! `scripts/test`.)

use std::alloc::Layout;
use std::time::Duration;

use rushmem_test_support::api_common;

mod deaths;
mod gaps;
mod huge;
mod mistakes;
mod mixed;
mod model;
mod moments;
mod steps;

use api_common::{at_counts, at_counts_as, both, place, seed, seeded, Rng};
use model::{Inputs, Sample, WithOperator};
use rushmem::half::{bf16, f16};
use rushmem::testing::Pes;
use rushmem::{Complex, Sum, Team, World};
use steps::{Arena, Reduce, Step};

/// Bytes of the largest arrays: past what any round carries; less where each takes messages of a network.
fn most() -> usize {
    if place::all_mapped(4) {
        700 << 10
    } else {
        200 << 10
    }
}

/// Something that is done with every element type.
trait WithType {
    fn with<T: Sample>(&mut self);
}

fn every_type(with: &mut impl WithType) {
    with.with::<i8>();
    with.with::<u8>();
    with.with::<i16>();
    with.with::<u16>();
    with.with::<i32>();
    with.with::<u32>();
    with.with::<i64>();
    with.with::<u64>();
    with.with::<f32>();
    with.with::<f64>();
    with.with::<f16>();
    with.with::<bf16>();
    with.with::<Complex<f32>>();
    with.with::<Complex<f64>>();
}

impl<'w, T: Sample> Arena<'w, T> {
    fn new(world: &'w World, bytes: usize) -> Arena<'w, T> {
        let n = bytes / size_of::<T>() + 64;
        Arena { one: world.alloc(n).unwrap(), other: world.alloc(n).unwrap() }
    }
}

/// How many operators a type has.
struct Count(usize);

impl<T: Sample> WithOperator<T> for Count {
    fn with(&mut self, _: impl rushmem::Operator<T>, _: &'static str) {
        self.0 += 1;
    }
}

/// Calls of one team with elements of any type, of which one is chosen for each step.
struct AnyType<'a, 'w> {
    world: &'w World,
    team: Option<&'a Team<'w>>,
    /// The same on all PEs of the world.
    rng: Rng,
    /// How many types come before the one that is chosen.
    left: usize,
    moves: bool,
}

impl WithType for AnyType<'_, '_> {
    fn with<T: Sample>(&mut self) {
        let mine = self.left == 0;
        self.left = self.left.wrapping_sub(1);
        if !mine {
            return;
        }
        let arena = Arena::<T>::new(self.world, most());
        let mut count = Count(0);
        T::operators::<Count>(&mut count);
        let left = self.rng.below(count.0);
        if let Some(team) = self.team {
            let most = most() / size_of::<T>();
            let step = &mut Step { team, arena: &arena, rng: &mut self.rng, most };
            if self.moves {
                step.moves();
            } else {
                T::operators(&mut Reduce { step, left });
            }
        }
        arena.one.free().unwrap();
        arena.other.free().unwrap();
    }
}

/// Steps on parts of the world, in another order, and on the world.
fn random_steps(world: &World, rng: &mut Rng, steps: usize, moves: bool) {
    let n = world.n_pes();
    let reversed = world.team().split_strided(n - 1, -1, n).unwrap();
    let odd = rng.below(2) as u32;
    let part = world.team().split((world.my_pe().number() % 2 == odd).then_some(1), 0).unwrap();
    let all = world.team();
    for i in 0..steps {
        let team = match rng.below(4) {
            0 => Some(&all),
            1 => part.as_ref(),
            _ => reversed.as_ref(),
        };
        // What one team draws must not leave the others' generators behind.
        let left = rng.below(14);
        every_type(&mut AnyType { world, team, rng: rng.fork(i as u64), left, moves });
    }
    world.barrier_all().unwrap();
}

fn steps() -> usize {
    match (place::is_brief(), place::all_mapped(4)) {
        (false, true) => 40,
        (true, true) => 4,
        _ => 12,
    }
}

#[test]
fn random_moves_are_as_a_serial_model_has_them() {
    at_counts(&[1, 2, 3, 5], |world, rng| random_steps(world, rng, steps(), true));
}

#[test]
fn random_reductions_are_as_a_serial_model_has_them() {
    // Each type with each operator is a kernel, which takes NVRTC seconds. `every_type_has_its_operators` has
    // them all.
    let steps = if place::on_gpus() { steps().min(5) } else { steps() };
    at_counts(&[1, 2, 3, 5], |world, rng| random_steps(world, rng, steps, false));
}

/// Every type with every operator, once: of all of these one in [`PARTS`].
struct EveryOperator<'w> {
    world: &'w World,
    rng: Rng,
    part: usize,
    next: usize,
}

/// On GPUs each is a kernel, which takes NVRTC seconds where it was not compiled before.
const PARTS: usize = 4;

impl WithType for EveryOperator<'_> {
    fn with<T: Sample>(&mut self) {
        let mut count = Count(0);
        T::operators::<Count>(&mut count);
        let arena = Arena::<T>::new(self.world, 40 << 10);
        for left in 0..count.0 {
            self.next += 1;
            if self.next % PARTS != self.part {
                continue;
            }
            let team = &self.world.team();
            let step =
                &mut Step { team, arena: &arena, rng: &mut self.rng, most: (40 << 10) / size_of::<T>() };
            T::operators(&mut Reduce { step, left });
        }
        arena.one.free().unwrap();
        arena.other.free().unwrap();
    }
}

fn types_have_their_operators(part: usize) {
    let settings = |pes: Pes| if place::on_gpus() { pes.timeout(Duration::from_secs(240)) } else { pes };
    at_counts_as(&[3], settings, |world, rng| {
        every_type(&mut EveryOperator { world, rng: rng.fork(9u64), part, next: 0 });
    });
}

#[test]
fn every_type_has_its_operators_1_of_4() {
    types_have_their_operators(0);
}

#[test]
fn every_type_has_its_operators_2_of_4() {
    types_have_their_operators(1);
}

#[test]
fn every_type_has_its_operators_3_of_4() {
    types_have_their_operators(2);
}

#[test]
fn every_type_has_its_operators_4_of_4() {
    types_have_their_operators(3);
}

fn overlapping_teams(world: &World, rng: &mut Rng) {
    let n = world.n_pes();
    let teams = [
        world.team().split_strided(0, 1, n).unwrap(),
        world.team().split_strided(n - 1, -1, n).unwrap(),
        world.team().split(Some(world.my_pe().number() / 2), 0).unwrap(),
    ];
    let arenas = [0, 1, 2].map(|_| Arena::<f32>::new(world, 80 << 10));
    std::thread::scope(|scope| {
        for (i, (team, arena)) in teams.iter().zip(&arenas).enumerate() {
            let mut rng = rng.fork(i as u64);
            scope.spawn(move || {
                let Some(team) = team else { return };
                for left in 0..place::host_rounds(12) {
                    let step = &mut Step { team, arena, rng: &mut rng, most: (80 << 10) / 4 };
                    step.moves();
                    f32::operators(&mut Reduce { step, left: left % 4 });
                }
            });
        }
    });
    // Teams that are dropped wait for each other.
    world.barrier_all().unwrap();
}

/// Threads, each with a team of its own; the teams overlap.
#[test]
fn threads_call_collectives_of_teams_that_overlap_at_once() {
    at_counts(&[2, 4], overlapping_teams);
    if !place::on_gpus() {
        // The same where kernels do it.
        let pes = seeded(place::pes(2)).env("RUSHMEM_TEST_APART", "1");
        pes.threads(|world| overlapping_teams(world, &mut Rng::new(seed())));
    }
}

/// User memory that was registered is symmetric, too; a source may lie behind it, at any address.
#[test]
fn registered_memory_and_odd_addresses() {
    if place::on_gpus() {
        return place::skip("registered_memory_and_odd_addresses", "GPUs register memory of their own");
    }
    both(3, |world, rng| {
        const N: usize = 100_000;
        const PAGE: usize = 4096;
        let inputs = Inputs::new(rng);
        let me = world.my_pe().index();
        let pages = Layout::from_size_align((N + 1).next_multiple_of(PAGE), PAGE).unwrap();
        // SAFETY: a layout that is not empty; whole pages, which nobody else has until they are given back.
        let (own, registered) = unsafe {
            let own = std::alloc::alloc_zeroed(pages);
            (own, world.register(own, pages.size()).unwrap())
        };
        let heap = world.alloc::<u8>(N + 1).unwrap();
        let (to, from) = (registered.slice(1..).unwrap(), heap.slice(1..).unwrap());
        for n in [N, N - 1, 17, 1] {
            let (to, from) = (to.slice(..n).unwrap(), from.slice(..n).unwrap());
            let expected = inputs.folded::<u8>("sum", 0..3, n);
            from.write(&inputs.of(me, n)).unwrap();
            world.barrier_all().unwrap();
            world.team().reduce(&to, &from, Sum).unwrap();
            assert_eq!(to.to_vec().unwrap(), expected);
            world.team().reduce(&from, &to, Sum).unwrap();
            assert_eq!(
                from.to_vec().unwrap(),
                expected.iter().map(|x| x.wrapping_mul(3)).collect::<Vec<_>>()
            );
        }
        world.barrier_all().unwrap();
        registered.unregister().unwrap();
        // SAFETY: as it was made, and used no more.
        unsafe { std::alloc::dealloc(own, pages) };
    });
}

/// Heaps that the host cannot touch, as those of GPUs, on a machine that need not have any: what is symmetric
/// is moved where it lies, what is not goes through the host, and kernels combine the rest.
#[test]
fn heaps_that_the_host_cannot_touch() {
    if place::on_gpus() {
        return place::skip("heaps_that_the_host_cannot_touch", "on GPUs all tests here are of that");
    }
    for n in [1, 3] {
        seeded(place::pes(n)).env("RUSHMEM_TEST_APART", "1").threads(|world| {
            let mut rng = Rng::new(seed());
            random_steps(world, &mut rng, steps(), true);
            let arena = Arena::<f32>::new(world, 80 << 10);
            let team = &world.team();
            for _ in 0..steps() {
                // One operator: each is a kernel to compile.
                let step = &mut Step { team, arena: &arena, rng: &mut rng, most: (80 << 10) / 4 };
                f32::operators(&mut Reduce { step, left: 0 });
            }
            // What no kernel combines.
            let arena = Arena::<Complex<f64>>::new(world, 80 << 10);
            for _ in 0..4 {
                let step = &mut Step { team, arena: &arena, rng: &mut rng, most: (80 << 10) / 16 };
                Complex::<f64>::operators(&mut Reduce { step, left: 1 });
            }
            world.barrier_all().unwrap();
        });
    }
}

/// A large reduction, for GPUs' kernels where heaps are theirs, while a kernel and a stream make calls of the
/// same team: none of them meets another's.
#[test]
fn the_host_s_calls_meet_neither_a_kernel_s_nor_a_stream_s() {
    const N: usize = 30_000;
    both(2, |world, rng| {
        let inputs = Inputs::new(rng);
        let (me, team) = (world.my_pe().index(), world.team());
        let arrays = [0, 1, 2, 3].map(|_| world.alloc::<f32>(N).unwrap());
        let [from, to, other, there] = &arrays;
        let stream = world.stream().unwrap();
        team.prepare(&[rushmem::Prepared::reduce::<f32, _>(Sum)]).unwrap();
        let expected = inputs.folded::<f32>("sum", 0..2, N);
        from.write(&inputs.of(me, N)).unwrap();
        other.write(&inputs.of(me, N)).unwrap();
        world.barrier_all().unwrap();
        for round in 0..place::host_rounds(20) {
            // One PE's stream is ahead of its host, and the other's behind.
            if (me + round) % 2 == 0 {
                stream.reduce(&team, there, other, Sum).unwrap();
                team.reduce(to, from, Sum).unwrap();
            } else {
                team.reduce(to, from, Sum).unwrap();
                stream.reduce(&team, there, other, Sum).unwrap();
            }
            stream.synchronize().unwrap();
            assert_eq!(to.to_vec().unwrap(), expected);
            assert_eq!(there.to_vec().unwrap(), expected);
            to.fill(0.0).unwrap();
            there.fill(0.0).unwrap();
            world.barrier_all().unwrap();
        }
    });
}
