//! The library by programs of tests/c, and the functions of kernels by those of tests/kernels, on heaps of
//! host memory and the CPU device; with RUSHMEM_DEVICE=cuda on GPUs.
//!
//! RUSHMEM_TEST_ROUNDS=all runs each of them on 1 to 4 PEs.

mod arguments;
mod bench;
mod common;
mod examples;
mod mixed;

use std::path::Path;

use common::{each_is_well, has_network, here, mpirun, ready, said, Program};
use rushmem_nvshmem::PREFIX;

fn numbers_of_pes(usual: &[u32]) -> Vec<u32> {
    match std::env::var_os("RUSHMEM_TEST_ROUNDS") {
        Some(_) => (1..=4).collect(),
        None => usual.to_vec(),
    }
}

#[test]
fn families_of_the_host() {
    if !ready("families_of_the_host") {
        return;
    }
    let program = Program::new("families.c");
    for pes in numbers_of_pes(&[3]) {
        program.all_well(pes, &[], &[]);
    }
    program.all_well_far(2, &[]);
}

/// A file of kernels, and what it is compiled with.
fn arguments_of(file: &str) -> [String; 4] {
    let source = here().join("tests/kernels").join(file);
    let include = |path: &Path| format!("-I{}", path.display());
    [
        source.to_str().expect("a path of ours is UTF-8").to_owned(),
        include(Path::new(&format!("{PREFIX}/include"))),
        include(&here().join("tests/kernels")),
        include(&Path::new(PREFIX).join("tests")),
    ]
}

/// One file of kernels: each of them is launched and compared with its model.
fn kernels(file: &str, usual: &[u32]) {
    if !ready(file) {
        return;
    }
    let program = Program::new("kernels.c");
    let options = arguments_of(file);
    let arguments: Vec<&str> = options.iter().map(String::as_str).collect();
    for pes in numbers_of_pes(usual) {
        program.all_well(pes, &[], &arguments);
    }
    program.all_well_far(2, &arguments);
}

#[test]
fn kernels_remote_memory_access() {
    kernels("rma.cu", &[3]);
}

#[test]
fn kernels_atomics() {
    kernels("atomics.cu", &[3]);
}

#[test]
fn kernels_waits() {
    kernels("waits.cu", &[2]);
}

#[test]
fn kernels_collectives() {
    kernels("collectives.cu", &[3]);
}

#[test]
fn kernels_reductions() {
    kernels("reductions.cu", &[3]);
}

#[test]
fn kernels_teams() {
    kernels("teams.cu", &[1, 4]);
}

/// By a unique ID that one process makes and the others read, without a launcher.
#[test]
fn processes_meet_by_unique_id() {
    if !ready("processes_meet_by_unique_id") {
        return;
    }
    let program = Program::new("unique_id.c");
    let id = program.dir().join("id");
    let id = id.to_str().expect("a path of ours is UTF-8");
    let interface = "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME";
    let out = program.alone(&["0", "1", id]).env(interface, "none0").output().expect("timeout runs");
    assert!(out.status.code() == Some(3) && said(&out).contains("none0"), "{}", said(&out));
    let start = |rank: &str| {
        let mut run = program.alone(&[rank, "3", id]);
        run.env(interface, "=lo").stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        run.spawn().expect("timeout runs")
    };
    let all: Vec<_> = ["0", "1", "2"].map(start).into_iter().collect();
    for process in all {
        let out = process.wait_with_output().expect("it ends");
        assert!(out.status.success() && said(&out).contains("all well"), "{}: {}", out.status, said(&out));
    }
}

/// Teams of some PEs, which their members alone make.
#[test]
fn members_make_a_team_by_unique_id() {
    if !ready("members_make_a_team_by_unique_id") {
        return;
    }
    let seed = std::env::var("RUSHMEM_TEST_SEED").unwrap_or_else(|_| std::process::id().to_string());
    eprintln!("RUSHMEM_TEST_SEED={seed}");
    let program = Program::new("team_id.c");
    for pes in numbers_of_pes(&[4]) {
        program.all_well(pes, &[], &[&seed]);
    }
    program.all_well_far(3, &[&seed]);
}

