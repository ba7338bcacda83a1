//! Kernels that take a team by value: what they see of it, and a collective of random teams.

use crate::api_common::{at_counts, both, place, Rng};
use crate::model::{How, Known};
use rushmem::{ErrorCode, Launch, Team};

pub(crate) const SOURCE: &str = r#"
#include <rushmem/rushmem.cuh>
extern "C" __global__ void describe(rushmem::team team, int *out) {
  out[0] = team.my_pe();
  out[1] = team.n_pes();
  out[2] = static_cast<int>(team.slot_sets());
  for (int i = 0; i < team.n_pes(); ++i) out[3 + i] = team.world_pe(i);
}
extern "C" __global__ void meet(rushmem::team team) { rushmem::sync<rushmem::thread>(team); }
extern "C" __global__ void total(rushmem::team team, unsigned set, uint64_t *to, const uint64_t *from, uint64_t n) {
  rushmem::reduce<rushmem::block>(team.on(set), to, from, n, rushmem::sum{});
}
extern "C" __global__ void number(int wrong) { (void)wrong; }
"#;

/// Frees a team by the C ABI, which tells how that went and leaves the team where it was not freed.
pub(crate) fn free(team: &Team<'_>) -> i32 {
    type Free = unsafe extern "C" fn(*mut std::ffi::c_void) -> i32;
    let (_, path) = rushmem::runtime().unwrap();
    // SAFETY: the runtime that the process has loaded already.
    let library = unsafe { libloading::Library::new(path) }.unwrap();
    // SAFETY: the function has that type; the caller uses the team only where it was not freed.
    unsafe { library.get::<Free>(b"rushmem_team_free\0").unwrap()(team.as_raw().cast()) }
}

#[test]
fn a_kernel_sees_of_a_team_what_the_host_sees() {
    at_counts(&[1, 3, 5], |world, rng| {
        let module = world.load(SOURCE).unwrap();
        let describe = module.kernel("describe").unwrap();
        let out = world.alloc::<i32>(3 + world.n_pes() as usize).unwrap();
        let all = Known::world(world);
        for _ in 0..6 {
            for known in all.split(world, &How::random(rng, world.n_pes())) {
                let Some(team) = &known.team else { continue };
                // SAFETY: three numbers and one for each member.
                unsafe { describe.launch(Launch::new(1, 1), (team, &out)) }.unwrap();
                world.synchronize().unwrap();
                let mut expected = vec![team.my_pe() as i32, team.n_pes() as i32, team.slot_sets() as i32];
                expected.extend(known.pes.iter().map(|pe| *pe as i32));
                assert_eq!(out.to_vec().unwrap()[..expected.len()], expected);
            }
        }
    });
}

#[test]
fn a_launch_checks_that_the_parameter_is_a_team() {
    both(1, |world, _| {
        let module = world.load(SOURCE).unwrap();
        let team = world.team();
        let launch = |kernel: &str| {
            let kernel = module.kernel(kernel).unwrap();
            // SAFETY: refused before anything runs, or a sync of this one PE.
            unsafe { kernel.launch(Launch::new(1, 1), (&team,)) }
        };
        assert_eq!(launch("number").unwrap_err().code(), ErrorCode::Launch);
        // SAFETY: refused before anything runs.
        let wrong = unsafe { module.kernel("meet").unwrap().launch(Launch::new(1, 1), (7i32,)) };
        assert_eq!(wrong.unwrap_err().code(), ErrorCode::Launch);
        launch("meet").unwrap();
        world.synchronize().unwrap();
    });
}

/// Sums over random teams, some of which have the place of teams that were freed: every member has the sum of
/// what the members have, at sizes in one phase and in several.
#[test]
fn reductions_of_random_teams() {
    at_counts(&[2, 3, 5], |world, rng| {
        const MOST: usize = 3000;
        let module = world.load(SOURCE).unwrap();
        let total = module.kernel("total").unwrap();
        let (to, from) = (world.alloc::<u64>(MOST).unwrap(), world.alloc::<u64>(MOST).unwrap());
        let all = Known::world(world);
        let value = |seed: u64, pe: u32, i: usize| Rng::new(seed ^ u64::from(pe) << 40 ^ i as u64).next();
        for _ in 0..place::rounds(8) {
            let how = How::random(rng, world.n_pes());
            let most = [8, 400, MOST][rng.below(3)];
            let (n, seed) = (1 + rng.below(most), rng.next());
            for known in all.split(world, &how) {
                let Some(team) = &known.team else { continue };
                let me = world.my_pe().number();
                from.write(&(0..MOST).map(|i| value(seed, me, i)).collect::<Vec<_>>()).unwrap();
                to.fill(0).unwrap();
                team.barrier().unwrap();
                for _ in 0..3 {
                    // SAFETY: n elements of both, which nobody else touches until the barrier below.
                    unsafe { total.launch(Launch::new(1, 64), (team, 0u32, &to, &from, n as u64)) }.unwrap();
                }
                world.synchronize().unwrap();
                let sum = |i| known.pes.iter().fold(0u64, |sum, pe| sum.wrapping_add(value(seed, *pe, i)));
                assert_eq!(to.to_vec().unwrap()[..n], (0..n).map(sum).collect::<Vec<_>>());
                team.barrier().unwrap();
            }
            world.barrier_all().unwrap();
        }
    });
}
