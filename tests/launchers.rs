//! `World::init()` with no argument under each launcher, as the examples call it: everybody must be there,
//! kernels must reach each other, and one log line (RUSHMEM_LOG=info) must say what was chosen and why. And
//! what is missing or makes no sense in a launcher's environment must be an error that names the variable.
//!
//! Open MPI and MPICH run as they are, where they are installed. torchrun comes with PyTorch only, which is
//! too large to fetch for this: its variables are played as it sets them, with MASTER_PORT taken by a server
//! that listens there and never answers a stranger, as its store does; a real one is used where there is one.
//! Slurm is played likewise.

use rushmem_test_support::programs;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use programs::{command, example, free_port, installed, run, rushmem_run, start, Ended, Running};

const LIMIT: Duration = Duration::from_secs(60);

/// What is started: an example, with its arguments.
type Program = &'static [&'static str];
const HELLO: Program = &["hello"];
/// Its kernel passes a token from PE to PE.
const RING: Program = &["ring", "--laps", "3"];

/// It, with a log.
fn program(program: Program) -> Command {
    let mut command = command(example(program[0]));
    command.args(&program[1..]).env("RUSHMEM_LOG", "info");
    command
}

/// Each PE's own output together must show all `n` of one world.
#[track_caller]
fn expect_all(n: u32, outputs: &[Ended]) {
    let all: Vec<&str> = outputs.iter().flat_map(|ended| ended.lines_with("hello from PE ")).collect();
    for pe in 0..n {
        let mine = all.iter().filter(|line| line.contains(&format!("hello from PE {pe} of {n} on "))).count();
        assert_eq!(mine, 1, "PE {pe} of {n} said hello {mine} times:\n{}", all.join("\n"));
    }
    assert_eq!(all.len(), n as usize, "{}", all.join("\n"));
}

/// The ring went round, as PE 0 of `n` says.
#[track_caller]
fn expect_ring(n: u32, outputs: &[Ended]) {
    let hops = format!("ring: {n} PEs x 3 laps = {} hops", 3 * n);
    let texts: Vec<String> = outputs.iter().map(ToString::to_string).collect();
    assert!(
        outputs.iter().any(|ended| ended.stdout.contains(&hops)),
        "{hops:?} is missing:\n{}",
        texts.join("\n")
    );
}

/// The log line about the choice says each of `words`; one for each PE.
#[track_caller]
fn expect_choice(n: u32, outputs: &[Ended], words: &[&str]) {
    let chosen = |line: &str| words.iter().all(|word| line.contains(word));
    let count: usize = outputs.iter().map(|o| o.stderr.lines().filter(|line| chosen(line)).count()).sum();
    let texts: Vec<String> = outputs.iter().map(ToString::to_string).collect();
    assert_eq!(count, n as usize, "log lines with {words:?}:\n{}", texts.join("\n"));
}

