//! Ranks as processes: killed with SIGKILL while joining, in a barrier, in an allgather, between calls;
//! stopped and continued; started by the variables of a launcher. The test binary starts itself with the test
//! `child` and a role in the environment. What a child has to say to the test begins with `@`.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use rushmem_bootstrap_abi::{BootErrorKind, Bootstrap};
use rushmem_bootstrap_conformance::{run_all, Limits};
use rushmem_bootstrap_uid::{environment, join_uid, RendezvousHandle, Uid, UidConfig};

const ROLE: &str = "RUSHMEM_TEST_ROLE";
/// How soon survivors must be gone after a death: a few milliseconds when the machine is not overloaded.
const SOON: Duration = Duration::from_secs(5);
/// How long anything may take on a loaded machine.
const LONG: Duration = Duration::from_secs(60);

// ---- the child's side ----

#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let text = match role.as_str() {
        "env" => by_environment(),
        _ => by_uid(&role),
    };
    println!("@end {text}");
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

#[allow(clippy::disallowed_methods)] // exiting without leaving is what role `exit` is for
fn by_uid(role: &str) -> String {
    let (rank, n) =
        (variable("TEST_RANK").parse().expect("a rank"), variable("TEST_N").parse().expect("a number"));
    let timeout = if role == "limit" { Duration::from_secs(2) } else { LONG };
    let cfg = UidConfig { init_timeout: LONG, timeout, ..UidConfig::new(rank, n) };
    let mut host = None;
    let uid = match std::env::var("TEST_UID") {
        Ok(hex) => Uid::from_hex(&hex).expect("a unique ID"),
        Err(_) => {
            let (uid, handle) = Uid::create(Some("lo")).expect("a unique ID");
            println!("@uid {}", uid.to_hex());
            host = Some(handle);
            uid
        }
    };
    if let Some(handle) = host {
        std::thread::spawn(move || {
            while handle.joined() < n - 1 {
                std::thread::sleep(Duration::from_millis(2));
            }
            println!("@host all but one are here");
            std::thread::sleep(LONG);
        });
    }
    let b = match join_uid(&uid, cfg) {
        Ok(b) => b,
        Err(e) => return format!("{:?} {:?} {e}", e.kind, e.rank),
    };
    println!("@ready");
    let error = match role {
        "barrier" | "limit" if rank == n - 1 => {
            std::thread::sleep(LONG);
            return "nobody killed this rank".into();
        }
        "barrier" | "limit" => b.barrier().err(),
        "allgather" => {
            let mut out = vec![0; (200_000 + 1) * n as usize];
            loop {
                if let Err(e) = b.allgather(&vec![rank as u8; 200_001], &mut out) {
                    break Some(e);
                }
            }
        }
        "idle" => {
            while b.death().is_none() {
                std::thread::sleep(Duration::from_millis(5));
            }
            let death = b.death().expect("it was there");
            return format!("Death Some({}) {}", death.rank, death.what);
        }
        "exit" if rank == n - 1 => {
            println!("@end exits");
            std::process::exit(0); // no finalize, no drop
        }
        "exit" => b.barrier().err(),
        "suite" => {
            let result = run_all(&b, &Limits { max_total: 4 << 20, ..Limits::default() });
            return match result.and_then(|()| b.finalize().map_err(|e| e.to_string())) {
                Ok(()) => "fine".into(),
                Err(e) => e,
            };
        }
        other => panic!("no role {other}"),
    };
    match error {
        Some(e) => format!("{:?} {:?} {e}", e.kind, e.rank),
        None => "no error".into(),
    }
}

fn by_environment() -> String {
    let result = environment::detect_here().and_then(|launch| {
        println!("@why {}", launch.why);
        let b = launch.join(UidConfig { init_timeout: LONG, ..UidConfig::new(0, 1) })?;
        let mut out = vec![0; b.n_ranks() as usize];
        b.allgather(&[b.rank() as u8], &mut out)?;
        assert!(out.iter().enumerate().all(|(r, x)| r == *x as usize));
        b.finalize()
    });
    result.map_or_else(|e| e.to_string(), |()| "fine".into())
}

// ---- the test's side ----

/// Children, and what they say. Whatever happens, none outlives this.
struct Children {
    all: HashMap<u32, Child>,
    tx: Sender<(u32, String)>,
    said: Receiver<(u32, String)>,
}

impl Children {
    fn new() -> Children {
        let (tx, said) = mpsc::channel();
        Children { all: HashMap::new(), tx, said }
    }

