//! The MPI plug-in under real launchers: this test program starts itself as the PEs of `mpirun` (Open MPI)
//! and `mpiexec` (MPICH), loads the plug-in by the runtime's own loader, and runs the conformance suite and
//! what is particular to MPI. It does not link MPI; without a launcher or a plug-in a test says SKIP.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rushmem_bootstrap_abi::plugin::Limits;
use rushmem_bootstrap_abi::{BootErrorKind, Bootstrap};

#[path = "../../../host/runtime/src/plugin.rs"]
mod plugin;

/// Tells a started copy of this program which of [`act`]'s parts to play, and on which MPI.
const PART: &str = "RUSHMEM_TEST_MPI_PART";
const FLAVOUR: &str = "RUSHMEM_TEST_MPI_FLAVOUR";
const PES: u32 = 4;
const LIMIT: Duration = Duration::from_secs(90);

// ---- the driver -------------------------------------------------------------------------------------------

struct Ended {
    ok: bool,
    text: String,
    took: Duration,
}

/// The launcher of `flavour` with all that it needs before the program; `None` where it is not installed.
fn launcher(flavour: &str) -> Option<Command> {
    let (names, args): (&[&str], &[&str]) = match flavour {
        "openmpi" => (
            &["mpirun.openmpi", "mpirun"],
            // Without an agent it refuses to start where no ssh is installed, though it would start nothing
            // elsewhere.
            &[
                "--allow-run-as-root",
                "--oversubscribe",
                "--mca",
                "btl",
                "self,vader",
                "--mca",
                "pml",
                "ob1",
                "--mca",
                "plm_rsh_agent",
                "false",
            ],
        ),
        _ => (&["mpiexec.mpich", "mpiexec"], &[]),
    };
    let marker = if flavour == "openmpi" { "Open MPI" } else { "HYDRA" };
    let name = names.iter().find(|name| {
        let version = Command::new(name).arg("--version").output();
        version.is_ok_and(|v| String::from_utf8_lossy(&v.stdout).contains(marker))
    })?;
    let mut command = Command::new(name);
    command.args(args).args(["-n", &PES.to_string()]);
    Some(command)
}

fn plugin_path(flavour: &str) -> Option<PathBuf> {
    let name = format!("librushmem_bootstrap_{flavour}.so");
    plugin::present().into_iter().find(|path| path.ends_with(&name))
}

fn collect(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = from.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    })
}

/// Runs `command` to its end or for [`LIMIT`], stdout and stderr in one text.
fn run(mut command: Command) -> Ended {
    let begin = Instant::now();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the launcher starts");
    let out = collect(child.stdout.take().expect("piped"));
    let err = collect(child.stderr.take().expect("piped"));
    let status = loop {
        if let Some(status) = child.try_wait().expect("waiting for a child") {
            break Some(status);
        }
        if begin.elapsed() > LIMIT {
            // mpirun takes its PEs along when asked politely.
            // SAFETY: a child of ours that has not been reaped.
            unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
            std::thread::sleep(Duration::from_secs(3));
            let _ = child.kill();
            let _ = child.wait();
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let took = begin.elapsed();
    let text =
        out.join().expect("the reader does not panic") + &err.join().expect("the reader does not panic");
    assert!(status.is_some(), "still running after {LIMIT:?}; its output:\n{text}");
    Ended { ok: status.is_some_and(|s| s.success()), text, took }
}

/// Plays `part` on [`PES`] PEs; `None` (said aloud) where this machine cannot.
fn play(part: &str, flavour: &str) -> Option<Ended> {
    let Some(mut command) = launcher(flavour) else {
        eprintln!("SKIP {part} on {flavour}: no such mpirun here");
        return None;
    };
    if plugin_path(flavour).is_none() {
        eprintln!("SKIP {part} on {flavour}: no plug-in; scripts/build-mpi-plugin builds it");
        return None;
    }
    let me = std::env::current_exe().expect("this program's path");
    command.arg(me).args(["--exact", "played_part", "--nocapture", "--test-threads=1"]);
    clean(&mut command);
    command.env(PART, part).env(FLAVOUR, flavour);
    if !sees_its_ranks(flavour) {
        eprintln!("SKIP {part} on {flavour}: this MPI does not see the ranks that its own mpirun starts");
        return None;
    }
    Some(run(command))
}

/// False where each rank is a job of one (Ubuntu 24.04's MPICH was built for another launcher than its own).
fn sees_its_ranks(flavour: &str) -> bool {
    static SEES: Mutex<Vec<(String, bool)>> = Mutex::new(Vec::new());
    let mut known = SEES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, sees)) = known.iter().find(|(of, _)| of == flavour) {
        return *sees;
    }
    let mut command = launcher(flavour).expect("found before");
    command.arg(std::env::current_exe().expect("this program's path"));
    command.args(["--exact", "played_part", "--nocapture", "--test-threads=1"]);
    clean(&mut command);
    let ended = run({
        command.env(PART, "count").env(FLAVOUR, flavour);
        command
    });
    let sees = !ended.text.contains("alone among");
    known.push((flavour.to_owned(), sees));
    sees
}

