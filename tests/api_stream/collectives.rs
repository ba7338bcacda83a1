//! Collectives on streams against their definition: random calls, sizes and teams, beside one another in slot
//! sets of their own, and together with kernels.

use rushmem::half::{bf16, f16};
use rushmem::{And, Complex, Max, Min, Operator, Or, Prod, SlotSet, Sum, Xor};
use rushmem::{SymRef, Team, TeamConfig};
use rushmem_test_support::api_common::place::on_gpus;
use rushmem_test_support::api_common::{apart_as, longer, seed, seeded};

use super::numbers::{reduced, Element};
use crate::*;

/// Elements of a block: nothing, parts of words, around what one phase of packets holds (1024 words, fewer on
/// larger teams), and past that.
const COUNTS: [usize; 14] = [0, 1, 2, 3, 5, 8, 33, 127, 128, 500, 1023, 1025, 2600, 5000];

/// What is to be looked at once the stream has come so far.
type Check<'w> = Box<dyn FnOnce() + 'w>;

/// A call: what it is given, and what it must leave.
struct Case<T> {
    what: String,
    source: Vec<T>,
    /// `None`: an element that the call leaves alone.
    expected: Vec<Option<T>>,
    /// The destination is the start of the source.
    in_place: bool,
    /// What lies in memory that nobody writes to.
    none: T,
}

/// Where calls are made.
struct Lane<'w> {
    world: &'w World,
    stream: &'w Stream<'w>,
    slots: SlotSet<'w>,
    me: usize,
    n: usize,
    seed: u64,
}