    fn start(&mut self, id: u32, role: &str, vars: &[(&str, String)]) {
        let mut command = Command::new(std::env::current_exe().expect("this test's path"));
        command.args(["--exact", "child", "--nocapture", "--test-threads=1"]).env(ROLE, role);
        for name in ["RUST_TEST_THREADS", "RUSHMEM_PE", "RUSHMEM_NPES", "RUSHMEM_UID"] {
            command.env_remove(name);
        }
        command.envs(vars.iter().map(|(k, v)| (*k, v)));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("a child");
        let out = child.stdout.take().expect("it is piped");
        let tx = self.tx.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                // The harness may have begun the line.
                if let Some(at) = line.find('@') {
                    let _ = tx.send((id, line[at + 1..].to_owned()));
                }
            }
        });
        self.all.insert(id, child);
    }

    fn start_ranks(&mut self, role: &str, n: u32, uid: &Uid, ranks: impl IntoIterator<Item = u32>) {
        for rank in ranks {
            let vars =
                [("TEST_RANK", rank.to_string()), ("TEST_N", n.to_string()), ("TEST_UID", uid.to_hex())];
            self.start(rank, role, &vars);
        }
    }

    /// Waits until each of `who` has said a line that begins with `what`; the lines.
    fn lines_of(
        &self,
        who: impl IntoIterator<Item = u32>,
        what: &str,
        limit: Duration,
    ) -> HashMap<u32, String> {
        let mut open: Vec<u32> = who.into_iter().collect();
        let mut lines = HashMap::new();
        let deadline = Instant::now() + limit;
        while !open.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            let (id, line) = self
                .said
                .recv_timeout(left)
                .unwrap_or_else(|_| panic!("children {open:?} did not say {what:?} within {limit:?}"));
            if line.starts_with(what) && open.contains(&id) {
                open.retain(|o| *o != id);
                lines.insert(id, line[what.len()..].trim().to_owned());
            } else if line.starts_with("end") {
                panic!("child {id} ended early: {line}");
            }
        }
        lines
    }

    fn signal(&self, id: u32, signal: Signal) {
        kill(Pid::from_raw(self.all[&id].id() as i32), signal).expect("the child is there");
    }

    fn pid(&self, id: u32) -> u32 {
        self.all[&id].id()
    }

    /// Kills rank `victim`; all of `others` must soon end and name it.
    fn kill_and_check(&mut self, victim: u32, others: impl IntoIterator<Item = u32>, kind: &str) {
        let pid = self.pid(victim);
        let start = Instant::now();
        self.signal(victim, Signal::SIGKILL);
        let ends = self.lines_of(others, "end", LONG);
        let took = start.elapsed();
        for (rank, text) in ends {
            assert!(text.starts_with(&format!("{kind} Some({victim}) ")), "rank {rank}: {text}");
            assert!(text.contains(&format!("rank {victim} (host ")), "rank {rank}: {text}");
            assert!(text.contains(&format!("pid {pid})")), "rank {rank}: {text}");
        }
        assert!(took < SOON, "the others ended only {took:?} after the death");
        println!("{kind}: the others knew {took:?} after the death of rank {victim}");
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for child in self.all.values_mut() {
            let _ = child.kill(); // it may be gone
            let _ = child.wait();
        }
    }
}

fn uid() -> (Uid, RendezvousHandle) {
    Uid::create(Some("lo")).expect("a unique ID")
}

const PEER_DEAD: &str = "PeerDead";

#[test]
fn killed_while_joining() {
    let (uid, rendezvous) = uid();
    let mut children = Children::new();
    children.start_ranks("barrier", 4, &uid, [0, 1, 2]);
    let start = Instant::now();
    while rendezvous.joined() < 3 {
        assert!(start.elapsed() < LONG, "only {} joined", rendezvous.joined());
        std::thread::sleep(Duration::from_millis(2));
    }
    children.kill_and_check(1, [0, 2], PEER_DEAD);
    // One that comes now must not wait for its limit either.
    let e = join_uid(&uid, UidConfig::new(3, 4)).expect_err("the job has failed");
    assert_eq!((e.kind, e.rank), (BootErrorKind::PeerDead, Some(1)), "{e}");
}

#[test]
fn the_host_of_the_rendezvous_killed_while_joining() {
    let mut children = Children::new();
    let vars = |rank: u32| vec![("TEST_RANK", rank.to_string()), ("TEST_N", "4".into())];
    children.start(2, "barrier", &vars(2));
    let uid = children.lines_of([2], "uid", LONG).remove(&2).expect("it said so");
    for rank in [0, 3] {
        children.start(rank, "barrier", &[vars(rank), vec![("TEST_UID", uid.clone())]].concat());
    }
    children.lines_of([2], "host all but one", LONG);
    children.kill_and_check(2, [0, 3], PEER_DEAD);
}

