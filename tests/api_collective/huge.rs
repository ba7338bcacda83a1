//! Arrays of more than 2^31 elements, by the host and on a stream: no count on the way has 32 bits. They take
//! 9 GB of memory and tens of seconds, so it is `make attack` that runs them.

use rushmem::{Sum, Xor};
use rushmem::{SymRef, Team, World};

use crate::api_common::{longer, place, seed, seeded, Rng};

const N: usize = (1 << 31) + 11;

/// A byte of a member's source; no period that a lost multiple of 2^31 or 2^32 would hide.
fn byte(seed: u64, member: usize, i: usize) -> u8 {
    let x = (i as u64 ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (member as u64) << 17;
    (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9).to_be_bytes()[0]
}

/// Elements that are looked at: the ends, around 2^31, and some between.
fn places(rng: &mut Rng, n: usize) -> Vec<usize> {
    let edges = [0, 1, n - 1, n - 2].into_iter().chain((1usize << 31) - 3..(1 << 31) + 3);
    let near: Vec<usize> = edges.chain((1 << 30) - 2..(1 << 30) + 2).filter(|i| *i < n).collect();
    near.into_iter().chain((0..2000).map(|_| rng.below(n))).collect()
}

fn fill(to: &SymRef<'_, u8>, seed: u64, member: usize) {
    const PIECE: usize = 1 << 24;
    let mut piece = Vec::with_capacity(PIECE);
    for first in (0..to.len()).step_by(PIECE) {
        let last = to.len().min(first + PIECE);
        piece.clear();
        piece.extend((first..last).map(|i| byte(seed, member, i)));
        to.slice(first..last).unwrap().write(&piece).unwrap();
    }
}

#[track_caller]
fn check(what: &str, seen: &SymRef<'_, u8>, rng: &mut Rng, wanted: impl Fn(usize) -> u8) {
    for i in places(rng, seen.len()) {
        let at = seen.slice(i..i + 1).unwrap().to_vec().unwrap()[0];
        assert_eq!(at, wanted(i), "{what}: element {i} of {}", seen.len());
    }
}

fn calls(world: &World, rng: &mut Rng) {
    let (team, stream, me) = (world.team(), world.stream().unwrap(), world.my_pe().index());
    let (dst, src) = (world.alloc::<u8>(N).unwrap(), world.alloc::<u8>(N).unwrap());
    let key = rng.next();
    fill(&src, key, me);
    world.barrier_all().unwrap();
    // Blocks of two members: 2^30 and more elements each, the places of the second past 2^31 bytes together.
    let half = N / 2;
    let (halves, own) = (dst.slice(..2 * half).unwrap(), src.slice(..half).unwrap());
    let every = |what: &str, call: &dyn Fn(&Team<'_>) -> rushmem::Result<()>| {
        call(&team).unwrap_or_else(|e| panic!("{what}: {e}"));
        stream.synchronize().unwrap();
        world.barrier_all().unwrap();
    };
    for by_stream in [false, true] {
        let name = |what: &str| format!("{what}, on a stream: {by_stream}");
        dst.fill(0).unwrap();
        world.barrier_all().unwrap();
        every("broadcast", &|team| match by_stream {
            false => team.broadcast(&dst, &src, 1),
            true => stream.broadcast(team, &dst, &src, 1),
        });
        check(&name("broadcast"), &dst, rng, |i| byte(key, 1, i));
        every("fcollect", &|team| match by_stream {
            false => team.fcollect(&halves, &own),
            true => stream.fcollect(team, &halves, &own),
        });
        check(&name("fcollect"), &halves, rng, |i| byte(key, i / half, i % half));
        every("alltoall", &|team| match by_stream {
            false => team.alltoall(&halves, &src.slice(..2 * half).unwrap()),
            true => stream.alltoall(team, &halves, &src.slice(..2 * half).unwrap()),
        });
        check(&name("alltoall"), &halves, rng, |i| byte(key, i / half, me * half + i % half));
        every("reduce", &|team| match by_stream {
            false => team.reduce(&dst, &src, Sum),
            true => stream.reduce(team, &dst, &src, Sum),
        });
        check(&name("reduce"), &dst, rng, |i| byte(key, 0, i).wrapping_add(byte(key, 1, i)));
        every("inscan", &|team| match by_stream {
            false => team.inscan(&dst, &src, Xor),
            true => stream.inscan(team, &dst, &src, Xor),
        });
        check(&name("inscan"), &dst, rng, |i| (0..=me).fold(0, |all, m| all ^ byte(key, m, i)));
    }
}

#[test]
fn counts_past_31_bits() {
    const NAME: &str = "counts_past_31_bits";
    if longer(1) < 8 {
        return place::skip(NAME, "9 GB of memory and tens of seconds: make attack runs it");
    }
    let pes = seeded(place::pes(2)).timeout(std::time::Duration::from_secs(400));
    pes.threads(|world| calls(world, &mut Rng::new(seed())));
}
