//! Teams of the host: splits against a model of their own, many teams at once, mistakes, kernels that take a
//! team, PEs that die. (Over each way to other PEs in its turn: `scripts/test`.)

use rushmem_test_support::api_common;

mod kernels;
mod many;
mod mistakes;
mod model;

use std::time::Duration;

use api_common::kill::{one_of, until_it_fails};
use api_common::{at_counts, both, place, Rng};
use model::{How, Known};
use rushmem::{Pe, World};

/// Steps of a random program: fewer where each takes messages of a network.
fn steps(n: usize) -> usize {
    if place::all_mapped(4) {
        place::host_rounds(n)
    } else {
        n.div_ceil(4)
    }
}

#[test]
fn every_split_is_as_the_specification_says() {
    at_counts(&[1, 2, 3, 4, 5], |world, rng| {
        let (all, n) = (Known::world(world), world.n_pes());
        let mut ways = vec![How::Strided(n - 1, -1, n), How::Listed(Vec::new()), How::Grid(n + 3)];
        ways.extend((0..steps(25)).map(|_| How::random(rng, n)));
        for how in ways {
            let made = all.split(world, &how);
            // Members of one team at a time: the last one first on every PE.
            for known in made.into_iter().rev() {
                known.check_against(&all);
                if let Some(team) = known.team {
                    team.barrier().unwrap();
                    team.free().unwrap();
                }
            }
        }
    });
}

#[test]
fn the_team_of_a_node_is_of_those_that_map_each_other() {
    at_counts(&[1, 3, 4], |world, _| {
        let team = world.node_team().unwrap();
        let near: Vec<Pe> = world.near_pes().unwrap().pes;
        assert_eq!(team.members().collect::<Vec<_>>(), near);
        team.barrier().unwrap();
    });
}

/// Random trees: teams of teams of teams, which overlap, freed and dropped in any order.
fn grow(world: &World, rng: &mut Rng, steps: usize) {
    let mut teams = vec![Known::world(world)];
    for step in 0..steps {
        let which = rng.below(teams.len());
        match rng.below(8) {
            0..=2 if teams.len() < 40 => {
                let how = How::random(rng, teams[which].pes.len() as u32);
                let made = teams[which].split(world, &how);
                teams.extend(made);
            }
            3 | 4 if which > 0 => {
                let Known { team, .. } = teams.swap_remove(which);
                match team {
                    Some(team) if step % 2 == 0 => team.free().unwrap(),
                    dropped => drop(dropped),
                }
            }
            5 => {
                let other = rng.below(teams.len());
                teams[which].check_against(&teams[other]);
            }
            6 => teams[which].team.iter().for_each(|team| team.barrier().unwrap()),
            _ => teams[which].team.iter().for_each(|team| team.sync().unwrap()),
        }
        teams[which.min(teams.len() - 1)].check(world);
    }
    // Drops of what is left wait for each other, in one order.
    teams.into_iter().for_each(drop);
}

#[test]
fn random_trees_of_teams_that_overlap() {
    at_counts(&[2, 3, 5], |world, rng| {
        grow(world, rng, steps(150));
        world.barrier_all().unwrap();
    });
}

/// What is put before a team's barrier is seen after it by its members.
#[test]
fn a_barrier_of_a_team_completes_what_its_members_put() {
    at_counts(&[3, 4], |world, rng| {
        let n = world.n_pes();
        let inbox = world.alloc::<u64>(n as usize * 64).unwrap();
        let (all, me) = (Known::world(world), world.my_pe());
        for round in 1..=steps(40) as u64 {
            let how = How::random(rng, n);
            for known in all.split(world, &how) {
                let Some(team) = &known.team else { continue };
                for pe in team.members() {
                    let row = inbox.slice(me.index() * 64..(me.index() + 1) * 64).unwrap();
                    row.put(&[round; 64], pe).unwrap();
                }
                team.barrier().unwrap();
                // No other row: a PE that is in none of this team's may be putting its own by now.
                for pe in team.members() {
                    let row = inbox.slice(pe.index() * 64..(pe.index() + 1) * 64).unwrap();
                    assert_eq!(row.to_vec().unwrap(), [round; 64], "of {pe} in {team:?}");
                }
                team.sync().unwrap();
            }
            world.barrier_all().unwrap();
        }
    });
}

/// Teams that overlap are used by threads of their own, at once: each makes, uses and frees teams of its
/// team. Nothing that one does stops another.
#[test]
fn threads_use_teams_that_overlap_at_once() {
    at_counts(&[2, 4], |world, rng| {
        let all = Known::world(world);
        let mut teams = Vec::new();
        while teams.len() < 4 {
            teams.extend(all.split(world, &How::random(rng, world.n_pes())));
        }
        let rngs: Vec<Rng> = (0..teams.len()).map(|i| rng.fork(i as u64)).collect();
        std::thread::scope(|scope| {
            for (known, mut rng) in teams.iter().zip(rngs) {
                scope.spawn(move || {
                    let Some(team) = &known.team else { return };
                    for _ in 0..steps(25) {
                        let parts = known.split(world, &How::random(&mut rng, team.n_pes()));
                        for part in &parts {
                            part.team.iter().for_each(|team| (0..3).for_each(|_| team.sync().unwrap()));
                        }
                        team.sync().unwrap();
                    }
                });
            }
        });
    });
}

/// PEs outside of a team do nothing: one sleeps while the others make, use and free a team without it.
#[test]
fn who_is_outside_of_a_team_has_no_part_in_its_calls() {
    both(3, |world, _| {
        let pair = world.team().split_list(&[2, 0]).unwrap();
        if let Some(pair) = pair {
            for _ in 0..20 {
                let inner = pair.split_list(&[1, 0]).unwrap().unwrap();
                inner.barrier().unwrap();
                inner.free().unwrap();
            }
            pair.free().unwrap();
        } else {
            // It comes to the world's next call once the others wait there.
            std::thread::sleep(Duration::from_millis(300));
        }
        world.barrier_all().unwrap();
    });
}

/// Kills a PE in the middle of `step`, which all repeat.
fn kill_in(name: &str, step: impl Fn(&World) -> rushmem::Result<()>) {
    if place::processes(name) {
        one_of(4).within(Duration::from_millis(60)).kills(|| {
            let world = World::init().expect("nobody dies during start-up here");
            until_it_fails(|| step(&world))
        });
    }
}

#[test]
fn killed_in_a_split() {
    kill_in("killed_in_a_split", |world| {
        let (row, column) = world.team().split_2d(2)?;
        row.free()?;
        column.free()
    });
}

#[test]
fn killed_in_the_sync_of_a_team() {
    kill_in("killed_in_the_sync_of_a_team", |world| {
        let team = world.team().split_list(&[3, 1, 0, 2])?.expect("all are members");
        (0..1000).try_for_each(|_| team.sync())?;
        team.free()
    });
}
