//! Collectives of which some members call a stream's and others a kernel's: they meet where both have as many
//! blocks.

use rushmem::testing::Pes;
use rushmem::zerocopy::IntoBytes;
use rushmem::{Prepared, Sum, Team, TeamConfig};
use rushmem_test_support::api_common::at_counts_as;

use super::numbers::{reduced, Element};
use crate::*;

const KERNELS: &str = r#"
#include <rushmem/fcollect.h>
#include <rushmem/reduce.h>
extern "C" __global__ void sum(rushmem::team t, double *dst, const double *src, uint64_t n) {
  rushmem::reduce<rushmem::block>(t, dst, src, n, rushmem::sum{});
}
extern "C" __global__ void sum_on(rushmem::team t, unsigned set, double *dst, const double *src, uint64_t n) {
  rushmem::reduce<rushmem::block>(t.on(set), dst, src, n, rushmem::sum{});
}
extern "C" __global__ void sum_by_parts(rushmem::team t, double *dst, const double *src, uint64_t n) {
  rushmem::reduce<rushmem::grid_parts>(t, dst, src, n, rushmem::sum{});
}
extern "C" __global__ void all(rushmem::team t, uint32_t *dst, const uint32_t *src, uint64_t n) {
  rushmem::fcollect<rushmem::warp>(t, dst, src, n);
}
"#;

/// Streams launch few bytes as one block wherever this runs, and a kernel's call by one block meets that.
const BY_ONE_BLOCK: &str = "reduce=1x64;fcollect=1x32";
/// More than half of the numbers that the test below has are for several blocks.
const BY_FOUR_BLOCKS: &str = "reduce=1x64,2K:4x96";

/// PEs that share a GPU cannot load a stream's kernel while another PE's kernel waits for that call.
fn prepare(team: &Team<'_>) {
    team.prepare(&[Prepared::reduce::<f64, _>(Sum), Prepared::fcollect()]).unwrap();
}

/// By four blocks as by one: what counts is that all members have as many.
#[test]
fn a_stream_s_call_by_several_blocks_meets_a_kernel_s() {
    at_counts_as(
        &[1, 2, 3],
        |pes| pes.env("RUSHMEM_COLLECTIVES", BY_FOUR_BLOCKS),
        |world, rng| {
            let module = world.load(KERNELS).unwrap();
            let (alone, parts) = (module.kernel("sum").unwrap(), module.kernel("sum_by_parts").unwrap());
            let (team, stream) = (world.team(), world.stream().unwrap());
            prepare(&team);
            let (me, n) = (world.my_pe().number() as usize, world.n_pes() as usize);
            for len in [1usize, 255, 256, 257, 1000, 5000, 70_000] {
                let (x, y) = (world.alloc::<f64>(len).unwrap(), world.alloc::<f64>(len).unwrap());
                let seed = rng.next();
                let float = |m: usize| -> Vec<f64> {
                    let mut rng = Rng::new(seed).fork(m as u64);
                    (0..len).map(|_| f64::random(rng.next())).collect()
                };
                x.write(&float(me)).unwrap();
                world.barrier_all().unwrap();
                if me % 2 == 0 {
                    stream.reduce(&team, &y, &x, Sum).unwrap();
                } else {
                    let (kernel, blocks) = if len * 8 < 2 << 10 { (&alone, 1) } else { (&parts, 4) };
                    // SAFETY: as many elements as the arrays have, which nobody else uses until synchronize.
                    unsafe {
                        kernel.launch_on(Launch::new(blocks, 64), (&team, &y, &x, len as u64), &stream)
                    }
                    .unwrap();
                }
                stream.synchronize().unwrap();
                let members: Vec<Vec<f64>> = (0..n).map(float).collect();
                let expected: Vec<f64> =
                    (0..len).map(|i| reduced(members.iter().map(|m| m[i]), |a, b| a + b)).collect();
                assert_eq!(y.to_vec().unwrap().as_bytes(), expected.as_bytes(), "{len} numbers");
                world.barrier_all().unwrap();
            }
        },
    );
}

#[test]
fn a_stream_s_call_meets_a_kernel_s() {
    let by_one_block = |pes: Pes| pes.env("RUSHMEM_COLLECTIVES", BY_ONE_BLOCK);
    at_counts_as(&[1, 2, 3, 4, 8], by_one_block, |world, rng| {
        let module = world.load(KERNELS).unwrap();
        let (sum, all) = (module.kernel("sum").unwrap(), module.kernel("all").unwrap());
        let (team, stream) = (world.team(), world.stream().unwrap());
        prepare(&team);
        let (me, n) = (world.my_pe().number() as usize, world.n_pes() as usize);
        for len in [1usize, 7, 600, 3000] {
            let (x, y) = (world.alloc::<f64>(len).unwrap(), world.alloc::<f64>(len).unwrap());
            let (a, b) = (world.alloc::<u32>(len).unwrap(), world.alloc::<u32>(len * n).unwrap());
            let seed = rng.next();
            let float = |m: usize| -> Vec<f64> {
                let mut rng = Rng::new(seed).fork(m as u64);
                (0..len).map(|_| f64::random(rng.next())).collect()
            };
            let word = |m: usize| -> Vec<u32> { float(m).iter().map(|x| x.to_bits() as u32).collect() };
            x.write(&float(me)).unwrap();
            a.write(&word(me)).unwrap();
            world.barrier_all().unwrap();
            if me % 2 == 0 {
                stream.reduce(&team, &y, &x, Sum).unwrap();
                stream.fcollect(&team, &b, &a).unwrap();
            } else {
                // SAFETY: as many elements as the arrays have, which nobody else uses until synchronize.
                unsafe {
                    sum.launch_on(Launch::new(1, 64), (&team, &y, &x, len as u64), &stream).unwrap();
                    all.launch_on(Launch::new(1, 32), (&team, &b, &a, len as u64), &stream).unwrap();
                }
            }
            stream.synchronize().unwrap();
            let members: Vec<Vec<f64>> = (0..n).map(float).collect();
            let expected: Vec<f64> =
                (0..len).map(|i| reduced(members.iter().map(|m| m[i]), |a, b| a + b)).collect();
            assert_eq!(y.to_vec().unwrap().as_bytes(), expected.as_bytes());
            assert_eq!(b.to_vec().unwrap(), (0..n).flat_map(word).collect::<Vec<_>>());
            world.barrier_all().unwrap();
        }
    });
}