impl<'w> Lane<'w> {
    fn new(stream: &'w Stream<'w>, team: &'w Team<'w>, set: u32, seed: u64) -> Lane<'w> {
        let (me, n) = (team.my_pe() as usize, team.n_pes() as usize);
        Lane { world: stream.world(), stream, slots: team.on(set), me, n, seed }
    }

    fn random(&self, step: u64, part: usize) -> Rng {
        Rng::new(self.seed).fork(step << 16 | part as u64)
    }

    /// The elements of each member, the same on every PE.
    fn members<T>(&self, step: u64, len: usize, make: impl Fn(u64) -> T) -> Vec<Vec<T>> {
        let of = |m| {
            let mut rng = self.random(step, m);
            (0..len).map(|_| make(rng.next())).collect()
        };
        (0..self.n).map(of).collect()
    }

    /// Makes the call in memory of its own, which begins at some element and has room around. `most` elements
    /// on either side are enough for every member of every team.
    fn step<T: Symmetric + std::fmt::Debug + PartialEq>(
        &self,
        case: Case<T>,
        most: usize,
        call: impl FnOnce(&SymRef<'_, T>, &SymRef<'_, T>),
    ) -> Check<'w> {
        let Case { what, source, expected, in_place, none } = case;
        let world = self.world;
        let memory = || {
            let memory = world.alloc::<T>(most + 4).unwrap();
            memory.fill(none).unwrap();
            memory
        };
        let (src, dst) = (memory(), memory());
        let skip = self.random(most as u64, 777).below(4);
        let from = src.slice(skip..skip + source.len()).unwrap();
        from.write(&source).unwrap();
        let to = if in_place { &src } else { &dst };
        call(&to.slice(skip..skip + expected.len()).unwrap(), &from);
        let me = world.my_pe();
        Box::new(move || {
            let seen = if in_place { src.to_vec() } else { dst.to_vec() }.unwrap();
            let (first, last) = (skip, skip + expected.len());
            for (i, (seen, wanted)) in seen[first..last].iter().zip(&expected).enumerate() {
                let wanted = wanted.as_ref().unwrap_or(&none);
                assert!(
                    in_place && wanted == &none || seen.as_bytes() == wanted.as_bytes(),
                    "{what} on {me}: element {i} is {seen:?}, not {wanted:?}"
                );
            }
            let beside = seen[..first].iter().chain(&seen[last..]).all(|x| x.as_bytes() == none.as_bytes());
            assert!(in_place || beside, "{what} on {me}: something was written beside it");
            src.free().unwrap();
            dst.free().unwrap();
        })
    }

    /// reduce, reducescatter, inscan or exscan, by number.
    fn reduction<T: Element + PartialEq, Op: Operator<T> + std::fmt::Debug>(
        &self,
        step: u64,
        family: usize,
        op: Op,
        combine: fn(T::Sum, T::Sum) -> T::Sum,
    ) -> Check<'w> {
        let mut rng = self.random(step, 999);
        let n = COUNTS[rng.below(COUNTS.len())];
        let members = self.members(step, if family == 1 { n * self.n } else { n }, T::random);
        let (first, taken) = match family {
            0 => (0, 0..self.n),
            1 => (self.me * n, 0..self.n),
            2 => (0, 0..self.me + 1),
            _ => (0, 0..self.me),
        };
        let one = |i| reduced(members[taken.clone()].iter().map(|m| m[first + i]), combine);
        let name = ["reduce", "reducescatter", "inscan", "exscan"][family];
        let case = Case {
            what: format!("{name} {op:?} of {n} {}, step {step}", std::any::type_name::<T>()),
            expected: (0..n).map(|i| Some(one(i))).collect(),
            source: members[self.me].clone(),
            in_place: rng.below(3) == 0,
            none: T::new_zeroed(),
        };
        let (stream, slots) = (self.stream, self.slots);
        self.step(case, n * self.world.n_pes() as usize, |dst, src| {
            match family {
                0 => stream.reduce(slots, dst, src, op),
                1 => stream.reducescatter(slots, dst, src, op),
                2 => stream.inscan(slots, dst, src, op),
                _ => stream.exscan(slots, dst, src, op),
            }
            .unwrap();
        })
    }

    /// broadcast, fcollect, alltoall, collect, alltoalls or alltoallv, by number.
    fn movement<T: Symmetric + PartialEq + std::fmt::Debug>(
        &self,
        step: u64,
        family: usize,
        make: fn(u64) -> T,
    ) -> Check<'w> {
        let mut rng = self.random(step, 999);
        let count = COUNTS[rng.below(COUNTS.len())];
        let (me, n, pes) = (self.me, self.n, self.world.n_pes() as usize);
        // What member i has for member j, where sizes differ.
        let size = |i: usize, j: usize| match family {
            3 | 5 => self.random(step, 1000 + i * 64 + j).below(count + 1),
            _ => count,
        };
        let root = rng.below(64) % n;
        let in_place = rng.below(3) == 0 && matches!(family, 0 | 2);
        let (to, from) = if family == 4 { (1 + rng.below(3), 1 + rng.below(3)) } else { (1, 1) };
        let spread = |stride: usize| if count == 0 { 0 } else { (count * n - 1) * stride + 1 };
        let len = match family {
            0 | 1 => count,
            3 => size(me, 0),
            _ => spread(from),
        };
        let members = self.members(step, spread(3), make);
        let block =
            |m: usize, j: usize, size: usize| members[m][j * count..][..size].iter().copied().map(Some);
        let expected: Vec<Option<T>> = match family {
            0 => block(root, 0, count).collect(),
            1 => (0..n).flat_map(|m| block(m, 0, count)).collect(),
            2 => (0..n).flat_map(|m| block(m, me, count)).collect(),
            3 => (0..n).flat_map(|m| block(m, 0, size(m, 0))).collect(),
            4 => {
                let mut list = vec![None; spread(to)];
                for (m, k) in (0..n).flat_map(|m| (0..count).map(move |k| (m, k))) {
                    list[(m * count + k) * to] = Some(members[m][(me * count + k) * from]);
                }
                list
            }
            // The members' blocks lie backwards, in places for the largest ones.
            _ => (0..n)
                .rev()
                .flat_map(|m| block(m, me, size(m, me)).chain((size(m, me)..count).map(|_| None)))
                .collect(),
        };
        let name = ["broadcast", "fcollect", "alltoall", "collect", "alltoalls", "alltoallv"][family];
        let what = format!("{name} of {count} {}, step {step}", std::any::type_name::<T>());
        let source = members[me][..len].to_vec();
        let case = Case { what, source, expected, in_place, none: make(self.seed ^ 7) };
        let lists: Vec<_> =
            (0..if family == 5 { 4 } else { 0 }).map(|_| self.world.alloc::<u64>(pes).unwrap()).collect();
        let (stream, slots) = (self.stream, self.slots);
        let check = self.step(case, 3 * count * pes, |dst, src| {
            match family {
                0 => stream.broadcast(slots, dst, src, root as u32),
                1 => stream.fcollect(slots, dst, src),
                2 => stream.alltoall(slots, dst, src),
                // SAFETY: the destination is as long as all that the members send.
                3 => unsafe { stream.collect(slots, dst, src) },
                4 => stream.alltoalls(slots, dst, src, (to, from), count),
                _ => {
                    let list = |i: usize, of: &dyn Fn(usize) -> usize| {
                        let list = lists[i].slice(..n).unwrap();
                        list.write(&(0..n).map(|m| of(m) as u64).collect::<Vec<_>>()).unwrap();
                    };
                    list(0, &|m| (n - 1 - m) * count);
                    list(1, &|j| j * count);
                    list(2, &|j| size(me, j));
                    let here = |i: usize| lists[i].slice(..n).unwrap();
                    // SAFETY: places for the largest blocks, apart.
                    unsafe {
                        let to = (dst, &here(0), Some(&here(3)));
                        stream.alltoallv(slots, to, (src, &here(1), &here(2)))
                    }
                }
            }
            .unwrap();
        });
        let received: Vec<u64> = (0..n).map(|m| size(m, me) as u64).collect();
        Box::new(move || {
            check();
            if let Some(seen) = lists.get(3) {
                assert_eq!(seen.to_vec().unwrap()[..n], received);
            }
            lists.into_iter().for_each(|list| list.free().unwrap());
        })
    }

    /// Any of them.
    fn any(&self, step: u64) -> Check<'w> {
        match self.random(step, 555).below(10) {
            0 => self.movement(step, 0, |x| [x as u8, 5, 7]),
            1 => self.movement(step, 1, |x| x as u32),
            2 => self.movement(step, 2, |x| [x, !x]),
            3 => self.movement(step, 3, |x| x as u16),
            4 => self.movement(step, 4, |x| x as u16),
            5 => self.movement(step, 5, |x| x as u16),
            6 => self.reduction::<f64, _>(step, 0, Sum, |a, b| a + b),
            7 => self.reduction::<i8, _>(step, 1, Max, i8::max),
            8 => self.reduction::<u32, _>(step, 2, Xor, |a, b| a ^ b),
            _ => self.reduction::<f32, _>(step, 3, Prod, |a, b| a * b),
        }
    }
}

