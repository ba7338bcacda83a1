//! Many rounds on a stream, one behind the other, which the host does not wait for: ranks drift apart as far
//! as the protocol lets them. Experts give tokens back as they are.

use std::time::Duration;

use rushmem::testing;
use rushmem_moe::{AllToAll, Count, Float, Layout, Payload, Received, Tokens};

use crate::bench::Case;
use crate::model::{draw, pull, push, Rng};
use crate::seed;

const ROUNDS: usize = 60;

#[test]
fn rounds_that_are_queued_keep_apart() {
    testing::pes(3).timeout(Duration::from_secs(120)).run(|world| {
        let mut rng = Rng(seed(world));
        let team = world.team();
        let (ranks, me) = (team.n_pes() as usize, team.my_pe() as usize);
        let kinds = [
            (Layout::ExpertMajor, None, 2),
            (Layout::Flat { align: 1 }, None, 2),
            // Packets of routing are read in place while the next rounds' come.
            (Layout::Flat { align: 1 }, Some(0), 2),
            // All is packets: the kernels for few tokens.
            (Layout::ExpertMajor, None, 5),
        ];
        for (layout, shared_routing, few) in kinds {
            let case = Case { layout, few, shared_routing, ..Case::new(5, 64, 7, 3) };
            let (t, hidden, k) = (5, 64, 3);
            let payload = Payload::Floats(Float::Bf16);
            let drawn: Vec<Vec<_>> = (0..ROUNDS)
                .map(|_| {
                    let each = |_| {
                        let n = rng.below(t as u64 + 1) as usize;
                        draw(&mut rng, n, &case.sizes(), payload, case.routing)
                    };
                    (0..ranks).map(each).collect()
                })
                .collect();
            let config = case.config();
            let exchange = AllToAll::new(&team, config).unwrap();
            let local = config.experts_a_rank(team.n_pes()) as usize;
            let rows = match layout {
                Layout::ExpertMajor => local * config.rows(team.n_pes()) as usize,
                _ => config.rows(team.n_pes()) as usize,
            };
            let x = world.alloc::<u8>(ROUNDS * t * hidden * 2).unwrap();
            let experts = world.alloc::<i32>(ROUNDS * t * k).unwrap();
            let weights = world.alloc::<f32>(ROUNDS * t * k).unwrap();
            let out = world.alloc::<u8>(ROUNDS * t * hidden * 2).unwrap();
            let received = world.alloc::<u8>(rows * hidden * 2).unwrap();
            for (round, all) in drawn.iter().enumerate() {
                let mine = &all[me];
                x.slice(round * t * hidden * 2..).unwrap().write(&mine.x).unwrap();
                experts.slice(round * t * k..).unwrap().write(&mine.experts).unwrap();
                weights.slice(round * t * k..).unwrap().write(&mine.weights).unwrap();
            }
            let stream = world.stream().unwrap();
            let mut own = Rng(me as u64 ^ rng.next());
            for (round, all) in drawn.iter().enumerate() {
                let tokens = Tokens {
                    x: x.as_ptr().wrapping_add(round * t * hidden * 2).cast(),
                    side: std::ptr::null(),
                    experts: experts.as_ptr().wrapping_add(round * t * k).cast(),
                    weights: weights.as_ptr().wrapping_add(round * t * k),
                    count: Count::Host(all[me].n as u32),
                };
                let to = Received {
                    x: received.as_ptr().cast(),
                    side: std::ptr::null_mut(),
                    counts: std::ptr::null_mut(),
                    sources: std::ptr::null_mut(),
                    experts: std::ptr::null_mut(),
                    weights: std::ptr::null_mut(),
                };
                if own.below(8) == 0 {
                    std::thread::sleep(Duration::from_micros(own.below(3000)));
                }
                // SAFETY: each round has its part of the buffers, which live until the stream is idle.
                unsafe {
                    exchange.dispatch(&tokens, &to, &stream).unwrap();
                    let to = out.as_ptr().wrapping_add(round * t * hidden * 2).cast();
                    exchange.combine(received.as_ptr().cast_const().cast(), to, &stream).unwrap();
                }
            }
            stream.synchronize().unwrap();
            exchange.check().unwrap();
            let out = out.to_vec().unwrap();
            for (round, all) in drawn.iter().enumerate() {
                let mine = &all[me];
                for i in 0..mine.n * hidden {
                    let (token, x) = (i / hidden, pull(&mine.x, Float::Bf16, i));
                    let mut total: Option<f32> = None;
                    for rank in 0..ranks {
                        let chosen = mine.experts[token * k..][..k].iter().zip(&mine.weights[token * k..]);
                        let here = chosen.filter(|(e, _)| **e >= 0 && **e as usize / local == rank);
                        let sum = here.map(|(_, weight)| weight * x).reduce(|sum, term| sum + term);
                        total = sum.map_or(total, |sum| Some(total.map_or(sum, |total| total + sum)));
                    }
                    let mut want = Vec::new();
                    push(&mut want, Float::Bf16, total.unwrap_or(0.0));
                    let at = (round * t * hidden + i) * 2;
                    assert_eq!(out[at..at + 2], want, "round {round}, token {token}, {layout:?}");
                }
            }
            stream.destroy().unwrap();
            exchange.free().unwrap();
        }
    });
}