/// Without what a launcher around the tests may have left.
fn clean(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["OMPI_", "PMIX_", "PMI_", "RUSHMEM_", "SLURM_"].iter().any(|p| text.starts_with(p)) {
            command.env_remove(&name);
        }
    }
}

/// The part must end well on every PE, each of which says so.
fn ends_well(part: &str) {
    for flavour in ["openmpi", "mpich"] {
        let Some(ended) = play(part, flavour) else { continue };
        let done = ended.text.matches(&format!("done {part}")).count();
        assert!(ended.ok && done == PES as usize, "{part} on {flavour}, {done} PEs done:\n{}", ended.text);
        eprintln!("{part} on {flavour}: {:.1} s", ended.took.as_secs_f64());
    }
}

#[test]
fn conformance() {
    ends_well("conformance");
}

#[test]
fn worlds_one_after_the_other_and_side_by_side() {
    ends_well("worlds");
}

#[test]
fn disagreeing_ranks_are_told_so_and_go_on() {
    ends_well("disagree");
}

#[test]
fn a_late_rank_is_waited_for() {
    ends_well("late");
}

#[test]
fn a_rank_that_never_comes_is_a_timeout_with_its_name() {
    for flavour in ["openmpi", "mpich"] {
        let Some(ended) = play("missing", flavour) else { continue };
        // Ranks leave without MPI_Finalize, so the launcher ends the job; how it says so is its own affair.
        let said = ended.text.matches("timed out: rank 2 of 4 never came").count();
        assert!(said == 3, "on {flavour}, {said} said it:\n{}", ended.text);
        assert!(ended.took < Duration::from_secs(30), "on {flavour} it took {:?}", ended.took);
    }
}

#[test]
fn a_rank_that_never_starts_mpi_is_a_timeout() {
    for flavour in ["openmpi", "mpich"] {
        let Some(ended) = play("absent", flavour) else { continue };
        let said = ended.text.matches("never started:").count();
        assert!(said == 3, "on {flavour}, {said} said it:\n{}", ended.text);
        assert!(ended.took < Duration::from_secs(30), "on {flavour} it took {:?}", ended.took);
    }
}

/// A rank is missing all the same, but nobody can know that it is not MPI that takes its time over the name.
#[test]
fn a_host_name_that_does_not_resolve_is_told_from_a_rank_that_never_came() {
    const NAMELESS: &str =
        "for f in hosts resolv.conf; do mount --bind /dev/null /etc/$f || exit 77; done; exec \"$@\"";
    for flavour in ["openmpi", "mpich"] {
        let (Some(launcher), true) = (launcher(flavour), plugin_path(flavour).is_some()) else {
            eprintln!("SKIP a root without names on {flavour}: no mpirun or no plug-in here");
            continue;
        };
        let mut command = Command::new("unshare");
        command
            .args(["-m", "sh", "-c", NAMELESS, "sh"])
            .arg(launcher.get_program())
            .args(launcher.get_args());
        command.arg(std::env::current_exe().expect("this program's path"));
        command.args(["--exact", "played_part", "--nocapture", "--test-threads=1"]);
        clean(&mut command);
        command.env(PART, "absent").env(FLAVOUR, flavour);
        let permitted =
            Command::new("unshare").args(["-m", "mount", "--bind", "/dev/null", "/etc/hosts"]).output();
        if !permitted.is_ok_and(|o| o.status.success()) {
            eprintln!("SKIP a root without names on {flavour}: no mount namespaces for this user");
            continue;
        }
        let ended = run(command);
        let own = format!("this host's own name, {:?}, does not resolve", hostname());
        let said = ended.text.matches("never started:").count();
        assert!(said == 3 && ended.text.contains(&own), "on {flavour}, {said} said it:\n{}", ended.text);
    }
}

fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .expect("the kernel's name for this host")
        .trim()
        .to_owned()
}

#[test]
fn an_existing_communicator_is_used_and_mpi_left_alone() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for flavour in ["openmpi", "mpich"] {
        let (Some(launcher), Some(plugin)) = (launcher(flavour), plugin_path(flavour)) else {
            eprintln!("SKIP existing communicator on {flavour}: no mpirun or no plug-in here");
            continue;
        };
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mpi/existing.c");
        let program = dir.path().join(flavour);
        let cc = [format!("mpicc.{flavour}"), "mpicc".into()];
        let mut built = cc.iter().map(|cc| {
            Command::new(cc).args(["-std=gnu99", "-Wall", source, "-ldl", "-o"]).arg(&program).output()
        });
        let Some(Ok(compiled)) = built.find(|b| b.is_ok()) else {
            eprintln!("SKIP existing communicator on {flavour}: no mpicc here");
            continue;
        };
        assert!(compiled.status.success(), "mpicc says:\n{}", String::from_utf8_lossy(&compiled.stderr));
        if !sees_its_ranks(flavour) {
            eprintln!(
                "SKIP existing communicator on {flavour}: this MPI does not see the ranks of its own mpirun"
            );
            continue;
        }
        for level in ["multiple", "single"] {
            let mut command = Command::new(launcher.get_program());
            command.args(launcher.get_args()).arg(&program).arg(&plugin).arg(level);
            clean(&mut command);
            let ended = run(command);
            let ok = ended.ok && ended.text.contains("existing ok");
            assert!(ok, "{level} on {flavour}:\n{}", ended.text);
        }
    }
}

// ---- the PEs ----------------------------------------------------------------------------------------------

/// Not a test by itself: what a PE that [`play`] started does.
#[test]
fn played_part() {
    let (Ok(part), Ok(flavour)) = (std::env::var(PART), std::env::var(FLAVOUR)) else { return };
    act(&part, &flavour);
    println!("done {part}");
}

fn limits(seconds: f64) -> Limits {
    let limit = Some(Duration::from_secs_f64(seconds));
    Limits { call: limit, init: limit }
}

fn load(flavour: &str, limits: Limits) -> rushmem_bootstrap_abi::Result<Box<dyn Bootstrap>> {
    // SAFETY: no communicator is handed over.
    unsafe { plugin::load_mpi(Some(flavour), std::ptr::null(), limits) }
}

/// This PE's rank as the launcher says it, for parts that must not start MPI to know it.
fn launcher_rank() -> u32 {
    let rank = ["OMPI_COMM_WORLD_RANK", "PMI_RANK"].iter().find_map(|name| std::env::var(name).ok());
    rank.and_then(|r| r.parse().ok()).expect("the launcher says the rank")
}