/// Random collectives on one stream, of which several are under way before it is waited for.
fn random(world: &World, rng: &mut Rng, steps: u64) {
    let (stream, team) = (world.stream().unwrap(), world.team());
    let lane = Lane::new(&stream, &team, 0, rng.next());
    let mut checks: Vec<Check<'_>> = Vec::new();
    for step in 0..steps {
        checks.push(lane.any(step));
        match rng.below(6) {
            0 => stream.barrier(&team).unwrap(),
            1 => stream.sync(&team).unwrap(),
            2 => {}
            _ => continue,
        }
        stream.synchronize().unwrap();
        checks.drain(..).for_each(|check| check());
    }
    stream.synchronize().unwrap();
    checks.into_iter().for_each(|check| check());
    world.barrier_all().unwrap();
}

#[test]
fn random_collectives_on_a_stream_agree_with_their_definition() {
    at_all_counts(|world, rng| random(world, rng, place::litmus_rounds(24) as u64));
}

/// Launches of several blocks, and of more threads, which all members' are.
#[test]
fn random_collectives_by_several_blocks() {
    let wide = "reduce=3x33;reducescatter=2x8;inscan=3x4;exscan=2x3;broadcast=3x33;fcollect=4x5;collect=2x2;\
        alltoall=1x7,64:3x7;alltoalls=2x9;alltoallv=3x3;sync=2x2;barrier=3x1";
    for n in [2, 3] {
        // On two cores beside other tests, that is a minute, and more.
        let pes = seeded(place::pes(n)).timeout(Duration::from_secs(240)).env("RUSHMEM_COLLECTIVES", wide);
        // Each shape of each type is a kernel, which NVRTC compiles for some seconds.
        let steps = if on_gpus() { 8 } else { place::litmus_rounds(24) as u64 };
        pes.threads(|world| random(world, &mut Rng::new(seed()), steps));
    }
}

