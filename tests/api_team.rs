//! Teams: every split against a model of its own, many teams at once, mistakes, kernels that take a team.

mod api_common;

use api_common::at_counts;
use rushmem::{Pe, Team, World};

/// What this PE should see of a team whose members are `pes`, or of none.
#[track_caller]
fn check(world: &World, team: Option<&Team<'_>>, pes: &[u32]) {
    let me = pes.iter().position(|pe| *pe == world.my_pe().number());
    let Some(team) = team else { return assert_eq!(me, None, "no team for a member of {pes:?}") };
    assert_eq!(Some(team.my_pe() as usize), me, "{team:?} of {pes:?}");
    assert_eq!(team.members().map(Pe::number).collect::<Vec<_>>(), pes);
    team.sync().unwrap();
    team.barrier().unwrap();
}

#[test]
fn strides() {
    at_counts(&[1, 2, 3, 4, 5], |world, _| {
        let n = world.n_pes();
        for (start, stride, size) in [(0, 1, n), (n - 1, -1, n), (0, 2, n.div_ceil(2)), (n / 2, 0, 1)] {
            let team = world.team().split_strided(start, stride, size).unwrap();
            let pes: Vec<u32> = (0..size as i32).map(|i| (start as i32 + i * stride) as u32).collect();
            check(world, team.as_ref(), &pes);
        }
    });
}