/// The world's first slot set is wider than the others: streams find these where kernels do, and calls in all
/// of them at once leave each other alone.
#[test]
fn slot_sets_of_the_world_are_the_same_to_streams_and_kernels() {
    let by_one_block = |pes: Pes| pes.env("RUSHMEM_COLLECTIVES", BY_ONE_BLOCK);
    at_counts_as(&[2, 3], by_one_block, |world, _| {
        let module = world.load(KERNELS).unwrap();
        let (kernel, team) = (module.kernel("sum_on").unwrap(), world.team());
        prepare(&team);
        let (me, n) = (world.my_pe().number(), world.n_pes());
        assert!(team.slot_sets() > 1, "the world has {} slot sets", team.slot_sets());
        let sets: Vec<u32> = (0..team.slot_sets()).collect();
        // Past what the others' packets hold of set 0, so that its own are used.
        for len in [5usize, 1500] {
            let lanes: Vec<_> = sets
                .iter()
                .map(|set| {
                    let (x, y) = (world.alloc::<f64>(len).unwrap(), world.alloc::<f64>(len).unwrap());
                    let mine = (0..len).map(|i| f64::from((i as u32 + 1) * (me + 1) * (set + 1)));
                    x.write(&mine.collect::<Vec<_>>()).unwrap();
                    (x, y, world.stream().unwrap())
                })
                .collect();
            world.barrier_all().unwrap();
            for (set, (x, y, stream)) in sets.iter().zip(&lanes) {
                if (me + set) % 2 == 0 {
                    stream.reduce(team.on(*set), y, x, Sum).unwrap();
                } else {
                    // SAFETY: as many elements as the arrays have, which nobody else uses until synchronize.
                    unsafe { kernel.launch_on(Launch::new(1, 64), (&team, *set, y, x, len as u64), stream) }
                        .unwrap();
                }
            }
            for (set, (_, y, stream)) in sets.iter().zip(&lanes) {
                stream.synchronize().unwrap();
                let pes = n * (n + 1) / 2;
                let expected = (0..len).map(|i| f64::from((i as u32 + 1) * pes * (set + 1)));
                assert_eq!(y.to_vec().unwrap(), expected.collect::<Vec<_>>(), "set {set}, {len} numbers");
            }
            world.barrier_all().unwrap();
        }
    });
}

/// Two launches of the table's widest fit on a GPU together: two members that launch them one way round and
/// the other would else wait for each other for good.
#[test]
fn members_put_calls_on_two_streams_in_either_order() {
    at_counts(&[2, 3], |world, rng| {
        let all: Vec<u32> = (0..world.n_pes()).collect();
        let team = world.team().configured(TeamConfig::default().slot_sets(2)).listed(&all);
        let (team, n, me) = (team.unwrap().unwrap(), world.n_pes() as usize, world.my_pe().number());
        team.prepare(&[Prepared::reduce::<u32, _>(Sum), Prepared::alltoall()]).unwrap();
        let streams = [world.stream().unwrap(), world.stream().unwrap()];
        // Bytes of a PE: around where the launches of the table change, and where they are widest.
        for bytes in [8 << 10, 200 << 10, 400 << 10, 800 << 10, 1 << 20, 2 << 20] {
            let len = (bytes / 4usize).next_multiple_of(n);
            let array = || world.alloc::<u32>(len).unwrap();
            let (x, sum, moved) = (array(), array(), array());
            let seed = rng.next();
            let of = |member: usize, round: u32| -> Vec<u32> {
                let mut rng = Rng::new(seed).fork(u64::from(round) << 32 | member as u64);
                (0..len).map(|_| rng.next() as u32).collect()
            };
            for round in 0..place::litmus_rounds(2) as u32 {
                x.write(&of(me as usize, round)).unwrap();
                world.barrier_all().unwrap();
                for call in 0..8 {
                    for which in 0..2 {
                        match (which + me + call) % 2 {
                            0 => streams[0].reduce(team.on(0), &sum, &x, Sum).unwrap(),
                            _ => streams[1].alltoall(team.on(1), &moved, &x).unwrap(),
                        }
                    }
                }
                streams.iter().for_each(|stream| stream.synchronize().unwrap());
                let members: Vec<Vec<u32>> = (0..n).map(|m| of(m, round)).collect();
                let sums = (0..len).map(|i| members.iter().fold(0u32, |sum, m| sum.wrapping_add(m[i])));
                assert!(sum.to_vec().unwrap() == sums.collect::<Vec<_>>(), "the sum of {bytes} bytes");
                let block = len / n;
                let blocks = members.iter().flat_map(|m| &m[me as usize * block..][..block]).copied();
                assert!(moved.to_vec().unwrap() == blocks.collect::<Vec<_>>(), "alltoall of {bytes} bytes");
                world.barrier_all().unwrap();
            }
        }
        team.free().unwrap();
    });
}
