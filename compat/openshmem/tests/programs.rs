//! Programs of tests/c on 1 to 4 PEs, near and far, against plain models.
//!
//! RUSHMEM_TEST_ROUNDS=all runs each of them on every number of PEs up to 8, near, far and mixed.

mod common;

use common::{ready, said, Program};

/// Every program takes the same grid.
fn grid(source: &str, options: &[&str]) {
    if !ready(source) {
        return;
    }
    let program = Program::new(source, options);
    if std::env::var_os("RUSHMEM_TEST_ROUNDS").is_some() {
        for pes in 1..=8 {
            for per_node in ["8", "1", "2"] {
                program.all_well(pes, &[("RUSHMEM_PES_PER_NODE", per_node)]);
            }
        }
        return;
    }
    for pes in [1, 3, 4] {
        program.all_well(pes, &[]);
    }
    program.all_well_far(2);
}

#[test]
fn remote_memory_access() {
    grid("rma.c", &[]);
}

#[test]
fn atomics() {
    grid("atomics.c", &[]);
}

#[test]
fn waits_and_signals() {
    grid("waits.c", &[]);
}

#[test]
fn collectives() {
    grid("collectives.c", &[]);
}

#[test]
fn active_sets() {
    grid("active_sets.c", &[]);
}

#[test]
fn memory_teams_contexts_locks_and_threads() {
    grid("library.c", &[]);
}

#[test]
fn threads_at_once() {
    grid("threads.c", &[]);
}

#[test]
fn profiling_names() {
    if ready("profiling_names") {
        Program::new("profile.c", &[]).all_well(2, &[]);
    }
}

#[test]
fn variables() {
    grid("variables.c", &["-O1"]);
}

#[test]
fn variables_of_a_program_at_a_fixed_address() {
    let name = "variables_of_a_program_at_a_fixed_address";
    if ready(name) {
        let program = Program::new("variables.c", &["-no-pie", "-fno-pie", "-Wl,-z,norelro"]);
        program.all_well(2, &[]);
        program.all_well_far(2);
    }
}

#[test]
fn type_generic_forms() {
    grid("generic.c", &["-Wpedantic"]);
}

#[test]
fn overloads_of_cxx() {
    grid("overloads.cpp", &[]);
}

#[test]
fn mistakes_end_the_job_with_one_text() {
    if !ready("mistakes_end_the_job_with_one_text") {
        return;
    }
    let program = Program::new("mistakes.c", &[]);
    for (which, call, text) in [
        ("0", "shmem_long_p", "shmem_init comes first"),
        ("1", "shmem_long_p", "PE 2"),
        ("2", "shmem_long_put", "is not symmetric memory"),
        ("3", "shmem_long_get", "is not symmetric memory"),
        ("4", "shmem_ctx_long_p", "is not a context"),
        ("5", "shmem_team_sync", "is not a team"),
        ("6", "shmem_putmem", "past its end"),
        ("7", "shmem_putmem", "RELRO"),
        ("8", "shmem_clear_lock", "does not have the lock"),
        ("9", "shmem_long_atomic_inc", "align"),
        ("10", "shmem_long_wait_until", "77"),
        ("11", "shmem_barrier", "are no set of the job's 2 PEs"),
        ("12", "shmem_init_thread", "9 is no thread level"),
        ("14", "shmem_put64", "is not symmetric memory"),
        ("16", "shmem_putmem", "overlap in their 64 bytes"),
        ("17", "shmem_barrier", "pSync[0] is 7"),
        ("18", "shmem_broadcast64", "another collective uses it"),
        ("19", "shmem_long_fcollect", "32 on PE 0, 24 on PE 1"),
        ("20", "shmem_long_broadcast", "overlap"),
        ("22", "shmem_ctx_long_p", "another thread made this context"),
    ] {
        // What SHMEM_DEBUG finds besides; a set of less than all PEs uses its pSync.
        let debug: &[(&str, &str)] =
            if ["16", "17", "18", "22"].contains(&which) { &[("SHMEM_DEBUG", "1")] } else { &[] };
        let out = program.run(if which == "18" { 3 } else { 2 }, debug, &[which]);
        let text_of_run = said(&out);
        let who = match which {
            "0" => "",
            "18" => "PE 1: ",
            _ => "PE 0: ",
        };
        let line = text_of_run.lines().find(|line| line.contains(&format!("rushmem: {who}{call}: ")));
        let line =
            line.unwrap_or_else(|| panic!("mistake {which}: no text that names {call}:\n{text_of_run}"));
        assert!(line.contains(text), "mistake {which}: no \"{text}\" in: {line}");
        assert!(
            line.contains("called from") && line.contains("addr2line"),
            "mistake {which}: no place in: {line}"
        );
        assert_eq!(out.status.code(), Some(1), "mistake {which}: {text_of_run}");
    }
}

