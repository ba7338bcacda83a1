//! Wrong use of collectives: an error on every member that names the PEs, the call and the team, nothing
//! written, and a team that works as before.

use crate::api_common::{both, place};
use rushmem::{Cmp, ErrorCode, Max, Prod, Result, SignalOp, Sum, Team};

/// The call failed with that code, and the text has all of these parts; the team works.
#[track_caller]
fn refused<T: std::fmt::Debug>(team: &Team<'_>, result: Result<T>, code: ErrorCode, parts: &[&str]) {
    let error = match result {
        Ok(value) => panic!("nothing was refused, but {value:?} given: {parts:?}"),
        Err(error) => error,
    };
    assert_eq!(error.code(), code, "{error}");
    for part in parts {
        assert!(error.to_string().contains(part), "{part} is not in: {error}");
    }
    let mut sum = [1u32];
    team.reduce_in_place(&mut sum, Sum).unwrap();
    assert_eq!(sum, [team.n_pes()]);
}

#[test]
fn arguments_that_differ_are_named_with_their_pes_and_the_team() {
    both(3, |world, _| {
        let team = world.team().split_strided(2, -1, 3).unwrap().unwrap();
        let odd = world.my_pe().number() == 1;
        let name = format!("of team {}", team.number());
        let wrong = ErrorCode::Mismatch;
        let to = world.alloc::<u32>(60_000).unwrap();
        let from = world.alloc::<u32>(60_000).unwrap();
        to.fill(7).unwrap();
        world.barrier_all().unwrap();
        for n in [30, 30_000] {
            let more = n + usize::from(odd);
            let part = |n: usize| (to.slice(..n).unwrap(), from.slice(..n).unwrap());
            let (t, f) = part(more);
            let size = ["the size, in bytes, of team_reduce", &name, "on PE 1", "on PE 2"];
            refused(&team, team.reduce(&t, &f, Sum), wrong, &size);
            let call = if odd { team.reduce(&to, &from, Sum) } else { team.reduce(&to, &from, Prod) };
            refused(
                &team,
                call,
                wrong,
                &["the operator of team_reduce", &name, "sum on PE 1", "prod on PE 0"],
            );
            let (mut ints, mut floats) = (vec![0i32; n], vec![0f32; n]);
            let call = if odd {
                team.inscan(&mut ints, &vec![1; n], Max)
            } else {
                team.inscan(&mut floats, &vec![1.0; n], Max)
            };
            refused(
                &team,
                call,
                wrong,
                &["the type of team_inscan", &name, "int32 on PE 1", "float on PE 2"],
            );
            let (t, f) = part(n);
            let call = team.broadcast(&t, &f, odd.into());
            refused(&team, call, wrong, &["the root of team_broadcast", &name, "1 on PE 1", "0 on PE 0"]);
            let call = team.alltoalls(&t, &f, 1, 1 + usize::from(odd), n / 6);
            refused(&team, call, wrong, &["the strides of team_alltoalls", &name, "PE 1"]);
            let call = if odd { team.reduce(&t, &f, Sum) } else { team.exscan(&t, &f, Sum) };
            refused(&team, call, wrong, &["PE 1 called team_reduce", "PE 2 called team_exscan", &name[3..]]);
            let call = if odd { team.sync() } else { team.collect(&to, &f).map(drop) };
            refused(&team, call, wrong, &["PE 1 called team_sync", "PE 0 called team_collect"]);
        }
        assert!(to.to_vec().unwrap().iter().all(|word| *word == 7), "nothing was written");
        team.free().unwrap();
    });
}

