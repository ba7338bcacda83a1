//! Data-parallel groups: ranks that have the same tokens. Each rank of a group dispatches its share of them,
//! so that none crosses twice, and a team of the group brings the sums together.

use std::time::Duration;

use rushmem::testing;

use crate::bench::{Bench, Case, Halves};
use crate::model::{draw, Drawn, Rng};
use crate::seed;

/// Tokens `from` up to `to` of a group's.
fn share(all: &Drawn, from: usize, to: usize, case: &Case) -> Drawn {
    let (bytes, k) = (case.config().token_bytes() as usize, case.top_k as usize);
    Drawn {
        n: to - from,
        x: all.x[from * bytes..to * bytes].to_vec(),
        side: Vec::new(),
        experts: all.experts[from * k..to * k].to_vec(),
        weights: all.weights[from * k..to * k].to_vec(),
    }
}

/// pplx-kernels' world of four in groups of two, and one group of all; numbers of tokens that a group cannot
/// share out evenly, and fewer than it has ranks.
#[test]
fn ranks_of_a_group_have_the_same_tokens_and_sums() {
    testing::pes(4).timeout(Duration::from_secs(120)).run(|world| {
        let mut rng = Rng(seed(world));
        for group in [2, 4usize] {
            let case = Case::new(4, 64, 6, 3);
            let (team, me, each) = (world.team(), world.my_pe().number() as usize, case.max_tokens as usize);
            let ours = team.split(Some((me / group) as u32), me as i32).unwrap().unwrap();
            let bench = Bench::new(&team, case);
            let gathered = world.alloc::<u8>(group * bench.out.len()).unwrap();
            let stream = world.stream().unwrap();
            for tokens in [0, 1, group * each - 1, group * each] {
                let seed = rng.next();
                let groups: Vec<Drawn> = (0..4 / group)
                    .map(|_| draw(&mut rng, tokens, &case.sizes(), case.payload, case.routing))
                    .collect();
                let shares: Vec<Drawn> = (0..4)
                    .map(|rank| {
                        let (from, to) = (rank % group * each, (rank % group + 1) * each);
                        share(&groups[rank / group], from.min(tokens), to.min(tokens), &case)
                    })
                    .collect();
                bench.round(&stream, seed, &shares, Halves::Whole, || Duration::ZERO);
                stream.fcollect(&ours, &gathered, &bench.out).unwrap();
                stream.synchronize().unwrap();
                let seen = gathered.to_vec().unwrap();
                for token in 0..tokens {
                    let rank = me / group * group + token / each;
                    let want = bench.sum(seed, rank, &shares[rank], token % each);
                    let at = token * want.len();
                    assert_eq!(
                        seen[at..][..want.len()],
                        want,
                        "token {token} of {tokens}, groups of {group}"
                    );
                }
                world.barrier_all().unwrap();
            }
            stream.destroy().unwrap();
            gathered.free().unwrap();
            bench.free();
            ours.free().unwrap();
        }
    });
}
