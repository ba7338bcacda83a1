//! Wrong use of teams: an error on every member that names the PEs and the team, and a team that works as
//! before.

use crate::api_common::{both, place};
use rushmem::{Cmp, ErrorCode, Launch, Result, SignalOp, Team, TeamConfig, Uid, World};

/// The call failed with that code, and the text has all of these parts; the team works.
#[track_caller]
fn refused<T>(team: &Team<'_>, result: Result<T>, code: ErrorCode, parts: &[&str]) {
    let Err(error) = result else { panic!("nothing was refused: {parts:?}") };
    assert_eq!(error.code(), code, "{error}");
    for part in parts {
        assert!(error.to_string().contains(part), "{part} is not in: {error}");
    }
    team.sync().unwrap();
}

#[test]
fn arguments_that_differ_are_named_with_their_pes_and_the_team() {
    both(3, |world, _| {
        let team = world.team().split_strided(2, -1, 3).unwrap().unwrap();
        let (me, name) = (world.my_pe().number(), format!("of team {}", team.number()));
        let odd = me == 1;
        let wrong = ErrorCode::Mismatch;
        let at = |what: &'static str| -> Vec<String> {
            vec![format!("{what} {name}"), "on PE 1".into(), "on PE 2".into()]
        };
        let check = |result: Result<Option<Team<'_>>>, what: &'static str| {
            let parts = at(what);
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            refused(&team, result, wrong, &parts);
        };
        check(team.split_strided(odd.into(), 1, 1), "the start of team_split_strided");
        check(team.split_strided(0, 1 + i32::from(odd), 1), "the stride of team_split_strided");
        check(team.split_strided(0, 1, 1 + u32::from(odd)), "the size of team_split_strided");
        check(team.split_2d(1 + u32::from(odd)).map(|_| None), "the x range of team_split_2d");
        check(
            team.split_list(if odd { &[0, 1][..] } else { &[0][..] }),
            "the length of the list of team_split_list",
        );
        check(team.split_list(if odd { &[0, 1] } else { &[1, 0] }), "the list of team_split_list");
        let sets = TeamConfig::default().slot_sets(1 + u32::from(odd));
        check(team.configured(sets).coloured(None, 0), "the number of slot sets of team_split");
        // Different calls.
        let split = || team.split(Some(0), 0).map(drop);
        refused(
            &team,
            if odd { team.sync() } else { split() },
            wrong,
            &["PE 1 called team_sync", "PE 0 called team_split", &name[3..]],
        );
        refused(&team, if odd { team.sync() } else { team.barrier() }, wrong, &["PE 2 called team_barrier"]);
        // One PE frees: the others' call tells all of them, and the team stays. The Rust API gives a team up
        // by free, so this is the C ABI's call.
        if odd {
            assert_eq!(crate::kernels::free(&team), -5);
            team.sync().unwrap();
        } else {
            refused(&team, team.sync(), wrong, &["PE 1 called team_free"]);
        }
        team.free().unwrap();
    });
}

#[test]
fn members_that_do_not_exist_are_refused_everywhere() {
    both(3, |world, _| {
        let wrong = ErrorCode::InvalidArgument;
        let teams = [world.team(), world.team().split_list(&[1, 2, 0]).unwrap().unwrap()];
        for team in &teams {
            let who =
                if team.number() == 0 { "the world".to_owned() } else { format!("team {}", team.number()) };
            let who: &str = &who;
            let (strided, grid) = (format!("team_split_strided of {who}"), format!("team_split_2d of {who}"));
            for (start, stride, size) in
                [(3, 1, 1), (0, 1, 4), (0, 0, 2), (0, 1, 0), (1, -1, 3), (u32::MAX, 1, 1)]
            {
                refused(
                    team,
                    team.split_strided(start, stride, size),
                    wrong,
                    &[strided.as_str(), "out of 0 to 2"],
                );
            }
            refused(team, team.split_2d(0), wrong, &[grid.as_str(), "x range of 0"]);
            refused(team, team.split_list(&[0, 3]), wrong, &["3 in the list is no member", who]);
            refused(team, team.split_list(&[0, 2, 0]), wrong, &["0 is in the list twice"]);
            for sets in [0, 1025] {
                let config = TeamConfig::default().slot_sets(sets);
                refused(
                    team,
                    team.configured(config).strided(0, 1, 1),
                    wrong,
                    &["slot sets: expected 1 to 1024"],
                );
            }
            refused(team, team.world_pe(3), ErrorCode::BadPe, &["has no member 3"]);
            refused(team, team.translate(7, &world.team()), ErrorCode::BadPe, &[who, "no member 7"]);
        }
    });
}