/// The team after the last number is an error, alike on all members.
#[test]
fn a_team_too_many_is_an_error() {
    if !ready("a_team_too_many_is_an_error") {
        return;
    }
    let program = Program::new("many_teams.c");
    for pes in numbers_of_pes(&[3]) {
        program.all_well(pes, &[], &[]);
    }
    let text = said(&program.run(2, &[], &[]));
    for wanted in [
        "PE 0: nvshmem_team_split_strided: this PE has no number left",
        "PE 1: nvshmem_team_split_2d: another",
    ] {
        assert!(text.contains(wanted), "no \"{wanted}\" in:\n{text}");
    }
    program.all_well_far(2, &[]);
}

/// By name, with the CUDA runtime of the program, or without any.
#[test]
fn collective_launches_are_found_by_name() {
    if !ready("collective_launches_are_found_by_name") {
        return;
    }
    Program::new("launches.c").all_well(2, &[], &[]);
    let without = Program::new("launches_without_cuda.c").run(1, &[], &[]);
    let text = said(&without);
    assert!(without.status.success() && text.contains("all well"), "{text}");
    assert!(text.contains("nvshmemx_collective_launch: this process has no CUDA runtime"), "{text}");
}

/// NVSHMEMX_TEAM_NODE goes by hosts, also where PEs of one host do not map each other's memory; settings that
/// divide a host make several of it.
#[test]
fn the_team_of_a_node_is_that_of_a_host() {
    if !ready("the_team_of_a_node_is_that_of_a_host") {
        return;
    }
    let program = Program::new("hosts.c");
    program.all_well(3, &[], &["0", "0", "0"]);
    if !has_network("the_team_of_a_node_is_that_of_a_host") {
        return;
    }
    program.all_well(3, &[("RUSHMEM_TRANSPORT", "ucx")], &["0", "0", "0", "apart"]);
    program.all_well(4, &[("RUSHMEM_NODES", "0,1,1,0")], &["0", "1", "1", "0"]);
    let both = [("RUSHMEM_NODES", "0,1"), ("RUSHMEM_TRANSPORT", "ucx")];
    program.all_well(3, &both, &["0", "1", "0", "apart"]);
}

/// A bad call ends the job with a text that says who called what, from where, and what is wrong.
#[test]
fn mistakes_end_with_a_text() {
    if !ready("mistakes_end_with_a_text") {
        return;
    }
    let program = Program::new("mistakes.c");
    for (mistake, texts) in [
        ("address", &["nvshmem_int_p", "PE 1"] as &[&str]),
        ("pe", &["nvshmem_int_get", "PE 1", "7"]),
        ("team", &["nvshmem_barrier", "41 is not a team"]),
        ("signal", &["nvshmemx_signal_op", "NVSHMEM_SIGNAL_SET"]),
        ("many", &["nvshmemx_int_wait_until_all_vector_on_stream", "more than there are addresses"]),
        ("more", &["nvshmemx_int_wait_until_all_on_stream", "is not symmetric memory"]),
        ("between", &["nvshmemx_int_wait_until_all_on_stream", "is not symmetric memory"]),
        (
            "wild",
            &["PE 1 (", "in rushmem_put() called", " in nvshmem_int_put", "it reads address 0x50000000"],
        ),
        (
            "wild on a stream",
            &[
                "PE 1 (",
                "in rushmem_put_on_stream() called",
                " in nvshmemx_int_put_on_stream",
                "SIGSEGV: it reads",
            ],
        ),
        ("layout", &["nvshmem_init", "headers of another rushmem (device state 1, 8 bytes"]),
        ("later", &["nvshmem_fence", "headers of another rushmem (device state 2, 16 bytes", "PE 1"]),
        ("early", &["nvshmem_my_pe", "nvshmem_init comes first"]),
        ("killed", &["PE 1", "killed"]),
    ] {
        let out = program.run(2, &[], &[mistake]);
        let text = said(&out);
        assert!(!out.status.success(), "{mistake} went well:\n{text}");
        for wanted in texts {
            assert!(text.contains(wanted), "{mistake}: no \"{wanted}\" in:\n{text}");
        }
    }
}

/// A wait for what never comes is reported and ends at its limit, on the host and in a kernel.
#[test]
fn waits_that_stall_are_reported_and_end() {
    if !ready("waits_that_stall_are_reported_and_end") {
        return;
    }
    let limits = [("RUSHMEM_STALL_REPORT", "1"), ("RUSHMEM_WAIT_TIMEOUT", "3")];
    let host = Program::new("mistakes.c").run(2, &limits, &["stall"]);
    let kernels = Program::new("kernels.c");
    let arguments = arguments_of("stalls.cu");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let kernel = kernels.run(2, &limits, &arguments);
    for (out, waits) in [
        (host, ["nvshmem_signal_wait_until: PE ", "gave up after "]),
        (
            kernel,
            [
                "stalls.cu): a thread in block (0,0,0), thread (0,0,0)",
                "waited longer than RUSHMEM_WAIT_TIMEOUT",
            ],
        ),
    ] {
        let text = said(&out);
        assert!(!out.status.success(), "it went well:\n{text}");
        for wanted in ["[warn] PE ", "has waited ", "41"].into_iter().chain(waits) {
            assert!(text.contains(wanted), "no \"{wanted}\" in:\n{text}");
        }
    }
}

