//! A bootstrap for this crate's own tests: PEs are threads of one process that meet in a shared table.

use std::any::Any;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use rushmem_bootstrap_abi::{BootError, BootErrorKind, Bootstrap, Death, Result};

use crate::config::Config;
use crate::world::World;

#[derive(Default)]
struct Table {
    round: u64,
    came: usize,
    blobs: Vec<Vec<u8>>,
    last: Vec<Vec<u8>>,
    death: Option<Death>,
}

struct Fake {
    rank: u32,
    n: u32,
    table: Arc<(Mutex<Table>, Condvar)>,
}

impl Fake {
    fn gather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        let (table, cv) = &*self.table;
        let mut t = table.lock().unwrap();
        t.blobs.resize(self.n as usize, Vec::new());
        t.blobs[self.rank as usize] = mine.to_vec();
        t.came += 1;
        let round = t.round;
        if t.came == self.n as usize {
            (t.came, t.round) = (0, round + 1);
            t.last = std::mem::take(&mut t.blobs);
            cv.notify_all();
        }
        let (t, late) = cv
            .wait_timeout_while(t, Duration::from_secs(90), |t| t.round == round && t.death.is_none())
            .unwrap();
        if t.round == round {
            let kind = if late.timed_out() { BootErrorKind::Timeout } else { BootErrorKind::PeerDead };
            return Err(BootError::new(
                kind,
                t.death.as_ref().map_or("a PE never came".into(), |d| d.what.clone()),
            ));
        }
        Ok(t.last.clone())
    }
}

impl Bootstrap for Fake {
    fn name(&self) -> &str {
        "fake"
    }
    fn rank(&self) -> u32 {
        self.rank
    }
    fn n_ranks(&self) -> u32 {
        self.n
    }
    fn allgather(&self, input: &[u8], out: &mut [u8]) -> Result<()> {
        out.copy_from_slice(&self.gather(input)?.concat());
        Ok(())
    }
    fn alltoall(&self, _: &[u8], _: &mut [u8]) -> Result<()> {
        Err(BootError::new(BootErrorKind::Internal, "the fake has no alltoall"))
    }
    fn barrier(&self) -> Result<()> {
        self.gather(&[]).map(|_| ())
    }
    fn broadcast(&self, buf: &mut [u8], root: u32) -> Result<()> {
        buf.copy_from_slice(&self.gather(buf)?[root as usize]);
        Ok(())
    }
    fn death(&self) -> Option<Death> {
        self.table.0.lock().unwrap().death.clone()
    }
    fn abort(&self, why: &str) {
        let mut t = self.table.0.lock().unwrap();
        t.death.get_or_insert(Death { rank: self.rank, what: why.into() });
        self.table.1.notify_all();
    }
}

/// Rounds of a test that repeats something until luck would have shown a fault: fewer over a network, where
/// each takes some thousand times as long.
pub(crate) fn rounds(n: usize) -> usize {
    match std::env::var("RUSHMEM_TEST_WAY").unwrap_or_default().as_str() {
        "" | "direct" => n,
        _ => n.div_ceil(10),
    }
}

/// Runs `f` on `n` PEs, each a thread with its world; finalises them and gives the results by PE.
pub(crate) fn worlds<T: Send>(n: u32, f: impl Fn(&World) -> T + Sync) -> Vec<T> {
    worlds_with(n, &[], |w| {
        let out = f(w);
        w.finalize().unwrap();
        out
    })
}