#[test]
fn killed_in_a_barrier() {
    for n in [2, 5, 9] {
        let (uid, _rendezvous) = uid();
        let mut children = Children::new();
        children.start_ranks("barrier", n, &uid, 0..n);
        children.lines_of(0..n, "ready", LONG);
        std::thread::sleep(Duration::from_millis(100));
        children.kill_and_check(n - 1, 0..n - 1, PEER_DEAD);
    }
}

#[test]
fn killed_in_an_allgather() {
    let (uid, _rendezvous) = uid();
    let mut children = Children::new();
    children.start_ranks("allgather", 6, &uid, 0..6);
    children.lines_of(0..6, "ready", LONG);
    std::thread::sleep(Duration::from_millis(300));
    children.kill_and_check(0, 1..6, PEER_DEAD);
}

#[test]
fn killed_between_calls() {
    let (uid, _rendezvous) = uid();
    let mut children = Children::new();
    children.start_ranks("idle", 7, &uid, 0..7);
    children.lines_of(0..7, "ready", LONG);
    children.kill_and_check(3, [0, 1, 2, 4, 5, 6], "Death");
}

#[test]
fn an_exit_without_finalize_is_a_death() {
    let (uid, _rendezvous) = uid();
    let mut children = Children::new();
    children.start_ranks("exit", 3, &uid, 0..3);
    let ends = children.lines_of(0..3, "end", LONG);
    for rank in [0, 1] {
        assert!(ends[&rank].starts_with("PeerDead Some(2) "), "{}", ends[&rank]);
    }
}

#[test]
fn a_stopped_rank_is_not_dead() {
    let (uid, _rendezvous) = uid();
    let mut children = Children::new();
    children.start_ranks("suite", 3, &uid, 0..3);
    children.lines_of(0..3, "ready", LONG);
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(100));
        children.signal(1, Signal::SIGSTOP);
        std::thread::sleep(Duration::from_millis(500));
        children.signal(1, Signal::SIGCONT);
    }
    for (rank, text) in children.lines_of(0..3, "end", LONG) {
        assert_eq!(text, "fine", "rank {rank}");
    }
}

#[test]
fn a_rank_that_is_stopped_for_longer_than_the_limit_is_named() {
    let (uid, _rendezvous) = uid();
    let mut children = Children::new();
    children.start_ranks("limit", 4, &uid, 0..4);
    children.lines_of(0..4, "ready", LONG);
    children.signal(3, Signal::SIGSTOP);
    for (rank, text) in children.lines_of(0..3, "end", LONG) {
        assert!(text.starts_with("Timeout Some(3) rank 3 of 4 never came to barrier"), "rank {rank}: {text}");
        assert!(text.contains("no answer at all from rank 3"), "rank {rank}: {text}");
    }
}

#[test]
fn jobs_start_by_the_variables_of_launchers() {
    let port = (15000 + std::process::id() % 4000).to_string();
    let torch = |job: u32, rank: u32| {
        let mut vars: Vec<(&str, String)> =
            vec![("MASTER_ADDR", "127.0.0.1".into()), ("MASTER_PORT", port.clone())];
        vars.push(("TORCHELASTIC_RUN_ID", format!("job-{job}")));
        vars.extend([
            ("RANK", rank.to_string()),
            ("WORLD_SIZE", "3".into()),
            ("LOCAL_RANK", rank.to_string()),
        ]);
        vars
    };
    let slurm = |rank: u32| {
        let mut vars: Vec<(&str, String)> =
            vec![("SLURM_JOB_ID", port.clone()), ("SLURM_STEP_ID", "0".into())];
        vars.extend([("SLURM_PROCID", rank.to_string()), ("SLURM_STEP_NUM_TASKS", "3".into())]);
        vars.push(("SLURM_STEP_NODELIST", "localhost".into()));
        vars
    };
    let (uid, _rendezvous) = uid();
    let own = |rank: u32| {
        vec![("RUSHMEM_PE", rank.to_string()), ("RUSHMEM_NPES", "3".into()), ("RUSHMEM_UID", uid.to_hex())]
    };
    // Four jobs at once, rank 0 of each last.
    let mut children = Children::new();
    for rank in [2, 1, 0] {
        children.start(rank, "env", &torch(0, rank));
        children.start(10 + rank, "env", &torch(1, rank));
        children.start(20 + rank, "env", &slurm(rank));
        children.start(30 + rank, "env", &own(rank));
    }
    let ids = (0..4).flat_map(|job| (0..3).map(move |rank| job * 10 + rank));
    for (id, text) in children.lines_of(ids, "end", LONG) {
        assert_eq!(text, "fine", "child {id}");
    }
}
