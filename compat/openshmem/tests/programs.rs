//! Programs of tests/c on 1 to 8 PEs, near and far, against plain models.
//!
//! RUSHMEM_TEST_ROUNDS=all runs each of them on every number of PEs up to 8, each near, far and mixed.

mod arguments;
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
    for pes in [1, 3, 4, 8] {
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

/// On heaps in host memory; `programs-for-gpus` compiles it for the others.
#[test]
fn what_a_heap_in_gpu_memory_takes() {
    grid("device_heap.c", &[]);
}

#[test]
fn threads_at_once() {
    grid("threads.c", &[]);
}

#[test]
fn contexts() {
    grid("contexts.c", &[]);
    if ready("contexts") {
        Program::new("contexts.c", &[]).all_well_far(3);
    }
}

#[test]
fn memory_against_a_model() {
    grid("memory.c", &[]);
    if ready("memory_against_a_model") {
        Program::new("memory.c", &[]).all_well(2, &[("SHMEM_SYMMETRIC_SIZE", "8m")]);
    }
}

/// A thousand jobs one after the other with RUSHMEM_TEST_ROUNDS=all.
#[test]
fn what_is_used_up_comes_back() {
    if !ready("what_is_used_up_comes_back") {
        return;
    }
    let program = Program::new("resources.c", &[]);
    let jobs = if std::env::var_os("RUSHMEM_TEST_ROUNDS").is_some() { "1000" } else { "60" };
    for (pes, per_node) in [(1, "8"), (2, "8"), (2, "1")] {
        let out = program.run(pes, &[("RUSHMEM_PES_PER_NODE", per_node)], &[jobs]);
        let text = said(&out);
        for pe in 0..pes {
            assert!(text.contains(&format!("PE {pe} of {pes}: all well")), "{per_node} a node: {text}");
        }
    }
}

/// What SHMEM_DEBUG checks besides finds nothing wrong in what is right.
#[test]
fn active_sets_are_right_when_they_are_checked() {
    if ready("active_sets_are_right_when_they_are_checked") {
        let program = Program::new("active_sets.c", &[]);
        program.all_well(3, &[("SHMEM_DEBUG", "1")]);
        program.all_well(4, &[("SHMEM_DEBUG", "1"), ("RUSHMEM_PES_PER_NODE", "2")]);
    }
}

/// Chapters 5 to 9: what the document says besides what each function moves.
#[test]
fn statements_of_the_chapters() {
    grid("chapters.c", &[]);
}

#[test]
fn edges_of_the_chapters() {
    grid("edges.c", &[]);
}

/// What SHMEM_DEBUG checks besides finds nothing wrong in either.
#[test]
fn edges_are_right_when_they_are_checked() {
    for source in ["chapters.c", "edges.c"] {
        if ready(source) {
            Program::new(source, &[]).all_well(3, &[("SHMEM_DEBUG", "1")]);
        }
    }
}

#[test]
fn variables_of_different_executables_are_not_symmetric() {
    if !ready("variables_of_different_executables_are_not_symmetric") {
        return;
    }
    let (one, other) = (Program::new("different.c", &[]), Program::new("different.c", &["-DOTHER"]));
    let out = one.run_beside(&other, &[]);
    let text = said(&out);
    for line in ["the PEs run different programs", "PE 0 of 2: all well", "PE 1 of 2: all well"] {
        assert!(text.contains(line), "no \"{line}\" in:\n{text}");
    }
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
        ("26", "shmem_long_alltoall", "source 0x40 is neither symmetric memory nor"),
        ("27", "shmem_long_fcollect", "RELRO"),
        ("28", "shmem_long_atomic_fetch_add_nbi", "fetch is null"),
        ("29", "shmem_info_get_name", "name is null"),
        ("23", "shmem_broadcast64", "is still in the collective that used it last"),
        ("45", "shmem_ibput16", "past the last address"),
        ("46", "shmem_ibget64", "past the last address"),
        ("47", "shmem_ibput32", "past the last address"),
        ("48", "shmem_ibput16", "past the last address"),
    ] {
        // What SHMEM_DEBUG finds besides; a set of less than all PEs uses its pSync.
        let debug: &[(&str, &str)] =
            if ["16", "17", "18", "22", "23"].contains(&which) { &[("SHMEM_DEBUG", "1")] } else { &[] };
        let out = program.run(if which == "18" { 3 } else { 2 }, debug, &[which]);
        let text_of_run = said(&out);
        let who: &[&str] = match which {
            "0" => &[""],
            "18" => &["PE 1: "],
            // Whichever PE is ahead of the other one.
            "23" => &["PE 0: ", "PE 1: "],
            _ => &["PE 0: "],
        };
        let says = |line: &&str| who.iter().any(|who| line.contains(&format!("rushmem: {who}{call}: ")));
        let line = text_of_run.lines().find(says);
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

/// Wild addresses of this PE alone, near and far: each a text that names call, argument and place, and no
/// crash.
#[test]
fn wild_local_addresses_end_the_job_with_one_text() {
    if !ready("wild_local_addresses_end_the_job_with_one_text") {
        return;
    }
    let program = Program::new("mistakes.c", &[]);
    let (read, written) = ("cannot be read", "cannot be written to");
    for (which, call, text) in [
        ("30", "shmem_long_put", format!("source 0x10 leads to memory that {read};")),
        ("31", "shmem_long_get", format!("leads to memory that {written};")),
        ("32", "shmem_putmem", format!("leads to memory that {read}, at ")),
        ("33", "shmem_getmem", format!("leads to memory that {written}, at ")),
        ("34", "shmem_long_wait_until_all", format!("status 0x8 leads to memory that {read};")),
        ("35", "shmem_info_get_name", format!("leads to memory that {written}")),
        ("36", "shmem_long_atomic_fetch_add_nbi", format!("fetch 0x18 leads to memory that {written};")),
        ("37", "shmem_long_put_nbi", format!("leads to memory that {read};")),
        ("38", "shmem_long_get_nbi", format!("leads to memory that {written};")),
        ("39", "shmem_long_iput", ", 32 bytes into it;".into()),
        ("40", "shmem_long_iget", ", 32 bytes into it;".into()),
        (
            "41",
            "shmem_long_wait_until_all",
            "status 0x4000000000000000 leads to memory that cannot be".into(),
        ),
        ("42", "shmem_init_thread", format!("provided 0x4 leads to memory that {written};")),
        ("43", "shmem_long_wait_until_any_vector", format!("cmp_values 0x20 leads to memory that {read};")),
        ("44", "shmem_putmem", format!("leads to memory that {read};")),
    ] {
        for far in ["8", "1"] {
            let out = program.run(2, &[("RUSHMEM_PES_PER_NODE", far)], &[which]);
            let said = said(&out);
            let begin = format!("rushmem: PE 0: {call}: ");
            let line = said.lines().find(|line| line.starts_with(&begin));
            let line = line.unwrap_or_else(|| panic!("{which}, {far} a node: no text of {call}:\n{said}"));
            assert!(line.contains(&text), "{which}, {far} a node: no \"{text}\" in: {line}");
            assert!(line.contains("called from") && line.contains("addr2line"), "{which}: {line}");
            // What addr2line would be given is in the program's main function.
            assert!(line.contains("/program (addr2line -e "), "{which}: {line}");
            assert_eq!(out.status.code(), Some(1), "{which}, {far} a node: {said}");
            // The other PE, which waits, learns the reason.
            let other = said.lines().find(|line| line.starts_with("rushmem: PE 1: shmem_long_wait_until: "));
            assert!(other.is_some_and(|line| line.contains(call)), "{which}, {far} a node: {said}");
        }
    }
}

/// A fault outside of a call is the program's, whose handlers stay.
#[test]
fn a_programs_own_faults_stay_its_own() {
    if !ready("a_programs_own_faults_stay_its_own") {
        return;
    }
    let program = Program::new("handlers.c", &[]);
    for which in ["plain", "info", "later", "sent", "jump"] {
        let out = program.run(1, &[], &[which]);
        let text = said(&out);
        assert!(out.status.success() && text.contains(&format!("{which}: all well")), "{which}: {text}");
    }
    let text = said(&program.run(1, &[], &["none"]));
    assert!(text.contains("SIGSEGV") && !text.contains("rushmem: PE 0: "), "{text}");
}

/// A store of the program's own at an address of the symmetric heap without memory: the runtime has a text
/// for it, the program's handler sees it afterwards, and the library's own texts are as they were.
#[test]
fn the_runtimes_text_and_the_librarys_stand_side_by_side() {
    if !ready("the_runtimes_text_and_the_librarys_stand_side_by_side") {
        return;
    }
    let program = Program::new("handlers.c", &[]);
    let count = |text: &str, what: &str| text.matches(what).count();
    let (heap, call) = ("PE 0's heap, at offset", "rushmem: PE 0: shmem_long_put: source 0x10 leads to");
    let out = program.run(1, &[], &["heap"]);
    let text = said(&out);
    assert_eq!((count(&text, heap), count(&text, call), out.status.code()), (1, 1, Some(1)), "{text}");
    let out = program.run(1, &[], &["heap, no handler"]);
    let text = said(&out);
    assert_eq!((count(&text, heap), count(&text, call)), (1, 0), "{text}");
    assert!(text.contains("SIGSEGV"), "{text}");
    // The function has a name in the program's symbols, and no line.
    let place = text.lines().find(|line| line.contains("SIGSEGV")).unwrap_or_default();
    assert!(place.contains(" in fault (addr2line -e ") && place.contains("/program 0x"), "{text}");
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

/// Wherever the others are, status and streams are as the document has them: files of all PEs are written
/// out, those of PEs that compute or wait for input among them.
#[test]
fn global_exit_writes_streams_out() {
    if !ready("global_exit_writes_streams_out") {
        return;
    }
    let program = Program::new("exits.c", &[]);
    for (place, per_node, status) in [
        ("compute", "8", 0),
        ("compute", "1", 9),
        ("wait", "8", 255),
        ("malloc", "8", 9),
        ("finalize", "1", 9),
        ("lock", "8", 9),
        ("twice", "8", 9),
        ("threads", "8", 9),
        ("threads", "1", 0),
        ("thread", "8", 9),
    ] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let arguments = [place, &folder.path().display().to_string(), &status.to_string()];
        let out = program.run(3, &[("RUSHMEM_PES_PER_NODE", per_node)], &arguments);
        let text = said(&out);
        // PE 0 ends with one more, so that it is seen who was first.
        let may: &[i32] = if place == "twice" { &[9, 10] } else { &[status] };
        assert!(out.status.code().is_some_and(|code| may.contains(&code)), "{place}: {}\n{text}", out.status);
        // Of two that end the job the second may be asleep when its watching thread hears of the first.
        let enders: &[u32] = if place == "twice" { &[0, 2] } else { &[2] };
        let handlers = enders.iter().any(|pe| text.contains(&format!("PE {pe} runs its exit handlers")));
        assert!(handlers || place.starts_with("thread"), "{place}: {text}");
        // Threads that are in calls say nothing, and an exit handler's call that fails is the end.
        assert!(!text.contains("called from") && !text.contains("has come back"), "{place}: {text}");
        assert!(!place.starts_with("thread") || text.contains("PE 2 has come late"), "{place}: {text}");
        for pe in 0..3 {
            let file = std::fs::read_to_string(folder.path().join(pe.to_string())).expect("PEs made files");
            assert_eq!(file, format!("written by PE {pe}"), "{place}, {per_node} a node: {text}");
        }
    }
}

/// Of a program of start_pes, which returns from main.
#[test]
fn the_end_of_main_completes_what_was_put() {
    if !ready("the_end_of_main_completes_what_was_put") {
        return;
    }
    let program = Program::new("exits.c", &[]);
    for per_node in ["8", "1"] {
        let out = program.run(3, &[("RUSHMEM_PES_PER_NODE", per_node)], &["start_pes"]);
        assert!(out.status.success(), "{per_node} a node: {}", said(&out));
    }
}

/// PEs that wait for the lock learn of the death, and do not wait for ever: of the one that has it, of the
/// next one in the queue, and of the one where the queue's end is.
#[test]
fn a_lock_of_a_dead_pe_ends_the_wait() {
    if !ready("a_lock_of_a_dead_pe_ends_the_wait") {
        return;
    }
    let program = Program::new("mistakes.c", &[]);
    for (which, pes, far, waits, signal) in [
        ("21", 2, "8", 1, "SIGABRT"),
        ("24", 3, "8", 2, "SIGALRM"),
        ("24", 3, "1", 2, "SIGALRM"),
        ("25", 3, "8", 2, "SIGABRT"),
    ] {
        let out = program.run(pes, &[("RUSHMEM_PES_PER_NODE", far)], &[which]);
        let text = said(&out);
        assert!(!out.status.success() && out.status.code() != Some(124), "{which}, {}: {text}", out.status);
        let call = format!("PE {waits}: shmem_set_lock: ");
        let told = text.lines().any(|line| line.contains(&call) && line.contains("is gone"));
        assert!(told && text.contains(signal), "{which}, {far} PEs a node: {text}");
    }
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
        for first in ["mpi", "shmem", "plain", "inside", "threads"] {
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
    // What stands behind the suffix is ignored, and SHMEM_ goes before SMA_.
    for size in ["1.5m", "20kk", ".5M", "3.1mebibytes", "0", "1G", "4096", "0.001t"] {
        let out = program.run(1, &[("SHMEM_SYMMETRIC_SIZE", size), ("SMA_SYMMETRIC_SIZE", "x")], &[]);
        assert!(out.status.success(), "{size}: {}", said(&out));
    }
    for size in ["much", "", "-1", "12x", "nan", "inf", "1 k"] {
        let out = program.run(1, &[("SMA_SYMMETRIC_SIZE", size)], &[]);
        let text = said(&out);
        assert!(text.contains(&format!("SHMEM_SYMMETRIC_SIZE={size} is no size")), "{text}");
        assert_eq!(out.status.code(), Some(1), "{text}");
    }
}
