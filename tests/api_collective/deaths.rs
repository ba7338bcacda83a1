//! A PE dies in the middle of each collective: the others end within seconds, with an error that names it.

use crate::api_common::kill::{one_of, until_it_fails};
use crate::api_common::place;
use rushmem::{Result, Sum, Team, World};

/// Elements of an array: large ones of symmetric memory move directly.
const SMALL: usize = 40;
const LARGE: usize = 60_000;

type Call = fn(&Team<'_>, &rushmem::SymRef<'_, u64>, &rushmem::SymRef<'_, u64>) -> Result<()>;

/// Kills a PE while all repeat calls of one kind, small and large, on symmetric memory and other.
fn kill_in(name: &str, call: Call) {
    if !place::processes(name) {
        return;
    }
    one_of(3).kills(|| {
        let world = World::init().expect("nobody dies during start-up here");
        let (to, from) = (world.alloc(LARGE).unwrap(), world.alloc(LARGE).unwrap());
        let team = world.team();
        let both = || {
            call(&team, &to.slice(..SMALL)?, &from.slice(..SMALL)?)?;
            call(&team, &to, &from)
        };
        // A kernel that a call needs is compiled by then, which may take a GPU's compiler longer than those
        // that live have here: it is not interrupted.
        both().expect("nobody dies before all are ready");
        until_it_fails(both)
    });
}

macro_rules! killed {
    ($($name:ident: |$team:ident, $to:ident, $from:ident| $call:expr;)*) => {$(
        #[test]
        fn $name() {
            kill_in(stringify!($name), |$team, $to, $from| $call);
        }
    )*};
}

killed! {
    killed_in_a_broadcast: |team, to, from| team.broadcast(to, from, 1);
    killed_in_a_broadcast_of_private_memory: |team, to, from| {
        let mut data = vec![0; to.len()];
        from.read(&mut data)?;
        team.broadcast_in_place(&mut data, 2)
    };
    killed_in_an_fcollect: |team, to, from| {
        let n = to.len() / 3;
        team.fcollect(&to.slice(..3 * n)?, &from.slice(..n)?)
    };
    killed_in_a_collect: |team, to, from| {
        team.collect(to, &from.slice(..to.len() / 3 - team.my_pe() as usize)?).map(drop)
    };
    killed_in_an_alltoall: |team, to, from| {
        let n = to.len() / 3 * 3;
        team.alltoall(&to.slice(..n)?, &from.slice(..n)?)
    };
    killed_in_an_alltoalls: |team, to, from| team.alltoalls(to, from, 2, 1, to.len() / 6);
    killed_in_an_alltoallv: |team, to, from| {
        let n = to.len() / 3;
        team.alltoallv(to, &[0, n, 2 * n], from, &[0, n, 2 * n], &[n, n - 1, n - 2]).map(drop)
    };
    killed_in_a_reduce: |team, to, from| team.reduce(to, from, Sum);
    killed_in_a_reducescatter: |team, to, from| {
        let n = to.len() / 3;
        team.reducescatter(&to.slice(..n)?, &from.slice(..3 * n)?, Sum)
    };
    killed_in_scans: |team, to, from| {
        team.inscan(to, from, Sum)?;
        team.exscan(to, from, Sum)
    };
}