/// Starts a job of processes that differ in their environment.
#[track_caller]
fn start_each(
    what: Program,
    n: u32,
    environment: impl Fn(u32) -> Vec<(&'static str, String)>,
) -> Vec<Running> {
    (0..n).map(|rank| start(program(what).envs(environment(rank)))).collect()
}

#[track_caller]
fn finish(job: Vec<Running>) -> Vec<Ended> {
    job.into_iter().map(|process| process.wait(LIMIT)).map(Ended::ok).collect()
}

#[test]
fn alone_it_is_a_job_of_one() {
    let outputs = [run(&mut program(HELLO), LIMIT).ok()];
    expect_all(1, &outputs);
    expect_choice(1, &outputs, &["no launcher's variables are set"]);
}

#[test]
fn under_rushmem_run() {
    for n in [1, 4] {
        let outputs = [run(rushmem_run(n, example("hello")).env("RUSHMEM_LOG", "info"), LIMIT).ok()];
        expect_all(n, &outputs);
        expect_choice(n, &outputs, &["rushmem-run: ", "RUSHMEM_PE="]);
    }
}

/// A server on MASTER_PORT, as torchrun's store is: takes connections, and says nothing to those who are not
/// its own.
struct Store {
    listener: TcpListener,
}

impl Store {
    fn start() -> Store {
        loop {
            // Another test may have been faster.
            if let Ok(listener) = TcpListener::bind(("127.0.0.1", free_port())) {
                let silent = listener.try_clone().expect("descriptors are left");
                // Ends with the test's process.
                std::thread::spawn(move || silent.incoming().collect::<Vec<_>>());
                return Store { listener };
            }
        }
    }

    /// On the port after another's.
    fn beside(other: &Store) -> Option<Store> {
        let listener = TcpListener::bind(("127.0.0.1", other.port() + 1)).ok()?;
        let silent = listener.try_clone().ok()?;
        std::thread::spawn(move || silent.incoming().collect::<Vec<_>>());
        Some(Store { listener })
    }

    fn port(&self) -> u16 {
        self.listener.local_addr().expect("it is bound").port()
    }
}

/// What `torchrun --nproc-per-node n` gives rank `rank` (PyTorch 2.x, one node).
fn torchrun(n: u32, rank: u32, store: &Store, run_id: &str) -> Vec<(&'static str, String)> {
    vec![
        ("RANK", rank.to_string()),
        ("WORLD_SIZE", n.to_string()),
        ("LOCAL_RANK", rank.to_string()),
        ("LOCAL_WORLD_SIZE", n.to_string()),
        ("GROUP_RANK", "0".into()),
        ("GROUP_WORLD_SIZE", "1".into()),
        ("ROLE_RANK", rank.to_string()),
        ("ROLE_WORLD_SIZE", n.to_string()),
        ("ROLE_NAME", "default".into()),
        ("MASTER_ADDR", "127.0.0.1".into()),
        ("MASTER_PORT", store.port().to_string()),
        ("TORCHELASTIC_RUN_ID", run_id.into()),
        ("TORCHELASTIC_RESTART_COUNT", "0".into()),
        ("TORCHELASTIC_MAX_RESTARTS", "0".into()),
        ("TORCHELASTIC_USE_AGENT_STORE", "True".into()),
        ("OMP_NUM_THREADS", "1".into()),
    ]
}

#[test]
fn under_torchruns_variables() {
    let store = Store::start();
    for n in [1, 4] {
        let outputs = finish(start_each(HELLO, n, |rank| torchrun(n, rank, &store, "none")));
        expect_all(n, &outputs);
        expect_choice(n, &outputs, &["torchrun: ", "RANK=", "MASTER_ADDR=127.0.0.1"]);
        expect_ring(n, &finish(start_each(RING, n, |rank| torchrun(n, rank, &store, "none"))));
    }
}

#[test]
fn under_torchruns_variables_two_jobs_at_once() {
    for _ in 0..3 {
        let first = Store::start();
        let second = Store::beside(&first).unwrap_or_else(Store::start);
        // torchrun's run ID is "none" unless another is given.
        let jobs =
            [&first, &second].map(|store| start_each(HELLO, 3, |rank| torchrun(3, rank, store, "none")));
        for job in jobs {
            expect_all(3, &finish(job));
        }
    }
}

#[test]
fn under_torchrun_itself() {
    let Some(torchrun) = installed("torchrun") else {
        eprintln!("SKIP under_torchrun_itself: no torchrun in PATH (it comes with PyTorch); its variables are played");
        return;
    };
    let mut job = command(torchrun);
    let port = free_port().to_string();
    job.args(["--no-python", "--nproc-per-node", "3", "--master-port", &port]).arg(example("hello"));
    expect_all(3, &[run(job.env("RUSHMEM_LOG", "info"), LIMIT).ok()]);
}

/// What `srun -n n` gives task `rank` on one node.
fn slurm(n: u32, rank: u32, job: u32) -> Vec<(&'static str, String)> {
    vec![
        ("SLURM_PROCID", rank.to_string()),
        ("SLURM_NTASKS", n.to_string()),
        ("SLURM_NPROCS", n.to_string()),
        ("SLURM_STEP_NUM_TASKS", n.to_string()),
        ("SLURM_LOCALID", rank.to_string()),
        ("SLURM_NODEID", "0".into()),
        ("SLURM_NNODES", "1".into()),
        ("SLURM_JOB_ID", job.to_string()),
        ("SLURM_JOBID", job.to_string()),
        ("SLURM_STEP_ID", "0".into()),
        ("SLURM_STEPID", "0".into()),
        ("SLURM_STEP_NODELIST", "localhost".into()),
        ("SLURM_JOB_NODELIST", "localhost".into()),
        ("SLURM_NODELIST", "localhost".into()),
        ("SLURM_STEP_TASKS_PER_NODE", n.to_string()),
        ("SLURM_TASKS_PER_NODE", n.to_string()),
    ]
}

#[test]
fn under_slurms_variables() {
    for n in [1, 4] {
        let outputs = finish(start_each(HELLO, n, |rank| slurm(n, rank, 7_000_000 + std::process::id())));
        expect_all(n, &outputs);
        expect_choice(n, &outputs, &["Slurm: ", "SLURM_PROCID="]);
        expect_ring(n, &finish(start_each(RING, n, |rank| slurm(n, rank, 9_000_000 + std::process::id()))));
    }
}

#[test]
fn under_slurms_variables_two_jobs_at_once() {
    for round in 0..3 {
        let id = 8_000_000 + 10 * std::process::id() + 2 * round;
        let jobs = [id, id + 1].map(|id| start_each(HELLO, 3, |rank| slurm(3, rank, id)));
        for job in jobs {
            expect_all(3, &finish(job));
        }
    }
}

/// Where MPI does not see the other ranks.
const ALONE: &str = "is alone: the MPI library was built for another kind of launcher";

/// MPICH without the process that would tell it of the others takes itself for a job of one.
#[test]
fn ranks_that_mpi_takes_for_jobs_of_their_own_are_told_so() {
    let test = "ranks_that_mpi_takes_for_jobs_of_their_own_are_told_so";
    let plugin = programs::built().join("librushmem_bootstrap_mpich.so");
    if !plugin.exists() {
        return eprintln!("SKIP {test}: {} is not built (make mpi-plugins builds it)", plugin.display());
    }
    let mut alone = program(HELLO);
    let ended = run(alone.envs([("PMI_RANK", "1"), ("PMI_SIZE", "3")]), LIMIT).failed();
    ended.says(&["3 ranks were started", "PMI_SIZE=3", "rank 1", ALONE, "rushmem-run"]);
    // And so do all of them where a launcher that knows nothing of MPI has started the ranks.
    let mut job = rushmem_run(2, example(HELLO[0]));
    job.env("RUSHMEM_BOOTSTRAP", "mpi").env("RUSHMEM_MPI_PLUGIN", &plugin);
    run(&mut job, LIMIT).failed().says(&["2 ranks were started", "is alone", "unset RUSHMEM_BOOTSTRAP"]);
}

/// Whether it ends before the others begin to wait for it or behind that, on this host and on several.
#[test]
fn a_pe_that_ends_well_before_it_joins_is_named_at_once() {
    for (late, several) in [(false, false), (true, false), (true, true)] {
        let mut job = programs::launcher();
        match several {
            true => job.args(["--hosts", "localhost:2,localhost:1"]),
            false => job.args(["-n", "3"]),
        };
        let sleeps = if late { "sleep 2;" } else { "" };
        let script = format!("[ $RUSHMEM_PE = 1 ] && {{ {sleeps} exit 0; }}; exec \"$0\"");
        job.args(["--", "sh", "-c", &script]).arg(example(HELLO[0])).env("RUSHMEM_INIT_TIMEOUT", "300");
        run(&mut job, LIMIT).failed().says(&["PE 1 (", "ended with code 0 before it joined"]);
    }
    // A program that knows nothing of rushmem may end as it likes.
    let mut job = rushmem_run(2, "sh");
    run(job.args(["-c", "[ $RUSHMEM_PE = 1 ] && sleep 1; exit 0"]), LIMIT).ok();
}

/// Under an MPI's launcher, where both it and the plug-in for it are.
#[track_caller]
fn under_mpi(test: &str, launcher: &str, (flavour, name): (&str, &str), options: &[&str]) {
    let Some(launcher) = installed(launcher) else {
        eprintln!("SKIP {test}: no {launcher} in PATH");
        return;
    };
    let plugin = programs::built().join(format!("librushmem_bootstrap_{flavour}.so"));
    if !plugin.exists() {
        eprintln!("SKIP {test}: {} is not built (make mpi-plugins builds it)", plugin.display());
        return;
    }
    // Where no ssh is: one host needs none.
    let bare = tempfile::tempdir().expect("a temporary folder");
    for n in [1, 3] {
        let job = |what: Program| {
            let mut job = command(&launcher);
            job.env("PATH", path_without(&["ssh", "rsh"], bare.path()));
            job.args(options).args(["-n", &n.to_string()]).arg(example(what[0])).args(&what[1..]);
            let ended = run(job.env("RUSHMEM_LOG", "info"), LIMIT);
            // Said by name, and no fault of ours: some distributions' MPI does not know its own launcher.
            if ended.stderr.contains(ALONE) {
                eprintln!("SKIP {test}: {}", ended.failed().lines_with(ALONE)[0]);
                return None;
            }
            Some([ended.ok()])
        };
        let Some(outputs) = job(HELLO) else { return };
        expect_all(n, &outputs);
        expect_choice(n, &outputs, &[name]);
        expect_ring(n, &job(RING).expect("as before"));
    }
}

/// The search path as one folder of links, in which some programs are missing.
fn path_without(missing: &[&str], folder: &Path) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    for program in
        std::env::split_paths(&path).filter_map(|folder| folder.read_dir().ok()).flatten().flatten()
    {
        if !missing.iter().any(|missing| *missing == program.file_name()) {
            // The first of a name counts, and is there already where this fails.
            let _ = std::os::unix::fs::symlink(program.path(), folder.join(program.file_name()));
        }
    }
    folder.to_owned()
}

