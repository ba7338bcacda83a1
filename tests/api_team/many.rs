//! Many teams: as many alive as is promised, as many made and freed as a long run makes, and what is said
//! where there is room for no more.

use std::time::{Duration, Instant};

use crate::api_common::{at_counts, both, place, Rng};
use rushmem::{ErrorCode, Sum, Team, TeamConfig, World};

/// `count` teams of 2 to 4 PEs that overlap; PE 0 is a member of each.
fn small_teams<'w>(world: &'w World, rng: &mut Rng, count: usize) -> Vec<Option<Team<'w>>> {
    let n = world.n_pes() as usize;
    let make = |_| {
        let mut others: Vec<u32> = (1..n as u32).collect();
        let size = 2 + rng.below((n - 1).min(3));
        let mut list = vec![0];
        list.extend((1..size).map(|_| others.swap_remove(rng.below(others.len()))));
        world.team().split_list(&list).unwrap()
    };
    (0..count).map(make).collect()
}

#[test]
fn five_hundred_teams_are_alive_at_once() {
    at_counts(&[2, 4], |world, rng| {
        let count = place::host_rounds(if place::all_mapped(4) { 500 } else { 100 });
        let mut teams = small_teams(world, rng, count);
        for team in teams.iter().flatten() {
            team.sync().unwrap();
        }
        let mut numbers: Vec<u32> = teams.iter().flatten().map(Team::number).collect();
        numbers.sort_unstable();
        assert!(numbers.windows(2).all(|two| two[0] != two[1]) && !numbers.contains(&0));
        while !teams.is_empty() {
            if let Some(team) = teams.swap_remove(rng.below(teams.len())) {
                team.free().unwrap();
            }
        }
        // All of it is there again: as much as the first team got.
        let sizes: Vec<u64> =
            small_teams(world, &mut Rng::new(1), 2).iter().flatten().map(Team::bytes).collect();
        assert!(sizes.iter().all(|bytes| *bytes > 16 << 10), "{sizes:?}");
        world.barrier_all().unwrap();
    });
}

/// What this process has: resident memory in bytes, and open descriptors. Nobody does anything meanwhile.
fn footprint(world: &World) -> (u64, usize) {
    world.barrier_all().unwrap();
    let found = if world.my_pe().number() == 0 { look() } else { (0, 0) };
    world.barrier_all().unwrap();
    found
}

fn look() -> (u64, usize) {
    let pages: u64 =
        std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    (pages * 4096, std::fs::read_dir("/proc/self/fd").unwrap().count())
}

/// So many teams are made, used and freed: memory, descriptors and the time that one takes stay as they were.
fn churn(world: &World, rng: &mut Rng, first: usize, count: usize) {
    let n = world.n_pes();
    let kept = world.team().split_strided(0, 1, n).unwrap().unwrap();
    let mut once = |i: usize| {
        let team = match i % 3 {
            0 => kept.split(Some(0), 0).unwrap(),
            1 => kept.split_strided(n - 1, -1, n).unwrap(),
            _ => world.team().configured(TeamConfig::default().slot_sets(3)).coloured(Some(7), 0).unwrap(),
        };
        let team = team.unwrap();
        if rng.below(8) == 0 {
            team.sync().unwrap();
        }
        team.free().unwrap();
    };
    (0..first).for_each(&mut once);
    let before = footprint(world);
    let mut least_of = |count: usize| {
        let time = |i| {
            let start = Instant::now();
            once(i);
            start.elapsed()
        };
        (0..count).map(time).min().unwrap_or_default()
    };
    let (at_first, mut at_last) = (least_of(count / 2), least_of(count - count / 2));
    let after = footprint(world);
    assert_eq!(after.1, before.1, "descriptors");
    assert!(after.0 < before.0 + (1 << 20), "{before:?} {after:?}");
    // The least of many, where there are many. A busy machine may be slow for seconds, but teams that cost
    // more each time never become quick again: all PEs go on until all have been.
    let slow = |last| last >= at_first * 4 + Duration::from_micros(500);
    let (began, mut slow_pes) = (Instant::now(), [u64::from(count >= 100 && slow(at_last))]);
    loop {
        world.team().reduce_in_place(&mut slow_pes, Sum).unwrap();
        if slow_pes == [0] {
            break;
        }
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "a team took {at_first:?} at first, and {at_last:?} at last"
        );
        at_last = at_last.min(least_of(100));
        slow_pes = [u64::from(slow(at_last))];
    }
    kept.free().unwrap();
}

#[test]
fn teams_that_were_freed_leave_nothing_behind() {
    // Handles rest before they are used again, so it takes some thousand teams until nothing is new.
    let attack = std::env::var("RUSHMEM_TEST_ATTACK").is_ok_and(|text| text.trim() == "1");
    let (first, count) = match (place::all_mapped(2), attack) {
        (true, true) => (5000, 95_000),
        (true, false) => (4200, 800),
        (false, _) => (100, 100),
    };
    both(2, |world, rng| churn(world, rng, place::host_rounds(first), place::host_rounds(count)));
}

/// Teams until there is no room for more: the error says what is used up and which setting decides; what
/// stands goes on, and once it is freed there is room again.
#[test]
fn a_team_too_many_is_refused_on_every_pe_alike() {
    // Teams on GPU heaps take more, as the host's calls have sets of their own there.
    crate::api_common::seeded(place::pes(3).env("RUSHMEM_TEAM_MEMORY", "4M")).threads(|world| {
        let mut teams = Vec::new();
        let error = loop {
            match world.team().configured(TeamConfig::default().slot_sets(4)).strided(0, 1, 3) {
                Ok(team) => teams.push(team.unwrap()),
                Err(error) => break error,
            }
        };
        assert_eq!(error.code(), ErrorCode::HeapExhausted);
        let text = error.to_string();
        for part in ["team_split_strided of the world", "4 slot sets", "PE ", "RUSHMEM_TEAM_MEMORY"] {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
        assert!(teams.len() > 10, "{}", teams.len());
        teams.iter().for_each(|team| team.sync().unwrap());
        teams.into_iter().rev().for_each(|team| team.free().unwrap());
        world.team().split_strided(0, 1, 3).unwrap().unwrap().free().unwrap();
    });
}

/// More teams than a PE has numbers for.
#[test]
fn numbers_of_teams_run_out() {
    if !place::all_mapped(2) || place::is_brief() {
        // The same as elsewhere, and long.
        return;
    }
    crate::api_common::seeded(place::pes(2).env("RUSHMEM_TEAM_MEMORY", "8M")).threads(|world| {
        let mut teams = Vec::new();
        let error = loop {
            match world.team().split_strided(0, 1, 2) {
                Ok(team) => teams.push(team.unwrap()),
                Err(error) => break error,
            }
        };
        assert_eq!((teams.len(), error.code()), (1023, ErrorCode::Unsupported), "{error}");
        assert!(error.to_string().contains("as many teams as a PE can be"), "{error}");
        teams.into_iter().for_each(|team| team.free().unwrap());
    });
}