/// A mistake of one member ends the call on all of them: its own error says what was wrong, theirs whose it
/// was.
#[test]
fn a_mistake_of_one_member_is_an_error_of_all() {
    both(3, |world, _| {
        let team = world.team().split_list(&[1, 2, 0]).unwrap().unwrap();
        let odd = world.my_pe().number() == 2;
        let memory = world.alloc::<u64>(3000).unwrap();
        let check = |result: Result<()>, code, own: &str| {
            let (code, part) = if odd { (code, own) } else { (code, "PE 2") };
            refused(&team, result, code, &[part]);
        };
        let (n, short) = (3000, if odd { 2999 } else { 3000 });
        let (mut to, from) = (vec![0u64; n], vec![1u64; n]);
        let out = ErrorCode::OutOfBounds;
        // The others learn that a destination was refused.
        let others = if odd { out } else { ErrorCode::InvalidArgument };
        check(team.reduce(&mut to[..short], &from, Sum), others, "reduce of 3000 elements");
        check(team.fcollect(&mut to[..short], &from[..1000]), others, "expected 1000 for each of 3 members");
        check(team.alltoall(&mut to[..short], &from[..short]).map(drop), others, "3 blocks from");
        check(team.reducescatter(&mut to[..1000], &from[..short], Sum), others, "expected 1000 for each");
        let lists = [&[0, 1000, 2000][..], &[1000, 1000, short - 2000]];
        let call = team.alltoallv(&mut to, lists[0], &from[..short], lists[0], &[1000; 3]).map(drop);
        check(call, others, "1000 elements at 2000 of a source of 2999");
        // Room for what comes is each member's own matter, and checked before anything moves.
        let call = team.alltoallv(&mut to[..short], lists[0], &from, lists[0], &[1000; 3]).map(drop);
        check(call, out, "what comes ends 24000 bytes behind the start of the destination, which has 23992");
        let call = team.collect(&mut to[..short], &from[..1000]).map(drop);
        refused(&team, call, out, &["24000 bytes come from all members", "PE 2", "has room for 23992"]);
        // Arrays that share a part.
        let (low, high) = (memory.slice(..2000).unwrap(), memory.slice(1..2001).unwrap());
        let whole = memory.slice(1000..).unwrap();
        let result = if odd { team.reduce(&low, &high, Sum) } else { team.reduce(&low, &to[..2000], Sum) };
        check(result, ErrorCode::InvalidArgument, "overlap");
        assert_eq!(whole.len(), 2000);
        for root in [3, u32::MAX] {
            let call = team.broadcast(&mut to, &from, root);
            refused(&team, call, ErrorCode::BadPe, &["team_broadcast of team", "the root"]);
        }
        assert!(to.iter().all(|word| *word == 0), "nothing was written");
        world.barrier_all().unwrap();
        team.free().unwrap();
    });
}

/// What the Rust API cannot ask for, by the C ABI.
#[test]
fn what_is_no_reduction_is_refused_on_all() {
    type Reduce = unsafe extern "C" fn(*mut std::ffi::c_void, *mut u64, *const u64, usize, i32, i32) -> i32;
    both(2, |world, _| {
        let (_, path) = rushmem::runtime().unwrap();
        // SAFETY: the runtime that the process has loaded already.
        let library = unsafe { libloading::Library::new(path) }.unwrap();
        // SAFETY: the function has that type.
        let reduce = unsafe { library.get::<Reduce>(b"rushmem_team_reduce\0") }.unwrap();
        let team = world.team();
        let mut x = [1u64, 2];
        for (of, op) in [(4, 4), (12, 2), (14, 0), (-1, 0), (0, 7), (10, 6)] {
            // SAFETY: a team that lives and room for two elements of any type.
            let code = unsafe { reduce(team.as_raw().cast(), x.as_mut_ptr(), x.as_ptr(), 1, of, op) };
            assert_eq!(code, -1, "type {of}, operator {op}");
        }
        // SAFETY: nothing is touched of so many elements.
        let code = unsafe { reduce(team.as_raw().cast(), x.as_mut_ptr(), x.as_ptr(), usize::MAX / 4, 0, 0) };
        assert_eq!((code, x), (-1, [1, 2]));
        team.sync().unwrap();
    });
}

#[test]
fn a_second_thread_in_calls_of_one_team_is_refused() {
    both(2, |world, _| {
        let team = world.team().split_strided(0, 1, 2).unwrap().unwrap();
        let said = world.signal().unwrap();
        if world.my_pe().number() == 0 {
            let refused: i32 = std::thread::scope(|scope| {
                let call = || match team.fcollect(&mut [0, 0], &[1]) {
                    Ok(()) => 0,
                    Err(error) => {
                        assert_eq!(error.code(), ErrorCode::Busy, "{error}");
                        said.signal_op(SignalOp::Set, 1, rushmem::Pe::new(1)).unwrap();
                        1
                    }
                };
                let threads = [scope.spawn(call), scope.spawn(call)];
                threads.map(|thread| thread.join().unwrap()).iter().sum()
            });
            assert_eq!(refused, 1);
        } else {
            said.wait_until(Cmp::Eq, 1).unwrap();
            team.fcollect(&mut [0, 0], &[1]).unwrap();
        }
        team.free().unwrap();
    });
}

/// Who does not come is named with the call and the team.
#[test]
fn who_is_late_is_named_with_the_call() {
    place::pes(3).env("RUSHMEM_TIMEOUT", "3").threads(|world| {
        let said = world.signal().unwrap();
        let team = world.team().split_list(&[2, 1]).unwrap();
        if world.my_pe().number() == 1 {
            let team = team.as_ref().unwrap();
            let error = team.alltoall(&mut [0u64; 2], &[1, 2]).unwrap_err();
            let text = error.to_string();
            assert_eq!(error.code(), ErrorCode::Timeout, "{text}");
            assert!(text.contains("for PE 2 (") && text.contains("to enter team_alltoall of team"), "{text}");
            world.pes().for_each(|pe| said.signal_op(SignalOp::Set, 1, pe).unwrap());
        }
        said.wait_until(Cmp::Eq, 1).unwrap();
        if world.my_pe().number() == 2 {
            let team = team.as_ref().unwrap();
            team.alltoall(&mut [0u64; 2], &[3, 4]).unwrap();
        }
        drop(team);
    });
}