#[test]
fn under_open_mpi() {
    let options = programs::OPEN_MPI_ON_ONE_HOST;
    under_mpi("under_open_mpi", "mpirun.openmpi", ("openmpi", "Open MPI: "), &options);
}

#[test]
fn under_mpich() {
    under_mpi("under_mpich", "mpiexec.mpich", ("mpich", "MPICH: "), &[]);
}

#[test]
fn what_is_missing_or_contradicts_is_named() {
    let store = Store::start();
    let full = torchrun(2, 0, &store, "none");
    let without = |name: &str| -> Vec<_> { full.iter().filter(|(n, _)| *n != name).cloned().collect() };
    let with = |name: &'static str, value: &str| {
        let mut all = without(name);
        all.push((name, value.into()));
        all
    };
    let rushmem = |pairs: &[(&'static str, &str)]| -> Vec<_> {
        pairs.iter().map(|(n, v)| (*n, (*v).to_owned())).collect()
    };
    for (environment, variable) in [
        (without("WORLD_SIZE"), "WORLD_SIZE"),
        (without("MASTER_ADDR"), "MASTER_ADDR"),
        (without("MASTER_PORT"), "MASTER_PORT"),
        (with("WORLD_SIZE", "two"), "WORLD_SIZE"),
        (with("RANK", "2"), "RANK"),
        (with("RANK", "-1"), "RANK"),
        (with("MASTER_PORT", "70000"), "MASTER_PORT"),
        (rushmem(&[("RUSHMEM_PE", "0")]), "RUSHMEM_NPES"),
        (rushmem(&[("RUSHMEM_PE", "0"), ("RUSHMEM_NPES", "2")]), "RUSHMEM_UID"),
        (rushmem(&[("RUSHMEM_PE", "0"), ("RUSHMEM_NPES", "2"), ("RUSHMEM_UID", "beef")]), "RUSHMEM_UID"),
        (rushmem(&[("RUSHMEM_PE", "x"), ("RUSHMEM_NPES", "2"), ("RUSHMEM_UID", "beef")]), "RUSHMEM_PE"),
        (rushmem(&[("RUSHMEM_BOOTSTRAP", "pigeon")]), "RUSHMEM_BOOTSTRAP"),
    ] {
        let ended = run(program(HELLO).env("RUSHMEM_INIT_TIMEOUT", "2").envs(environment.clone()), LIMIT);
        assert!(!ended.status.success(), "{environment:?}: {ended}");
        assert!(ended.stderr.contains(variable), "{variable} is not named for {environment:?}: {ended}");
    }
}