fn act(part: &str, flavour: &str) {
    match part {
        "count" => {
            let b = load(flavour, limits(60.0)).expect("the bootstrap starts");
            if b.n_ranks() == 1 {
                println!("alone among {PES}");
            }
            b.finalize().expect("everybody leaves");
        }
        "conformance" => {
            let b = load(flavour, limits(60.0)).expect("the bootstrap starts");
            assert_eq!((b.n_ranks(), b.rank(), b.name()), (PES, launcher_rank(), "mpi"));
            let suite = rushmem_bootstrap_conformance::Limits { max_total: 32 << 20, ..Default::default() };
            rushmem_bootstrap_conformance::run_all(b.as_ref(), &suite).expect("the suite passes");
            b.finalize().expect("everybody leaves");
        }
        "worlds" => {
            for round in 0..3u8 {
                let one = load(flavour, limits(60.0)).expect("the bootstrap starts");
                let two = load(flavour, limits(60.0)).expect("another one starts");
                let me = one.rank() as u8;
                // Both at once, from two threads, in no agreed order.
                let exchange = |b: &dyn Bootstrap, salt: u8| {
                    for i in 0..20u8 {
                        let mut all = [0; PES as usize];
                        b.allgather(&[me.wrapping_mul(salt) ^ i ^ round], &mut all).expect("allgather");
                        let want: Vec<u8> =
                            (0..PES as u8).map(|r| r.wrapping_mul(salt) ^ i ^ round).collect();
                        assert_eq!(all.as_slice(), want);
                    }
                };
                std::thread::scope(|s| {
                    s.spawn(|| exchange(one.as_ref(), 3));
                    exchange(two.as_ref(), 5);
                });
                one.finalize().expect("everybody leaves the first");
                drop(one);
                exchange(two.as_ref(), 7);
                // The second is dropped without finalize: the ranks' own business as long as all do.
            }
        }
        "disagree" => {
            let b = load(flavour, limits(60.0)).expect("the bootstrap starts");
            let odd = b.rank() == 1;
            let error =
                b.allgather(&vec![1; 8 + odd as usize], &mut vec![0; 4 * (8 + odd as usize)]).unwrap_err();
            assert_eq!(error.kind, BootErrorKind::Mismatch, "{error}");
            assert_eq!(error.rank, Some(if odd { 0 } else { 1 }), "{error}");
            assert!(error.message.contains("9 bytes") && error.message.contains("8 bytes"), "{error}");
            let error = if odd { b.barrier() } else { b.broadcast(&mut [1], 0) }.unwrap_err();
            assert_eq!(error.kind, BootErrorKind::Mismatch, "{error}");
            b.barrier().expect("the bootstrap goes on");
            b.finalize().expect("everybody leaves");
        }
        "late" => {
            // Late enough for the others to tell each other that they are there; those messages must all be
            // received before leaving, and nobody may be accused.
            let b = load(flavour, limits(60.0)).expect("the bootstrap starts");
            for late in [1, 3] {
                if b.rank() == late {
                    std::thread::sleep(Duration::from_millis(3000));
                }
                let mut all = [0; PES as usize];
                b.allgather(&[b.rank() as u8 + 40], &mut all).expect("the late one is waited for");
                assert_eq!(all, [40, 41, 42, 43]);
            }
            if b.rank() == 0 {
                std::thread::sleep(Duration::from_millis(2500));
            }
            b.finalize().expect("everybody leaves");
        }
        "missing" => {
            let b = load(flavour, limits(4.0)).expect("the bootstrap starts");
            b.barrier().expect("all are here");
            if b.rank() == 2 {
                // Longer than the others wait; they end the job.
                std::thread::sleep(Duration::from_secs(20));
                panic!("nobody ended the job");
            }
            let begin = Instant::now();
            let error = b.broadcast(&mut [0; 100], 0).unwrap_err();
            assert_eq!(error.kind, BootErrorKind::Timeout, "{error}");
            assert_eq!(error.rank, Some(2), "{error}");
            let took = begin.elapsed();
            assert!((4.0..8.0).contains(&took.as_secs_f64()), "{took:?}");
            let again = Instant::now();
            let spent = b.barrier().unwrap_err();
            assert!(again.elapsed() < Duration::from_secs(1), "a spent bootstrap fails at once: {spent}");
            println!("timed out: {}", error.message.split_once(": ").map_or("", |(_, rest)| rest));
            // The first to leave ends the job, so leave the others time to speak.
            std::thread::sleep(Duration::from_secs(3));
            drop(b);
        }
        "absent" => {
            if launcher_rank() == 3 {
                std::thread::sleep(Duration::from_secs(20));
                panic!("nobody ended the job");
            }
            let error = load(flavour, limits(3.0)).err().expect("one is missing");
            assert_eq!(error.kind, BootErrorKind::Timeout, "{error}");
            println!("never started: {error}");
            std::thread::sleep(Duration::from_secs(3));
            panic!("a code other than 0 ends the job");
        }
        other => panic!("no part is called {other}"),
    }
}