#[test]
fn global_exit_ends_pes_that_compute() {
    if !ready("global_exit_ends_pes_that_compute") {
        return;
    }
    let program = Program::new("mistakes.c", &[]);
    let out = program.run(3, &[], &["13"]);
    assert_eq!(out.status.code(), Some(7), "{}", said(&out));
}

/// The PE that waits for the lock learns of the death, and does not wait for ever.
#[test]
fn a_lock_of_a_dead_pe_ends_the_wait() {
    if !ready("a_lock_of_a_dead_pe_ends_the_wait") {
        return;
    }
    let program = Program::new("mistakes.c", &[]);
    let out = program.run(2, &[], &["21"]);
    let text = said(&out);
    assert!(!out.status.success() && out.status.code() != Some(124), "{}: {text}", out.status);
    let told = text.lines().any(|line| line.contains("PE 1: shmem_set_lock: ") && line.contains("is gone"));
    assert!(told && text.contains("SIGABRT"), "{text}");
}

#[test]
fn a_gibibyte_of_empty_variables() {
    if ready("a_gibibyte_of_empty_variables") {
        let program = Program::new("large.c", &[]);
        program.all_well(2, &[]);
        program.all_well_far(2);
    }
}

/// Started by MPI's launcher, either first.
#[test]
fn mpi_in_the_same_program() {
    if !ready("mpi_in_the_same_program") {
        return;
    }
    let mut found = false;
    for (compiler, launcher, options) in [
        ("mpicc.openmpi", "mpirun.openmpi", &["--oversubscribe", "--allow-run-as-root"][..]),
        ("mpicc.mpich", "mpirun.mpich", &[][..]),
    ] {
        let there = |name: &str| std::process::Command::new(name).arg("--version").output().is_ok();
        if !there(compiler) || !there(launcher) {
            continue;
        }
        found = true;
        let program = Program::by(compiler, "with_mpi.c", &[]);
        for first in ["mpi", "shmem"] {
            let out = program.run_by(launcher, options, 2, first);
            let text = said(&out);
            if text.contains("is alone: the MPI library was built for another kind of launcher") {
                eprintln!("SKIP {compiler}, {first} first: this MPI does not know its own launcher");
                continue;
            }
            assert!(out.status.success(), "{compiler}, {first} first: {}\n{text}", out.status);
            for pe in 0..2 {
                assert!(
                    text.contains(&format!("PE {pe} of 2: all well")),
                    "{compiler}, {first} first: {text}"
                );
            }
        }
    }
    if !found {
        eprintln!("SKIP mpi_in_the_same_program: no MPI on this machine");
    }
}

#[test]
fn environment_of_the_specification() {
    if !ready("environment_of_the_specification") {
        return;
    }
    let program = Program::new("generic.c", &[]);
    let out = program.run(1, &[("SMA_VERSION", "1"), ("SHMEM_INFO", "1"), ("SHMEM_DEBUG", "1")], &[]);
    let text = said(&out);
    for word in ["OpenSHMEM 1.6", "SHMEM_SYMMETRIC_SIZE", "[PE 0] shmem_barrier_all from"] {
        assert!(text.contains(word), "no {word} in:\n{text}");
    }
    let out = program.run(1, &[("SHMEM_SYMMETRIC_SIZE", "1.5m")], &[]);
    assert!(out.status.success(), "{}", said(&out));
    let out = program.run(1, &[("SHMEM_SYMMETRIC_SIZE", "much")], &[]);
    assert!(said(&out).contains("SHMEM_SYMMETRIC_SIZE=much is no size"), "{}", said(&out));
}
