//! Members in one thread, each with books of its own.

use super::*;
use crate::testing::random::Random;

const ROOM: usize = 64 << 10;

fn books() -> TeamBooks {
    TeamBooks::new(ROOM, &TeamPlace { board: 0, at: 0, room: 2 }, 0)
}

/// One split among these PEs' books: where the team is, or why it is nowhere; and the rounds it took.
fn split(all: &mut [TeamBooks], members: &[usize], room: usize) -> (Result<TeamPlace, NextStep>, usize) {
    let mut parts: Vec<Agreement> = members.iter().map(|_| Agreement::new(room, 3)).collect();
    let mut rounds = 0;
    let mut next = NextStep::Search;
    loop {
        rounds += 1;
        let said: Vec<Said> = members
            .iter()
            .zip(&parts)
            .map(|(pe, part)| match next {
                NextStep::Take(place) => {
                    Said::Taken { last: all[*pe].take(&place).expect("it is free everywhere") }
                }
                _ => part.offer(&all[*pe]),
            })
            .map(|said| Said::of(said.words()))
            .collect();
        let heard: Vec<NextStep> = parts.iter_mut().map(|part| part.hear(&said)).collect();
        assert!(heard.iter().all(|other| *other == heard[0]), "members conclude alike: {heard:?}");
        match (heard[0], next) {
            (NextStep::Made(_), NextStep::Take(place)) => return (Ok(place), rounds),
            (end @ (NextStep::Exhausted { .. } | NextStep::GiveUp(_)), _) => return (Err(end), rounds),
            (other, _) => next = other,
        }
    }
}

#[test]
fn what_is_said_survives_the_words() {
    for said in [
        Said::Done,
        Said::Free { board: Some((15, u64::MAX)), memory: Some((70_000, 1)) },
        Said::Free { board: None, memory: Some((0, 1 << 63)) },
        Said::Free { board: Some((0, 5)), memory: None },
        Said::Taken { last: 1 << 47 },
        Said::Again,
        Said::Failed(-6),
    ] {
        assert_eq!(Said::of(said.words()), said);
    }
}

#[test]
fn members_with_the_same_books_agree_at_once_on_the_lowest_place() {
    let mut all: Vec<TeamBooks> = (0..5).map(|_| books()).collect();
    for i in 0..3 {
        let (place, rounds) = split(&mut all, &[0, 1, 2, 3, 4], 7);
        assert_eq!((place, rounds), (Ok(TeamPlace { board: i + 1, at: 2 + 7 * i, room: 7 }), 2));
    }
}

/// Whatever is alive, a new team finds a place if and only if all have one in common, the lowest, in few
/// rounds; none is given to two teams of one PE.
#[test]
fn any_history_of_teams_leaves_common_places_to_be_found() {
    let mut random = Random::new("any_history_of_teams_leaves_common_places_to_be_found");
    for _ in 0..30 {
        let n = 2 + random.below(5);
        let mut all: Vec<TeamBooks> = (0..n).map(|_| books()).collect();
        let mut alive: Vec<(Vec<usize>, TeamPlace)> = Vec::new();
        for number in 1..150 {
            if !alive.is_empty() && random.below(5) < 2 {
                let (members, place) = alive.swap_remove(random.below(alive.len()));
                members.iter().for_each(|pe| all[*pe].give(&place, number));
                continue;
            }
            let members: Vec<usize> = (0..n).filter(|_| random.below(3) > 0).collect();
            if members.is_empty() {
                continue;
            }
            let most = [6, 6, 6, 60][random.below(4)];
            let room = 1 + random.below(most);
            let others = |pe: &usize| {
                let of = alive.iter().filter(|(who, _)| who.contains(pe));
                of.map(|(_, place)| *place).collect::<Vec<_>>()
            };
            let taken: Vec<TeamPlace> = members.iter().flat_map(others).collect();
            let is_free = |at: usize| taken.iter().all(|p| at + room <= p.at || p.at + p.room <= at);
            let lowest = (2..=ROOM / 512 - room.min(ROOM / 512)).find(|at| is_free(*at));
            let (place, rounds) = split(&mut all, &members, room);
            assert!(rounds < 12, "{rounds} rounds");
            match (place, lowest) {
                (Ok(place), Some(at)) => {
                    assert_eq!((place.at, place.room), (at, room));
                    assert!(taken.iter().all(|other| other.board != place.board));
                    alive.push((members, place));
                }
                (Err(NextStep::Exhausted { what: Lack::Memory, .. }), None) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Two splits of other parents on the same PEs, of which each takes the place on one PE first: both come to
/// places in the end.
#[test]
fn two_splits_that_take_each_others_places_part() {
    let mut all = [books(), books()];
    let mut parts = [5usize, 6].map(|parent| [Agreement::new(4, parent), Agreement::new(4, parent)]);
    let mut next = [NextStep::Search; 2];
    let mut made = [None; 2];
    for _ in 0..50 {
        // Every offer comes before every take; on PE 0 split 0 takes first, on PE 1 split 1.
        let mut said = [[Said::Done; 2]; 2];
        for (pe, books) in all.iter_mut().enumerate() {
            for split in if pe == 0 { [0, 1] } else { [1, 0] } {
                said[split][pe] = match next[split] {
                    NextStep::Take(place) => {
                        books.take(&place).map_or(Said::Again, |last| Said::Taken { last })
                    }
                    NextStep::Made(_) => Said::Done,
                    _ => parts[split][pe].offer(books),
                };
            }
        }
        for split in 0..2 {
            let before = next[split];
            if matches!(before, NextStep::Made(_)) {
                continue;
            }
            let heard = [0, 1].map(|pe| parts[split][pe].hear(&said[split]));
            assert_eq!(heard[0], heard[1]);
            next[split] = heard[0];
            let NextStep::Take(place) = before else { continue };
            match heard[0] {
                NextStep::Made(_) => made[split] = Some(place),
                _ => (0..2)
                    .filter(|pe| matches!(said[split][*pe], Said::Taken { .. }))
                    .for_each(|pe| all[pe].give(&place, 0)),
            }
        }
    }
    let [Some(one), Some(other)] = made else { panic!("{next:?}") };
    assert!(
        one.board != other.board && (one.at + 4 <= other.at || other.at + 4 <= one.at),
        "{one:?} {other:?}"
    );
}

#[test]
fn a_pe_with_nothing_left_is_named() {
    let mut all = [books(), books(), books()];
    assert!(all[1].take(&TeamPlace { board: 1, at: 2, room: ROOM / 512 - 2 - 3 }).is_some());
    let lacks = NextStep::Exhausted { member: 1, what: Lack::Memory };
    assert_eq!(split(&mut all, &[0, 1, 2], 4).0, Err(lacks));
    assert!(split(&mut all, &[0, 1, 2], 3).0.is_ok());
}
