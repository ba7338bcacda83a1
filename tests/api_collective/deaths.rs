//! A PE dies in the middle of each collective: the others end within seconds, with an error that names it.

use std::time::{Duration, Instant};

use crate::api_common::{place, Rng};
use rushmem::testing::{self, Exit, Outcome};
use rushmem::{Pe, Result, Sum, Team, World};

const LIMIT: Duration = Duration::from_secs(5);
const ENDED: i32 = 7;

/// Elements of an array: large ones of symmetric memory move directly.
const SMALL: usize = 40;
const LARGE: usize = 60_000;

type Call = fn(&Team<'_>, &rushmem::SymRef<'_, u64>, &rushmem::SymRef<'_, u64>) -> Result<()>;

/// Kills a PE while all repeat calls of one kind, small and large, on symmetric memory and other.
fn kill_in(name: &str, call: Call) {
    if !place::processes(name) {
        return;
    }
    if !place::all_mapped(3) {
        // One survivor in some thirty is ended by UCX itself, not by an error of ours.
        return place::skip(
            name,
            "UCX 1.13 may end a survivor by its assertion `got REP message` (docs/far.md)",
        );
    }
    testing::pes(3).supervise(
        |_| -> () {
            let world = World::init().expect("nobody dies during start-up here");
            let (to, from) = (world.alloc(LARGE).unwrap(), world.alloc(LARGE).unwrap());
            let team = world.team();
            println!("READY");
            let once = || {
                call(&team, &to.slice(..SMALL)?, &from.slice(..SMALL)?)?;
                call(&team, &to, &from)
            };
            let error = loop {
                if let Err(error) = once() {
                    break error;
                }
            };
            println!("ENDED with {:?}: {error}", error.code());
            std::process::exit(ENDED)
        },
        |job| {
            let mut rng = Rng::printed();
            let victim = Pe::new(rng.below(3) as u32);
            (0..3).for_each(|pe| drop(job.wait_for_line(Pe::new(pe), "READY", Duration::from_secs(20))));
            std::thread::sleep(Duration::from_millis(rng.below(40) as u64));
            let killed: Instant = job.kill(victim);
            for Outcome { pe, exit, stdout, stderr, ended, .. } in job.outcomes() {
                if pe == victim {
                    continue;
                }
                let said = format!("{pe} {exit} {:?} after the kill:\n{stdout}\n{stderr}", ended - killed);
                let last = stdout.lines().rfind(|line| line.starts_with("ENDED")).unwrap_or_default();
                assert!(exit == Exit::Code(ENDED) && last.contains(&victim.to_string()), "{said}");
                assert!(ended < killed + LIMIT, "{said}");
            }
        },
    );
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