#[test]
fn a_second_thread_in_calls_of_one_team_is_refused() {
    both(2, |world, _| {
        let team = world.team().split_strided(0, 1, 2).unwrap().unwrap();
        let said = world.signal().unwrap();
        if world.my_pe().number() == 0 {
            // Either comes first; it waits for PE 1, which waits for the other's error.
            let sync = || {
                let result = team.sync();
                let Err(error) = result else { return 0 };
                let text = error.to_string();
                assert_eq!(error.code(), ErrorCode::Busy, "{text}");
                assert!(text.contains("PE 0") && text.contains(&format!("team {}", team.number())), "{text}");
                said.signal_op(SignalOp::Set, 1, world.right()).unwrap();
                1
            };
            let refused = std::thread::scope(|scope| {
                let threads = [scope.spawn(sync), scope.spawn(sync)];
                threads.map(|thread| thread.join().unwrap()).iter().sum::<i32>()
            });
            assert_eq!(refused, 1);
        } else {
            said.wait_until(Cmp::Eq, 1).unwrap();
            team.sync().unwrap();
        }
        team.free().unwrap();
    });
}

#[test]
fn a_team_of_another_world_is_refused() {
    if place::in_turns(2) {
        return println!(
            "SKIP a_team_of_another_world_is_refused: two worlds of a PE share no GPU with others"
        );
    }
    let uid = Uid::create().unwrap().to_string();
    place::pes(2).env("UID_OF_OTHER", uid).threads(|world| {
        let uid: Uid = std::env::var("UID_OF_OTHER").unwrap().parse().unwrap();
        let other = World::builder().uid(&uid, world.my_pe().number(), 2).init().unwrap();
        let (ours, theirs) = (world.team().split(Some(1), 0).unwrap().unwrap(), other.team());
        let wrong = ErrorCode::InvalidArgument;
        refused(
            &ours,
            ours.translate(0, &theirs),
            wrong,
            &["different worlds", format!("team {}", ours.number()).as_str()],
        );
        refused(&ours, theirs.compare(&ours), wrong, &["different worlds"]);
        // A kernel of one world that is given a team of the other gives up, and a GPU with it.
        if !place::on_gpus() {
            let module = world.load(crate::kernels::SOURCE).unwrap();
            // SAFETY: the kernel does nothing but sync.
            unsafe { module.kernel("meet").unwrap().launch(Launch::new(1, 1), (&theirs,)) }.unwrap();
            let error = world.synchronize().unwrap_err();
            assert!(error.to_string().contains("team"), "{error}");
        }
        ours.free().unwrap();
        drop(theirs);
        other.finalize().unwrap();
    });
}

/// A PE that comes late is named, with the team, by those that wait, once their time is over. Its own call
/// meets theirs, and the team goes on.
#[test]
fn who_does_not_come_is_named_with_the_team() {
    place::pes(3).env("RUSHMEM_TIMEOUT", "3").threads(|world| {
        let said = world.signal().unwrap();
        let team = world.team().split_list(&[2, 1]).unwrap();
        if world.my_pe().number() == 1 {
            let team = team.as_ref().unwrap();
            let error = team.sync().unwrap_err();
            let text = error.to_string();
            assert_eq!(error.code(), ErrorCode::Timeout, "{text}");
            assert!(
                text.contains("for PE 2") && text.contains(&format!("of team {}", team.number())),
                "{text}"
            );
            world.pes().for_each(|pe| said.signal_op(SignalOp::Set, 1, pe).unwrap());
        }
        said.wait_until(Cmp::Eq, 1).unwrap();
        if world.my_pe().number() == 2 {
            team.as_ref().unwrap().sync().unwrap();
        }
        drop(team);
    });
}
