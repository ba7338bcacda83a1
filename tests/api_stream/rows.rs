//! Collectives in a row on one stream, where nothing but the stream keeps one from the next: each reads what
//! the one before has left. On a GPU a call's kernel is there before that one has ended, and may neither
//! read nor write before its turn.

use rushmem::{Prepared, Sum, SymSlice, Team};

use crate::*;

/// Bytes of a PE's array: each way of a call, and around where ways and launches change.
const BYTES: [usize; 13] = [
    24,
    1000,
    4096,
    8192,
    12 << 10,
    40 << 10,
    72 << 10,
    130 << 10,
    300 << 10,
    600 << 10,
    1 << 20,
    3 << 20,
    8 << 20,
];
/// On the CPU, where kernels of a stream never overlap.
const MOST_ON_CPU: usize = 40 << 10;
/// Calls in a row.
const CALLS: usize = 24;

/// A call of all members, from the first array to the second.
#[derive(Clone, Copy, Debug)]
enum Call {
    Reduce,
    InPlace,
    Reducescatter,
    Broadcast(u32),
    Fcollect,
    Alltoall,
}

impl Call {
    fn any(rng: &mut Rng, n: usize) -> Call {
        match rng.next() % 6 {
            0 => Call::Reduce,
            1 => Call::InPlace,
            2 => Call::Reducescatter,
            3 => Call::Broadcast((rng.next() % n as u64) as u32),
            4 => Call::Fcollect,
            _ => Call::Alltoall,
        }
    }

    fn queue(
        self,
        stream: &Stream<'_>,
        team: &Team<'_>,
        to: &SymSlice<'_, u32>,
        from: &SymSlice<'_, u32>,
        block: usize,
    ) {
        match self {
            Call::Reduce => stream.reduce(team, to, from, Sum),
            Call::InPlace => stream.reduce(team, from, from, Sum),
            Call::Reducescatter => stream.reducescatter(team, &to.slice(..block).unwrap(), from, Sum),
            Call::Broadcast(root) => stream.broadcast(team, to, from, root),
            Call::Fcollect => stream.fcollect(team, to, &from.slice(..block).unwrap()),
            Call::Alltoall => stream.alltoall(team, to, from),
        }
        .unwrap();
    }

    /// What it makes of the arrays of all members.
    fn model(self, to: &mut [Vec<u32>], from: &mut [Vec<u32>], block: usize) {
        let n = from.len();
        let sum = |i: usize| from.iter().fold(0u32, |sum, member| sum.wrapping_add(member[i]));
        match self {
            Call::Reduce => {
                let sums: Vec<u32> = (0..n * block).map(sum).collect();
                to.iter_mut().for_each(|member| member.copy_from_slice(&sums));
            }
            Call::InPlace => {
                let sums: Vec<u32> = (0..n * block).map(sum).collect();
                from.iter_mut().for_each(|member| member.copy_from_slice(&sums));
            }
            Call::Reducescatter => {
                for (m, to) in to.iter_mut().enumerate() {
                    to[..block].iter_mut().enumerate().for_each(|(i, to)| *to = sum(m * block + i));
                }
            }
            Call::Broadcast(root) => to.iter_mut().for_each(|to| to.copy_from_slice(&from[root as usize])),
            Call::Fcollect => {
                for to in to {
                    for (m, to) in to.chunks_mut(block).enumerate() {
                        to.copy_from_slice(&from[m][..block]);
                    }
                }
            }
            Call::Alltoall => {
                for (m, to) in to.iter_mut().enumerate() {
                    for (other, to) in to.chunks_mut(block).enumerate() {
                        to.copy_from_slice(&from[other][m * block..][..block]);
                    }
                }
            }
        }
    }
}

#[test]
fn calls_in_a_row_read_what_the_one_before_has_left() {
    at_counts(&[2, 3], |world, rng| {
        let (n, me) = (world.n_pes() as usize, world.my_pe().index());
        let team = world.team();
        let reductions = [Prepared::reduce::<u32, _>(Sum), Prepared::reducescatter::<u32, _>(Sum)];
        team.prepare(&reductions).unwrap();
        team.prepare(&[Prepared::broadcast(), Prepared::fcollect(), Prepared::alltoall()]).unwrap();
        let stream = world.stream().unwrap();
        for bytes in BYTES {
            if !place::on_gpus() && bytes > MOST_ON_CPU {
                continue;
            }
            let block = bytes / size_of::<u32>() / n;
            let arrays = [world.alloc::<u32>(n * block).unwrap(), world.alloc::<u32>(n * block).unwrap()];
            for _ in 0..place::litmus_rounds(3) {
                let seed = rng.next();
                let of = |member: usize, array: usize| -> Vec<u32> {
                    let mut rng = Rng::new(seed).fork((member * 2 + array) as u64);
                    (0..n * block).map(|_| rng.next() as u32).collect()
                };
                let [mut even, mut odd] =
                    [0, 1].map(|array| (0..n).map(|m| of(m, array)).collect::<Vec<_>>());
                arrays[0].write(&even[me]).unwrap();
                arrays[1].write(&odd[me]).unwrap();
                let mut calls = Rng::new(seed);
                let calls: Vec<Call> = (0..CALLS).map(|_| Call::any(&mut calls, n)).collect();
                world.barrier_all().unwrap();
                for (at, call) in calls.iter().enumerate() {
                    call.queue(&stream, &team, &arrays[(at + 1) % 2], &arrays[at % 2], block);
                }
                stream.synchronize().unwrap();
                for (at, call) in calls.iter().enumerate() {
                    match at % 2 {
                        0 => call.model(&mut odd, &mut even, block),
                        _ => call.model(&mut even, &mut odd, block),
                    }
                }
                for (array, right) in arrays.iter().zip([&even[me], &odd[me]]) {
                    let seen = array.to_vec().unwrap();
                    let wrong = seen.iter().zip(right).position(|(seen, right)| seen != right);
                    assert_eq!(wrong, None, "{bytes} bytes: element that is wrong, after {calls:?}");
                }
                world.barrier_all().unwrap();
            }
        }
        stream.destroy().unwrap();
    });
}