/// Near and far PEs in one team, and none that are near.
#[test]
fn random_collectives_over_a_network() {
    if on_gpus() {
        return place::skip("random_collectives_over_a_network", "groups of far GPUs run the other tests");
    }
    for (each, nodes) in [("1", ""), ("", "0,0,1,0")] {
        let pes = seeded(place::pes(4)).env("RUSHMEM_TRANSPORT", "fake");
        let pes = pes.env("RUSHMEM_PES_PER_NODE", each).env("RUSHMEM_NODES", nodes);
        pes.threads(|world| random(world, &mut Rng::new(seed()), 16));
    }
}

#[test]
fn teams_and_slot_sets_run_at_once_on_streams_of_their_own() {
    at_counts(&[2, 4], |world, rng| {
        let half = world.team().split(Some(world.my_pe().number() % 2), 0).unwrap().unwrap();
        let backwards: Vec<u32> = (0..world.n_pes()).rev().collect();
        let all = world.team().configured(TeamConfig::default().slot_sets(2)).listed(&backwards);
        let all = all.unwrap().unwrap();
        let streams = [world.stream().unwrap(), world.stream().unwrap(), world.stream().unwrap()];
        let lanes = [
            Lane::new(&streams[0], &all, 0, rng.next()),
            Lane::new(&streams[1], &all, 1, rng.next()),
            Lane::new(&streams[2], &half, 0, rng.next()),
        ];
        for round in 0..place::litmus_rounds(3) as u64 {
            let mut checks = Vec::new();
            for step in 0..4 {
                checks.extend(lanes.iter().map(|lane| lane.any(round * 4 + step)));
            }
            streams.iter().for_each(|stream| stream.synchronize().unwrap());
            checks.into_iter().for_each(|check| check());
        }
        half.free().unwrap();
        all.free().unwrap();
    });
}

/// Each pair of an element type and an operator in each family, of which an ordinary run takes every 43rd:
/// each is a kernel to compile.
#[test]
fn every_type_and_operator() {
    let few = longer(1) == 1 || place::is_brief();
    apart_as(2, seeded(place::pes(2)).timeout(Duration::from_secs(900)), |world| {
        let mut rng = Rng::new(seed());
        let (stream, team) = (world.stream().unwrap(), world.team());
        let lane = Lane::new(&stream, &team, 0, rng.next());
        let (mut step, offset) = (0, rng.next() % 43);
        macro_rules! all {
            ($($type:ty: $($op:ident $combine:expr),*;)*) => {
                $($(for family in 0..4 {
                    step += 1;
                    if !few || step % 43 == offset {
                        let check = lane.reduction::<$type, _>(step, family, $op, $combine);
                        stream.synchronize().unwrap();
                        check();
                    }
                })*)*
            };
        }
        macro_rules! integers {
            ($($type:ty)*) => {
                all! { $($type: Sum <$type>::wrapping_add, Prod <$type>::wrapping_mul, Min Ord::min, Max Ord::max,
                    And |a, b| a & b, Or |a, b| a | b, Xor |a, b| a ^ b;)* }
            };
        }
        macro_rules! floats {
            ($($type:ty)*) => {
                all! { $($type: Sum |a, b| a + b, Prod |a, b| a * b, Min |a, b| if b < a { b } else { a },
                    Max |a, b| if a < b { b } else { a };)* }
            };
        }
        integers!(i8 u8 i16 u16 i32 u32 i64 u64);
        floats!(f32 f64);
        all! {
            Complex<f32>: Sum plus, Prod |a, b| Complex {
                re: a.re * b.re - a.im * b.im,
                im: a.re * b.im + a.im * b.re,
            };
            Complex<f64>: Sum plus;
        }
        floats!(f16 bf16);
    });
}

fn plus<T: std::ops::Add<Output = T>>(a: Complex<T>, b: Complex<T>) -> Complex<T> {
    Complex { re: a.re + b.re, im: a.im + b.im }
}
