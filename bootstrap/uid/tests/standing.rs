//! A launcher's rendezvous: one ID, world after world, until the launcher lets go of it. Ranks are threads.

use std::time::{Duration, Instant};

use rushmem_bootstrap_abi::{BootErrorKind, Bootstrap};
use rushmem_bootstrap_uid::{join_uid, Uid, UidConfig};

const RANKS: u32 = 5;

fn config(rank: u32, n_ranks: u32, limit: Duration) -> UidConfig {
    UidConfig { init_timeout: limit, timeout: limit, ..UidConfig::new(rank, n_ranks) }
}

#[test]
fn one_id_serves_world_after_world() {
    let (uid, rendezvous) = Uid::create_standing(Some("lo")).expect("a unique ID");
    let limit = Duration::from_secs(90);
    std::thread::scope(|s| {
        for me in 0..RANKS {
            let uid = &uid;
            s.spawn(move || {
                for world in 0..20u32 {
                    // Ranks leave and come at different times, and change places.
                    std::thread::sleep(Duration::from_millis(u64::from((me * 7 + world * 3) % 5)));
                    let rank = (me + world) % RANKS;
                    let b = join_uid(uid, config(rank, RANKS, limit)).expect("the world begins");
                    let mut all = vec![0; 4 * RANKS as usize];
                    b.allgather(&(world * 100 + rank).to_le_bytes(), &mut all).expect("allgather");
                    let want: Vec<u8> = (0..RANKS).flat_map(|r| (world * 100 + r).to_le_bytes()).collect();
                    assert_eq!(all, want);
                    b.barrier().expect("barrier");
                    b.finalize().expect("everybody leaves");
                }
            });
        }
    });
    let begin = Instant::now();
    drop(rendezvous);
    assert!(begin.elapsed() < Duration::from_secs(45), "dropping took {:?}", begin.elapsed());
}

#[test]
fn when_the_launcher_lets_go_nobody_waits_on() {
    let (uid, rendezvous) = Uid::create_standing(Some("lo")).expect("a unique ID");
    let limit = Duration::from_secs(90);
    std::thread::scope(|s| {
        for rank in 0..2 {
            let uid = &uid;
            s.spawn(move || join_uid(uid, config(rank, 2, limit)).expect("a first world").finalize());
        }
    });
    std::thread::scope(|s| {
        let lonely = s.spawn(|| {
            let begin = Instant::now();
            (join_uid(&uid, config(0, 2, limit)).expect_err("rank 1 never comes"), begin.elapsed())
        });
        while rendezvous.joined() == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(rendezvous);
        let (error, took) = lonely.join().expect("no panic");
        assert_eq!(error.kind, BootErrorKind::PeerDead, "{error}");
        assert!(took < Duration::from_secs(45), "{took:?}");
    });
}