/// Threads that are in calls neither crash nor say anything, near and far.
#[test]
fn global_exit_ends_a_job_beside_threads() {
    if !ready("global_exit_ends_a_job_beside_threads") {
        return;
    }
    let program = Program::new("mistakes.c");
    for per_node in ["8", "1", "8", "1", "8"] {
        let out = program.run(2, &[("RUSHMEM_PES_PER_NODE", per_node)], &["exit"]);
        let text = said(&out);
        assert_eq!(out.status.code(), Some(7), "{text}");
        assert!(!text.contains("nvshmem_int_p") && !text.contains("SIGSEGV"), "{text}");
        assert!(text.contains("nvshmem_global_exit(7)"), "{text}");
    }
}

/// NVSHMEM_SYMMETRIC_SIZE bounds the heap; what means nothing here is named.
#[test]
fn the_environment_is_honoured_or_named() {
    if !ready("the_environment_is_honoured_or_named") {
        return;
    }
    let program = Program::new("mistakes.c");
    let settings = [("NVSHMEM_SYMMETRIC_SIZE", "64M"), ("NVSHMEM_DISABLE_P2P", "1"), ("NVSHMEM_INFO", "1")];
    let text = said(&program.run(2, &settings, &["none"]));
    assert!(text.contains("no room for 1 GiB"), "{text}");
    assert!(text.contains("not read: NVSHMEM_DISABLE_P2P"), "{text}");
    assert!(text.contains("NVSHMEM_SYMMETRIC_SIZE  limit"), "{text}");
    // Log lines, of two levels, and the version.
    for (debug, lines) in [("VERSION", [false, false]), ("info", [true, false]), ("TRACE", [true, true])] {
        let text = said(&program.run(2, &[("NVSHMEM_DEBUG", debug), ("NVSHMEM_VERSION", "1")], &["none"]));
        let said = ["rushmem [info]", "rushmem [debug]"].map(|level| text.contains(level));
        assert_eq!(said, lines, "{debug}: {text}");
        assert!(text.contains("NVSHMEM's interface 3.8.0"), "{text}");
    }
    // Teams: what there is room for needs no word.
    for (most, named) in [("64", false), ("1024", true)] {
        let text = said(&program.run(2, &[("NVSHMEM_MAX_TEAMS", most)], &["none"]));
        assert_eq!(text.contains("64 teams at most here, the 7 predefined ones included"), named, "{text}");
        assert!(!text.contains("not read"), "{text}");
    }
    // Ways to meet that are ours, too, and one that is not.
    for (way, named) in [("PMI", false), ("mpi", false), ("plugin", true)] {
        let text = said(&program.run(2, &[("NVSHMEM_BOOTSTRAP", way)], &["none"]));
        assert_eq!(text.contains("not read: NVSHMEM_BOOTSTRAP"), named, "{way}: {text}");
    }
    let out = program.run(1, &[("NVSHMEM_SYMMETRIC_SIZE", "much")], &["none"]);
    assert!(!out.status.success() && said(&out).contains("NVSHMEM_SYMMETRIC_SIZE=much is no size"));
}

/// One process, one job: what a Rust program has joined is this library's, too.
#[test]
fn a_job_of_the_program_is_joined() {
    if !ready("a_job_of_the_program_is_joined") {
        return;
    }
    let program = Program::new("joined.c");
    for pes in numbers_of_pes(&[1, 3]) {
        program.all_well(pes, &[], &[]);
    }
}

/// By a communicator, under mpirun.
#[test]
fn processes_meet_by_mpi() {
    let test = "processes_meet_by_mpi";
    let Some(mut run) = mpirun(test, 3) else { return };
    if !ready(test) {
        return;
    }
    let program = Program::by("mpicc.openmpi", "with_mpi.c");
    let out = run.arg(program.path()).output().expect("coreutils are here");
    each_is_well(&out, 3, &[]);
}