/// The same with settings, and without finalising.
pub(crate) fn worlds_with<T: Send>(n: u32, env: &[(&str, &str)], f: impl Fn(&World) -> T + Sync) -> Vec<T> {
    let table = Arc::new((Mutex::new(Table::default()), Condvar::new()));
    // The tests look into the heaps themselves, so these are in host memory unless a test says otherwise.
    let way = std::env::var("RUSHMEM_TEST_WAY").unwrap_or_default();
    let way: &[(&str, &str)] = match way.as_str() {
        "" | "direct" => &[],
        // Each PE a node by itself: the whole way of a PE on another host.
        "ucx" => &[("RUSHMEM_TRANSPORT", "ucx"), ("RUSHMEM_PES_PER_NODE", "1")],
        // The same as networks have it that copy by themselves.
        "ucx-copies" => {
            &[("RUSHMEM_TRANSPORT", "ucx"), ("RUSHMEM_PES_PER_NODE", "1"), ("RUSHMEM_FAR_COPIES", "ucx")]
        }
        "fake" => &[("RUSHMEM_TRANSPORT", "fake"), ("RUSHMEM_PES_PER_NODE", "1")],
        // Kernels write queues of a software card; the rest goes by the fake network.
        "queue" => &[("RUSHMEM_TRANSPORT", "queue-emulated"), ("RUSHMEM_PES_PER_NODE", "1")],
        // Two PEs a node, so that some are near and some are far.
        "mixed" => &[("RUSHMEM_PES_PER_NODE", "2")],
        // The same in an order of which the near PEs take a table.
        "mixed-fake" => &[("RUSHMEM_TRANSPORT", "fake"), ("RUSHMEM_NODES", "0,0,1,0,1")],
        other => panic!("RUSHMEM_TEST_WAY={other}"),
    };
    // Where a test has its own hosts, the way's are not asked for.
    let places = |name: &str| ["RUSHMEM_PES_PER_NODE", "RUSHMEM_NODES"].contains(&name);
    let placed = env.iter().any(|(name, _)| places(name));
    let way = way.iter().filter(|(name, _)| !(placed && places(name)));
    let env: Vec<_> = env.iter().chain(way).copied().chain([("RUSHMEM_DEVICE", "cpu")]).collect();
    let lookup = |name: &str| {
        let given = env.iter().find(|(k, _)| *k == name).map(|(_, v)| v.to_string());
        given.or_else(|| name.starts_with("RUSHMEM_FAKE_").then(|| std::env::var(name).ok())?)
    };
    let config = Config::from_lookup(&lookup).unwrap();
    std::thread::scope(|s| {
        let pes: Vec<_> = (0..n)
            .map(|rank| {
                let boot = Fake { rank, n, table: Arc::clone(&table) };
                let (config, f) = (config.clone(), &f);
                let table = Arc::clone(&table);
                s.spawn(move || {
                    let world = World::start(Box::new(boot), config).unwrap();
                    // Before the world goes: the others are not to wait for what it has left undone.
                    catch_unwind(AssertUnwindSafe(|| f(&world))).unwrap_or_else(|panic| {
                        report_panic(&table, rank, &*panic);
                        resume_unwind(panic)
                    })
                })
            })
            .collect();
        let mut ended: Vec<_> = pes.into_iter().map(|pe| pe.join()).collect();
        // What the others say comes of what the first has said.
        let first = table.0.lock().unwrap().death.as_ref().map_or(0, |death| death.rank as usize);
        ended.rotate_left(first);
        let mut results: Vec<T> =
            ended.into_iter().map(|end| end.unwrap_or_else(|e| resume_unwind(e))).collect();
        results.rotate_right(first);
        results
    })
}

/// Tells the others that a PE has panicked, unless they have something better to say.
fn report_panic(table: &(Mutex<Table>, Condvar), rank: u32, panic: &(dyn Any + Send)) {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    let what = format!("its thread panicked: {}", text.unwrap_or("no text"));
    let mut t = table.0.lock().unwrap();
    t.death.get_or_insert(Death { rank, what });
    table.1.notify_all();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::control::Call;
    use std::time::Instant;

    /// In whatever they wait: a collective call, or the bootstrap's.
    #[test]
    fn a_pe_that_panics_ends_the_others_with_its_message() {
        let start = Instant::now();
        for seen in [true, false] {
            let ended = catch_unwind(AssertUnwindSafe(|| {
                worlds_with(3, &[], |w| match w.my_pe() {
                    1 => panic!("on purpose"),
                    _ if seen => w.sync_all(Call::BarrierAll).unwrap(),
                    _ => w.finalize().unwrap(),
                })
            }));
            let panic = ended.expect_err("one has panicked");
            assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
        }
        assert!(start.elapsed() < Duration::from_secs(60), "it took {:?}", start.elapsed());
    }
}
